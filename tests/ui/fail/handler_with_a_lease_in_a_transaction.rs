use outbox::{OutboxEvent, outbox_handler};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
struct OrderPaid {
    order_id: u64,
}

#[outbox_handler(lease = "1m", concurrency = 4)]
async fn send_receipt(_: OrderPaid, _: &mut sqlx::SqliteConnection) {}

fn main() {}

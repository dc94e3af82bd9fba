use outbox::{OutboxEvent, outbox_handler};
use serde::{Deserialize, Serialize};
use sqlx::SqlitePool;

#[derive(Serialize, Deserialize, OutboxEvent)]
struct OrderPaid {
    order_id: u64,
}

#[outbox_handler]
async fn book(_: OrderPaid, _: &mut SqlitePool) {}

fn main() {}

use outbox::{OutboxEvent, outbox_handler};
use serde::{Deserialize, Serialize};
use sqlx::SqliteConnection;

#[derive(Serialize, Deserialize, OutboxEvent)]
struct OrderPaid {
    order_id: u64,
}

#[outbox_handler]
async fn book(_: OrderPaid, _: &mut SqliteConnection, _: &mut SqliteConnection) {}

fn main() {}

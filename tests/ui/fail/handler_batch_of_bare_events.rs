use outbox::{OutboxEvent, outbox_handler};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
struct OrderPaid {
    order_id: u64,
}

#[outbox_handler(batch = 500)]
async fn index(_: Vec<OrderPaid>) {}

fn main() {}

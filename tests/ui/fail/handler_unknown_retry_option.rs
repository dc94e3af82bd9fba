use outbox::{OutboxEvent, outbox_handler};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
struct OrderPaid {
    order_id: u64,
}

#[outbox_handler(consumer = "billing", retry(attempts = 3))]
async fn book(_: OrderPaid) {}

fn main() {}

use outbox::{OutboxEvent, outbox_handler};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
struct OrderPaid {
    order_id: u64,
}

#[outbox_handler(consume = "billing")]
async fn book(_: OrderPaid) {}

fn main() {}

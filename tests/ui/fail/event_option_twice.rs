use outbox::OutboxEvent;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(topic = "orders", topic = "sales")]
struct OrderPaid {
    order_id: u64,
}

fn main() {}

use outbox::OutboxEvent;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(type = "order.paid.{LEVEL}")]
struct OrderPaid {
    order_id: u64,
}

const LEVEL: u32 = 3;

fn main() {}

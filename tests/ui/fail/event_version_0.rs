use outbox::OutboxEvent;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(version = 0)]
struct OrderPaid {
    order_id: u64,
}

fn main() {}

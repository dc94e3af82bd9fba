use outbox::OutboxEvent;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(crate = 5)]
struct OrderPaid {
    order_id: u64,
}

fn main() {}

use outbox::OutboxEvent;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
struct OrderPaid {
    aggregate_id: u64,
    order_id: u64,
}

fn main() {}

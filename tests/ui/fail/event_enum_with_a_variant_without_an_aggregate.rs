use outbox::OutboxEvent;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
enum OrderEvent {
    Paid { order_id: u64 },
    DayClosed,
}

fn main() {}

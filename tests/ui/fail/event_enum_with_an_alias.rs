use outbox::OutboxEvent;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(alias = "order.paid")]
enum OrderEvent {
    Paid { order_id: u64 },
}

fn main() {}

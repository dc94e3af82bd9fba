use outbox::OutboxEvent;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
enum OrderEvent {
    Paid { order_id: u64 },
    #[outbox(type = "order.paid")]
    Settled { order_id: u64 },
}

fn main() {}

use outbox::OutboxEvent;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
enum OrderEvent {
    #[outbox(topic = "orders")]
    Paid { order_id: u64 },
}

fn main() {}

use outbox::OutboxEvent;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
enum OrderEvent {
    #[outbox(agregate = none)]
    Paid { order_id: u64 },
}

fn main() {}

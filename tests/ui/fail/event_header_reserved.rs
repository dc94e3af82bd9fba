use outbox::OutboxEvent;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
struct OrderPaid {
    order_id: u64,
    #[outbox(header = "ce-id")]
    trace: String,
}

fn main() {}

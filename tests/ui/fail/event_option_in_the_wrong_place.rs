use outbox::OutboxEvent;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
struct OrderPaid {
    #[outbox(aggregate = "{order_id}")]
    order_id: u64,
}

fn main() {}

use outbox::OutboxEvent;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(aggregate = "{order_id}")]
struct OrderPaid {
    #[outbox(aggregate_id)]
    order_id: u64,
}

fn main() {}

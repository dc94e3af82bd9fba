use outbox::OutboxEvent;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(aggregate = "order-{order_id")]
struct OrderPaid {
    order_id: u64,
}

fn main() {}

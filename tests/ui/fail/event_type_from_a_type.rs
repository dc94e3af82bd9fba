use outbox::OutboxEvent;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(type = "order.{C}")]
struct OrderPaid<C> {
    order_id: C,
}

fn main() {}

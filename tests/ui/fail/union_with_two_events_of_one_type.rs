use outbox::OutboxEvent;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
struct OrderPaid {
    order_id: u64,
}

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(type = "order.paid")]
struct Settled {
    order_id: u64,
}

#[derive(OutboxEvent)]
#[outbox(union)]
enum AnyOrder {
    Paid(OrderPaid),
    Settled(Settled),
}

fn main() {}

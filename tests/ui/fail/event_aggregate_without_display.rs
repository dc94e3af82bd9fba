use outbox::OutboxEvent;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct OrderId(u64);

#[derive(Serialize, Deserialize, OutboxEvent)]
struct OrderPaid {
    order_id: OrderId,
}

fn main() {}

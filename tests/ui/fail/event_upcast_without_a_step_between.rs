use outbox::OutboxEvent;
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct OrderPaidV1 {
    order_id: u64,
}

#[derive(Deserialize)]
struct OrderPaidV2 {
    order_id: u64,
}

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(version = 3, upcast(1 => OrderPaidV1, 2 => OrderPaidV2))]
struct OrderPaid {
    order_id: u64,
}

impl From<OrderPaidV2> for OrderPaid {
    fn from(old: OrderPaidV2) -> Self {
        Self { order_id: old.order_id }
    }
}

fn main() {}

use outbox::OutboxEvent;
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct OrderPaidV1 {
    order_id: u64,
}

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(version = 2, upcast(1 = OrderPaidV1))]
struct OrderPaid {
    order_id: u64,
}

impl From<OrderPaidV1> for OrderPaid {
    fn from(old: OrderPaidV1) -> Self {
        Self { order_id: old.order_id }
    }
}

fn main() {}

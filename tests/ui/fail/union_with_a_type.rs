use outbox::OutboxEvent;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
struct OrderPaid {
    order_id: u64,
}

#[derive(OutboxEvent)]
#[outbox(union, type = "order")]
enum AnyOrder {
    Paid(OrderPaid),
}

fn main() {}

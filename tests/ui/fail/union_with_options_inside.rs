use outbox::OutboxEvent;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
struct OrderPaid {
    order_id: u64,
}

#[derive(OutboxEvent)]
#[outbox(union)]
enum AnyOrder {
    #[outbox(version = 2)]
    Paid(OrderPaid),
}

fn main() {}

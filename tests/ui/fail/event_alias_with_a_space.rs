use outbox::OutboxEvent;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(alias = "order paid")]
struct OrderPaid {
    order_id: u64,
}

fn main() {}

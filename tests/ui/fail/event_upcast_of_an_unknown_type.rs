use outbox::OutboxEvent;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(version = 2, upcast(1 => OrderPadiV1))]
struct OrderPaid {
    order_id: u64,
}

fn main() {}

use outbox::OutboxEvent;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(version = 0, type, source = 3, alias = "", typo = [1, 2], topic = "orders")]
struct OrderPaid {
    #[outbox(header = "ce-type", key = "k")]
    order_id: u64,
}

fn main() {}

use outbox::OutboxEvent;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
struct OrderPaid {
    #[outbox(key)]
    order_id: u64,
    #[outbox(key)]
    shard: u8,
}

fn main() {}

use std::sync::Arc;

use outbox::{OutboxEvent, outbox_handler};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
struct OrderPaid {
    order_id: u64,
}

#[outbox_handler]
async fn book(_: OrderPaid, _: Arc<u8>) {}

fn main() {}

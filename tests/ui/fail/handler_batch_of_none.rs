use outbox::{Envelope, OutboxEvent, outbox_handler};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
struct OrderPaid {
    order_id: u64,
}

#[outbox_handler(batch = 0)]
async fn index(_: Vec<Envelope<OrderPaid>>) {}

fn main() {}

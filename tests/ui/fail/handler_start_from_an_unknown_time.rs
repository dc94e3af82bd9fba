use outbox::{OutboxEvent, outbox_handler};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
struct OrderPaid {
    order_id: u64,
}

#[outbox_handler(consumer = "billing", start_from = "2026-02-30T00:00:00Z")]
async fn book(_: OrderPaid) {}

fn main() {}

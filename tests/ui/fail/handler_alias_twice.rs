use outbox::{OutboxEvent, outbox_handler};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
struct OrderPaid {
    order_id: u64,
}

#[outbox_handler(consumer = "receipts", alias = "mail", alias = "mail")]
async fn send_receipt(_: OrderPaid) {}

fn main() {}

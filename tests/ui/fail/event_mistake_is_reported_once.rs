use outbox::{OutboxEvent, outbox_handler};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(version = "two")]
struct OrderPaid {
    order_id: u64,
}

#[outbox_handler]
async fn book(paid: OrderPaid) {
    println!("{:?}", paid.meta());
}

fn main() {}

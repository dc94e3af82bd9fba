use outbox::{OutboxEvent, outbox_handler};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
struct OrderPaid {
    order_id: u64,
}

#[outbox_handler]
async fn book(_: OrderPaid) -> Result<u8, std::io::Error> {
    Ok(1)
}

fn main() {}

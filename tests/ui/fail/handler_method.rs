use outbox::{OutboxEvent, outbox_handler};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
struct OrderPaid {
    order_id: u64,
}

struct Books;

impl Books {
    #[outbox_handler]
    async fn book(&self, _: OrderPaid) {}
}

fn main() {}

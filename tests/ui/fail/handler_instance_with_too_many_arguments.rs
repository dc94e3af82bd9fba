use outbox::{OutboxEvent, outbox_handler};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
struct OrderPaid {
    order_id: u64,
}

#[outbox_handler(instances(<OrderPaid>, <OrderPaid, 2>))]
async fn book<T: outbox::DecodeEvent>(_: T) {}

fn main() {}

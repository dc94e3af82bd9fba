use outbox::{OutboxEvent, outbox_handler};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
struct OrderPaid {
    order_id: u64,
}

#[outbox_handler]
async fn book<T>(_: T) {}

fn main() {
    let _ = std::marker::PhantomData::<book<OrderPaid>>;
}

use outbox::OutboxEvent;
use serde::Deserialize;

#[derive(Deserialize, OutboxEvent)]
struct OrderPaid {
    order_id: u64,
}

fn main() {}

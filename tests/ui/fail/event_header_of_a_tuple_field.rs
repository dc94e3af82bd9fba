use outbox::OutboxEvent;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
struct OrderPaid(#[outbox(aggregate_id)] u64, #[outbox(header)] String);

fn main() {}

use std::rc::Rc;

use outbox::{OutboxEvent, outbox_handler};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
struct OrderPaid {
    order_id: u64,
}

#[outbox_handler]
async fn book(_: OrderPaid) {
    let local = Rc::new(1);
    std::future::ready(()).await;
    drop(local);
}

fn main() {}

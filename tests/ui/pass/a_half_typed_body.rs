//! Only the signature of a handler is read: its body may hold what the macro's own parser does not know.

use outbox::{OutboxEvent, outbox_handler};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
struct OrderPaid {
    order_id: u64,
}

#[outbox_handler(manual)]
async fn book(paid: OrderPaid) {
    macro_rules! anything {
        ($($tokens:tt)*) => {};
    }
    anything! { paid. }
    let _ = paid.order_id;
}

fn main() {}

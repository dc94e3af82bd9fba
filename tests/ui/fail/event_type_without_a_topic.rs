use outbox::OutboxEvent;
use serde::{Deserialize, Serialize};

trait Currency {
    const CODE: &'static str;
}

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(type = "{C::CODE}.paid")]
struct OrderPaid<C: Currency> {
    order_id: u64,
    currency: C,
}

fn main() {}

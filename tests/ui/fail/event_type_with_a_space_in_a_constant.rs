use std::marker::PhantomData;

use outbox::OutboxEvent;
use serde::{Deserialize, Serialize};

trait Currency {
    const CODE: &'static str;
}

struct Long;

impl Currency for Long {
    const CODE: &'static str = "usd usd";
}

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(type = "order.{C::CODE}")]
#[serde(bound = "")]
struct OrderPaid<C: Currency> {
    order_id: u64,
    #[serde(skip)]
    currency: PhantomData<C>,
}

fn main() {
    let event = OrderPaid { order_id: 7, currency: PhantomData::<Long> };
    event.meta();
}

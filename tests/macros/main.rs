//! What the macros generate, seen at run time.

mod event;
mod handler;
mod registry;
mod run;
mod shapes;
mod versions;

use std::marker::PhantomData;

use outbox::OutboxEvent;
use serde::{Deserialize, Serialize};

trait Currency: Send + Sync + 'static {
    const CODE: &'static str;
}

#[derive(Debug, PartialEq)]
struct Usd;

#[derive(Debug, PartialEq)]
struct Eur;

impl Currency for Usd {
    const CODE: &'static str = "usd";
}

impl Currency for Eur {
    const CODE: &'static str = "eur";
}

#[derive(Debug, PartialEq, Serialize, Deserialize, OutboxEvent)]
struct OrderPlaced {
    order_id: u64,
}

#[derive(Debug, PartialEq, Serialize, Deserialize, OutboxEvent)]
#[serde(bound = "")]
#[outbox(type = "order.paid.{C::CODE}", aggregate = "order-{order_id}")]
#[outbox(alias = "paid-{C::CODE}", alias = "OrderPaid")]
struct OrderPaid<C: Currency> {
    order_id: u64,
    cents: i64,
    #[serde(skip)]
    currency: PhantomData<C>,
}

//! No prelude, and other things under every name that an expansion might use without saying where it is from.

use ::core::clone::Clone;
use ::core::cmp::PartialEq;
use ::core::fmt::Debug;
use ::core::prelude::v1::derive;
use ::outbox::{Context, Envelope, Metadata, State, outbox_handler};
use ::serde::{Deserialize, Serialize};

macro_rules! shadows {
    ($($name:ident)*) => {$(
        /// In the way.
        #[derive(Debug, Clone, Copy)]
        pub struct $name;
    )*};
}

use ::core::marker::Copy;

shadows! {
    Result Option Some None Ok Err String Vec Box Cow Send Sync Into From ToString Default Iterator Handler
    TypeSet EventMeta Headers PhantomData Backend DecodeEvent EventParam FromContext HandlerReturn
    Shape Upcast ConstName EventEntry Readable
}

/// In the way.
mod std {}
/// In the way.
mod core {}
/// In the way.
mod alloc {}
/// In the way.
mod serde {}
/// In the way.
mod sqlx {}
/// In the way.
mod outbox {}
/// In the way.
mod inventory {}

/// Not any of these macros.
macro_rules! in_the_way {
    ($($name:ident)*) => {$(
        #[allow(unused_macros, reason = "it is only in the way")]
        macro_rules! $name { () => {}; }
    )*};
}

in_the_way! { format concat line file module_path panic assert matches }

/// A currency.
pub trait Currency: ::core::marker::Send + ::core::marker::Sync + 'static {
    /// Its code.
    const CODE: &'static str;
}

/// A currency.
#[derive(Debug, Clone, Copy)]
pub struct Usd;

impl Currency for Usd {
    const CODE: &'static str = "usd";
}

/// An event with everything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ::outbox::OutboxEvent)]
#[serde(bound = "")]
#[outbox(type = "order.paid-{N}.{C::CODE}", aggregate = "{order_id}/{customer.id}")]
#[outbox(topic = "orders", source = "/shop", version = 3, alias = "paid-{C::CODE}")]
#[outbox(upcast(1 => PaidV1, 2 => Self))]
pub struct OrderPaid<C: Currency, const N: u128> {
    /// The order.
    pub order_id: u64,
    /// The customer.
    pub customer: Customer,
    /// The key.
    #[outbox(key)]
    pub shard: u8,
    /// A header.
    #[outbox(header)]
    pub tenant: ::std::string::String,
    /// A header.
    #[outbox(header = "x-trace")]
    pub trace: ::core::option::Option<u64>,
    /// The currency.
    #[serde(skip)]
    pub currency: ::core::marker::PhantomData<C>,
}

/// What it was.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct PaidV1 {
    /// The order.
    pub order_id: u64,
    /// The customer.
    pub customer: Customer,
}

impl<C: Currency, const N: u128> ::core::convert::From<PaidV1> for OrderPaid<C, N> {
    fn from(old: PaidV1) -> Self {
        Self {
            order_id: old.order_id,
            customer: old.customer,
            shard: 0,
            tenant: ::std::string::String::new(),
            trace: ::core::option::Option::None,
            currency: ::core::marker::PhantomData,
        }
    }
}

/// A customer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Customer {
    /// Its id.
    pub id: u64,
}

/// An event of several types, with field names that an expansion could use itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ::outbox::OutboxEvent)]
pub enum OrderEvent {
    /// One.
    Placed {
        /// The order.
        order_id: u64,
        /// In the way.
        #[outbox(header)]
        headers: u8,
        /// In the way.
        codec: u8,
    },
    /// Another.
    #[outbox(aggregate = "{0}")]
    Cancelled(#[outbox(header = "h")] u64, u8),
    /// A third.
    #[outbox(aggregate = none)]
    Closed,
}

/// An event whose variants have been something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ::outbox::OutboxEvent)]
#[serde(tag = "message", content = "event", rename_all = "kebab-case")]
#[outbox(aggregate = none, version = 3, upcast(2 => Was))]
pub enum Changed {
    /// One.
    Somewhat(u8),
    /// Another.
    #[outbox(version = 2, upcast(1 => Was))]
    Wholly {
        /// In the way.
        message: u8,
    },
    /// A third.
    #[outbox(version = 1)]
    NotAtAll,
}

/// What it was.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct Was(u8);

impl ::core::convert::From<Was> for Changed {
    fn from(old: Was) -> Self {
        Self::Somewhat(old.0)
    }
}

/// Nothing inside, with parameters of every kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ::outbox::OutboxEvent)]
#[outbox(type = "unit.{A}.{B}.{C}", aggregate = none)]
pub struct Unit<const A: i8, const B: bool, const C: char>;

/// One field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ::outbox::OutboxEvent)]
pub struct Newtype(#[outbox(aggregate_id, key, header = "n")] u8);

/// A raw name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ::outbox::OutboxEvent)]
#[outbox(type = "raw", aggregate = "{r#type}")]
#[allow(non_camel_case_types, reason = "a raw name is the point")]
pub struct r#struct {
    /// A raw name.
    pub r#type: u8,
}

/// Inside a function.
#[allow(clippy::missing_const_for_fn, reason = "what stands in it is the point")]
pub fn in_a_function() {
    /// An event.
    #[derive(Debug, Clone, Copy, Serialize, Deserialize, ::outbox::OutboxEvent)]
    struct Local {
        /// Its id.
        id: u8,
    }

    let local = Local { id: 1 };
    let _ = local;
}

/// Either, with a private event in it.
#[derive(Debug, ::outbox::OutboxEvent)]
#[outbox(union)]
enum Either<A, B>
where
    A: Debug,
{
    /// One.
    A(A),
    /// Another.
    B(B),
}

/// An event that can only be published.
#[derive(Debug, Serialize, ::outbox::OutboxEvent)]
pub struct NoteAdded<'a> {
    /// The note.
    pub note_id: &'a str,
}

/// Either event.
#[derive(Debug, ::outbox::OutboxEvent)]
#[outbox(union)]
pub enum AnyOrder {
    /// One.
    Event(OrderEvent),
    /// Another.
    Paid(OrderPaid<Usd, 3>),
}

/// A handler.
///
/// # Errors
/// Never.
#[outbox_handler(consumer = "everything")]
pub async fn with_everything(
    paid: Envelope<OrderPaid<Usd, 3>>,
    mailer: State<Customer>,
    db: &mut ::sqlx::SqliteConnection,
    meta: Metadata,
) -> ::core::result::Result<(), ::outbox::HandlerError> {
    ::core::mem::drop((paid, mailer, meta));
    let _ = db;
    ::core::result::Result::Ok(())
}

/// A handler.
#[outbox_handler]
pub async fn audit(event: AnyOrder) {
    ::core::mem::drop(event);
}

/// A handler.
#[outbox_handler(instances(<Usd, ::sqlx::Sqlite>))]
pub async fn generic<C: Currency, DB: ::outbox::Backend>(paid: OrderPaid<C, 3>, ctx: &mut Context<DB>) {
    ::core::mem::drop((paid, ctx));
}

/// A handler with a name that an expansion could use itself.
#[outbox_handler]
pub async fn ctx(event: OrderEvent, state: State<Customer>, ctx: &mut Context<::sqlx::Sqlite>) {
    ::core::mem::drop((event, state, ctx));
}

/// Another.
#[outbox_handler]
pub async fn states(event: OrderEvent, states: State<Customer>) {
    ::core::mem::drop((event, states));
}

/// A handler that says everything that is checked in constants.
#[outbox_handler(types = ["order.paid-3.usd"], batch = 3, effect = "external", concurrency = 2, lease = "1m")]
pub async fn some(batch: ::std::vec::Vec<Envelope<AnyOrder>>, shutdown: ::outbox::Shutdown) {
    ::core::mem::drop((batch, shutdown));
}

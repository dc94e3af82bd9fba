//! Events: typed values that know their name on the wire, their aggregate and their encoding.

use std::borrow::Cow;
use std::fmt;

use crate::codec::{Codec, Codecs};
use crate::error::Result;
use crate::headers::Headers;
use crate::message::Message;

mod dynamic;
mod name;
mod reading;

pub use self::dynamic::DynEvent;
pub use self::name::{ConstName, disjoint, member};
pub use self::reading::{
    DecodeInner, Owned, Readable, Shape, Upcast, agreeing, answers, known, read, too_old, unknown_type,
};

/// What is known at compile time of one event type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventMeta {
    /// The name on the wire, such as `order.paid`. A contract: a renamed type keeps it.
    pub event_type: &'static str,
    /// The version of the payload's shape, from 1.
    pub version: u32,
    /// Where messages of this type belong; the exchange, stream or subject of a broker.
    pub topic: &'static str,
    /// The producing system, when the event names one.
    pub source: Option<&'static str>,
    /// Older names that are still accepted on reading.
    pub aliases: &'static [&'static str],
    /// Module path and name of the Rust type, for messages to people.
    pub rust_type: &'static str,
}

impl EventMeta {
    /// For generated code: `#[non_exhaustive]` keeps others from writing the fields out.
    #[doc(hidden)]
    #[must_use]
    pub const fn new(
        event_type: &'static str,
        version: u32,
        topic: &'static str,
        source: Option<&'static str>,
        aliases: &'static [&'static str],
        rust_type: &'static str,
    ) -> Self {
        Self { event_type, version, topic, source, aliases, rust_type }
    }

    /// Whether `event_type` is this type's name or one of its aliases.
    #[must_use]
    pub fn answers_to(&self, event_type: &str) -> bool {
        self.event_type == event_type || self.aliases.contains(&event_type)
    }
}

/// The event types that one Rust type stands for.
///
/// A tree of constants, so that a union of (generic) events needs no concatenation of arrays.
#[derive(Debug, Clone, Copy)]
pub enum TypeSet {
    /// One type.
    One(&'static EventMeta),
    /// All types of several sets.
    Any(&'static [TypeSet]),
}

impl TypeSet {
    /// Every type of the set, in the order of its declaration.
    #[must_use]
    pub fn all(&self) -> Vec<&'static EventMeta> {
        match self {
            Self::One(meta) => vec![meta],
            Self::Any(sets) => sets.iter().flat_map(Self::all).collect(),
        }
    }

    /// The type that `event_type` names, by its name or an alias.
    #[must_use]
    pub fn find(&self, event_type: &str) -> Option<&'static EventMeta> {
        match self {
            Self::One(meta) => meta.answers_to(event_type).then_some(*meta),
            Self::Any(sets) => sets.iter().find_map(|set| set.find(event_type)),
        }
    }
}

/// An event that can be published. Implement it with `#[derive(OutboxEvent)]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an outbox event",
    label = "`OutboxEvent` is not implemented for this type",
    note = "add `#[derive(OutboxEvent, serde::Serialize)]` to the type"
)]
pub trait OutboxEvent {
    /// Every event type that a value of this Rust type can have.
    const TYPES: TypeSet;

    /// The event type of this value.
    fn meta(&self) -> &'static EventMeta;

    /// The aggregate that the event belongs to; `None` for an event that belongs to none and is unordered.
    ///
    /// Events of one aggregate and topic reach each consumer in commit order.
    fn aggregate_id(&self) -> Option<Cow<'_, str>>;

    /// The ordering key, where it is something other than topic and aggregate id.
    fn key(&self) -> Option<Cow<'_, str>> {
        None
    }

    /// Adds the headers that the event carries.
    ///
    /// # Errors
    /// [`InvalidMessage`](crate::ErrorKind::InvalidMessage) for a reserved or malformed header.
    fn headers(&self, headers: &mut Headers) -> Result<()> {
        let _ = headers;
        Ok(())
    }

    /// The payload.
    ///
    /// # Errors
    /// [`Encode`](crate::ErrorKind::Encode) when the value cannot be serialized.
    fn encode(&self, codec: &dyn Codec) -> Result<Vec<u8>>;
}

/// An event that a handler can receive: owned, and readable from a message.
///
/// `#[derive(OutboxEvent)]` implements it for each type that is also [`serde::Deserialize`], [`Send`] and
/// `'static`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be received by a handler",
    label = "`DecodeEvent` is not implemented for this type",
    note = "a handled event needs `#[derive(OutboxEvent, serde::Deserialize)]` and must own its data (no borrowed fields)"
)]
pub trait DecodeEvent: OutboxEvent + Sized + Send + 'static {
    /// Reads the event from a message of one of its [types](OutboxEvent::TYPES).
    ///
    /// # Errors
    /// [`Decode`](crate::ErrorKind::Decode), naming the path of what does not fit, and
    /// [`NewerVersion`](crate::ErrorKind::NewerVersion) for a message of a version that this build does not know.
    fn decode(message: &Message, codecs: &Codecs) -> Result<Self>;
}

macro_rules! pointer {
    ($($pointer:ty),*) => {$(
        impl<T: OutboxEvent + ?Sized> OutboxEvent for $pointer {
            const TYPES: TypeSet = T::TYPES;

            fn meta(&self) -> &'static EventMeta {
                T::meta(self)
            }

            fn aggregate_id(&self) -> Option<Cow<'_, str>> {
                T::aggregate_id(self)
            }

            fn key(&self) -> Option<Cow<'_, str>> {
                T::key(self)
            }

            fn headers(&self, headers: &mut Headers) -> Result<()> {
                T::headers(self, headers)
            }

            fn encode(&self, codec: &dyn Codec) -> Result<Vec<u8>> {
                T::encode(self, codec)
            }
        }
    )*};
}

pointer!(&T, Box<T>);

/// What an aggregate id, a key or a header is made of.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an aggregate id, a key or a header",
    label = "has no text: it does not implement `Display`"
)]
pub trait Text {
    /// The value as text.
    fn text(&self) -> String;
}

impl<T: fmt::Display + ?Sized> Text for T {
    fn text(&self) -> String {
        self.to_string()
    }
}

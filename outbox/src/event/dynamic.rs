//! Events as objects: lists of what happened, of different types.

use std::borrow::Cow;

use super::{EventMeta, OutboxEvent, TypeSet};
use crate::codec::Codec;
use crate::error::Result;
use crate::headers::Headers;

/// Any [`OutboxEvent`], as an object. `&dyn DynEvent` and `Box<dyn DynEvent + Send>` are events themselves, so a list of
/// different ones is published at once:
///
/// ```
/// # #[cfg(all(feature = "sqlite", feature = "macros"))] {
/// # use outbox::{DynEvent, Outbox, OutboxEvent};
/// # use serde::Serialize;
/// #[derive(Serialize, OutboxEvent)]
/// struct OrderPaid {
///     order_id: u64,
/// }
///
/// #[derive(Serialize, OutboxEvent)]
/// struct StockReserved {
///     order_id: u64,
/// }
///
/// # async fn example(outbox: Outbox<sqlx::Sqlite>) -> outbox::Result<()> {
/// let happened: Vec<Box<dyn DynEvent + Send>> =
///     vec![Box::new(OrderPaid { order_id: 7 }), Box::new(StockReserved { order_id: 7 })];
/// let mut tx = outbox.begin().await?;
/// outbox.publish_events(&mut tx, happened).await?;
/// tx.commit().await?;
/// # Ok(()) }
/// # }
/// ```
pub trait DynEvent {
    /// [`OutboxEvent::meta`].
    fn dyn_meta(&self) -> &'static EventMeta;

    /// [`OutboxEvent::aggregate_id`].
    fn dyn_aggregate_id(&self) -> Option<Cow<'_, str>>;

    /// [`OutboxEvent::key`].
    fn dyn_key(&self) -> Option<Cow<'_, str>>;

    /// [`OutboxEvent::headers`].
    ///
    /// # Errors
    /// As there.
    fn dyn_headers(&self, headers: &mut Headers) -> Result<()>;

    /// [`OutboxEvent::encode`].
    ///
    /// # Errors
    /// As there.
    fn dyn_encode(&self, codec: &dyn Codec) -> Result<Vec<u8>>;
}

impl<T: OutboxEvent> DynEvent for T {
    fn dyn_meta(&self) -> &'static EventMeta {
        self.meta()
    }

    fn dyn_aggregate_id(&self) -> Option<Cow<'_, str>> {
        self.aggregate_id()
    }

    fn dyn_key(&self) -> Option<Cow<'_, str>> {
        self.key()
    }

    fn dyn_headers(&self, headers: &mut Headers) -> Result<()> {
        self.headers(headers)
    }

    fn dyn_encode(&self, codec: &dyn Codec) -> Result<Vec<u8>> {
        self.encode(codec)
    }
}

macro_rules! object {
    ($($object:ty),*) => {$(
        impl OutboxEvent for $object {
            /// Which types it can have is not known before there is one.
            const TYPES: TypeSet = TypeSet::Any(&[]);

            fn meta(&self) -> &'static EventMeta {
                self.dyn_meta()
            }

            fn aggregate_id(&self) -> Option<Cow<'_, str>> {
                self.dyn_aggregate_id()
            }

            fn key(&self) -> Option<Cow<'_, str>> {
                self.dyn_key()
            }

            fn headers(&self, headers: &mut Headers) -> Result<()> {
                self.dyn_headers(headers)
            }

            fn encode(&self, codec: &dyn Codec) -> Result<Vec<u8>> {
                self.dyn_encode(codec)
            }
        }
    )*};
}

object!(dyn DynEvent + '_, dyn DynEvent + Send + '_, dyn DynEvent + Send + Sync + '_);

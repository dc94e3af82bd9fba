//! Reading an event back: which messages it answers to, and the shapes that its payload had in older versions.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{DecodeEvent, EventMeta, OutboxEvent};
use crate::codec::{self, Codecs};
use crate::error::{Error, ErrorKind, Result};
use crate::message::Message;

/// The bound of a derived [`DecodeEvent`].
///
/// Its lifetime keeps `for<'de> Self: Readable<'de>` from being a bound without parameters, which rustc would
/// check (and refuse, for an event that is only published) at the `impl` itself.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be received: it does not own its data, is not `Send`, or lacks `serde::Deserialize`",
    label = "this event can only be published"
)]
pub trait Readable<'de>: Deserialize<'de> + Send + 'static {}

impl<'de, T: Deserialize<'de> + Send + 'static> Readable<'de> for T {}

/// [`Readable`] for an event in a union, which reads itself.
#[doc(hidden)]
pub trait DecodeInner<'de>: DecodeEvent {}

impl<T: DecodeEvent> DecodeInner<'_> for T {}

/// [`Readable`] without the reading, for what stands in after a mistake in a derive.
#[doc(hidden)]
pub trait Owned<'de>: Send + 'static {}

impl<T: Send + 'static> Owned<'_> for T {}

/// The shape of a payload in an older version of its event.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be read as the payload of an older version",
    label = "lacks `serde::Deserialize`, or does not own its data",
    note = "an older shape needs `#[derive(serde::Deserialize)]`; it need not be an event itself"
)]
pub trait Shape: Sized {
    /// Reads the payload.
    ///
    /// # Errors
    /// [`Decode`](ErrorKind::Decode), naming the path of what does not fit.
    fn read(message: &Message, codecs: &Codecs) -> Result<Self>;
}

#[diagnostic::do_not_recommend]
impl<T: DeserializeOwned> Shape for T {
    fn read(message: &Message, codecs: &Codecs) -> Result<Self> {
        codec::decode(&message.payload, &message.content_type, codecs)
    }
}

/// One step from an older version to the next. It is `From` by another name, for the error where that is missing.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{Old}` does not become `{Self}`",
    label = "no `From` leads from one version to the next",
    note = "versions follow one another through `From`: write `impl From<{Old}> for {Self}`"
)]
pub trait Upcast<Old> {
    /// The same fact in the next version.
    fn upcast(old: Old) -> Self;
}

#[diagnostic::do_not_recommend]
impl<Old, New: From<Old>> Upcast<Old> for New {
    fn upcast(old: Old) -> Self {
        Self::from(old)
    }
}

/// The derived reading of an event whose older versions have the shape that it has now.
///
/// # Errors
/// As [`known`], [`Shape::read`] and [`agreeing`].
#[doc(hidden)]
pub fn read<E: OutboxEvent + Shape>(message: &Message, codecs: &Codecs) -> Result<E> {
    known::<E>(message)?;
    agreeing(E::read(message, codecs)?, message)
}

/// What this build knows of the message's type: an older version may be read, a newer one may not, whether or not it
/// happens to fit.
///
/// # Errors
/// [`Decode`](ErrorKind::Decode) for another type and [`NewerVersion`](ErrorKind::NewerVersion).
#[doc(hidden)]
pub fn known<E: OutboxEvent>(message: &Message) -> Result<&'static EventMeta> {
    let (event_type, version) = (&message.event_type, message.version);
    let Some(meta) = E::TYPES.find(event_type) else {
        let name = std::any::type_name::<E>();
        return Err(Error::new(ErrorKind::Decode, format!("`{name}` is no event of type `{event_type}`")));
    };
    if version > meta.version {
        return Err(Error::new(
            ErrorKind::NewerVersion,
            format!(
                "the message has version {version} of `{event_type}`, and `{}` of this build is version {}; deploy a \
                 build that knows it",
                meta.rust_type, meta.version
            ),
        ));
    }
    Ok(meta)
}

/// The event, if it is of the message's type. A variant is found by the payload, where serde looks; an untagged enum
/// whose variants have one shape would give another fact than the one that was published.
///
/// # Errors
/// [`Decode`](ErrorKind::Decode).
#[doc(hidden)]
pub fn agreeing<E: OutboxEvent>(event: E, message: &Message) -> Result<E> {
    let found = event.meta();
    if found.answers_to(&message.event_type) {
        return Ok(event);
    }
    Err(Error::new(
        ErrorKind::Decode,
        format!(
            "the message is of type `{}`, and its payload was read as `{}`; in an untagged enum each variant needs a \
             shape of its own",
            message.event_type, found.rust_type
        ),
    ))
}

/// What is said of a version before the first that the event still reads.
#[doc(hidden)]
#[must_use]
pub fn too_old(message: &Message, oldest: u32) -> Error {
    let (version, event_type) = (message.version, &message.event_type);
    Error::new(
        ErrorKind::Decode,
        format!(
            "the message has version {version} of `{event_type}`, and this build reads it from {oldest} on"
        ),
    )
}

/// Whether a message is of one of the types of `E`, for the derived reading of a union.
#[doc(hidden)]
#[must_use]
pub fn answers<E: OutboxEvent>(message: &Message) -> bool {
    E::TYPES.find(&message.event_type).is_some()
}

/// What the derived reading of a union says of a message that is of none of its types.
#[doc(hidden)]
#[must_use]
pub fn unknown_type(union: &str, message: &Message) -> Error {
    let event_type = &message.event_type;
    Error::new(ErrorKind::Decode, format!("`{union}` holds no event of type `{event_type}`"))
}

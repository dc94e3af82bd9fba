//! How events become payload bytes and come back: a seam for other formats, and JSON.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::{BoxError, Error, ErrorKind, Result};

mod finite;

/// A payload format.
///
/// It works through [`erased_serde`], so that one object serves every event. A codec gives
/// back what it was given: a value that it cannot represent is an error when it is written, not a surprise
/// when it is read.
pub trait Codec: Send + Sync + 'static {
    /// The media type stored with each message, such as `application/json`; it selects the codec on reading.
    fn content_type(&self) -> &str;

    /// Writes a value.
    ///
    /// # Errors
    /// Whatever keeps the value from being written so that it can be read back.
    fn encode(&self, value: &dyn erased_serde::Serialize) -> Result<Vec<u8>, BoxError>;

    /// Opens a deserializer over the whole payload and hands it to `read`, then checks that nothing is left.
    ///
    /// # Errors
    /// What `read` returns, and malformed or trailing input.
    fn decode(&self, payload: &[u8], read: Read<'_>) -> Result<(), erased_serde::Error>;
}

/// What [`Codec::decode`] calls with its deserializer.
pub type Read<'a> =
    &'a mut dyn FnMut(&mut dyn erased_serde::Deserializer<'_>) -> Result<(), erased_serde::Error>;

/// JSON as `serde_json` writes it, floats read back to the same bits.
///
/// Numbers that JSON has no form for (`NaN`, infinities) are refused with their path; `serde_json` alone would
/// write `null`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Json;

impl Codec for Json {
    fn content_type(&self) -> &'static str {
        "application/json"
    }

    fn encode(&self, value: &dyn erased_serde::Serialize) -> Result<Vec<u8>, BoxError> {
        finite::check(value)?;
        Ok(serde_json::to_vec(value)?)
    }

    fn decode(&self, payload: &[u8], read: Read<'_>) -> Result<(), erased_serde::Error> {
        let mut json = serde_json::Deserializer::from_slice(payload);
        read(&mut <dyn erased_serde::Deserializer>::erase(&mut json))?;
        json.end().map_err(serde::de::Error::custom)
    }
}

/// The codecs of an outbox: the one that writes, and all that read, by content type.
#[derive(Clone)]
pub struct Codecs {
    writer: Arc<dyn Codec>,
    /// JSON is always read, so that a switch of format leaves the stored messages readable.
    json: Arc<dyn Codec>,
}

impl Codecs {
    pub(crate) fn new(writer: Arc<dyn Codec>) -> Self {
        Self { writer, json: Arc::new(Json) }
    }

    /// The codec that writes.
    #[must_use]
    pub fn writer(&self) -> &dyn Codec {
        &*self.writer
    }

    fn reader(&self, content_type: &str) -> Option<&dyn Codec> {
        // Parameters such as `charset=utf-8` say nothing of the format, and case says nothing at all (RFC 9110,
        // section 8.3.1).
        let media_type = |text: &str| text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let wanted = media_type(content_type);
        [&*self.writer, &*self.json].into_iter().find(|codec| media_type(codec.content_type()) == wanted)
    }
}

impl Default for Codecs {
    fn default() -> Self {
        Self::new(Arc::new(Json))
    }
}

impl fmt::Debug for Codecs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Codecs").field("writer", &self.writer.content_type()).finish_non_exhaustive()
    }
}

/// Writes a value with `codec`; for generated code and for events written by hand.
///
/// # Errors
/// [`Encode`](ErrorKind::Encode).
pub fn encode<T: Serialize>(value: &T, codec: &dyn Codec) -> Result<Vec<u8>> {
    write(value, std::any::type_name::<T>(), codec)
}

fn write(value: &dyn erased_serde::Serialize, name: &str, codec: &dyn Codec) -> Result<Vec<u8>> {
    codec.encode(value).map_err(|cause| {
        Error::new(ErrorKind::Encode, format!("`{name}` could not be written as {}", codec.content_type()))
            .with_source(cause)
    })
}

/// Reads a value from a payload of `content_type`; for generated code and for events written by hand.
///
/// # Errors
/// [`Decode`](ErrorKind::Decode), naming the path of what does not fit.
pub fn decode<T>(payload: &[u8], content_type: &str, codecs: &Codecs) -> Result<T>
where
    T: for<'de> Deserialize<'de>,
{
    let name = std::any::type_name::<T>();
    let mut value = None;
    read(payload, content_type, codecs, name, &mut |deserializer| {
        value = Some(T::deserialize(deserializer)?);
        Ok(())
    })?;
    value.ok_or_else(|| failed(format!("the codec of `{content_type}` did not read the payload")))
}

/// All of [`decode`] but the type, which would be compiled anew with each.
fn read(payload: &[u8], content_type: &str, codecs: &Codecs, name: &str, read: Read<'_>) -> Result<()> {
    let Some(codec) = codecs.reader(content_type) else {
        return Err(failed(format!("no codec reads `{content_type}`, which a payload for `{name}` has")));
    };
    codec.decode(payload, read).map_err(|cause| {
        let at = match path(codec, payload, read).filter(|path| path != ".") {
            Some(path) => format!(": at `{path}`"),
            None => String::new(),
        };
        failed(format!("the payload is no `{name}`{at}")).with_source(cause)
    })
}

/// Where a payload does not fit: it is read once more, with an eye on the way.
fn path(codec: &dyn Codec, payload: &[u8], read: Read<'_>) -> Option<String> {
    let mut path = None;
    let again = codec.decode(payload, &mut |deserializer| {
        let mut track = serde_path_to_error::Track::new();
        let tracked = serde_path_to_error::Deserializer::new(deserializer, &mut track);
        let outcome = read(&mut <dyn erased_serde::Deserializer>::erase(tracked));
        if outcome.is_err() {
            path = Some(track.path().to_string());
        }
        outcome
    });
    again.err().and(path)
}

fn failed(what: String) -> Error {
    Error::new(ErrorKind::Decode, what)
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Line {
        cents: f64,
        note: Option<f64>,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Order {
        lines: Vec<Line>,
    }

    fn order(cents: f64, note: Option<f64>) -> Order {
        Order { lines: vec![Line { cents: 1.0, note: None }, Line { cents, note }] }
    }

    #[test]
    fn numbers_that_could_not_come_back_are_refused_with_their_path() {
        for (bad, path) in [
            (order(f64::NAN, None), "lines[1].cents"),
            (order(f64::INFINITY, None), "lines[1].cents"),
            (order(0.0, Some(f64::NEG_INFINITY)), "lines[1].note"),
        ] {
            let error = encode(&bad, &Json).expect_err(path);
            assert_eq!(error.kind(), ErrorKind::Encode);
            let cause = error.source().expect("has a cause").to_string();
            assert!(cause.contains(path), "{cause}");
        }
    }

    #[test]
    fn floats_come_back_to_the_bit() {
        for bits in
            [117.633_313_394_000_17, 9_007_199_254_740_991.0, 1e-203, -0.0, f64::MAX, f64::MIN_POSITIVE]
        {
            let payload = encode(&bits, &Json).expect("finite");
            let back: f64 = decode(&payload, "application/json", &Codecs::default()).expect("reads back");
            assert_eq!(back.to_bits(), bits.to_bits());
        }
    }

    #[test]
    fn a_payload_that_does_not_fit_names_the_path() {
        let codecs = Codecs::default();
        for (payload, expected) in [
            (r#"{"lines":[{"cents":"3"}]}"#, "at `lines[0].cents`"),
            ("{", "the payload is no"),
            (r#"{"lines":[]} trailing"#, "the payload is no"),
            ("\u{fffd}", "the payload is no"),
        ] {
            let error = decode::<Order>(payload.as_bytes(), "application/json", &codecs).expect_err(payload);
            assert_eq!(error.kind(), ErrorKind::Decode);
            assert!(error.to_string().contains(expected), "{error}");
        }
        assert!(decode::<Order>(br#"{"lines":[]}"#, "Application/JSON; charset=utf-8", &codecs).is_ok());
        let error = decode::<Order>(b"{}", "application/x-unknown", &codecs).expect_err("no codec");
        assert!(error.to_string().contains("no codec reads `application/x-unknown`"), "{error}");
    }
}

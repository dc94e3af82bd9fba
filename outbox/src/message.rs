//! Messages: what is stored and what travels.

use std::fmt;
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::{Error, ErrorKind, Result};
use crate::headers::{CAUSATION_ID, CORRELATION_ID, Headers};

/// The longest id, key, event type, topic, source or aggregate id, in bytes; the same on every database.
pub(crate) const MAX_TEXT: usize = 255;

/// The identity of a message: 1 to 255 bytes, compared byte by byte.
///
/// The inbox knows a message by it, so whatever is the same fact has the same id: a domain event's own id, or
/// one that was received.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MessageId(String);

impl MessageId {
    /// An id of one's own.
    ///
    /// # Errors
    /// [`InvalidMessage`](ErrorKind::InvalidMessage) for an empty id, one over 255 bytes or one with a NUL.
    pub fn new(id: impl Into<String>) -> Result<Self> {
        let id = id.into();
        check_text("id", &id)?;
        Ok(Self(id))
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<Uuid> for MessageId {
    fn from(id: Uuid) -> Self {
        Self(id.to_string())
    }
}

impl From<MessageId> for String {
    fn from(id: MessageId) -> Self {
        id.0
    }
}

impl TryFrom<String> for MessageId {
    type Error = Error;

    fn try_from(id: String) -> Result<Self> {
        Self::new(id)
    }
}

/// A message as it is stored, payload byte for byte.
///
/// It is `Serialize` and `Deserialize`, for moving messages between systems by hand: the payload is a string
/// when it is UTF-8, else base64 under `payload_base64`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Wire", into = "Wire")]
#[non_exhaustive]
pub struct Message {
    /// The message's identity.
    pub id: MessageId,
    /// The event type, such as `order.paid`.
    pub event_type: String,
    /// The version of the payload's shape, from 1.
    pub version: u32,
    /// The topic.
    pub topic: String,
    /// The producing system, if the event named one.
    pub source: Option<String>,
    /// The aggregate that the event belongs to.
    pub aggregate_id: Option<String>,
    /// The ordering key; `None` for an unordered message.
    pub key: Option<String>,
    /// The payload, exactly as it was published.
    pub payload: Vec<u8>,
    /// The media type of the payload.
    pub content_type: String,
    /// The headers.
    pub headers: Headers,
    /// When the message was published, by the database's clock.
    pub created_at: SystemTime,
}

impl fmt::Debug for Message {
    /// The payload as text where it is some, and short; else its length.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("id", &self.id)
            .field("event_type", &self.event_type)
            .field("version", &self.version)
            .field("topic", &self.topic)
            .field("source", &self.source)
            .field("aggregate_id", &self.aggregate_id)
            .field("key", &self.key)
            .field("payload", &Payload(&self.payload))
            .field("content_type", &self.content_type)
            .field("headers", &self.headers)
            .field("created_at", &self.created_at)
            .finish()
    }
}

/// A payload for people.
pub(crate) struct Payload<'a>(pub(crate) &'a [u8]);

impl fmt::Debug for Payload<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LONGEST: usize = 1024;
        match std::str::from_utf8(self.0) {
            Ok(text) if text.len() <= LONGEST => fmt::Debug::fmt(text, f),
            _ => write!(f, "<{} bytes>", self.0.len()),
        }
    }
}

impl Message {
    /// The id of the message whose handler has published this one, from the header `outbox-causation-id`.
    #[must_use]
    pub fn causation_id(&self) -> Option<&str> {
        self.headers.get(CAUSATION_ID)
    }

    /// What this message has in common with all that one message led to, from the header `outbox-correlation-id`: the id of
    /// that first message, unless somebody has set another. `None` for that message itself.
    #[must_use]
    pub fn correlation_id(&self) -> Option<&str> {
        self.headers.get(CORRELATION_ID)
    }

    /// Reads a message from the JSON that [`to_json`](Self::to_json) writes.
    ///
    /// # Errors
    /// [`Decode`](ErrorKind::Decode) for every malformed input.
    pub fn from_json(json: &[u8]) -> Result<Self> {
        serde_json::from_slice(json)
            .map_err(|cause| Error::new(ErrorKind::Decode, "not a message in JSON").with_source(cause))
    }

    /// Writes the message as JSON.
    ///
    /// # Errors
    /// [`Encode`](ErrorKind::Encode) for a time that RFC 3339 cannot express.
    pub fn to_json(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(|cause| {
            Error::new(ErrorKind::Encode, format!("message `{}` could not be written as JSON", self.id))
                .with_source(cause)
        })
    }
}

/// The serialized form of a [`Message`].
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    id: MessageId,
    event_type: String,
    version: u32,
    topic: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    aggregate_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    payload: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    content_type: String,
    #[serde(default, skip_serializing_if = "Headers::is_empty")]
    headers: Headers,
    created_at: DateTime<Utc>,
}

impl From<Message> for Wire {
    fn from(message: Message) -> Self {
        let (payload, payload_base64) = match String::from_utf8(message.payload) {
            Ok(text) => (Some(text), None),
            Err(bytes) => (None, Some(STANDARD.encode(bytes.as_bytes()))),
        };
        Self {
            id: message.id,
            event_type: message.event_type,
            version: message.version,
            topic: message.topic,
            source: message.source,
            aggregate_id: message.aggregate_id,
            key: message.key,
            payload,
            payload_base64,
            content_type: message.content_type,
            headers: message.headers,
            created_at: message.created_at.into(),
        }
    }
}

impl TryFrom<Wire> for Message {
    type Error = Error;

    fn try_from(wire: Wire) -> Result<Self> {
        check_event_type(&wire.event_type)?;
        check_text("topic", &wire.topic)?;
        let payload = match (wire.payload, wire.payload_base64) {
            (Some(text), None) => text.into_bytes(),
            (None, Some(base64)) => STANDARD.decode(base64).map_err(|cause| {
                Error::new(ErrorKind::InvalidMessage, "`payload_base64` is not base64").with_source(cause)
            })?,
            _ => {
                return Err(Error::new(
                    ErrorKind::InvalidMessage,
                    "a message has either `payload` or `payload_base64`",
                ));
            }
        };
        Ok(Self {
            id: wire.id,
            event_type: wire.event_type,
            version: wire.version,
            topic: wire.topic,
            source: wire.source,
            aggregate_id: wire.aggregate_id,
            key: wire.key,
            payload,
            content_type: wire.content_type,
            headers: wire.headers,
            created_at: wire.created_at.into(),
        })
    }
}

/// A text that every database can store in a key column, compare byte by byte, and give back.
pub(crate) fn check_text(what: &str, text: &str) -> Result<()> {
    let problem = if text.is_empty() {
        "is empty".to_owned()
    } else if text.len() > MAX_TEXT {
        format!("has {} bytes, and {MAX_TEXT} is the most", text.len())
    } else if text.contains('\0') {
        "contains a NUL byte".to_owned()
    } else {
        return Ok(());
    };
    Err(Error::new(ErrorKind::InvalidMessage, format!("the {what} {problem}")))
}

/// Event types match `[A-Za-z0-9._:-]{1,255}`.
pub(crate) fn check_event_type(event_type: &str) -> Result<()> {
    check_text("event type", event_type)?;
    match event_type.chars().find(|c| !(c.is_ascii_alphanumeric() || "._:-".contains(*c))) {
        Some(bad) => Err(Error::new(
            ErrorKind::InvalidMessage,
            format!("the event type `{event_type}` contains {bad:?}; use A-Z a-z 0-9 . _ : -"),
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    fn message(payload: &[u8]) -> Message {
        Message {
            id: MessageId::new("m-1").expect("valid"),
            event_type: "order.paid".into(),
            version: 1,
            topic: "order".into(),
            source: None,
            aggregate_id: Some("7".into()),
            key: Some("order\u{1f}7".into()),
            payload: payload.to_vec(),
            content_type: "application/json".into(),
            headers: Headers::new(),
            created_at: UNIX_EPOCH + Duration::from_micros(1_700_000_000_123_456),
        }
    }

    #[test]
    fn a_message_comes_back_from_its_json() {
        for payload in [&b"{\"a\": 1.0 }"[..], b"\xff\x00\xfe", b""] {
            let message = message(payload);
            let json = message.to_json().expect("writes");
            assert_eq!(Message::from_json(&json).expect("reads"), message);
        }
    }

    #[test]
    fn a_message_is_printed_for_people() {
        let printed = |payload: &[u8]| format!("{:?}", message(payload));
        assert!(
            printed(b"{\"a\":\"\xc3\xa9\"}").contains(r#"payload: "{\"a\":\"é\"}","#),
            "{}",
            printed(b"{}")
        );
        assert!(printed(b"\xff\x00\xfe").contains("payload: <3 bytes>,"));
        assert!(printed(&[b'x'; 2_000]).contains("payload: <2000 bytes>,"));
    }

    #[test]
    fn malformed_input_is_one_kind_of_error() {
        let good = String::from_utf8(message(b"x").to_json().expect("writes")).expect("JSON is UTF-8");
        let long = format!("\"id\":\"{}\"", "i".repeat(256));
        for bad in [
            "",
            "[]",
            "{}",
            &good[..good.len() - 1],
            &good.replace("\"id\":\"m-1\"", "\"id\":\"\""),
            &good.replace("\"id\":\"m-1\"", &long),
            &good.replace("order.paid", "order paid"),
            &good.replace("\"payload\":\"x\"", "\"payload_base64\":\"?\""),
            &good.replace("\"payload\":\"x\",", ""),
            &good.replace("\"payload\"", "\"extra\""),
            &good.replace("\"created_at\":\"2", "\"created_at\":\"x"),
            &good.replace("\"version\":1", "\"version\":-1"),
        ] {
            let error = Message::from_json(bad.as_bytes()).expect_err(bad);
            assert_eq!(error.kind(), ErrorKind::Decode, "{bad}");
        }
    }
}

//! Drafts: messages before they are stored, and the rules they must keep.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::codec::Codecs;
use crate::error::{Error, ErrorKind, Result};
use crate::event::OutboxEvent;
use crate::headers::{CAUSATION_ID, CORRELATION_ID, Headers};
use crate::key::{self, Key};
use crate::message::{Message, MessageId, Payload, check_event_type, check_text};

/// An untyped message to publish: any type name, any bytes.
///
/// ```
/// # use outbox::{Draft, MessageId};
/// let draft = Draft::new("order.paid", br#"{"order_id":7}"#.to_vec())
///     .id(MessageId::new("payment-311")?)
///     .aggregate_id("7");
/// # Ok::<(), outbox::Error>(())
/// ```
#[derive(Clone)]
pub struct Draft {
    id: Option<MessageId>,
    event_type: String,
    version: u32,
    topic: Option<String>,
    source: Option<String>,
    aggregate_id: Option<String>,
    key: Option<String>,
    payload: Vec<u8>,
    content_type: String,
    headers: Headers,
    causation_id: Option<String>,
    correlation_id: Option<String>,
    /// What a cause gives it.
    links: Headers,
    deliver: Option<DeliverAt>,
}

impl fmt::Debug for Draft {
    /// The payload as [`Message`](crate::Message) shows it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Draft")
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
            .field("causation_id", &self.causation_id)
            .field("correlation_id", &self.correlation_id)
            .field("links", &self.links)
            .field("deliver", &self.deliver)
            .finish()
    }
}

/// When a delayed message is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeliverAt {
    Time(SystemTime),
    /// From the publish on, by the database's clock.
    After(Duration),
}

/// The last moment for a delayed message: the end of the year 9999.
const HORIZON: Duration = Duration::from_secs(253_402_300_799);
/// The longest delay: a hundred years.
const LONGEST_DELAY: Duration = Duration::from_hours(36_525 * 24);

impl Draft {
    /// A draft of version 1 with a JSON payload; topic = the type's first word, no aggregate, so unordered.
    #[must_use]
    pub fn new(event_type: impl Into<String>, payload: impl Into<Vec<u8>>) -> Self {
        Self {
            id: None,
            event_type: event_type.into(),
            version: 1,
            topic: None,
            source: None,
            aggregate_id: None,
            key: None,
            payload: payload.into(),
            content_type: "application/json".into(),
            headers: Headers::new(),
            causation_id: None,
            correlation_id: None,
            links: Headers::new(),
            deliver: None,
        }
    }

    /// The draft of an event, encoded now.
    pub(crate) fn of<E: OutboxEvent>(event: &E, codecs: &Codecs) -> Result<Self> {
        let meta = event.meta();
        let mut headers = Headers::new();
        event.headers(&mut headers)?;
        let writer = codecs.writer();
        Ok(Self {
            id: None,
            event_type: meta.event_type.into(),
            version: meta.version,
            topic: Some(meta.topic.into()),
            source: meta.source.map(Into::into),
            aggregate_id: event.aggregate_id().map(Into::into),
            key: event.key().map(Into::into),
            payload: event.encode(writer)?,
            content_type: writer.content_type().into(),
            headers,
            causation_id: None,
            correlation_id: None,
            links: Headers::new(),
            deliver: None,
        })
    }

    /// The message's own id, such as the domain event's. Publishing one id twice stores one message.
    #[must_use]
    pub fn id(mut self, id: MessageId) -> Self {
        self.id = Some(id);
        self
    }

    /// The version of the payload's shape, from 1.
    #[must_use]
    pub fn version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }

    /// The topic.
    #[must_use]
    pub fn topic(mut self, topic: impl Into<String>) -> Self {
        self.topic = Some(topic.into());
        self
    }

    /// The producing system.
    #[must_use]
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The aggregate. Messages of one topic and aggregate reach each consumer in commit order.
    #[must_use]
    pub fn aggregate_id(mut self, aggregate_id: impl Into<String>) -> Self {
        self.aggregate_id = Some(aggregate_id.into());
        self
    }

    /// An ordering key of one's own, in place of topic and aggregate id.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// The media type of the payload; `application/json` unless set.
    #[must_use]
    pub fn content_type(mut self, content_type: impl Into<String>) -> Self {
        self.content_type = content_type.into();
        self
    }

    /// The headers.
    #[must_use]
    pub fn headers(mut self, headers: Headers) -> Self {
        self.headers = headers;
        self
    }

    /// Published because of this message: the draft gets the [headers](Headers) that link it to that one, where they are not
    /// set. What a handler publishes on its [`Context`](crate::Context) gets those of the message that it handles by itself;
    /// this is for the members of a batch, and for what a broker brought.
    #[must_use]
    pub fn caused_by(mut self, cause: &Message) -> Self {
        self.links = Headers::links(cause.id.as_str(), &cause.headers);
        self
    }

    /// The id of what this message is published because of, in place of that of the message that is handled: 1 to 255 bytes
    /// without control characters.
    #[must_use]
    pub fn causation_id(mut self, id: impl Into<String>) -> Self {
        self.causation_id = Some(id.into());
        self
    }

    /// What this message has in common with others, in place of what it would get from the message that is handled: the id of a
    /// request, for example. 1 to 255 bytes without control characters. All that it leads to will have it too.
    #[must_use]
    pub fn correlation_id(mut self, id: impl Into<String>) -> Self {
        self.correlation_id = Some(id.into());
        self
    }

    /// Not to be handled before this time; one that is past means at once.
    ///
    /// A delayed message leaves the order of its key: nothing waits for it.
    #[must_use]
    pub fn deliver_at(mut self, time: SystemTime) -> Self {
        self.deliver = Some(DeliverAt::Time(time));
        self
    }

    /// Not to be handled before this much time has passed since the publish, by the database's clock. As
    /// [`deliver_at`](Self::deliver_at).
    #[must_use]
    pub fn deliver_after(mut self, delay: Duration) -> Self {
        self.deliver = Some(DeliverAt::After(delay));
        self
    }

    /// Checks every rule and derives what is stored beside.
    pub(crate) fn check(self, max_payload: usize, new_id: impl FnOnce() -> MessageId) -> Result<Outgoing> {
        let name = &self.event_type;
        check_event_type(name)?;
        let in_message = |e: Error| {
            Error::new(ErrorKind::InvalidMessage, format!("an event of type `{name}` was refused: {e}"))
        };
        let refuse = |what: String| in_message(Error::new(ErrorKind::InvalidMessage, what));
        if self.payload.len() > max_payload {
            return Err(refuse(format!(
                "its payload has {} bytes, and {max_payload} is the most; store the data elsewhere and publish \
                 a reference, or raise `Config::max_payload`",
                self.payload.len()
            )));
        }
        let version = i32::try_from(self.version).ok().filter(|version| *version > 0).ok_or_else(|| {
            refuse(format!("its version is {}, and versions go from 1 to {}", self.version, i32::MAX))
        })?;
        let topic = self.topic.unwrap_or_else(|| {
            let word = name.split(|c: char| !c.is_ascii_alphanumeric()).find(|word| !word.is_empty());
            word.unwrap_or(name).to_owned()
        });
        check_text("topic", &topic).map_err(in_message)?;
        if topic.chars().any(char::is_control) {
            return Err(refuse(format!("its topic {topic:?} contains a control character")));
        }
        check_text("content type", &self.content_type).map_err(in_message)?;
        for (what, text) in
            [("source", &self.source), ("aggregate id", &self.aggregate_id), ("ordering key", &self.key)]
        {
            if let Some(text) = text {
                check_text(what, text).map_err(in_message)?;
            }
        }
        let deliver = match self.deliver {
            // Before 1970 is past like any other.
            Some(DeliverAt::Time(time)) => match time.duration_since(UNIX_EPOCH) {
                Ok(since) if since > HORIZON => {
                    return Err(refuse("it is to be delivered after the year 9999".to_owned()));
                }
                _ => Some(DeliverAt::Time(time.max(UNIX_EPOCH))),
            },
            Some(DeliverAt::After(delay)) if delay > LONGEST_DELAY => {
                return Err(refuse("it is to be delivered after more than a hundred years".to_owned()));
            }
            deliver => deliver,
        };
        let key = match (self.key, &self.aggregate_id) {
            (Some(key), _) => Some(Key::explicit(key)),
            (None, Some(aggregate)) => Some(Key::of_aggregate(&topic, aggregate)),
            (None, None) => None,
        };
        let mut headers = self.headers;
        for (header, id) in [(CAUSATION_ID, self.causation_id), (CORRELATION_ID, self.correlation_id)] {
            if let Some(id) = id {
                headers.insert(header, id).map_err(in_message)?;
            }
        }
        headers.fill(self.links);
        let id = self.id.unwrap_or_else(new_id);
        let headers = if headers.is_empty() { None } else { Some(as_json(&headers)) };
        Ok(Outgoing {
            slot: key::slot(key.as_ref(), id.as_str()),
            id,
            version,
            topic,
            source: self.source,
            aggregate_id: self.aggregate_id,
            key,
            payload: self.payload,
            content_type: self.content_type,
            headers,
            deliver,
            event_type: self.event_type,
        })
    }
}

/// A checked message: every field as the row has it.
#[derive(Debug, Clone)]
pub(crate) struct Outgoing {
    pub(crate) id: MessageId,
    pub(crate) event_type: String,
    pub(crate) version: i32,
    pub(crate) topic: String,
    pub(crate) source: Option<String>,
    pub(crate) aggregate_id: Option<String>,
    pub(crate) key: Option<Key>,
    pub(crate) slot: i32,
    pub(crate) payload: Vec<u8>,
    pub(crate) content_type: String,
    pub(crate) headers: Option<String>,
    pub(crate) deliver: Option<DeliverAt>,
}

impl Outgoing {
    /// Adds what links it to the message whose handler publishes it.
    pub(crate) fn link(&mut self, cause: &Message) {
        let mut headers = match &self.headers {
            Some(json) => serde_json::from_str(json).expect("it was written here"),
            None => Headers::new(),
        };
        headers.fill(Headers::links(cause.id.as_str(), &cause.headers));
        if !headers.is_empty() {
            self.headers = Some(as_json(&headers));
        }
    }
}

fn as_json(headers: &Headers) -> String {
    serde_json::to_string(headers).expect("a map of strings is JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(draft: Draft) -> Result<Outgoing> {
        draft.check(16, || MessageId::new("generated").expect("valid"))
    }

    #[test]
    fn every_rule_is_checked_before_anything_is_written() {
        let long = "x".repeat(256);
        for (draft, expected) in [
            (Draft::new("", "{}"), "is empty"),
            (Draft::new("order paid", "{}"), "use A-Z a-z"),
            (Draft::new("order\0", "{}"), "NUL"),
            (Draft::new(long.clone(), "{}"), "256 bytes"),
            (Draft::new("t", "x".repeat(17)), "17 bytes, and 16 is the most"),
            (Draft::new("t", "").version(0), "versions go from 1"),
            (Draft::new("t", "").version(u32::MAX), "versions go from 1"),
            (Draft::new("t", "").topic("a\u{1f}b"), "control character"),
            (Draft::new("t", "").topic(long.clone()), "the topic has 256 bytes"),
            (Draft::new("t", "").aggregate_id(""), "the aggregate id is empty"),
            (Draft::new("t", "").aggregate_id("a\0"), "the aggregate id contains a NUL"),
            (Draft::new("t", "").aggregate_id(long.clone()), "the aggregate id has 256 bytes"),
            (Draft::new("t", "").key(long.clone()), "the ordering key has 256 bytes"),
            (Draft::new("t", "").source("a\0"), "the source contains a NUL"),
            (Draft::new("t", "").content_type(""), "the content type is empty"),
            (Draft::new("t", "").causation_id(""), "`outbox-causation-id` holds an id of 1 to 255 bytes"),
            (Draft::new("t", "").correlation_id(long.clone()), "and was given 256"),
            (Draft::new("t", "").correlation_id("a\nb"), "control character"),
            (Draft::new("t", "").deliver_at(UNIX_EPOCH + HORIZON * 2), "after the year 9999"),
            (Draft::new("t", "").deliver_after(Duration::MAX), "more than a hundred years"),
        ] {
            let error = check(draft).expect_err(expected);
            assert_eq!(error.kind(), ErrorKind::InvalidMessage);
            assert!(error.to_string().contains(expected), "{error}");
        }
        assert!(
            MessageId::new(long).is_err() && MessageId::new("").is_err() && MessageId::new("a\0").is_err()
        );
    }

    #[test]
    fn the_key_is_the_given_one_else_topic_and_aggregate_else_none() {
        let key = |draft| check(draft).expect("valid").key.map(|key| key.text);
        assert_eq!(key(Draft::new("order.paid", "")), None);
        assert_eq!(key(Draft::new("order.paid", "").aggregate_id("7")).as_deref(), Some("order\u{1f}7"));
        assert_eq!(key(Draft::new("order.paid", "").aggregate_id("7").key("k")).as_deref(), Some("k"));
    }

    #[test]
    fn the_limits_themselves_are_allowed() {
        let full = "x".repeat(255);
        let draft = Draft::new(full.clone(), "x".repeat(16)).aggregate_id(full.clone()).topic(full);
        assert!(check(draft).is_ok());
    }
}

//! Headers: short named texts that travel beside the payload.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};

/// The headers of a message, sorted by name.
///
/// Names are tokens as in [RFC 9110, section 5.6.2](https://www.rfc-editor.org/rfc/rfc9110#section-5.6.2), at
/// most 255 bytes, so that every broker can carry them; values are texts without control characters. Together
/// they are at most 16 KiB.
///
/// What a handler publishes gets four of them by itself, from the message that it handles, unless they are set by hand:
///
/// | header | value |
/// |---|---|
/// | `outbox-causation-id` | the id of that message |
/// | `outbox-correlation-id` | its `outbox-correlation-id`, or its id where it has none: all that one message led to has one value |
/// | `traceparent`, `tracestate` | its own, where it has them: see [W3C Trace Context](https://www.w3.org/TR/trace-context/) |
///
/// They come on top of the 16 KiB. An id with control characters, and a trace header over 1 KiB, are not carried on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, String>", into = "BTreeMap<String, String>")]
pub struct Headers(BTreeMap<String, String>);

/// The most that all names and values of a message may take together, in bytes.
const MAX_TOTAL: usize = 16 * 1024;
/// The most that the headers take which a handler's message gets by itself: two ids and two trace headers, with their names.
const MAX_LINKS: usize = 3 * 1024;
/// The longest trace header that is carried on.
const MAX_TRACE: usize = 1024;
const MAX_NAME: usize = 255;

/// Names that the library and the transports write themselves.
const RESERVED_PREFIXES: [&str; 5] = ["outbox-", "ce-", "ce_", "cloudevents:", "cloudevents_"];

/// The id of the message that another was published because of.
pub(crate) const CAUSATION_ID: &str = "outbox-causation-id";
/// What all messages have in common that one led to.
pub(crate) const CORRELATION_ID: &str = "outbox-correlation-id";
const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";

impl Headers {
    /// No headers.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a header; a second value of one name replaces the first.
    ///
    /// # Errors
    /// [`InvalidMessage`](ErrorKind::InvalidMessage) for a name that is no token, too long or reserved (it
    /// begins with `outbox-`, `ce-`, `ce_`, `cloudevents:` or `cloudevents_`, and is neither `outbox-causation-id` nor
    /// `outbox-correlation-id`), for a value with a control character, for a value of these two that is empty or over 255
    /// bytes, and when all headers together exceed 16 KiB.
    pub fn insert(&mut self, name: impl Into<String>, value: impl Into<String>) -> Result<()> {
        self.insert_within(MAX_TOTAL, name.into(), value.into())
    }

    fn insert_within(&mut self, most: usize, name: String, value: String) -> Result<()> {
        if is_link(&name) {
            if value.is_empty() || value.len() > MAX_NAME {
                return Err(invalid(format!(
                    "header `{name}` holds an id of 1 to {MAX_NAME} bytes, and was given {}",
                    value.len()
                )));
            }
        } else {
            check_name(&name)?;
        }
        if let Some(bad) = value.chars().find(|c| c.is_control() && *c != '\t') {
            return Err(invalid(format!("header `{name}` has the control character {bad:?} in its value")));
        }
        let others: usize =
            self.0.iter().filter(|(other, _)| **other != name).map(|(n, v)| n.len() + v.len()).sum();
        let total = others + name.len() + value.len();
        if total > most {
            return Err(invalid(format!(
                "with header `{name}` the headers take {total} bytes, and {most} is the most"
            )));
        }
        self.0.insert(name, value);
        Ok(())
    }

    /// The value of a header.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Names and values, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// What a message gets that is published because of the one with this id and these headers.
    pub(crate) fn links(id: &str, cause: &Self) -> Self {
        let mut links = Self::new();
        // An id is any text, and a header is not: a broker would refuse it, or read two headers.
        if !id.chars().any(char::is_control) {
            links.0.insert(CAUSATION_ID.to_owned(), id.to_owned());
        }
        if let Some(correlation) = cause.get(CORRELATION_ID).or_else(|| links.get(CAUSATION_ID)) {
            let correlation = correlation.to_owned();
            links.0.insert(CORRELATION_ID.to_owned(), correlation);
        }
        let trace = |name| cause.find(name).filter(|value| value.len() <= MAX_TRACE);
        if let Some(parent) = trace(TRACEPARENT) {
            links.0.insert(TRACEPARENT.to_owned(), parent.to_owned());
            if let Some(state) = trace(TRACESTATE) {
                links.0.insert(TRACESTATE.to_owned(), state.to_owned());
            }
        }
        links
    }

    /// Adds [`links`](Self::links) where nothing else was said. A trace's two headers belong together.
    pub(crate) fn fill(&mut self, links: Self) {
        let traced = self.find(TRACEPARENT).or_else(|| self.find(TRACESTATE)).is_some();
        for (name, value) in links.0 {
            if !(traced && (name == TRACEPARENT || name == TRACESTATE)) {
                self.0.entry(name).or_insert(value);
            }
        }
    }

    /// [`get`](Self::get) whatever the case of the name, for headers that others have named.
    fn find(&self, name: &str) -> Option<&str> {
        self.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// Headers of the library that others may set too.
fn is_link(name: &str) -> bool {
    name == CAUSATION_ID || name == CORRELATION_ID
}

fn check_name(name: &str) -> Result<()> {
    let is_token = !name.is_empty()
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b) || b == b':');
    if !is_token {
        return Err(invalid(format!(
            "header name {name:?} is no token: use letters, digits and !#$%&'*+-.^_`|~"
        )));
    }
    if name.len() > MAX_NAME {
        return Err(invalid(format!("a header name has {} bytes, and {MAX_NAME} is the most", name.len())));
    }
    let lower = name.to_ascii_lowercase();
    match RESERVED_PREFIXES.iter().find(|prefix| lower.starts_with(**prefix)) {
        Some(prefix) => Err(invalid(format!(
            "header `{name}` is reserved: names that begin with `{prefix}` are written by the library"
        ))),
        None => Ok(()),
    }
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidMessage, message)
}

impl TryFrom<BTreeMap<String, String>> for Headers {
    type Error = Error;

    fn try_from(map: BTreeMap<String, String>) -> Result<Self> {
        let mut headers = Self::new();
        for (name, value) in map {
            headers.insert_within(MAX_TOTAL + MAX_LINKS, name, value)?;
        }
        Ok(headers)
    }
}

impl From<Headers> for BTreeMap<String, String> {
    fn from(headers: Headers) -> Self {
        headers.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_headers_are_refused_and_nothing_is_kept() {
        let long = "n".repeat(256);
        for (name, value) in [
            ("", "x"),
            ("a b", "x"),
            ("a\0", "x"),
            ("ä", "x"),
            (long.as_str(), "x"),
            ("CE-id", "x"),
            ("ce_type", "x"),
            ("outbox-id", "x"),
            ("Outbox-Causation-Id", "x"),
            ("outbox-causation-id", ""),
            ("outbox-correlation-id", long.as_str()),
            ("cloudEvents:id", "x"),
            ("ok", "a\0b"),
            ("ok", "a\r\nb: c"),
        ] {
            let mut headers = Headers::new();
            let error = headers.insert(name, value).expect_err(name);
            assert_eq!(error.kind(), ErrorKind::InvalidMessage);
            assert!(headers.is_empty());
        }
    }

    #[test]
    fn the_total_is_bounded_and_replacing_does_not_add_up() {
        let mut headers = Headers::new();
        for _ in 0..3 {
            headers.insert("big", "x".repeat(16_000)).expect("replaces itself");
        }
        assert!(headers.insert("more", "x".repeat(1_000)).is_err());
        assert_eq!(headers.iter().count(), 1);
    }

    fn headers(list: &[(&str, &str)]) -> Headers {
        let mut headers = Headers::new();
        for (name, value) in list {
            headers.insert(*name, *value).expect("accepted");
        }
        headers
    }

    #[test]
    fn links_come_from_the_cause_and_give_way_to_what_is_set() {
        let first = Headers::links("m-1", &headers(&[("tenant", "acme"), ("Traceparent", "00-a-b-01")]));
        let expected = [(CAUSATION_ID, "m-1"), (CORRELATION_ID, "m-1"), (TRACEPARENT, "00-a-b-01")];
        assert_eq!(first.iter().collect::<Vec<_>>(), expected);
        let second = Headers::links("m-2", &first);
        assert_eq!((second.get(CAUSATION_ID), second.get(CORRELATION_ID)), (Some("m-2"), Some("m-1")));

        let mut set = headers(&[(CORRELATION_ID, "order-7"), ("TraceState", "mine=1")]);
        set.fill(second);
        let expected = [("TraceState", "mine=1"), (CAUSATION_ID, "m-2"), (CORRELATION_ID, "order-7")];
        assert_eq!(set.iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn what_no_header_can_hold_is_not_carried_on() {
        let long = "x".repeat(MAX_TRACE + 1);
        assert!(
            Headers::links("a\r\nb: c", &headers(&[(TRACEPARENT, &long), (TRACESTATE, "a=1")])).is_empty()
        );
        let links = Headers::links("a\nb", &headers(&[(CORRELATION_ID, "order-7"), (TRACEPARENT, "00")]));
        assert_eq!(links.iter().collect::<Vec<_>>(), [(CORRELATION_ID, "order-7"), (TRACEPARENT, "00")]);
    }

    #[test]
    fn full_headers_come_back_with_the_longest_links() {
        let (id, most) = ("i".repeat(MAX_NAME), "x".repeat(MAX_TRACE));
        let mut full = headers(&[("big", &"x".repeat(MAX_TOTAL - 3))]);
        full.fill(Headers::links(&id, &headers(&[(TRACEPARENT, &most), (TRACESTATE, &most)])));
        assert_eq!(full.iter().count(), 5);
        assert_eq!(Headers::try_from(BTreeMap::from(full.clone())).expect("comes back"), full);
    }
}

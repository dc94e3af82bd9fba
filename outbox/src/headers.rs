//! Headers: short named texts that travel beside the payload.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};

/// The headers of a message, sorted by name.
///
/// Names are tokens as in [RFC 9110, section 5.6.2](https://www.rfc-editor.org/rfc/rfc9110#section-5.6.2), at
/// most 255 bytes, so that every broker can carry them; values are texts without control characters. Together
/// they are at most 16 KiB.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, String>", into = "BTreeMap<String, String>")]
pub struct Headers(BTreeMap<String, String>);

/// The most that all names and values of a message may take together, in bytes.
const MAX_TOTAL: usize = 16 * 1024;
const MAX_NAME: usize = 255;

/// Names that the library and the transports write themselves.
const RESERVED_PREFIXES: [&str; 5] = ["outbox-", "ce-", "ce_", "cloudevents:", "cloudevents_"];

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
    /// begins with `outbox-`, `ce-`, `ce_`, `cloudevents:` or `cloudevents_`), for a value with a control
    /// character, and when all headers together exceed 16 KiB.
    pub fn insert(&mut self, name: impl Into<String>, value: impl Into<String>) -> Result<()> {
        let (name, value) = (name.into(), value.into());
        check_name(&name)?;
        if let Some(bad) = value.chars().find(|c| c.is_control() && *c != '\t') {
            return Err(invalid(format!("header `{name}` has the control character {bad:?} in its value")));
        }
        let others: usize =
            self.0.iter().filter(|(other, _)| **other != name).map(|(n, v)| n.len() + v.len()).sum();
        let total = others + name.len() + value.len();
        if total > MAX_TOTAL {
            return Err(invalid(format!(
                "with header `{name}` the headers take {total} bytes, and {MAX_TOTAL} is the most"
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
            headers.insert(name, value)?;
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
}

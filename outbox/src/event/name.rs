//! Names of event types as constants, and the constant check that no two of a type are the same.

use super::{EventMeta, TypeSet};

/// A name built in a `const`, so that `OrderPaid<Usd>` has the type `order.paid.usd` as a constant.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct ConstName {
    bytes: [u8; Self::MAX],
    len: usize,
}

impl ConstName {
    /// The longest event type, in bytes.
    pub const MAX: usize = 255;

    /// The empty name.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "a default could not be used in a const")]
    pub const fn new() -> Self {
        Self { bytes: [0; Self::MAX], len: 0 }
    }

    /// The name with `part` behind it.
    ///
    /// # Panics
    /// In the const evaluator, so as a compile error: for a name over 255 bytes, or one with a character
    /// outside `A-Z a-z 0-9 . _ : -`.
    #[must_use]
    pub const fn push(mut self, part: &str) -> Self {
        let part = part.as_bytes();
        assert!(self.len + part.len() <= Self::MAX, "the event type is longer than 255 bytes");
        let mut i = 0;
        while i < part.len() {
            assert!(
                matches!(part[i], b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b':' | b'-'),
                "an event type consists of A-Z a-z 0-9 . _ : -"
            );
            self.bytes[self.len] = part[i];
            self.len += 1;
            i += 1;
        }
        self
    }

    /// The name with a number behind it, for `{N}` of a const parameter.
    ///
    /// # Panics
    /// As [`push`](Self::push).
    #[must_use]
    pub const fn push_number(self, number: u128) -> Self {
        let mut digits = [0; 40];
        let mut start = digits.len();
        let mut rest = number;
        loop {
            start -= 1;
            // `as` is the only conversion in a const; a digit always fits.
            digits[start] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        let (_, digits) = digits.split_at(start);
        match std::str::from_utf8(digits) {
            Ok(digits) => self.push(digits),
            Err(_) => panic!("digits are ASCII"),
        }
    }

    /// The name with a signed number behind it.
    ///
    /// # Panics
    /// As [`push`](Self::push).
    #[must_use]
    pub const fn push_signed(self, number: i128) -> Self {
        let sign = if number < 0 { self.push("-") } else { self };
        sign.push_number(number.unsigned_abs())
    }

    /// The name with `true` or `false` behind it.
    ///
    /// # Panics
    /// As [`push`](Self::push).
    #[must_use]
    pub const fn push_bool(self, value: bool) -> Self {
        self.push(if value { "true" } else { "false" })
    }

    /// The name with a character behind it.
    ///
    /// # Panics
    /// As [`push`](Self::push).
    #[must_use]
    pub const fn push_char(self, value: char) -> Self {
        self.push(value.encode_utf8(&mut [0; 4]))
    }

    /// The name.
    ///
    /// # Panics
    /// As a compile error, for an empty name.
    #[must_use]
    pub const fn as_str(&self) -> &str {
        assert!(self.len > 0, "the event type is empty");
        let (name, _) = self.bytes.split_at(self.len);
        match std::str::from_utf8(name) {
            Ok(name) => name,
            Err(_) => panic!("only whole ASCII characters are pushed"),
        }
    }
}

/// Sets of types of which none has a name that another answers to. An alias may be shared, as the instantiations of a
/// generic event do that was not generic once: the first set takes it.
///
/// # Panics
/// In the const evaluator, so as a compile error.
#[doc(hidden)]
#[must_use]
pub const fn disjoint(sets: &'static [TypeSet]) -> &'static [TypeSet] {
    let mut at = 0;
    while at < sets.len() {
        let mut other = 0;
        while other < sets.len() {
            assert!(
                at == other || !overlap(&sets[at], &sets[other]),
                "the event type of one variant is also a type or an alias of another"
            );
            other += 1;
        }
        at += 1;
    }
    sets
}

/// The type of that name, for a handler that takes some of its event's types.
///
/// # Panics
/// In the const evaluator, so as a compile error that says `wrong`, if there is none.
#[doc(hidden)]
#[must_use]
pub const fn member(set: &TypeSet, name: &str, wrong: &'static str) -> &'static EventMeta {
    match named(set, name) {
        Some(meta) => meta,
        None => panic!("{}", wrong),
    }
}

const fn named(set: &TypeSet, name: &str) -> Option<&'static EventMeta> {
    match *set {
        TypeSet::One(meta) if same(meta.event_type, name) => Some(meta),
        TypeSet::One(_) => None,
        TypeSet::Any(sets) => {
            let mut at = 0;
            while at < sets.len() {
                let found = named(&sets[at], name);
                if found.is_some() {
                    return found;
                }
                at += 1;
            }
            None
        }
    }
}

/// Whether `other` answers to a name of `one`.
const fn overlap(one: &TypeSet, other: &TypeSet) -> bool {
    match one {
        TypeSet::One(meta) => answers(other, meta.event_type),
        TypeSet::Any(sets) => {
            let mut at = 0;
            while at < sets.len() {
                if overlap(&sets[at], other) {
                    return true;
                }
                at += 1;
            }
            false
        }
    }
}

/// [`TypeSet::find`], in a const.
const fn answers(set: &TypeSet, name: &str) -> bool {
    let mut at = 0;
    match set {
        TypeSet::One(EventMeta { event_type, aliases, .. }) => {
            let mut found = same(event_type, name);
            while at < aliases.len() && !found {
                found = same(aliases[at], name);
                at += 1;
            }
            found
        }
        TypeSet::Any(sets) => {
            while at < sets.len() {
                if answers(&sets[at], name) {
                    return true;
                }
                at += 1;
            }
            false
        }
    }
}

const fn same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    if one.len() != other.len() {
        return false;
    }
    let mut at = 0;
    while at < one.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    true
}

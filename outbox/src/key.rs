//! Ordering keys: which messages wait for each other, and the numbers derived from that.

use sha2::{Digest, Sha256};

/// Separates topic and aggregate id in a default key; refused in neither, and still two topics cannot share a
/// key, since a topic never contains it.
const UNIT_SEPARATOR: char = '\u{1f}';

/// How many order slots there are. A fixed table of this many rows serializes the publishers of a key.
pub(crate) const SLOTS: u32 = 65_536;

/// An ordering key with its hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) text: String,
    pub(crate) hash: i64,
}

impl Key {
    pub(crate) fn explicit(text: String) -> Self {
        let hash = hash(&text);
        Self { text, hash }
    }

    /// The key of an aggregate: its topic takes part, so two topics never wait for each other.
    pub(crate) fn of_aggregate(topic: &str, aggregate_id: &str) -> Self {
        Self::explicit(format!("{topic}{UNIT_SEPARATOR}{aggregate_id}"))
    }
}

/// The slot of an ordered message is its key's; an unordered one has its id's, so that both spread evenly.
pub(crate) fn slot(key: Option<&Key>, id: &str) -> i32 {
    let hash = key.map_or_else(|| hash(id), |key| key.hash);
    i32::try_from(hash & i64::from(SLOTS - 1)).expect("16 bits fit")
}

/// The first eight bytes of the SHA-256, big endian. Pinned: stored rows depend on it.
fn hash(text: &str) -> i64 {
    let digest = Sha256::digest(text.as_bytes());
    i64::from_be_bytes(digest[..8].try_into().expect("a SHA-256 has 32 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The digests are those of FIPS 180-4's examples, `printf abc | sha256sum` and the like.
    #[test]
    fn hashes_are_pinned() {
        assert_eq!(hash(""), i64::from_be_bytes([0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14]));
        assert_eq!(hash("abc"), i64::from_be_bytes([0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea]));
        let key = Key::explicit("abc".into());
        assert_eq!(slot(Some(&key), "ignored"), 0xcfea);
        assert_eq!(slot(None, "abc"), 0xcfea);
    }

    #[test]
    fn topics_never_share_a_key() {
        assert_ne!(Key::of_aggregate("orders", "7"), Key::of_aggregate("invoices", "7"));
        assert_ne!(Key::of_aggregate("a", "b7"), Key::of_aggregate("ab", "7"));
    }
}

//! Keys for calls that may be repeated.

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::message::MessageId;

/// The same for every attempt of a message at a consumer, and another for every other message or consumer: for a service that
/// forgets a call it has seen before, such as by an `Idempotency-Key` header.
///
/// It reads as a UUID, made from the SHA-256 of the consumer's name and the message's id; a new build, another process or a
/// restored database changes nothing about it. In a batch each envelope's [`Metadata::idempotency_key`](crate::Metadata::idempotency_key) is
/// the message's.
///
/// ```
/// # fn example(metadata: &outbox::Metadata) {
/// let key = metadata.idempotency_key();
/// assert_eq!(key.as_str().len(), 36);
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct IdempotencyKey(String);

impl IdempotencyKey {
    /// The key of a message for a consumer.
    #[must_use]
    pub fn new(consumer: &str, message_id: &MessageId) -> Self {
        let mut hash = Sha256::new();
        hash.update(consumer);
        // Neither a name nor an id can hold it, so no two pairs read alike.
        hash.update([0]);
        hash.update(message_id.as_str());
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash.finalize()[..16]);
        Self(uuid::Builder::from_custom_bytes(bytes).into_uuid().to_string())
    }

    /// The key as text: 36 characters of `0-9a-f-`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for IdempotencyKey {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Services remember keys for days: `printf 'receipts\\0order-7' | sha256sum`.
    #[test]
    fn keys_are_pinned_and_differ_by_consumer_and_message() {
        let id = |id: &str| MessageId::new(id).expect("valid");
        let key = |consumer: &str, message: &str| IdempotencyKey::new(consumer, &id(message)).to_string();
        assert_eq!(key("receipts", "order-7"), "ab4827e9-6962-81c0-928a-7ea66d474a29");
        assert_ne!(key("receipts", "order-7"), key("receipts", "order-8"));
        assert_ne!(key("receipt", "sorder-7"), key("receipts", "order-7"));
    }
}

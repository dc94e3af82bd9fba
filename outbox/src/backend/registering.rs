//! The seam to the databases, as a registration needs it.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use super::{ConsumerRow, Returns, Storage};

/// Registering consumers, and giving them what they would miss.
///
/// Every method runs in the transaction that `conn` is in, and under the registry's lock where it writes.
pub(crate) trait Registering: Storage {
    /// How often a process that runs looks how far the watermark can be raised; `None` where nothing is ever in flight.
    const WATERMARK: Option<Duration>;

    /// Registrations run one after the other: held until the transaction ends.
    fn lock_registry(conn: &mut Self::Connection, sql: &Self::Sql) -> impl Returns<()>;
    /// The consumer that a name leads to.
    fn consumer(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        name: &str,
    ) -> impl Returns<Option<ConsumerRow>>;
    /// Makes a consumer of that name, with so many lanes; no name leads to it yet.
    fn add_consumer(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        name: &str,
        lanes: i16,
    ) -> impl Returns<u64>;
    /// Makes the lanes of the consumer of this present name that are not there.
    fn add_lanes(conn: &mut Self::Connection, sql: &Self::Sql, name: &str) -> impl Returns<()>;
    /// Makes a name that leads nowhere lead to the consumer of this present name.
    fn add_name(conn: &mut Self::Connection, sql: &Self::Sql, name: &str, present: &str)
    -> impl Returns<u64>;
    /// Gives a consumer another present name; 0 if it has not the one that it had.
    fn rename_consumer(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        consumer: i16,
        present: &str,
        name: &str,
    ) -> impl Returns<u64>;
    /// Whether the consumer subscribes to the type.
    fn is_subscribed(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        consumer: i16,
        event_type: &str,
    ) -> impl Returns<bool>;
    /// Adds a subscription, which gets what nobody has got if it is to be `unrouted`; 0 if it was there.
    fn subscribe(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        consumer: i16,
        event_type: &str,
        unrouted: bool,
    ) -> impl Returns<u64>;
    /// Subscriptions of the consumer whose backfill has not been done.
    fn unready(conn: &mut Self::Connection, sql: &Self::Sql, consumer: i16) -> impl Returns<Vec<String>>;
    /// Publishers whose snapshot is older than the registry as it is now will notice from now on.
    fn announce(conn: &mut Self::Connection, sql: &Self::Sql) -> impl Returns<()>;
    /// The subscription has been backfilled; 0 if there is none any more.
    fn ready(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        consumer: i16,
        event_type: &str,
    ) -> impl Returns<u64>;

    /// Transactions that may have published without seeing the registry as it was announced; of those that are
    /// `known` from an earlier call, or of all where none is. Outside of any transaction of ours.
    fn publishers_in_flight(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        known: &HashSet<String>,
    ) -> impl Returns<HashSet<String>>;
    /// All numbers under which a message may be committed from now on; the last range begins behind the newest that is
    /// committed now. Empty where nothing is ever in flight.
    fn in_doubt(conn: &mut Self::Connection, sql: &Self::Sql) -> impl Returns<Vec<Range>>;
    /// The highest number that is committed.
    fn newest(conn: &mut Self::Connection, sql: &Self::Sql) -> impl Returns<i64>;
    /// Nothing up to this number is in flight any more.
    fn raise_watermark(conn: &mut Self::Connection, sql: &Self::Sql, seq: i64) -> impl Returns<()>;

    /// Gives the oldest messages of this type that no consumer has got, no more than `batch`, to all that subscribe to it, get
    /// such and are not ready; how many there were.
    fn backfill(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        event_type: &str,
        batch: i64,
    ) -> impl Returns<u64>;
    /// Adds numbers that a new subscription has to look through, for what was published since a time.
    fn add_ranges(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        consumer: i16,
        event_type: &str,
        ranges: &[Range],
        since: Option<SystemTime>,
    ) -> impl Returns<()>;
    /// The first of those that are left, and since when.
    fn next_range(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        consumer: i16,
        event_type: &str,
    ) -> impl Returns<Option<(Range, Option<SystemTime>)>>;
    /// The number of the last of the first `batch` messages in the range, and how many these are.
    fn end_of_batch(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        range: Range,
        batch: i64,
    ) -> impl Returns<Option<(i64, u64)>>;
    /// Gives the consumer what it has not got of the type in these numbers; how many messages.
    fn deliver_range(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        consumer: i16,
        event_type: &str,
        range: Range,
        since: Option<SystemTime>,
    ) -> impl Returns<u64>;
    /// A range is looked through up to where the next part begins, or wholly.
    fn shrink_range(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        consumer: i16,
        event_type: &str,
        first: i64,
        next: Option<i64>,
    ) -> impl Returns<u64>;
}

/// Numbers of messages, the last one included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) first: i64,
    pub(crate) last: i64,
}

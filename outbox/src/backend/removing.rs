//! The seam to the databases, as listing consumers and letting them go needs it.

use std::time::Duration;

use super::{Lane, Returns, Storage};

/// Consumers as operators see them, and how what belongs to one is removed.
///
/// Every method runs in the transaction that `conn` is in. What concerns a lane needs that lane's lock, and what concerns names and
/// subscriptions that of the registry.
pub(crate) trait Removing: Storage {
    /// All consumers, by their present names.
    fn consumers(conn: &mut Self::Connection, sql: &Self::Sql) -> impl Returns<Vec<ListedRow>>;
    /// Consumers with the types that they subscribe to.
    fn subscriptions(conn: &mut Self::Connection, sql: &Self::Sql) -> impl Returns<Vec<(i16, String)>>;
    /// Consumers with every name that leads to them.
    fn all_names(conn: &mut Self::Connection, sql: &Self::Sql) -> impl Returns<Vec<(i16, String)>>;
    /// Consumers with the processes that run them and have not been silent for so long.
    fn alive(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        silence: Duration,
    ) -> impl Returns<Vec<(i16, AliveRow)>>;

    /// Removes a subscription with what it has still to look through; publishers whose snapshot is older will notice once that is
    /// announced. 0 if there is none.
    fn unsubscribe(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        consumer: i16,
        event_type: &str,
    ) -> impl Returns<u64>;
    /// Notes a consumer as dropped, and removes its names and its row; 0 if there is none.
    fn remove_consumer(conn: &mut Self::Connection, sql: &Self::Sql, consumer: i16) -> impl Returns<u64>;
    /// Consumers that were dropped under this name and have left something, with the number of their lanes.
    fn dropped(conn: &mut Self::Connection, sql: &Self::Sql, name: &str) -> impl Returns<Vec<(i16, i16)>>;
    /// The names of all such.
    fn dropped_names(conn: &mut Self::Connection, sql: &Self::Sql) -> impl Returns<Vec<String>>;
    /// Nothing is left of a dropped consumer; 0 if somebody else has found that out.
    fn finish_drop(conn: &mut Self::Connection, sql: &Self::Sql, consumer: i16) -> impl Returns<u64>;

    /// Removes the first deliveries of a lane, no more than `batch`.
    fn remove_deliveries(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        lane: Lane,
        batch: i64,
    ) -> impl Returns<u64>;
    /// Removes parked messages of a lane, no more than `batch`.
    fn remove_parked(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        lane: Lane,
        batch: i64,
    ) -> impl Returns<u64>;
    /// Removes a lane in which nothing is left; 0 if there is none.
    fn remove_lane(conn: &mut Self::Connection, sql: &Self::Sql, lane: Lane) -> impl Returns<u64>;
    /// Removes recorded attempts of a consumer without lanes, no more than `batch`.
    fn remove_attempts(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        consumer: i16,
        batch: i64,
    ) -> impl Returns<u64>;
    /// Removes inbox marks of a consumer without lanes, no more than `batch`.
    fn remove_marks(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        consumer: i16,
        batch: i64,
    ) -> impl Returns<u64>;

    /// The last of the first `batch` deliveries of a lane behind a number.
    fn end_of_deliveries(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        lane: Lane,
        behind: i64,
        batch: i64,
    ) -> impl Returns<Option<i64>>;
    /// Removes deliveries of a type, or of all for `*`, from behind a number to another.
    fn remove_deliveries_of(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        lane: Lane,
        event_type: &str,
        part: (i64, i64),
    ) -> impl Returns<u64>;
    /// The next parked messages of a lane behind a key hash and a number, no more than `batch`: the same of each, and whether it is
    /// of a type.
    fn parked_part(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        lane: Lane,
        event_type: &str,
        behind: (i64, i64),
        batch: i64,
    ) -> impl Returns<Vec<(i64, i64, bool)>>;
    /// Removes a parked message with its recorded attempts, whatever its state.
    fn remove_one_parked(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        lane: Lane,
        key_hash: i64,
        seq: i64,
    ) -> impl Returns<u64>;
}

/// A consumer in a list.
#[derive(Debug)]
pub(crate) struct ListedRow {
    pub(crate) id: i16,
    pub(crate) name: String,
    pub(crate) paused: bool,
}

/// A process that lives.
#[derive(Debug)]
pub(crate) struct AliveRow {
    pub(crate) id: String,
    pub(crate) host: String,
    pub(crate) pid: i64,
    pub(crate) version: String,
    pub(crate) pooled: bool,
}

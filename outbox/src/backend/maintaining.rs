//! The seam to the databases, as keeping the tables small needs it.

use std::time::Duration;

use sqlx::SqlStr;

use super::{Lane, Range, Returns, Storage};

/// Removing what is old. Every method runs in the transaction that `conn` is in.
pub(crate) trait Maintaining: Storage {
    /// The statement that begins a part of it, on a connection of the application's or of ours.
    fn begin_maintenance() -> SqlStr {
        Self::begin_operation()
    }

    /// Keeps registrations out until the transaction ends; false where one is at work.
    fn try_lock_registry(conn: &mut Self::Connection, sql: &Self::Sql) -> impl Returns<bool>;

    /// Where a batch of messages ends: the last of the first `limit` in these numbers that is of this age, or whatever its age.
    fn end_of_messages(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        range: Range,
        limit: i64,
        age: Option<Duration>,
    ) -> impl Returns<Option<i64>>;
    /// Removes the messages in these numbers that no consumer can get any more, with all that is recorded of them, under the lock of
    /// the registry; of these ages, and whoever may still get them where the guard is off.
    fn remove_messages(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        range: Range,
        ages: Ages,
        guarded: bool,
    ) -> impl Returns<RemovedMessages>;

    /// Where a batch of inbox marks ends: the time of the last of the first `limit` in these times that is of this age. Times are
    /// microseconds since 1970.
    fn end_of_marks(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        range: Range,
        limit: i64,
        age: Duration,
    ) -> impl Returns<Option<i64>>;
    /// Removes the inbox marks in these times that are of this age, but not those of messages that are there where that is guarded.
    fn remove_old_marks(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        range: Range,
        age: Duration,
        guarded: bool,
    ) -> impl Returns<u64>;

    /// The messages that have been dead for the longest, and for so long at least.
    fn old_dead(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        age: Duration,
        limit: i64,
    ) -> impl Returns<Vec<OldDead>>;
    /// Removes a message that has been dead for so long, under its lane's lock; 0 if it is not any more.
    fn discard_old(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        dead: OldDead,
        age: Duration,
    ) -> impl Returns<u64>;

    /// Locks the row that says who prunes and how far it has come; `None` where somebody is at it. It is due where nobody has begun
    /// for so long.
    fn lock_maintenance(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        every: Duration,
    ) -> impl Returns<Option<Maintenance>>;
    /// Makes that row; 0 where it is there.
    fn add_maintenance(conn: &mut Self::Connection, sql: &Self::Sql) -> impl Returns<u64>;
    /// From now on it is this process.
    fn start_maintenance(conn: &mut Self::Connection, sql: &Self::Sql, holder: &str) -> impl Returns<u64>;
    /// How far it has come; 0 if it is another by now.
    fn move_maintenance(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        holder: &str,
        positions: Positions,
    ) -> impl Returns<u64>;
    /// It has ended, by this error or well.
    fn end_maintenance(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        holder: &str,
        error: Option<&str>,
    ) -> impl Returns<u64>;
}

/// How old messages have to be; `None` = they stay.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ages {
    pub(crate) delivered: Option<Duration>,
    pub(crate) unrouted: Option<Duration>,
}

/// What became of messages that were to be removed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RemovedMessages {
    /// Those that were found of no use, and locked.
    pub(crate) found: usize,
    pub(crate) removed: u64,
    /// Of the removed, those that nobody was subscribed to.
    pub(crate) unrouted: u64,
}

/// A message that has been dead for long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OldDead {
    pub(crate) lane: Lane,
    pub(crate) key_hash: i64,
    pub(crate) seq: i64,
}

/// Who prunes.
#[derive(Debug)]
pub(crate) struct Maintenance {
    pub(crate) holder: Option<String>,
    pub(crate) due: bool,
    pub(crate) positions: Positions,
}

/// How far pruning has come.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Positions {
    pub(crate) messages: Position,
    pub(crate) marks: Position,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Position {
    /// All that was old enough has been looked at up to here.
    pub(crate) front: i64,
    /// What had to stay has been looked at again up to here.
    pub(crate) again: i64,
}

//! The seam to the databases: one method per statement, and constants for what differs.
//!
//! The engine asks for capabilities and never for a database's name. How a promise is kept with one statement
//! here and with three there is the backends' matter; so a publish may take several statements, and nothing
//! assumes that a database can return the rows it wrote.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use sqlx::{Pool, SqlStr};

pub(crate) use self::maintaining::{
    Ages, Maintaining, Maintenance, OldDead, Position, Positions, RemovedMessages,
};
pub(crate) use self::registering::{Range, Registering};
pub(crate) use self::removing::{AliveRow, ListedRow, Removing};
pub(crate) use self::rows::{
    Attempt, AttemptRow, Claimed, ConsumerRow, DeadFilter, DeadRow, Lane, LaneRow, Mark, MessageClaim, Next,
    Parked, ParkedState, Parking, Place, Poll, Polled, Portion, PublishOutcome, Running, StoredMessage,
    Worker, WorkerRow,
};

#[cfg(feature = "testing")]
use crate::config::Shift;
use crate::config::{Names, Tables};
use crate::controls::Controls;
use crate::draft::{DeliverAt, Outgoing};
use crate::error::ErrorKind;
use crate::export::Statement;

mod maintaining;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
mod registering;
mod removing;
mod rows;
#[cfg(feature = "sqlite")]
mod sqlite;

/// A database that can hold an outbox: `sqlx::Sqlite`, `sqlx::Postgres` and `sqlx::MySql` (MariaDB too), each behind
/// its feature. How they differ is in [`databases`](crate::databases).
///
/// Sealed. Other storage is deliberately not supported: the promises rest on what each of these statements
/// does under concurrency, and that was proved database by database.
#[expect(private_bounds, reason = "sealed: the statements are the library's own")]
pub trait Backend:
    sqlx::Database
    + Storage
    + Registering
    + Removing
    + Publishing
    + Consuming
    + Leasing
    + Operating
    + Maintaining
    + Signalling
{
}

/// What sqlx's operations return.
pub(crate) type SqlResult<T> = Result<T, sqlx::Error>;

/// The statements, as the engine needs them.
///
/// Every method runs in the transaction that `conn` is in. Counts that come back are rows that were really
/// changed; callers compare them with what they expect.
pub(crate) trait Storage: sqlx::Database + Sized {
    /// For people: `PostgreSQL`.
    const DATABASE: &'static str;
    /// Lanes of a new consumer. One where there is one writer: a second could not add anything.
    const LANES: i16;
    /// The same for one that works outside of transactions, where several can be at it at once whatever the database is.
    const LEASED_LANES: i16;
    /// Whether all writers of the database exclude each other.
    const SINGLE_WRITER: bool;
    /// Whether a connection can be trusted after a statement's future was dropped. On MySQL sqlx loses count of the
    /// answers when that happens while the statement is prepared.
    const SAFE_TO_DROP: bool;
    /// Makes the library's own record of its migrations.
    const MIGRATION_TABLE: &'static str;
    /// The schema's history, oldest first.
    const MIGRATIONS: &'static [Migration];

    /// How names are written where no connection says more.
    fn names() -> Names;
    /// How names are written by connections of these options.
    fn names_of(_: &<Self::Connection as sqlx::Connection>::Options) -> Names {
        Self::names()
    }

    /// Every statement with schema and prefix in place.
    type Sql: Send + Sync + 'static;
    fn render(tables: &Tables, names: &Names) -> Self::Sql;
    /// Remembers what the options of the application's connections say of how statements are to be sent.
    fn adapt(_: &Self::Sql, _: &<Self::Connection as sqlx::Connection>::Options) {}

    /// What an error of this database means.
    fn kind(error: &sqlx::Error) -> ErrorKind;
    /// The database's own error in a chain of causes, as sqlx would carry it.
    fn kind_of_cause(cause: &(dyn std::error::Error + 'static)) -> Option<ErrorKind>;

    /// Runs statements that have no parameters.
    fn run(conn: &mut Self::Connection, statements: SqlStr) -> impl Returns<()>;

    /// Fails where the transaction can only be rolled back.
    fn assert_usable(conn: &mut Self::Connection) -> impl Returns<()>;

    // Connections and transactions.

    /// Whether a second connection by these options would see another, empty database.
    fn is_private_memory(options: &<Self::Connection as sqlx::Connection>::Options) -> bool;
    /// Whether a pooler may stand before the server that changes servers between transactions.
    const POOLABLE: bool = false;
    /// Whether a connection by [`own_options`](Self::own_options) has reached the server itself.
    fn is_direct(_: &mut Self::Connection) -> impl Returns<bool> {
        async { Ok(true) }
    }
    /// Whether such a pooler was found, or told of.
    fn is_pooled(_: &Self::Sql) -> bool {
        false
    }
    fn set_pooled(_: &Self::Sql, _: bool) {}
    /// Whether a statement can be sent outside of a transaction.
    fn stands_alone(_: &Self::Sql) -> bool {
        true
    }
    /// The options of our own connections, from the application's.
    fn own_options(
        options: <Self::Connection as sqlx::Connection>::Options,
        pooled: bool,
        controls: Controls,
    ) -> <Self::Connection as sqlx::Connection>::Options;
    /// The same for those that no handler gets, on which statements write outside of transactions.
    fn reserve_options(
        options: <Self::Connection as sqlx::Connection>::Options,
        pooled: bool,
    ) -> <Self::Connection as sqlx::Connection>::Options;
    /// The statement that begins a user's transaction that will write.
    fn begin_write() -> SqlStr;
    /// The statement that begins an operator's change, on a connection of the application's.
    fn begin_operation() -> SqlStr {
        Self::begin_write()
    }
    /// The statement that begins a registration, on a connection of ours.
    fn begin_registration() -> SqlStr;
    /// The statements that begin the transaction of a handler.
    ///
    /// `idle` is how long the transaction may be left alone before the server ends it.
    fn begin_work(sql: &Self::Sql, idle: Duration, controls: Controls) -> Begin;
    /// Whether several messages may share a transaction here.
    fn may_share(_: &Self::Sql) -> bool {
        true
    }
    /// Right before handlers: whatever they may do to our transaction will be undone or noticed. Where it is `shared` by
    /// several messages, nobody waits for others' locks longer than an instant.
    fn arm(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        shared: bool,
        controls: Controls,
    ) -> impl Returns<Guard>;
    /// Between two handlers: what was done so far will stand when [`undo`](Self::undo) is called. Fails where a handler
    /// ended the transaction or left it unusable.
    fn advance(conn: &mut Self::Connection, sql: &Self::Sql, shared: bool) -> impl Returns<()>;
    /// Takes back what handlers did since [`arm`](Self::arm) or [`advance`](Self::advance), and keeps everything before, lane
    /// lock included.
    fn undo(conn: &mut Self::Connection, sql: &Self::Sql) -> impl Returns<()>;
    /// After the handlers, and for good: fails where one ended the transaction or left it unusable.
    fn disarm(conn: &mut Self::Connection, sql: &Self::Sql, guard: &Guard) -> impl Returns<()>;

    // The schema.

    /// What the server is too old for or lacks, if it does. What can be done without is remembered in `sql`.
    fn unsupported(conn: &mut Self::Connection, sql: &Self::Sql) -> impl Returns<Option<String>>;
    /// Keeps other processes out of the schema until the transaction ends, or until
    /// [`unlock_schema`](Self::unlock_schema) where the changes of a schema are no part of one.
    fn lock_schema(conn: &mut Self::Connection, sql: &Self::Sql) -> impl Returns<()>;
    /// After the transaction, whatever became of it.
    fn unlock_schema(conn: &mut Self::Connection, sql: &Self::Sql) -> impl Returns<()>;
    /// The newest migration that ran; `None` where not even the table of migrations exists.
    fn schema_version(conn: &mut Self::Connection, sql: &Self::Sql) -> impl Returns<Option<i32>>;
}

/// Publishing to consumers.
pub(crate) trait Publishing: Storage {
    /// Stores one message with its deliveries.
    fn publish_one(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        message: &Outgoing,
        controls: Controls,
    ) -> impl Returns<PublishOutcome>;
    /// What stores one message when another client executes it, in this order.
    fn export(sql: &Self::Sql, message: &Outgoing) -> Vec<Statement>;
    /// Stores many; the outcomes are in the order of the messages. One that is not `Stored` or `Duplicate`
    /// stands for all.
    fn publish_many(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        messages: &[Outgoing],
        controls: Controls,
    ) -> impl Returns<Vec<PublishOutcome>>;
}

/// Working on lanes. Whoever calls one of the methods below `claim` holds the lane.
pub(crate) trait Consuming: Storage {
    /// Locks the first of these lanes that has something runnable and that nobody else holds or has leased; without `suspects` no
    /// lane in which a process may have died. (A database with one writer need not look: there is nobody beside.) A parked
    /// message counts once it has been due for `patience`.
    fn claim(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        consumer: i16,
        lanes: &[i16],
        suspects: bool,
        patience: Duration,
        controls: Controls,
    ) -> impl Returns<Option<Claimed>>;
    /// Locks this lane, waiting for whoever holds it. `None` where it has no row, and nothing is locked.
    fn lock_lane(conn: &mut Self::Connection, sql: &Self::Sql, lane: Lane) -> impl Returns<Option<LaneRow>>;
    /// What is next in the lane: parked messages that are due, with what waits behind them, and the first deliveries.
    fn read(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        lane: Lane,
        portion: Portion,
    ) -> impl Returns<Vec<Next>>;
    /// This parked message, whether or not it is due.
    fn find(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        lane: Lane,
        key_hash: i64,
        seq: i64,
    ) -> impl Returns<Option<Next>>;
    /// Removes finished deliveries and, with `marks`, writes the inbox marks of their messages.
    fn settle_deliveries(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        lane: Lane,
        seqs: &[i64],
        marks: Option<&[&str]>,
    ) -> impl Returns<u64>;
    /// Removes a finished message from the parked ones and, with `mark`, writes its inbox mark.
    fn settle_parked(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        lane: Lane,
        parked: Parked,
        mark: Option<&str>,
    ) -> impl Returns<u64>;
    /// Moves deliveries behind the parked messages of their keys.
    fn move_behind(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        lane: Lane,
        seqs: &[i64],
    ) -> impl Returns<u64>;
    /// Moves a delivery to the parked messages, or changes one that is parked.
    fn park(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        lane: Lane,
        place: Place,
        parking: &Parking,
    ) -> impl Returns<u64>;
    /// Makes the first of what waits behind a key's finished head due.
    fn wake_next(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        lane: Lane,
        key_hash: i64,
    ) -> impl Returns<u64>;
    /// Records a failed attempt, and forgets all but the latest `keep`.
    fn record_attempt(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        consumer: i16,
        attempt: &Attempt<'_>,
        keep: i32,
    ) -> impl Returns<()>;
    /// What a process may have died of in the lane has been run since.
    fn clear_suspect(conn: &mut Self::Connection, sql: &Self::Sql, lane: Lane) -> impl Returns<()>;
    /// So many messages of the lane are to run alone.
    fn set_suspect(conn: &mut Self::Connection, sql: &Self::Sql, lane: Lane, alone: i32)
    -> impl Returns<u64>;
    /// Ends the statement that another connection of ours runs, or that connection; for databases without a hook in
    /// [`Guard`].
    fn cancel(conn: &mut Self::Connection, sql: &Self::Sql, running: Running) -> impl Returns<()>;
    /// Unfinished messages of these consumers, counted up to `limit`.
    fn remaining(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        consumers: &[i16],
        limit: i64,
    ) -> impl Returns<i64>;
}

/// Working outside of transactions: who has a lane, and who has a message, while nobody holds a lock.
pub(crate) trait Leasing: Storage {
    /// Gives a lane that this transaction holds to `owner`, for so long by the database's clock.
    fn lease(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        lane: Lane,
        owner: &str,
        lease: Duration,
    ) -> impl Returns<u64>;
    /// Keeps a lane for so long from now on, in a transaction of its own; 0 if `owner` has it no more.
    fn renew_lease(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        lane: Lane,
        owner: &str,
        lease: Duration,
    ) -> impl Returns<u64>;
    /// Gives a lane back; 0 if `owner` has it no more.
    fn end_lease(conn: &mut Self::Connection, sql: &Self::Sql, lane: Lane, owner: &str) -> impl Returns<u64>;

    /// Marks a message in the inbox as claimed by `owner`, unless it is handled or another may be at it. With `stale_after` others
    /// keep away for so long; without, for as long as its lane is leased, so whoever has leased the lane takes such a claim over.
    /// `attempt` is the least that is counted.
    fn claim_message(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        message: (i16, &str),
        owner: &str,
        stale_after: Option<Duration>,
        attempt: i32,
    ) -> impl Returns<MessageClaim>;
    /// Marks a message that `owner` has claimed as handled; 0 if another has it by now.
    fn finish_claim(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        message: (i16, &str),
        owner: &str,
    ) -> impl Returns<u64>;
    /// Removes the claim that `owner` has, or without an owner one that nobody alive has.
    fn end_claim(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        message: (i16, &str),
        owner: Option<&str>,
    ) -> impl Returns<u64>;
}

/// What operators do, and who is alive.
pub(crate) trait Operating: Storage {
    /// Pauses a consumer or lets it go on; 0 if there is none of that name.
    fn set_paused(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        consumer: &str,
        paused: bool,
    ) -> impl Returns<u64>;
    /// Dead messages, sorted by consumer and sequence, from behind a position on. Locks nothing.
    fn dead(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        filter: &DeadFilter,
        behind: (i16, i64),
        limit: i64,
    ) -> impl Returns<Vec<DeadRow>>;
    /// Makes a dead message due, under its lane's lock; 0 if it is not dead any more.
    fn requeue(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        lane: Lane,
        key_hash: i64,
        seq: i64,
    ) -> impl Returns<u64>;
    /// Removes a dead message, under its lane's lock; 0 if it is not dead any more.
    fn discard(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        lane: Lane,
        key_hash: i64,
        seq: i64,
    ) -> impl Returns<u64>;
    /// The recorded attempts of a message for a consumer, oldest first.
    fn attempts(
        conn: &mut Self::Connection,
        sql: &Self::Sql,
        message_id: &str,
        consumer: &str,
    ) -> impl Returns<Vec<AttemptRow>>;

    /// Says that a worker is alive, and asks for work: in as few statements as the database can, each a transaction
    /// of its own. Locks nothing.
    fn poll(conn: &mut Self::Connection, sql: &Self::Sql, poll: Poll<'_>) -> impl Returns<Polled>;
    /// The names of other consumers than these that have messages waiting, and no living process that has a handler for them.
    fn orphans(conn: &mut Self::Connection, sql: &Self::Sql, but: &[i16]) -> impl Returns<Vec<String>>;
    fn remove_worker(conn: &mut Self::Connection, sql: &Self::Sql, worker: &str) -> impl Returns<u64>;
    /// Takes a worker for dead, so that the lanes of its consumers are suspect; 0 if somebody else did.
    fn bury(conn: &mut Self::Connection, sql: &Self::Sql, worker: &str) -> impl Returns<u64>;
}

/// Hearing of what other processes commit. Only ever hints: who hears nothing finds out by polling.
pub(crate) trait Signalling: Storage {
    /// Whether a process hears of another's commit only if it is told.
    const TELLS: bool;

    /// A connection that hears.
    type Ear: Send;

    /// Begins to listen, on a connection of this pool; `None` where the database has no means for it.
    fn listen(pool: &Pool<Self>, sql: &Self::Sql, tables: &Tables) -> impl Returns<Option<Self::Ear>>;
    /// Waits for something to be heard: whether it is a reason to look for work. Dropped, it has lost nothing; after
    /// an error the ear hears nothing any more.
    fn hear(ear: &mut Self::Ear) -> impl Returns<bool>;
    /// Tells all who listen to look for work, if a consumer that is not among these has something runnable.
    fn tell(conn: &mut Self::Connection, sql: &Self::Sql, tables: &Tables, but: &[i16]) -> impl Returns<()>;
    /// Says something to all who listen that is no reason to look, to find out whether they hear.
    fn test_ears(conn: &mut Self::Connection, sql: &Self::Sql, tables: &Tables) -> impl Returns<()>;
}

/// What the helpers for tests need, and nothing else does.
#[cfg(feature = "testing")]
pub(crate) trait Testing: Storage {
    /// How far the clock has been moved, for [`Tables::with_clock`].
    const CLOCK: Shift;

    /// Keeps a database, and removes it when dropped.
    type Keep: Send + Sync;

    /// Makes an empty database and connects to it; `server` is the URL of the server, where there is one.
    fn create(server: Option<&str>) -> impl Returns<(Self::Keep, Pool<Self>)>;
    /// Makes the clock, which has not been moved yet.
    fn make_clock(conn: &mut Self::Connection, tables: &Tables) -> impl Returns<()>;
    /// Moves the clock; 0 where there is none.
    fn advance_clock(conn: &mut Self::Connection, tables: &Tables, by: Duration) -> impl Returns<u64>;
    /// Every stored message, in the order of the sequence.
    fn messages(conn: &mut Self::Connection, tables: &Tables) -> impl Returns<Vec<StoredMessage>>;
}

/// A sendable future of sqlx.
pub(crate) trait Returns<T>: Future<Output = SqlResult<T>> + Send {}

impl<T, F: Future<Output = SqlResult<T>> + Send> Returns<T> for F {}

/// One step of the schema's history.
///
/// It ends by recording itself, so that its text is whole for other migration tools.
#[derive(Debug)]
pub(crate) struct Migration {
    pub(crate) version: i32,
    pub(crate) name: &'static str,
    pub(crate) sql: &'static str,
}

/// How a transaction of ours begins, and how it ends where it is none that COMMIT and ROLLBACK end.
#[derive(Debug)]
pub(crate) struct Begin {
    pub(crate) begin: SqlStr,
    pub(crate) end: Option<End>,
}

impl From<SqlStr> for Begin {
    fn from(begin: SqlStr) -> Self {
        Self { begin, end: None }
    }
}

/// The statements that end a transaction.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) commit: SqlStr,
    pub(crate) rollback: SqlStr,
    /// The rollback where the database has given the transaction up already, and refuses the first form.
    pub(crate) abandon: SqlStr,
}

/// What keeps a handler from ending our transaction, between [`Storage::arm`] and [`Storage::disarm`].
#[derive(Debug, Default)]
pub(crate) struct Guard {
    /// A row that a commit would meet was written.
    pub(crate) rows: bool,
    /// While true, a commit of this connection is turned into an error. Only where a hook can do that.
    pub(crate) armed: Option<Arc<AtomicBool>>,
    /// Set to end the statement that runs. Only where a hook can do that.
    pub(crate) interrupted: Option<Arc<AtomicBool>>,
    /// The handler runs on a connection that will be closed if this is dropped now, or that was closed under it. A closed connection
    /// still ends what was sent to it before.
    pub(crate) in_flight: bool,
}

impl Guard {
    /// The handler that was interrupted has ended; others follow.
    pub(crate) fn resume(&self) {
        if let Some(flag) = &self.interrupted {
            flag.store(false, Ordering::Relaxed);
        }
    }

    /// Ends the statement that the handler left running, where a hook can do that; whether it can.
    pub(crate) fn interrupt(&self) -> bool {
        self.interrupted.as_ref().inspect(|flag| flag.store(true, Ordering::Relaxed)).is_some()
    }
}

impl Drop for Guard {
    /// A connection that is given back keeps no refusing hook. One that is closed keeps it to its end, and must not be in the way
    /// until its statement ends by itself.
    fn drop(&mut self) {
        if self.in_flight {
            self.interrupt();
            return;
        }
        for flag in [&self.armed, &self.interrupted].into_iter().flatten() {
            flag.store(false, Ordering::Relaxed);
        }
    }
}

/// A pause as the statements take it. Behind the year 9999 there is no time on some databases.
pub(crate) fn micros(pause: Duration) -> i64 {
    const LONGEST: Duration = Duration::from_hours(24 * 365 * 1_000);
    i64::try_from(pause.min(LONGEST).as_micros())
        .expect("a thousand years have fewer microseconds than a number can say")
}

/// When a message is to be delivered, in microseconds: since 1970, or from now on.
fn delivery(message: &Outgoing) -> (Option<i64>, Option<i64>) {
    match message.deliver {
        Some(DeliverAt::Time(time)) => (time.duration_since(UNIX_EPOCH).ok().map(micros), None),
        Some(DeliverAt::After(pause)) => (None, Some(micros(pause))),
        None => (None, None),
    }
}

/// What an error means that did not come from the database itself.
fn kind_without_code(error: &sqlx::Error) -> ErrorKind {
    match error {
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::BeginFailed => ErrorKind::Unavailable,
        _ => ErrorKind::Database,
    }
}

/// The one place where text becomes a statement: the library's own files, with names that
/// [`Tables`] has checked, and numbers.
pub(crate) fn statement(sql: String) -> SqlStr {
    use sqlx::SqlSafeStr as _;
    sqlx::AssertSqlSafe(sql).into_sql_str()
}

/// Declares a backend's rendered statements, a field for each file of its folder.
macro_rules! statements {
    ($dir:literal: $($name:ident),* $(,)?) => {
        #[derive(Debug)]
        pub(crate) struct Sql {
            $(pub(super) $name: sqlx::SqlStr,)*
        }

        impl Sql {
            fn render(tables: &crate::config::Tables, names: &crate::config::Names) -> Self {
                Self {
                    $($name: crate::backend::statement(tables.render(
                        include_str!(concat!("sql/", $dir, "/", stringify!($name), ".sql")),
                        names,
                    )),)*
                }
            }

            /// Every statement with its name.
            #[cfg(test)]
            fn all(&self) -> Vec<(&'static str, sqlx::SqlStr)> {
                vec![$((stringify!($name), self.$name.clone()),)*]
            }
        }
    };
}
use statements;

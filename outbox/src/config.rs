//! Settings, their defaults, and the names of the tables.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use crate::codec::{Codec, Codecs};
use crate::controls::Controls;
use crate::error::{Error, ErrorKind, Result};
use crate::message::MessageId;
use crate::retention::Retention;
use crate::retry::Retry;

/// The settings of an [`Outbox`](crate::Outbox): of publishing and of the tables.
///
/// ```
/// # use outbox::{Config, Tables};
/// let config = Config { tables: Tables::new("billing", "app_")?, ..Config::default() };
/// # Ok::<(), outbox::Error>(())
/// ```
#[derive(Clone)]
pub struct Config {
    /// Schema and prefix of the tables.
    pub tables: Tables,
    /// The largest payload in bytes; a larger one is refused when it is published. 1 MiB.
    pub max_payload: usize,
    /// The payload format. [`Json`](crate::codec::Json).
    pub codec: Arc<dyn Codec>,
    /// Makes the ids of messages that are published without one. UUIDv7, increasing within a process.
    ///
    /// Ids say nothing of order, and nothing in the library reads an order from them.
    pub new_id: fn() -> MessageId,
    /// Whether processes tell each other of commits: on PostgreSQL by `NOTIFY`, after the commit and on another
    /// connection, and by a connection of the consumers that listens; on SQLite consumers watch the file. On; without
    /// it what other processes publish is found by polling, as it is on a database that has no such means.
    pub notify: bool,
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub controls: Controls,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            tables: Tables::default(),
            max_payload: 1024 * 1024,
            codec: Arc::new(crate::codec::Json),
            new_id: || Uuid::now_v7().into(),
            notify: true,
            #[cfg(feature = "testing")]
            controls: Controls::ALL,
        }
    }
}

impl Config {
    pub(crate) fn codecs(&self) -> Codecs {
        Codecs::new(self.codec.clone())
    }

    #[cfg(feature = "testing")]
    pub(crate) fn controls(&self) -> Controls {
        self.controls
    }

    #[cfg(not(feature = "testing"))]
    #[allow(clippy::unused_self, reason = "the same call with and without the feature")]
    pub(crate) fn controls(&self) -> Controls {
        Controls::ALL
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("tables", &self.tables)
            .field("max_payload", &self.max_payload)
            .field("codec", &self.codec.content_type())
            .field("notify", &self.notify)
            .finish_non_exhaustive()
    }
}

/// The settings of a process that consumes.
#[derive(Clone)]
pub struct ConsumerConfig {
    /// How many messages are worked on at once, by all consumers of the process together. 4; SQLite has one
    /// writer, so it is always 1 there.
    ///
    /// [External](crate::Effect::External) consumers do not take part: each makes as many calls beside as its
    /// [`concurrency`](crate::HandlerOptions::concurrency) allows, and a call holds no connection.
    pub executors: usize,
    /// After how long the database is asked for work when nothing wakes the process, or up to a fifth later. 500 ms.
    ///
    /// It finds what is due again, and whatever a wake-up was lost for. With it a process that has nothing to do sends
    /// two statements a second at most, however many consumers it has, and some more where it is its turn to prune.
    pub poll_interval: Duration,
    /// How long a transaction takes in further messages. What is done is not kept waiting for its commit any longer. 20 ms.
    pub group_window: Duration,
    /// Where to listen for other processes, if not where the application connects: the URL of the server itself,
    /// where that is a pooler such as `PgBouncer`, through which nothing can be heard. None.
    pub listen_url: Option<String>,
    /// Whether a pooler stands between the consumers and their PostgreSQL server that changes servers between transactions.
    /// Found out at the start.
    pub pooler: Pooler,
    /// The retry policy of every handler of this process, in place of their own. None.
    pub retry: Option<Retry>,
    /// How long running handlers may go on once a shutdown was asked for; then they are dropped and rolled
    /// back. 30 s.
    pub shutdown_grace: Duration,
    /// How much longer than the longest handler timeout a transaction may be left idle before the server ends it, as
    /// that of a process which hangs. 10 s.
    pub idle_grace: Duration,
    /// How long messages and inbox marks are kept. One process of all that run removes what is older; where they differ, each goes
    /// by its own.
    ///
    /// It takes [`run`](crate::Consumers::run) or [`run_until`](crate::Consumers::run_until); a program that only runs until
    /// it is idle calls [`Admin::prune`](crate::Admin::prune).
    pub retention: Retention,
    /// How often that is looked after, or up to a fifth later, by all processes together; the first time after a random part of it. 60 s.
    pub maintenance_interval: Duration,
}

impl Default for ConsumerConfig {
    fn default() -> Self {
        Self {
            executors: 4,
            poll_interval: Duration::from_millis(500),
            group_window: Duration::from_millis(20),
            listen_url: None,
            pooler: Pooler::Detect,
            retry: None,
            shutdown_grace: Duration::from_secs(30),
            idle_grace: Duration::from_secs(10),
            retention: Retention::default(),
            maintenance_interval: Duration::from_mins(1),
        }
    }
}

impl fmt::Debug for ConsumerConfig {
    /// Without the URL, which may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsumerConfig")
            .field("executors", &self.executors)
            .field("poll_interval", &self.poll_interval)
            .field("group_window", &self.group_window)
            .field("pooler", &self.pooler)
            .field("retry", &self.retry)
            .field("shutdown_grace", &self.shutdown_grace)
            .field("idle_grace", &self.idle_grace)
            .field("retention", &self.retention)
            .field("maintenance_interval", &self.maintenance_interval)
            .finish_non_exhaustive()
    }
}

/// Whether connections go through a pooler such as `PgBouncer` with `pool_mode = transaction`, where each transaction may be on
/// another session of the server; see [`databases`](crate::databases#behind-a-pooler).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pooler {
    /// It is found out at the start: a pooler refuses or ignores a setting that a server takes.
    #[default]
    Detect,
    /// There is one.
    Present,
    /// There is none: a connection is a session of the server, and its settings are kept.
    Absent,
}

impl Pooler {
    pub(crate) fn is_present(self) -> Option<bool> {
        match self {
            Self::Detect => None,
            Self::Present => Some(true),
            Self::Absent => Some(false),
        }
    }
}

/// Where the tables are: a schema, and a prefix before each `outbox_…` name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tables {
    schema: Option<String>,
    prefix: String,
    /// By how much a test has moved the clock; without it there is no clock but the database's.
    #[cfg(feature = "testing")]
    clock: Option<Shift>,
}

impl Tables {
    /// Tables in `schema`, their names after `prefix`; either may be empty. Without a schema it is `public` on
    /// PostgreSQL, the main database on SQLite, and on MySQL the database to which the pool connects.
    ///
    /// # Errors
    /// [`Config`](ErrorKind::Config) for a name that is not `[a-z_][a-z0-9_]*`, or too long: 63 bytes for the
    /// schema, 30 for the prefix.
    pub fn new(schema: &str, prefix: &str) -> Result<Self> {
        check_identifier("schema", schema, 63)?;
        check_identifier("prefix", prefix, 30)?;
        Ok(Self {
            schema: Some(schema.to_owned()).filter(|s| !s.is_empty()),
            prefix: prefix.to_owned(),
            #[cfg(feature = "testing")]
            clock: None,
        })
    }

    /// The same tables, with statements that follow a clock which is so far ahead of the database's.
    #[cfg(feature = "testing")]
    pub(crate) fn with_clock(self, shift: Shift) -> Self {
        Self { clock: Some(shift), ..self }
    }

    /// The schema, if one was given.
    #[must_use]
    pub fn schema(&self) -> Option<&str> {
        self.schema.as_deref()
    }

    /// The prefix.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// A statement with this schema and prefix in place of its markers: `/*schema*/` before a table, `/*prefix*/`
    /// before a bare name such as an index's, `/*database*/` before what has no prefix.
    ///
    /// `/*now*/` stands behind every reading of the clock that decides when a message is due, as in `now()/*now*/`. It
    /// becomes nothing, so that the statement is what it is without the marker. Where a test moves the clock it becomes
    /// `+ (the shift)`: a subquery that refers to nothing around it, which the planner runs once and can still compare with
    /// an index. Times of which nothing but a report depends (heartbeats, `created_at`) go without.
    pub(crate) fn render(&self, sql: &str, names: &Names) -> String {
        let schema = self.schema().or(names.schema.as_deref()).map_or_else(String::new, |schema| {
            let quote = names.quote;
            let schema = schema.replace(quote, &String::from_iter([quote, quote]));
            format!("{quote}{schema}{quote}.")
        });
        sql.replace("/*now*/", &self.shift())
            .replace("/*schema*/", &format!("{schema}{}", self.prefix))
            .replace("/*prefix*/", &self.prefix)
            .replace("/*database*/", &schema)
    }
}

#[cfg(feature = "testing")]
impl Tables {
    fn shift(&self) -> String {
        let Some(Shift { query, unit: (before, behind) }) = self.clock else { return String::new() };
        format!(" + {before}({}){behind}", query.trim_end().trim_end_matches(';'))
    }
}

#[cfg(not(feature = "testing"))]
impl Tables {
    #[allow(clippy::unused_self, reason = "the same call with and without the feature")]
    fn shift(&self) -> String {
        String::new()
    }
}

/// By how much a test has moved the clock, as something that is added to a time.
#[cfg(feature = "testing")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shift {
    /// The query that reads it.
    pub(crate) query: &'static str,
    /// What stands before and behind what it reads.
    pub(crate) unit: (&'static str, &'static str),
}

/// How a database writes names.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    /// What stands around a name.
    pub(crate) quote: char,
    /// The schema where none is configured; none means that of the connection.
    pub(crate) schema: Option<String>,
}

fn check_identifier(what: &str, name: &str, max: usize) -> Result<()> {
    let first = name.bytes().next().is_none_or(|b| b.is_ascii_lowercase() || b == b'_');
    let rest = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    if first && rest && name.len() <= max {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Config,
        format!("the {what} {name:?} is not usable: at most {max} of a-z 0-9 _, not beginning with a digit"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_identifiers_and_reach_every_marker() {
        for (schema, prefix) in [("a\"b", ""), ("a;b", ""), ("", "1a"), ("", "A"), ("", "a-b"), ("ä", "")] {
            let error = Tables::new(schema, prefix).expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::Config);
        }
        assert!(Tables::new("", &"p".repeat(31)).is_err());
        let sql = "create index /*prefix*/outbox_x on /*schema*/outbox_x";
        let (default, public) = (Tables::default(), Names { quote: '"', schema: Some("public".to_owned()) });
        assert_eq!(default.render(sql, &public), "create index outbox_x on \"public\".outbox_x");
        let tables = Tables::new("app", "b_").expect("valid");
        assert_eq!(tables.render(sql, &public), "create index b_outbox_x on \"app\".b_outbox_x");
        // That of a connection is anything.
        let odd = Names { quote: '`', schema: Some("a`b".to_owned()) };
        assert_eq!(default.render(sql, &odd), "create index outbox_x on `a``b`.outbox_x");
        let none = Names { quote: '`', schema: None };
        assert_eq!(tables.render(sql, &none), "create index b_outbox_x on `app`.b_outbox_x");
        assert_eq!(default.render(sql, &none), "create index outbox_x on outbox_x");
    }

    #[test]
    fn the_marker_of_the_clock_is_nothing_unless_a_test_moves_it() {
        let (sql, plain) = ("where due_at <= now()/*now*/ - $1", "where due_at <= now() - $1");
        let public = Names { quote: '"', schema: Some("public".to_owned()) };
        assert_eq!(Tables::default().render(sql, &public), plain);
        #[cfg(feature = "testing")]
        for (unit, before, behind) in
            [(("", ""), "(", ")"), (("interval ", " second"), "interval (", ") second")]
        {
            let shift = Shift { query: "-- Why.\nselect a from /*schema*/b;\n", unit };
            assert_eq!(
                Tables::default().with_clock(shift).render(sql, &public),
                format!("where due_at <= now() + {before}-- Why.\nselect a from \"public\".b{behind} - $1")
            );
        }
    }
}

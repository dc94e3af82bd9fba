//! Publishers: every way to publish, every isolation level, late commits, rollbacks, old snapshots.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use outbox::__private::Codec;
use outbox::{Draft, EventMeta, Outbox, OutboxEvent, Published, Result, TypeSet};
use outbox_tests::TestBackend;
use outbox_tests::worker::{NOTED, PLACED, Poison};
use sqlx::error::DatabaseError;

use crate::check::Numbers;

/// A message that was committed.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) id: String,
    pub(crate) key: Option<usize>,
    pub(crate) body: Body,
    pub(crate) transaction: u64,
    pub(crate) index: usize,
    /// When the commit was sent, and when its answer was there.
    pub(crate) commit: (Instant, Instant),
}

/// What a run of publishers publishes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) keys: usize,
    /// The statements that begin a transaction, each as likely as the others.
    pub(crate) begins: &'static [&'static str],
    /// How late a commit is at most, and how old a snapshot at the first publish.
    pub(crate) late: Duration,
    /// Publishers wait while more than this is undone.
    pub(crate) backlog: i64,
    /// How many of a thousand messages are [`Poisoned`](Body::Poisoned) or [`Unreadable`](Body::Unreadable).
    pub(crate) poison: u32,
}

/// What a message says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Body {
    Good,
    Poisoned(Poison),
    /// JSON that is no order, or no JSON.
    Unreadable(&'static str),
}

impl Body {
    fn draw(load: &Load) -> Self {
        if fastrand::u32(0..1000) >= load.poison {
            return Self::Good;
        }
        *fastrand::choice(&[
            Self::Poisoned(Poison::Fails),
            Self::Poisoned(Poison::Terminal),
            Self::Unreadable("7"),
            Self::Unreadable("{"),
        ])
        .expect("there are some")
    }

    fn payload(self) -> &'static str {
        match self {
            Self::Good => "{}",
            Self::Poisoned(Poison::Fails) => r#"{"poison":"Fails"}"#,
            Self::Poisoned(Poison::Terminal) => r#"{"poison":"Terminal"}"#,
            Self::Unreadable(payload) => payload,
        }
    }
}

/// What the publishers of a run share.
#[derive(Debug)]
pub(crate) struct Publishers<DB: TestBackend> {
    outbox: Outbox<DB>,
    load: Load,
    pub(crate) sent: Mutex<Vec<Sent>>,
    pub(crate) stop: AtomicBool,
    pub(crate) undone: AtomicI64,
    transactions: AtomicU64,
    rolled_back: AtomicU64,
    retries: Mutex<BTreeMap<String, usize>>,
}

/// The first statement of a strict transaction: from here on it has its snapshot. It reads no table, of which a
/// serializable transaction would remember that it has read it.
const SNAPSHOT: &str = "select count(*) from (select 1) one";

/// An event whose type is a value.
#[derive(Debug, Clone)]
struct Order {
    key: Option<usize>,
    meta: &'static EventMeta,
    body: Body,
}

impl OutboxEvent for Order {
    const TYPES: TypeSet = TypeSet::Any(&[TypeSet::One(&PLACED), TypeSet::One(&NOTED)]);

    fn meta(&self) -> &'static EventMeta {
        self.meta
    }

    fn aggregate_id(&self) -> Option<Cow<'_, str>> {
        self.key.map(|key| Cow::Owned(key.to_string()))
    }

    fn encode(&self, _: &dyn Codec) -> Result<Vec<u8>> {
        Ok(self.body.payload().into())
    }
}

/// One transaction, as it is tried until it succeeds.
#[derive(Debug, Clone)]
struct Change {
    orders: Vec<Order>,
    form: Form,
    begin: &'static str,
    before: Duration,
    after: Duration,
    commits: bool,
}

#[derive(Debug, Clone, Copy)]
enum Form {
    /// One publish after the other on sqlx's transaction, as drafts.
    Single,
    /// The same as events, on the bare connection.
    Connection,
    /// All events in one call.
    Array,
    /// In a transaction of the outbox, some of it in a savepoint.
    Buffered,
}

impl Change {
    fn draw(load: &Load) -> Self {
        let orders = (0..fastrand::usize(1..=5)).map(|_| Order {
            key: (fastrand::u8(0..10) > 0).then(|| draw_key(load.keys)),
            meta: if fastrand::u8(0..20) == 0 { &NOTED } else { &PLACED },
            body: Body::draw(load),
        });
        let up_to = |most: Duration| most.mul_f64(fastrand::f64());
        Self {
            orders: orders.collect(),
            form: *fastrand::choice(&[Form::Single, Form::Connection, Form::Array, Form::Buffered])
                .expect("there are some"),
            begin: fastrand::choice(load.begins).expect("there is one"),
            before: if fastrand::bool() { up_to(load.late) } else { Duration::ZERO },
            after: up_to(load.late),
            commits: fastrand::u8(0..100) >= 15,
        }
    }
}

impl<DB: TestBackend> Publishers<DB> {
    pub(crate) fn new(outbox: Outbox<DB>, load: Load) -> Self {
        Self {
            outbox,
            load,
            sent: Mutex::default(),
            stop: AtomicBool::new(false),
            undone: AtomicI64::new(0),
            transactions: AtomicU64::new(0),
            rolled_back: AtomicU64::new(0),
            retries: Mutex::default(),
        }
    }

    /// Publishes until told to stop; retries what is transient, as a user would.
    pub(crate) async fn publish(&self) {
        while !self.stop.load(Ordering::Relaxed) {
            if self.undone.load(Ordering::Relaxed) > self.load.backlog {
                late(Duration::from_millis(5)).await;
                continue;
            }
            let change = Change::draw(&self.load);
            loop {
                match self.attempt(&change).await {
                    Ok(sent) => {
                        if sent.is_empty() {
                            self.rolled_back.fetch_add(1, Ordering::Relaxed);
                        }
                        self.sent.lock().expect("no publisher panics under the lock").extend(sent);
                        break;
                    }
                    Err(error) => {
                        let reason = transient(&error).unwrap_or_else(|| panic!("{change:?}: {error:?}"));
                        let mut retries = self.retries.lock().expect("no publisher panics under the lock");
                        *retries.entry(reason).or_default() += 1;
                    }
                }
            }
        }
    }

    pub(crate) fn count(&self, numbers: &mut Numbers) {
        numbers.add("transactions rolled back", self.rolled_back.load(Ordering::Relaxed));
        for (reason, count) in self.retries.lock().expect("no publisher panics under the lock").iter() {
            numbers.add(format!("transactions run again: {reason}"), count);
        }
    }

    async fn attempt(&self, change: &Change) -> anyhow::Result<Vec<Sent>> {
        if matches!(change.form, Form::Buffered) {
            return self.attempt_buffered(change).await;
        }
        let mut tx = self.outbox.pool().begin_with(change.begin).await?;
        DB::number(&mut tx, SNAPSHOT).await?;
        late(change.before).await;
        let mut ids = Vec::new();
        match change.form {
            Form::Array => {
                let published = self.outbox.publish_events(&mut tx, &change.orders).await?;
                for id in stored(published)? {
                    business::<DB>(&mut tx, &id).await?;
                    ids.push(id);
                }
            }
            form => {
                for order in &change.orders {
                    let published = if matches!(form, Form::Connection) {
                        self.outbox.publish_on(&mut tx, order).await?
                    } else {
                        self.outbox.publish(&mut tx, draft(order)).await?
                    };
                    let id = stored(vec![published])?.remove(0);
                    business::<DB>(&mut tx, &id).await?;
                    ids.push(id);
                }
            }
        }
        late(change.after).await;
        if !change.commits {
            if fastrand::bool() {
                tx.rollback().await?;
            }
            return Ok(Vec::new());
        }
        let sending = Instant::now();
        tx.commit().await?;
        Ok(self.sent(change, ids, sending))
    }

    async fn attempt_buffered(&self, change: &Change) -> anyhow::Result<Vec<Sent>> {
        let mut tx = self.outbox.begin().await?;
        if let Some(level) = change.begin.strip_prefix("begin isolation level ") {
            DB::execute(&mut tx, &format!("set transaction isolation level {level}")).await?;
        }
        DB::number(&mut tx, SNAPSHOT).await?;
        late(change.before).await;
        let mut ids = Vec::new();
        for order in &change.orders {
            if fastrand::u8(0..5) == 0 {
                let dropped: anyhow::Result<()> = tx
                    .savepoint(async |tx| {
                        let id = tx.publish_event(order)?;
                        business::<DB>(tx, id.as_str()).await?;
                        Err(anyhow::anyhow!("never mind"))
                    })
                    .await;
                match dropped {
                    Err(error) if error.to_string() == "never mind" => {}
                    other => other?,
                }
            }
            let id = if fastrand::bool() {
                tx.publish_event(order)?.to_string()
            } else {
                self.outbox.publish(&tx, draft(order)).await?.id().to_string()
            };
            business::<DB>(&mut tx, &id).await?;
            ids.push(id);
        }
        late(change.after).await;
        if !change.commits {
            if fastrand::bool() {
                tx.rollback().await?;
            }
            return Ok(Vec::new());
        }
        let sending = Instant::now();
        stored(tx.commit().await?)?;
        Ok(self.sent(change, ids, sending))
    }

    fn sent(&self, change: &Change, ids: Vec<String>, sending: Instant) -> Vec<Sent> {
        let commit = (sending, Instant::now());
        let transaction = self.transactions.fetch_add(1, Ordering::Relaxed);
        let messages = ids.into_iter().zip(&change.orders).enumerate();
        let sent = messages.map(|(index, (id, order))| {
            let (key, body) = (order.key, order.body);
            Sent { id, key, body, transaction, index, commit }
        });
        sent.collect()
    }
}

/// A key; low ones far more often than high ones.
fn draw_key(keys: usize) -> usize {
    fastrand::usize(0..=fastrand::usize(0..keys))
}

/// The application's own change in the same transaction.
async fn business<DB: TestBackend>(conn: &mut DB::Connection, id: &str) -> sqlx::Result<()> {
    DB::execute(conn, &format!("insert into business (message_id) values ('{id}')")).await
}

fn draft(order: &Order) -> Draft {
    let draft = Draft::new(order.meta.event_type, order.body.payload());
    match order.key {
        Some(key) => draft.aggregate_id(key.to_string()),
        None => draft,
    }
}

fn stored(published: Vec<Published>) -> anyhow::Result<Vec<String>> {
    let ids = published.into_iter().map(|published| match published {
        Published::Stored(id) => Ok(id.to_string()),
        other => Err(anyhow::anyhow!("a message of a new id is {other:?}")),
    });
    ids.collect()
}

async fn late(pause: Duration) {
    tokio::time::sleep(pause).await; // sleep-ok: old snapshots and late commits are what is tested
}

/// Why a transaction that failed will be run again; `None` where that would not help.
fn transient(error: &anyhow::Error) -> Option<String> {
    if let Some(error) = error.downcast_ref::<outbox::Error>() {
        return error
            .is_transient()
            .then(|| format!("{:?} {}", error.kind(), error.sqlstate().unwrap_or_default()));
    }
    let database = error.downcast_ref::<sqlx::Error>().and_then(sqlx::Error::as_database_error);
    let code = database.and_then(DatabaseError::code).unwrap_or_default();
    // MySQL gives a lock timeout no code of its own.
    let timeout = database.is_some_and(|error| error.message().starts_with("Lock wait timeout"));
    (timeout || matches!(&*code, "40001" | "40P01" | "5" | "517")).then(|| code.into_owned())
}

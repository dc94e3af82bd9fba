//! Assertions about what was published.

use std::error::Error as StdError;
use std::fmt::Write as _;
use std::ops::Deref;

use sqlx::Transaction;

use super::database::TestBackend;
use super::handle::FollowUps;
use crate::codec::Codecs;
use crate::draft::Outgoing;
use crate::error::{Error, Result};
use crate::event::{DecodeEvent, OutboxEvent};
use crate::message::Message;
use crate::publish::Outbox;
use crate::select;
use crate::transaction::OutboxTx;

/// How many messages a failure lists.
const LISTED: usize = 20;

/// How much of a payload it shows, in bytes.
const EXCERPT: usize = 120;

/// Fails unless an event of this type was published, and returns those that were, as [`Matches`](crate::testing::Matches).
///
/// The first argument is where to look: `&outbox` sees what is committed, whether or not it has been handled; `&mut tx`
/// of an [`OutboxTx`](crate::OutboxTx) also what that transaction has published and not yet written;
/// `(&outbox, &mut tx)` does for a transaction of sqlx's own, and `&published` for what a handler has
/// [published](crate::testing::handle). A closure narrows the events down.
///
/// ```
/// # #[cfg(all(feature = "sqlite", feature = "macros"))]
/// # tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
/// # use outbox::{OutboxEvent, assert_published, testing::TestOutbox};
/// # #[derive(serde::Serialize, serde::Deserialize, OutboxEvent)]
/// # #[outbox(type = "order.paid")]
/// # struct OrderPaid { order_id: u64, cents: u64 }
/// # let outbox = TestOutbox::sqlite().await?;
/// let mut tx = outbox.begin().await?;
/// tx.publish_event(OrderPaid { order_id: 7, cents: 500 })?;
///
/// assert_published!(&mut tx, OrderPaid);
/// assert_published!(&mut tx, OrderPaid, |paid| paid.cents == 500).times(1).with_key("order\u{1f}7");
/// # Ok::<(), outbox::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// It is used in `async` code.
///
/// # Panics
/// Where there is none, with a list of what was published instead; and where the database cannot be read.
#[macro_export]
macro_rules! assert_published {
    ($place:expr, $event:ty $(,)?) => {
        $crate::assert_published!($place, $event, |_| true)
    };
    ($place:expr, $event:ty, $matches:expr $(,)?) => {
        match $crate::testing::published::<$event>(&$crate::testing::Observe::observe($place).await, $matches)
        {
            ::core::result::Result::Ok(matches) => matches,
            ::core::result::Result::Err(text) => ::core::panic!("{text}"),
        }
    };
}

/// Fails if an event of this type was published; with a closure, one that it says yes to. The places are those of
/// [`assert_published!`](crate::assert_published).
///
/// # Panics
/// Where there is one, with a list of those; and where the database cannot be read.
#[macro_export]
macro_rules! assert_not_published {
    ($place:expr, $event:ty $(,)?) => {
        $crate::assert_not_published!($place, $event, |_| true)
    };
    ($place:expr, $event:ty, $matches:expr $(,)?) => {
        if let ::core::result::Result::Err(text) =
            $crate::testing::unpublished::<$event>(&$crate::testing::Observe::observe($place).await, $matches)
        {
            ::core::panic!("{text}")
        }
    };
}

/// Fails if anything was published, whatever its type. The places are those of
/// [`assert_published!`](crate::assert_published).
///
/// # Panics
/// Where something was, with a list of it; and where the database cannot be read.
#[macro_export]
macro_rules! assert_nothing_published {
    ($place:expr $(,)?) => {
        if let ::core::result::Result::Err(text) = $crate::testing::Observe::observe($place).await.is_empty()
        {
            ::core::panic!("{text}")
        }
    };
}

/// Where an assertion can look. Sealed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no place to look for published events",
    label = "expected `&outbox`, `&mut tx`, `(&outbox, &mut tx)` or `&published`",
    note = "inside `transaction(async |tx| ..)`, where `tx` is a reference already, write `&mut *tx`"
)]
#[expect(private_bounds, reason = "sealed")]
pub trait Observe: Sealed {
    /// Reads everything that was published there.
    fn observe(self) -> impl Future<Output = Looked> + Send;
}

trait Sealed {
    fn look(self) -> impl Future<Output = Looked> + Send;
}

impl<T: Sealed> Observe for T {
    fn observe(self) -> impl Future<Output = Looked> + Send {
        self.look()
    }
}

impl<DB: TestBackend> Sealed for &Outbox<DB> {
    async fn look(self) -> Looked {
        let read = async {
            let conn = self.pool().acquire().await;
            let mut conn = conn.map_err(|error| Error::database(DB::kind(&error), "connect", error))?;
            stored(self, &mut conn).await
        };
        Looked::new(read.await, self)
    }
}

impl<DB: TestBackend> Sealed for &super::TestOutbox<DB> {
    fn look(self) -> impl Future<Output = Looked> + Send {
        self.outbox().look()
    }
}

impl<DB: TestBackend> Sealed for (&Outbox<DB>, &mut Transaction<'_, DB>) {
    async fn look(self) -> Looked {
        let (outbox, tx) = self;
        Looked::new(stored(outbox, tx).await, outbox)
    }
}

impl<DB: TestBackend> Sealed for &mut OutboxTx<DB> {
    async fn look(self) -> Looked {
        let outbox = self.outbox().clone();
        let mut looked = Looked::new(stored(&outbox, self).await, &outbox);
        if let Ok(messages) = &mut looked.messages {
            messages.extend(self.buffered().iter().map(Seen::buffered));
        }
        looked
    }
}

impl Sealed for &FollowUps {
    fn look(self) -> impl Future<Output = Looked> + Send {
        let messages =
            self.messages().iter().map(|message| Seen { message: message.clone(), buffered: false });
        std::future::ready(Looked { messages: Ok(messages.collect()), codecs: self.codecs().clone() })
    }
}

async fn stored<DB: TestBackend>(outbox: &Outbox<DB>, conn: &mut DB::Connection) -> Result<Vec<Seen>> {
    let rows = DB::messages(conn, &outbox.config().tables).await;
    let rows = rows.map_err(|error| Error::database(DB::kind(&error), "read what was published", error))?;
    let messages = rows.into_iter().map(|row| select::read(Ok(row)));
    messages.map(|message| message.map(|message| Seen { message, buffered: false })).collect()
}

/// A message as an assertion has found it.
#[derive(Debug)]
struct Seen {
    message: Message,
    /// To be written at the commit.
    buffered: bool,
}

impl Seen {
    fn buffered(message: &Outgoing) -> Self {
        Self { message: super::handle::as_message(message), buffered: true }
    }
}

/// Everything that was published at one place, as it was read.
#[derive(Debug)]
pub struct Looked {
    messages: Result<Vec<Seen>>,
    codecs: Codecs,
}

impl Looked {
    fn new<DB: TestBackend>(messages: Result<Vec<Seen>>, outbox: &Outbox<DB>) -> Self {
        Self { messages, codecs: outbox.codecs().clone() }
    }

    fn messages(&self) -> Result<&[Seen], String> {
        self.messages.as_deref().map_err(with_causes)
    }

    /// # Errors
    /// The list of what there is.
    #[doc(hidden)]
    pub fn is_empty(self) -> Result<(), String> {
        let messages = self.messages()?;
        if messages.is_empty() {
            return Ok(());
        }
        Err(format!("nothing was to be published, and this was:{}", list(messages)))
    }
}

/// # Errors
/// What was found instead.
#[doc(hidden)]
pub fn published<E: DecodeEvent>(
    looked: &Looked,
    matches: impl Fn(&E) -> bool,
) -> Result<Matches<E>, String> {
    let (found, unreadable) = decoded::<E>(looked)?;
    let any = !found.is_empty();
    let found: Vec<_> = found.into_iter().filter(|(event, _)| matches(event)).collect();
    if found.is_empty() {
        let name = describe::<E>();
        let mut text = if any {
            format!("no {name} that was published is one that the closure says yes to; published was:")
        } else {
            format!("no {name} was published; published was:")
        };
        text.push_str(&list(looked.messages()?));
        text.push_str(&unreadable);
        return Err(text);
    }
    let (events, messages) = found.into_iter().map(|(event, message)| (event, message.clone())).unzip();
    Ok(Matches { events, messages })
}

/// # Errors
/// What was found.
#[doc(hidden)]
pub fn unpublished<E: DecodeEvent>(looked: &Looked, matches: impl Fn(&E) -> bool) -> Result<(), String> {
    let (found, unreadable) = decoded::<E>(looked)?;
    if !unreadable.is_empty() {
        return Err(format!("whether a {} was published cannot be told:{unreadable}", describe::<E>()));
    }
    let found: Vec<_> = found.iter().filter(|(event, _)| matches(event)).collect();
    if found.is_empty() {
        return Ok(());
    }
    let lines: String = found.iter().map(|(_, message)| line(message, "")).collect();
    Err(format!("no {} was to be published, and this was:{lines}", describe::<E>()))
}

/// An event with its message.
type Read<'a, E> = (E, &'a Message);

/// The events of a type, and what is to be said of those that cannot be read.
fn decoded<E: DecodeEvent>(looked: &Looked) -> Result<(Vec<Read<'_, E>>, String), String> {
    let (mut found, mut unreadable) = (Vec::new(), String::new());
    for Seen { message, .. } in looked.messages()? {
        if <E as OutboxEvent>::TYPES.find(&message.event_type).is_none() {
            continue;
        }
        match E::decode(message, &looked.codecs) {
            Ok(event) => found.push((event, message)),
            Err(error) => {
                let _ = write!(unreadable, "\n{} cannot be read: {}", message.id, with_causes(&error));
            }
        }
    }
    Ok((found, unreadable))
}

/// The event and its types, for people.
fn describe<E: OutboxEvent>() -> String {
    let types: Vec<_> = E::TYPES.all().iter().map(|meta| meta.event_type).collect();
    let path = std::any::type_name::<E>();
    // Of a generic type the arguments are kept as they are.
    let end = path.find('<').unwrap_or(path.len());
    let start = path[..end].rfind("::").map_or(0, |at| at + 2);
    format!("`{}` ({})", &path[start..], types.join(", "))
}

/// The messages, a line each; no more than can be read.
fn list(messages: &[Seen]) -> String {
    if messages.is_empty() {
        return " nothing".to_owned();
    }
    let state = |seen: &Seen| if seen.buffered { ", to be written at the commit" } else { "" };
    let mut text: String =
        messages.iter().take(LISTED).map(|seen| line(&seen.message, state(seen))).collect();
    if messages.len() > LISTED {
        let _ = write!(text, "\n  and {} more", messages.len() - LISTED);
    }
    text
}

fn line(message: &Message, state: &str) -> String {
    let payload = String::from_utf8_lossy(&message.payload);
    let cut = payload.floor_char_boundary(EXCERPT);
    let more = if cut < payload.len() { "…" } else { "" };
    let aggregate = message.aggregate_id.as_deref().map(|id| format!(", aggregate {id}")).unwrap_or_default();
    format!("\n  {} (id {}{aggregate}{state}): {}{more}", message.event_type, message.id, &payload[..cut])
}

/// An error with its causes.
pub(super) fn with_causes(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let _ = write!(text, ": {error}");
        cause = error.source();
    }
    text
}

/// The events that an assertion has found, in the order in which they were published. It derefs to them.
#[derive(Debug)]
pub struct Matches<E> {
    events: Vec<E>,
    messages: Vec<Message>,
}

impl<E> Matches<E> {
    /// Fails unless there are exactly so many.
    ///
    /// # Panics
    /// Where there are not, with a list of those that are there.
    #[track_caller]
    #[expect(clippy::must_use_candidate, reason = "what it checks is its use")]
    #[expect(clippy::return_self_not_must_use, reason = "what it checks is its use")]
    pub fn times(self, times: usize) -> Self {
        let found = self.messages.len();
        assert!(found == times, "{times} were to be published, and {found} were:{}", self.lines());
        self
    }

    /// Fails unless all have this ordering key; that of an aggregate is its topic, U+001F, and its id.
    ///
    /// # Panics
    /// Where one has another or none, with a list of the keys.
    #[track_caller]
    #[expect(clippy::must_use_candidate, reason = "what it checks is its use")]
    #[expect(clippy::return_self_not_must_use, reason = "what it checks is its use")]
    pub fn with_key(self, key: &str) -> Self {
        let keys: Vec<_> = self.messages.iter().map(|message| message.key.as_deref()).collect();
        assert!(
            keys.iter().all(|found| *found == Some(key)),
            "the key was to be {key:?}, and the keys are {keys:?}:{}",
            self.lines()
        );
        self
    }

    /// Their messages, in the same order.
    #[must_use]
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    fn lines(&self) -> String {
        self.messages.iter().map(|message| line(message, "")).collect()
    }
}

impl<E> Deref for Matches<E> {
    type Target = [E];

    fn deref(&self) -> &[E] {
        &self.events
    }
}

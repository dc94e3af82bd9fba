//! One call of a handler, and taking back what it did, whatever it did.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use tokio::time::error::Elapsed;
use tokio_util::sync::CancellationToken;

use crate::backend::{Backend, Guard, Running, SqlResult};
use crate::connections::Connections;
use crate::draft::Outgoing;
use crate::error::{Error, ErrorKind};
use crate::handler::{Context, HandlerVTable, Metadata, Shutdown, States};
use crate::message::MessageId;
use crate::outcome::{BatchOutcome, Disposition, HandlerError};
use crate::parked;
use crate::publish::Outbox;
use crate::session::{Session, caught, panic_text};

/// What cannot be seen from the database's own error, such as that of the constraint that a COMMIT meets.
const TRANSACTION_ENDED: &str = "the handler ended the transaction that it runs in (a COMMIT, ROLLBACK or BEGIN sent as \
                                 SQL), or left it unfit to be committed (SET TRANSACTION READ ONLY); what it did was \
                                 rolled back";

const ROLLED_BACK: &str = "was rolled back";

/// Of a call outside of transactions.
const MAY_HAVE_HAPPENED: &str = "what it called may have happened";

/// How long a statement that was cancelled may take to end; then its connection is closed.
const CANCEL_GRACE: Duration = Duration::from_millis(200);

/// How long a statement of ours may take at least that follows a handler.
const PATIENCE: Duration = Duration::from_secs(5);

/// How a call ended.
pub(crate) enum Returned {
    /// It succeeded; of a batch, some may have failed by themselves.
    Well { follow_ups: Vec<Outgoing>, failed: Vec<(usize, HandlerError)> },
    /// It failed, and what it did is still there.
    Failed(HandlerError),
    /// It was dropped, and its statement may still run.
    Dropped(HandlerError),
}

/// When a call began, and how long it may take.
#[derive(Clone, Copy)]
pub(crate) struct Began {
    pub(crate) at: Instant,
    pub(crate) timeout: Duration,
}

impl Began {
    pub(crate) fn now<DB: Backend>(handler: &HandlerVTable<DB>) -> Self {
        Self { at: Instant::now(), timeout: handler.options.timeout }
    }

    /// What follows a handler may find its connection busy: it may have dropped the future of a statement, which runs on. That
    /// counts as the handler's own time.
    fn left(self) -> Duration {
        self.timeout.saturating_sub(self.at.elapsed()).max(PATIENCE)
    }
}

/// What calls need.
pub(crate) struct Attempt<'a, DB: Backend> {
    pub(crate) outbox: &'a Outbox<DB>,
    pub(crate) connections: &'a Connections<DB>,
    pub(crate) states: &'a States,
    /// How long further messages are begun.
    pub(crate) window: Duration,
    /// Cancelled when nothing more is to be begun.
    pub(crate) stop: &'a CancellationToken,
    /// By what the transaction is found at the server.
    pub(crate) running: Running,
}

impl<DB: Backend> Attempt<'_, DB> {
    /// Runs the handler in the session's transaction, behind the guard.
    pub(crate) async fn call(
        &self,
        session: &mut Session<DB>,
        handler: &HandlerVTable<DB>,
        messages: Vec<Metadata>,
    ) -> Returned {
        let ids: Vec<_> = messages.iter().map(|metadata| metadata.id.clone()).collect();
        let shutdown = Shutdown::new(self.stop.clone());
        let (outbox, states) = (self.outbox.clone(), self.states.clone());
        let mut context = Context::new(session.lend(), outbox, messages, handler.batched, states, shutdown);
        let returned = returned(handler, &mut context).await;
        let left = context.into_parts();
        *session = left.session;
        judged(returned, left.refused, left.follow_ups, &ids, || {
            timed_out(handler.options.timeout, ROLLED_BACK)
        })
    }

    /// Takes back what a handler did that has returned. An error says that our transaction went with it.
    pub(crate) async fn take_back(
        &self,
        session: &mut Session<DB>,
        guard: &Guard,
        began: Began,
        error: HandlerError,
    ) -> Result<HandlerError, HandlerError> {
        let Some(undone) = patiently(began, DB::undo(session, self.outbox.sql())).await else {
            return self.cut_off(session, guard, error).await;
        };
        match undone {
            Ok(()) => Ok(error),
            // A deadlock takes the whole transaction along on some databases.
            Err(_) if parked::lost_a_conflict::<DB>(&*error.source) => Err(error),
            Err(lost) if DB::kind(&lost) == ErrorKind::Unavailable => {
                // What the handler made of it says nothing about the message.
                Err(HandlerError { disposition: Disposition::Disconnected, ..error })
            }
            Err(_) => Err(HandlerError {
                source: Error::new(ErrorKind::Database, TRANSACTION_ENDED).with_source(error.source).into(),
                ..error
            }),
        }
    }

    /// What a statement of ours right after a handler says of it: nothing; a failure, and what it did is taken back; or one that
    /// took our transaction with it.
    pub(crate) async fn after(
        &self,
        session: &mut Session<DB>,
        guard: &Guard,
        began: Began,
        answer: Option<SqlResult<()>>,
    ) -> Result<Option<HandlerError>, HandlerError> {
        let taken_back = match answer {
            Some(Ok(())) => return Ok(None),
            Some(Err(error)) => {
                let aborted = DB::kind(&error) == ErrorKind::TransactionAborted;
                let error = after_handler::<DB>(error);
                if !aborted {
                    return Err(error);
                }
                self.take_back(session, guard, began, error).await
            }
            None => self.cut_off(session, guard, left_running(began.timeout)).await,
        };
        taken_back.map(Some)
    }

    /// Closes the connection, and has the server end what it still does for it: it would not notice before that is done.
    pub(crate) async fn end_connection(&self, session: &mut Session<DB>) {
        // Bounded alike; the other connection works, and is only slow. Nothing to do about a failure: the lane is free when the
        // server notices.
        let _ = tokio::time::timeout(CANCEL_GRACE, self.cancel()).await;
        session.close();
    }

    /// Has the server end the statement that the transaction runs.
    async fn cancel(&self) -> Result<(), Error> {
        let mut other = self.connections.reserve().await?;
        let cancelled = async {
            other.enter(self.outbox.sql()).await?;
            DB::cancel(&mut other, self.outbox.sql(), self.running).await?;
            other.leave().await
        };
        cancelled.await.map_err(|error| Error::database(DB::kind(&error), "end a handler's statement", error))
    }

    /// Takes back what a handler did that was dropped in the middle. Its statement may still run, and a rollback
    /// would wait for it: so it is ended first, and if that does not help, the connection is closed.
    pub(crate) async fn cut_off(
        &self,
        session: &mut Session<DB>,
        guard: &Guard,
        error: HandlerError,
    ) -> Result<HandlerError, HandlerError> {
        if !DB::SAFE_TO_DROP {
            // Nothing that comes on this connection can be believed any more.
            return Err(error);
        }
        let undo = async {
            if !guard.interrupt() {
                // Nothing to do about a failure: the time limit decides.
                let _ = self.cancel().await;
            }
            // The first may meet the answer of the statement that was cancelled.
            match DB::undo(session, self.outbox.sql()).await {
                Ok(()) => Ok(()),
                Err(_) => DB::undo(session, self.outbox.sql()).await,
            }
        };
        if let Ok(Ok(())) = tokio::time::timeout(CANCEL_GRACE, undo).await {
            guard.resume();
            return Ok(error);
        }
        if !self.connections.borrowed() {
            session.close();
        }
        Err(error)
    }
}

/// Runs a handler in no transaction. It owns what it needs, since it may be dropped with its task.
pub(crate) async fn call_outside<DB: Backend>(
    outbox: Outbox<DB>,
    states: States,
    stop: CancellationToken,
    handler: Box<HandlerVTable<DB>>,
    messages: Vec<Metadata>,
) -> Returned {
    let ids: Vec<_> = messages.iter().map(|metadata| metadata.id.clone()).collect();
    let session = Session::closed();
    let mut context = Context::new(session, outbox, messages, handler.batched, states, Shutdown::new(stop));
    let returned = returned(&handler, &mut context).await;
    let left = context.into_parts();
    judged(returned, left.refused, left.follow_ups, &ids, || {
        timed_out(handler.options.timeout, MAY_HAVE_HAPPENED)
    })
}

/// What a call came to: a result, a panic, or nothing in its time.
type Raw = Result<Result<Result<BatchOutcome, HandlerError>, Box<dyn Any + Send>>, Elapsed>;

async fn returned<DB: Backend>(handler: &HandlerVTable<DB>, context: &mut Context<DB>) -> Raw {
    let call = AssertUnwindSafe((handler.call)(context)).catch_unwind();
    tokio::time::timeout(handler.options.timeout, call).await
}

fn judged(
    returned: Raw,
    refused: Vec<(usize, HandlerError)>,
    follow_ups: Vec<Outgoing>,
    ids: &[MessageId],
    timed_out: impl FnOnce() -> HandlerError,
) -> Returned {
    let all_refused = !refused.is_empty() && refused.len() == ids.len();
    let outcome = match returned {
        Ok(Ok(Ok(outcome))) => outcome,
        Ok(Ok(Err(_))) if all_refused => BatchOutcome::new(),
        Ok(Ok(Err(error))) => return Returned::Failed(error),
        Ok(Err(panic)) => return Returned::Failed(panicked(&*panic)),
        Err(_) => return Returned::Dropped(timed_out()),
    };
    let mut failed = refused;
    for (id, error) in outcome.into_failed() {
        let Some(at) = ids.iter().position(|known| *known == id) else {
            let text = format!("the handler says that `{id}` has failed, which is no message of its batch");
            return Returned::Failed(text.into());
        };
        if failed.iter().all(|(known, _)| *known != at) {
            failed.push((at, error));
        }
    }
    Returned::Well { follow_ups, failed }
}

/// What a statement of ours says that failed right after a handler.
pub(crate) fn after_handler<DB: Backend>(error: sqlx::Error) -> HandlerError {
    match DB::kind(&error) {
        ErrorKind::TransactionAborted => swallowed(),
        ErrorKind::Unavailable => disconnected(error),
        _ => Error::new(ErrorKind::Database, TRANSACTION_ENDED).with_source(error).into(),
    }
}

/// Waits for a statement of ours right after a handler. `None` where the connection does not answer in the handler's time.
pub(crate) async fn patiently(
    began: Began,
    statement: impl Future<Output = SqlResult<()>>,
) -> Option<SqlResult<()>> {
    tokio::time::timeout(began.left(), caught(statement)).await.ok()
}

/// The handler returned, and its connection did not.
fn left_running(timeout: Duration) -> HandlerError {
    format!(
        "a statement that the handler dropped (a timeout around a query, a `select!`) still ran when the handler's \
         {timeout:?} were over; it was stopped, and {ROLLED_BACK}"
    )
    .into()
}

fn swallowed() -> HandlerError {
    "a statement of the handler failed and the handler went on, so the database would have rolled everything back; \
     return the error, or run the statement in a savepoint (`Acquire::begin`)"
        .into()
}

fn disconnected(error: sqlx::Error) -> HandlerError {
    let text = "the connection was lost while the handler ran; what it did was rolled back";
    let source = Error::new(ErrorKind::Unavailable, text).with_source(error);
    HandlerError { disposition: Disposition::Disconnected, source: source.into() }
}

pub(crate) fn panicked(panic: &(dyn Any + Send)) -> HandlerError {
    format!("the handler panicked: {}", panic_text(panic)).into()
}

fn timed_out(timeout: Duration, and: &str) -> HandlerError {
    format!("the handler did not finish within {timeout:?}, was stopped, and {and}").into()
}

//! Parking: where messages stand that are not simply next, and why.

use std::error::Error as StdError;
use std::time::Duration;

use crate::backend::{Backend, Lane, Next, Parked, ParkedState, Parking, Place, SqlResult};
use crate::error::{Error, ErrorKind, Result};
use crate::faults;
use crate::options::{HandlerOptions, OnDead};
use crate::outcome::{Disposition, HandlerError};
use crate::publish::Outbox;
use crate::session::Session;
use crate::settle::{expect, expect_one};

/// How long a message waits whose type, or version, this build does not know: until a replica that does may have started.
const UNKNOWN_TYPE_PAUSE: Duration = Duration::from_secs(5);

/// How long a message waits that somebody else has claimed.
const CLAIMED_PAUSE: Duration = Duration::from_secs(5);

/// How long a message stays out of others' reach between the counting of its attempt and its run.
const ALONE_GRACE: Duration = Duration::from_secs(1);

/// What is known of an attempt whose end nobody recorded.
pub(crate) const LOST_WORKER: &str = "its worker was lost while it ran: the process died, or its connection";

/// The longest stored error, in bytes.
const MAX_ERROR: usize = 4 * 1024;

/// How many lost conflicts, or connections, count as one failed attempt: one is nobody's fault, and an endless row of
/// them ends.
const CONFLICTS_PER_ATTEMPT: i32 = 10;

/// What a handler's failure means for its message.
pub(crate) fn after_failure<DB: Backend>(
    next: &Next,
    error: &HandlerError,
    options: &HandlerOptions,
) -> Parking {
    let retry = &options.retry;
    let counted = |longer: Duration| {
        let attempts = next.attempts.saturating_add(1);
        let failures = u32::try_from(attempts).unwrap_or(u32::MAX);
        let pause = retry.pause(failures, fastrand::f64()).max(longer.min(retry.max));
        let parking = failed(next, error, options, attempts);
        if retry.is_exhausted(failures) {
            dead(parking, options)
        } else {
            Parking { pause: Some(pause), ..parking }
        }
    };
    // A conflict that was lost, or a connection.
    let bad_luck = || {
        let conflicts = next.conflicts.saturating_add(1);
        if conflicts % CONFLICTS_PER_ATTEMPT == 0 {
            return Parking { conflicts, ..counted(Duration::ZERO) };
        }
        let longest = Duration::from_millis(10 << (conflicts % CONFLICTS_PER_ATTEMPT).min(7));
        let pause = Some(longest.mul_f64(0.5 + 0.5 * fastrand::f64()));
        Parking { conflicts, pause, ..failed(next, error, options, next.attempts) }
    };
    match error.disposition {
        Disposition::Retry if lost_a_conflict::<DB>(&*error.source) => bad_luck(),
        Disposition::Disconnected => bad_luck(),
        Disposition::Retry => counted(Duration::ZERO),
        Disposition::RetryAfter(pause) => counted(pause),
        Disposition::Terminal => dead(failed(next, error, options, next.attempts.saturating_add(1)), options),
        Disposition::Snooze(pause) => Parking {
            state: ParkedState::Delayed,
            pause: Some(pause),
            error: None,
            ..failed(next, error, options, next.attempts)
        },
        Disposition::NewerVersion => Parking {
            state: ParkedState::UnknownType,
            pause: Some(UNKNOWN_TYPE_PAUSE),
            ..failed(next, error, options, next.attempts)
        },
        Disposition::Undecodable => match options.on_dead {
            OnDead::Block => {
                Parking { state: ParkedState::Undecodable, ..failed(next, error, options, next.attempts) }
            }
            OnDead::Skip => dead(failed(next, error, options, next.attempts), options),
        },
    }
}

/// A failure to be retried, without its pause.
fn failed(next: &Next, error: &HandlerError, options: &HandlerOptions, attempts: i32) -> Parking {
    Parking {
        state: ParkedState::Retrying,
        attempts,
        total_attempts: next.total_attempts.saturating_add(attempts - next.attempts),
        conflicts: next.conflicts,
        ordered: options.ordered,
        pause: None,
        error: Some(describe(&*error.source)),
    }
}

fn dead(parking: Parking, options: &HandlerOptions) -> Parking {
    let state = match options.on_dead {
        OnDead::Block => ParkedState::Dead,
        OnDead::Skip => ParkedState::Skipped,
    };
    Parking { state, pause: None, ..parking }
}

/// Whether the database chose this transaction as the loser of a conflict, anywhere among the causes.
pub(crate) fn lost_a_conflict<DB: Backend>(error: &(dyn StdError + 'static)) -> bool {
    causes(error).any(|cause| {
        let ours = || cause.downcast_ref::<Error>().map(Error::kind);
        let kind = match cause.downcast_ref::<sqlx::Error>() {
            Some(error) => Some(DB::kind(error)),
            None => DB::kind_of_cause(cause).or_else(ours),
        };
        matches!(kind, Some(ErrorKind::Conflict | ErrorKind::StaleTransaction))
    })
}

fn causes<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn StdError + 'static)| StdError::source(*error))
}

/// An attempt that is counted before it runs, since the process may not survive it.
pub(crate) fn counted_before(next: &Next, options: &HandlerOptions) -> Parking {
    let attempts = next.attempts.saturating_add(1);
    let parking = Parking {
        state: ParkedState::Alone,
        attempts,
        total_attempts: next.total_attempts.saturating_add(1),
        conflicts: next.conflicts,
        ordered: options.ordered,
        // Long enough to lock the lane again, which then keeps others away.
        pause: Some(ALONE_GRACE),
        error: next.alone.then(|| LOST_WORKER.to_owned()),
    };
    // Where the last run did end, its attempts were judged then, if by another policy.
    if next.alone && options.retry.is_exhausted(u32::try_from(next.attempts).unwrap_or(u32::MAX)) {
        let (attempts, total_attempts) = (next.attempts, next.total_attempts);
        return dead(Parking { attempts, total_attempts, ..parking }, options);
    }
    parking
}

/// A message whose key has an earlier unfinished one goes behind it, with the attempts that it has had.
pub(crate) fn behind_its_key(next: &Next) -> Parking {
    Parking {
        state: ParkedState::Waiting,
        attempts: next.attempts,
        total_attempts: next.total_attempts,
        conflicts: next.conflicts,
        ordered: true,
        pause: None,
        error: None,
    }
}

/// No handler of this build takes the type: put back for one that does, without an attempt.
pub(crate) fn unknown_type(next: &Next, event_type: &str) -> Parking {
    Parking {
        state: ParkedState::UnknownType,
        pause: Some(UNKNOWN_TYPE_PAUSE),
        error: Some(format!("no handler of this consumer takes `{event_type}` in the build that met it")),
        ..behind_its_key(next)
    }
}

/// Somebody who may be alive has claimed the message before a call: it comes back when that may be over.
pub(crate) fn claimed_elsewhere(next: &Next) -> Parking {
    Parking { state: ParkedState::Delayed, pause: Some(CLAIMED_PAUSE), ..behind_its_key(next) }
}

/// An attempt whose end nobody recorded was the last.
pub(crate) fn lost_for_good(next: &Next, options: &HandlerOptions) -> Parking {
    dead(
        Parking { ordered: options.ordered, error: Some(LOST_WORKER.to_owned()), ..behind_its_key(next) },
        options,
    )
}

/// Something outside the library removed or changed the message's row.
pub(crate) fn unreadable(next: &Next, problem: &Error) -> Parking {
    Parking { state: ParkedState::Undecodable, error: Some(describe(problem)), ..behind_its_key(next) }
}

/// Writes it, under the lane's lock.
pub(crate) async fn park<DB: Backend>(
    outbox: &Outbox<DB>,
    session: &mut Session<DB>,
    lane: Lane,
    place: Place,
    parking: &Parking,
) -> Result<()> {
    let failed = |error| Error::database(DB::kind(&error), "park a message", error);
    let parked = DB::park(session, outbox.sql(), lane, place, parking).await.map_err(failed)?;
    expect_one(outbox, parked, "park a message")?;
    go_on_behind(session, outbox, lane, place, parking).await.map_err(failed)
}

/// Moves deliveries behind the unfinished messages of their keys.
pub(crate) async fn move_behind<DB: Backend>(
    outbox: &Outbox<DB>,
    session: &mut Session<DB>,
    lane: Lane,
    seqs: &[i64],
) -> Result<()> {
    if seqs.is_empty() {
        return Ok(());
    }
    let moved = DB::move_behind(session, outbox.sql(), lane, seqs).await;
    let moved = moved.map_err(|error| Error::database(DB::kind(&error), "park messages", error))?;
    expect(outbox, moved, seqs.len(), "park messages")?;
    faults::point("moved");
    Ok(())
}

/// What waits behind a head that gave up goes on, where the policy says so.
pub(crate) async fn go_on_behind<DB: Backend>(
    session: &mut Session<DB>,
    outbox: &Outbox<DB>,
    lane: Lane,
    place: Place,
    parking: &Parking,
) -> SqlResult<()> {
    if let (ParkedState::Skipped, Place::Parked(Parked { key_hash, .. })) = (parking.state, place) {
        DB::wake_next(session, outbox.sql(), lane, key_hash).await?;
    }
    Ok(())
}

/// An error with its causes, as it is stored: one text without control characters, cut at a character.
fn describe(error: &(dyn StdError + 'static)) -> String {
    let mut said: Vec<String> = Vec::new();
    for cause in causes(error).map(ToString::to_string) {
        // Many errors print their cause and return it as well; a mark stands between the two.
        if !said.iter().any(|said| said.ends_with(&cause)) {
            said.push(cause);
        }
    }
    let text = said.join(": ");
    let mut clean: String =
        text.chars().map(|c| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c }).collect();
    clean.truncate(clean.floor_char_boundary(MAX_ERROR));
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_error_names_every_cause_and_nothing_that_a_database_refuses() {
        let error = anyhow_like("outer\0", Some("inner"));
        assert_eq!(describe(&error), "outer\u{fffd}: inner");
        assert_eq!(describe(&anyhow_like("outer: inner", Some("inner"))), "outer: inner");
        let marked = HandlerError::terminal(anyhow_like("outer", Some("inner"))).into_error();
        assert_eq!(describe(&marked), "outer: marked as terminal: inner");
        let long = anyhow_like(&"ä".repeat(MAX_ERROR), None);
        let stored = describe(&long);
        assert!(stored.len() <= MAX_ERROR && stored.chars().all(|c| c == 'ä'));
    }

    #[derive(Debug)]
    struct Chain(String, Option<Box<Chain>>);

    impl std::fmt::Display for Chain {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str(&self.0)
        }
    }

    impl StdError for Chain {
        fn source(&self) -> Option<&(dyn StdError + 'static)> {
            self.1.as_deref().map(|cause| cause as _)
        }
    }

    fn anyhow_like(outer: &str, inner: Option<&str>) -> Chain {
        Chain(outer.into(), inner.map(|text| Box::new(Chain(text.into(), None))))
    }
}

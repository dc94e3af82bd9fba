//! Settling: what makes handled messages handled, all in their handlers' own transaction.

use crate::backend::{Backend, Lane, Parked, Place};
use crate::error::{Error, ErrorKind, Result};
use crate::faults;
use crate::publish::Outbox;
use crate::session::Session;

/// Removes handled messages from their lane, and marks those in the inbox whose id comes with them. Returns the keys behind whose
/// parked messages others may go on.
pub(crate) async fn handled<DB: Backend>(
    outbox: &Outbox<DB>,
    session: &mut Session<DB>,
    lane: Lane,
    messages: &[(Place, Option<&str>)],
) -> Result<Vec<i64>> {
    let marks = outbox.config().controls().inbox_marks;
    let (mut seqs, mut ids, mut keys) = (Vec::new(), Vec::new(), Vec::new());
    let mut without = Vec::new();
    for (place, id) in messages {
        match (*place, id.filter(|_| marks)) {
            (Place::Delivery { seq }, Some(id)) => {
                seqs.push(seq);
                ids.push(id);
            }
            (Place::Delivery { seq }, None) => without.push(seq),
            (Place::Parked(parked), mark) => {
                remove_parked(outbox, session, lane, parked, mark).await?;
                keys.push(parked.key_hash);
            }
        }
    }
    remove(outbox, session, lane, &seqs, Some(&*ids)).await?;
    remove(outbox, session, lane, &without, None).await?;
    faults::point("removed");
    Ok(keys)
}

/// Removes messages that have their inbox marks already. Returns the keys behind whose parked messages others may go on.
pub(crate) async fn unmarked<DB: Backend>(
    outbox: &Outbox<DB>,
    session: &mut Session<DB>,
    lane: Lane,
    places: &[Place],
) -> Result<Vec<i64>> {
    let (mut seqs, mut keys) = (Vec::new(), Vec::new());
    for place in places {
        match *place {
            Place::Delivery { seq } => seqs.push(seq),
            Place::Parked(parked) => {
                remove_parked(outbox, session, lane, parked, None).await?;
                keys.push(parked.key_hash);
            }
        }
    }
    remove(outbox, session, lane, &seqs, None).await?;
    Ok(keys)
}

/// The first of what waits behind the finished heads of these keys becomes due. After everything has got its place: it may
/// have been moved there by this transaction.
pub(crate) async fn wake<DB: Backend>(
    outbox: &Outbox<DB>,
    session: &mut Session<DB>,
    lane: Lane,
    mut keys: Vec<i64>,
) -> Result<()> {
    keys.sort_unstable();
    keys.dedup();
    for key in keys {
        DB::wake_next(session, outbox.sql(), lane, key).await.map_err(failed::<DB>)?;
    }
    Ok(())
}

async fn remove<DB: Backend>(
    outbox: &Outbox<DB>,
    session: &mut Session<DB>,
    lane: Lane,
    seqs: &[i64],
    marks: Option<&[&str]>,
) -> Result<()> {
    if seqs.is_empty() {
        return Ok(());
    }
    let removed = DB::settle_deliveries(session, outbox.sql(), lane, seqs, marks).await;
    expect(outbox, removed.map_err(failed::<DB>)?, seqs.len(), "settle messages")
}

async fn remove_parked<DB: Backend>(
    outbox: &Outbox<DB>,
    session: &mut Session<DB>,
    lane: Lane,
    parked: Parked,
    mark: Option<&str>,
) -> Result<()> {
    let removed = DB::settle_parked(session, outbox.sql(), lane, parked, mark).await;
    expect_one(outbox, removed.map_err(failed::<DB>)?, "settle a message")
}

fn failed<DB: Backend>(error: sqlx::Error) -> Error {
    // Somebody marked a message in the meantime, so the lane's next read will see it as handled.
    let kind = match error.as_database_error() {
        Some(database) if database.is_unique_violation() => ErrorKind::Conflict,
        _ => DB::kind(&error),
    };
    Error::database(kind, "settle a message", error)
}

/// Every state change names the state that it expects, and this is where its row count is judged.
pub(crate) fn expect<DB: Backend>(
    outbox: &Outbox<DB>,
    count: u64,
    expected: usize,
    doing: &str,
) -> Result<()> {
    if usize::try_from(count) == Ok(expected) || !outbox.config().controls().row_counts {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Guard,
        format!(
            "could not {doing}: {count} rows were in the expected state, not {expected}; everything was rolled back"
        ),
    ))
}

/// As [`expect`], for one row.
pub(crate) fn expect_one<DB: Backend>(outbox: &Outbox<DB>, count: u64, doing: &str) -> Result<()> {
    expect(outbox, count, 1, doing)
}

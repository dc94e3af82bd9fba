//! Claims: locking a lane, and reading what is next in it.
//!
//! The one rule of the whole: whoever reads or changes a lane's deliveries holds that lane's row lock. The lock
//! lives as long as the transaction, so a process that dies gives its lane back by dying. Whoever works outside of
//! transactions leaves its name in the row, and others keep away until a time that the row says.

use std::time::{Duration, Instant};

use crate::backend::{Backend, Claimed, ConsumerRow, Lane, LaneRow, Portion, SqlResult};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::{self, Plan};
use crate::publish::Outbox;
use crate::session::Session;

/// How many payload bytes are read at once.
const MAX_BYTES: i64 = 8 * 1024 * 1024;

/// Begins a transaction and locks a lane that has something runnable; rolls back where there is none.
pub(crate) async fn claim<DB: Backend>(
    outbox: &Outbox<DB>,
    idle: Duration,
    session: &mut Session<DB>,
    consumer: &ConsumerRow,
    suspects: bool,
    patience: Duration,
) -> SqlResult<Option<Claimed>> {
    let controls = outbox.config().controls();
    session.begin(DB::begin_work(outbox.sql(), idle, controls)).await?;
    // From a random lane on, so that executors spread out and none of the lanes is always last.
    let start = fastrand::i16(0..consumer.lanes);
    let lanes: Vec<i16> = (start..consumer.lanes).chain(0..start).collect();
    let claimed = DB::claim(session, outbox.sql(), consumer.id, &lanes, suspects, patience, controls).await?;
    if claimed.is_none() {
        session.rollback().await;
    }
    Ok(claimed)
}

/// Locks this lane, waiting for whoever holds it; says who has leased it.
///
/// Its row is what is locked: where that is missing, as after a restore of some tables, nothing is.
pub(crate) async fn lock<DB: Backend>(
    outbox: &Outbox<DB>,
    conn: &mut DB::Connection,
    lane: Lane,
) -> Result<LaneRow> {
    let locked = DB::lock_lane(conn, outbox.sql(), lane).await;
    let locked = locked.map_err(|error| Error::database(DB::kind(&error), "lock a lane", error))?;
    locked.ok_or_else(|| {
        Error::new(
            ErrorKind::NotMigrated,
            format!(
                "lane {} of consumer {} has no row in `outbox_lane`, so nothing would be locked; restore the table",
                lane.lane, lane.consumer
            ),
        )
    })
}

/// Reads what is next in a lane that we hold, and sorts it.
pub(crate) async fn read<DB: Backend>(
    outbox: &Outbox<DB>,
    session: &mut Session<DB>,
    lane: Lane,
    size: usize,
    patience: Duration,
) -> SqlResult<Plan> {
    let rows = i64::try_from(size).unwrap_or(i64::MAX);
    // What failed before may take half of the places: neither it nor what is new can starve the other.
    let portion = Portion { rows, due: (rows / 2).max(1), bytes: MAX_BYTES, patience };
    let read = DB::read(session, outbox.sql(), lane, portion).await?;
    Ok(plan::plan(read, size, usize::try_from(MAX_BYTES).unwrap_or(usize::MAX)))
}

/// Leaves a database with one writer to others for as long as it was held.
///
/// SQLite's writers do not queue: a consumer that begins again at once keeps every publisher out for seconds.
#[derive(Debug)]
pub(crate) struct Turn(Option<Instant>);

impl Turn {
    pub(crate) fn begin(shared_writer: bool) -> Self {
        Self(shared_writer.then(Instant::now))
    }

    pub(crate) async fn give_way(self) {
        if let Some(since) = self.0 {
            tokio::time::sleep(since.elapsed().max(Duration::from_millis(1))).await;
        }
    }
}

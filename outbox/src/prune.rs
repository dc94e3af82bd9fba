//! Pruning: what is old and of no more use is removed, a batch at a time, each a short transaction of ours.
//!
//! Messages are walked by their sequence, and inbox marks by their time, from where the walk was before: its front. A walk ends where
//! nothing is old enough. What had to stay behind the front is walked again and again, some batches at a time, so the cost of a
//! run grows with what has become old since the last one, and not with what is kept.
//!
//! Three tables say who may still get a message, and each row is written with the message or in a registration. So under the
//! registry's lock nobody becomes one of them, and what one statement has found to be of no use stays so.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sqlx::Pool;

use crate::backend::{Ages, Backend, OldDead, Positions, Range, RemovedMessages};
use crate::claim;
use crate::error::{Error, ErrorKind, Result};
use crate::publish::Outbox;
use crate::retention::Retention;
use crate::settle::expect;
use crate::transaction::OutboxTx;
use crate::trouble::Trouble;

/// How many batches of what had to stay are looked at again by a run of the service.
const AGAIN: usize = 10;

/// How many conflicts in a row a batch is tried again after.
const CONFLICTS: u32 = 6;

/// How long others are left in peace after a batch at most; else for as long as it took.
const LONGEST_REST: Duration = Duration::from_secs(1);

/// Behind every time that a database can say, in microseconds since 1970.
const LATEST: i64 = 250_000_000_000_000_000;

/// How many dead messages a dry run counts at most.
const DRY_DEAD: i64 = 1_000_000;

/// What was pruned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pruned {
    /// Messages that all their consumers were done with.
    pub delivered: u64,
    /// Messages that no consumer was subscribed to.
    pub unrouted: u64,
    /// Dead messages that were discarded from their consumer.
    pub dead: u64,
    /// Inbox marks.
    pub marks: u64,
    /// Whether everything was looked at before the time was over.
    pub complete: bool,
}

/// One run over what is old.
pub(crate) struct Pruner<'a, DB: Backend> {
    pub(crate) outbox: &'a Outbox<DB>,
    /// Where its connections come from.
    pub(crate) pool: &'a Pool<DB>,
    pub(crate) retention: &'a Retention,
    /// How many rows a batch looks at.
    pub(crate) chunk: i64,
    /// Everything is rolled back.
    pub(crate) dry_run: bool,
    pub(crate) until: Option<Instant>,
    /// Who holds the row with the positions; without a holder everything is walked from the beginning.
    pub(crate) holder: Option<&'a str>,
    pub(crate) positions: Positions,
    pub(crate) done: Pruned,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    Messages,
    Marks,
}

/// A walk over what has become old, or again over what had to stay.
#[derive(Debug, Clone, Copy)]
struct Walk {
    of: Of,
    again: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    More,
    End,
    /// Another process has taken over.
    Lost,
}

impl<DB: Backend> Pruner<'_, DB> {
    /// Removes everything of its age, until the time is over or another process has taken over; `done` says what, also after an error.
    pub(crate) async fn run(&mut self) -> Result<()> {
        if let Some(age) = self.retention.dead {
            self.dead(age).await?;
        }
        let mut complete = true;
        for (of, age) in [(Of::Messages, self.retention.messages()), (Of::Marks, self.retention.marks)] {
            if age.is_none() {
                continue;
            }
            complete &= self.walk(Walk { of, again: false }, usize::MAX).await?;
            // Without a holder the walk has begun before all of that.
            if self.holder.is_some() {
                self.walk(Walk { of, again: true }, AGAIN).await?;
            }
        }
        self.done.complete = complete && !self.is_over();
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.until.is_some_and(|until| until <= Instant::now())
    }

    /// Whether it has come to its end.
    async fn walk(&mut self, walk: Walk, batches: usize) -> Result<bool> {
        for _ in 0..batches {
            if self.is_over() {
                return Ok(false);
            }
            match self.batch(walk).await? {
                Step::More => {}
                Step::End => return Ok(true),
                Step::Lost => return Ok(false),
            }
        }
        Ok(false)
    }

    async fn batch(&mut self, walk: Walk) -> Result<Step> {
        let mut trouble = Trouble::new("pruning");
        let mut left = CONFLICTS;
        loop {
            let since = Instant::now();
            match self.try_batch(walk).await {
                Err(error) if error.kind() == ErrorKind::Conflict && left > 0 => {
                    left -= 1;
                    tokio::time::sleep(trouble.met(&error)).await;
                }
                step => {
                    let rest = since.elapsed().clamp(Duration::from_millis(1), LONGEST_REST);
                    tokio::time::sleep(rest).await;
                    return step;
                }
            }
        }
    }

    async fn try_batch(&mut self, walk: Walk) -> Result<Step> {
        let failed = failed::<DB>;
        let sql = self.outbox.sql();
        let mut tx = self.begin().await?;
        let mut positions = self.positions;
        if let Some(holder) = self.holder {
            let row = DB::lock_maintenance(&mut tx, sql, Duration::ZERO).await.map_err(failed)?;
            let row = row.ok_or_else(|| busy("another process looks at who prunes"))?;
            if row.holder.as_deref() != Some(holder) {
                return Ok(Step::Lost);
            }
            positions = row.positions;
        }
        if self.outbox.config().controls().prune_lock
            && !DB::try_lock_registry(&mut tx, sql).await.map_err(failed)?
        {
            return Err(busy("a consumer is being registered"));
        }
        let position = match walk.of {
            Of::Messages => &mut positions.messages,
            Of::Marks => &mut positions.marks,
        };
        let (behind, last) = match (walk.again, walk.of) {
            (true, _) => (position.again, position.front),
            (false, Of::Messages) => (position.front, i64::MAX),
            (false, Of::Marks) => (position.front, LATEST),
        };
        let range = Range { first: behind + 1, last };
        let (end, removed) = match walk.of {
            Of::Messages => self.messages(&mut tx, range, walk.again).await?,
            Of::Marks => self.marks(&mut tx, range).await?,
        };
        match (end, walk.again) {
            (Some(end), false) => position.front = end,
            (Some(end), true) => position.again = end,
            (None, true) => position.again = 0,
            (None, false) => return Ok(Step::End),
        }
        if let Some(holder) = self.holder {
            let moved = DB::move_maintenance(&mut tx, sql, holder, positions).await.map_err(failed)?;
            expect(self.outbox, moved, 1, "note how far pruning has come")?;
        }
        if self.dry_run {
            tx.rollback().await?;
        } else {
            tx.commit().await?;
        }
        self.positions = positions;
        self.done.delivered += removed.delivered;
        self.done.unrouted += removed.unrouted;
        self.done.marks += removed.marks;
        Ok(if end.is_some() { Step::More } else { Step::End })
    }

    async fn begin(&self) -> Result<OutboxTx<DB>> {
        self.outbox.begin_on(self.pool, DB::begin_maintenance()).await
    }

    async fn messages(
        &self,
        conn: &mut DB::Connection,
        range: Range,
        again: bool,
    ) -> Result<(Option<i64>, Pruned)> {
        let sql = self.outbox.sql();
        let age = self.retention.messages().filter(|_| !again);
        let end = DB::end_of_messages(conn, sql, range, self.chunk, age).await.map_err(failed::<DB>)?;
        let Some(last) = end else { return Ok((None, Pruned::default())) };
        let ages = Ages { delivered: self.retention.delivered, unrouted: self.retention.unrouted };
        let guarded = self.outbox.config().controls().prune_guard;
        let removed = DB::remove_messages(conn, sql, Range { last, ..range }, ages, guarded).await;
        let RemovedMessages { found, removed, unrouted } = removed.map_err(failed::<DB>)?;
        expect(self.outbox, removed, found, "prune messages")?;
        Ok((end, Pruned { delivered: removed - unrouted, unrouted, ..Pruned::default() }))
    }

    async fn marks(&self, conn: &mut DB::Connection, range: Range) -> Result<(Option<i64>, Pruned)> {
        let Some(age) = self.retention.marks else { return Ok((None, Pruned::default())) };
        let sql = self.outbox.sql();
        let end = DB::end_of_marks(conn, sql, range, self.chunk, age).await.map_err(failed::<DB>)?;
        let Some(last) = end else { return Ok((None, Pruned::default())) };
        let guarded = self.outbox.config().controls().prune_guard;
        let marks = DB::remove_old_marks(conn, sql, Range { last, ..range }, age, guarded).await;
        Ok((end, Pruned { marks: marks.map_err(failed::<DB>)?, ..Pruned::default() }))
    }

    /// Discards what has been dead for so long, the lanes one after the other.
    async fn dead(&mut self, age: Duration) -> Result<()> {
        while !self.is_over() {
            let mut tx = self.begin().await?;
            let limit = if self.dry_run { DRY_DEAD } else { self.chunk };
            let old = DB::old_dead(&mut tx, self.outbox.sql(), age, limit).await.map_err(failed::<DB>)?;
            tx.rollback().await?;
            if self.dry_run {
                self.done.dead += old.len() as u64;
                return Ok(());
            }
            let mut lanes = BTreeMap::<_, Vec<OldDead>>::new();
            for dead in old {
                lanes.entry((dead.lane.consumer, dead.lane.lane)).or_default().push(dead);
            }
            let mut discarded = 0;
            for dead in lanes.into_values() {
                match self.discard(&dead, age).await {
                    // Its holder takes long: next time.
                    Err(error) if error.kind() == ErrorKind::Conflict => {}
                    of_lane => discarded += of_lane?,
                }
            }
            if discarded == 0 {
                return Ok(());
            }
            self.done.dead += discarded;
            self.outbox.wake().committed();
        }
        Ok(())
    }

    /// Those of one lane, under its lock; what waited behind them goes on.
    async fn discard(&self, dead: &[OldDead], age: Duration) -> Result<u64> {
        let (sql, mut discarded) = (self.outbox.sql(), 0);
        let Some(OldDead { lane, .. }) = dead.first() else { return Ok(0) };
        let mut tx = self.begin().await?;
        claim::lock(self.outbox, &mut tx, *lane).await?;
        for dead in dead {
            if DB::discard_old(&mut tx, sql, *dead, age).await.map_err(failed::<DB>)? == 1 {
                DB::wake_next(&mut tx, sql, *lane, dead.key_hash).await.map_err(failed::<DB>)?;
                discarded += 1;
            }
        }
        tx.commit().await?;
        Ok(discarded)
    }
}

fn failed<DB: Backend>(error: sqlx::Error) -> Error {
    Error::database(DB::kind(&error), "prune", error)
}

fn busy(why: &'static str) -> Error {
    Error::new(ErrorKind::Conflict, format!("could not prune now: {why}; run it again"))
}

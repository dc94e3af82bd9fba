//! Consumers that nobody needs any more.
//!
//! A subscription goes as it came: under the registry's lock, announced before the commit, and then whoever publishes at that
//! moment is waited for, while nothing is held. From then on nobody delivers to it, and what was delivered can be removed, part by
//! part under the lock of its lane. A lane goes with the last of what is in it, so a process that was away for long finds nothing to
//! lock. The consumer's number is never used again: what such a process still believes concerns nobody else.

use crate::alive::SILENCE;
use crate::backend::{Backend, ConsumerRow, Lane, SqlResult};
use crate::connections::Connections;
use crate::error::{Error, ErrorKind, Result};
use crate::faults;
use crate::register::{Patience, wait_for_publishers};
use crate::session::Session;
use crate::transaction::OutboxTx;

use super::Admin;

/// How many rows a transaction removes.
const BATCH: i64 = 500;

impl<DB: Backend> Admin<DB> {
    /// Removes a consumer for good, by any of its names: its subscriptions, what waits for it, its dead messages, its failures and
    /// its inbox marks. Returns how many messages it has not handled, dead ones included.
    ///
    /// These messages themselves stay. Other consumers get theirs; what nobody else was subscribed to is not
    /// unrouted, and goes to a new consumer only if that starts from the beginning. A consumer of this name that comes later
    /// is a new one.
    ///
    /// It waits for transactions that publish at the moment, and then works in short ones, beside delivery. After an interruption
    /// call it again: it goes on, and leaves a new consumer of the name alone. A process that was away meanwhile, as one that was
    /// stopped, ends with an error when it comes back, and must be started again. An [`Inbox`](crate::Inbox) that was made before
    /// knows nothing of it: make it anew.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) for a name that leads to none; [`Registry`](ErrorKind::Registry) while a process runs it
    /// that has said within the last 3 s that it is alive; otherwise as [`dead`](Self::dead).
    pub async fn drop_consumer(&self, name: &str) -> Result<u64> {
        if !self.left_of(name).await?.is_empty() {
            return self.finish(name).await;
        }
        let consumer = self.end_subscriptions(name, None).await?;
        faults::point("consumer dropped");
        self.finish(&consumer.name).await
    }

    /// Ends the subscription of a consumer to a type, and removes what of that type waits for it. Returns how many messages that
    /// were. Types that a handler takes come back with the next start of a process that has it; and `*` stands for all.
    ///
    /// After an interruption call it again.
    ///
    /// # Errors
    /// As [`drop_consumer`](Self::drop_consumer). [`Registry`](ErrorKind::Registry) also where the consumer subscribes to
    /// the type again meanwhile: what is left then is delivered.
    pub async fn unsubscribe(&self, name: &str, event_type: &str) -> Result<u64> {
        let consumer = self.end_subscriptions(name, Some(event_type)).await?;
        faults::point("unsubscribed");
        self.wait().await?;
        let mut removed = 0;
        for lane in 0..consumer.lanes {
            let lane = Lane { consumer: consumer.id, lane };
            removed += self.sweep_deliveries(lane, event_type).await?;
            removed += self.sweep_parked(lane, event_type).await?;
        }
        self.outbox.wake().committed();
        Ok(removed)
    }

    /// Consumers that were dropped under this name and have left something.
    async fn left_of(&self, name: &str) -> Result<Vec<(i16, i16)>> {
        let mut conn = self.outbox.reader().await.map_err(failed::<DB>)?;
        DB::dropped(&mut conn, self.outbox.sql(), name).await.map_err(failed::<DB>)
    }

    /// Ends all subscriptions of a consumer that nobody runs, and then it goes itself; or that of one type. On a connection of our
    /// own, which waits for no lock for long: a publisher may have locked the subscriptions, and others stand behind us.
    async fn end_subscriptions(&self, name: &str, event_type: Option<&str>) -> Result<ConsumerRow> {
        // No handler gets it, so it needs no settings.
        let connections = Connections::new(&self.outbox, 1, None, true);
        let mut session = connections.acquire().await?;
        let mut patience = Patience::new("the consumer is removed when they end");
        let ended = loop {
            let ended = self.end_subscriptions_on(&mut session, name, event_type).await;
            session.rollback().await;
            match ended {
                Err(error) if error.kind() == ErrorKind::Conflict && session.is_open() => {
                    patience.wait(|| vec![error.to_string()]).await;
                }
                ended => break ended,
            }
        };
        drop(session);
        connections.close().await;
        ended
    }

    async fn end_subscriptions_on(
        &self,
        session: &mut Session<DB>,
        name: &str,
        event_type: Option<&str>,
    ) -> Result<ConsumerRow> {
        let sql = self.outbox.sql();
        session.begin(DB::begin_registration()).await.map_err(failed::<DB>)?;
        DB::lock_registry(session, sql).await.map_err(failed::<DB>)?;
        let consumer = self.idle_consumer(session, name).await?;
        for (of, subscribed) in DB::subscriptions(session, sql).await.map_err(failed::<DB>)? {
            if of == consumer.id && event_type.is_none_or(|only| only == subscribed) {
                DB::unsubscribe(session, sql, of, &subscribed).await.map_err(failed::<DB>)?;
            }
        }
        if event_type.is_none() {
            expect_one(DB::remove_consumer(session, sql, consumer.id).await.map_err(failed::<DB>)?)?;
        }
        // Before the commit, so that no publisher can slip in between that sees neither.
        DB::announce(session, sql).await.map_err(failed::<DB>)?;
        session.commit().await.map_err(failed::<DB>)?;
        Ok(consumer)
    }

    /// The consumer that a name leads to, under the registry's lock, unless a process runs it.
    async fn idle_consumer(&self, tx: &mut DB::Connection, name: &str) -> Result<ConsumerRow> {
        let sql = self.outbox.sql();
        let Some(consumer) = DB::consumer(tx, sql, name).await.map_err(failed::<DB>)? else {
            let unfinished = DB::dropped_names(tx, sql).await.map_err(failed::<DB>)?;
            let hint = match &*unfinished {
                [] => String::new(),
                names => format!("; one was dropped and not to the end: {}", names.join(", ")),
            };
            return Err(Error::new(
                ErrorKind::NotFound,
                format!("there is no consumer `{name}` in this database{hint}"),
            ));
        };
        let alive = DB::alive(tx, sql, SILENCE).await.map_err(failed::<DB>)?;
        if let Some((_, worker)) = alive.iter().find(|(of, _)| *of == consumer.id) {
            return Err(Error::new(
                ErrorKind::Registry,
                format!(
                    "consumer `{}` is run by the process {} on {}: stop it, or take the handler out of it, and try again 3 s later",
                    consumer.name, worker.pid, worker.host
                ),
            ));
        }
        Ok(consumer)
    }

    /// Nobody delivers to what was unsubscribed any more.
    async fn wait(&self) -> Result<()> {
        if !self.outbox.config().controls().drop_wait {
            return Ok(());
        }
        let mut session = self.outbox.session().await.map_err(failed::<DB>)?;
        let waited =
            wait_for_publishers(&self.outbox, &mut session, "what they deliver is removed when they end");
        waited.await.map_err(failed::<DB>)
    }

    /// Removes what is left of all consumers that were dropped under this name.
    async fn finish(&self, name: &str) -> Result<u64> {
        self.wait().await?;
        let mut removed = 0;
        for (consumer, lanes) in self.left_of(name).await? {
            for lane in 0..lanes {
                removed += self.empty(Lane { consumer, lane }).await?;
                faults::point("lane removed");
            }
            let sql = self.outbox.sql();
            // Whoever writes these holds a lane, and there is none any more.
            while self.step(async |tx| DB::remove_attempts(tx, sql, consumer, BATCH).await).await? > 0 {}
            while self.step(async |tx| DB::remove_marks(tx, sql, consumer, BATCH).await).await? > 0 {}
            self.step(async |tx| DB::finish_drop(tx, sql, consumer).await).await?;
            tracing::info!(consumer = name, removed, "a consumer was dropped");
        }
        Ok(removed)
    }

    /// A transaction of its own.
    async fn step(&self, work: impl AsyncFnOnce(&mut DB::Connection) -> SqlResult<u64>) -> Result<u64> {
        let mut tx = self.outbox.begin_with(DB::begin_operation()).await?;
        let count = work(&mut tx).await.map_err(failed::<DB>)?;
        tx.commit().await?;
        Ok(count)
    }

    /// Removes what is in a lane of a dropped consumer, and the lane with the last of it.
    async fn empty(&self, lane: Lane) -> Result<u64> {
        let (sql, mut removed) = (self.outbox.sql(), 0);
        loop {
            let mut tx = self.outbox.begin_with(DB::begin_operation()).await?;
            // Whoever leased it finds its lease lost.
            if DB::lock_lane(&mut tx, sql, lane).await.map_err(failed::<DB>)?.is_none() {
                return Ok(removed);
            }
            let mut batch = DB::remove_deliveries(&mut tx, sql, lane, BATCH).await.map_err(failed::<DB>)?;
            if batch == 0 {
                batch = DB::remove_parked(&mut tx, sql, lane, BATCH).await.map_err(failed::<DB>)?;
            }
            if batch == 0 {
                expect_one(DB::remove_lane(&mut tx, sql, lane).await.map_err(failed::<DB>)?)?;
            }
            tx.commit().await?;
            removed += batch;
        }
    }

    /// A transaction that holds the lane, then the registry, as publishing handlers do, so that the consumer cannot subscribe
    /// again before its end. `None` where the lane is gone.
    async fn hold(&self, lane: Lane, event_type: &str) -> Result<Option<OutboxTx<DB>>> {
        let sql = self.outbox.sql();
        let mut tx = self.outbox.begin_with(DB::begin_operation()).await?;
        if DB::lock_lane(&mut tx, sql, lane).await.map_err(failed::<DB>)?.is_none() {
            return Ok(None);
        }
        DB::lock_registry(&mut tx, sql).await.map_err(failed::<DB>)?;
        if DB::is_subscribed(&mut tx, sql, lane.consumer, event_type).await.map_err(failed::<DB>)? {
            return Err(Error::new(
                ErrorKind::Registry,
                format!(
                    "a process was started that subscribes the consumer to `{event_type}` again; what was delivered and is still \
                     there is its own"
                ),
            ));
        }
        Ok(Some(tx))
    }

    async fn sweep_deliveries(&self, lane: Lane, event_type: &str) -> Result<u64> {
        let (sql, mut removed, mut behind) = (self.outbox.sql(), 0, i64::MIN);
        while let Some(mut tx) = self.hold(lane, event_type).await? {
            let end = DB::end_of_deliveries(&mut tx, sql, lane, behind, BATCH).await.map_err(failed::<DB>)?;
            let Some(end) = end else { break };
            let part = DB::remove_deliveries_of(&mut tx, sql, lane, event_type, (behind, end)).await;
            removed += part.map_err(failed::<DB>)?;
            tx.commit().await?;
            behind = end;
        }
        Ok(removed)
    }

    async fn sweep_parked(&self, lane: Lane, event_type: &str) -> Result<u64> {
        let (sql, mut removed, mut behind) = (self.outbox.sql(), 0, (i64::MIN, i64::MIN));
        while let Some(mut tx) = self.hold(lane, event_type).await? {
            let part = DB::parked_part(&mut tx, sql, lane, event_type, behind, BATCH).await;
            let part = part.map_err(failed::<DB>)?;
            let Some((key_hash, seq, _)) = part.last() else { break };
            behind = (*key_hash, *seq);
            for (key_hash, seq, _) in part.iter().filter(|(_, _, meant)| *meant) {
                let gone = DB::remove_one_parked(&mut tx, sql, lane, *key_hash, *seq).await;
                expect_one(gone.map_err(failed::<DB>)?)?;
                // It may have been what others of its key wait for.
                DB::wake_next(&mut tx, sql, lane, *key_hash).await.map_err(failed::<DB>)?;
                removed += 1;
            }
            tx.commit().await?;
        }
        Ok(removed)
    }
}

fn expect_one(count: u64) -> Result<()> {
    if count == 1 {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Guard,
        format!("could not remove a consumer: {count} rows were in the expected state, not 1; call it again"),
    ))
}

fn failed<DB: Backend>(error: sqlx::Error) -> Error {
    Error::database(DB::kind(&error), "remove a consumer", error)
}

//! The raw side: loops that execute the handlers' statements and know of nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

use anyhow::ensure;
use sqlx::Connection as _;
use tokio::task::JoinSet;

use crate::args::{Args, CALL, Handler, Mode};
use crate::cpu::Cpu;
use crate::database::{Database, Place, Side};
use crate::handlers;
use crate::report::Measured;
use crate::verify::Effect;

/// All the work, and how much of it was taken.
struct Share {
    args: Args,
    taken: AtomicI64,
    failing_keys: i64,
}

/// Leaves the effects that outbox's handlers leave, or the rows that its publishers do.
pub(crate) async fn measure<DB: Database>(place: &Place<DB>, args: &Args) -> anyhow::Result<Measured> {
    let pinned = place.pin(args).await?;
    let cpu = Cpu::start(place).await?;
    let since = Instant::now();
    let failing_keys = args.failing_keys();
    let share = Arc::new(Share { args: args.clone(), taken: AtomicI64::new(0), failing_keys });
    let loops = if args.hot_key && args.mode == Mode::ConsumeOnly { 1 } else { args.executors };
    let mut running = JoinSet::new();
    for _ in 0..loops {
        let (pool, share) = (place.pool.clone(), share.clone());
        running.spawn(async move {
            let mut kept = None;
            while let Some(group) = share.take() {
                let mut done = false;
                while !done {
                    let mut conn = match kept.take() {
                        Some(conn) => conn,
                        None => pool.acquire().await?,
                    };
                    done = transaction::<DB>(&mut conn, &share, &group).await?;
                    // A consumer keeps its connection; an application takes one for each transaction.
                    kept = Some(conn).filter(|_| share.args.mode == Mode::ConsumeOnly);
                }
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    let seconds = since.elapsed().as_secs_f64();
    let cpu = cpu.spent();
    drop(pinned);
    let (effects, messages) = match args.mode {
        Mode::ConsumeOnly => {
            let good = (0..args.messages()).filter(|message| args.key(*message) >= failing_keys).count();
            let good = i64::try_from(good)?;
            (good * i64::from(args.consumers), good)
        }
        Mode::Single | Mode::Many => (args.messages(), args.messages()),
    };
    if args.mode != Mode::ConsumeOnly || args.handler != Handler::Noop {
        let found = place.number("select count(*) from bench_raw").await?;
        ensure!(found == effects, "the raw loop has left {found} effects and not {effects}");
    }
    Ok(Measured { messages, seconds, cpu })
}

impl Share {
    /// What one transaction does: effects of each consumer, or rows.
    fn take(&self) -> Option<Vec<Effect>> {
        let args = &self.args;
        let (consumers, group) = match args.mode {
            // Transactions of many that update the same rows do nothing but deadlock.
            Mode::ConsumeOnly if args.handler == Handler::UpdateHot => (i64::from(args.consumers), 1),
            Mode::ConsumeOnly => (i64::from(args.consumers), i64::from(args.group)),
            Mode::Single => (1, 1),
            Mode::Many => (1, CALL),
        };
        let all = args.messages() * consumers;
        let from = self.taken.fetch_add(group, Ordering::Relaxed);
        let taken = (from..all.min(from + group)).map(|number| {
            let (consumer, message) = (number / args.messages(), number % args.messages());
            let consumer = i16::try_from(consumer).expect("there are few consumers");
            Effect { consumer, message, key: args.key(message) }
        });
        (from < all).then(|| taken.collect())
    }
}

/// Whether it was committed; otherwise it lost a conflict, and was rolled back.
async fn transaction<DB: Database>(
    conn: &mut DB::Connection,
    share: &Share,
    group: &[Effect],
) -> sqlx::Result<bool> {
    let work = async {
        let mut tx = conn.begin_with(DB::BEGIN).await?;
        match share.args.mode {
            Mode::ConsumeOnly => {
                let good = group.iter().filter(|effect| effect.key >= share.failing_keys).copied();
                if share.args.handler == Handler::Batch {
                    DB::insert_many(&mut tx, Side::Raw, &good.collect::<Vec<_>>()).await?;
                } else {
                    for effect in good {
                        one::<DB>(&mut tx, share.args.handler, effect).await?;
                    }
                }
            }
            Mode::Single => {
                DB::insert(&mut tx, Side::Raw, group[0]).await?;
                if share.args.by_hand {
                    DB::insert_event(&mut tx, group[0]).await?;
                }
            }
            Mode::Many => DB::insert_many(&mut tx, Side::Raw, group).await?,
        }
        tx.commit().await
    };
    match work.await {
        Ok(()) => Ok(true),
        Err(error) if DB::is_conflict(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

async fn one<DB: Database>(conn: &mut DB::Connection, handler: Handler, effect: Effect) -> sqlx::Result<()> {
    match handler {
        Handler::Noop => return DB::nothing(conn).await,
        Handler::FollowUp => DB::insert_follow_up(conn, effect).await?,
        Handler::Insert | Handler::UpdateHot | Handler::Batch => {}
    }
    handlers::leave::<DB>(conn, handler, Side::Raw, effect).await
}

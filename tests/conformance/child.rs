//! A process that a conformance test starts: `outbox-test-child WORK DATABASE ADDRESS ..`.

#[allow(dead_code, reason = "each suite uses its part")]
#[path = "../common/mod.rs"]
mod common;

use std::io::Read as _;
use std::path::PathBuf;

use outbox::{Bounds, Outbox};
use outbox_tests::TestBackend;
use tokio::signal::unix::{SignalKind, signal};

use crate::common::{Books, Ledger, Script, placed_as, quick, record};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // The end of stdin is the end of the test, however that came about.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(2);
    });
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [work, database, address, more @ ..] = &*arguments else {
        anyhow::bail!("expected WORK DATABASE ADDRESS, got {arguments:?}");
    };
    match &**database {
        <sqlx::Sqlite as sqlx::Database>::NAME => act::<sqlx::Sqlite>(work, address, more).await,
        #[cfg(feature = "postgres")]
        <sqlx::Postgres as sqlx::Database>::NAME => act::<sqlx::Postgres>(work, address, more).await,
        #[cfg(feature = "mysql")]
        <sqlx::MySql as sqlx::Database>::NAME => act::<sqlx::MySql>(work, address, more).await,
        other => anyhow::bail!("no database is called {other}"),
    }
}

async fn act<DB: TestBackend>(work: &str, address: &str, more: &[String]) -> anyhow::Result<()> {
    let outbox = Outbox::<DB>::new(DB::connect(address, 5).await?);
    match (work, more) {
        ("migrate", []) => {
            outbox.migrate().await?;
        }
        ("publish", [id]) => {
            let tx = outbox.begin().await?;
            tx.publish(placed_as(id, "7"))?;
            tx.commit().await?;
            // Whoever is to hear of it is told by a task.
            signal(SignalKind::terminate())?.recv().await;
        }
        ("publish until", []) => {
            // Notes which messages were committed after the second consumer was there for all to see.
            let looks = DB::connect(address, 1).await?;
            let mut terminated = signal(SignalKind::terminate())?;
            for n in 0..2_000 {
                let mut tx = outbox.pool().begin().await?;
                let id = format!("process-{n}");
                if let Err(error) = outbox.publish(&mut tx, placed_as(&id, "shared")).await {
                    anyhow::ensure!(error.is_transient(), "{error:?}");
                    continue;
                }
                let sql = "select count(*) from outbox_subscription s join outbox_consumer c on c.id = s.consumer \
                           where c.name = 'audit'";
                let known = DB::number(&mut *looks.acquire().await?, sql).await? > 0;
                tx.commit().await?;
                if known {
                    let sql = format!("insert into business (message_id) values ('{id}')");
                    DB::execute(&mut *looks.acquire().await?, &sql).await?;
                }
                let pause = tokio::time::sleep(std::time::Duration::from_millis(3)); // sleep-ok: others publish too
                if tokio::select! { () = pause => false, _ = terminated.recv() => true } {
                    return Ok(());
                }
            }
            terminated.recv().await;
        }
        ("run" | "run within", [started]) => {
            let started = PathBuf::from(started);
            let script = Script::<DB>::new(move |ctx| {
                let started = started.clone();
                Box::pin(async move {
                    // Says that it has begun, and finishes some time after the process was asked to end.
                    let mut terminated = signal(SignalKind::terminate())?;
                    std::fs::write(&started, "")?;
                    terminated.recv().await;
                    DB::texts(ctx, slow::<DB>()).await?;
                    record(ctx).await
                })
            });
            let consumers = outbox.consumers().handler::<Ledger>().state(script).config(quick()).build()?;
            match work {
                "run" => consumers.run().await?,
                _ => consumers.run_within(Bounds::default()).await?,
            };
        }
        // The builds of a rolling deploy in which a consumer is renamed.
        ("consume", [build]) => {
            let consumers = outbox.consumers().state(Script::<DB>::record()).config(quick());
            let consumers = match &**build {
                "old" => consumers.handler::<Ledger>(),
                "new" => consumers.handler::<Books>(),
                other => anyhow::bail!("no build is called {other}"),
            };
            consumers.build()?.run().await?;
        }
        ("drop", [consumer]) => {
            outbox.admin().drop_consumer(consumer).await?;
        }
        _ => anyhow::bail!("no work is called {work} {more:?}"),
    }
    Ok(())
}

fn slow<DB: TestBackend>() -> &'static str {
    common::by_database::<DB, _>(
        "with recursive n(i) as (values (1) union all select i + 1 from n where i < 500000) \
         select cast(max(i) as text) from n",
        "select pg_sleep(0.3)::text",
        "select cast(sleep(0.3) as char)",
    )
}

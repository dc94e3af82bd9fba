//! A failed message holds up only its own aggregate, for its own consumer, and whatever a handler does is undone.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use outbox::{ConsumerConfig, Draft};
use outbox_tests::{TestBackend, TestDatabase, eventually};
use sqlx::Connection as _;

use crate::common::*;

on_each_database!(
    a_failed_handler_leaves_nothing_and_is_tried_again,
    whatever_a_handler_does_its_neighbours_are_unhurt,
    panics_cost_no_executor,
    a_handler_may_use_savepoints_of_its_own,
    a_constraint_that_fails_at_the_commit_is_the_messages_failure,
    stored_errors_are_readable_and_bounded,
    an_unreadable_payload_is_parked_and_blocks_its_key_only,
    a_row_that_somebody_broke_is_parked_alone,
    a_type_of_a_newer_build_is_left_to_it,
    a_deleted_message_is_parked_once,
    always_failing_heads_do_not_starve_good_messages,
    more_workers_do_not_retry_more_often,
    attempts_are_counted_over_restarts,
    a_failed_message_blocks_only_its_own_consumer,
);

/// The error, attempts and state of what is parked.
const PARKED: &str =
    "select coalesce(last_error, '') || '|' || attempts || '|' || state from outbox_parked order by seq";

async fn a_failed_handler_leaves_nothing_and_is_tried_again<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    publish(&outbox, placed_as("m", "7")).await;
    let script = Script::<DB>::new(|ctx| {
        Box::pin(async move {
            record(ctx).await?;
            match ctx.metadata().attempt() {
                1 => Err("the first reason".into()),
                2 => panic!("the second {}", "reason"),
                // By `?` of a statement of its own.
                3 => Ok(DB::execute(ctx, "insert into no_such_table values (1)").await?),
                _ => Ok(()),
            }
        })
    });
    let config = ConsumerConfig { retry: Some(outbox::Retry::every(Duration::ZERO)), ..quick() };
    let once = || ledger(&outbox, &script).config(config.clone()).build().expect("complete").run_once();
    for (attempt, expected) in
        [(1, "the first reason"), (2, "panicked: the second reason"), (3, "no_such_table")]
    {
        let report = once().await.expect("it ran");
        assert_eq!((report.handled, report.retried, report.remaining), (0, 1, 1));
        let parked = database.texts(PARKED).await;
        assert!(parked[0].contains(expected) && parked[0].ends_with(&format!("|{attempt}|0")), "{parked:?}");
        assert_eq!(database.count("effects").await, 0);
        assert_eq!(database.count("outbox_inbox").await, 0);
    }
    assert_eq!(once().await.expect("it ran").handled, 1);
    let effects = database.effects().await;
    assert_eq!((effects.len(), &*effects[0].worker), (1, "attempt 4"));
}

/// Each of these on its first attempt, good ones in between, several executors.
async fn whatever_a_handler_does_its_neighbours_are_unhurt<DB: TestBackend>(database: TestDatabase<DB>) {
    let deeds = [
        ("error", ""),
        ("panic", ""),
        ("early panic", ""),
        ("statement", "insert into no_such_table values (1)"),
        ("syntax", "selekt"),
        ("commit", "commit"),
        ("rollback", "rollback"),
        ("end", "end"),
        ("commit and begin", "commit; begin"),
        ("rollback and begin", "rollback; begin"),
        ("begin", "begin"),
        ("release", "release savepoint outbox_handler"),
        ("our own savepoint", "rollback to savepoint outbox_handler; release savepoint outbox_handler"),
        ("a savepoint left open", "savepoint mine"),
    ];
    let outbox = database.outbox();
    register(&outbox).await;
    let script = Script::<DB>::new(move |ctx| {
        Box::pin(async move {
            let metadata = ctx.metadata().clone();
            let Some((deed, swallows)) =
                metadata.id.as_str().split_once('/').filter(|_| metadata.attempt() == 1)
            else {
                return record(ctx).await;
            };
            assert!(deed != "early panic", "before anything was written");
            record(ctx).await?;
            assert!(deed != "panic", "after something was written");
            let sql = deeds.iter().find(|(name, _)| *name == deed).map_or("", |(_, sql)| *sql);
            let done = DB::execute(ctx, sql).await;
            if swallows == "swallows" {
                // It goes on as if nothing had happened, and writes once more.
                let _ = record(ctx).await;
                return Ok(());
            }
            done?;
            Err(format!("{deed} and fails").into())
        })
    });
    let mut names = Vec::new();
    for (n, (deed, _)) in deeds.iter().enumerate() {
        for how in ["fails", "swallows"] {
            let name = format!("{deed}/{how}");
            publish(&outbox, placed_as(&name, &format!("bad-{n}-{how}"))).await;
            publish(&outbox, placed_as(&format!("behind {deed} {how}"), &format!("bad-{n}-{how}"))).await;
            publish(&outbox, placed_as(&format!("good {deed} {how}"), &format!("good-{n}"))).await;
            names.extend([format!("behind {deed} {how}"), format!("good {deed} {how}"), name]);
        }
    }
    let running = Running::start(ledger(&outbox, &script));
    settled(&database).await;
    let report = running.stop().await;
    assert_eq!(report.handled, names.len() as u64, "{report:?}");
    let effects = database.effects().await;
    // What a handler wrote on an attempt that was not counted as handled is gone; what it did when it returned Ok
    // in an intact transaction counts.
    for name in &names {
        let of_name: Vec<_> = effects.iter().filter(|effect| effect.message_id == *name).collect();
        let harmless = name == "error/swallows" || name == "a savepoint left open/swallows";
        // The statement is refused and nothing more, so the transaction is intact.
        let refusals: &[&str] = by_database::<DB, _>(
            &["statement", "syntax", "begin"][..],
            &[],
            // MySQL knows no END.
            &[
                "statement",
                "syntax",
                "begin",
                "commit",
                "rollback",
                "end",
                "commit and begin",
                "rollback and begin",
            ],
        );
        let refused = name.strip_suffix("/swallows").is_some_and(|deed| refusals.contains(&deed));
        // PostgreSQL only warns.
        let warned = is_postgres::<DB>() && name == "begin/swallows";
        if harmless || refused || warned {
            assert!(
                of_name.iter().all(|e| e.worker == "attempt 1") && of_name.len() == 2,
                "{name}: {of_name:?}"
            );
        } else {
            let attempt = if name.contains('/') { "attempt 2" } else { "attempt 1" };
            assert!(of_name.len() == 1 && of_name[0].worker == attempt, "{name}: {of_name:?}");
        }
    }
    for (deed, _) in deeds {
        for how in ["fails", "swallows"] {
            let at = |name: String| effects.iter().position(|effect| effect.message_id == name);
            assert!(at(format!("{deed}/{how}")) < at(format!("behind {deed} {how}")), "{deed} {how}");
        }
    }
}

async fn panics_cost_no_executor<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    let script = Script::<DB>::new(|ctx| {
        Box::pin(async move {
            let number: u32 = ctx.metadata().id.as_str().parse()?;
            assert!(!number.is_multiple_of(4) || ctx.metadata().attempt() > 1, "before its first write");
            record(ctx).await?;
            assert!(number % 4 != 1 || ctx.metadata().attempt() > 1, "after its first write");
            Ok(())
        })
    });
    let running = Running::start(ledger(&outbox, &script));
    let tx = outbox.begin().await.expect("begun");
    for n in 0..200 {
        tx.publish(placed_as(&n.to_string(), &n.to_string())).expect("accepted");
    }
    tx.commit().await.expect("committed");
    settled(&database).await;
    let report = running.stop().await;
    assert_eq!((report.handled, report.retried), (200, 100));
    assert_eq!(database.count("effects").await, 200);
}

async fn a_handler_may_use_savepoints_of_its_own<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    for name in ["released", "rolled back", "dropped", "failed inside"] {
        publish(&outbox, placed_as(name, name)).await;
    }
    let script = Script::<DB>::new(|ctx| {
        Box::pin(async move {
            record(ctx).await?;
            let name = ctx.metadata().id.to_string();
            let write = format!("insert into business (message_id) values ('{name}')");
            let mut inner = (**ctx).begin().await?;
            DB::execute(&mut inner, &write).await?;
            match &*name {
                "released" => inner.commit().await?,
                "rolled back" => inner.rollback().await?,
                "dropped" => drop(inner),
                _ => {
                    DB::execute(&mut inner, "insert into no_such_table values (1)")
                        .await
                        .expect_err("refused");
                    inner.rollback().await?;
                }
            }
            // The transaction around it is as it was.
            DB::execute(ctx, &format!("insert into business (message_id) values ('after {name}')")).await?;
            Ok(())
        })
    });
    let report = drain(&outbox, &script).await;
    assert_eq!((report.handled, report.retried), (4, 0));
    let mut written = database.texts("select message_id from business").await;
    written.sort();
    assert_eq!(
        written,
        ["after dropped", "after failed inside", "after released", "after rolled back", "released"]
    );
}

async fn a_constraint_that_fails_at_the_commit_is_the_messages_failure<DB: TestBackend>(
    database: TestDatabase<DB>,
) {
    if is_mysql::<DB>() {
        // Its constraints are looked at by each statement.
        return;
    }
    let outbox = database.outbox();
    register(&outbox).await;
    database
        .execute(
            "create table parent (id bigint primary key); create table child (id bigint primary key, \
             parent bigint not null references parent (id) deferrable initially deferred)",
        )
        .await;
    publish(&outbox, placed_as("orphan", "7")).await;
    publish(&outbox, placed_as("behind", "7")).await;
    for n in 0..20 {
        publish(&outbox, placed_as(&format!("good-{n}"), &format!("good-{n}"))).await;
    }
    let script = Script::<DB>::new(|ctx| {
        Box::pin(async move {
            record(ctx).await?;
            if ctx.metadata().id.as_str() == "orphan" {
                DB::execute(ctx, "insert into child (id, parent) values (1, 99)").await?;
                if ctx.metadata().attempt() > 2 {
                    DB::execute(ctx, "insert into parent (id) values (99)").await?;
                }
            }
            Ok(())
        })
    });
    let running = Running::start(ledger(&outbox, &script));
    settled(&database).await;
    let report = running.stop().await;
    assert_eq!((report.handled, report.retried), (22, 2));
    let effects = database.effects().await;
    assert_eq!(effects.len(), 22);
    let orphan = effects.iter().find(|effect| effect.message_id == "orphan").expect("handled in the end");
    assert_eq!(orphan.worker, "attempt 3");
}

async fn stored_errors_are_readable_and_bounded<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    let reasons: [&str; 5] = ["nul \0 in it", "esc \u{1b}[31m bell \u{7}", "lines\nand\ttabs", "", "🚀"];
    for n in 0..reasons.len() {
        publish(&outbox, placed_as(&n.to_string(), &n.to_string())).await;
    }
    publish(&outbox, placed_as("5", "5")).await;
    publish(&outbox, placed_as("6", "6")).await;
    let script = Script::<DB>::new(move |ctx| {
        Box::pin(async move {
            let n: usize = ctx.metadata().id.as_str().parse()?;
            match n {
                5 => Err("ä".repeat(100_000).into()),
                6 => Err(anyhow::anyhow!("inner\0").context("outer").into()),
                _ => Err(reasons[n].into()),
            }
        })
    });
    assert_eq!(drain(&outbox, &script).await.retried, 7);
    let stored = database.texts("select last_error from outbox_parked order by seq").await;
    assert_eq!(
        stored[..5],
        ["nul \u{fffd} in it", "esc \u{fffd}[31m bell \u{fffd}", "lines\nand\ttabs", "", "🚀"]
    );
    assert!(stored[5].len() <= 4 * 1024 && stored[5].chars().all(|c| c == 'ä'), "{} bytes", stored[5].len());
    assert_eq!(stored[6], "outer: inner\u{fffd}");
    // Each is due, and none is stuck.
    assert_eq!(database.number("select count(*) from outbox_parked where due_at is not null").await, 7);
    due_now(&database).await;
    let running = Running::start(ledger(&outbox, &Script::record()));
    settled(&database).await;
    running.stop().await;
}

/// Reads the event as a handler of the macros does, so that an unreadable one is the payload's fault.
async fn reading<DB: TestBackend>(ctx: &mut outbox::Context<DB>) -> Outcome {
    let placed: Placed = outbox::__private::take_event(ctx)?;
    if placed.order.is_empty() {
        return Err("no order".into());
    }
    record(ctx).await
}

async fn an_unreadable_payload_is_parked_and_blocks_its_key_only<DB: TestBackend>(
    database: TestDatabase<DB>,
) {
    let outbox = database.outbox();
    register(&outbox).await;
    let bad: [(&str, &[u8], &str); 5] = [
        ("cut", b"{", ""),
        ("shape", br#"{"order":7,"amount":1.5}"#, "order"),
        ("field", br#"{"order":"7"}"#, "amount"),
        ("bytes", b"\xff\xfe", ""),
        ("trailing", br#"{"order":"7","amount":1.5} x"#, ""),
    ];
    for (name, payload, _) in bad {
        publish(&outbox, Draft::new("order.placed", payload).aggregate_id(name).id(id(name))).await;
        publish(&outbox, placed_as(&format!("behind {name}"), name)).await;
    }
    let unknown =
        Draft::new("order.placed", "{}").content_type("application/x-unknown").aggregate_id("codec");
    publish(&outbox, unknown.id(id("codec"))).await;
    for n in 0..20 {
        publish(&outbox, placed_as(&format!("good-{n}"), &format!("good-{n}"))).await;
    }
    // An unordered one blocks nobody.
    publish(&outbox, Draft::new("order.placed", "{").id(id("unordered"))).await;
    publish(&outbox, Draft::new("order.placed", r#"{"order":"u","amount":1}"#).id(id("good-unordered")))
        .await;

    let script = Script::<DB>::new(|ctx| Box::pin(reading(ctx)));
    let report = drain(&outbox, &script).await;
    assert_eq!((report.handled, report.retried, report.dead, report.remaining), (21, 0, 7, 12));
    let parked = database.texts(PARKED).await;
    for (n, (name, _, path)) in bad.iter().enumerate() {
        assert!(parked[2 * n].contains("Placed") && parked[2 * n].contains(path), "{name}: {parked:?}");
        assert!(parked[2 * n].ends_with("|0|6"), "no attempt is counted: {parked:?}");
        assert!(parked[2 * n + 1].ends_with("|0|1"), "{name}: {parked:?}");
    }
    assert!(parked[10].contains("application/x-unknown"), "{parked:?}");
    assert_eq!(database.number("select count(*) from outbox_parked where due_at is not null").await, 0);
    // It stays so, and runs no handler again.
    let report = drain(&outbox, &script).await;
    assert_eq!((report.handled, report.retried, report.parked, report.remaining), (0, 0, 0, 12));
}

async fn a_row_that_somebody_broke_is_parked_alone<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    for name in ["headers", "more headers", "version", "id", "fine"] {
        publish(&outbox, placed_as(name, name)).await;
    }
    for (name, change) in [
        ("headers", "headers = '[1]'"),
        ("more headers", "headers = '{\"ce-id\":\"x\"}'"),
        ("version", "version = -1"),
        ("id", "id = ''"),
    ] {
        database.execute(&format!("update outbox_message set {change} where id = '{name}'")).await;
    }
    let report = drain(&outbox, &Script::record()).await;
    assert_eq!((report.handled, report.parked, report.retried), (1, 4, 0));
    assert_eq!(handled(&database).await, ["fine"]);
    assert!(database.texts(PARKED).await.iter().all(|row| !row.starts_with('|') && row.ends_with("|0|6")));
}

async fn a_type_of_a_newer_build_is_left_to_it<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    let newer = || outbox.consumers().handler::<Both>().state(Script::<DB>::record()).config(quick());
    newer().build().expect("complete").run_until_idle().await.expect("registered");
    for n in 0..5 {
        publish(&outbox, Draft::new("order.shipped", "{}").aggregate_id("7").id(id(&format!("new-{n}"))))
            .await;
        publish(&outbox, placed_as(&format!("old-{n}"), &format!("old-{n}"))).await;
    }
    // The old build knows one of the two types.
    let report = drain(&outbox, &Script::record()).await;
    assert_eq!((report.handled, report.retried, report.parked, report.remaining), (5, 0, 1, 5));
    let parked = database.texts(PARKED).await;
    assert!(parked[0].contains("order.shipped") && parked[0].ends_with("|0|5"), "{parked:?}");
    assert!(parked[1..].iter().all(|row| row == "|0|1"), "behind it, untouched: {parked:?}");
    let soon = by_database::<DB, _>(
        "select count(*) from outbox_parked where due_at between cast(unixepoch('subsec') * 1000000 as integer) \
         and cast(unixepoch('subsec') * 1000000 as integer) + 10000000",
        "select count(*) from outbox_parked where due_at between now() and now() + interval '10 seconds'",
        "select count(*) from outbox_parked \
         where due_at between utc_timestamp(6) and utc_timestamp(6) + interval 10 second",
    );
    assert_eq!(database.number(soon).await, 1);
    due_now(&database).await;
    let report = newer().build().expect("complete").run_until_idle().await.expect("it ran");
    assert_eq!((report.handled, report.remaining), (5, 0));
    let effects = database.effects().await;
    assert!(effects.iter().all(|effect| effect.worker == "attempt 1"), "{effects:?}");
    assert!(
        effects[5..]
            .iter()
            .map(|effect| &*effect.message_id)
            .eq(["new-0", "new-1", "new-2", "new-3", "new-4"])
    );
}

async fn a_deleted_message_is_parked_once<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    publish(&outbox, placed_as("deleted", "7")).await;
    publish(&outbox, placed_as("behind", "7")).await;
    publish(&outbox, placed_as("good", "8")).await;
    database.execute("delete from outbox_message where id = 'deleted'").await;
    let report = drain(&outbox, &Script::record()).await;
    assert_eq!((report.handled, report.parked), (1, 1));
    assert_eq!(handled(&database).await, ["good"]);
    let parked = database.texts(PARKED).await;
    assert!(parked[0].contains("deleted") && parked[0].ends_with("|0|6"), "{parked:?}");
    let report = drain(&outbox, &Script::record()).await;
    assert_eq!((report.handled, report.parked, report.retried), (0, 0, 0));
}

async fn always_failing_heads_do_not_starve_good_messages<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    for kind in ["bad", "good"] {
        let tx = outbox.begin().await.expect("begun");
        for n in 0..500 {
            tx.publish(placed_as(&format!("{kind}-{n}"), &format!("{kind}-{n}"))).expect("accepted");
        }
        tx.commit().await.expect("committed");
    }
    let runs = Arc::new(AtomicI64::new(0));
    let script = Script::<DB>::new({
        let runs = runs.clone();
        move |ctx| {
            let runs = runs.clone();
            Box::pin(async move {
                runs.fetch_add(1, Ordering::Relaxed);
                if ctx.metadata().id.as_str().starts_with("bad") {
                    Err("always".into())
                } else {
                    record(ctx).await
                }
            })
        }
    });
    // Due again at once, so there is always a failed one to take instead of a good one.
    let config = ConsumerConfig { retry: Some(outbox::Retry::every(Duration::ZERO)), ..quick() };
    let running = Running::start(ledger(&outbox, &script).config(config));
    let limit = Duration::from_mins(3);
    eventually("all good ones", limit, async || database.count("effects").await == 500).await;
    // Both kinds had their share: each bad one ran at least once before, and they did not take it all.
    let runs = runs.load(Ordering::Relaxed);
    assert!((1_000..25_000).contains(&runs), "{runs} runs for 500 good messages");
    running.stop().await;
}

async fn more_workers_do_not_retry_more_often<DB: TestBackend>(database: TestDatabase<DB>) {
    const PAUSE: Duration = Duration::from_millis(200);
    const RUNS: usize = 8;
    let outbox = database.outbox();
    register(&outbox).await;
    let runs: Arc<std::sync::Mutex<Vec<std::time::Instant>>> = Arc::default();
    let script = Script::<DB>::new({
        let runs = runs.clone();
        move |_| {
            runs.lock().expect("no panic").push(std::time::Instant::now());
            Box::pin(async { Err("always".into()) })
        }
    });
    publish(&outbox, placed_as("m", "7")).await;
    let mut running = Vec::new();
    for _ in 0..8 {
        let config = ConsumerConfig { retry: Some(outbox::Retry::every(PAUSE)), ..quick() };
        running.push(Running::start(ledger(&elsewhere(&database).await, &script).config(config)));
    }
    let enough = async || runs.lock().expect("no panic").len() >= RUNS;
    eventually("some runs", LONG, enough).await;
    for run in running {
        run.stop().await;
    }
    let runs = runs.lock().expect("no panic").clone();
    let gaps: Vec<_> = runs.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // The pause may be shortened by a fifth, and SQLite's clock counts milliseconds.
    assert!(gaps.iter().all(|gap| *gap >= PAUSE.mul_f64(0.79)), "{gaps:?}");
    assert_eq!(database.texts(PARKED).await, [format!("always|{}|0", runs.len())]);
}

async fn attempts_are_counted_over_restarts<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    publish(&outbox, placed_as("m", "7")).await;
    let script = Script::<DB>::new(|ctx| {
        Box::pin(async move {
            let error = format!("this was attempt {}", ctx.metadata().attempt());
            Err(error.into())
        })
    });
    let config = ConsumerConfig { retry: Some(outbox::Retry::every(Duration::ZERO)), ..quick() };
    for attempt in 1..=4 {
        // As another process: nothing is remembered outside the database.
        let outbox = elsewhere(&database).await;
        let consumers = ledger(&outbox, &script).config(config.clone()).build().expect("complete");
        assert_eq!(consumers.run_once().await.expect("it ran").retried, 1);
        assert_eq!(database.texts(PARKED).await, [format!("this was attempt {attempt}|{attempt}|0")]);
    }
    assert_eq!(
        database.number("select count(*) from outbox_parked where first_failed_at <= due_at").await,
        1
    );
}

async fn a_failed_message_blocks_only_its_own_consumer<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    let script = Script::<DB>::new(|ctx| {
        Box::pin(async move {
            record(ctx).await?;
            if ctx.metadata().consumer() == "audit" { Err("always".into()) } else { Ok(()) }
        })
    });
    let both = || ledger(&outbox, &script).handler::<Audit>().config(patient()).build().expect("complete");
    both().run_until_idle().await.expect("registered");
    for n in 0..10 {
        publish(&outbox, placed_as(&n.to_string(), "7")).await;
    }
    let report = both().run_until_idle().await.expect("it ran");
    assert_eq!((report.handled, report.retried), (10, 1));
    assert_eq!(handled(&database).await.len(), 10);
    assert_eq!(handled_by(&database, "audit").await.len(), 0);
    assert_eq!(database.count("outbox_parked").await, 10);
}

//! A consumer that is renamed is the same consumer, for old builds and new ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use outbox::{ConsumersBuilder, Dead, ErrorKind, Handler, IdempotencyKey, Outbox};
use outbox_tests::{Process, TestBackend, TestDatabase, eventually, handler};
use tokio::sync::{Barrier, Mutex};

use crate::common::*;
use crate::{child, command};

on_each_database!(
    a_renamed_consumer_goes_on_where_it_was,
    the_keys_of_calls_outlive_a_new_name,
    builds_that_start_at_once_share_the_consumer,
    an_old_build_beside_the_renamed_one_neither_doubles_nor_loses,
    processes_of_both_builds_neither_double_nor_lose,
    without_the_alias_it_is_another_consumer,
    two_consumers_are_not_made_one,
    a_name_that_was_changed_meanwhile_is_asked_for,
    a_name_can_be_taken_back,
    an_operator_may_say_either_name,
    a_process_that_dies_while_it_renames_leaves_one_name,
    aliases_that_do_not_fit_together_are_refused,
);

handler!(Plain, consumer "books", types [PLACED], run scripted);
handler!(Accounts, consumer "accounts", alias "ledger", types [PLACED], run scripted);
handler!(Chain, consumer "accounts", alias "ledger", alias "books", types [PLACED], run scripted);
handler!(Back, consumer "ledger", alias "books", types [PLACED], run scripted);
handler!(Called, consumer "telephone", alias "calls", types [PLACED], run scripted, effect External);
handler!(Own, consumer "own", alias "own", types [PLACED], run scripted);
handler!(Empty, consumer "empty", alias "", types [PLACED], run scripted);

fn build<DB: TestBackend, H: Handler<DB>>(outbox: &Outbox<DB>, script: &Script<DB>) -> ConsumersBuilder<DB> {
    outbox.consumers().handler::<H>().state(script.clone()).config(patient())
}

async fn run<DB: TestBackend, H: Handler<DB>>(outbox: &Outbox<DB>) -> u64 {
    let consumers = build::<DB, H>(outbox, &Script::record()).build().expect("complete");
    consumers.run_until_idle().await.expect("it ran").handled
}

async fn names<DB: TestBackend>(database: &TestDatabase<DB>) -> Vec<String> {
    let all = "select c.name || ': ' || n.name from outbox_consumer c \
               join outbox_consumer_name n on n.consumer = c.id order by c.name, n.name";
    database.texts(all).await
}

async fn a_renamed_consumer_goes_on_where_it_was<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    for done in ["done-1", "done-2"] {
        publish(&outbox, placed_as(done, "1")).await;
    }
    publish(&outbox, placed_as("failing", "2")).await;
    let fails = Script::<DB>::new(|ctx| {
        Box::pin(async {
            if ctx.metadata().id.as_str() == "failing" { Err("not yet".into()) } else { record(ctx).await }
        })
    });
    let report = drain(&outbox, &fails).await;
    assert_eq!((report.handled, report.retried), (2, 1));
    publish(&outbox, placed_as("behind", "2")).await;
    publish(&outbox, placed_as("waiting", "3")).await;

    assert_eq!(run::<DB, Books>(&outbox).await, 1);
    assert_eq!(names(&database).await, ["books: books", "books: ledger"]);
    due_now(&database).await;
    assert_eq!(run::<DB, Books>(&outbox).await, 2);
    publish(&outbox, placed_as("new", "1")).await;
    assert_eq!(run::<DB, Books>(&outbox).await, 1);
    assert_eq!(handled(&database).await, ["done-1", "done-2"]);
    assert_eq!(handled_by(&database, "books").await, ["waiting", "failing", "behind", "new"]);
    let attempts = database.texts("select worker from effects where message_id = 'failing'").await;
    assert_eq!(attempts, ["attempt 2"], "what was counted stays counted");
    assert_eq!(database.count("outbox_inbox").await, 6);
}

async fn call<DB: TestBackend, H: Handler<DB>>(database: &TestDatabase<DB>, script: &Script<DB>) {
    due_now(database).await;
    let consumers = build::<DB, H>(&database.outbox(), script).build().expect("complete");
    consumers.run_until_idle().await.expect("it ran");
}

async fn the_keys_of_calls_outlive_a_new_name<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    publish(&outbox, placed_as("m", "1")).await;
    let keys: Arc<Mutex<Vec<String>>> = Arc::default();
    let script = {
        let keys = keys.clone();
        Script::<DB>::new(move |ctx| {
            let keys = keys.clone();
            Box::pin(async move {
                let mut keys = keys.lock().await;
                keys.push(ctx.metadata().idempotency_key().to_string());
                if keys.len() < 3 { Err("the answer was lost".into()) } else { Ok(()) }
            })
        })
    };
    call::<DB, Caller>(&database, &script).await;
    call::<DB, Called>(&database, &script).await;
    call::<DB, Caller>(&database, &script).await;
    let key = IdempotencyKey::new("calls", &id("m")).to_string();
    assert_eq!(*keys.lock().await, [key.clone(), key.clone(), key]);
    assert_eq!(database.texts("select name from outbox_consumer").await, ["telephone"]);
}

async fn builds_that_start_at_once_share_the_consumer<DB: TestBackend>(database: TestDatabase<DB>) {
    const BUILDS: usize = 6;
    drop(database);
    for known in [false, true] {
        let database = TestDatabase::<DB>::migrated().await.expect("there was one before");
        let outbox = database.outbox();
        if known {
            register(&outbox).await;
        }
        for n in 0..20 {
            publish(&outbox, placed_as(&n.to_string(), &format!("{}", n % 5))).await;
        }
        let start = Arc::new(Barrier::new(BUILDS));
        let mut runs = Vec::new();
        for n in 0..BUILDS {
            let (outbox, start) = (elsewhere(&database).await, start.clone());
            let consumers = outbox.consumers().state(Script::<DB>::record()).config(quick());
            let consumers =
                if n % 2 == 0 { consumers.handler::<Ledger>() } else { consumers.handler::<Books>() };
            let consumers = consumers.build().expect("complete");
            runs.push(tokio::spawn(async move {
                start.wait().await;
                consumers.run_until_idle().await.expect("it ran").handled
            }));
        }
        let mut handled = 0;
        for run in runs {
            handled += run.await.expect("no panic");
        }
        assert_eq!((handled, database.count("effects").await), (20, 20), "known before: {known}");
        assert_eq!(database.count("outbox_consumer").await, 1);
        assert_eq!(database.count("outbox_consumer_name").await, 2);
    }
}

/// How many messages the publisher is ahead of the handlers at most: a backlog would only take time.
const AHEAD: i64 = 40;

/// Publishes until it is told to stop, and says how much.
fn publisher<DB: TestBackend>(outbox: Outbox<DB>, stop: Arc<AtomicBool>) -> tokio::task::JoinHandle<i64> {
    tokio::spawn(async move {
        let (mut published, mut look) = (0, tokio::time::interval(Duration::from_millis(5)));
        while !stop.load(Ordering::SeqCst) {
            let tx = outbox.begin().await.expect("begun");
            tx.publish(placed_as(&format!("m{published}"), &format!("{}", published % 7))).expect("accepted");
            match tx.commit().await {
                Ok(_) => published += 1,
                // A registration was in its way.
                Err(error) => assert!(error.is_transient(), "{error:?}"),
            }
            while !stop.load(Ordering::SeqCst) && published >= handled_by_all(&outbox).await + AHEAD {
                look.tick().await;
            }
        }
        published
    })
}

async fn handled_by_all<DB: TestBackend>(outbox: &Outbox<DB>) -> i64 {
    let mut conn = outbox.pool().acquire().await.expect("the pool has a connection");
    DB::number(&mut conn, "select count(*) from effects").await.expect("counted")
}

/// Each message has one effect, whichever build had it.
async fn once_each<DB: TestBackend>(database: &TestDatabase<DB>, published: i64) {
    settled(database).await;
    let distinct = "select count(*) from (select distinct message_id from effects) messages";
    assert_eq!((database.count("effects").await, database.number(distinct).await), (published, published));
    assert_eq!(database.count("outbox_consumer").await, 1);
    let out_of_order = "
        select count(*) from (
            select m.seq, lag(m.seq) over (partition by m.msg_key order by e.id) as previous
            from effects e join outbox_message m on m.id = e.message_id) steps
        where previous > seq";
    assert_eq!(database.number(out_of_order).await, 0);
}

async fn an_old_build_beside_the_renamed_one_neither_doubles_nor_loses<DB: TestBackend>(
    database: TestDatabase<DB>,
) {
    async fn start<DB: TestBackend, H: Handler<DB>>(database: &TestDatabase<DB>) -> Running {
        let outbox = elsewhere(database).await;
        Running::start(outbox.consumers().handler::<H>().state(Script::<DB>::record()).config(quick()))
    }
    let handled_so_far = async || database.count("effects").await;
    let old = start::<DB, Ledger>(&database).await;
    let stop: Arc<AtomicBool> = Arc::default();
    let publishing = publisher(elsewhere(&database).await, stop.clone());
    effects(&database, 5).await;
    // The new build renames it under the old one; the old one starts again and finds it; the new one goes, and comes again.
    let new = start::<DB, Books>(&database).await;
    effects(&database, handled_so_far().await + 5).await;
    old.stop().await;
    let old = start::<DB, Ledger>(&database).await;
    effects(&database, handled_so_far().await + 5).await;
    new.stop().await;
    effects(&database, handled_so_far().await + 5).await;
    let new = start::<DB, Books>(&database).await;
    effects(&database, handled_so_far().await + 5).await;
    stop.store(true, Ordering::SeqCst);
    let published = publishing.await.expect("no panic");
    once_each(&database, published).await;
    old.stop().await;
    new.stop().await;
    assert_eq!(names(&database).await, ["books: books", "books: ledger"]);
}

async fn processes_of_both_builds_neither_double_nor_lose<DB: TestBackend>(database: TestDatabase<DB>) {
    let handled_so_far = async || database.count("effects").await;
    let stop: Arc<AtomicBool> = Arc::default();
    let publishing = publisher(elsewhere(&database).await, stop.clone());
    // Those of a first start at once, on a database that knows neither name.
    let mut running: Vec<Process> =
        ["old", "new", "old", "new"].map(|build| child("consume", &database, &[build])).into();
    effects(&database, 10).await;
    for build in ["new", "old", "new"] {
        running.remove(0).kill().expect("a child can be killed");
        running.push(child("consume", &database, &[build]));
        effects(&database, handled_so_far().await + 10).await;
    }
    stop.store(true, Ordering::SeqCst);
    let published = publishing.await.expect("no panic");
    once_each(&database, published).await;
    drop(running);
    assert_eq!(names(&database).await, ["books: books", "books: ledger"]);
}

/// What the alias prevents.
async fn without_the_alias_it_is_another_consumer<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    assert_eq!(run::<DB, Plain>(&outbox).await, 0);
    publish(&outbox, placed_as("m", "1")).await;
    assert_eq!((run::<DB, Ledger>(&outbox).await, run::<DB, Plain>(&outbox).await), (1, 1));
}

async fn two_consumers_are_not_made_one<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    run::<DB, Plain>(&outbox).await;
    publish(&outbox, placed_as("m", "1")).await;
    let before = names(&database).await;
    assert_eq!(before, ["books: books", "ledger: ledger"]);
    let consumers = build::<DB, Books>(&outbox, &Script::record()).build().expect("complete");
    let error = consumers.run_until_idle().await.expect_err("both are there");
    assert_eq!(error.kind(), ErrorKind::Registry);
    let text = error.to_string();
    assert!(text.contains("`books`") && text.contains("`ledger`") && text.contains("alias"), "{text}");
    assert_eq!(names(&database).await, before);
    assert_eq!((run::<DB, Ledger>(&outbox).await, run::<DB, Plain>(&outbox).await), (1, 1));
}

async fn a_name_that_was_changed_meanwhile_is_asked_for<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    run::<DB, Books>(&outbox).await;
    publish(&outbox, placed_as("m", "1")).await;
    // It may be the next name, or another consumer that has come from the same one: then each would get half of the messages.
    let consumers = build::<DB, Accounts>(&outbox, &Script::record()).build().expect("complete");
    let error = consumers.run_until_idle().await.expect_err("it is called books");
    assert_eq!(error.kind(), ErrorKind::Registry);
    assert!(error.to_string().contains("`alias = \"books\"`"), "{error}");
    assert_eq!(names(&database).await, ["books: books", "books: ledger"]);
    assert_eq!(run::<DB, Chain>(&outbox).await, 1);
    assert_eq!(names(&database).await, ["accounts: accounts", "accounts: books", "accounts: ledger"]);
    // Both older builds still find it.
    publish(&outbox, placed_as("n", "1")).await;
    assert_eq!((run::<DB, Books>(&outbox).await, run::<DB, Ledger>(&outbox).await), (1, 0));
    assert_eq!(database.texts("select name from outbox_consumer").await, ["accounts"]);
}

async fn a_name_can_be_taken_back<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    run::<DB, Books>(&outbox).await;
    publish(&outbox, placed_as("m", "1")).await;
    assert_eq!(run::<DB, Back>(&outbox).await, 1);
    assert_eq!(names(&database).await, ["ledger: books", "ledger: ledger"]);
    assert_eq!(run::<DB, Books>(&outbox).await, 0);
    assert_eq!(names(&database).await, ["books: books", "books: ledger"]);
}

async fn an_operator_may_say_either_name<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    publish(&outbox, placed_as("m", "1")).await;
    let dies = Script::<DB>::new(|_| Box::pin(async { Err(outbox::HandlerError::terminal("broken")) }));
    build::<DB, Books>(&outbox, &dies).build().expect("complete").run_until_idle().await.expect("it ran");
    let admin = outbox.admin();
    for name in ["books", "ledger"] {
        admin.pause(name).await.expect("it is known");
        assert_eq!(database.number("select count(*) from outbox_consumer where paused").await, 1);
        admin.resume(name).await.expect("it is known");
        let dead = admin.dead(&Dead::all().consumer(name)).await.expect("read");
        assert_eq!(dead.iter().map(|letter| &*letter.consumer).collect::<Vec<_>>(), ["books"]);
        assert_eq!(admin.attempts(&id("m"), name).await.expect("read").len(), 1);
    }
    assert_eq!(admin.pause("bookings").await.expect_err("unknown").kind(), ErrorKind::NotFound);
    assert_eq!(admin.dead(&Dead::all().consumer("bookings")).await.expect("read"), []);
    // The inbox by itself, too.
    for name in ["books", "ledger"] {
        outbox.inbox(name).await.expect("found");
    }
    assert_eq!(database.count("outbox_consumer").await, 1);
}

async fn a_process_that_dies_while_it_renames_leaves_one_name<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    publish(&outbox, placed_as("m", "1")).await;
    let mut dying = command("consume", &database, &["new"]);
    let mut dying = Process::start(dying.env("OUTBOX_CRASH_POINT", "renamed")).expect("it was built");
    eventually("it to die", LONG, async || !dying.is_running().expect("known")).await;
    assert_eq!(names(&database).await, ["ledger: ledger"]);
    assert_eq!(run::<DB, Books>(&outbox).await, 1);
    assert_eq!(names(&database).await, ["books: books", "books: ledger"]);
}

async fn aliases_that_do_not_fit_together_are_refused<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    let script = Script::<DB>::record();
    let refused = |builder: ConsumersBuilder<DB>, expected: &[&str]| {
        let error = builder.build().expect_err("it makes no sense");
        assert_eq!(error.kind(), ErrorKind::Registry);
        for expected in expected {
            assert!(error.to_string().contains(expected), "{expected} in {error}");
        }
    };
    refused(build::<DB, Books>(&outbox, &script).handler::<Ledger>(), &["`Books`", "`Ledger`", "mod.rs:"]);
    refused(
        build::<DB, Books>(&outbox, &script).handler::<Accounts>(),
        &["`books`", "`accounts`", "`ledger`"],
    );
    refused(build::<DB, Own>(&outbox, &script), &["its own name"]);
    refused(build::<DB, Empty>(&outbox, &script), &["`Empty`", "alias"]);
    let listed = build::<DB, Chain>(&outbox, &script).build().expect("complete");
    assert_eq!(listed.handlers()[0].aliases, ["ledger", "books"]);
}

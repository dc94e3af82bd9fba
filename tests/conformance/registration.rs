//! Consumers become known, and miss nothing that is published from then on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use outbox::__private::{FromContext, HandlerReturn, HandlerVTable};
use outbox::{ConsumerConfig, Draft, ErrorKind, Handler, Site, State, TypeSet};
use outbox_tests::{Log, TestBackend, TestDatabase, eventually, handler};
use tokio::sync::Barrier;

use crate::common::*;

on_each_database!(
    a_first_consumer_gets_what_nobody_has_got,
    a_second_consumer_gets_no_history_and_everything_from_then_on,
    a_new_type_of_a_known_consumer_is_added,
    starting_an_older_build_takes_nothing_away,
    consumers_of_one_process_all_get_what_was_published_before,
    processes_that_register_at_once_get_one_consumer,
    registering_beside_publishers_loses_nothing,
    a_registration_that_was_interrupted_is_finished_by_the_next,
    handlers_that_do_not_fit_together_are_refused,
    a_consumer_that_nobody_runs_is_named_while_its_messages_pile_up,
);

async fn a_first_consumer_gets_what_nobody_has_got<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    for n in 0..20 {
        publish(&outbox, placed_as(&n.to_string(), &format!("{}", n % 3))).await;
    }
    publish(&outbox, Draft::new("order.placed", "{}").id(id("unordered"))).await;
    publish(&outbox, Draft::new("order.other", "{}").id(id("of another type"))).await;
    assert_eq!(database.count("outbox_unrouted").await, 22);
    assert_eq!(drain(&outbox, &Script::record()).await.handled, 21);
    let handled = handled(&database).await;
    for key in 0..3 {
        let of_key = handled.iter().filter_map(|id| id.parse::<usize>().ok()).filter(|n| n % 3 == key);
        assert!(of_key.eq((0..20).filter(|n| n % 3 == key)), "key {key} in order");
    }
    assert_eq!(database.count("outbox_unrouted").await, 1);
    assert_eq!(drain(&outbox, &Script::record()).await.handled, 0);
}

async fn a_second_consumer_gets_no_history_and_everything_from_then_on<DB: TestBackend>(
    database: TestDatabase<DB>,
) {
    let outbox = database.outbox();
    let audit = async || {
        let consumers = outbox.consumers().handler::<Audit>().state(Script::<DB>::record()).config(quick());
        consumers.build().expect("complete").run_until_idle().await.expect("it ran").handled
    };
    register(&outbox).await;
    for n in 0..10 {
        publish(&outbox, placed_as(&format!("done-{n}"), "7")).await;
    }
    drain(&outbox, &Script::record()).await;
    for n in 0..5 {
        publish(&outbox, placed_as(&format!("pending-{n}"), "7")).await;
    }
    assert_eq!(audit().await, 0);
    publish(&outbox, placed_as("new", "7")).await;
    assert_eq!(audit().await, 1);
    // Another replica that starts later changes nothing.
    assert_eq!(audit().await, 0);
    assert_eq!(drain(&outbox, &Script::record()).await.handled, 6);
    assert_eq!(handled_by(&database, "audit").await, ["new"]);
}

async fn a_new_type_of_a_known_consumer_is_added<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    publish(&outbox, Draft::new("order.shipped", "{}").id(id("before"))).await;
    let both = || outbox.consumers().handler::<Both>().state(Script::<DB>::record()).config(quick());
    assert_eq!(both().build().expect("complete").run_until_idle().await.expect("it ran").handled, 1);
    publish(&outbox, Draft::new("order.shipped", "{}").id(id("after"))).await;
    assert_eq!(both().build().expect("complete").run_until_idle().await.expect("it ran").handled, 1);
    assert_eq!(handled(&database).await, ["before", "after"]);
    assert_eq!(database.count("outbox_consumer").await, 1);
}

async fn starting_an_older_build_takes_nothing_away<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    let both = || outbox.consumers().handler::<Both>().state(Script::<DB>::record()).config(quick());
    both().build().expect("complete").run_until_idle().await.expect("registered");
    register(&outbox).await;
    publish(&outbox, Draft::new("order.shipped", "{}").id(id("new"))).await;
    assert_eq!(database.count("outbox_delivery").await, 1);
    assert_eq!(both().build().expect("complete").run_until_idle().await.expect("it ran").handled, 1);
}

async fn consumers_of_one_process_all_get_what_was_published_before<DB: TestBackend>(
    database: TestDatabase<DB>,
) {
    let outbox = database.outbox();
    publish(&outbox, placed_as("before", "7")).await;
    let consumers = outbox.consumers().handler::<Ledger>().handler::<Audit>().state(Script::<DB>::record());
    let report = consumers.config(quick()).build().expect("complete").run_until_idle().await;
    assert_eq!(report.expect("it ran").handled, 2);
    let mut got: Vec<_> = database.effects().await.into_iter().map(|effect| effect.consumer).collect();
    got.sort_unstable();
    assert_eq!(got, ["audit", "ledger"]);
}

async fn processes_that_register_at_once_get_one_consumer<DB: TestBackend>(database: TestDatabase<DB>) {
    const PROCESSES: usize = 6;
    let outbox = database.outbox();
    publish(&outbox, placed_as("before", "7")).await;
    let start = Arc::new(Barrier::new(PROCESSES));
    let mut runs = Vec::new();
    for n in 0..PROCESSES {
        let outbox = elsewhere(&database).await;
        let start = start.clone();
        let consumers = outbox.consumers().state(Script::<DB>::record()).config(quick());
        let consumers = match n % 3 {
            0 => consumers.handler::<Ledger>(),
            1 => consumers.handler::<Ledger>().handler::<Audit>(),
            _ => consumers.handler::<Both>(),
        };
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
    assert_eq!(database.texts("select name from outbox_consumer order by name").await, ["audit", "ledger"]);
    assert_eq!(database.count("outbox_subscription").await, 3);
    assert_eq!(database.count("outbox_unrouted").await, 0);
    // Whoever subscribed together has the message, one consumer or both; it went to none of them twice.
    let mut got: Vec<_> = database.effects().await.into_iter().map(|effect| effect.consumer).collect();
    got.sort_unstable();
    assert!(
        [vec!["audit"], vec!["ledger"], vec!["audit", "ledger"]].iter().any(|one| *one == got),
        "{got:?}"
    );
    assert_eq!(handled, u64::try_from(got.len()).expect("a few"));
}

async fn registering_beside_publishers_loses_nothing<DB: TestBackend>(database: TestDatabase<DB>) {
    const PUBLISHERS: usize = 4;
    drop(database);
    for round in 0..3 {
        // A consumer registers for the first time once in a database.
        let database = TestDatabase::<DB>::migrated().await.expect("there was one before");
        let stop: Arc<AtomicBool> = Arc::default();
        let mut publishers = Vec::new();
        for publisher in 0..PUBLISHERS {
            let (outbox, stop) = (elsewhere(&database).await, stop.clone());
            publishers.push(tokio::spawn(async move {
                let mut published = 0;
                for _ in 0..60 {
                    if stop.load(Ordering::SeqCst) {
                        break;
                    }
                    let mut tx = outbox.begin().await.expect("begun");
                    DB::number(&mut tx, "select count(*) from business").await.expect("read");
                    // Ordered and unordered, buffered and written at once, alone and as a list.
                    let draft = Draft::new("order.placed", "{}");
                    let draft =
                        if publisher % 2 == 0 { draft.aggregate_id(publisher.to_string()) } else { draft };
                    tx.publish(draft).expect("accepted");
                    if published % 3 == 0 {
                        tx.publish(placed("list")).expect("accepted");
                    }
                    match tx.commit().await {
                        Ok(stored) => published += stored.len(),
                        Err(error) => assert!(error.is_transient(), "{error:?}"),
                    }
                }
                published
            }));
        }
        let enough = async || database.count("outbox_message").await > 5;
        eventually("publishers to be at work", LONG, enough).await;
        let running = Running::start(ledger(&elsewhere(&database).await, &Script::record()));
        effects(&database, 20).await;
        stop.store(true, Ordering::SeqCst);
        let mut published = 0;
        for publisher in publishers {
            published += publisher.await.expect("no panic");
        }
        settled(&database).await;
        running.stop().await;
        let effects = database.effects().await;
        let distinct: std::collections::HashSet<_> =
            effects.iter().map(|effect| &effect.message_id).collect();
        assert_eq!((effects.len(), distinct.len()), (published, published), "round {round}");
        assert_eq!(database.count("outbox_unrouted").await, 0);
    }
}

async fn a_registration_that_was_interrupted_is_finished_by_the_next<DB: TestBackend>(
    database: TestDatabase<DB>,
) {
    let outbox = database.outbox();
    publish(&outbox, placed_as("before", "7")).await;
    drain(&outbox, &Script::record()).await;
    // As if the process had died between the subscription and the look at what was there.
    database
        .execute(&format!(
            "delete from outbox_inbox; delete from effects; \
             insert into outbox_unrouted (event_type, seq) select event_type, seq from outbox_message; \
             update outbox_subscription set ready = {}",
            by_database::<DB, _>("0", "false", "false")
        ))
        .await;
    publish(&outbox, placed_as("after", "7")).await;
    assert_eq!(drain(&outbox, &Script::record()).await.handled, 2);
    let mut handled = handled(&database).await;
    handled.sort();
    assert_eq!(handled, ["after", "before"]);
}

struct Unprovided;

#[derive(Debug)]
struct Needy;

impl<DB: TestBackend> Handler<DB> for Needy {
    const VTABLE: HandlerVTable<DB> = HandlerVTable {
        name: "needy",
        consumer: "needy",
        aliases: &[],
        types: TypeSet::One(&PLACED),
        options: outbox::HandlerOptions::DEFAULT,
        site: Site::new(module_path!(), file!(), line!()),
        check: <State<Unprovided> as FromContext<DB>>::check,
        effect: outbox::Effect::Database,
        batched: false,
        call: |ctx| Box::pin(async { HandlerReturn::into_result(record(ctx).await) }),
    };
}

handler!(Nameless, consumer "", types [PLACED], run record);
handler!(Second, consumer "ledger", types [PLACED], run record);

async fn handlers_that_do_not_fit_together_are_refused<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    let nothing = outbox.consumers().build().expect_err("no handler");
    assert_eq!(nothing.kind(), ErrorKind::Registry);

    let twice = outbox.consumers().handler::<Ledger>().handler::<Second>().state(Script::<DB>::record());
    let twice = twice.build().expect_err("two for one type");
    assert_eq!(twice.kind(), ErrorKind::Registry);
    let text = twice.to_string();
    for expected in ["`ledger`", "`order.placed`", "`Ledger`", "`Second`", "registration.rs:", "mod.rs:"] {
        assert!(text.contains(expected), "{expected} in {text}");
    }
    // By another of its types.
    let overlap = outbox.consumers().handler::<Ledger>().handler::<Both>().build();
    assert_eq!(overlap.expect_err("two for one type").kind(), ErrorKind::Registry);
    // The same one twice is the same one.
    let same = outbox.consumers().handler::<Ledger>().handler::<Ledger>().build().expect("one");
    assert_eq!(same.handlers().len(), 1);

    let needy = outbox.consumers().handler::<Needy>().build().expect_err("no state");
    assert_eq!(needy.kind(), ErrorKind::Registry);
    assert!(needy.to_string().contains("Unprovided") && needy.to_string().contains("needy"), "{needy}");
    outbox.consumers().handler::<Needy>().state(Unprovided).build().expect("complete");

    let nameless = outbox.consumers().handler::<Nameless>().build().expect_err("no name");
    assert_eq!(nameless.kind(), ErrorKind::Registry);

    let idle = ConsumerConfig { executors: 0, ..ConsumerConfig::default() };
    let idle = outbox.consumers().handler::<Ledger>().config(idle).build().expect_err("no executors");
    assert_eq!(idle.kind(), ErrorKind::Config);
    assert!(idle.to_string().contains("executors"), "{idle}");
    // Nothing of all this has reached the database.
    assert_eq!(database.count("outbox_consumer").await, 0);
}

async fn a_consumer_that_nobody_runs_is_named_while_its_messages_pile_up<DB: TestBackend>(
    database: TestDatabase<DB>,
) {
    const NAMED: &str = "no running process has a handler for";
    let outbox = database.outbox();
    let (log, _guard) = Log::capture();
    let audit = || outbox.consumers().handler::<Audit>().state(Script::<DB>::record());
    drain(&outbox, &Script::record()).await;
    audit().build().expect("complete").run_until_idle().await.expect("it ran");
    assert_eq!(log.lines("WARN"), [] as [&str; 0], "the other one has nothing to do");

    let running = Running::start(ledger(&outbox, &Script::record()));
    eventually("the other one runs", LONG, async || database.count("outbox_worker").await == 1).await;
    outbox.admin().pause("ledger").await.expect("paused");
    publish(&outbox, placed("7")).await;
    audit().build().expect("complete").run_until_idle().await.expect("it ran");
    assert_eq!(log.lines("WARN"), [] as [&str; 0], "the other one is there");
    running.stop().await;

    audit().build().expect("complete").run_until_idle().await.expect("it ran");
    let named = log.lines(NAMED);
    assert!(named.len() == 1 && named[0].contains("consumer=\"ledger\""), "{named:?}");
    outbox.admin().resume("ledger").await.expect("resumed");
    drain(&outbox, &Script::record()).await;
    audit().build().expect("complete").run_until_idle().await.expect("it ran");
    assert_eq!(log.lines(NAMED).len(), 1, "{:?}", log.lines(NAMED));
}

//! A consumer without inbox marks: what it removes is counted, so each delivery still has its effect once.

use outbox::{ConsumersBuilder, ErrorKind, Inboxed, Outbox};
use outbox_tests::{TestBackend, TestDatabase};

use crate::common::*;

on_each_database!(
    without_marks_each_message_has_its_effect_once,
    builds_with_and_without_marks_share_a_consumer,
    a_mark_that_is_there_is_respected,
    a_message_that_arrives_again_is_handled_again,
    calls_are_not_made_without_marks,
);

/// The consumer `ledger`, without marks.
fn unmarked<DB: TestBackend>(outbox: &Outbox<DB>, script: &Script<DB>) -> ConsumersBuilder<DB> {
    ledger(outbox, script).options("ledger", |options| options.inbox = false)
}

/// Fails each third message once.
fn flaky<DB: TestBackend>() -> Script<DB> {
    Script::<DB>::new(|ctx| {
        Box::pin(async {
            record(ctx).await?;
            let number: usize = ctx.metadata().id.as_str().parse().unwrap_or_default();
            if number.is_multiple_of(3) && ctx.metadata().attempt() == 1 {
                Err("not yet".into())
            } else {
                Ok(())
            }
        })
    })
}

/// 90 messages, some without a key.
async fn publish_some<DB: TestBackend>(outbox: &Outbox<DB>) {
    for n in 0..90 {
        let draft = outbox::Draft::new("order.placed", "{}").id(id(&n.to_string()));
        let draft = if n % 4 == 0 { draft } else { draft.key(format!("{}", n % 7)) };
        publish(outbox, draft).await;
    }
}

async fn once_each<DB: TestBackend>(database: &TestDatabase<DB>) {
    settled(database).await;
    let distinct = "select count(*) from (select distinct message_id from effects) messages";
    assert_eq!((database.count("effects").await, database.number(distinct).await), (90, 90));
}

async fn without_marks_each_message_has_its_effect_once<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    unmarked(&outbox, &flaky()).build().expect("complete").run_until_idle().await.expect("registered");
    let mut running = Vec::new();
    for _ in 0..3 {
        running.push(Running::start(unmarked(&elsewhere(&database).await, &flaky())));
    }
    publish_some(&outbox).await;
    once_each(&database).await;
    let mut handled = 0;
    for running in running {
        handled += running.stop().await.handled;
    }
    assert_eq!((handled, database.count("outbox_inbox").await), (90, 0));
}

async fn builds_with_and_without_marks_share_a_consumer<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    let mut running = Vec::new();
    for n in 0..4 {
        let outbox = elsewhere(&database).await;
        running.push(Running::start(match n % 2 {
            0 => unmarked(&outbox, &flaky()),
            _ => ledger(&outbox, &flaky()),
        }));
    }
    publish_some(&outbox).await;
    once_each(&database).await;
    for running in running {
        running.stop().await;
    }
    assert!(database.count("outbox_inbox").await <= 90);
}

async fn a_mark_that_is_there_is_respected<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    let inbox = outbox.inbox("ledger").await.expect("made");
    let handled = inbox.handle(&id("m"), async |_| Ok::<_, outbox::Error>(())).await.expect("handled");
    assert_eq!(handled, Inboxed::Processed(()));
    publish(&outbox, placed_as("m", "1")).await;
    let run = unmarked(&outbox, &Script::record()).build().expect("complete");
    let report = run.run_until_idle().await.expect("it ran");
    assert_eq!((report.handled, report.duplicates, report.remaining), (0, 1, 0));
}

/// What marks are for: here none is left to recognise it by.
async fn a_message_that_arrives_again_is_handled_again<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    for (marks, expected) in [(true, 1), (false, 2)] {
        for _ in 0..2 {
            publish(&outbox, placed_as(&format!("marks {marks}"), "1")).await;
            let consumers = ledger(&outbox, &Script::record());
            let consumers = consumers.options("ledger", |options| options.inbox = marks);
            consumers.build().expect("complete").run_until_idle().await.expect("it ran");
            database.execute("delete from outbox_message").await;
        }
        let effects = format!("select count(*) from effects where message_id = 'marks {marks}'");
        assert_eq!(database.number(&effects).await, expected);
    }
}

async fn calls_are_not_made_without_marks<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    let calls = outbox.consumers().handler::<Caller>().state(Script::<DB>::record());
    let error = calls.options("calls", |options| options.inbox = false).build().expect_err("it claims there");
    assert_eq!(error.kind(), ErrorKind::Registry);
    let text = error.to_string();
    assert!(
        text.contains("`inbox = false`") && text.contains("`calls`") && text.contains("mod.rs:"),
        "{text}"
    );
}

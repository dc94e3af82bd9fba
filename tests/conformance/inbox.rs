//! The inbox by itself: what comes from anywhere is handled once, in a transaction or in two phases.

use std::time::Duration;

use outbox::{Claim, Claimed, ErrorKind, Inbox, Inboxed, Outbox};
use outbox_tests::{Effect, TestBackend, TestDatabase};

use crate::common::*;

on_each_database!(
    a_message_is_handled_once_for_each_consumer,
    work_that_fails_leaves_no_mark,
    of_many_at_once_one_handles_it,
    a_claimed_message_is_nobody_elses,
    a_stale_claim_is_taken_over_by_exactly_one,
    who_comes_late_can_neither_finish_nor_fail,
    what_is_handled_here_is_a_duplicate_in_the_lanes,
);

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Leaves an effect in the message's transaction.
async fn handle<DB: TestBackend>(inbox: &Inbox<DB>, message: &str) -> Result<Inboxed<u8>, Failure> {
    let effect = Effect {
        message_id: message.to_owned(),
        consumer: "inbox".to_owned(),
        key: None,
        worker: String::new(),
    };
    inbox
        .handle(&id(message), async |tx| {
            DB::insert_effect(tx, &effect).await?;
            Ok(7)
        })
        .await
}

async fn owned<DB: TestBackend>(inbox: &Inbox<DB>, message: &str) -> Claimed<DB> {
    match inbox.claim(&id(message)).await.expect("answered") {
        Claim::Owned(claimed) => claimed,
        other => panic!("{other:?}"),
    }
}

async fn is_busy<DB: TestBackend>(inbox: &Inbox<DB>, message: &str) -> bool {
    matches!(inbox.claim(&id(message)).await.expect("answered"), Claim::Busy)
}

async fn is_done<DB: TestBackend>(inbox: &Inbox<DB>, message: &str) -> bool {
    matches!(inbox.claim(&id(message)).await.expect("answered"), Claim::Done)
}

async fn a_message_is_handled_once_for_each_consumer<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    let (one, other) = (outbox.inbox("one").await.expect("made"), outbox.inbox("other").await.expect("made"));
    assert_eq!(handle(&one, "m").await.expect("handled"), Inboxed::Processed(7));
    assert_eq!(handle(&one, "m").await.expect("not again"), Inboxed::AlreadyProcessed);
    let again = outbox.inbox("one").await.expect("found");
    assert_eq!(handle(&again, "m").await.expect("not again"), Inboxed::AlreadyProcessed);
    assert_eq!(handle(&other, "m").await.expect("handled"), Inboxed::Processed(7));
    assert_eq!((database.count("effects").await, database.count("outbox_inbox").await), (2, 2));
    assert!(outbox.inbox("").await.is_err());
}

async fn work_that_fails_leaves_no_mark<DB: TestBackend>(database: TestDatabase<DB>) {
    let inbox = database.outbox().inbox("one").await.expect("made");
    let failed: Result<Inboxed<()>, Failure> = inbox
        .handle(&id("m"), async |tx| {
            DB::execute(tx, "insert into business (message_id) values ('m')").await?;
            tx.publish(placed("7"))?;
            Err("not yet".into())
        })
        .await;
    assert_eq!(failed.expect_err("it failed").to_string(), "not yet");
    for table in ["business", "outbox_inbox", "outbox_message"] {
        assert_eq!(database.count(table).await, 0, "{table}");
    }
    assert_eq!(handle(&inbox, "m").await.expect("handled"), Inboxed::Processed(7));
}

/// Whoever is second waits for the first, and then there is nothing to do.
async fn of_many_at_once_one_handles_it<DB: TestBackend>(database: TestDatabase<DB>) {
    let mut tasks = tokio::task::JoinSet::new();
    database.outbox().inbox("one").await.expect("made");
    for _ in 0..8 {
        let outbox: Outbox<DB> = elsewhere(&database).await;
        tasks.spawn(async move {
            let inbox = outbox.inbox("one").await.expect("found");
            let mut processed = 0;
            for number in 0..10 {
                match handle(&inbox, &format!("m{number}")).await.expect("one after the other") {
                    Inboxed::Processed(_) => processed += 1,
                    Inboxed::AlreadyProcessed => {}
                }
            }
            processed
        });
    }
    let processed: i32 = tasks.join_all().await.into_iter().sum();
    assert_eq!((processed, database.count("effects").await), (10, 10));
}

async fn a_claimed_message_is_nobody_elses<DB: TestBackend>(database: TestDatabase<DB>) {
    let inbox = database.outbox().inbox("one").await.expect("made");
    let claimed = owned(&inbox, "m").await;
    assert_eq!(claimed.attempt(), 1);
    assert!(is_busy(&inbox, "m").await);
    let handled = handle(&inbox, "m").await.expect_err("another has it");
    let kind = handled.downcast_ref::<outbox::Error>().expect("it is ours").kind();
    assert_eq!((kind, database.count("effects").await), (ErrorKind::Conflict, 0));
    assert!(claimed.fail().await.expect("answered"));
    let claimed = owned(&inbox, "m").await;
    assert!(claimed.complete().await.expect("answered"));
    assert!(is_done(&inbox, "m").await);
    assert_eq!(handle(&inbox, "m").await.expect("not again"), Inboxed::AlreadyProcessed);
}

async fn a_stale_claim_is_taken_over_by_exactly_one<DB: TestBackend>(database: TestDatabase<DB>) {
    let stale = database.outbox().inbox("one").await.expect("made").stale_after(Duration::ZERO);
    drop(owned(&stale, "m").await);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let outbox: Outbox<DB> = elsewhere(&database).await;
        tasks.spawn(async move {
            let inbox = outbox.inbox("one").await.expect("found");
            match inbox.claim(&id("m")).await.expect("answered") {
                Claim::Owned(claimed) => Some(claimed.attempt()),
                Claim::Busy => None,
                Claim::Done => panic!("nobody has handled it"),
            }
        });
    }
    let attempts: Vec<u32> = tasks.join_all().await.into_iter().flatten().collect();
    assert_eq!(attempts, [2]);
}

async fn who_comes_late_can_neither_finish_nor_fail<DB: TestBackend>(database: TestDatabase<DB>) {
    let inbox = database.outbox().inbox("one").await.expect("made").stale_after(Duration::ZERO);
    for finishes in [true, false] {
        let message = format!("m {finishes}");
        let (late, also_late) = (owned(&inbox, &message).await, owned(&inbox, &message).await);
        let last = owned(&inbox, &message).await;
        assert_eq!(last.attempt(), 3);
        assert!(!late.complete().await.expect("answered"), "a claim that is another's is not finished");
        assert!(last.complete().await.expect("answered"));
        let ours = if finishes { also_late.complete().await } else { also_late.fail().await };
        assert!(!ours.expect("answered"));
        assert!(is_done(&inbox, &message).await, "what is handled stays so");
    }
}

async fn what_is_handled_here_is_a_duplicate_in_the_lanes<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    let inbox = outbox.inbox("ledger").await.expect("found");
    assert_eq!(handle(&inbox, "m").await.expect("handled"), Inboxed::Processed(7));
    drop(owned(&inbox, "n").await);
    for message in ["m", "n", "o"] {
        publish(&outbox, placed_as(message, message)).await;
    }
    let report = drain(&outbox, &Script::record()).await;
    assert_eq!((report.duplicates, report.parked, report.handled), (1, 1, 1));
    assert_eq!(handled(&database).await, ["o"]);
}

//! A message exists if and only if its change was committed, exactly as it was published.

use outbox::{ErrorKind, Outbox, Published};
use outbox_tests::{TestBackend, TestDatabase};
use sqlx::{Connection as _, Transaction};

use crate::common::*;

on_each_database!(
    a_committed_message_is_delivered,
    a_rolled_back_message_never_existed,
    what_a_rolled_back_savepoint_published_never_existed,
    savepoints_of_an_outbox_transaction_drop_what_was_published_inside,
    events_of_nested_functions_keep_their_order,
    a_list_keeps_its_order_and_its_ids,
    an_empty_list_touches_nothing,
    a_hundred_thousand_events_fit_into_one_transaction,
    one_id_is_stored_once,
    one_id_from_two_transactions_at_once_is_stored_once,
    a_bare_connection_needs_a_transaction,
    what_another_transaction_published_stays_where_one_fails,
    a_failed_work_of_a_transaction_leaves_nothing,
);

async fn a_committed_message_is_delivered<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    let mut tx = database.pool().begin().await.expect("begun");
    DB::execute(&mut tx, "insert into business (message_id) values ('m')").await.expect("written");
    let published = outbox.publish(&mut tx, placed_as("m", "7")).await.expect("published");
    assert_eq!(published, Published::Stored(id("m")));
    tx.commit().await.expect("committed");

    let mut tx = outbox.begin().await.expect("begun");
    DB::execute(&mut tx, "insert into business (message_id) values ('n')").await.expect("written");
    let buffered = outbox.publish(&tx, placed_as("n", "7")).await.expect("accepted");
    assert_eq!(buffered, Published::Buffered(id("n")));
    assert_eq!(tx.commit().await.expect("committed"), [Published::Stored(id("n"))]);

    assert_eq!(database.count("business").await, 2);
    assert_eq!(drain(&outbox, &Script::record()).await.handled, 2);
    assert_eq!(handled(&database).await, ["m", "n"]);
}

async fn a_rolled_back_message_never_existed<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    let write = "insert into business (message_id) values ('gone')";

    let mut tx = database.pool().begin().await.expect("begun");
    DB::execute(&mut tx, write).await.expect("written");
    outbox.publish(&mut tx, placed_as("rolled-back", "7")).await.expect("published");
    tx.rollback().await.expect("rolled back");

    let mut tx = database.pool().begin().await.expect("begun");
    outbox.publish_events(&mut tx, [Placed::new("7"), Placed::new("8")]).await.expect("published");
    drop(tx);

    let mut tx = outbox.begin().await.expect("begun");
    DB::execute(&mut tx, write).await.expect("written");
    tx.publish(placed_as("buffered", "7")).expect("accepted");
    tx.rollback().await.expect("rolled back");

    let tx = outbox.begin().await.expect("begun");
    tx.publish(placed_as("dropped", "7")).expect("accepted");
    drop(tx);

    publish(&outbox, placed_as("witness", "7")).await;
    assert_eq!(drain(&outbox, &Script::record()).await.handled, 1);
    assert_eq!(handled(&database).await, ["witness"]);
    assert_eq!(database.count("outbox_message").await, 1);
    assert_eq!(database.count("outbox_unrouted").await, 0);
    assert_eq!(database.count("business").await, 0);
}

async fn what_a_rolled_back_savepoint_published_never_existed<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;

    let mut tx = database.pool().begin().await.expect("begun");
    outbox.publish(&mut tx, placed_as("outer", "7")).await.expect("published");
    let mut inner = (*tx).begin().await.expect("a savepoint");
    outbox.publish(&mut inner, placed_as("inner", "7")).await.expect("published");
    outbox.publish_events(&mut inner, [Placed::new("7"), Placed::new("9")]).await.expect("published");
    inner.rollback().await.expect("rolled back");
    outbox.publish(&mut tx, placed_as("after", "7")).await.expect("published");
    tx.commit().await.expect("committed");

    // The other way round: a released savepoint is no commit.
    let mut tx = database.pool().begin().await.expect("begun");
    let mut inner = (*tx).begin().await.expect("a savepoint");
    outbox.publish(&mut inner, placed_as("released", "7")).await.expect("published");
    inner.commit().await.expect("released");
    tx.rollback().await.expect("rolled back");

    publish(&outbox, placed_as("witness", "7")).await;
    drain(&outbox, &Script::record()).await;
    assert_eq!(handled(&database).await, ["outer", "after", "witness"]);
    assert_eq!(database.count("outbox_message").await, 3);
}

async fn savepoints_of_an_outbox_transaction_drop_what_was_published_inside<DB: TestBackend>(
    database: TestDatabase<DB>,
) {
    let outbox = database.outbox();
    register(&outbox).await;
    let mut tx = outbox.begin().await.expect("begun");
    tx.publish(placed_as("1", "7")).expect("accepted");
    let refused = tx
        .savepoint(async |tx| {
            DB::execute(tx, "insert into business (message_id) values ('x')").await?;
            tx.publish(placed_as("2", "7"))?;
            tx.savepoint(async |tx| {
                tx.publish(placed_as("3", "7"))?;
                Ok::<_, anyhow::Error>(())
            })
            .await?;
            // A statement that fails, so that PostgreSQL refuses everything up to the rollback.
            DB::execute(tx, "insert into no_such_table values (1)").await?;
            Ok::<_, anyhow::Error>(())
        })
        .await;
    assert!(refused.expect_err("the statement failed").to_string().contains("no_such_table"));
    tx.savepoint(async |tx| {
        tx.publish(placed_as("4", "7"))?;
        let inner = tx.savepoint(async |tx| {
            tx.publish(placed_as("5", "7"))?;
            Err::<(), _>(anyhow::anyhow!("changed its mind"))
        });
        inner.await.expect_err("what the work returned");
        DB::execute(tx, "insert into business (message_id) values ('y')").await?;
        Ok::<_, anyhow::Error>(())
    })
    .await
    .expect("it went well");
    tx.publish(placed_as("6", "7")).expect("accepted");
    let stored = tx.commit().await.expect("committed");
    assert_eq!(stored, ["1", "4", "6"].map(|text| Published::Stored(id(text))));
    drain(&outbox, &Script::record()).await;
    assert_eq!(handled(&database).await, ["1", "4", "6"]);
    assert_eq!(database.texts("select message_id from business").await, ["y"]);
}

async fn events_of_nested_functions_keep_their_order<DB: TestBackend>(database: TestDatabase<DB>) {
    async fn outer<DB: TestBackend>(outbox: &Outbox<DB>, tx: &mut Transaction<'_, DB>, order: usize) {
        let key = format!("order-{}", order % 3);
        outbox.publish(&mut *tx, placed_as(&format!("{order}-1"), &key)).await.expect("published");
        inner(outbox, tx, order).await;
        outbox.publish(&mut *tx, placed_as(&format!("{order}-5"), &key)).await.expect("published");
    }

    async fn inner<DB: TestBackend>(outbox: &Outbox<DB>, tx: &mut Transaction<'_, DB>, order: usize) {
        let key = format!("order-{}", order % 3);
        for part in 2..5 {
            outbox.publish(&mut *tx, placed_as(&format!("{order}-{part}"), &key)).await.expect("published");
        }
    }

    let outbox = database.outbox();
    register(&outbox).await;
    let running = Running::start(ledger(&outbox, &Script::record()));
    for order in 0..40 {
        let mut tx = database.pool().begin().await.expect("begun");
        outer(&outbox, &mut tx, order).await;
        tx.commit().await.expect("committed");
    }
    effects(&database, 200).await;
    running.stop().await;
    let handled = database.effects().await;
    assert_eq!(handled.len(), 200);
    for key in 0..3 {
        let of_key = format!("order\u{1f}order-{key}");
        let ids = handled.iter().filter(|e| e.key.as_deref() == Some(&of_key)).map(|e| &e.message_id);
        let published = (0..40_usize).filter(|order| order % 3 == key);
        let published = published.flat_map(|order| (1..=5).map(move |part| format!("{order}-{part}")));
        assert!(ids.eq(published.collect::<Vec<_>>().iter()), "order of {of_key}");
    }
}

async fn a_list_keeps_its_order_and_its_ids<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    let list = |from: usize, to: usize| (from..to).map(|n| Placed::new(format!("{}", n % 7)));

    let mut tx = database.pool().begin().await.expect("begun");
    let one = outbox.publish_events(&mut tx, list(0, 1)).await.expect("published");
    let many = outbox.publish_events(&mut tx, list(1, 9_001)).await.expect("published");
    tx.commit().await.expect("committed");
    let tx = outbox.begin().await.expect("begun");
    let buffered = outbox.publish_events(&tx, list(9_001, 9_500)).await.expect("accepted");
    assert!(buffered.iter().all(|outcome| matches!(outcome, Published::Buffered(_))));
    let flushed = tx.commit().await.expect("committed");
    assert!(buffered.iter().map(Published::id).eq(flushed.iter().map(Published::id)));

    let all: Vec<_> = one.into_iter().chain(many).chain(flushed).collect();
    assert_eq!(all.len(), 9_500);
    assert!(all.iter().all(|outcome| matches!(outcome, Published::Stored(_))));
    // The id at each place of the list is that of the event at that place, in the order of each aggregate.
    for aggregate in 0..7_usize {
        let sql = format!("select id from outbox_message where aggregate_id = '{aggregate}' order by seq");
        let stored = database.texts(&sql).await;
        let given = all.iter().enumerate().filter(|(n, _)| n % 7 == aggregate);
        assert!(given.map(|(_, outcome)| outcome.id().as_str()).eq(stored), "aggregate {aggregate}");
    }
    assert_eq!(database.count("outbox_delivery").await, 9_500);
}

async fn an_empty_list_touches_nothing<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    // Without tables any statement would fail.
    database.execute("drop table outbox_message").await;
    let mut tx = database.pool().begin().await.expect("begun");
    assert_eq!(outbox.publish_events(&mut tx, Vec::<Placed>::new()).await.expect("nothing to do"), []);
    tx.commit().await.expect("committed");
    let tx = outbox.begin().await.expect("begun");
    assert_eq!(outbox.publish_events(&tx, Vec::<Placed>::new()).await.expect("nothing to do"), []);
    assert_eq!(tx.commit().await.expect("committed"), []);
}

async fn a_hundred_thousand_events_fit_into_one_transaction<DB: TestBackend>(database: TestDatabase<DB>) {
    const COUNT: usize = 100_000;
    let outbox = database.outbox();
    register(&outbox).await;
    let list = || (0..COUNT).map(|n| Placed::new(format!("{}", n % 1_000)));

    let mut tx = database.pool().begin().await.expect("begun");
    outbox.publish_events(&mut tx, list().take(10_000)).await.expect("published");
    tx.rollback().await.expect("rolled back");
    assert_eq!(database.count("outbox_message").await, 0);
    assert_eq!(database.count("outbox_delivery").await, 0);

    let mut tx = database.pool().begin().await.expect("begun");
    let published = outbox.publish_events(&mut tx, list()).await.expect("published");
    tx.commit().await.expect("committed");
    assert_eq!(published.len(), COUNT);
    assert_eq!(database.count("outbox_delivery").await, 100_000);
    let first = database.texts("select id from outbox_message where aggregate_id = '999' order by seq").await;
    let given = published.iter().skip(999).step_by(1_000).map(|outcome| outcome.id().as_str());
    assert!(given.eq(first));
}

async fn one_id_is_stored_once<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    let (stored, duplicate) = (Published::Stored(id("a")), Published::Duplicate(id("a")));

    // In one transaction, then in a later one; the first payload stays.
    let mut tx = database.pool().begin().await.expect("begun");
    assert_eq!(outbox.publish(&mut tx, placed_as("a", "7")).await.expect("published"), stored);
    assert_eq!(outbox.publish(&mut tx, placed_as("a", "8")).await.expect("no error"), duplicate);
    tx.commit().await.expect("committed");
    let mut tx = database.pool().begin().await.expect("begun");
    assert_eq!(outbox.publish(&mut tx, placed_as("a", "9")).await.expect("no error"), duplicate);
    // The transaction is as good as before.
    outbox.publish(&mut tx, placed_as("b", "7")).await.expect("published");
    tx.commit().await.expect("committed");

    // Buffered, and twice in one list.
    let tx = outbox.begin().await.expect("begun");
    for (name, order) in [("a", "7"), ("c", "7"), ("c", "8"), ("d", "9"), ("b", "9")] {
        tx.publish(placed_as(name, order)).expect("accepted");
    }
    let outcomes = tx.commit().await.expect("committed");
    let expected = [
        duplicate.clone(),
        Published::Stored(id("c")),
        Published::Duplicate(id("c")),
        Published::Stored(id("d")),
        Published::Duplicate(id("b")),
    ];
    assert_eq!(outcomes, expected);
    // Alone in its buffer.
    let tx = outbox.begin().await.expect("begun");
    tx.publish(placed_as("a", "7")).expect("accepted");
    assert_eq!(tx.commit().await.expect("committed"), [duplicate]);

    let stored = database.texts("select id || '@' || aggregate_id from outbox_message order by id").await;
    assert_eq!(stored, ["a@7", "b@7", "c@7", "d@9"]);
    assert_eq!(drain(&outbox, &Script::record()).await.handled, 4);
    assert_eq!(database.count("effects").await, 4);
}

async fn one_id_from_two_transactions_at_once_is_stored_once<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    for round in 0..20 {
        let name = format!("fact-{round}");
        let (first, second) = (outbox.clone(), outbox.clone());
        let mut tx = database.pool().begin().await.expect("begun");
        // Unordered, so that nothing but the id itself can make the second wait.
        let draft = || outbox::Draft::new("order.placed", "{}").id(id(&name));
        let stored = first.publish(&mut tx, draft()).await.expect("published");
        assert_eq!(stored, Published::Stored(id(&name)));
        let other = tokio::spawn({
            let draft = draft();
            async move {
                let tx = second.begin().await.expect("begun");
                tx.publish(draft).expect("accepted");
                tx.commit().await.expect("committed")
            }
        });
        somebody_waits(&database).await;
        // Half of the first are never committed, and then the second is the one.
        let expected = if round % 2 == 0 {
            tx.commit().await.expect("committed");
            Published::Duplicate(id(&name))
        } else {
            tx.rollback().await.expect("rolled back");
            Published::Stored(id(&name))
        };
        assert_eq!(other.await.expect("no panic"), [expected]);
    }
    assert_eq!(drain(&outbox, &Script::record()).await.handled, 20);
    assert_eq!(database.count("effects").await, 20);
}

async fn a_bare_connection_needs_a_transaction<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    let mut conn = database.connection().await;
    let error = outbox.publish_on(&mut conn, Placed::new("7")).await.expect_err("no transaction");
    assert_eq!(error.kind(), ErrorKind::NotInTransaction);
    assert!(error.to_string().contains("order.placed"), "{error}");
    assert!(!error.is_transient());
    assert_eq!(database.count("outbox_message").await, 0);

    let mut tx = (*conn).begin().await.expect("begun");
    outbox.publish_on(&mut tx, Placed::new("7")).await.expect("published");
    tx.rollback().await.expect("rolled back");
    assert_eq!(database.count("outbox_message").await, 0);
    let mut tx = (*conn).begin().await.expect("begun");
    outbox.publish_on(&mut tx, Placed::new("7")).await.expect("published");
    tx.commit().await.expect("committed");
    assert_eq!(database.count("outbox_message").await, 1);

    // A BEGIN as text, which sqlx knows nothing of.
    for (end, expected) in [("rollback", 1), ("commit", 2)] {
        DB::execute(&mut conn, "begin").await.expect("begun");
        outbox.publish_on_unchecked(&mut conn, Placed::new("7")).await.expect("published");
        DB::execute(&mut conn, end).await.expect(end);
        assert_eq!(database.count("outbox_message").await, expected, "{end}");
    }
}

async fn what_another_transaction_published_stays_where_one_fails<DB: TestBackend>(
    database: TestDatabase<DB>,
) {
    let outbox = database.outbox();
    register(&outbox).await;
    publish(&outbox, placed_as("before", "7")).await;
    let mut tx = outbox.begin().await.expect("begun");
    tx.publish(placed_as("lost", "7")).expect("accepted");
    DB::execute(&mut tx, "insert into no_such_table values (1)").await.expect_err("refused");
    tx.rollback().await.expect("rolled back");
    publish(&outbox, placed_as("after", "7")).await;
    drain(&outbox, &Script::record()).await;
    assert_eq!(handled(&database).await, ["before", "after"]);
}

async fn a_failed_work_of_a_transaction_leaves_nothing<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    let work = outbox.transaction(async |tx| {
        DB::execute(tx, "insert into business (message_id) values ('x')").await?;
        tx.publish(placed("7"))?;
        outbox.publish_event(&tx, Placed::new("7")).await?;
        Err::<(), _>(anyhow::anyhow!("no"))
    });
    assert_eq!(work.await.expect_err("its own error").to_string(), "no");
    assert_eq!(database.count("outbox_message").await, 0);
    assert_eq!(database.count("business").await, 0);

    let done = outbox.transaction(async |tx| {
        DB::execute(tx, "insert into business (message_id) values ('x')").await?;
        outbox.publish_event(&tx, Placed::new("7")).await?;
        Ok::<_, anyhow::Error>(7)
    });
    assert_eq!(done.await.expect("committed"), 7);
    assert_eq!(database.count("outbox_message").await, 1);
    assert_eq!(database.count("business").await, 1);
}

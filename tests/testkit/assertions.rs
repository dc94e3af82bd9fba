//! Assertions about what was published, and what they say when they fail.

use outbox::testing::{TestBackend, TestOutbox};
use outbox::{Draft, Outbox, assert_not_published, assert_nothing_published, assert_published};

use crate::{OrderPaid, OrderShipped, on_each_database, paid, publish, publish_event};

on_each_database!(
    an_open_transaction_is_seen_with_what_it_has_not_written,
    a_transaction_of_sqlx_is_seen_through_its_outbox,
    what_is_handled_was_published,
    a_failure_lists_what_was_found_instead,
    a_failure_of_an_absence_lists_what_was_found,
    a_count_and_a_key_are_checked,
    what_cannot_be_read_is_said,
    a_long_list_is_cut,
);

async fn an_open_transaction_is_seen_with_what_it_has_not_written<DB: TestBackend>(outbox: TestOutbox<DB>) {
    let mut tx = outbox.begin().await.expect("begun");
    assert_nothing_published!(&mut tx);
    tx.publish_event(paid(7, 500)).expect("accepted");
    tx.publish_event(paid(8, 900)).expect("accepted");
    let found = assert_published!(&mut tx, OrderPaid).times(2);
    assert_eq!(*found, [paid(7, 500), paid(8, 900)]);
    assert_eq!(found.messages()[1].aggregate_id.as_deref(), Some("8"));
    assert_published!(&mut tx, OrderPaid, |event| event.cents == 900).times(1);
    assert_not_published!(&mut tx, OrderPaid, |event| event.cents == 1);
    assert_not_published!(&mut tx, OrderShipped);
    // Nobody else sees it before the commit, and looking has written nothing twice.
    assert_nothing_published!(&outbox);
    tx.commit().await.expect("committed");
    assert_published!(&outbox, OrderPaid).times(2);
    let mut tx = outbox.begin().await.expect("begun");
    tx.publish_event(paid(9, 1)).expect("accepted");
    assert_published!(&mut tx, OrderPaid).times(3);
    tx.rollback().await.expect("rolled back");
    assert_published!(outbox.outbox(), OrderPaid).times(2);
}

async fn a_transaction_of_sqlx_is_seen_through_its_outbox<DB: TestBackend>(outbox: TestOutbox<DB>) {
    let mut tx = outbox.pool().begin().await.expect("begun");
    outbox.publish_event(&mut tx, paid(7, 500)).await.expect("published");
    assert_published!((&*outbox, &mut tx), OrderPaid, |event| event.order_id == 7);
    tx.rollback().await.expect("rolled back");
    assert_nothing_published!(&outbox);
}

async fn what_is_handled_was_published<DB: TestBackend>(outbox: TestOutbox<DB>) {
    publish_event(&outbox, paid(7, 500)).await;
    let report = outbox.consumers().handler::<crate::handle::accept>().drain().await.expect("drained");
    assert_eq!((report.handled, report.remaining), (1, 0));
    assert_published!(&outbox, OrderPaid).times(1);
}

/// What a failing assertion says.
pub(crate) async fn says(failing: impl Future<Output = ()> + Send + 'static) -> String {
    let panic = tokio::spawn(failing).await.expect_err("the assertion fails").into_panic();
    *panic.downcast::<String>().expect("a panic with a text")
}

/// One event that is committed and one that is not, both with ids.
async fn two<DB: TestBackend>(outbox: &Outbox<DB>) -> outbox::OutboxTx<DB> {
    let id = |id| outbox::MessageId::new(id).expect("valid");
    publish(outbox, outbox.draft(&paid(7, 500)).expect("encoded").id(id("first"))).await;
    let tx = outbox.begin().await.expect("begun");
    tx.publish(Draft::new("stock.low", "é".repeat(100)).id(id("second"))).expect("accepted");
    tx
}

const FIRST: &str = "\n  order.paid (id first, aggregate 7): {\"order_id\":7,\"cents\":500}";

async fn a_failure_lists_what_was_found_instead<DB: TestBackend>(outbox: TestOutbox<DB>) {
    let text = says({
        let outbox = outbox.outbox().clone();
        async move { drop(assert_published!(&outbox, OrderShipped)) }
    });
    assert_eq!(text.await, "no `OrderShipped` (order.shipped) was published; published was: nothing");

    let mut tx = two(&outbox).await;
    let text = says(async move {
        assert_published!(&mut tx, OrderShipped);
    });
    let second = format!("\n  stock.low (id second, to be written at the commit): {}…", "é".repeat(60));
    assert_eq!(
        text.await,
        format!("no `OrderShipped` (order.shipped) was published; published was:{FIRST}{second}")
    );

    let text = says({
        let outbox = outbox.outbox().clone();
        async move { drop(assert_published!(&outbox, OrderPaid, |event| event.cents == 5)) }
    });
    assert_eq!(
        text.await,
        format!(
            "no `OrderPaid` (order.paid) that was published is one that the closure says yes to; published was:{FIRST}"
        )
    );
}

async fn a_failure_of_an_absence_lists_what_was_found<DB: TestBackend>(outbox: TestOutbox<DB>) {
    drop(two(&outbox).await);
    let text = says({
        let outbox = outbox.outbox().clone();
        async move { assert_not_published!(&outbox, OrderPaid, |event| event.cents == 500) }
    });
    assert_eq!(text.await, format!("no `OrderPaid` (order.paid) was to be published, and this was:{FIRST}"));
    let text = says({
        let outbox = outbox.outbox().clone();
        async move { assert_nothing_published!(&outbox) }
    });
    assert_eq!(text.await, format!("nothing was to be published, and this was:{FIRST}"));
}

async fn a_count_and_a_key_are_checked<DB: TestBackend>(outbox: TestOutbox<DB>) {
    drop(two(&outbox).await);
    assert_published!(&outbox, OrderPaid).times(1).with_key("order\u{1f}7");
    let text = says({
        let outbox = outbox.outbox().clone();
        async move { drop(assert_published!(&outbox, OrderPaid).times(2)) }
    });
    assert_eq!(text.await, format!("2 were to be published, and 1 were:{FIRST}"));
    let text = says({
        let outbox = outbox.outbox().clone();
        async move { drop(assert_published!(&outbox, OrderPaid).with_key("7")) }
    });
    let text = text.await;
    assert!(text.starts_with("the key was to be \"7\", and the keys are [Some(\"order"), "{text}");
}

async fn what_cannot_be_read_is_said<DB: TestBackend>(outbox: TestOutbox<DB>) {
    let id = outbox::MessageId::new("odd").expect("valid");
    publish(&outbox, Draft::new("order.paid", r#"{"order_id":7}"#).id(id)).await;
    let text = says({
        let outbox = outbox.outbox().clone();
        async move { drop(assert_published!(&outbox, OrderPaid)) }
    });
    let text = text.await;
    assert!(text.contains("order.paid (id odd): {\"order_id\":7}"), "{text}");
    assert!(text.contains("\nodd cannot be read: ") && text.contains("cents"), "{text}");
    let text = says({
        let outbox = outbox.outbox().clone();
        async move { assert_not_published!(&outbox, OrderPaid) }
    });
    let text = text.await;
    assert!(text.starts_with("whether a `OrderPaid` (order.paid) was published cannot be told:"), "{text}");
}

async fn a_long_list_is_cut<DB: TestBackend>(outbox: TestOutbox<DB>) {
    let mut tx = outbox.begin().await.expect("begun");
    let events: Vec<_> = (0..23).map(|n| paid(n, n)).collect();
    outbox.publish_events(&mut tx, events).await.expect("published");
    let text = says(async move { assert_nothing_published!(&mut tx) }).await;
    assert_eq!(text.matches("\n  order.paid").count(), 20, "{text}");
    assert!(text.ends_with("\n  and 3 more"), "{text}");
}

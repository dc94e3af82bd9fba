//! The clock that everything due follows. It is moved by far more than a test takes, so that no real time matters.

use std::time::{Duration, SystemTime};

use outbox::testing::{TestBackend, TestOutbox};
use outbox::{Context, Dead, HandlerError, Metadata, Outbox, Report, assert_published, outbox_handler};

use crate::{OrderPaid, OrderShipped, on_each_database, paid, publish, publish_event};

const HOUR: Duration = Duration::from_hours(1);

/// Long before the hour is over, and the rest of it.
const EARLY: Duration = Duration::from_mins(20);

on_each_database!(
    a_retry_comes_after_its_pause_and_not_before,
    a_snoozed_message_comes_back,
    a_delayed_message_is_due_by_the_clock,
    what_was_published_before_the_consumer_is_delayed_too,
    what_died_later_is_due_at_once_when_it_is_requeued,
    running_consumers_notice_that_the_clock_was_moved,
    everything_that_is_due_is_drained,
    what_handlers_publish_is_drained_too,
    rates_are_not_waited_for,
);

#[outbox_handler(consumer = "billing", manual, retry(base = "1h", max = "1h"))]
async fn fails_first(_: OrderPaid, metadata: Metadata) -> Result<(), HandlerError> {
    if metadata.attempt() == 1 && metadata.aggregate_id.as_deref() == Some("7") {
        return Err("the bank is away".into());
    }
    Ok(())
}

#[outbox_handler(consumer = "billing", manual)]
async fn snoozes(_: OrderPaid) -> Result<(), HandlerError> {
    Err(HandlerError::snooze(HOUR))
}

#[outbox_handler(consumer = "billing", manual, retry(max_attempts = 1))]
async fn dies(_: OrderPaid) -> Result<(), HandlerError> {
    Err("never".into())
}

async fn drain<DB: TestBackend, H: outbox::Handler<DB>>(outbox: &Outbox<DB>) -> Report {
    outbox.consumers().handler::<H>().drain().await.expect("drained")
}

async fn a_retry_comes_after_its_pause_and_not_before<DB: TestBackend>(outbox: TestOutbox<DB>) {
    let clock = outbox.clock();
    for cents in [1, 2] {
        publish_event(&outbox, paid(7, cents)).await;
    }
    publish_event(&outbox, paid(8, 1)).await;
    let report = drain::<DB, fails_first>(&outbox).await;
    // The second of the key waits, and the other key does not.
    assert_eq!((report.retried, report.handled, report.remaining), (1, 1, 2));
    for pause in [Duration::ZERO, EARLY] {
        clock.advance(pause).await.expect("moved");
        let report = drain::<DB, fails_first>(&outbox).await;
        assert_eq!((report.retried, report.handled, report.remaining), (0, 0, 2));
    }
    clock.advance(HOUR.saturating_sub(EARLY)).await.expect("moved");
    // Without jitter, so after exactly the hour; what waits behind it is due then too.
    let report = drain::<DB, fails_first>(&outbox).await;
    assert_eq!((report.retried, report.remaining), (1, 1), "the second message's own first attempt");
    assert_eq!(report.handled, 1);
    clock.advance(HOUR).await.expect("moved");
    let report = drain::<DB, fails_first>(&outbox).await;
    assert_eq!((report.handled, report.remaining), (1, 0));
}

async fn a_snoozed_message_comes_back<DB: TestBackend>(outbox: TestOutbox<DB>) {
    publish_event(&outbox, paid(7, 1)).await;
    let report = drain::<DB, snoozes>(&outbox).await;
    assert_eq!((report.snoozed, report.remaining), (1, 1));
    outbox.clock().advance(EARLY).await.expect("moved");
    assert_eq!(drain::<DB, snoozes>(&outbox).await.snoozed, 0);
    outbox.clock().advance(HOUR).await.expect("moved");
    // It is met again, and puts itself off again.
    let report = drain::<DB, snoozes>(&outbox).await;
    assert_eq!((report.snoozed, report.remaining), (1, 1));
}

async fn a_delayed_message_is_due_by_the_clock<DB: TestBackend>(outbox: TestOutbox<DB>) {
    assert_eq!(drain::<DB, crate::handle::accept>(&outbox).await.remaining, 0);
    // Moved before, it also shifts what is published from now on.
    outbox.clock().advance(HOUR).await.expect("moved");
    let draft = |n| outbox.draft(&paid(n, n)).expect("encoded");
    publish(&outbox, draft(7).deliver_after(HOUR)).await;
    publish(&outbox, draft(8).deliver_at(SystemTime::now() + 2 * HOUR)).await;
    let mut tx = outbox.begin().await.expect("begun");
    outbox.publish(&mut tx, draft(9).deliver_after(HOUR)).await.expect("published");
    outbox.publish(&mut tx, draft(10).deliver_after(HOUR)).await.expect("published");
    tx.commit().await.expect("committed");
    assert_published!(&outbox, OrderPaid).times(4);
    outbox.clock().advance(EARLY).await.expect("moved");
    let report = drain::<DB, crate::handle::accept>(&outbox).await;
    assert_eq!((report.handled, report.remaining), (0, 4));
    outbox.clock().advance(HOUR.saturating_sub(EARLY)).await.expect("moved");
    let report = drain::<DB, crate::handle::accept>(&outbox).await;
    assert_eq!((report.handled, report.remaining), (4, 0));
}

async fn what_was_published_before_the_consumer_is_delayed_too<DB: TestBackend>(outbox: TestOutbox<DB>) {
    publish(&outbox, outbox.draft(&paid(7, 1)).expect("encoded").deliver_after(HOUR)).await;
    let report = drain::<DB, crate::handle::accept>(&outbox).await;
    assert_eq!((report.handled, report.remaining), (0, 1));
    outbox.clock().advance(HOUR).await.expect("moved");
    assert_eq!(drain::<DB, crate::handle::accept>(&outbox).await.handled, 1);
}

async fn what_died_later_is_due_at_once_when_it_is_requeued<DB: TestBackend>(outbox: TestOutbox<DB>) {
    outbox.clock().advance(HOUR).await.expect("moved");
    publish_event(&outbox, paid(7, 1)).await;
    assert_eq!(drain::<DB, dies>(&outbox).await.dead, 1);
    outbox.admin().requeue(&Dead::all()).await.expect("requeued");
    assert_eq!(drain::<DB, dies>(&outbox).await.dead, 1);
}

async fn running_consumers_notice_that_the_clock_was_moved<DB: TestBackend>(outbox: TestOutbox<DB>) {
    publish(&outbox, outbox.draft(&paid(7, 1)).expect("encoded").deliver_after(HOUR)).await;
    let mut notices = outbox.notices();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let consumers = outbox.consumers().handler::<crate::handle::accept>().build().expect("valid");
    let running = tokio::spawn(consumers.run_until(async { drop(stopped.await) }));
    outbox.clock().advance(2 * HOUR).await.expect("moved");
    let handled = async {
        while let Some(notice) = notices.next().await {
            if matches!(notice, outbox::Notice::Handled { .. }) {
                break;
            }
        }
    };
    tokio::time::timeout(Duration::from_mins(1), handled).await.expect("handled");
    drop(stop);
    assert_eq!(running.await.expect("no panic").expect("ran").handled, 1);
}

async fn everything_that_is_due_is_drained<DB: TestBackend>(outbox: TestOutbox<DB>) {
    for n in 0..20 {
        publish_event(&outbox, paid(n, n)).await;
    }
    let builder = outbox.consumers().handler::<crate::handle::accept>().handler::<fails_first>();
    let report = builder.drain().await.expect("drained");
    assert_eq!((report.handled, report.retried, report.remaining), (39, 1, 1));
}

/// Publishes a follow-up, and another payment of the same order until its cents are used up.
#[outbox_handler(consumer = "shipping", manual)]
async fn ships<DB: TestBackend>(paid: OrderPaid, ctx: &mut Context<DB>) -> Result<(), HandlerError> {
    ctx.publish_event(OrderShipped { order_id: paid.order_id })?;
    if paid.cents > 1 {
        ctx.publish_event(OrderPaid { cents: paid.cents - 1, ..paid })?;
    }
    Ok(())
}

#[outbox_handler(consumer = "tracking", manual)]
async fn tracks<DB: TestBackend>(_: OrderShipped, _: &mut Context<DB>) {}

async fn what_handlers_publish_is_drained_too<DB: TestBackend>(outbox: TestOutbox<DB>) {
    for order in 0..3 {
        publish_event(&outbox, paid(order, 4)).await;
    }
    let builder = outbox.consumers().handler::<tracks<DB>>().handler::<ships<DB>>();
    let report = builder.drain().await.expect("drained");
    // Four payments of each order, three of which follow the first, and what each of them ships.
    assert_eq!((report.handled, report.retried, report.remaining), (3 * (4 + 4), 0, 0));
    assert_published!(&outbox, OrderShipped).times(3 * 4);
    assert_published!(&outbox, OrderPaid, |paid| paid.cents == 1).times(3);
}

async fn rates_are_not_waited_for<DB: TestBackend>(outbox: TestOutbox<DB>) {
    for order in 0..5 {
        publish_event(&outbox, paid(order, 1)).await;
    }
    let limit = |options: &mut outbox::HandlerOptions| {
        options.rate = Some(outbox::Rate { messages: 1, per: 24 * HOUR });
    };
    let builder = outbox.consumers().handler::<dies>().handler::<ships<DB>>();
    let report = builder.options("billing", limit).options("shipping", limit).drain().await.expect("drained");
    assert_eq!((report.handled, report.dead), (5, 5));
}

//! One handler in a transaction of the test's.

use std::time::Duration;

use outbox::testing::{Outcome, TestOutbox, handle};
use outbox::{
    Context, HandlerError, Metadata, Outbox, OutboxEvent, State, assert_nothing_published, assert_published,
    outbox_handler,
};
use sqlx::{Sqlite, SqliteConnection};

use crate::{OrderPaid, OrderShipped, paid};

#[outbox_handler(consumer = "anybody", manual)]
pub(crate) async fn accept(_: OrderPaid) {}

#[outbox_handler(consumer = "shipping", manual)]
async fn ship(paid: OrderPaid, ctx: &mut Context<Sqlite>) -> Result<(), HandlerError> {
    sqlx::query("insert into shipped (order_id) values (?)")
        .bind(i64::try_from(paid.order_id)?)
        .execute(&mut **ctx)
        .await?;
    ctx.publish_event(OrderShipped { order_id: paid.order_id })?;
    match paid.cents {
        0 => Err("nothing was paid".into()),
        1 => panic!("one cent"),
        2 => Err(HandlerError::terminal("two cents")),
        3 => Err(HandlerError::snooze(Duration::from_mins(1))),
        _ => Ok(()),
    }
}

#[outbox_handler(consumer = "shipping", manual, retry(max_attempts = 3))]
async fn reads_its_surroundings(
    _: OrderPaid,
    metadata: Metadata,
    limit: State<u32>,
) -> Result<(), HandlerError> {
    assert_eq!((metadata.event_type.as_str(), metadata.consumer()), ("order.paid", "shipping"));
    assert_eq!(metadata.aggregate_id.as_deref(), Some("7"));
    if metadata.attempt() < *limit { Ok(()) } else { Err("too often".into()) }
}

#[outbox_handler(consumer = "shipping", manual, timeout = "100ms")]
async fn never_ends(_: OrderPaid, db: &mut SqliteConnection) -> sqlx::Result<()> {
    sqlx::query("insert into shipped (order_id) values (0)").execute(db).await?;
    std::future::pending().await
}

#[outbox_handler(consumer = "shipping", manual)]
async fn commits(_: OrderPaid, db: &mut SqliteConnection) -> sqlx::Result<()> {
    sqlx::query("insert into shipped (order_id) values (0)").execute(&mut *db).await?;
    sqlx::query("commit").execute(db).await.map(drop)
}

async fn database() -> TestOutbox<Sqlite> {
    let outbox = TestOutbox::sqlite().await.expect("made");
    let made = sqlx::query("create table shipped (order_id integer)").execute(outbox.pool()).await;
    made.expect("made");
    outbox
}

async fn shipped(conn: &mut SqliteConnection) -> i64 {
    sqlx::query_scalar("select count(*) from shipped").fetch_one(conn).await.expect("counted")
}

#[tokio::test]
async fn its_work_and_what_it_publishes_are_in_the_transaction() {
    let outbox = database().await;
    let tx = outbox.begin().await.expect("begun");
    tx.publish_event(paid(1, 1)).expect("accepted");
    let (outcome, published, mut tx) = handle::<ship>(paid(7, 500)).run(tx).await;
    assert_eq!(outcome, Outcome::Handled);
    assert_published!(&published, OrderShipped, |event| event.order_id == 7).times(1);
    assert_eq!(published.len(), 1);
    assert!(published[0].causation_id().is_some(), "the event is its cause, as it is in production");
    assert_eq!(published[0].correlation_id(), published[0].causation_id());
    assert_published!(&mut tx, OrderShipped).times(1);
    assert_published!(&mut tx, OrderPaid).times(1);
    assert_eq!(shipped(&mut tx).await, 1);
    let (outcome, _, tx) = handle::<ship>(paid(8, 500)).run(tx).await;
    assert!(outcome.is_handled());
    tx.commit().await.expect("committed");
    assert_published!(&outbox, OrderShipped).times(2);
    assert_eq!(shipped(&mut outbox.pool().acquire().await.expect("free")).await, 2);
}

#[tokio::test]
async fn nothing_of_it_is_left_after_a_rollback() {
    let outbox = database().await;
    let tx = outbox.begin().await.expect("begun");
    let (outcome, _, tx) = handle::<ship>(paid(7, 500)).run(tx).await;
    assert!(outcome.is_handled());
    tx.rollback().await.expect("rolled back");
    assert_nothing_published!(&outbox);
    assert_eq!(shipped(&mut outbox.pool().acquire().await.expect("free")).await, 0);
    // And no consumer was registered.
    let consumers: i64 = sqlx::query_scalar("select count(*) from outbox_consumer")
        .fetch_one(outbox.pool())
        .await
        .expect("counted");
    assert_eq!(consumers, 0);
}

#[tokio::test]
async fn a_failure_is_taken_back_and_says_what_would_follow() {
    let outbox = database().await;
    let mut tx = outbox.begin().await.expect("begun");
    sqlx::query("insert into shipped (order_id) values (99)").execute(&mut *tx).await.expect("written");
    for (cents, expected) in [
        (0, "Retrying { pause: .., error: \"nothing was paid\" }"),
        (1, "Retrying { pause: .., error: \"the handler panicked: one cent\" }"),
        (2, "Dead { error: \"two cents\" }"),
        (3, "Snoozed { pause: .. }"),
    ] {
        let (outcome, published, back) = handle::<ship>(paid(7, cents)).run(tx).await;
        tx = back;
        let text = format!("{outcome:?}");
        let pause = text.find("pause: ").map(|at| {
            let rest = &text[at + 7..];
            &rest[..rest.find([',', ' ']).expect("it ends")]
        });
        assert_eq!(pause.map_or(text.clone(), |pause| text.replacen(pause, "..", 1)), expected);
        assert_nothing_published!(&published);
        assert_nothing_published!(&mut tx);
        assert_eq!(shipped(&mut tx).await, 1, "what was done before stands");
    }
    tx.commit().await.expect("committed");
}

#[tokio::test]
async fn attempt_state_and_policy_are_those_that_were_given() {
    let outbox = database().await;
    let mut tx = outbox.begin().await.expect("begun");
    for (attempt, limit) in [(1, 2_u32), (2, 1), (3, 1)] {
        let run = handle::<reads_its_surroundings>(paid(7, 500)).attempt(attempt).state(limit);
        let (outcome, _, back) = run.run(tx).await;
        tx = back;
        match attempt {
            1 => assert_eq!(outcome, Outcome::Handled),
            2 => assert!(matches!(outcome, Outcome::Retrying { .. }), "{outcome:?}"),
            _ => assert_eq!(outcome, Outcome::Dead { error: "too often".into() }),
        }
    }
}

#[tokio::test]
async fn one_that_is_too_slow_is_cut_off_and_taken_back() {
    let outbox = database().await;
    let tx = outbox.begin().await.expect("begun");
    let (outcome, _, mut tx) = handle::<never_ends>(paid(7, 500)).run(tx).await;
    assert!(
        outcome.error().is_some_and(|error| error.contains("did not finish within 100ms")),
        "{outcome:?}"
    );
    assert_eq!(shipped(&mut tx).await, 0);
    tx.commit().await.expect("committed");
}

#[tokio::test]
#[should_panic(expected = "the handler ended the transaction that it runs in")]
async fn one_that_ends_the_transaction_fails_the_test() {
    let outbox = database().await;
    let tx = outbox.begin().await.expect("begun");
    handle::<commits>(paid(7, 500)).run(tx).await;
}

#[tokio::test]
#[should_panic(
    expected = "the handler `reads_its_surroundings` takes a `State<u32>`; give it with `.state(..)`"
)]
async fn a_missing_state_is_named() {
    let outbox = database().await;
    let tx = outbox.begin().await.expect("begun");
    handle::<reads_its_surroundings>(paid(7, 500)).run(tx).await;
}

#[tokio::test]
#[should_panic(expected = "the handler `ship` does not take `order.shipped`; it takes order.paid")]
async fn an_event_that_it_does_not_take_is_named() {
    let outbox = database().await;
    let tx = outbox.begin().await.expect("begun");
    handle::<ship>(OrderShipped { order_id: 7 }).run(tx).await;
}

#[cfg(feature = "postgres")]
mod postgres {
    use super::*;

    #[outbox_handler(consumer = "shipping", manual)]
    async fn ship_there(paid: OrderPaid, ctx: &mut Context<sqlx::Postgres>) -> Result<(), HandlerError> {
        sqlx::query("insert into shipped (order_id) values ($1)")
            .bind(i64::try_from(paid.order_id)?)
            .execute(&mut **ctx)
            .await?;
        ctx.publish_event(OrderShipped { order_id: paid.order_id })?;
        if paid.cents == 0 {
            // A statement that fails and is swallowed.
            let _ = sqlx::query("select 1 / 0").execute(&mut **ctx).await;
        }
        Ok(())
    }

    #[tokio::test]
    async fn a_swallowed_failure_is_one_and_the_transaction_goes_on() {
        let Some(outbox) = crate::postgres().await else { return };
        let made = sqlx::query("create table shipped (order_id bigint)").execute(outbox.pool()).await;
        made.expect("made");
        let tx = outbox.begin().await.expect("begun");
        let (outcome, _, tx) = handle::<ship_there>(paid(7, 0)).run(tx).await;
        assert!(outcome.error().is_some_and(|error| error.contains("went on")), "{outcome:?}");
        let (outcome, _, tx) = handle::<ship_there>(paid(8, 5)).run(tx).await;
        assert_eq!(outcome, Outcome::Handled);
        tx.commit().await.expect("committed");
        assert_published!(&outbox, OrderShipped).times(1);
        let left: i64 = sqlx::query_scalar("select sum(order_id)::bigint from shipped")
            .fetch_one(outbox.pool())
            .await
            .expect("read");
        assert_eq!(left, 8);
    }
}

#[cfg(feature = "mysql")]
mod mysql {
    use super::*;
    use crate::assertions::says;

    #[outbox_handler(consumer = "shipping", manual, timeout = "100ms")]
    async fn ship_there(paid: OrderPaid, ctx: &mut Context<sqlx::MySql>) -> Result<(), HandlerError> {
        sqlx::query("insert into shipped (order_id) values (?)")
            .bind(i64::try_from(paid.order_id)?)
            .execute(&mut **ctx)
            .await?;
        ctx.publish_event(OrderShipped { order_id: paid.order_id })?;
        match paid.cents {
            0 => Err("nothing was paid".into()),
            1 => std::future::pending().await,
            // A transaction that has begun already may be begun, which commits what was before.
            2 => Ok(sqlx::raw_sql("begin").execute(&mut **ctx).await.map(drop)?),
            _ => Ok(()),
        }
    }

    async fn database() -> Option<TestOutbox<sqlx::MySql>> {
        let outbox = crate::mysql().await?;
        let made = sqlx::query("create table shipped (order_id bigint)").execute(outbox.pool()).await;
        made.expect("made");
        Some(outbox)
    }

    #[tokio::test]
    async fn a_failure_is_taken_back_and_the_transaction_goes_on() {
        let Some(outbox) = database().await else { return };
        let tx = outbox.begin().await.expect("begun");
        let (outcome, published, tx) = handle::<ship_there>(paid(7, 0)).run(tx).await;
        assert_eq!(outcome.error(), Some("nothing was paid"));
        assert_nothing_published!(&published);
        let (outcome, _, tx) = handle::<ship_there>(paid(8, 5)).run(tx).await;
        assert_eq!(outcome, Outcome::Handled);
        tx.commit().await.expect("committed");
        assert_published!(&outbox, OrderShipped).times(1);
        let left: Vec<i64> =
            sqlx::query_scalar("select order_id from shipped").fetch_all(outbox.pool()).await.expect("read");
        assert_eq!(left, [8]);
    }

    #[tokio::test]
    async fn one_that_is_too_slow_or_ends_the_transaction_fails_the_test() {
        let Some(outbox) = database().await else { return };
        for (cents, expected) in
            [(1, "did not finish within 100ms"), (2, "the handler ended the transaction that it runs in")]
        {
            let tx = outbox.begin().await.expect("begun");
            let said = says(async move {
                handle::<ship_there>(paid(7, cents)).run(tx).await;
            });
            let said = said.await;
            assert!(said.contains(expected), "{said}");
        }
    }
}

/// The names that users meet.
#[allow(dead_code, reason = "compiled only")]
async fn what_is_named_can_be_named<E: OutboxEvent>(outbox: Outbox<Sqlite>, event: E) {
    let tx = outbox.begin().await.expect("begun");
    let run: outbox::testing::Handle<accept, _> = handle(event);
    let (_, _published, _tx): (Outcome, outbox::testing::FollowUps, outbox::OutboxTx<Sqlite>) =
        run.run(tx).await;
}

//! The tests that the documents show. There they are doc tests, which leave out what `#[test]` stands on; here they are compiled
//! and run, and `tests/tidy` compares them.

#![allow(
    clippy::unwrap_used,
    clippy::unused_async,
    clippy::duration_suboptimal_units,
    reason = "as a reader would write it"
)]

/// In `README.md`.
#[rustfmt::skip]
mod readme {
    use outbox::{Outbox, OutboxEvent, assert_published};
    use serde::{Deserialize, Serialize};
    use sqlx::Sqlite;

    #[derive(Debug, Serialize, Deserialize, OutboxEvent)]
    struct OrderPaid {
        order_id: u64,
        cents: u64,
    }

    #[outbox::test]
    async fn paying_publishes(outbox: Outbox<Sqlite>) -> outbox::Result<()> {
        let mut tx = outbox.begin().await?;
        tx.publish_event(OrderPaid { order_id: 7, cents: 500 })?;
        assert_published!(&mut tx, OrderPaid, |paid| paid.cents == 500).times(1);
        tx.commit().await?;
        Ok(())
    }
}

/// In `outbox/src/docs/test.md`.
#[rustfmt::skip]
mod attribute {
    use outbox::{Draft, Outbox, assert_nothing_published};
    use sqlx::{Sqlite, SqlitePool};

    #[outbox::test]
    async fn nothing_is_published_by_a_rollback(outbox: Outbox<Sqlite>, pool: SqlitePool) -> outbox::Result<()> {
        sqlx::raw_sql("create table orders (id integer primary key)").execute(&pool).await.unwrap();
        let tx = outbox.begin().await?;
        tx.publish(Draft::new("order.paid", "{}"))?;
        tx.rollback().await?;
        assert_nothing_published!(&outbox);
        Ok(())
    }
}

/// In `outbox/src/docs/testing.md`.
#[rustfmt::skip]
mod publishing {
    use outbox::{Outbox, OutboxEvent, OutboxTx, assert_not_published, assert_published};
    use serde::{Deserialize, Serialize};
    use sqlx::Sqlite;

    #[derive(Debug, Serialize, Deserialize, OutboxEvent)]
    struct OrderPaid {
        order_id: u64,
        cents: u64,
    }

    async fn pay(tx: &mut OutboxTx<Sqlite>, order_id: u64) -> outbox::Result<()> {
        tx.publish_event(OrderPaid { order_id, cents: 500 })?;
        Ok(())
    }

    #[outbox::test]
    async fn paying_publishes(outbox: Outbox<Sqlite>) -> outbox::Result<()> {
        let mut tx = outbox.begin().await?;
        pay(&mut tx, 7).await?;
        assert_published!(&mut tx, OrderPaid, |paid| paid.order_id == 7).times(1);
        assert_not_published!(&outbox, OrderPaid); // not yet
        tx.commit().await?;
        assert_eq!(assert_published!(&outbox, OrderPaid)[0].cents, 500);
        Ok(())
    }
}

/// In `outbox/src/docs/testing.md`.
#[rustfmt::skip]
mod clock {
    use std::time::Duration;

    use outbox::testing::Clock;
    use outbox::{HandlerError, Metadata, Outbox, OutboxEvent, outbox_handler};
    use serde::{Deserialize, Serialize};
    use sqlx::Sqlite;

    #[derive(Debug, Serialize, Deserialize, OutboxEvent)]
    struct OrderPaid {
        order_id: u64,
    }

    #[outbox_handler(consumer = "billing", retry(base = "1h", max = "1h"))]
    async fn book_payment(_: OrderPaid, metadata: Metadata) -> Result<(), HandlerError> {
        if metadata.attempt() == 1 { Err("the bank is away".into()) } else { Ok(()) }
    }

    #[outbox::test]
    async fn a_payment_is_booked_once_the_bank_is_back(outbox: Outbox<Sqlite>, clock: Clock<Sqlite>) -> outbox::Result<()> {
        let tx = outbox.begin().await?;
        tx.publish_event(OrderPaid { order_id: 7 })?;
        tx.commit().await?;
        assert_eq!(outbox.consumers().registered().drain().await?.retried, 1);
        clock.advance(Duration::from_secs(3600)).await?;
        assert_eq!(outbox.consumers().registered().drain().await?.handled, 1);
        Ok(())
    }
}

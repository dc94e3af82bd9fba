//! `#[outbox::test]`.

use outbox::testing::Clock;
use outbox::{Outbox, assert_nothing_published, assert_published};
use sqlx::{Sqlite, SqlitePool};

use crate::{OrderPaid, paid, publish_event};

#[outbox::test]
async fn a_test_gets_what_it_asks_for(
    outbox: Outbox<Sqlite>,
    pool: SqlitePool,
    clock: Clock<Sqlite>,
) -> outbox::Result<()> {
    assert_nothing_published!(&outbox);
    publish_event(&outbox, paid(7, 500)).await;
    assert_published!(&outbox, OrderPaid).times(1);
    let stored: i64 =
        sqlx::query_scalar("select count(*) from outbox_message").fetch_one(&pool).await.expect("read");
    assert_eq!(stored, 1);
    clock.advance(std::time::Duration::from_secs(1)).await
}

#[outbox::test]
async fn database(mut outbox: Outbox<Sqlite>) {
    // Of any name, and with any pattern.
    outbox = outbox.clone();
    assert_nothing_published!(&outbox);
}

#[outbox::test]
async fn its_database_is_its_own(outbox: Outbox<Sqlite>) {
    assert_nothing_published!(&outbox);
    publish_event(&outbox, paid(7, 500)).await;
    assert_published!(&outbox, OrderPaid).times(1);
}

#[outbox::test]
#[should_panic(expected = "no `OrderPaid` (order.paid) was published; published was: nothing")]
async fn it_fails_as_any_test_does(outbox: Outbox<Sqlite>) {
    assert_published!(&outbox, OrderPaid);
}

#[cfg(feature = "postgres")]
#[test]
#[allow(unnameable_test_items, reason = "called below, where there is a server")]
fn on_postgres_its_database_is_dropped() {
    use outbox::testing::TestOutbox;

    #[outbox::test]
    async fn inner(outbox: Outbox<sqlx::Postgres>) {
        publish_event(&outbox, paid(7, 500)).await;
        assert_published!(&outbox, OrderPaid).times(1);
    }

    let Some(url) = crate::server::<sqlx::Postgres>() else { return };
    inner();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("made");
    runtime.block_on(async {
        let outbox = TestOutbox::postgres(&url).await.expect("made");
        let name: String = sqlx::query_scalar("select current_database()::text")
            .fetch_one(outbox.pool())
            .await
            .expect("read");
        // Whoever is still connected does not keep it alive.
        let kept = outbox.pool().clone();
        drop(outbox);
        let server = sqlx::PgPool::connect(&url).await.expect("connects");
        let left: i64 = sqlx::query_scalar("select count(*) from pg_database where datname = $1")
            .bind(&name)
            .fetch_one(&server)
            .await
            .expect("read");
        assert_eq!(left, 0, "{name}");
        drop(kept);
    });
}

#[cfg(feature = "mysql")]
#[test]
#[allow(unnameable_test_items, reason = "called below, where there is a server")]
fn on_mysql_its_database_is_dropped() {
    use outbox::testing::TestOutbox;

    #[outbox::test]
    async fn inner(outbox: Outbox<sqlx::MySql>) {
        publish_event(&outbox, paid(7, 500)).await;
        assert_published!(&outbox, OrderPaid).times(1);
    }

    let Some(url) = crate::server::<sqlx::MySql>() else { return };
    inner();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("made");
    runtime.block_on(async {
        let outbox = TestOutbox::mysql(&url).await.expect("made");
        let name: String =
            sqlx::query_scalar("select database()").fetch_one(outbox.pool()).await.expect("read");
        // Whoever is still connected does not keep it alive, not even by a transaction.
        let kept = outbox.pool().clone();
        let mut open = kept.begin().await.expect("begun");
        outbox.publish_event(&mut open, paid(7, 500)).await.expect("published");
        drop(outbox);
        let server = sqlx::MySqlPool::connect(&url).await.expect("connects");
        let left: i64 =
            sqlx::query_scalar("select count(*) from information_schema.schemata where schema_name = ?")
                .bind(&name)
                .fetch_one(&server)
                .await
                .expect("read");
        assert_eq!(left, 0, "{name}");
        drop((open, kept));
    });
}

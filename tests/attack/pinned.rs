//! A transaction that somebody leaves open keeps everything that is deleted: the work must not grow with it.

use std::time::Duration;

use outbox::{ConsumerConfig, Draft};
use outbox_tests::worker::{Chaos, PLACED, Third};
use outbox_tests::{TestDatabase, eventually};
use sqlx::Postgres;

#[tokio::test]
async fn the_guard_is_not_searched_through_all_that_it_has_guarded() {
    const MESSAGES: i64 = 400;
    let Some(database) = TestDatabase::<Postgres>::migrated().await else { return };
    let outbox = database.outbox();
    let tx = outbox.begin().await.expect("begun");
    for _ in 0..MESSAGES {
        tx.publish(Draft::new(PLACED.event_type, "{}")).expect("accepted");
    }
    tx.commit().await.expect("committed");

    let begin = "begin isolation level repeatable read";
    let mut report = database.pool().begin_with(begin).await.expect("begun");
    let sql = "select count(*) from outbox_message";
    let count: i64 = sqlx::query_scalar(sql).fetch_one(&mut *report).await.expect("counted");
    assert_eq!(count, MESSAGES);
    let config = ConsumerConfig { executors: 1, ..ConsumerConfig::default() };
    let consumers = outbox.consumers().handler::<Third>().state(Chaos::default()).config(config);
    // A guard for each message.
    let consumers = consumers.options("third", |options| options.group = 1);
    let run = consumers.build().expect("complete").run_until_idle().await.expect("nothing is in its way");
    assert_eq!(i64::try_from(run.handled).expect("a small number"), MESSAGES);

    // A server's process hands in its counts when it ends, and ours ended with the run.
    let counted =
        "select coalesce(sum(n_tup_del), 0)::bigint from pg_stat_user_tables where relname = 'outbox_guard'";
    let limit = Duration::from_mins(1);
    eventually("the server's counts", limit, async || database.number(counted).await >= MESSAGES).await;
    let read =
        "select coalesce(sum(idx_blks_hit + idx_blks_read + heap_blks_hit + heap_blks_read), 0)::bigint
                from pg_statio_user_tables where relname = 'outbox_guard'";
    let pages = database.number(read).await / MESSAGES;
    crate::show(&format!("PostgreSQL: {pages} pages of the guard a message beside a pinned snapshot"));
    assert!(pages < 40, "{pages} pages a message, where a search for one entry needs a handful");
    report.rollback().await.expect("rolled back");
}

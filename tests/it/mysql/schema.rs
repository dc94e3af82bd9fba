//! The catalog: bytes and engines, and what a user of few rights can do.

use outbox::{Config, ErrorKind, Outbox, Tables};
use outbox_tests::{TestBackend as _, TestDatabase, mysql};
use sqlx::MySql;
use sqlx::mysql::MySqlPoolOptions;

use super::database;
use crate::common::*;

#[tokio::test]
async fn every_text_that_is_compared_is_compared_by_its_bytes() {
    let Some(database) = database().await else { return };
    let indexed = "select concat_ws('.', s.table_name, s.column_name) from information_schema.statistics s \
                   join information_schema.columns c using (table_schema, table_name, column_name) \
                   where s.table_schema = database() and s.table_name like 'outbox%' and c.collation_name is not null";
    assert_eq!(database.texts(indexed).await, [] as [&str; 0]);
    let bytes = "select count(*) from information_schema.columns \
                 where table_schema = database() and table_name like 'outbox%' and data_type = 'varbinary'";
    assert!(database.number(bytes).await >= 9, "the query above sees the columns");
    // Where 'a' equals 'a ', the second is a duplicate.
    let outbox = database.outbox();
    for name in ["a", "a ", "A", "ä", "a\u{308}"] {
        publish(&outbox, placed_as(name, name)).await;
    }
    assert_eq!(database.count("outbox_message").await, 5);
}

#[tokio::test]
async fn every_table_is_transactional() {
    let Some(database) = database().await else { return };
    let others = "select table_name from information_schema.tables \
                  where table_schema = database() and table_name like 'outbox%' and engine <> 'InnoDB'";
    assert_eq!(database.texts(others).await, [] as [&str; 0]);
}

#[tokio::test]
async fn a_missing_database_is_an_error_that_names_it() {
    let Some(database) = TestDatabase::<MySql>::empty().await else { return };
    let tables = Tables::new("not_there", "").expect("a valid name");
    let outbox = database.outbox_with(Config { tables, ..Config::default() });
    let error = outbox.migrate().await.expect_err("no such database");
    assert!(whole(&error).contains("not_there"), "{}", whole(&error));
    let mut tx = database.pool().begin().await.expect("begun");
    let error = outbox.publish(&mut tx, placed("7")).await.expect_err("no such database");
    assert_eq!(error.kind(), ErrorKind::NotMigrated);
}

/// What the rights on one database are enough for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_of_this_database_alone_can_do_everything() {
    let Some(database) = TestDatabase::<MySql>::empty().await else { return };
    let user = format!("u_{}", database.address().rsplit('_').take(2).collect::<Vec<_>>().join("_"));
    let made = format!(
        "create user '{user}'@'%' identified by 'secret'; create user '{user}'@'localhost' identified by 'secret'; \
         grant all on {0}.* to '{user}'@'%'; grant all on {0}.* to '{user}'@'localhost'",
        database.address()
    );
    database.execute(&made).await;
    let options = mysql::options(database.address()).expect("there is a server");
    let options = options.username(&user).password("secret");
    let pool = MySqlPoolOptions::new().max_connections(5).connect_with(options).await.expect("connected");
    let outbox: Outbox<MySql> = Outbox::new(pool.clone());
    outbox.migrate().await.expect("migrated");
    MySql::create_ledger(&mut *pool.acquire().await.expect("connected")).await.expect("made");
    register(&outbox).await;
    publish(&outbox, placed_as("m", "7")).await;
    let slow = Script::<MySql>::new(|ctx| {
        Box::pin(async move {
            record(ctx).await?;
            if ctx.metadata().attempt() == 1 {
                // Its connection is ended by another one of the same user.
                MySql::texts(ctx, "select cast(sleep(300) as char)").await?;
            }
            Ok(())
        })
    });
    let consumers = ledger(&outbox, &slow).options("ledger", |options| {
        options.timeout = std::time::Duration::from_millis(300);
    });
    let running = Running::start(consumers);
    settled(&database).await;
    running.stop().await;
    assert_eq!(handled(&database).await, ["m"]);
    pool.close().await;
    database.execute(&format!("drop user '{user}'@'%', '{user}'@'localhost'")).await;
}

//! The catalog: what the tables may not contain, and what a restore may lack.

use outbox::{Config, ErrorKind, Outbox, Tables};
use outbox_tests::{TestBackend as _, TestDatabase};
use sqlx::Postgres;

use super::database;
use crate::common::*;

#[tokio::test]
async fn no_column_belongs_to_this_cluster_only() {
    let Some(database) = database().await else { return };
    // Transaction ids, log positions and object ids mean nothing after a restore elsewhere.
    let bound = "select c.relname || '.' || a.attname from pg_attribute a join pg_class c on c.oid = a.attrelid \
                 where c.relname like 'outbox%' and c.relkind in ('r', 'i') and a.attnum > 0 and not a.attisdropped \
                 and a.atttypid in ('xid'::regtype, 'xid8'::regtype, 'pg_lsn'::regtype, 'oid'::regtype, \
                                    'regclass'::regtype, 'tid'::regtype, 'cid'::regtype, 'pg_snapshot'::regtype)";
    assert_eq!(database.texts(bound).await, [] as [&str; 0]);
    let columns = "select count(*) from information_schema.columns where table_name like 'outbox%'";
    assert!(database.number(columns).await > 40, "the query above sees the tables");
}

#[tokio::test]
async fn every_text_that_is_compared_is_compared_by_its_bytes() {
    let Some(database) = database().await else { return };
    let indexed = "select c.relname || '.' || a.attname from pg_index i join pg_class c on c.oid = i.indrelid \
                   join pg_attribute a on a.attrelid = c.oid and a.attnum = any(i.indkey) \
                   where c.relname like 'outbox%' and a.atttypid = 'text'::regtype \
                   and a.attcollation <> (select oid from pg_collation where collname = 'C')";
    assert_eq!(database.texts(indexed).await, [] as [&str; 0]);
    let named = "select table_name || '.' || column_name from information_schema.columns \
                 where table_name like 'outbox%' and data_type = 'text' \
                 and column_name in ('id', 'message_id', 'msg_key', 'event_type', 'name', 'topic', 'aggregate_id') \
                 and collation_name is distinct from 'C'";
    assert_eq!(database.texts(named).await, [] as [&str; 0]);
    let texts = "select count(*) from information_schema.columns where table_name like 'outbox%' \
                 and data_type = 'text' and collation_name = 'C'";
    assert!(database.number(texts).await >= 9, "the queries above see the columns");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_schema_is_an_error_that_names_it() {
    let Some(database) = TestDatabase::<Postgres>::empty().await else { return };
    let tables = Tables::new("not_there", "").expect("a valid name");
    let outbox = database.outbox_with(Config { tables, ..Config::default() });
    let error = outbox.migrate().await.expect_err("no such schema");
    assert!(whole(&error).contains("not_there"), "{}", whole(&error));
    let mut tx = database.pool().begin().await.expect("begun");
    let error = outbox.publish(&mut tx, placed("7")).await.expect_err("no such schema");
    assert_eq!(error.kind(), ErrorKind::NotMigrated);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_search_path_of_application_and_handlers_is_their_own_matter() {
    let Some(database) = database().await else { return };
    register(&database.outbox()).await;
    // A table of the library's name in a schema that comes first, and a path without public.
    database.execute("create schema trap; create table trap.outbox_message (x int); create table trap.outbox_guard (x int)").await;
    let options = outbox_tests::postgres::options(database.address()).expect("there is a server");
    let options = options.options([("search_path", "trap,pg_catalog")]);
    let pool = sqlx::postgres::PgPoolOptions::new().connect_with(options).await.expect("connects");
    let outbox = Outbox::new(pool);
    publish(&outbox, placed_as("m", "7")).await;
    let script = Script::<Postgres>::new(|ctx| {
        Box::pin(async move {
            let effect = effect(ctx);
            let sql = format!(
                "insert into public.effects (message_id, consumer, worker) values ('{}', '{}', 'path ' || current_setting('search_path'))",
                effect.message_id, effect.consumer
            );
            Ok(Postgres::execute(ctx, &sql).await?)
        })
    });
    assert_eq!(drain(&outbox, &script).await.handled, 1);
    let effects = database.effects().await;
    assert_eq!((&*effects[0].message_id, &*effects[0].worker), ("m", "path trap,pg_catalog"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_cannot_hold_every_text_is_refused() {
    let Some(database) = TestDatabase::<Postgres>::empty().await else { return };
    let name = format!("{}_latin1", database.address());
    let create =
        format!("create database {name} encoding 'LATIN1' template template0 lc_collate 'C' lc_ctype 'C'");
    database.execute(&create).await;
    let pool = Postgres::connect(&name, 1).await.expect("it is there");
    let refused = Outbox::new(pool.clone()).migrate().await;
    pool.close().await;
    database.execute(&format!("drop database {name} with (force)")).await;
    let error = refused.expect_err("no text of another language could be stored");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("LATIN1"), "{error}");
}

//! The library's own tables: made once, by whoever comes first, and checked before anything runs.

use std::sync::Arc;

use outbox::{Config, ErrorKind, SchemaStatus, Tables};
use outbox_tests::{TestBackend, TestDatabase};
use tokio::sync::Barrier;

use crate::child;
use crate::common::*;

on_each_database!(
    a_newer_schema_is_ready_for_an_older_build,
    missing_rows_of_the_migration_are_noticed_and_nothing_is_written;
    empty: an_empty_database_is_migrated_once,
    tasks_that_migrate_at_once_do_it_once,
    processes_that_migrate_at_once_do_it_once,
    the_printed_schema_is_the_migrated_one,
    nothing_starts_or_is_published_on_missing_or_old_tables,
    names_that_are_no_identifiers_are_refused,
);

async fn an_empty_database_is_migrated_once<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    assert_eq!(outbox.schema_status().await.expect("asked"), SchemaStatus::Missing);
    let first = outbox.migrate().await.expect("migrated");
    assert_eq!(first.applied, [1]);
    assert_eq!(outbox.schema_status().await.expect("asked"), SchemaStatus::Ready { version: first.version });
    let again = outbox.migrate().await.expect("nothing to do");
    assert_eq!((again.applied.len(), again.version), (0, first.version));
}

async fn tasks_that_migrate_at_once_do_it_once<DB: TestBackend>(database: TestDatabase<DB>) {
    let start = Arc::new(Barrier::new(8));
    let mut tasks = Vec::new();
    for n in 0..8 {
        let outbox = if n % 2 == 0 { database.outbox() } else { elsewhere(&database).await };
        let start = start.clone();
        tasks.push(tokio::spawn(async move {
            start.wait().await;
            outbox.migrate().await.expect("migrated").applied.len()
        }));
    }
    let mut applied = 0;
    for task in tasks {
        applied += task.await.expect("no panic");
    }
    assert_eq!(applied, 1);
}

async fn processes_that_migrate_at_once_do_it_once<DB: TestBackend>(database: TestDatabase<DB>) {
    let children: Vec<_> = (0..2).map(|_| child("migrate", &database, &[])).collect();
    for mut child in children {
        let status = tokio::task::spawn_blocking(move || child.wait()).await.expect("no panic");
        assert!(status.expect("it was waited for").success());
    }
    let status = database.outbox().schema_status().await.expect("asked");
    assert!(matches!(status, SchemaStatus::Ready { .. }), "{status:?}");
    assert_eq!(database.count("outbox_migration").await, 1);
}

async fn the_printed_schema_is_the_migrated_one<DB: TestBackend>(database: TestDatabase<DB>) {
    if is_postgres::<DB>() {
        database.execute("create schema printed; create schema migrated").await;
    }
    // On PostgreSQL beside each other in two schemas, elsewhere under two prefixes.
    let outbox = |name: &str| {
        let tables =
            if is_postgres::<DB>() { Tables::new(name, "") } else { Tables::new("", &format!("{name}_")) };
        database.outbox_with(Config { tables: tables.expect("valid names"), ..Config::default() })
    };
    let (printed, migrated) = (outbox("printed"), outbox("migrated"));
    database.execute(&printed.schema_sql()).await;
    assert_eq!(migrated.migrate().await.expect("migrated").applied, [1]);
    assert_eq!(printed.migrate().await.expect("nothing to do").applied, [] as [i32; 0]);
    assert_eq!(printed.schema_status().await.expect("asked"), migrated.schema_status().await.expect("asked"));

    let objects = async |name: &str| {
        let sql = if is_mysql::<DB>() {
            format!(
                "select concat_ws(' ', replace(c.table_name, '{name}_', ''), c.ordinal_position, c.column_name, c.column_type, \
                 c.column_default, c.is_nullable, c.column_key, t.engine, c.collation_name) \
                 from information_schema.columns c join information_schema.tables t using (table_schema, table_name) \
                 where c.table_schema = database() and c.table_name like '{name}\\_%' order by 1"
            )
        } else if is_postgres::<DB>() {
            format!(
                "select relname::text || relkind::text || coalesce((select string_agg(attname || format_type(atttypid, atttypmod), \
                 ',' order by attnum) from pg_attribute where attrelid = c.oid and attnum > 0), '') \
                 from pg_class c where relnamespace = '{name}'::regnamespace order by 1"
            )
        } else {
            format!(
                "select replace(sql, '{name}_', '') from sqlite_master where name like '{name}\\_%' escape '\\' order by name"
            )
        };
        database.texts(&sql).await
    };
    let one = objects("printed").await;
    assert!(one.len() >= 10, "{one:?}");
    assert_eq!(one, objects("migrated").await);
    register_and_handle(&database, &printed).await;
}

async fn register_and_handle<DB: TestBackend>(database: &TestDatabase<DB>, outbox: &outbox::Outbox<DB>) {
    DB::create_ledger(&mut *database.connection().await).await.expect("the ledger can be made");
    register(outbox).await;
    publish(outbox, placed_as("m", "7")).await;
    assert_eq!(drain(outbox, &Script::record()).await.handled, 1);
}

async fn nothing_starts_or_is_published_on_missing_or_old_tables<DB: TestBackend>(
    database: TestDatabase<DB>,
) {
    let outbox = database.outbox();
    let start = async || {
        let consumers = ledger(&outbox, &Script::record()).build().expect("complete");
        let error = consumers.run_once().await.expect_err("not migrated");
        assert_eq!(error.kind(), ErrorKind::NotMigrated);
        assert!(error.to_string().contains("migrate()"), "{error}");
        assert!(!error.is_transient());
        error.to_string()
    };
    assert!(start().await.contains("missing"));
    let mut tx = database.pool().begin().await.expect("begun");
    let error = outbox.publish(&mut tx, placed("7")).await.expect_err("not migrated");
    assert_eq!(error.kind(), ErrorKind::NotMigrated);
    assert!(error.to_string().contains("migrate()"), "{error}");
    tx.rollback().await.expect("rolled back");
    let tx = outbox.begin().await.expect("begun");
    tx.publish(placed("7")).expect("accepted");
    tx.publish(placed("8")).expect("accepted");
    assert_eq!(tx.commit().await.expect_err("not migrated").kind(), ErrorKind::NotMigrated);

    outbox.migrate().await.expect("migrated");
    database.execute("update outbox_migration set version = 0").await;
    assert_eq!(outbox.schema_status().await.expect("asked"), SchemaStatus::Outdated { version: 0 });
    assert!(start().await.contains("version 0"));
    database.execute("update outbox_migration set version = 1").await;
    ledger(&outbox, &Script::record()).build().expect("complete").run_once().await.expect("it ran");
}

async fn a_newer_schema_is_ready_for_an_older_build<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    database.execute("insert into outbox_migration (version) values (1000)").await;
    assert_eq!(outbox.schema_status().await.expect("asked"), SchemaStatus::Ready { version: 1000 });
    assert_eq!(outbox.migrate().await.expect("nothing to do").applied, [] as [i32; 0]);
    register(&outbox).await;
    publish(&outbox, placed_as("m", "7")).await;
    assert_eq!(drain(&outbox, &Script::record()).await.handled, 1);
}

async fn missing_rows_of_the_migration_are_noticed_and_nothing_is_written<DB: TestBackend>(
    database: TestDatabase<DB>,
) {
    let outbox = database.outbox();
    register(&outbox).await;
    // SQLite needs no such rows.
    let tables: &[&str] = by_database::<DB, _>(
        &[][..],
        &["outbox_order_slot", "outbox_registry"],
        // Publishing needs nothing of the registry there.
        &["outbox_order_slot"],
    );
    for table in tables {
        database.execute(&format!("create table backup as select * from {table}; delete from {table}")).await;
        let mut tx = database.pool().begin().await.expect("begun");
        let error = outbox.publish(&mut tx, placed("7")).await.expect_err("rows are missing");
        assert_eq!(error.kind(), ErrorKind::NotMigrated, "{table}: {error}");
        assert!(error.to_string().contains("migrate()"), "{error}");
        let error = outbox.publish_events(&mut tx, [Placed::new("7"), Placed::new("8")]).await;
        assert_eq!(error.expect_err("rows are missing").kind(), ErrorKind::NotMigrated, "{table}");
        tx.commit().await.expect("committed");
        assert_eq!(database.count("outbox_message").await, 0, "{table}");
        assert_eq!(database.count("outbox_delivery").await, 0, "{table}");
        database.execute(&format!("insert into {table} select * from backup; drop table backup")).await;
    }
    publish(&outbox, placed("7")).await;
    assert_eq!(drain(&outbox, &Script::record()).await.handled, 1);
}

async fn names_that_are_no_identifiers_are_refused<DB: TestBackend>(database: TestDatabase<DB>) {
    let long = "p".repeat(31);
    for (schema, prefix) in [
        ("a\"b", ""),
        ("a;drop table x", ""),
        ("", "A"),
        ("", "1a"),
        ("", "a-b"),
        ("", "a b"),
        ("ä", ""),
        ("", long.as_str()),
        ("", "'"),
    ] {
        assert_eq!(Tables::new(schema, prefix).expect_err("refused").kind(), ErrorKind::Config);
    }
    // The longest prefix there may be still makes names that fit.
    let tables = Tables::new("", &"p".repeat(30)).expect("valid");
    let outbox = database.outbox_with(Config { tables, ..Config::default() });
    outbox.migrate().await.expect("migrated");
    register_and_handle(&database, &outbox).await;
}

//! Publishes that another client of the database executes: `tokio-postgres`.

use outbox::{Export, Parameter};
use outbox_tests::TestDatabase;
use sqlx::{Connection as _, Postgres};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, NoTls, Transaction};

use super::database;
use crate::common::*;

/// `None` where the server listens on a socket only.
async fn client(database: &TestDatabase<Postgres>) -> Option<Client> {
    let options = outbox_tests::postgres::options(database.address()).expect("there is a server");
    if options.get_host().starts_with('/') {
        return None;
    }
    let mut config = Config::new();
    config.host(options.get_host()).port(options.get_port()).user(options.get_username());
    config.dbname(database.address());
    let url = sqlx::ConnectOptions::to_url_lossy(&options);
    if let Some(password) = url.password() {
        config.password(password);
    }
    let (client, connection) = config.connect(NoTls).await.expect("connects");
    tokio::spawn(connection);
    Some(client)
}

async fn execute(tx: &Transaction<'_>, publish: &Export) -> Result<bool, tokio_postgres::Error> {
    let mut stored = true;
    for statement in &publish.statements {
        let values = statement.parameters.iter().map(|parameter| match parameter {
            Parameter::Text(text) => text as &(dyn ToSql + Sync),
            Parameter::Int(number) => number,
            Parameter::BigInt(number) => number,
            Parameter::Bytes(bytes) => bytes,
        });
        let values: Vec<_> = values.collect();
        let affected = tx.execute(&statement.sql, &values).await?;
        stored &= statement.check(affected).expect("a possible number");
    }
    Ok(stored)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_client_publishes_in_its_transaction() {
    let Some(database) = database().await else { return };
    let Some(mut client) = client(&database).await else { return };
    let outbox = database.outbox();
    register(&outbox).await;
    for (id, end, stored) in
        [("a", "rollback", true), ("a", "commit", true), ("a", "commit", false), ("b", "commit", true)]
    {
        let tx = client.transaction().await.expect("begun");
        let publish = outbox.export(placed_as(id, "7")).expect("accepted");
        assert_eq!(execute(&tx, &publish).await.expect("executed"), stored);
        if end == "commit" { tx.commit().await } else { tx.rollback().await }.expect("ended");
    }
    assert_eq!(drain(&outbox, &Script::record()).await.handled, 2);
    assert_eq!(handled(&database).await, ["a", "b"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_that_is_older_than_a_registration_is_an_error_in_another_client() {
    let Some(database) = database().await else { return };
    let Some(mut client) = client(&database).await else { return };
    let outbox = database.outbox();
    let level = tokio_postgres::IsolationLevel::RepeatableRead;
    let tx = client.build_transaction().isolation_level(level).start().await.expect("begun");
    tx.execute("select 1", &[]).await.expect("it has its snapshot");
    register(&outbox).await;
    let publish = outbox.export(placed_as("m", "7")).expect("accepted");
    let error = execute(&tx, &publish).await.expect_err("stale");
    let error = error.as_db_error().expect("the server's");
    assert!(error.message().contains("outbox: the snapshot is older than a registration"), "{error}");
    tx.rollback().await.expect("ended");
    let tx = client.build_transaction().isolation_level(level).start().await.expect("begun");
    assert!(execute(&tx, &publish).await.expect("executed"));
    tx.commit().await.expect("committed");
    assert_eq!(drain(&outbox, &Script::record()).await.handled, 1);
}

/// Whatever plan the server keeps, the error is met when it is one.
#[tokio::test]
async fn the_error_of_an_exported_publish_is_met_under_no_plan_that_is_none() {
    let Some(database) = database().await else { return };
    let outbox = database.outbox();
    let mut conn = database.connection().await;
    for mode in ["force_custom_plan", "force_generic_plan"] {
        let mut tx = conn.begin().await.expect("begun");
        let set = format!("set local plan_cache_mode = {mode}");
        sqlx::raw_sql(sqlx::AssertSqlSafe(set)).execute(&mut *tx).await.expect("set");
        let publish = outbox.export(placed_as(mode, "7")).expect("accepted");
        let stored =
            <Postgres as outbox_tests::TestBackend>::execute_statement(&mut tx, &publish.statements[0]);
        assert_eq!(stored.await.expect("executed"), 1);
        tx.commit().await.expect("committed");
    }
}

//! A database of one's own on the server that `OUTBOX_TEST_MYSQL_URL` names, MySQL or MariaDB.

use std::io::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};
use sqlx::{AssertSqlSafe, Connection as _, MySql, MySqlConnection, MySqlPool, Row as _, raw_sql};

use super::{Effect, TestBackend, executes};

/// The table of the connections that the processes of a test have had: the server cannot tell whose they are.
pub const WORKER_CONNECTIONS: &str = "worker_connection";

impl TestBackend for MySql {
    executes!();

    const SLOW_QUERY: &'static str = "select cast(sleep(0.05) as char)";

    type Keep = Drops;

    async fn create() -> Option<(Drops, String)> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let server = server()?;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970").as_millis();
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("t_{since:x}_{}_{number}", std::process::id());
        let sql = format!("create database {name}");
        administer(&server, &sql).await.expect("the user of OUTBOX_TEST_MYSQL_URL may create databases");
        Some((Drops { server, name: name.clone() }, name))
    }

    async fn connect(address: &str, size: u32) -> sqlx::Result<MySqlPool> {
        let options = options(address).expect("a database was made, so there is a server");
        MySqlPoolOptions::new().max_connections(size).connect_with(options).await
    }

    async fn create_ledger(conn: &mut MySqlConnection) -> sqlx::Result<()> {
        // As bytes, which compare as bytes; the number is the order of the writes.
        let sql = "create table effects (id bigint not null auto_increment primary key, \
                   message_id varbinary(300) not null, consumer varbinary(300) not null, \
                   msg_key varbinary(600), worker varbinary(300) not null) engine = InnoDB; \
                   create table business (message_id varbinary(300) not null) engine = InnoDB";
        Self::execute(conn, sql).await?;
        let sql = format!("create table {WORKER_CONNECTIONS} (id bigint not null) engine = InnoDB");
        Self::execute(conn, &sql).await
    }

    async fn execute(conn: &mut MySqlConnection, sql: &str) -> sqlx::Result<()> {
        raw_sql(AssertSqlSafe(sql)).execute(conn).await.map(drop)
    }

    async fn number(conn: &mut MySqlConnection, sql: &str) -> sqlx::Result<i64> {
        // What is true or false may be a number that has no sign.
        let row = raw_sql(AssertSqlSafe(sql)).fetch_one(conn).await?;
        row.try_get::<i64, _>(0).or_else(|_| Ok(row.try_get::<u64, _>(0)?.cast_signed()))
    }

    async fn texts(conn: &mut MySqlConnection, sql: &str) -> sqlx::Result<Vec<String>> {
        // The library's own texts are bytes here.
        let rows = sqlx::query(AssertSqlSafe(sql)).fetch_all(conn).await?;
        rows.iter().map(|row| Ok(String::from_utf8_lossy(row.try_get(0)?).into_owned())).collect()
    }

    async fn insert_effect(conn: &mut MySqlConnection, effect: &Effect) -> sqlx::Result<()> {
        sqlx::query("insert into effects (message_id, consumer, msg_key, worker) values (?, ?, ?, ?)")
            .bind(&effect.message_id)
            .bind(&effect.consumer)
            .bind(&effect.key)
            .bind(&effect.worker)
            .execute(conn)
            .await
            .map(drop)
    }

    async fn effects(conn: &mut MySqlConnection) -> sqlx::Result<Vec<Effect>> {
        type Bytes = Vec<u8>;
        let rows = sqlx::query_as("select message_id, consumer, msg_key, worker from effects order by id");
        let rows: Vec<(Bytes, Bytes, Option<Bytes>, Bytes)> = rows.fetch_all(conn).await?;
        let text = |bytes: Bytes| String::from_utf8(bytes).expect("texts were written");
        let effects = rows.into_iter().map(|(message_id, consumer, key, worker)| Effect {
            message_id: text(message_id),
            consumer: text(consumer),
            key: key.map(text),
            worker: text(worker),
        });
        Ok(effects.collect())
    }
}

/// Drops the database.
#[derive(Debug)]
pub struct Drops {
    server: MySqlConnectOptions,
    name: String,
}

impl Drop for Drops {
    fn drop(&mut self) {
        let (server, name) = (self.server.clone(), self.name.clone());
        // A thread of its own: the test's runtime may be this thread's, or be ending.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime can be made").block_on(async {
                tokio::time::timeout(Duration::from_secs(10), drop_database(&server, &name)).await
            })
        });
        // A database that stays behind is in nobody's way.
        let _ = dropping.join();
    }
}

/// Whoever is still connected to it: a transaction that is open there would be waited for.
async fn drop_database(server: &MySqlConnectOptions, name: &str) -> sqlx::Result<()> {
    let mut conn = MySqlConnection::connect_with(server).await?;
    let connected = format!("select id from information_schema.processlist where db = '{name}'");
    for row in raw_sql(AssertSqlSafe(connected)).fetch_all(&mut conn).await? {
        let id = row.try_get::<i64, _>(0).or_else(|_| row.try_get::<u64, _>(0).map(u64::cast_signed))?;
        // It may have gone by itself.
        let _ = MySql::execute(&mut conn, &format!("kill {id}")).await;
    }
    MySql::execute(&mut conn, &format!("drop database if exists {name}")).await?;
    conn.close().await
}

async fn administer(server: &MySqlConnectOptions, sql: &str) -> sqlx::Result<()> {
    let mut conn = MySqlConnection::connect_with(server).await?;
    MySql::execute(&mut conn, sql).await?;
    conn.close().await
}

/// Connects as a process of a test, whose connections are recorded.
///
/// # Errors
/// Where it cannot.
///
/// # Panics
/// Where no server is given.
pub async fn connect_worker(address: &str) -> sqlx::Result<MySqlPool> {
    let options = options(address).expect("a database was made, so there is a server");
    let record = format!("insert into {WORKER_CONNECTIONS} (id) values (connection_id())");
    let pool = MySqlPoolOptions::new().max_connections(1).after_connect(move |conn, _| {
        let record = record.clone();
        Box::pin(async move { MySql::execute(conn, &record).await })
    });
    pool.connect_with(options).await
}

/// How to connect to a database of the test server.
#[must_use]
pub fn options(database: &str) -> Option<MySqlConnectOptions> {
    server().map(|server| server.database(database))
}

fn server() -> Option<MySqlConnectOptions> {
    const VARIABLE: &str = "OUTBOX_TEST_MYSQL_URL";
    match std::env::var(VARIABLE).ok().filter(|url| !url.is_empty()) {
        Some(url) => {
            let options: MySqlConnectOptions = url.parse().expect("OUTBOX_TEST_MYSQL_URL is a URL of MySQL");
            Some(options)
        }
        None if std::env::var("OUTBOX_REQUIRE_SERVERS").is_ok_and(|required| required == "1") => {
            panic!("{VARIABLE} is not set and OUTBOX_REQUIRE_SERVERS is 1")
        }
        None => {
            let test = std::thread::current().name().unwrap_or("a test").to_owned();
            // Not by `eprintln!`, which the test harness keeps to itself when a test passes.
            let _ = writeln!(std::io::stderr(), "SKIPPED mysql: {test} ({VARIABLE} is not set)");
            None
        }
    }
}

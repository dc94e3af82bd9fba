//! A database of one's own on the server that `OUTBOX_TEST_POSTGRES_URL` names.

use std::io::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sqlx::postgres::{PgConnectOptions, PgPoolOptions, PgSslMode};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool, Postgres, raw_sql};

use super::{TestBackend, alike, executes};

/// The name under which the processes of a test are seen by the server.
pub const WORKER_APPLICATION: &str = "outbox-test-worker";

impl TestBackend for Postgres {
    const SLOW_QUERY: &'static str = "select pg_sleep(0.05)::text";

    type Keep = Drops;

    async fn create() -> Option<(Drops, String)> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let server = server()?;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970").as_millis();
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("t_{since:x}_{}_{number}", std::process::id());
        // Of template0, to which nobody can be connected: a database that somebody uses cannot be copied.
        let sql = format!("create database {name} template template0");
        administer(&server, &sql).await.expect("the user of OUTBOX_TEST_POSTGRES_URL may create databases");
        Some((Drops { server, name: name.clone() }, name))
    }

    async fn connect(address: &str, size: u32) -> sqlx::Result<PgPool> {
        let options = options(address).expect("a database was made, so there is a server");
        PgPoolOptions::new().max_connections(size).connect_with(options).await
    }

    async fn create_ledger(conn: &mut Self::Connection) -> sqlx::Result<()> {
        let sql = "create table effects (id bigserial primary key, message_id text not null, \
                   consumer text not null, msg_key text, worker text not null); \
                   create table business (message_id text not null)";
        Self::execute(conn, sql).await
    }

    alike!();
}

/// Drops the database, whoever is still connected to it.
#[derive(Debug)]
pub struct Drops {
    server: PgConnectOptions,
    name: String,
}

impl Drop for Drops {
    fn drop(&mut self) {
        let (server, sql) =
            (self.server.clone(), format!("drop database if exists {} with (force)", self.name));
        // A thread of its own: the test's runtime may be this thread's, or be ending.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime can be made").block_on(async {
                let work = administer(&server, &sql);
                tokio::time::timeout(Duration::from_secs(10), work).await
            })
        });
        // A database that stays behind is in nobody's way.
        let _ = dropping.join();
    }
}

async fn administer(server: &PgConnectOptions, sql: &str) -> sqlx::Result<()> {
    let mut conn = PgConnection::connect_with(server).await?;
    raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await?;
    conn.close().await
}

/// How to connect to a database of the test server; `name@port` is the one behind the [pooler](crate::pooler) there.
///
/// # Panics
/// When the variable or the address is none.
#[must_use]
pub fn options(database: &str) -> Option<PgConnectOptions> {
    // Derived from the parsed options: the text of the URL may name a socket, and the database anywhere.
    let server = server()?;
    let Some((database, port)) = database.split_once('@') else { return Some(server.database(database)) };
    let port = port.parse().expect("a port");
    let pooler = server.host("127.0.0.1").port(port).ssl_mode(PgSslMode::Disable).database(database);
    Some(pooler.statement_cache_capacity(0))
}

fn server() -> Option<PgConnectOptions> {
    const VARIABLE: &str = "OUTBOX_TEST_POSTGRES_URL";
    match std::env::var(VARIABLE).ok().filter(|url| !url.is_empty()) {
        Some(url) => {
            let options: PgConnectOptions =
                url.parse().expect("OUTBOX_TEST_POSTGRES_URL is a URL of PostgreSQL");
            Some(options)
        }
        None if std::env::var("OUTBOX_REQUIRE_SERVERS").is_ok_and(|required| required == "1") => {
            panic!("{VARIABLE} is not set and OUTBOX_REQUIRE_SERVERS is 1")
        }
        None => {
            let test = std::thread::current().name().unwrap_or("a test").to_owned();
            // Not by `eprintln!`, which the test harness keeps to itself when a test passes.
            let _ = writeln!(std::io::stderr(), "SKIPPED postgres: {test} ({VARIABLE} is not set)");
            None
        }
    }
}

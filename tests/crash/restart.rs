//! A server that is restarted under load.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use outbox::{ConsumerConfig, MessageId, Outbox};
use outbox_tests::act::{Act, Left, Runs};
use outbox_tests::{TestBackend, eventually};
use sqlx::Pool;
use tempfile::TempDir;

use crate::{LONG, Running, at_once, show};

/// A server that a test can start, in shell: `$dir` is its folder, `$bin` has its programs, and `$port` is free.
trait Restarted: TestBackend {
    /// Programs that are in one folder, which Debian may keep off PATH.
    const PROGRAMS: &'static [&'static str];
    const MAKE: &'static str;
    const START: &'static str;
    /// As a crash would end it.
    const KILL: &'static str;

    /// Connects to a database in which there is nothing.
    async fn connect_to(port: u16) -> sqlx::Result<Pool<Self>>;
}

#[cfg(feature = "postgres")]
impl Restarted for sqlx::Postgres {
    const PROGRAMS: &'static [&'static str] = &["initdb", "pg_ctl", "postgres"];
    const MAKE: &'static str =
        "\"$bin/initdb\" -D \"$dir/data\" -U postgres --auth=trust --no-sync --encoding=UTF8 --locale=C";
    const START: &'static str = "
        exec \"$bin/pg_ctl\" start -w -D \"$dir/data\" -l \"$dir/data/log\" -o \
            \"-p $port -k '' -c listen_addresses=127.0.0.1 -c max_connections=50\"";
    const KILL: &'static str = "exec \"$bin/pg_ctl\" stop -w -D \"$dir/data\" -m immediate";

    async fn connect_to(port: u16) -> sqlx::Result<Pool<Self>> {
        let options = sqlx::postgres::PgConnectOptions::new().host("127.0.0.1").port(port);
        let options = options.username("postgres").database("postgres");
        sqlx::postgres::PgPoolOptions::new().max_connections(10).connect_with(options).await
    }
}

#[cfg(feature = "mysql")]
impl Restarted for sqlx::MySql {
    const PROGRAMS: &'static [&'static str] = &["mariadbd"];
    const MAKE: &'static str = "
        PATH=\"$bin:$PATH\" mariadb-install-db --no-defaults --auth-root-authentication-method=normal --skip-test-db \
            --datadir=\"$dir/data\"";
    const START: &'static str = "
        rm -f \"$dir/socket\"
        \"$bin/mariadbd\" --no-defaults --datadir=\"$dir/data\" --socket=\"$dir/socket\" --pid-file=\"$dir/data/pid\" \
            --bind-address=127.0.0.1 --port=$port --max-connections=50 >>\"$dir/data/log\" 2>&1 </dev/null &
        server=$!
        until [ -S \"$dir/socket\" ]; do
            kill -0 $server || exit 1
            sleep 0.1
        done";
    const KILL: &'static str = "
        server=$(cat \"$dir/data/pid\")
        kill -9 $server
        while kill -0 $server 2>/dev/null; do sleep 0.05; done";

    async fn connect_to(port: u16) -> sqlx::Result<Pool<Self>> {
        let options = sqlx::mysql::MySqlConnectOptions::new().host("127.0.0.1").port(port).username("root");
        let mut conn = <sqlx::MySqlConnection as sqlx::Connection>::connect_with(&options).await?;
        Self::execute(&mut conn, "create database app").await?;
        let pool = sqlx::mysql::MySqlPoolOptions::new().max_connections(10);
        pool.connect_with(options.database("app")).await
    }
}

/// A server of the test's own.
struct Server {
    bin: PathBuf,
    folder: TempDir,
    port: u16,
    kill: &'static str,
}

impl Server {
    /// `None`, with a word to the reader, where there is no server to start.
    fn start<DB: Restarted>() -> Option<Self> {
        let Some(bin) = installed(DB::PROGRAMS) else {
            show(&format!("SKIPPED: no {} is installed, so no server can be restarted", DB::PROGRAMS[0]));
            return None;
        };
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port can be had");
        let port = listener.local_addr().expect("it has one").port();
        drop(listener);
        let server = Self { bin, folder, port, kill: DB::KILL };
        server.shell("chown \"$user\" \"$dir\" 2>/dev/null; chmod 755 \"$dir\"", false);
        if !server.shell(DB::MAKE, true) || !server.shell(DB::START, true) {
            show(&format!("SKIPPED: no server could be started; {}", server.log()));
            return None;
        }
        Some(server)
    }

    fn restart<DB: Restarted>(&self) {
        assert!(self.shell(DB::KILL, true) && self.shell(DB::START, true), "{}", self.log());
    }

    /// As the server's own user where this one is root, under whom it refuses to run.
    fn shell(&self, script: &str, unprivileged: bool) -> bool {
        let script = script.replace('\'', "'\\''");
        let wrapped = format!(
            "user=$(id -un postgres 2>/dev/null || echo nobody); bin='{}'; dir='{}'; port={}; export bin dir port user; cd /
             if [ \"$(id -u)\" = 0 ] && {unprivileged}; then exec runuser -u \"$user\" -- sh -c '{script}'; fi
             exec sh -c '{script}'",
            self.bin.display(),
            self.folder.path().display(),
            self.port,
        );
        let log =
            std::fs::OpenOptions::new().append(true).create(true).open(self.folder.path().join("control"));
        let log = log.expect("the folder can be written");
        let err = log.try_clone().expect("a handle can be copied");
        let command = &mut Command::new("sh");
        let status = command.arg("-c").arg(wrapped).stdin(Stdio::null()).stdout(log).stderr(err).status();
        status.is_ok_and(|status| status.success())
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("control")).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shell(self.kill, true);
    }
}

/// The folder with the programs; the newest one's where there are several.
fn installed(programs: &[&str]) -> Option<PathBuf> {
    let has_all = |bin: &Path| programs.iter().all(|program| bin.join(program).exists());
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest = versions.map(|entry| entry.path().join("bin")).filter(|bin| has_all(bin)).max();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let others = ["/usr/sbin", "/usr/libexec", "/usr/local/sbin"].map(PathBuf::from);
    newest.or_else(|| std::env::split_paths(&path).chain(others).find(|bin| has_all(bin)))
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_under_load_loses_and_doubles_nothing_on_postgres() {
    a_restart_under_load_loses_and_doubles_nothing::<sqlx::Postgres>().await;
}

#[cfg(feature = "mysql")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_under_load_loses_and_doubles_nothing_on_mysql() {
    a_restart_under_load_loses_and_doubles_nothing::<sqlx::MySql>().await;
}

async fn a_restart_under_load_loses_and_doubles_nothing<DB: Restarted>() {
    let Some(server) = Server::start::<DB>() else { return };
    let pool = DB::connect_to(server.port).await.expect("it runs");
    let outbox: Outbox<DB> = Outbox::new(pool.clone());
    outbox.migrate().await.expect("the tables can be made");
    DB::create_ledger(&mut *pool.acquire().await.expect("connected")).await.expect("made");
    let runs = TempDir::new().expect("a temporary folder can be made");
    let config = ConsumerConfig { poll_interval: Duration::from_millis(50), ..ConsumerConfig::default() };
    let left = outbox.consumers().handler::<Left>().options("left", at_once).config(config);
    let running = Running::start(left.state(Runs::new(runs.path())));

    let number = async |sql: &str| {
        let mut conn = pool.acquire().await.ok()?;
        DB::number(&mut conn, sql).await.ok()
    };
    // What goes wrong at a start is an error of the start.
    eventually("the consumers to run", LONG, async || {
        number("select count(*) from outbox_worker").await == Some(1)
    })
    .await;

    let stop = AtomicBool::new(false);
    let publish = async |who: usize| {
        let mut sent = 0;
        while !stop.load(Ordering::Relaxed) {
            // Again and again under one id, as after any other answer that was lost.
            let once = async || {
                let id = MessageId::new(format!("m{who}-{sent}"))?;
                let tx = outbox.begin().await?;
                tx.publish(Act::record().draft(id.as_str()).key(format!("key {who}")))?;
                tx.commit().await
            };
            if let Err(error) = once().await {
                let unknown = error.kind() == outbox::ErrorKind::OutcomeUnknown;
                assert!(error.is_transient() || unknown, "{error:?}");
                let pause = Duration::from_millis(20);
                tokio::time::sleep(pause).await; // sleep-ok: a publisher does not hammer a server that is away
            } else {
                sent += 1;
            }
        }
        sent
    };
    let restart = async {
        for _ in 0..2 {
            let pause = Duration::from_millis(700);
            tokio::time::sleep(pause).await; // sleep-ok: the load before the restart
            tokio::task::block_in_place(|| server.restart::<DB>());
        }
        let pause = Duration::from_millis(300);
        tokio::time::sleep(pause).await; // sleep-ok: the load after it
        stop.store(true, Ordering::Relaxed);
    };
    let (one, two, ()) = tokio::join!(publish(1), publish(2), restart);
    let sent = i64::from(one + two);
    eventually("everything to be handled", LONG, async || {
        number("select count(*) from effects").await == Some(sent)
    })
    .await;
    running.end().await;
    assert!(sent > 0);
    assert_eq!(number("select count(*) from outbox_message").await, Some(sent));
    assert_eq!(number("select count(distinct message_id) from effects").await, Some(sent));
    let undone = "select (select count(*) from outbox_delivery) + (select count(*) from outbox_parked)";
    assert_eq!(number(undone).await, Some(0));
    assert_eq!(number("select count(*) from outbox_attempt").await, Some(0), "a restart is no attempt");
    show(&format!("{}, restarted twice under load: {sent} messages published and handled once", DB::NAME));
}

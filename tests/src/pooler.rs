//! A `PgBouncer` of one test's own before the PostgreSQL of the tests, which lends a session for a transaction at a time.

use std::fs;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use sqlx::ConnectOptions as _;
use tempfile::TempDir;

/// How long it may take until it answers.
const PATIENCE: Duration = Duration::from_secs(30);

/// A pooler that runs, until it is dropped.
#[derive(Debug)]
pub struct Pooler {
    program: PathBuf,
    folder: TempDir,
    port: u16,
    child: Option<Child>,
}

impl Pooler {
    /// One with so many sessions for each database. `None` where it is not installed, which was said, or where the server
    /// listens on a socket only.
    ///
    /// # Panics
    /// When it does not start, or when it is not installed and `OUTBOX_REQUIRE_SERVERS` is 1.
    #[must_use]
    pub fn start(sessions: u32) -> Option<Self> {
        Self::ignoring(sessions, "extra_float_digits")
    }

    /// The same, which ignores these parameters of a connection.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    #[must_use]
    pub fn ignoring(sessions: u32, parameters: &str) -> Option<Self> {
        let server = crate::postgres::options("postgres")?;
        if server.get_host().starts_with('/') {
            return None;
        }
        let program = program()?;
        let folder = tempfile::tempdir().expect("a folder can be made");
        // Not ours alone: it refuses to run as root, and becomes nobody.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("the folder is ours");
        let password =
            server.to_url_lossy().password().map_or_else(String::new, |p| format!(" password={p}"));
        let user = if is_root() { "user = nobody\n" } else { "" };
        let port =
            TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
        let settings = format!(
            "[databases]\n* = host={} port={} user={}{password}\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n\
             pool_mode = transaction\ndefault_pool_size = {sessions}\nmax_client_conn = 1000\n\
             ignore_startup_parameters = {parameters}\nserver_login_retry = 0.2\n{user}",
            server.get_host(),
            server.get_port(),
            server.get_username(),
        );
        fs::write(folder.path().join("pgbouncer.ini"), settings).expect("the folder is ours");
        let mut pooler = Self { program, folder, port, child: None };
        pooler.run();
        Some(pooler)
    }

    /// The address of a database behind it, for [`TestBackend::connect`](crate::TestBackend::connect).
    #[must_use]
    pub fn address(&self, database: &str) -> String {
        format!("{database}@{}", self.port)
    }

    /// Ends it, with all connections.
    ///
    /// # Panics
    /// When the system refuses.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Waiting closes its stdin first.
            child.wait().expect("it was running");
            while TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                std::thread::sleep(Duration::from_millis(1)); // sleep-ok: between two looks, and the look decides
            }
        }
    }

    /// Starts it again.
    ///
    /// # Panics
    /// When it does not answer.
    pub fn run(&mut self) {
        let log = fs::File::create(self.folder.path().join("log")).expect("the folder is ours");
        let settings = self.folder.path().join("pgbouncer.ini");
        let mut command = Command::new("sh");
        // It ends with its stdin, which is ours, however the test's process ends.
        command.args(["-c", "\"$0\" \"$1\" & cat > /dev/null; kill -9 $!"]).arg(&self.program).arg(settings);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log).spawn();
        self.child = Some(child.expect("there is a shell"));
        let since = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let log = || fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            assert!(since.elapsed() < PATIENCE, "pgbouncer does not answer:\n{}", log());
            std::thread::sleep(Duration::from_millis(10)); // sleep-ok: between two looks, and the look decides
        }
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Debian keeps it off the `PATH` of users.
fn program() -> Option<PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&folders).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    let found = folders.map(|folder| folder.join("pgbouncer")).find(|program| program.is_file());
    if found.is_none() {
        let required = std::env::var("OUTBOX_REQUIRE_SERVERS").is_ok_and(|required| required == "1");
        assert!(!required, "pgbouncer is not installed and OUTBOX_REQUIRE_SERVERS is 1");
        let test = std::thread::current().name().unwrap_or("a test").to_owned();
        // Not by `eprintln!`, which the test harness keeps to itself when a test passes.
        let _ = writeln!(std::io::stderr(), "SKIPPED pooler: {test} (pgbouncer is not installed)");
    }
    found
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|of_ours| of_ours.uid() == 0)
}

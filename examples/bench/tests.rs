//! The benchmark's own tests: its checks on planted mistakes, and the program with few messages.
//!
//! `cargo test -p outbox-examples` builds the program too; with `--test bench` alone it is the one that was built last.

#[path = "numbers.rs"]
mod numbers;
#[path = "verify.rs"]
mod verify;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use serde_json::Value;

/// The program, which cargo puts beside the tests.
fn program() -> PathBuf {
    let tests = std::env::current_exe().expect("this program has a path");
    let folder = tests.ancestors().nth(2).expect("it is in a folder of the build's folder");
    let program = folder.join("examples").join(format!("bench{}", std::env::consts::EXE_SUFFIX));
    let advice = "`cargo test -p outbox-examples` builds it";
    let built = modified(&program).unwrap_or_else(|| panic!("{} is missing; {advice}", program.display()));
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("bench");
    let sources = sources.read_dir().expect("the sources are there").flatten();
    let newest = sources.filter_map(|source| modified(&source.path())).max();
    assert!(Some(built) > newest, "{} is older than its sources; {advice}", program.display());
    program
}

fn modified(path: &Path) -> Option<SystemTime> {
    path.metadata().ok()?.modified().ok()
}

/// Runs the program with few messages; its JSON, in which nothing may be lost, doubled or out of order.
fn bench(options: &[&str]) -> Value {
    let few = ["--messages", "40", "--rounds", "1", "--rate", "20", "--seconds", "1", "--format", "json"];
    let output = Command::new(program()).args(few).args(options).output().expect("the program runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{options:?}: {}\n{said}", output.status);
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object and nothing else");
    for name in ["lost", "duplicated", "out_of_order"] {
        assert_eq!(report[name], 0, "{options:?}: {name}\n{said}");
    }
    let numbers = ["/raw/messages_per_second", "/outbox/messages_per_second", "/ratio"];
    let counts = ["/commits_per_message", "/wal_bytes_per_message", "/statements_per_message"];
    for name in numbers.into_iter().chain(counts) {
        let number = report.pointer(name).and_then(Value::as_f64);
        assert!(number.is_some_and(|number| number > 0.0), "{options:?}: {name} is {number:?}");
    }
    for name in ["command", "machine", "server"] {
        assert!(!report[name].is_null(), "{name}");
    }
    report
}

/// All options somewhere.
fn options_are_kept(database: &[&str]) {
    let with = |options: &[&str]| bench(&[database, options].concat());
    let report = with(&["--keys", "7", "--rounds", "2"]);
    assert_eq!(report["ratios"].as_array().map(Vec::len), Some(2));
    for name in ["p50", "p95", "p99"] {
        assert!(report["latency_ms"][name].as_f64().is_some_and(f64::is_finite), "{name}");
    }
    assert_eq!(report["latency_ms"]["samples"], 20);
    with(&["--hot-key", "--handler", "update-hot", "--group", "3", "--rate", "0", "--pinned-snapshot"]);
    with(&[
        "--handler",
        "follow-up",
        "--consumers",
        "2",
        "--keys",
        "5",
        "--executors",
        "3",
        "--processes",
        "2",
    ]);
    with(&["--handler", "batch", "--keys", "10", "--failing", "0.2", "--rate", "0"]);
    with(&["--handler", "noop", "--rate", "0", "--history", "30", "--parked", "30", "--backlog", "30"]);
    with(&["--handler", "insert", "--rate", "0", "--history", "30", "--parked", "30", "--backlog", "30"]);
    with(&["--publish", "single", "--executors", "2", "--consumers", "3"]);
    with(&["--publish", "single", "--executors", "2", "--by-hand"]);
    with(&["--publish", "many", "--executors", "2", "--history", "30"]);
}

#[test]
fn a_few_messages_are_measured_on_sqlite() {
    options_are_kept(&[]);
    let folder = tempfile::tempdir().expect("a folder can be made");
    let url = format!("sqlite://{}", folder.path().join("bench.db").display());
    bench(&["--database-url", &url, "--rate", "0"]);
    assert_eq!(folder.path().read_dir().expect("it can be read").count(), 0, "nothing stays behind");
}

#[cfg(feature = "postgres")]
#[test]
fn a_few_messages_are_measured_on_postgres() {
    on_a_server("postgres", "OUTBOX_TEST_POSTGRES_URL");
}

#[cfg(feature = "mysql")]
#[test]
fn a_few_messages_are_measured_on_mysql() {
    on_a_server("mysql", "OUTBOX_TEST_MYSQL_URL");
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
fn on_a_server(backend: &str, variable: &str) {
    use std::io::Write as _;

    match std::env::var(variable).ok().filter(|url| !url.is_empty()) {
        Some(url) => options_are_kept(&["--backend", backend, "--database-url", &url]),
        None if std::env::var("OUTBOX_REQUIRE_SERVERS").is_ok_and(|required| required == "1") => {
            panic!("{variable} is not set and OUTBOX_REQUIRE_SERVERS is 1")
        }
        None => {
            let _ = writeln!(std::io::stderr(), "SKIPPED {backend}: the benchmark ({variable} is not set)");
        }
    }
}

/// Nothing was measured, which is another status than that of a loss.
#[test]
fn what_cannot_be_measured_is_said() {
    for (options, part) in [
        (&["--failing", "1"][..], "--failing"),
        (&["--executors", "2", "--processes", "3"], "--executors"),
        (&["--publish", "many", "--backlog", "3"], "--backlog"),
        (&["--publish", "many", "--by-hand"], "--by-hand"),
        (&["--consumers", "17"], "--consumers"),
        (&["--messages", "0"], "--messages"),
        (&["--backend", "postgres"], "postgres"),
        (&["--backend", "mysql"], "mysql"),
        (&["--database-url", "/no/such/folder/bench.db"], "folder"),
    ] {
        let output = Command::new(program()).args(options).output().expect("the program runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{options:?}: {said}");
        assert!(said.contains(part), "{options:?}: {said}");
    }
}

//! SQL lives in files below `backend`, the same files for every database.

use std::collections::BTreeSet;

use crate::rust::Source;
use crate::{File, assert_clean, assert_found, files, finding, rust_files};

const HOME: &str = "outbox/src/backend/sql";

/// The folders below [`HOME`].
const DATABASES: &[&str] = &["mysql", "postgres", "sqlite"];

/// Statements that a database does without: the database, the file, and why.
const ABSENT: &[(&str, &str, &str)] = &[
    ("sqlite", "registry_try.sql", "the write lock of the file is enough"),
    ("sqlite", "message_lock.sql", "the write lock of the file is enough"),
    ("sqlite", "mark_prunable.sql", "the write lock of the file is enough"),
    ("postgres", "message_prunable.sql", "part of message_prune.sql"),
    (
        "postgres",
        "message_lock.sql",
        "a publish waits for one that removes its id, and holds nothing of an id that is there",
    ),
    ("postgres", "mark_prunable.sql", "part of mark_prune.sql"),
    ("sqlite", "announce.sql", "one writer: nobody publishes beside a registration"),
    ("sqlite", "in_doubt.sql", "one writer: nothing is in flight beside a registration"),
    ("sqlite", "watermark.sql", "one writer: nothing is in flight beside a registration"),
    ("postgres", "range_delay.sql", "part of range_deliver.sql"),
    ("postgres", "range_routed.sql", "part of range_deliver.sql"),
    ("sqlite", "in_flight.sql", "one writer: nobody publishes beside a registration"),
    ("sqlite", "registry_share.sql", "one writer: nobody publishes beside a registration"),
    ("sqlite", "registry_lock.sql", "the write lock of the file is enough"),
    ("sqlite", "schema_lock.sql", "the write lock of the file is enough"),
    ("sqlite", "claim_unlocked.sql", "the control is a deferred transaction"),
    ("sqlite", "arm_unguarded.sql", "the guard is a hook, not a row"),
    ("sqlite", "disarm_unguarded.sql", "the guard is a hook, not a row"),
    ("sqlite", "publish_many.sql", "there are no arrays; one statement a message costs no round trip"),
    ("sqlite", "publish_routed.sql", "the trigger has no more to do for those that are delayed or unrouted"),
    ("sqlite", "cancel.sql", "a hook ends a statement"),
    ("sqlite", "cancel_pooled.sql", "there is no server, and no pooler before it"),
    ("mysql", "cancel_pooled.sql", "no pooler is looked for"),
    ("sqlite", "prepared_names.sql", "there is no server, and no pooler before it"),
    ("mysql", "prepared_names.sql", "no pooler is looked for"),
    ("sqlite", "worker_bury.sql", "two statements: worker_suspects.sql and worker_remove.sql"),
    ("sqlite", "poll.sql", "three statements: worker_beat.sql, workers.sql and runnable.sql"),
    ("sqlite", "tell.sql", "every commit is heard by itself"),
    ("sqlite", "test_ears.sql", "every commit is heard by itself"),
    ("postgres", "data_version.sql", "commits are told, not watched for"),
    ("postgres", "worker_beat.sql", "part of poll.sql"),
    ("postgres", "present.sql", "part of poll.sql"),
    ("postgres", "workers.sql", "part of poll.sql"),
    ("postgres", "runnable.sql", "part of poll.sql"),
    ("postgres", "worker_suspects.sql", "part of worker_bury.sql"),
    ("postgres", "backfill_delayed.sql", "part of backfill.sql"),
    ("postgres", "backfill_taken.sql", "part of backfill.sql"),
    ("postgres", "mark.sql", "part of settle_delivery.sql and settle_parked.sql"),
    ("sqlite", "autocommit.sql", "nothing turns it off but a transaction"),
    ("sqlite", "due.sql", "part of read.sql"),
    ("sqlite", "read_parked.sql", "part of read.sql"),
    ("sqlite", "consumers.sql", "part of dead_find.sql"),
    ("sqlite", "claim_lane.sql", "the transaction holds the one lane"),
    ("sqlite", "in_flight_known.sql", "one writer: nobody publishes beside a registration"),
    ("sqlite", "in_flight_wait.sql", "one writer: nobody publishes beside a registration"),
    ("sqlite", "lock_gate.sql", "the write lock of the file is enough"),
    ("sqlite", "lock_slots.sql", "the write lock of the file is enough"),
    ("sqlite", "mark_all.sql", "mark.sql takes a list"),
    ("sqlite", "publish_begin.sql", "a publish is one statement"),
    ("sqlite", "publish_gate.sql", "the write lock of the file is enough"),
    ("postgres", "publish_gate.sql", "a publish outside of the order holds nothing"),
    ("sqlite", "publish_undo.sql", "a publish is one statement"),
    ("sqlite", "publish_values.sql", "a publish is one statement with parameters"),
    ("sqlite", "schema_unlock.sql", "the lock ends with the transaction"),
    ("sqlite", "server.sql", "the version is asked for in a word"),
    (
        "sqlite",
        "parked_remove.sql",
        "parked_part.sql and parked_unsubscribe.sql; one statement a message costs no round trip",
    ),
    ("sqlite", "worker_lock.sql", "the write lock of the file is enough"),
    ("postgres", "autocommit.sql", "nothing turns it off but a transaction"),
    ("postgres", "due.sql", "part of read.sql"),
    ("postgres", "read_parked.sql", "part of read.sql"),
    ("postgres", "consumers.sql", "part of dead_find.sql"),
    ("postgres", "claim_lane.sql", "part of claim.sql"),
    ("postgres", "in_flight_known.sql", "transactions are named, not the slots that they hold"),
    ("postgres", "in_flight_wait.sql", "transactions are named, not the slots that they hold"),
    ("postgres", "lock_gate.sql", "who publishes is seen by the lock of the table"),
    ("postgres", "lock_slots.sql", "part of publish_one.sql and publish_many.sql"),
    ("postgres", "mark_all.sql", "part of settle_deliveries.sql"),
    ("postgres", "publish_begin.sql", "a publish outside of a transaction is one statement, and whole"),
    ("postgres", "publish_undo.sql", "a publish is one statement"),
    ("postgres", "publish_values.sql", "a publish is one statement with parameters"),
    ("postgres", "schema_unlock.sql", "the lock ends with the transaction"),
    ("postgres", "server.sql", "the version is asked for in a word"),
    ("postgres", "worker_lock.sql", "part of worker_bury.sql"),
    ("mysql", "announce.sql", "a publish reads the subscriptions as they are now"),
    ("mysql", "registry_share.sql", "a publish reads the subscriptions as they are now"),
    ("mysql", "arm_unguarded.sql", "the guard is the kind of the transaction"),
    ("mysql", "disarm_unguarded.sql", "the guard is the kind of the transaction"),
    ("mysql", "data_version.sql", "there is no such number"),
    (
        "mysql",
        "deliveries_remove.sql",
        "deliveries_end.sql, deliveries_unsubscribe.sql and settle_deliveries.sql",
    ),
    ("mysql", "poll.sql", "three statements: worker_beat.sql, workers.sql and runnable.sql"),
    ("mysql", "publish_routed.sql", "publish_many.sql is the same packet for all"),
    ("mysql", "publish_one.sql", "publish_many.sql with one"),
    ("mysql", "tell.sql", "there is no means to tell"),
    ("mysql", "test_ears.sql", "there is no means to tell"),
    (
        "mysql",
        "worker_bury.sql",
        "three statements: worker_lock.sql, worker_suspects.sql and worker_remove.sql",
    ),
];

#[test]
fn databases_have_the_same_statements() {
    assert_clean(mirrored(&files(HOME, "sql"), DATABASES, ABSENT));
}

fn mirrored(files: &[File], databases: &[&str], absent: &[(&str, &str, &str)]) -> Vec<String> {
    let split: Vec<_> = files.iter().filter_map(|(path, _)| path[HOME.len() + 1..].split_once('/')).collect();
    let mut found = Vec::new();
    for (path, _) in files {
        if !databases.iter().any(|database| path.starts_with(&format!("{HOME}/{database}/"))) {
            found.push(finding(path, 1, "belongs to no folder that DATABASES of tests/tidy/sql.rs lists"));
        }
    }
    let names: BTreeSet<_> = split.iter().map(|(_, name)| *name).collect();
    for name in names {
        for database in databases {
            let exists = split.contains(&(database, name));
            let excused = absent.iter().any(|(whose, file, _)| whose == database && *file == name);
            let path = format!("{HOME}/{database}/{name}");
            if !exists && !excused {
                found.push(finding(
                    &path,
                    1,
                    "the other databases have this file; write it or explain it in ABSENT",
                ));
            } else if exists && excused {
                found.push(finding(&path, 1, "the file exists; take it out of ABSENT"));
            }
        }
    }
    found
}

#[test]
fn statements_say_what_they_do() {
    let files = files(HOME, "sql");
    assert_clean(files.iter().flat_map(|(path, text)| uncommented(path, text)));
}

/// A file is one statement, or the statements of one round trip or migration: the comment at its top is for all.
fn uncommented(path: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let comment = lines.first().and_then(|line| line.strip_prefix("--")).map(str::trim);
    if comment.is_none_or(str::is_empty) {
        found.push(finding(path, 1, "a file starts with a comment that says what its statement does"));
    }
    if lines.iter().all(|line| line.starts_with("--")) {
        found.push(finding(path, 1, "there is no statement in this file"));
    }
    found
}

#[test]
fn no_sql_outside_the_backend() {
    let mut sources = rust_files(&["outbox/src"]);
    sources.retain(|source| !source.path.starts_with("outbox/src/backend/"));
    assert_clean(sources.iter().flat_map(inline_sql));
}

fn inline_sql(source: &Source) -> Vec<String> {
    let strings = source.strings.iter().filter(|(line, text)| !source.is_test(*line) && is_sql(text));
    strings.map(|(line, _)| finding(&source.path, *line, "SQL lives in outbox/src/backend/sql")).collect()
}

/// `select` and `update` are English too, so alone they count only at the start.
fn is_sql(text: &str) -> bool {
    let text = text.to_lowercase().split_whitespace().collect::<Vec<_>>().join(" ");
    ["insert into ", "delete from "].iter().any(|words| text.contains(words))
        || text.starts_with("select ")
        || text.contains("select ") && text.contains(" from ")
        || text.contains("update ") && text.contains(" set ")
}

#[test]
fn a_missing_statement_is_found() {
    let file = |name: &str| (format!("{HOME}/{name}"), String::new());
    let all = ["one/a.sql", "one/migrations/1.sql", "two/a.sql", "two/b.sql", "three/a.sql"].map(file);
    let places =
        ["three/a.sql:1", "one/a.sql:1", "two/migrations/1.sql:1"].map(|place| format!("{HOME}/{place}"));
    let places: Vec<_> = places.iter().map(String::as_str).collect();
    let absent = [("one", "b.sql", "why"), ("one", "a.sql", "stale")];
    assert_found(mirrored(&all, &["one", "two"], &absent), &places);
}

#[test]
fn a_bare_statement_is_found() {
    assert_found(uncommented("a.sql", "create table a (b int);\n"), &["a.sql:1"]);
    assert_found(uncommented("a.sql", "--\nselect 1;\n"), &["a.sql:1"]);
    assert_found(uncommented("a.sql", "-- Says it.\nselect 1;\n"), &[]);
    assert_found(uncommented("a.sql", "-- nothing\n"), &["a.sql:1"]);
}

#[test]
fn sql_in_a_string_is_found() {
    let text = "let a = \"SELECT 1\";\nlet b = \"\n  insert  into x\";\nlet c = \"cannot update the lane\";\n\
                let d = \"cannot select a codec\";\nlet e = \"update x\n set y = 1\";\n// \"delete from x\"\n\
                #[cfg(test)]\nfn f() { g(\"delete from x\") }\n";
    assert_found(inline_sql(&Source::new("a.rs", text)), &["a.rs:1", "a.rs:2", "a.rs:6"]);
}

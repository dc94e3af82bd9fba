//! What statements cost on large tables: as much as on small ones, whether or not anybody has analyzed them.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use sqlx::{Connection as _, Sqlite, SqliteConnection, raw_sql};

use super::Sql;
use crate::backend::{Storage as _, statement};
use crate::config::Tables;

/// Every statement that runs beside messages, with values for ?1, ?2 and so on. Consumer 1 has a backlog; of the others all is
/// parked: 2 has it due in far future, 3 behind something, 4 dead, 5 behind what is due.
const EXECUTED: &[(&str, &[&str])] = &[
    ("consumer_find", &["'first'"]),
    ("unready", &["1"]),
    ("subscription_find", &["'order.paid'", "1"]),
    ("newest", &[]),
    ("unrouted_end", &["'lost'", "100"]),
    ("backfill", &["'lost'", "100"]),
    ("backfill_delayed", &["'lost'", "100"]),
    ("backfill_taken", &["'lost'", "100"]),
    ("range_next", &["'lost'", "3"]),
    ("range_end", &["1", "9223372036854775807", "100"]),
    ("range_deliver", &["'order.nobody'", "1", "1", "100", "null"]),
    ("range_delay", &["'order.nobody'", "1", "1", "100", "null"]),
    ("range_routed", &["'lost'", "1", "100", "5"]),
    ("range_advance", &["'lost'", "3", "10", "11"]),
    ("range_done", &["'lost'", "3", "10"]),
    (
        "publish_one",
        &[
            "'new'",
            "'order.paid'",
            "1",
            "'order'",
            "null",
            "'7'",
            "'key-7'",
            "7",
            "7",
            "x'7b7d'",
            "'application/json'",
            "null",
            "null",
            "null",
        ],
    ),
    (
        "publish_statement",
        &[
            "'newest'",
            "'order.paid'",
            "1",
            "'order'",
            "null",
            "'7'",
            "'key-7'",
            "7",
            "7",
            "x'7b7d'",
            "'application/json'",
            "null",
            "null",
            "null",
        ],
    ),
    ("runnable", &["'[1,2,3,4,5]'"]),
    ("claim", &["1", "0", "'[0]'"]),
    ("claim", &["2", "0", "'[0]'"]),
    ("lock_lane", &["1", "0"]),
    ("lease", &["1", "0", "'me'", "1000000"]),
    ("lease_renew", &["1", "0", "'me'", "1000000"]),
    ("lease_end", &["1", "0", "'me'"]),
    ("claim_message", &["1", "'new'", "'me'", "null", "1"]),
    ("claim_message", &["1", "'history-1'", "'me'", "1000000", "1"]),
    ("claim_find", &["1", "'history-1'"]),
    ("claim_done", &["1", "'history-1'", "'me'"]),
    ("claim_end", &["1", "'history-1'", "'me'"]),
    ("read", &["1", "0", "100", "16", "8388608", "0"]),
    ("read", &["2", "0", "100", "16", "8388608", "0"]),
    ("read", &["5", "0", "100", "16", "8388608", "0"]),
    ("find", &["5", "0", "1", "1"]),
    ("settle_deliveries", &["1", "0", "'[1000001,1000002]'"]),
    ("settle_parked", &["5", "0", "1", "1", "1"]),
    ("mark", &["1", "'[\"one\",\"two\"]'"]),
    ("move_behind", &["1", "0", "'[1000001,1000002]'"]),
    ("park_delivery", &["1", "0", "1000001", "0", "1", "1", "0", "1000000", "'error'", "true"]),
    ("park_again", &["5", "0", "1", "1", "1", "0", "2", "2", "0", "1000000", "'error'"]),
    ("wake_next", &["5", "0", "1"]),
    ("wake_next", &["3", "0", "3"]),
    ("remaining", &["'[1,2]'", "1000"]),
    ("attempt_add", &["1", "1", "1000000", "'error'", "'worker'", "7"]),
    ("attempt_trim", &["1", "1", "2"]),
    ("attempts", &["'message-1'", "'first'"]),
    ("pause", &["'first'", "true"]),
    ("dead_find", &["'dead'", "null", "null", "null", "0", "0", "100"]),
    ("dead_find", &["null", "null", "null", "null", "4", "10", "100"]),
    ("requeue", &["4", "0", "1", "2"]),
    ("discard", &["4", "0", "1", "2"]),
    ("worker_beat", &["'me'", "'here'", "1", "'v'", "'[1]'", "0"]),
    ("workers", &["'me'", "'here'", "1000000"]),
    ("orphans", &["'[1]'"]),
    ("worker_remove", &["'me'"]),
    ("suspect_clear", &["1", "0"]),
    ("suspect_set", &["1", "0", "1"]),
    ("message_batch", &["0", "9223372036854775807", "100", "-1000000000"]),
    ("message_prunable", &["0", "100", "-1000000000", "-1000000000", "0"]),
    ("message_prune", &["'[1,2,3]'"]),
    ("attempt_prune", &["'[1,2,3]'"]),
    ("unrouted_prune", &["'lost'", "'[1,2,3]'"]),
    ("mark_batch", &["0", "250000000000000000", "100", "1000000"]),
    ("mark_prune", &["0", "100000000", "1000000", "0"]),
    ("dead_old", &["1000000", "100"]),
    ("discard_old", &["4", "0", "1", "2", "1000000"]),
    ("maintenance_lock", &["1000000"]),
    ("maintenance_add", &[]),
    ("maintenance_start", &["'me'"]),
    ("maintenance_move", &["'me'", "1", "1", "1", "1"]),
    ("maintenance_end", &["'me'", "null"]),
    ("consumer_list", &[]),
    ("subscriptions", &[]),
    ("names", &[]),
    ("workers_alive", &["3000000"]),
    ("ranges_remove", &["'order.nobody'", "3"]),
    ("dropped_find", &["'first'"]),
    ("deliveries_remove", &["1", "0", "100"]),
    ("attempts_remove", &["1", "100"]),
    ("marks_remove", &["1", "100"]),
    ("deliveries_end", &["1", "0", "1000000", "100"]),
    ("deliveries_unsubscribe", &["1", "0", "1000000", "1000100", "'order.paid'"]),
    ("parked_part", &["3", "0", "'order.paid'", "3", "100", "100"]),
    ("parked_unsubscribe", &["5", "0", "1", "1"]),
    ("attempts_forget", &["1", "1"]),
    ("present", &["'[1,2]'"]),
];

/// Those that run when somebody starts, migrates or requeues, and those that touch no table of messages.
const EXEMPT: &[&str] = &[
    "migration_table",
    "schema_exists",
    "schema_version",
    "consumer_add",
    "consumer_lanes",
    "consumer_name",
    "consumer_rename",
    "unsubscribe",
    "names_remove",
    "dropped_add",
    "consumer_remove",
    "dropped_names",
    "dropped_done",
    "lane_remove",
    "subscribe",
    "ready",
    "range_add",
    // All that stands behind one requeued message.
    "behind",
    // All consumers of one dead worker.
    "worker_suspects",
    "arm",
    "advance",
    "undo",
    "disarm",
    "data_version",
];

#[tokio::test]
async fn what_statements_cost_does_not_grow_with_the_tables() {
    let small = measure(200).await;
    let large = measure(50_000).await;
    let mut grown = Vec::new();
    for (((name, values), small), large) in EXECUTED.iter().zip(small).zip(large) {
        for (when, small, large) in [("as made", small.0, large.0), ("once analyzed", small.1, large.1)] {
            if large > small * 2 + 100 {
                grown.push(format!(
                    "{name} ({}), {when}: {small} steps, and {large} with large tables",
                    values.join(", ")
                ));
            }
        }
    }
    assert!(grown.is_empty(), "{}", grown.join("\n"));
}

/// How many instructions of its virtual machine each statement takes, before and after the tables were analyzed.
async fn measure(rows: i64) -> Vec<(i64, i64)> {
    let tables = Tables::default();
    let sql = Sqlite::render(&tables, &Sqlite::names());
    let mut conn = SqliteConnection::connect("sqlite::memory:").await.expect("opens");
    Sqlite::lock_schema(&mut conn, &sql).await.expect("makes the table of migrations");
    for migration in Sqlite::MIGRATIONS {
        run(&mut conn, tables.render(migration.sql, &Sqlite::names())).await;
    }
    let fill = include_str!("../sql/sqlite/testing/plans.sql").replace("$1", &rows.to_string());
    run(&mut conn, tables.render(&fill, &Sqlite::names())).await;
    let steps = Arc::new(AtomicI64::new(0));
    let counted = steps.clone();
    conn.lock_handle().await.expect("is there").set_progress_handler(1, move || {
        counted.fetch_add(1, Ordering::Relaxed);
        true
    });
    let mut all = [Vec::new(), Vec::new()];
    for costs in &mut all {
        for (name, values) in EXECUTED {
            let (_, mut text) =
                statements(&sql).into_iter().find(|(statement, _)| statement == name).expect(name);
            // The highest first: ?1 is the beginning of ?10.
            for (at, value) in values.iter().enumerate().rev() {
                text = text.replace(&format!("?{}", at + 1), value);
            }
            run(&mut conn, "begin".to_owned()).await;
            let before = steps.load(Ordering::Relaxed);
            run(&mut conn, text).await;
            costs.push(steps.load(Ordering::Relaxed) - before);
            run(&mut conn, "rollback".to_owned()).await;
        }
        run(&mut conn, "analyze".to_owned()).await;
    }
    let [fresh, analyzed] = all;
    fresh.into_iter().zip(analyzed).collect()
}

#[test]
fn no_statement_is_forgotten() {
    let sql = Sqlite::render(&Tables::default(), &Sqlite::names());
    let known = |name: &str| EXEMPT.contains(&name) || EXECUTED.iter().any(|(executed, _)| *executed == name);
    let forgotten: Vec<_> =
        statements(&sql).into_iter().map(|(name, _)| name).filter(|name| !known(name)).collect();
    assert_eq!(forgotten, [] as [&str; 0], "say what they cost");
}

fn statements(sql: &Sql) -> Vec<(&'static str, String)> {
    sql.all().into_iter().map(|(name, sql)| (name, sql.as_str().to_owned())).collect()
}

async fn run(conn: &mut SqliteConnection, sql: String) {
    let said = sql.clone();
    raw_sql(statement(sql)).execute(conn).await.unwrap_or_else(|error| panic!("{error}: {said}"));
}

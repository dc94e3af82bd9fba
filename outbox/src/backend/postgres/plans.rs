//! What statements cost on large tables: as much as on small ones, whether or not they were prepared when the tables were
//! empty, and whether or not anybody has analyzed them since.

use sqlx::{Connection as _, PgConnection, Postgres, Row as _, raw_sql};

use super::{PLANNER, Sql};
use crate::backend::{Storage as _, statement};
use crate::config::Tables;

/// Every statement that runs beside messages, with values: consumer 1 has a backlog, consumer 2 nothing that is runnable.
const EXECUTED: &[(&str, &str)] = &[
    ("consumer_find", "'first'"),
    ("unready", "1"),
    ("in_flight", ""),
    ("subscription_find", "'order.paid', 1"),
    ("in_doubt", ""),
    ("newest", ""),
    ("unrouted_end", "'lost', 100"),
    ("backfill", "'lost', 100"),
    ("range_next", "'lost', 3"),
    ("range_end", "1, 9223372036854775807, 100"),
    ("range_deliver", "'order.paid', 3, 1, 100, null"),
    ("range_advance", "'lost', 3, 10, 11"),
    ("range_done", "'lost', 3, 10"),
    (
        "publish_one",
        "'new', 'order.paid', 1, 'order', null, '7', 'key-7', 7, true, 7, '{}', 'application/json', null, null, null, false",
    ),
    (
        "publish_routed",
        "'new', 'order.paid', 1, 'order', null, '7', 'key-7', 7, true, 7, '{}', 'application/json', null",
    ),
    (
        "publish_statement",
        "'newest', 'order.paid', 1, 'order', null, '7', 'key-7', 7, 7, '{}', 'application/json', null, null, null",
    ),
    (
        "publish_many",
        "'{new,newer}', '{order.paid,order.paid}', '{1,1}', '{order,order}', '{null,null}', '{7,8}', '{key-7,key-8}', '{7,8}', \
         '{7,8}', '{7,8}', '{\"{}\",\"{}\"}', '{a,a}', '{null,null}', '{null,null}', '{null,null}', false",
    ),
    ("claim", "1, '{0,1,2,3,4,5,6,7}', true, 0"),
    ("claim", "2, '{0,1,2,3,4,5,6,7}', true, 0"),
    ("lock_lane", "1, 0"),
    ("read", "1, 0, 100, 16, 8388608, 0"),
    ("read", "1, 1, 100, 16, 8388608, 0"),
    ("read", "2, 1, 100, 16, 8388608, 0"),
    ("find", "1, 1, 1, 1"),
    ("settle_deliveries", "1, 0, '{1000008,1000016}', '{message-1000008,message-1000016}'"),
    ("settle_parked", "1, 1, 1, 1, 1, 'of its own'"),
    ("move_behind", "1, 0, '{1000008,1000016}'"),
    ("park_delivery", "1, 0, 1000008, 0, 1, 1, 0, 1000000, 'error', true"),
    ("park_again", "1, 1, 1, 1, 1, 0, 2, 2, 0, 1000000, 'error'"),
    ("wake_next", "1, 1, 1"),
    ("wake_next", "1, 3, 3"),
    ("remaining", "'{1,2}', 1000"),
    ("lease", "1, 0, 'me', 1000000"),
    ("lease_renew", "1, 0, 'me', 1000000"),
    ("lease_end", "1, 0, 'me'"),
    ("claim_message", "1, 'new', 'me', null, 1"),
    ("claim_message", "1, 'history-1', 'me', 1000000, 1"),
    ("claim_find", "1, 'history-1'"),
    ("claim_done", "1, 'history-1', 'me'"),
    ("claim_end", "1, 'history-1', 'me'"),
    ("attempt_add", "1, 1, 1000000, 'error', 'worker', 7"),
    ("attempt_trim", "1, 1, 2"),
    ("attempts", "'message-1', 'first'"),
    ("pause", "'first', true"),
    ("dead_find", "'second', null, null, null, 0, 0, 100"),
    ("dead_find", "null, null, null, null, 2, 10, 100"),
    ("requeue", "2, 2, 1, 2"),
    ("discard", "2, 2, 1, 2"),
    ("poll", "'me', 'here', 1, 'v', '{1,2}', 1000000, true, false"),
    ("poll", "'me', 'here', 1, 'v', '{2}', null, true, false"),
    ("orphans", "'{1}'"),
    ("tell", "'channel', ',1,'"),
    ("tell", "'channel', ',2,'"),
    ("worker_remove", "'me'"),
    ("suspect_clear", "1, 0"),
    ("suspect_set", "1, 0, 1"),
    ("registry_try", ""),
    ("message_batch", "0, 9223372036854775807, 100, -1000000000"),
    ("message_batch", "0, 9223372036854775807, 100, null"),
    ("message_prune", "0, 100, -1000000000, -1000000000, false"),
    ("attempt_prune", "'{1,2,3}'"),
    ("unrouted_prune", "'lost', '{1,2,3}'"),
    ("mark_batch", "0, 250000000000000000, 100, 1000000"),
    ("mark_prune", "0, 100000000, 1000000, false"),
    ("dead_old", "1000000, 100"),
    ("discard_old", "2, 2, 1, 2, 1000000"),
    ("maintenance_lock", "1000000"),
    ("maintenance_add", ""),
    ("maintenance_start", "'me'"),
    ("maintenance_move", "'me', 1, 1, 1, 1"),
    ("maintenance_end", "'me', null"),
    ("consumer_list", ""),
    ("subscriptions", ""),
    ("names", ""),
    ("workers_alive", "3000000"),
    ("ranges_remove", "'order.nobody', 3"),
    ("dropped_find", "'first'"),
    ("deliveries_remove", "1, 0, 100"),
    ("parked_remove", "1, 3, 100"),
    ("attempts_remove", "1, 100"),
    ("marks_remove", "1, 100"),
    ("deliveries_end", "1, 0, 1000000, 100"),
    ("deliveries_unsubscribe", "1, 0, 1000000, 1000800, 'order.paid'"),
    ("parked_part", "1, 3, 'order.paid', 3, 100, 100"),
    ("parked_unsubscribe", "1, 1, 1, 1"),
    ("attempts_forget", "1, 1"),
];

/// Those that run when somebody starts, migrates, requeues or tests, and those that touch no table of messages.
const EXEMPT: &[&str] = &[
    "migration_table",
    "schema_exists",
    "schema_version",
    "schema_lock",
    "registry_lock",
    "registry_share",
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
    "announce",
    "ready",
    "range_add",
    "watermark",
    // All that stands behind one requeued message.
    "behind",
    // All lanes of one dead worker.
    "worker_bury",
    "claim_unlocked",
    "arm",
    "arm_unguarded",
    "advance",
    "undo",
    "disarm",
    "disarm_unguarded",
    "cancel",
    "cancel_pooled",
    "prepared_names",
    "test_ears",
];

/// $1 messages of history; as many in lanes; as many parked. Lane 0 has deliveries only; in lane 1 one key's head is due and all
/// else waits behind it; lane 2 of the second consumer holds what is dead, its other lanes what is due in an hour.
const FILL: &str = include_str!("../sql/postgres/testing/plans.sql");

#[tokio::test]
async fn what_statements_cost_does_not_grow_with_the_tables() {
    let Ok(url) = std::env::var("OUTBOX_TEST_POSTGRES_URL") else {
        assert!(std::env::var_os("OUTBOX_REQUIRE_SERVERS").is_none(), "no PostgreSQL is given");
        eprintln!("SKIPPED postgres: OUTBOX_TEST_POSTGRES_URL is not set");
        return;
    };
    let small = Costs::measure(&url, 200).await;
    let large = Costs::measure(&url, 100_000).await;
    let mut grown = Vec::new();
    for (case, small) in small.0.iter().enumerate() {
        let large = &large.0[case];
        for (when, small, large) in [
            ("as prepared on empty tables", small.stale, large.stale),
            ("before anybody has analyzed them", small.unknown, large.unknown),
            ("once analyzed", small.fresh, large.fresh),
        ] {
            // Indexes are a level or two higher.
            if large > small * 3 + 30 {
                let (name, values) = EXECUTED[case];
                grown.push(format!("{name} ({values}), {when}: {small} blocks, and {large} of large tables"));
            }
        }
    }
    assert!(grown.is_empty(), "{}", grown.join("\n"));
}

/// How many blocks a statement has looked at.
struct Cost {
    /// With the plan that was made when its tables were empty.
    stale: i64,
    /// With one that was made when they were full, and there were no statistics: a server that has much to tell its sessions makes them
    /// plan anew at any moment.
    unknown: i64,
    /// With the plan that was made once they were full and analyzed.
    fresh: i64,
}

struct Costs(Vec<Cost>);

impl Costs {
    async fn measure(url: &str, rows: i64) -> Self {
        let tables = Tables::new("outbox_plans", "").expect("valid");
        let sql = Postgres::render(&tables, &Postgres::names());
        let mut conn = PgConnection::connect(url).await.expect("connects");
        // Nothing of this test is ever committed, and the lock lets it run beside itself.
        let mut tx = conn.begin().await.expect("begins");
        run(
            &mut tx,
            "select pg_advisory_xact_lock(hashtext('outbox_plans')); create schema outbox_plans".to_owned(),
        )
        .await;
        Postgres::lock_schema(&mut tx, &sql).await.expect("makes the table of migrations");
        for migration in Postgres::MIGRATIONS {
            run(&mut tx, tables.render(migration.sql, &Postgres::names())).await;
        }
        run(&mut tx, PLANNER.to_owned()).await;
        let statements = all(&sql);
        for (case, (name, values)) in EXECUTED.iter().enumerate() {
            let sql = statements.iter().find(|(statement, _)| statement == name).expect(name).1.clone();
            run(&mut tx, format!("prepare case_{case} as {sql}")).await;
            run(
                &mut tx,
                format!("savepoint before; {}; rollback to before; release before", execute(case, values)),
            )
            .await;
        }
        run(&mut tx, tables.render(&FILL.replace("$1", &rows.to_string()), &Postgres::names())).await;
        let mut stale = Vec::new();
        for (case, (_, values)) in EXECUTED.iter().enumerate() {
            stale.push(blocks(&mut tx, case, values).await);
        }
        run(&mut tx, "discard plans".to_owned()).await;
        let mut unknown = Vec::new();
        for (case, (_, values)) in EXECUTED.iter().enumerate() {
            unknown.push(blocks(&mut tx, case, values).await);
        }
        run(&mut tx, "analyze".to_owned()).await;
        let mut costs = Vec::new();
        for (case, (stale, unknown)) in stale.into_iter().zip(unknown).enumerate() {
            let fresh = blocks(&mut tx, case, EXECUTED[case].1).await;
            costs.push(Cost { stale, unknown, fresh });
        }
        Self(costs)
    }
}

#[test]
fn no_statement_is_forgotten() {
    let sql = Postgres::render(&Tables::default(), &Postgres::names());
    let known = |name: &str| EXEMPT.contains(&name) || EXECUTED.iter().any(|(executed, _)| *executed == name);
    let forgotten: Vec<_> = all(&sql).into_iter().map(|(name, _)| name).filter(|name| !known(name)).collect();
    assert_eq!(forgotten, [] as [&str; 0], "say what they cost");
}

fn all(sql: &Sql) -> Vec<(&'static str, String)> {
    sql.all().into_iter().map(|(name, sql)| (name, sql.as_str().to_owned())).collect()
}

fn execute(case: usize, values: &str) -> String {
    if values.is_empty() { format!("execute case_{case}") } else { format!("execute case_{case} ({values})") }
}

async fn run(conn: &mut PgConnection, sql: String) {
    let said = sql.clone();
    raw_sql(statement(sql)).execute(conn).await.unwrap_or_else(|error| panic!("{error}: {said}"));
}

async fn blocks(conn: &mut PgConnection, case: usize, values: &str) -> i64 {
    run(conn, "savepoint before".to_owned()).await;
    let explain = format!("explain (analyze, buffers, format json) {}", execute(case, values));
    let row = raw_sql(statement(explain)).fetch_one(&mut *conn).await.expect(values);
    // Text like any other in a simple query, whatever its type.
    let plan: String = row.try_get_unchecked(0).expect("a plan");
    run(conn, "rollback to before; release before".to_owned()).await;
    let plan: serde_json::Value = serde_json::from_str(&plan).expect("a plan");
    let blocks = |kind: &str| plan[0]["Plan"][kind].as_i64().expect(kind);
    blocks("Shared Hit Blocks") + blocks("Shared Read Blocks")
}

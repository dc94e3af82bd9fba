//! What statements cost on large tables: as much as on small ones, whether or not anybody has analyzed them.

use std::time::Duration;

use sqlx::{Connection as _, MySql, MySqlConnection, Row as _, raw_sql};

use super::{MySqlRow, Server, SqlResult, Storage as _, statement};
use crate::backend::{
    self, Ages, Attempt, Consuming as _, DeadFilter, Lane, Leasing as _, Maintaining as _, OldDead,
    Operating as _, Parked, ParkedState, Parking, Poll, Portion, Positions, Publishing as _, Range,
    Registering as _, Removing as _, Worker,
};
use crate::config::{Config, Tables};
use crate::controls::Controls;
use crate::draft::{Draft, Outgoing};

/// A database of a test's own with migrated tables, to be dropped at its end.
pub(super) struct Place {
    pub(super) conn: MySqlConnection,
    pub(super) tables: Tables,
    pub(super) schema: String,
}

impl Place {
    /// `None` where there is no server, which is said.
    pub(super) async fn make(name: &str) -> Option<Self> {
        let Ok(url) = std::env::var("OUTBOX_TEST_MYSQL_URL") else {
            assert!(std::env::var_os("OUTBOX_REQUIRE_SERVERS").is_none(), "no MySQL is given");
            eprintln!("SKIPPED mysql: OUTBOX_TEST_MYSQL_URL is not set");
            return None;
        };
        let schema = format!("t_{name}_{}", std::process::id());
        let tables = Tables::new(&schema, "app_").expect("valid");
        let sql = MySql::render(&tables, &MySql::names());
        let mut conn = MySqlConnection::connect(&url).await.expect("connects");
        let made = format!("drop database if exists {schema}; create database {schema}");
        MySql::run(&mut conn, statement(made)).await.expect("the user may create databases");
        MySql::lock_schema(&mut conn, &sql).await.expect("makes the table of migrations");
        for migration in MySql::MIGRATIONS {
            // Twice: an interruption leaves some of it done.
            for _ in 0..2 {
                let rendered = statement(tables.render(migration.sql, &MySql::names()));
                MySql::run(&mut conn, rendered).await.expect(migration.name);
            }
        }
        MySql::unlock_schema(&mut conn, &sql).await.expect("unlocked");
        Some(Self { conn, tables, schema })
    }

    async fn run(&mut self, sql: &str) {
        let rendered = statement(self.tables.render(sql, &MySql::names()));
        MySql::run(&mut self.conn, rendered).await.unwrap_or_else(|error| panic!("{error} in {sql}"));
    }

    /// How many rows are read meanwhile, and what came of it.
    async fn reads<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut MySqlConnection, &Server) -> SqlResult<T>,
    ) -> (i64, T) {
        let sql = MySql::render(&self.tables, &MySql::names());
        // Asking reads something too.
        let (before, asking) = (counted(&mut self.conn).await, counted(&mut self.conn).await);
        let done = work(&mut self.conn, &sql).await.expect("it runs");
        let after = counted(&mut self.conn).await;
        (after - asking - (asking - before), done)
    }
}

async fn counted(conn: &mut MySqlConnection) -> i64 {
    let rows = raw_sql("show session status like 'Handler_read%'").fetch_all(conn).await.expect("told");
    let value = |row: &MySqlRow| row.try_get::<String, _>("Value").expect("a text").parse::<i64>();
    rows.iter().map(|row| value(row).expect("a number")).sum()
}

/// What the cases below execute.
const EXECUTED: &[&str] = &[
    "consumer_find",
    "unready",
    "subscription_find",
    "in_doubt",
    "newest",
    "unrouted_end",
    "backfill",
    "backfill_delayed",
    "backfill_taken",
    "range_next",
    "range_end",
    "range_deliver",
    "range_delay",
    "range_routed",
    "range_advance",
    "range_done",
    "publish_begin",
    "lock_slots",
    "lock_gate",
    "publish_values",
    "publish_many",
    "publish_statement",
    "publish_gate",
    "claim",
    "claim_lane",
    "lock_lane",
    "due",
    "read_parked",
    "read",
    "find",
    "settle_deliveries",
    "mark_all",
    "settle_parked",
    "mark",
    "move_behind",
    "park_delivery",
    "park_again",
    "wake_next",
    "remaining",
    "lease",
    "lease_renew",
    "lease_end",
    "claim_message",
    "claim_find",
    "claim_done",
    "claim_end",
    "attempt_add",
    "attempt_trim",
    "attempts",
    "pause",
    "consumers",
    "dead_find",
    "requeue",
    "discard",
    "autocommit",
    "worker_beat",
    "workers",
    "runnable",
    "orphans",
    "worker_remove",
    "suspect_clear",
    "suspect_set",
    "registry_try",
    "message_batch",
    "message_prunable",
    "message_lock",
    "message_prune",
    "attempt_prune",
    "unrouted_prune",
    "mark_batch",
    "mark_prunable",
    "mark_prune",
    "dead_old",
    "discard_old",
    "maintenance_lock",
    "maintenance_add",
    "maintenance_start",
    "maintenance_move",
    "maintenance_end",
    "present",
    "consumer_list",
    "subscriptions",
    "names",
    "workers_alive",
    "ranges_remove",
    "dropped_find",
    "parked_remove",
    "attempts_remove",
    "marks_remove",
    "deliveries_end",
    "deliveries_unsubscribe",
    "parked_part",
    "parked_unsubscribe",
    "attempts_forget",
];

/// Those that run when somebody starts, migrates or requeues, and those that touch no table of messages.
const EXEMPT: &[&str] = &[
    "migration_table",
    "schema_exists",
    "schema_version",
    "schema_lock",
    "schema_unlock",
    "server",
    "registry_lock",
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
    "watermark",
    // All slots, once for each registration of something new.
    "in_flight",
    "in_flight_known",
    "in_flight_wait",
    // All that stands behind one requeued message.
    "behind",
    // All lanes of one dead worker.
    "worker_lock",
    "worker_suspects",
    "claim_unlocked",
    "publish_undo",
    "arm",
    "advance",
    "undo",
    "disarm",
    "cancel",
];

/// $1 messages of history; as many in lanes; as many parked. Lane 0 has deliveries only; in lane 1 one key's head is due and all
/// else waits behind it, in lane 3 all waits; lane 2 of the second consumer holds what is dead, and all its lanes what is due
/// in an hour.
const FILL: &str = include_str!("../sql/mysql/testing/plans.sql");

const PORTION: Portion = Portion { rows: 50, due: 10, bytes: 8 << 20, patience: Duration::ZERO };

const LANES: [i16; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

fn lane(consumer: i16, lane: i16) -> Lane {
    Lane { consumer, lane }
}

fn message(key: Option<&str>) -> Outgoing {
    let draft = Draft::new("order.paid", "{}");
    let draft = key.map_or(draft.clone(), |key| draft.key(key));
    draft.check(100, Config::default().new_id).expect("valid")
}

/// Measures one case in a transaction that is rolled back.
macro_rules! case {
    ($place:ident, $costs:ident, $name:literal, |$conn:ident, $sql:ident| $work:expr) => {
        $place.run("start transaction").await;
        let (reads, _) = $place.reads(async |$conn, $sql| $work.await).await;
        $place.run("rollback").await;
        $costs.push(($name, reads));
    };
}

/// The cases of registering and dropping consumers.
async fn registering(place: &mut Place, costs: &mut Vec<(&'static str, i64)>) {
    case!(place, costs, "subscribed", |conn, sql| MySql::is_subscribed(conn, sql, 1, "order.paid"));
    case!(place, costs, "in doubt", |conn, sql| MySql::in_doubt(conn, sql));
    case!(place, costs, "newest", |conn, sql| MySql::newest(conn, sql));
    case!(place, costs, "backfill", |conn, sql| MySql::backfill(conn, sql, "lost", 100));
    case!(place, costs, "next range", |conn, sql| MySql::next_range(conn, sql, 3, "lost"));
    let all = Range { first: 1, last: i64::MAX };
    case!(place, costs, "end of a batch", |conn, sql| MySql::end_of_batch(conn, sql, all, 100));
    let (batch, since) = (Range { first: 1, last: 100 }, Some(std::time::UNIX_EPOCH));
    case!(place, costs, "deliver a range", |conn, sql| {
        MySql::deliver_range(conn, sql, 3, "order.paid", batch, since)
    });
    case!(place, costs, "shrink a range", |conn, sql| MySql::shrink_range(
        conn,
        sql,
        3,
        "lost",
        10,
        Some(11)
    ));
    case!(place, costs, "end a range", |conn, sql| MySql::shrink_range(conn, sql, 3, "lost", 10, None));
}

/// The cases of pruning.
async fn maintaining(place: &mut Place, costs: &mut Vec<(&'static str, i64)>) {
    let (all, batch) = (Range { first: 1, last: i64::MAX }, Range { first: 1, last: 100 });
    let (old, second) = (Some(Duration::ZERO), Duration::from_secs(1));
    case!(place, costs, "try the registry", |conn, sql| MySql::try_lock_registry(conn, sql));
    case!(place, costs, "end of old messages", |conn, sql| MySql::end_of_messages(conn, sql, all, 100, old));
    let ages = Ages { delivered: old, unrouted: old };
    case!(place, costs, "remove messages", |conn, sql| MySql::remove_messages(conn, sql, batch, ages, true));
    let (times, batch) = (Range { first: 1, last: 1 << 57 }, Range { first: 1, last: 100_000_000 });
    case!(place, costs, "end of old marks", |conn, sql| MySql::end_of_marks(conn, sql, times, 100, second));
    case!(place, costs, "remove old marks", |conn, sql| MySql::remove_old_marks(
        conn, sql, batch, second, true
    ));
    case!(place, costs, "what is dead for long", |conn, sql| MySql::old_dead(conn, sql, second, 100));
    let dead = OldDead { lane: lane(2, 2), key_hash: 1, seq: 2 };
    case!(place, costs, "discard what is", |conn, sql| MySql::discard_old(conn, sql, dead, second));
    case!(place, costs, "who prunes", |conn, sql| MySql::lock_maintenance(conn, sql, second));
    case!(place, costs, "nobody has pruned", |conn, sql| MySql::add_maintenance(conn, sql));
    case!(place, costs, "begin to prune", |conn, sql| MySql::start_maintenance(conn, sql, "me"));
    case!(place, costs, "note a position", |conn, sql| {
        MySql::move_maintenance(conn, sql, "me", Positions::default())
    });
    case!(place, costs, "end pruning", |conn, sql| MySql::end_maintenance(conn, sql, "me", None));
}

/// The cases of listing consumers and letting them go.
async fn removing(place: &mut Place, costs: &mut Vec<(&'static str, i64)>) {
    case!(place, costs, "consumers", |conn, sql| MySql::consumers(conn, sql));
    case!(place, costs, "subscriptions", |conn, sql| MySql::subscriptions(conn, sql));
    case!(place, costs, "names", |conn, sql| MySql::all_names(conn, sql));
    case!(place, costs, "alive", |conn, sql| MySql::alive(conn, sql, Duration::from_secs(3)));
    case!(place, costs, "unsubscribe", |conn, sql| MySql::unsubscribe(conn, sql, 3, "order.nobody"));
    case!(place, costs, "dropped", |conn, sql| MySql::dropped(conn, sql, "first"));
    case!(place, costs, "remove deliveries", |conn, sql| MySql::remove_deliveries(
        conn,
        sql,
        lane(1, 0),
        100
    ));
    case!(place, costs, "remove parked ones", |conn, sql| MySql::remove_parked(conn, sql, lane(1, 3), 100));
    case!(place, costs, "remove attempts", |conn, sql| MySql::remove_attempts(conn, sql, 1, 100));
    case!(place, costs, "remove marks", |conn, sql| MySql::remove_marks(conn, sql, 1, 100));
    case!(place, costs, "end of deliveries", |conn, sql| {
        MySql::end_of_deliveries(conn, sql, lane(1, 0), 1_000_000, 100)
    });
    case!(place, costs, "remove deliveries of a type", |conn, sql| {
        MySql::remove_deliveries_of(conn, sql, lane(1, 0), "order.paid", (1_000_000, 1_000_800))
    });
    case!(place, costs, "parked ones of a type", |conn, sql| {
        MySql::parked_part(conn, sql, lane(1, 3), "order.paid", (3, 100), 100)
    });
    case!(place, costs, "remove a parked one", |conn, sql| {
        MySql::remove_one_parked(conn, sql, lane(1, 1), 1, 1)
    });
}

async fn publishing(place: &mut Place, costs: &mut Vec<(&'static str, i64)>) {
    let all = Controls::ALL;
    case!(place, costs, "publish", |conn, sql| MySql::publish_one(conn, sql, &message(Some("7")), all));
    case!(place, costs, "publish without a key", |conn, sql| MySql::publish_one(
        conn,
        sql,
        &message(None),
        all
    ));
    case!(place, costs, "publish by another client", |conn, sql| async move {
        for lock in [&sql.publish_statement, &sql.publish_gate] {
            raw_sql(super::with_numbers(lock, [7])).execute(&mut *conn).await?;
        }
        Ok(())
    });
    case!(place, costs, "publish many", |conn, sql| {
        let messages: Vec<_> = (0..40).map(|n| message(Some(&n.to_string()))).collect();
        async move { MySql::publish_many(conn, sql, &messages, all).await }
    });
}

/// How many rows each case reads.
async fn costs(place: &mut Place) -> Vec<(&'static str, i64)> {
    let mut costs = Vec::new();
    let now = Duration::ZERO;
    case!(place, costs, "a consumer", |conn, sql| MySql::consumer(conn, sql, "first"));
    case!(place, costs, "unready", |conn, sql| MySql::unready(conn, sql, 1));
    registering(place, &mut costs).await;
    let all = Controls::ALL;
    publishing(place, &mut costs).await;
    case!(place, costs, "claim", |conn, sql| MySql::claim(conn, sql, 1, &LANES, true, now, all));
    case!(place, costs, "claim in vain", |conn, sql| MySql::claim(conn, sql, 2, &LANES, true, now, all));
    case!(place, costs, "lock a lane", |conn, sql| MySql::lock_lane(conn, sql, lane(1, 0)));
    case!(place, costs, "read deliveries", |conn, sql| MySql::read(conn, sql, lane(1, 0), PORTION));
    case!(place, costs, "read what is parked", |conn, sql| MySql::read(conn, sql, lane(1, 1), PORTION));
    case!(place, costs, "read what is not due", |conn, sql| MySql::read(conn, sql, lane(2, 1), PORTION));
    case!(place, costs, "lease", |conn, sql| MySql::lease(conn, sql, lane(1, 0), "me", now));
    case!(place, costs, "renew a lease", |conn, sql| MySql::renew_lease(conn, sql, lane(1, 0), "me", now));
    case!(place, costs, "end a lease", |conn, sql| MySql::end_lease(conn, sql, lane(1, 0), "me"));
    case!(place, costs, "claim a message", |conn, sql| {
        MySql::claim_message(conn, sql, (1, "new"), "me", None, 1)
    });
    case!(place, costs, "claim a handled one", |conn, sql| {
        MySql::claim_message(conn, sql, (1, "history-1"), "me", Some(now), 1)
    });
    case!(place, costs, "finish a claim", |conn, sql| MySql::finish_claim(conn, sql, (1, "history-1"), "me"));
    case!(place, costs, "end a claim", |conn, sql| MySql::end_claim(conn, sql, (1, "history-1"), None));
    case!(place, costs, "find", |conn, sql| MySql::find(conn, sql, lane(1, 1), 1, 1));
    case!(place, costs, "settle", |conn, sql| {
        MySql::settle_deliveries(conn, sql, lane(1, 0), &[1_000_008, 1_000_016], Some(&["a", "b"]))
    });
    let head = Parked { seq: 1, key_hash: 1, attempts: 1 };
    case!(place, costs, "settle a parked one", |conn, sql| {
        MySql::settle_parked(conn, sql, lane(1, 1), head, Some("of its own"))
    });
    case!(place, costs, "move behind", |conn, sql| {
        MySql::move_behind(conn, sql, lane(1, 0), &[1_000_008, 1_000_016])
    });
    let parking = Parking {
        state: ParkedState::Retrying,
        attempts: 2,
        total_attempts: 2,
        conflicts: 0,
        pause: Some(Duration::from_secs(1)),
        error: Some("error".to_owned()),
        ordered: true,
    };
    case!(place, costs, "park a delivery", |conn, sql| {
        MySql::park(conn, sql, lane(1, 0), backend::Place::Delivery { seq: 1_000_008 }, &parking)
    });
    case!(place, costs, "park again", |conn, sql| {
        MySql::park(conn, sql, lane(1, 1), backend::Place::Parked(head), &parking)
    });
    case!(place, costs, "wake the head", |conn, sql| MySql::wake_next(conn, sql, lane(1, 1), 1));
    case!(place, costs, "wake the next", |conn, sql| MySql::wake_next(conn, sql, lane(1, 3), 3));
    case!(place, costs, "remaining", |conn, sql| MySql::remaining(conn, sql, &[1, 2], 100));
    let attempt =
        Attempt { seq: 1, number: 1_000_000, error: "error", worker: "worker", duration: Duration::ZERO };
    case!(place, costs, "record an attempt", |conn, sql| MySql::record_attempt(conn, sql, 1, &attempt, 20));
    case!(place, costs, "attempts", |conn, sql| MySql::attempts(conn, sql, "message-1", "first"));
    case!(place, costs, "pause", |conn, sql| MySql::set_paused(conn, sql, "first", true));
    case!(place, costs, "dead", |conn, sql| {
        let filter = DeadFilter::default();
        async move { MySql::dead(conn, sql, &filter, (2, 10), 100).await }
    });
    case!(place, costs, "dead of one consumer", |conn, sql| {
        let filter = DeadFilter { consumer: Some("second".to_owned()), ..DeadFilter::default() };
        async move { MySql::dead(conn, sql, &filter, (i16::MIN, i64::MIN), 100).await }
    });
    case!(place, costs, "requeue", |conn, sql| MySql::requeue(conn, sql, lane(2, 2), 1, 2));
    case!(place, costs, "discard", |conn, sql| MySql::discard(conn, sql, lane(2, 2), 1, 2));
    let worker =
        |consumers| Worker { id: "me".into(), host: "here".into(), pid: 1, consumers, pooled: false };
    let (first, second) = (worker(vec![1, 2]), worker(vec![2]));
    case!(place, costs, "poll", |conn, sql| {
        MySql::poll(conn, sql, Poll { worker: &first, beats: Some(Duration::from_secs(1)), asks: true })
    });
    case!(place, costs, "poll in vain", |conn, sql| {
        MySql::poll(conn, sql, Poll { worker: &second, beats: None, asks: true })
    });
    case!(place, costs, "orphans", |conn, sql| MySql::orphans(conn, sql, &[1]));
    case!(place, costs, "remove a worker", |conn, sql| MySql::remove_worker(conn, sql, "me"));
    case!(place, costs, "clear a suspect", |conn, sql| MySql::clear_suspect(conn, sql, lane(1, 0)));
    removing(place, &mut costs).await;
    case!(place, costs, "set a suspect", |conn, sql| MySql::set_suspect(conn, sql, lane(1, 0), 1));
    maintaining(place, &mut costs).await;
    costs
}

/// The costs while the server has not looked at its tables, and after it has.
async fn measure(scale: i64) -> Option<[Vec<(&'static str, i64)>; 2]> {
    let mut place = Place::make(&format!("plans_{scale}")).await?;
    place.run(&FILL.replace("$1", &scale.to_string())).await;
    let fresh = costs(&mut place).await;
    place
        .run(
            "analyze table /*schema*/outbox_delivery, /*schema*/outbox_parked, /*schema*/outbox_message, \
             /*schema*/outbox_lane, /*schema*/outbox_subscription, /*schema*/outbox_consumer, /*schema*/outbox_inbox",
        )
        .await;
    let analyzed = costs(&mut place).await;
    let dropped = statement(format!("drop database {}", place.schema));
    MySql::run(&mut place.conn, dropped).await.expect("dropped");
    Some([fresh, analyzed])
}

#[tokio::test]
async fn what_statements_cost_does_not_grow_with_the_tables() {
    let Some(small) = measure(200).await else { return };
    let large = measure(20_000).await.expect("the server was there");
    let mut grown = Vec::new();
    for ((when, small), large) in ["as made", "once analyzed"].into_iter().zip(small).zip(large) {
        for ((name, small), (_, large)) in small.into_iter().zip(large) {
            if large > small * 2 + 30 {
                grown.push(format!("{name}, {when}: {small} rows read, and {large} of large tables"));
            }
        }
    }
    assert!(grown.is_empty(), "{}", grown.join("\n"));
}

#[test]
fn no_statement_is_forgotten() {
    let sql = MySql::render(&Tables::default(), &MySql::names());
    let known = |name: &str| EXEMPT.contains(&name) || EXECUTED.contains(&name);
    let forgotten: Vec<_> = sql.all().into_iter().map(|(name, _)| name).filter(|name| !known(name)).collect();
    assert_eq!(forgotten, [] as [&str; 0], "say what they cost");
}

//! The attack with messages that fail for good, consumers that give up, and an operator in the middle of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use outbox::{Dead, Draft, MessageId};
use outbox_tests::check::stranded_but;
use outbox_tests::worker::{Chaos, GivesUp, Mended, PLACED, Third};
use outbox_tests::{TestBackend, TestDatabase, eventually};
use tokio::sync::Mutex;

use crate::check::{self, Numbers, count};
use crate::operator::{Operator, Pair, UNREADABLE, operate};
use crate::publish::{Body, Load, Publishers, Sent};
use crate::soak;
use crate::workers::{self, Log, Workers};

/// The consumer that goes on behind a dead message.
const SKIPS: &str = "second";

/// What differs from one database to another.
struct Attack {
    name: &'static str,
    load: Load,
    publishers: usize,
    processes: usize,
    executors: usize,
    /// How long a process stands still.
    stands_still: Duration,
}

/// Attacks for a while. What then remains must be dead, or stand behind something dead; what was handled, what
/// remains and what was discarded must be all that was published. Then every cause is removed and everything
/// requeued, and each message that was not discarded must be handled.
async fn attack<DB: TestBackend>(attack: Attack) {
    let Some(database) = TestDatabase::<DB>::migrated().await else { return };
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let mended = Mended(folder.path().to_owned());
    let gives_up = GivesUp { max_attempts: 3, skips: SKIPS.to_owned(), mended: mended.clone() };
    let log = Log::new(attack.name);
    let mut workers = Workers::start(&database, &log, attack.processes, attack.executors, Some(gives_up));
    let ready = "select count(*) from outbox_subscription where ready";
    eventually("the consumers' registration", Duration::from_mins(1), async || {
        database.number(ready).await >= 4
    })
    .await;

    let publishers = Arc::new(Publishers::new(database.outbox(), attack.load));
    let publishing: Vec<_> = (0..attack.publishers)
        .map(|_| {
            let publishers = publishers.clone();
            tokio::spawn(async move { publishers.publish().await })
        })
        .collect();
    // Held by the operator from before a change until it is noted: a look in between would see the one without the
    // other.
    let operator = Arc::new(Mutex::new(Operator::new(database.outbox().admin(), mended)));
    let over = Arc::new(AtomicBool::new(false));
    let operating = tokio::spawn(operate(operator.clone(), over.clone()));

    let (begun, budget) = (Instant::now(), soak::lasts(Duration::from_secs(8)));
    let (mut looks, mut lost) = (0, 0);
    let mut second = tokio::time::interval(Duration::from_secs(1));
    while begun.elapsed() < budget || !operator.lock().await.has_done_everything() {
        assert!(begun.elapsed() < budget * 10, "nothing dies: {:?}", operator.lock().await.done);
        second.tick().await;
        workers.kill();
        workers.revive();
        for _ in 0..3 {
            lost += usize::from(workers::cut(&database).await);
        }
        publishers.undone.store(check::undone(&database).await, Ordering::Relaxed);
        assert_eq!(strays(&database, &operator).await, [""; 0], "stranded while under attack");
        assert_eq!(check::unsettled(&database).await, 0, "effects and marks differ while under attack");
        looks += 1;
        if looks % 4 == 0 {
            workers.stop(attack.stands_still).await;
        }
    }
    publishers.stop.store(true, Ordering::Relaxed);
    for task in publishing {
        task.await.expect("no publisher panics");
    }
    over.store(true, Ordering::Relaxed);
    operating.await.expect("the operator does not panic");
    eventually("nothing to be runnable", Duration::from_mins(2), async || {
        workers.revive();
        let sql = "select (select count(*) from outbox_delivery)
                        + (select count(*) from outbox_parked where due_at is not null)";
        database.number(sql).await == 0
    })
    .await;

    let mut numbers = Numbers::default();
    numbers.add("seconds until nothing was runnable", begun.elapsed().as_secs());
    let sent = std::mem::take(&mut *publishers.sent.lock().expect("no publisher panics under the lock"));
    numbers.add("processes killed", workers.kills);
    numbers.add("processes stopped with what they held", workers.stops);
    numbers.add("processes ended by themselves", workers.ended);
    numbers.add("connections cut", lost);
    publishers.count(&mut numbers);
    let mut operator = operator.lock().await;
    for (done, count) in &operator.done {
        numbers.add(format!("{done} by the operator"), count);
    }
    check::stored(&database, &sent, &mut numbers).await;
    add_up("when nothing was runnable", &database, &sent, &operator, &mut numbers).await;

    operator.mend_all(&sent);
    eventually("everything to be handled or discarded", Duration::from_mins(2), async || {
        workers.revive();
        operator.requeue(&Dead::all()).await;
        // What no repair and no deploy will ever make readable.
        operator.discard(&Dead::all().error(UNREADABLE).limit(50)).await;
        check::undone(&database).await == 0
    })
    .await;
    numbers.add("seconds until all was done", begun.elapsed().as_secs());
    let broken = workers.kills + workers.stops + lost;
    workers.terminate();
    add_up("in the end", &database, &sent, &operator, &mut numbers).await;
    let requeued = operator.requeued_at(SKIPS);
    let out_of_order = count(overtaken(&handled(&database).await, &requeued));
    let of = format!("{}, with an operator", DB::NAME);
    soak::note(&database, &of, broken, operator.discarded.len(), out_of_order).await;
    for (reason, count) in &log.reasons() {
        numbers.add(reason, count);
    }
    numbers.judge(&of);
}

/// Checks that every message is, for each consumer, in exactly one place, and that this is its place.
async fn add_up<DB: TestBackend>(
    when: &str,
    database: &TestDatabase<DB>,
    sent: &[Sent],
    operator: &Operator<DB>,
    numbers: &mut Numbers,
) {
    numbers.add(format!("--- {when}"), "");
    let strays = stranded_but(database, &operator.discarded).await;
    numbers.expect("stranded", count(strays.len()), 0);
    for consumer in ["first", SKIPS, "third"] {
        let sql = format!(
            "select count(*) from outbox_message m join outbox_subscription s on s.event_type = m.event_type
             join outbox_consumer c on c.id = s.consumer where c.name = '{consumer}'"
        );
        let published = database.number(&sql).await;
        let sql = format!("select count(*) from effects where consumer = '{consumer}'");
        let handled = database.number(&sql).await;
        let parked = async |states: &str| {
            let sql = format!(
                "select count(*) from outbox_parked p join outbox_consumer c on c.id = p.consumer
                 where c.name = '{consumer}' and p.state in ({states})"
            );
            database.number(&sql).await
        };
        let discarded = count(operator.discarded.iter().filter(|(at, _)| at == consumer).count());
        let (blocking, passed, waiting) = (parked("2, 6").await, parked("3").await, parked("1").await);
        numbers.add(format!("{consumer}: handled"), handled);
        numbers.add(format!("{consumer}: dead"), blocking + passed);
        numbers.add(format!("{consumer}: waiting behind"), waiting);
        numbers.add(format!("{consumer}: discarded"), discarded);
        let sum = handled + blocking + passed + waiting + discarded;
        numbers.expect(&format!("{consumer}: of all that was published"), sum, published);
        let other = if consumer == SKIPS { blocking + waiting } else { passed };
        numbers.expect(&format!("{consumer}: dead by the other policy"), other, 0);
    }
    let sql = "
        select count(*)
        from outbox_parked p
        join outbox_consumer c on c.id = p.consumer
        join outbox_message m on m.key_hash = p.key_hash and m.seq > p.seq
        join effects e on e.consumer = c.name and e.message_id = m.id
        where p.state in (2, 6)";
    numbers.expect("handled behind a dead one that blocks", database.number(sql).await, 0);
    numbers.expect("effects without mark, or marks without effect", check::unsettled(database).await, 0);
    numbers.expect("duplicates", check::duplicates(database).await, 0);
    let sql = "select count(*) from effects where worker like 'after %' or worker like 'in %'";
    numbers.expect("effects outside of a handler's transaction", database.number(sql).await, 0);
    let sql = "select count(*) from effects e join outbox_message m on m.id = e.message_id
               where e.consumer = 'first' and m.event_type = 'order.placed'";
    let echoing = database.number(sql).await;
    let sql = "select count(*) from outbox_message where event_type = 'order.echoed'";
    numbers.expect("echoes", database.number(sql).await, echoing);

    let handled = handled(database).await;
    let bad: BTreeSet<&str> = sent
        .iter()
        .filter(|message| match message.body {
            Body::Good => false,
            Body::Poisoned(_) => !operator.mended.is_mended(&message.id),
            Body::Unreadable(_) => true,
        })
        .map(|message| message.id.as_str())
        .collect();
    let spoiled = handled.iter().filter(|handled| bad.contains(handled.message.as_str())).count();
    numbers.expect("handled although it cannot be", count(spoiled), 0);
    let requeued = operator.requeued_at(SKIPS);
    numbers.add("handled after a later one of the key", overtaken(&handled, &BTreeSet::new()));
    numbers.expect("of these never dead", count(overtaken(&handled, &requeued)), 0);
}

/// A message that a consumer has handled.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Handled {
    consumer: String,
    key: String,
    seq: i64,
    message: String,
}

/// The messages in the order in which they were handled; one without a key has a key of its own.
async fn handled<DB: TestBackend>(database: &TestDatabase<DB>) -> Vec<Handled> {
    let sql = "select e.consumer || '|' || coalesce(m.msg_key, m.id) || '|' || m.seq || '|' || m.id
               from effects e join outbox_message m on m.id = e.message_id order by e.id";
    let rows = database.texts(sql).await.into_iter().map(|row| {
        let parts: Vec<&str> = row.split('|').collect();
        let [consumer, key, seq, message] = parts[..] else { panic!("{row:?} has other parts") };
        let seq = seq.parse().expect("a number");
        Handled { consumer: consumer.into(), key: key.into(), seq, message: message.into() }
    });
    rows.collect()
}

/// How many messages were handled after a later one of their key, but for those that `may` be.
///
/// Where a dead message blocks its key, none may be. Where it is passed over, only one may that was dead itself,
/// which is then one that was requeued: it comes back when later ones have been handled. All others keep their order
/// to every message of the key, the requeued ones included. For take `x` before `y`, and `x` never dead. As long as
/// `x` is unfinished it is delivered, retrying or waiting, and each of these holds `y` back: at its first attempt, and
/// after it was requeued, when it waits behind what is unfinished before it.
fn overtaken(handled: &[Handled], may: &BTreeSet<Pair>) -> usize {
    let mut highest: BTreeMap<(&str, &str), i64> = BTreeMap::new();
    let late = handled.iter().filter(|handled| {
        let before = highest.entry((&handled.consumer, &handled.key)).or_insert(handled.seq);
        let late = handled.seq < *before;
        *before = handled.seq.max(*before);
        late && !may.contains(&(handled.consumer.clone(), handled.message.clone()))
    });
    late.count()
}

async fn strays<DB: TestBackend>(database: &TestDatabase<DB>, operator: &Mutex<Operator<DB>>) -> Vec<String> {
    let operator = operator.lock().await;
    stranded_but(database, &operator.discarded).await
}

/// What the checks are for is planted, and they must find it.
async fn what_is_lost_beside_an_operator_is_found<DB: TestBackend>() {
    let Some(database) = TestDatabase::<DB>::migrated().await else { return };
    let outbox = database.outbox();
    let consumers = || {
        let consumers = outbox.consumers().handler::<Third>().state(Chaos::default());
        consumers.build().expect("complete").run_until_idle()
    };
    consumers().await.expect("nothing is in its way");
    let tx = outbox.begin().await.expect("begun");
    for (id, payload) in [("dead", "7"), ("waits", "{}"), ("gone", "7"), ("kept", "7")] {
        let key = if id == "waits" { "dead" } else { id };
        let id = MessageId::new(id).expect("valid");
        tx.publish(Draft::new(PLACED.event_type, payload).id(id).key(key)).expect("accepted");
    }
    tx.commit().await.expect("committed");
    consumers().await.expect("nothing is in its way");

    let operator = Mutex::new(Operator::new(outbox.admin(), Mended(PathBuf::new())));
    let gone = MessageId::new("gone").expect("valid");
    assert_eq!(operator.lock().await.discard(&Dead::all().message(&gone)).await, 1);
    assert_eq!(strays(&database, &operator).await, [""; 0]);
    operator.lock().await.discarded.insert(("third".to_owned(), "kept".to_owned()));
    assert_eq!(strays(&database, &operator).await, ["third kept 0"], "said to be discarded, and there");
    operator.lock().await.discarded.clear();
    assert_eq!(strays(&database, &operator).await, ["third gone 0"], "gone, and nobody has discarded it");
    database.execute("delete from outbox_parked where state in (2, 3, 6)").await;
    let found = strays(&database, &operator).await;
    assert_eq!(
        found,
        ["third dead 0", "third gone 0", "third kept 0", "third waits 0"],
        "nothing ends the waiting"
    );
}

#[test]
fn only_what_was_dead_may_come_late() {
    let handled =
        |seq: i64| Handled { consumer: SKIPS.to_owned(), key: "a".to_owned(), seq, message: seq.to_string() };
    let order = [1, 3, 2, 4].map(handled);
    let was_dead = |seq: i64| BTreeSet::from([(SKIPS.to_owned(), seq.to_string())]);
    assert_eq!(overtaken(&order, &BTreeSet::new()), 1);
    assert_eq!(overtaken(&order, &was_dead(2)), 0);
    assert_eq!(overtaken(&order, &was_dead(3)), 1, "it was the later one, and had to wait");
    // Not only beside each other, and whatever came between.
    assert_eq!(overtaken(&[4, 3, 1, 2].map(handled), &was_dead(1)), 2);
    let other = Handled { key: "b".to_owned(), ..handled(1) };
    assert_eq!(overtaken(&[handled(2), other], &BTreeSet::new()), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_dies_is_accounted_for_on_sqlite() {
    let load = Load { poison: 50, keys: 40, backlog: 200, ..crate::sqlite::LOAD };
    attack::<sqlx::Sqlite>(Attack {
        name: "sqlite-operator",
        load,
        publishers: 4,
        processes: 3,
        executors: 1,
        stands_still: Duration::from_millis(300),
    })
    .await;
}

#[tokio::test]
async fn what_is_lost_beside_an_operator_is_found_on_sqlite() {
    what_is_lost_beside_an_operator_is_found::<sqlx::Sqlite>().await;
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_dies_is_accounted_for_on_postgres() {
    let load = Load { poison: 40, late: Duration::from_millis(8), backlog: 300, ..crate::servers::POSTGRES };
    attack::<sqlx::Postgres>(Attack {
        name: "postgres-operator",
        load,
        publishers: 8,
        processes: 4,
        executors: 3,
        stands_still: Duration::from_millis(1_200),
    })
    .await;
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn what_is_lost_beside_an_operator_is_found_on_postgres() {
    what_is_lost_beside_an_operator_is_found::<sqlx::Postgres>().await;
}

#[cfg(feature = "mysql")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_dies_is_accounted_for_on_mysql() {
    let load = Load { poison: 40, late: Duration::from_millis(8), backlog: 300, ..crate::servers::MYSQL };
    attack::<sqlx::MySql>(Attack {
        name: "mysql-operator",
        load,
        publishers: 8,
        processes: 4,
        executors: 3,
        stands_still: Duration::from_millis(1_200),
    })
    .await;
}

#[cfg(feature = "mysql")]
#[tokio::test]
async fn what_is_lost_beside_an_operator_is_found_on_mysql() {
    what_is_lost_beside_an_operator_is_found::<sqlx::MySql>().await;
}

//! What must hold: counts, orders and states, each found by one query or one pass.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Instant;

pub(crate) use outbox_tests::check::{duplicates, order_violations, stranded, undone, unsettled};
use outbox_tests::{TestBackend, TestDatabase};

use crate::publish::Sent;

/// Messages of one key whose numbers contradict the order of their commits, as the publishers saw it: what was
/// committed before another's commit was even sent must have the lower number.
pub(crate) async fn commit_order_violations<DB: TestBackend>(
    database: &TestDatabase<DB>,
    sent: &[Sent],
) -> usize {
    let rows = database.texts("select id from outbox_message order by seq").await;
    let place: BTreeMap<&str, usize> = rows.iter().enumerate().map(|(seq, id)| (id.as_str(), seq)).collect();
    let mut keys: BTreeMap<usize, Vec<(usize, &Sent)>> = BTreeMap::new();
    for message in sent {
        if let (Some(key), Some(seq)) = (message.key, place.get(message.id.as_str())) {
            keys.entry(key).or_default().push((*seq, message));
        }
    }
    let mut violations = 0;
    for messages in keys.values_mut() {
        messages.sort_by_key(|(seq, _)| *seq);
        let mut first_answer: Option<Instant> = None;
        for (_, message) in messages.iter().rev() {
            let (sending, answer) = message.commit;
            violations += usize::from(first_answer.is_some_and(|later| later < sending));
            first_answer = Some(first_answer.map_or(answer, |later| later.min(answer)));
        }
        let pairs = messages.windows(2).map(|pair| (pair[0].1, pair[1].1));
        violations += pairs.filter(|(a, b)| a.transaction == b.transaction && a.index > b.index).count();
    }
    violations
}

/// The numbers of a run, as a table, and which of them are not as they must be.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    rows: Vec<(String, String)>,
    wrong: Vec<String>,
}

impl Numbers {
    pub(crate) fn add(&mut self, name: impl Into<String>, value: impl fmt::Display) {
        self.rows.push((name.into(), value.to_string()));
    }

    pub(crate) fn expect(&mut self, name: &str, found: i64, expected: i64) {
        self.add(name, found);
        if found != expected {
            self.wrong.push(format!("{name}: {found}, not {expected}"));
        }
    }

    /// Shows the table, and fails where something is wrong in it.
    pub(crate) fn judge(&self, of: &str) {
        crate::show(&format!("{of}:\n{self}"));
        assert!(self.wrong.is_empty(), "{}", self.wrong.join("\n"));
    }
}

pub(crate) fn count(of: usize) -> i64 {
    i64::try_from(of).expect("a small number")
}

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, value) in &self.rows {
            writeln!(f, "  {name:<width$}  {value}")?;
        }
        Ok(())
    }
}

/// Checks everything that must hold once all is handled, and shows the numbers first.
pub(crate) async fn all<DB: TestBackend>(database: &TestDatabase<DB>, sent: &[Sent], numbers: &mut Numbers) {
    stored(database, sent, numbers).await;
    let placed =
        database.number("select count(*) from outbox_message where event_type = 'order.placed'").await;
    let sql = "select count(*) from outbox_message where event_type = 'order.echoed'";
    numbers.expect("echoes", database.number(sql).await, placed);
    for (consumer, expected) in [("first", placed), ("second", 2 * placed), ("third", placed)] {
        let sql = format!("select count(*) from effects where consumer = '{consumer}'");
        numbers.expect(&format!("effects of {consumer}"), database.number(&sql).await, expected);
        let sql = format!("select count(distinct message_id) from effects where consumer = '{consumer}'");
        numbers.expect(&format!("messages handled by {consumer}"), database.number(&sql).await, expected);
    }
    let sql = "select count(*) from effects where worker like 'after %' or worker like 'in %'";
    numbers.expect("effects outside of a handler's transaction", database.number(sql).await, 0);
    numbers.expect("effects without mark, or marks without effect", unsettled(database).await, 0);
    numbers.expect("duplicates", duplicates(database).await, 0);
    numbers.expect("handled out of order", order_violations(database).await, 0);
    numbers.expect("numbered against commit order", count(commit_order_violations(database, sent).await), 0);
    let sql = "
        select count(*)
        from (select c.seq, lag(c.seq) over (partition by f.msg_key order by f.seq) as previous
              from outbox_message f join outbox_message c on f.id = 'echo-' || c.id
              where f.msg_key is not null) steps
        where previous > seq";
    numbers.expect("echoes in another order than their causes", database.number(sql).await, 0);
    numbers.expect("left in the lanes", database.count("outbox_delivery").await, 0);
    numbers.expect("left parked", database.count("outbox_parked").await, 0);
    numbers.expect("stranded", stranded(database).await, 0);
    numbers.judge(DB::NAME);
}

/// Checks that a message is there if and only if its change was committed.
pub(crate) async fn stored<DB: TestBackend>(
    database: &TestDatabase<DB>,
    sent: &[Sent],
    numbers: &mut Numbers,
) {
    let committed: BTreeSet<&str> = sent.iter().map(|message| message.id.as_str()).collect();
    let stored = database.texts("select id from outbox_message where event_type <> 'order.echoed'").await;
    let stored: BTreeSet<&str> = stored.iter().map(String::as_str).collect();
    numbers.expect("messages stored", count(stored.len()), count(committed.len()));
    numbers.expect("messages lost or invented", count(committed.symmetric_difference(&stored).count()), 0);
    let sql = "select count(*) from (
                   select message_id from business union all
                   select id from outbox_message where event_type <> 'order.echoed') halves";
    numbers.expect("their changes and they", database.number(sql).await, 2 * count(committed.len()));
    let sql = "select count(*) from business b join outbox_message m on m.id = b.message_id";
    numbers.expect("their changes", database.number(sql).await, count(committed.len()));
}

/// Whether the consumer that came late has had a message that the others had too.
pub(crate) async fn late_has_begun<DB: TestBackend>(database: &TestDatabase<DB>) -> bool {
    let sql = "select count(*) from effects e join outbox_message m on m.id = e.message_id
               where e.consumer = 'late' and m.event_type = 'order.placed'";
    database.number(sql).await > 0
}

/// A consumer that came late has all of what nobody had taken, and of each key of the rest everything after
/// some point: no hole.
pub(crate) async fn late<DB: TestBackend>(database: &TestDatabase<DB>, numbers: &mut Numbers) {
    let noted = database.number("select count(*) from outbox_message where event_type = 'order.noted'").await;
    let had = "select count(*) from effects e join outbox_message m on m.id = e.message_id
               where e.consumer = 'late' and m.event_type = ";
    let had_noted = database.number(&format!("{had}'order.noted'")).await;
    let had_placed = database.number(&format!("{had}'order.placed'")).await;
    let unrouted = database.count("outbox_unrouted").await;
    let holes = database
        .number(
            "select count(*)
             from outbox_message m
             where m.event_type = 'order.placed' and m.msg_key is not null
               and not exists (select 1 from effects e where e.consumer = 'late' and e.message_id = m.id)
               and exists (select 1 from outbox_message x join effects e on e.message_id = x.id
                           where e.consumer = 'late' and x.event_type = 'order.placed'
                             and x.msg_key = m.msg_key and x.seq < m.seq)",
        )
        .await;
    numbers.add("unrouted at first, then taken by late", format!("{had_noted} of {noted}"));
    numbers.add("taken by late from its start on", had_placed);
    numbers.add("holes in what late took", holes);
    assert_eq!(had_noted, noted, "the late consumer must get what nobody had taken\n{numbers}");
    assert_eq!(unrouted, 0, "what was taken is not unrouted any more\n{numbers}");
    assert_eq!(holes, 0, "the late consumer must miss nothing after its start\n{numbers}");
}

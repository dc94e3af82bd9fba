//! What must hold of any database, each found by one query.

use std::collections::BTreeSet;

use crate::{TestBackend, TestDatabase};

/// The pairs of a message and a consumer subscribed to its type, with how many states each is in; a state is:
/// handled, delivered to a lane that exists, due at some time, dead, or waiting behind an earlier message of its key.
const STATES: &str = "
    select c.name, m.id,
           (select count(*) from outbox_inbox i
            where i.consumer = s.consumer and i.message_id = m.id and i.claimed_by is null)
         + (select count(*) from outbox_delivery d
            where d.consumer = s.consumer and d.seq = m.seq and d.lane < c.lanes and d.lane = m.slot % c.lanes)
         + (select count(*) from outbox_parked p
            where p.consumer = s.consumer and p.lane = m.slot % c.lanes
              and p.key_hash in (m.key_hash, -m.seq) and p.seq = m.seq
              and (p.due_at is not null
                   or p.state in (2, 3, 6)
                   or p.state = 1
                      and exists (select 1 from outbox_parked head
                                  where head.consumer = p.consumer and head.lane = p.lane
                                    and head.key_hash = p.key_hash and head.seq < p.seq
                                    and head.state not in (1, 3)))) as states
    from outbox_message m
    join outbox_subscription s on s.event_type = m.event_type
    join outbox_consumer c on c.id = s.consumer
    where c.name <> 'late'";

/// Messages that nothing will ever bring to a consumer, or that are in two states. Holds at every moment; a consumer
/// called `late` has not all that was published before it came, and is left out.
pub async fn stranded<DB: TestBackend>(database: &TestDatabase<DB>) -> i64 {
    database.number(&format!("select count(*) from ({STATES}) pairs where states <> 1")).await
}

/// As [`stranded`] where an operator has discarded these pairs of a consumer and a message: they are in no state, and
/// every other pair is in one. What is not so, with the number of its states.
pub async fn stranded_but<DB: TestBackend>(
    database: &TestDatabase<DB>,
    discarded: &BTreeSet<(String, String)>,
) -> Vec<String> {
    let sql = format!("select name || ' ' || id || ' ' || states from ({STATES}) pairs where states <> 1");
    let found: BTreeSet<String> = database.texts(&sql).await.into_iter().collect();
    let expected = discarded.iter().map(|(consumer, message)| format!("{consumer} {message} 0")).collect();
    found.symmetric_difference(&expected).cloned().collect()
}

/// Handlers' effects without their mark, or marks without an effect. Holds at every moment.
pub async fn unsettled<DB: TestBackend>(database: &TestDatabase<DB>) -> i64 {
    let sql = "select abs((select count(*) from effects) - (select count(*) from outbox_inbox))";
    database.number(sql).await
}

/// Effects whose predecessor in their key's effects has a higher number.
///
/// An effect's id is drawn by the handler, which holds its lane until it commits: two handlers of one key never
/// overlap, and the ids are the order in which they ran.
pub async fn order_violations<DB: TestBackend>(database: &TestDatabase<DB>) -> i64 {
    let sql = "
        select count(*)
        from (select m.seq, lag(m.seq) over (partition by e.consumer, m.msg_key order by e.id) as previous
              from effects e join outbox_message m on m.id = e.message_id
              where m.msg_key is not null and m.deliver_at is null) steps
        where previous > seq";
    database.number(sql).await
}

/// Effects beyond the first of their message and consumer.
pub async fn duplicates<DB: TestBackend>(database: &TestDatabase<DB>) -> i64 {
    let sql = "select (select count(*) from effects)
                    - (select count(*) from (select distinct message_id, consumer from effects) pairs)";
    database.number(sql).await
}

/// Undone messages of all consumers.
pub async fn undone<DB: TestBackend>(database: &TestDatabase<DB>) -> i64 {
    let sql = "select (select count(*) from outbox_delivery) + (select count(*) from outbox_parked)";
    database.number(sql).await
}

/// Checks what holds at every moment, whatever has been handled.
///
/// # Panics
/// When it does not hold, saying `when`.
pub async fn holds<DB: TestBackend>(database: &TestDatabase<DB>, when: &str) {
    assert_eq!(stranded(database).await, 0, "stranded: {when}");
    assert_eq!(unsettled(database).await, 0, "effects without mark, or marks without effect: {when}");
    assert_eq!(duplicates(database).await, 0, "handled twice: {when}");
    assert_eq!(order_violations(database).await, 0, "handled out of order: {when}");
}

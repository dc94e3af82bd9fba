//! The attacks on servers for longer, and a row of what each came to: `tests/soak` asks for both.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::time::Duration;

use outbox_tests::{TestBackend, TestDatabase, check};

/// How long an attack lasts: its own time, unless the environment says how many minutes.
pub(crate) fn lasts(own: Duration) -> Duration {
    let Ok(minutes) = std::env::var("OUTBOX_SOAK_MINUTES") else { return own };
    let minutes: f64 = minutes.parse().expect("OUTBOX_SOAK_MINUTES is a number");
    Duration::from_secs_f64(minutes * 60.0).max(own)
}

/// Adds the attack's row to the file that the environment names.
pub(crate) async fn note<DB: TestBackend>(
    database: &TestDatabase<DB>,
    of: &str,
    broken: usize,
    discarded: usize,
    out_of_order: i64,
) {
    let Some(table) = std::env::var_os("OUTBOX_SOAK_TABLE") else { return };
    let published = database.count("outbox_message").await;
    let handled = database.count("effects").await;
    let failed = database.count("outbox_attempt").await;
    let pairs = "
        select count(*)
        from outbox_message m
        join outbox_subscription s on s.event_type = m.event_type
        join outbox_consumer c on c.id = s.consumer
        where c.name <> 'late'";
    let pairs = database.number(pairs).await;
    let done = "select count(*) from (select distinct message_id, consumer from effects where consumer <> 'late') pairs";
    let done = database.number(done).await;
    let lost = pairs - done - i64::try_from(discarded).expect("a small number");
    let doubled = check::duplicates(database).await;
    let row = format!(
        "{of}\t{published}\t{handled}\t{failed}\t{broken}\t{discarded}\t{lost}\t{doubled}\t{out_of_order}\n"
    );
    let file = OpenOptions::new().append(true).create(true).open(table);
    file.and_then(|mut file| file.write_all(row.as_bytes())).expect("the table can be written");
}

use outbox::Outbox;
use sqlx::Sqlite;

#[outbox::test]
fn publishes(_: Outbox<Sqlite>) {}

fn main() {}

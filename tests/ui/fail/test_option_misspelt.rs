use outbox::Outbox;
use sqlx::Sqlite;

#[outbox::test(krate = "outbox")]
async fn publishes(_: Outbox<Sqlite>) {}

fn main() {}

use outbox::Outbox;
use sqlx::SqlitePool;

async fn pay(pool: SqlitePool) {
    let outbox = Outbox::new(pool);
    let mut tx = outbox.begin().await.expect("a transaction");
    let _ = outbox.publish_event(&mut tx, "paid").await;
}

fn main() {
    let _ = pay;
}

use outbox::{Outbox, OutboxEvent};
use serde::{Deserialize, Serialize};
use sqlx::SqlitePool;

#[derive(Serialize, Deserialize, OutboxEvent)]
struct OrderPaid {
    order_id: u64,
}

async fn pay(pool: SqlitePool) {
    let outbox = Outbox::new(pool.clone());
    let _ = outbox.publish_event(&pool, OrderPaid { order_id: 7 }).await;
}

fn main() {
    let _ = pay;
}

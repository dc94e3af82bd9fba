//! Events and handlers that come out of a `macro_rules!` themselves.

use outbox::{OutboxEvent, outbox_handler};
use serde::{Deserialize, Serialize};
use sqlx::SqliteConnection;

macro_rules! domain {
    ($event:ident, $field:ident: $ty:ty, $name:literal, $handler:ident, $in:ident, $db:ty) => {
        /// An event.
        #[derive(Debug, Clone, Serialize, Deserialize, OutboxEvent)]
        #[outbox(type = $name, aggregate = "{order_id}")]
        struct $event {
            #[outbox(key)]
            $field: $ty,
            #[outbox(header)]
            trace: Option<$ty>,
            order_id: u64,
        }

        #[outbox_handler(consumer = $name)]
        async fn $handler(_: $event) {}

        #[outbox_handler]
        async fn $in(event: $event, db: $db) {
            look_at(&event, db);
        }
    };
}

domain!(ByMacro, shard: u8, "by.macro", by_macro, by_macro_in, &mut SqliteConnection);

/// A handler owns its event also where it only looks at it.
const fn look_at(_: &ByMacro, _: &SqliteConnection) {}

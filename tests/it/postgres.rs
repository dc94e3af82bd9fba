//! PostgreSQL: isolation levels, wake-ups, sessions and their settings, connections that are cut, the catalog.

mod export;
mod external;
mod isolation;
mod pooler;
mod registration;
mod schema;
mod sessions;
mod wake;

use outbox_tests::TestDatabase;
use sqlx::Postgres;

/// A migrated database, or `None` where there is no server.
async fn database() -> Option<TestDatabase<Postgres>> {
    TestDatabase::migrated().await
}

//! MySQL and MariaDB: what an old snapshot sees, deadlocks that end transactions, sessions and their settings, the catalog.

mod isolation;
mod registration;
mod schema;
mod sessions;

use outbox_tests::TestDatabase;
use sqlx::MySql;

/// A migrated database, or `None` where there is no server.
async fn database() -> Option<TestDatabase<MySql>> {
    TestDatabase::migrated().await
}

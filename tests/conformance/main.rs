//! What every database must do, as tests that are written once and run on each.
//!
//! A behaviour is one generic function; `on_each_database!` makes a test of it for each database, named
//! `theme::database::behaviour`. What only one database can do is in `tests/it`.

#[allow(dead_code, reason = "each suite uses its part")]
#[path = "../common/mod.rs"]
mod common;

use std::process::Command;

use outbox_tests::{Process, TestBackend, TestDatabase};

/// Makes a test for each database of each generic function, which gets a fresh database: one with the outbox's
/// tables and the ledger, or after `empty:` one without any table.
macro_rules! on_each_database {
    ($($name:ident),+ $(,)?) => {
        on_each_database!(@ $($name: migrated),+);
    };
    (empty: $($empty:ident),+ $(,)?) => {
        on_each_database!(@ $($empty: empty),+);
    };
    ($($name:ident),+; empty: $($empty:ident),+ $(,)?) => {
        on_each_database!(@ $($name: migrated),+, $($empty: empty),+);
    };
    (@ $($name:ident: $made:ident),+) => {
        mod sqlite {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    if let Some(database) = outbox_tests::TestDatabase::<sqlx::Sqlite>::$made().await {
                        super::$name(database).await;
                    }
                }
            )+
        }

        #[cfg(feature = "postgres")]
        mod postgres {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    if let Some(database) = outbox_tests::TestDatabase::<sqlx::Postgres>::$made().await {
                        super::$name(database).await;
                    }
                }
            )+
        }

        #[cfg(feature = "mysql")]
        mod mysql {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    if let Some(database) = outbox_tests::TestDatabase::<sqlx::MySql>::$made().await {
                        super::$name(database).await;
                    }
                }
            )+
        }
    };
}

mod bad_input;
mod bounded;
mod causation;
mod content;
mod delivery;
mod evolution;
mod export;
mod external;
mod failures;
mod groups;
mod inbox;
mod leases;
mod marks;
mod migrations;
mod names;
mod order;
mod publish;
mod rate;
mod registration;
mod removal;
mod retention;
mod run;
mod subscriptions;
mod transactions;
mod unmarked;
mod wake;

/// Starts `conformance/child.rs` on this database.
fn child<DB: TestBackend>(work: &str, database: &TestDatabase<DB>, more: &[&str]) -> Process {
    Process::start(&mut command(work, database, more)).expect("it was built with this test")
}

/// The command of [`child`].
fn command<DB: TestBackend>(work: &str, database: &TestDatabase<DB>, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_outbox-test-conformance"));
    command.args([work, <DB as sqlx::Database>::NAME, database.address()]).args(more);
    command
}

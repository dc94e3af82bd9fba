//! The helpers for users' tests: the feature `testing` of the library.

mod assertions;
mod attribute;
mod clock;
mod documented;
mod feature;
mod handle;

use outbox::testing::TestBackend;
use outbox::{Draft, Outbox, OutboxEvent};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, OutboxEvent)]
struct OrderPaid {
    order_id: u64,
    cents: u64,
}

#[derive(Debug, Serialize, Deserialize, OutboxEvent)]
struct OrderShipped {
    order_id: u64,
}

fn paid(order_id: u64, cents: u64) -> OrderPaid {
    OrderPaid { order_id, cents }
}

/// In a transaction of its own.
async fn publish<DB: TestBackend>(outbox: &Outbox<DB>, draft: Draft) {
    let tx = outbox.begin().await.expect("begun");
    tx.publish(draft).expect("accepted");
    tx.commit().await.expect("committed");
}

async fn publish_event<DB: TestBackend>(outbox: &Outbox<DB>, event: impl OutboxEvent) {
    publish(outbox, outbox.draft(&event).expect("encoded")).await;
}

/// The URL of the database's server; `None` where there is none, which was said.
#[cfg(any(feature = "postgres", feature = "mysql"))]
fn server<DB: TestBackend>() -> Option<String> {
    let variable = DB::SERVER.expect("it has a server");
    let url = std::env::var(variable).ok();
    if url.is_none() {
        assert!(std::env::var_os("OUTBOX_REQUIRE_SERVERS").is_none(), "{variable} is not set");
        eprintln!("SKIPPED {}: {variable} is not set", DB::NAME);
    }
    url
}

#[cfg(feature = "postgres")]
async fn postgres() -> Option<outbox::testing::TestOutbox<sqlx::Postgres>> {
    Some(outbox::testing::TestOutbox::postgres(&server::<sqlx::Postgres>()?).await.expect("made"))
}

#[cfg(feature = "mysql")]
async fn mysql() -> Option<outbox::testing::TestOutbox<sqlx::MySql>> {
    Some(outbox::testing::TestOutbox::mysql(&server::<sqlx::MySql>()?).await.expect("made"))
}

/// Each test once for each database.
macro_rules! on_each_database {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name(outbox::testing::TestOutbox::sqlite().await.expect("made")).await;
            })*
        }

        #[cfg(feature = "postgres")]
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                if let Some(outbox) = crate::postgres().await {
                    super::$name(outbox).await;
                }
            })*
        }

        #[cfg(feature = "mysql")]
        mod mysql {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                if let Some(outbox) = crate::mysql().await {
                    super::$name(outbox).await;
                }
            })*
        }
    };
}
pub(crate) use on_each_database;

//! Calls while the server is away.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use outbox::Outbox;
use outbox_tests::eventually;
use sqlx::Postgres;
use sqlx::postgres::PgPoolOptions;
use tokio::sync::Notify;

use super::database;
use super::wake::far;
use crate::common::*;

/// What a call came to is kept until it can be settled, so it is not made again; also where the server was away for longer
/// than the lease, and nobody else was there to take the lane.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_call_came_to_is_kept_while_the_server_is_away() {
    let Some(database) = database().await else { return };
    let Some((proxy, through)) = far(&database).await else { return };
    let outbox = Outbox::<Postgres>::new(
        PgPoolOptions::new().max_connections(3).connect_with(through).await.expect("connects"),
    );
    let (calls, open) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let script = {
        let (calls, open) = (calls.clone(), open.clone());
        Script::<Postgres>::new(move |_| {
            let (calls, open) = (calls.clone(), open.clone());
            Box::pin(async move {
                calls.fetch_add(1, Ordering::SeqCst);
                open.notified().await;
                Ok(())
            })
        })
    };
    let lease = Duration::from_millis(900);
    let consumers = outbox.consumers().handler::<Caller>().state(script).config(quick());
    let running = Running::start(consumers.options("calls", |options| options.lease = lease));
    let registered = "select count(*) from outbox_subscription where ready";
    eventually("the registration", LONG, async || database.number(registered).await == 1).await;
    publish(&database.outbox(), placed_as("m", "m")).await;
    eventually("a call", LONG, async || calls.load(Ordering::SeqCst) == 1).await;
    proxy.refuse();
    open.notify_one();
    let over = "select count(*) from outbox_lane where leased_until < clock_timestamp()";
    eventually("the lease to be over", LONG, async || database.number(over).await == 1).await;
    assert_eq!(database.count("outbox_delivery").await, 1);
    proxy.pass();
    settled(&database).await;
    let report = running.stop().await;
    assert_eq!((report.handled, report.leases_lost, calls.load(Ordering::SeqCst)), (1, 0, 1));
}

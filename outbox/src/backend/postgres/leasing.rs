//! Working outside of transactions on PostgreSQL.

use std::time::Duration;

use sqlx::{PgConnection, Postgres};

use super::Server;
use crate::backend::{Lane, Leasing, MessageClaim, SqlResult, micros};

impl Leasing for Postgres {
    async fn lease(
        conn: &mut PgConnection,
        sql: &Server,
        lane: Lane,
        owner: &str,
        lease: Duration,
    ) -> SqlResult<u64> {
        let leased = sql.query(&sql.lease).bind(lane.consumer).bind(lane.lane).bind(owner);
        Ok(leased.bind(micros(lease)).execute(conn).await?.rows_affected())
    }

    async fn renew_lease(
        conn: &mut PgConnection,
        sql: &Server,
        lane: Lane,
        owner: &str,
        lease: Duration,
    ) -> SqlResult<u64> {
        let renewed = sql.query(&sql.lease_renew).bind(lane.consumer).bind(lane.lane).bind(owner);
        Ok(renewed.bind(micros(lease)).execute(conn).await?.rows_affected())
    }

    async fn end_lease(conn: &mut PgConnection, sql: &Server, lane: Lane, owner: &str) -> SqlResult<u64> {
        let ended = sql.query(&sql.lease_end).bind(lane.consumer).bind(lane.lane).bind(owner);
        Ok(ended.execute(conn).await?.rows_affected())
    }

    async fn claim_message(
        conn: &mut PgConnection,
        sql: &Server,
        (consumer, id): (i16, &str),
        owner: &str,
        stale_after: Option<Duration>,
        attempt: i32,
    ) -> SqlResult<MessageClaim> {
        let claim = sql.query_scalar(&sql.claim_message).bind(consumer).bind(id).bind(owner);
        let claim = claim.bind(stale_after.map(micros)).bind(attempt);
        if let Some(attempt) = claim.fetch_optional(&mut *conn).await? {
            return Ok(MessageClaim::Owned(attempt));
        }
        let handled = sql.query_scalar(&sql.claim_find).bind(consumer).bind(id);
        let handled: Option<bool> = handled.fetch_optional(conn).await?;
        Ok(if handled == Some(true) { MessageClaim::Handled } else { MessageClaim::Busy })
    }

    async fn finish_claim(
        conn: &mut PgConnection,
        sql: &Server,
        (consumer, id): (i16, &str),
        owner: &str,
    ) -> SqlResult<u64> {
        let done = sql.query(&sql.claim_done).bind(consumer).bind(id).bind(owner);
        Ok(done.execute(conn).await?.rows_affected())
    }

    async fn end_claim(
        conn: &mut PgConnection,
        sql: &Server,
        (consumer, id): (i16, &str),
        owner: Option<&str>,
    ) -> SqlResult<u64> {
        let ended = sql.query(&sql.claim_end).bind(consumer).bind(id).bind(owner);
        Ok(ended.execute(conn).await?.rows_affected())
    }
}

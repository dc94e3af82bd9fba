//! Working outside of transactions on MySQL.

use std::time::Duration;

use sqlx::{MySql, MySqlConnection, Row as _, query, raw_sql};

use super::Server;
use crate::backend::{Lane, Leasing, MessageClaim, SqlResult, micros};

impl Leasing for MySql {
    async fn lease(
        conn: &mut MySqlConnection,
        sql: &Server,
        lane: Lane,
        owner: &str,
        lease: Duration,
    ) -> SqlResult<u64> {
        let leased = query(sql.lease.clone()).bind(owner).bind(micros(lease));
        Ok(leased.bind(lane.consumer).bind(lane.lane).execute(conn).await?.rows_affected())
    }

    async fn renew_lease(
        conn: &mut MySqlConnection,
        sql: &Server,
        lane: Lane,
        owner: &str,
        lease: Duration,
    ) -> SqlResult<u64> {
        raw_sql(sql.autocommit.clone()).execute(&mut *conn).await?;
        let renewed = query(sql.lease_renew.clone()).bind(micros(lease));
        let renewed = renewed.bind(lane.consumer).bind(lane.lane).bind(owner);
        Ok(renewed.execute(conn).await?.rows_affected())
    }

    async fn end_lease(conn: &mut MySqlConnection, sql: &Server, lane: Lane, owner: &str) -> SqlResult<u64> {
        let ended = query(sql.lease_end.clone()).bind(lane.consumer).bind(lane.lane).bind(owner);
        Ok(ended.execute(conn).await?.rows_affected())
    }

    async fn claim_message(
        conn: &mut MySqlConnection,
        sql: &Server,
        (consumer, id): (i16, &str),
        owner: &str,
        stale_after: Option<Duration>,
        attempt: i32,
    ) -> SqlResult<MessageClaim> {
        let stale_after = stale_after.map(micros);
        query(sql.claim_message.clone())
            .bind(consumer)
            .bind(id)
            .bind(owner)
            .bind(stale_after)
            .bind(attempt)
            .bind(stale_after)
            .bind(attempt)
            .bind(stale_after)
            .bind(owner)
            .bind(owner)
            .bind(stale_after)
            .execute(&mut *conn)
            .await?;
        let found = query(sql.claim_find.clone()).bind(owner).bind(consumer).bind(id).fetch_one(conn).await?;
        let says = |column: &str| SqlResult::Ok(found.try_get::<i64, _>(column)? != 0);
        Ok(if says("owned")? {
            MessageClaim::Owned(i32::try_from(found.try_get::<i64, _>("attempts")?).unwrap_or(i32::MAX))
        } else if says("handled")? {
            MessageClaim::Handled
        } else {
            MessageClaim::Busy
        })
    }

    async fn finish_claim(
        conn: &mut MySqlConnection,
        sql: &Server,
        (consumer, id): (i16, &str),
        owner: &str,
    ) -> SqlResult<u64> {
        let done = query(sql.claim_done.clone()).bind(consumer).bind(id).bind(owner);
        Ok(done.execute(conn).await?.rows_affected())
    }

    async fn end_claim(
        conn: &mut MySqlConnection,
        sql: &Server,
        (consumer, id): (i16, &str),
        owner: Option<&str>,
    ) -> SqlResult<u64> {
        let ended = query(sql.claim_end.clone()).bind(consumer).bind(id).bind(owner).bind(owner);
        Ok(ended.execute(conn).await?.rows_affected())
    }
}

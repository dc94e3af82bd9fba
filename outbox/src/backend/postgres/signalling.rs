//! Hearing of other processes' commits on PostgreSQL: `LISTEN` and `NOTIFY`.
//!
//! A `NOTIFY` in the publisher's own transaction would take a lock that all of them share, until the commit. So it is
//! sent after it, on another connection.

use std::io;

use sha2::{Digest as _, Sha256};
use sqlx::postgres::PgListener;
use sqlx::{PgConnection, PgPool, Postgres};

use super::Server;
use crate::backend::{Signalling, SqlResult};
use crate::config::Tables;

/// The longest name of anything on PostgreSQL, in bytes.
const LONGEST: usize = 63;

impl Signalling for Postgres {
    const TELLS: bool = true;

    type Ear = PgListener;

    async fn listen(pool: &PgPool, _: &Server, tables: &Tables) -> SqlResult<Option<PgListener>> {
        let mut listener = PgListener::connect_with(pool).await?;
        // Whoever listens must learn of a loss, to look for what was said in the meantime.
        listener.eager_reconnect(false);
        listener.listen(&channel(tables)).await?;
        Ok(Some(listener))
    }

    async fn hear(listener: &mut PgListener) -> SqlResult<bool> {
        match listener.try_recv().await? {
            Some(notification) => Ok(notification.payload().is_empty()),
            None => Err(sqlx::Error::Io(io::ErrorKind::ConnectionAborted.into())),
        }
    }

    async fn tell(conn: &mut PgConnection, sql: &Server, tables: &Tables, but: &[i16]) -> SqlResult<()> {
        let but = but.iter().fold(",".to_owned(), |list, consumer| format!("{list}{consumer},"));
        sql.query(&sql.tell).bind(channel(tables)).bind(but).execute(conn).await.map(drop)
    }

    async fn test_ears(conn: &mut PgConnection, sql: &Server, tables: &Tables) -> SqlResult<()> {
        sql.query(&sql.test_ears).bind(channel(tables)).execute(conn).await.map(drop)
    }
}

/// The channel of these tables; every outbox of a database has its own.
fn channel(tables: &Tables) -> String {
    let schema = tables.schema().unwrap_or(super::DEFAULT_SCHEMA);
    // No name of a schema or a prefix holds a dot.
    let name = format!("{schema}.{}outbox", tables.prefix());
    if name.len() <= LONGEST {
        return name;
    }
    let digest = Sha256::digest(&name);
    let half = digest[..16].try_into().expect("a SHA-256 has 32 bytes");
    format!("outbox_{:032x}", u128::from_be_bytes(half))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outbox_has_a_channel_of_its_own_with_a_name_that_is_not_too_long() {
        let channel = |schema: &str, prefix: &str| channel(&Tables::new(schema, prefix).expect("valid"));
        assert_eq!(channel("", ""), "public.outbox");
        assert_eq!(channel("public", ""), "public.outbox");
        assert_eq!(channel("app", "b_"), "app.b_outbox");
        let long = |last: &str| channel(&format!("{}{last}", "s".repeat(62)), &"p".repeat(30));
        assert!(long("a").len() <= LONGEST && long("a").starts_with("outbox_"));
        assert_ne!(long("a"), long("b"));
        assert_eq!(long("a"), long("a"));
    }
}

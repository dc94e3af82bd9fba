//! Hearing of other processes' commits on MySQL: it has no means for it, so they are found by polling.

use std::convert::Infallible;

use sqlx::{MySql, MySqlConnection, MySqlPool};

use super::Server;
use crate::backend::{Signalling, SqlResult};
use crate::config::Tables;

impl Signalling for MySql {
    const TELLS: bool = false;

    type Ear = Infallible;

    async fn listen(_: &MySqlPool, _: &Server, _: &Tables) -> SqlResult<Option<Infallible>> {
        Ok(None)
    }

    async fn hear(ear: &mut Infallible) -> SqlResult<bool> {
        match *ear {}
    }

    async fn tell(_: &mut MySqlConnection, _: &Server, _: &Tables, _: &[i16]) -> SqlResult<()> {
        Ok(())
    }

    async fn test_ears(_: &mut MySqlConnection, _: &Server, _: &Tables) -> SqlResult<()> {
        Ok(())
    }
}

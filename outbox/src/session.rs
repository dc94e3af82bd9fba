//! A connection of ours with at most one transaction on it.
//!
//! sqlx's own `Transaction` either borrows its connection or goes back to the pool at each commit. An executor
//! keeps its connection over many transactions and lends it to handlers by value, so the two are kept here.

use std::any::Any;
use std::ops::{Deref, DerefMut};
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;
use sqlx::SqlSafeStr as _;
use sqlx::pool::PoolConnection;
use sqlx_core::transaction::TransactionManager;

use crate::backend::{Backend, Begin, End, SqlResult};

/// How long the end of a transaction may take.
const ENDING: Duration = Duration::from_secs(5);

pub(crate) struct Session<DB: Backend> {
    /// `None` once the connection was closed.
    conn: Option<PoolConnection<DB>>,
    /// What ends the transaction that is open, where it is none of sqlx's.
    end: Option<End>,
    /// The application's, which it wants back whatever happened.
    borrowed: bool,
    /// Whether it is given back where this is dropped.
    keep: bool,
}

impl<DB: Backend> Session<DB> {
    pub(crate) fn new(conn: PoolConnection<DB>, borrowed: bool) -> Self {
        Self { conn: Some(conn), end: None, borrowed, keep: true }
    }

    /// No connection: for a handler that works outside of transactions.
    pub(crate) fn closed() -> Self {
        Self { conn: None, end: None, borrowed: false, keep: true }
    }

    /// Whether the connection may be used for another transaction.
    pub(crate) fn is_open(&self) -> bool {
        self.conn.is_some()
    }

    /// The connection, for a handler to work with; this session is closed until it is put back.
    pub(crate) fn lend(&mut self) -> Self {
        Self { conn: self.conn.take(), end: self.end.take(), borrowed: self.borrowed, keep: self.keep }
    }

    pub(crate) async fn begin(&mut self, begin: impl Into<Begin>) -> SqlResult<()> {
        let begin = begin.into();
        // Before the statement, which may have begun it where its answer does not arrive.
        self.end = begin.end;
        DB::TransactionManager::begin(self, Some(begin.begin)).await
    }

    pub(crate) async fn commit(&mut self) -> SqlResult<()> {
        let Some(End { commit, .. }) = &self.end else {
            return DB::TransactionManager::commit(self).await;
        };
        let commit = commit.clone();
        DB::run(self, commit).await?;
        self.end = None;
        self.forget();
        Ok(())
    }

    /// Begins what needs no transaction: in one all the same, where a pooler may send what follows to several servers.
    pub(crate) async fn enter(&mut self, sql: &DB::Sql) -> SqlResult<()> {
        if DB::stands_alone(sql) {
            return Ok(());
        }
        self.begin(DB::begin_registration()).await
    }

    /// Ends what [`enter`](Self::enter) has begun.
    pub(crate) async fn leave(&mut self) -> SqlResult<()> {
        if DB::TransactionManager::get_transaction_depth(self) > 0 { self.commit().await } else { Ok(()) }
    }

    /// Ends the transaction, whatever its state; closes the connection where even that fails.
    pub(crate) async fn rollback(&mut self) {
        if let Some(End { rollback, abandon, .. }) = self.end.take() {
            let ended = async {
                self.conn.is_some()
                    && (DB::run(self, rollback).await.is_ok() || DB::run(self, abandon).await.is_ok())
            };
            // Not for ever, where a handler has dropped a statement and nobody knows which answer is whose.
            let ended = AssertUnwindSafe(ended).catch_unwind();
            if !matches!(tokio::time::timeout(ENDING, ended).await, Ok(Ok(true))) {
                self.close();
            }
            self.forget();
            return;
        }
        while self.conn.is_some() && DB::TransactionManager::get_transaction_depth(self) > 0 {
            if DB::TransactionManager::rollback(self).await.is_ok() {
                continue;
            }
            // A handler has ended the transaction by itself, and sqlx still counts it: give it one to end.
            if DB::run(self, "begin".into_sql_str()).await.is_err()
                || DB::TransactionManager::rollback(self).await.is_err()
            {
                self.close();
            }
        }
    }

    /// sqlx still counts a transaction that was ended by other statements than its own. It takes a ROLLBACK to tell it,
    /// which is sent with the next statement and finds nothing to roll back.
    fn forget(&mut self) {
        let Some(conn) = &mut self.conn else { return };
        match DB::TransactionManager::get_transaction_depth(conn) {
            0 => (),
            1 => DB::TransactionManager::start_rollback(conn),
            // A handler has forgotten one of its own, whose savepoint is gone: that cannot be told.
            _ => self.close(),
        }
    }

    /// Whether a borrowed connection is given back where this is dropped now.
    pub(crate) fn keep(&mut self, keep: bool) {
        self.keep = keep;
    }

    /// Closes the connection, unless it is the application's.
    pub(crate) fn close_own(&mut self) {
        if !self.borrowed {
            self.close();
        }
    }

    /// Closes the connection without a word to the server, which then rolls back.
    pub(crate) fn close(&mut self) {
        if let Some(conn) = self.conn.take() {
            drop(conn.detach());
        }
    }
}

/// Runs a statement whose panic is an error: a driver that reads an answer as that of another statement, since one was dropped,
/// may run into assertions of its own.
pub(crate) async fn caught<T>(statement: impl Future<Output = SqlResult<T>>) -> SqlResult<T> {
    AssertUnwindSafe(statement).catch_unwind().await.unwrap_or_else(|panic| {
        Err(sqlx::Error::Protocol(format!("the driver panicked: {}", panic_text(&*panic))))
    })
}

/// What a panic says.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a value that is no text")
}

impl<DB: Backend> Deref for Session<DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &DB::Connection {
        self.conn.as_ref().expect("a closed session is not used again")
    }
}

impl<DB: Backend> DerefMut for Session<DB> {
    fn deref_mut(&mut self) -> &mut DB::Connection {
        self.conn.as_mut().expect("a closed session is not used again")
    }
}

impl<DB: Backend> Drop for Session<DB> {
    /// In the middle of a transaction, and perhaps of a statement, for which the pool would wait when it is closed:
    /// so the connection is closed here. A borrowed one is rolled back before its next use, as sqlx's `Transaction`
    /// does it.
    fn drop(&mut self) {
        let Some(conn) = &mut self.conn else { return };
        let depth = DB::TransactionManager::get_transaction_depth(conn);
        // A statement that was dropped may be in the way of that, where the driver loses count of the answers.
        let back = self.borrowed && (depth == 0 || DB::SAFE_TO_DROP);
        if !self.keep || (depth > 0 || self.end.is_some()) && !back {
            self.close();
            return;
        }
        for _ in 0..depth {
            DB::TransactionManager::start_rollback(conn);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_of_the_driver_is_an_error_that_says_what_it_said() {
        let error = caught::<()>(async { panic!("out of {}", "bounds") }).await.expect_err("it panicked");
        assert!(error.to_string().contains("the driver panicked: out of bounds"), "{error}");
        assert_eq!(caught(async { Ok(7) }).await.expect("it did not"), 7);
    }
}

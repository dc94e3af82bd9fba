//! The consumers' own pools, made from the application's.

use sqlx::pool::PoolOptions;
use sqlx::{Connection, Pool};

use crate::backend::Backend;
use crate::error::{Error, Result};
use crate::publish::Outbox;
use crate::session::Session;

/// How to connect to a database.
pub(crate) type ConnectOptions<DB> = <<DB as sqlx::Database>::Connection as Connection>::Options;

/// How many transactions around calls, and of pruning, are open at once. They are short.
const EXTERNAL: u32 = 2;

/// Where the consumers' connections come from.
///
/// Pools of their own, so that neither can starve the other and nothing that is set on these connections leaks
/// into the application's. They are made from the application's options, hooks included. A database in memory
/// exists in one pool only, so there that pool is borrowed.
#[derive(Debug)]
pub(crate) struct Connections<DB: Backend> {
    executors: Pool<DB>,
    /// One connection that no handler gets: for the poll, and to end a handler's statement.
    reserve: Pool<DB>,
    /// For the short transactions around calls that are made outside of them, and for those that prune.
    external: Pool<DB>,
    /// None where nothing could be heard.
    listener: Option<ConnectOptions<DB>>,
    /// Those of the connection on which leases are renewed.
    renewals: ConnectOptions<DB>,
    borrowed: bool,
}

impl<DB: Backend> Connections<DB> {
    /// One connection for each executor, one in reserve, and one that listens: `listener`'s, if it is given. Where they are
    /// `pooled`, they get no settings, which others would find on theirs.
    pub(crate) fn new(
        outbox: &Outbox<DB>,
        executors: usize,
        listener: Option<ConnectOptions<DB>>,
        pooled: bool,
    ) -> Self {
        let options = (*outbox.pool().connect_options()).clone();
        let listener = listener.or_else(|| (!pooled).then(|| options.clone()));
        if DB::is_private_memory(&options) {
            let [executors, reserve, external] = [(); 3].map(|()| outbox.pool().clone());
            return Self { executors, reserve, external, listener, renewals: options, borrowed: true };
        }
        let pool = |size, options| own_pool(outbox).max_connections(size).connect_lazy_with(options);
        let size = u32::try_from(executors).unwrap_or(u32::MAX);
        let own = DB::own_options(options.clone(), pooled, outbox.config().controls());
        let reserve = DB::reserve_options(options, pooled);
        Self {
            executors: pool(size, own.clone()),
            reserve: pool(1, reserve.clone()),
            external: pool(if DB::SINGLE_WRITER { 1 } else { EXTERNAL }, own),
            listener,
            renewals: reserve,
            borrowed: false,
        }
    }

    /// As [`new`](Self::new), with a first connection for handlers; finds out whether there is a pooler, unless that is known.
    pub(crate) async fn connect(
        outbox: &Outbox<DB>,
        executors: usize,
        listener: Option<ConnectOptions<DB>>,
        pooled: Option<bool>,
    ) -> Result<(Self, Session<DB>)> {
        if let Some(pooled) = pooled.or((!DB::POOLABLE).then_some(false)) {
            return Self::connect_as(outbox, executors, listener, pooled).await;
        }
        let direct = Self::new(outbox, executors, listener.clone(), false);
        let failed = |error| Error::database(DB::kind(&error), "connect", error);
        match direct.executors.acquire().await {
            Ok(mut conn) => {
                if DB::is_direct(&mut conn).await.map_err(failed)? {
                    DB::set_pooled(outbox.sql(), false);
                    let session = Session::new(conn, direct.borrowed);
                    return Ok((direct, session));
                }
            }
            // A pooler may refuse the settings that we connect with.
            Err(sqlx::Error::Database(_)) => {}
            Err(error) => return Err(failed(error)),
        }
        direct.close().await;
        Self::connect_as(outbox, executors, listener, true).await
    }

    async fn connect_as(
        outbox: &Outbox<DB>,
        executors: usize,
        listener: Option<ConnectOptions<DB>>,
        pooled: bool,
    ) -> Result<(Self, Session<DB>)> {
        let connections = Self::new(outbox, executors, listener, pooled);
        let session = connections.acquire().await?;
        DB::set_pooled(outbox.sql(), pooled);
        Ok((connections, session))
    }

    /// Whether what other processes say can be heard.
    pub(crate) fn hears(&self) -> bool {
        self.listener.is_some()
    }

    /// Whether the connections are the application's, to be given back after each transaction.
    pub(crate) fn borrowed(&self) -> bool {
        self.borrowed
    }

    /// A connection for handlers.
    pub(crate) async fn acquire(&self) -> Result<Session<DB>> {
        self.acquire_from(&self.executors).await
    }

    /// A connection for a short transaction around calls.
    pub(crate) async fn external(&self) -> Result<Session<DB>> {
        self.acquire_from(&self.external).await
    }

    /// Where pruning gets its connection from: it is nobody's who handles something in a transaction.
    pub(crate) fn maintenance(&self) -> &Pool<DB> {
        &self.external
    }

    /// Where leases are renewed: on a connection of the thread that asks for it.
    pub(crate) fn renewals(&self, outbox: &Outbox<DB>) -> Pool<DB> {
        if self.borrowed {
            return outbox.pool().clone();
        }
        own_pool(outbox).max_connections(1).connect_lazy_with(self.renewals.clone())
    }

    /// The connection in reserve: for statements of ours that are short.
    pub(crate) async fn reserve(&self) -> Result<Session<DB>> {
        self.acquire_from(&self.reserve).await
    }

    async fn acquire_from(&self, pool: &Pool<DB>) -> Result<Session<DB>> {
        let conn = pool.acquire().await;
        let session = conn.map(|conn| Session::new(conn, self.borrowed));
        session.map_err(|error| Error::database(DB::kind(&error), "connect", error))
    }

    /// Where to listen. A new pool each time: one whose connection is stuck is simply left behind. `None` where a
    /// connection that is kept might be the only one, and where nothing could be heard.
    pub(crate) fn listener(&self, outbox: &Outbox<DB>) -> Option<Pool<DB>> {
        let pool = own_pool(outbox).max_connections(1).max_lifetime(None).idle_timeout(None);
        let listener = self.listener.clone().filter(|_| !self.borrowed);
        listener.map(|options| pool.connect_lazy_with(options))
    }

    /// Closes the consumers' own connections.
    pub(crate) async fn close(&self) {
        if !self.borrowed {
            self.executors.close().await;
            self.reserve.close().await;
            self.external.close().await;
        }
    }
}

impl<DB: Backend> Clone for Connections<DB> {
    fn clone(&self) -> Self {
        Self {
            executors: self.executors.clone(),
            reserve: self.reserve.clone(),
            external: self.external.clone(),
            listener: self.listener.clone(),
            renewals: self.renewals.clone(),
            borrowed: self.borrowed,
        }
    }
}

/// The application's settings, for a pool of our own.
fn own_pool<DB: Backend>(outbox: &Outbox<DB>) -> PoolOptions<DB> {
    outbox.pool().options().clone().min_connections(0).test_before_acquire(false)
}

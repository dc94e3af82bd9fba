#![doc = include_str!("docs/lib.md")]

mod admin;
mod alive;
mod attempt;
#[cfg_attr(
    not(all(feature = "sqlite", feature = "postgres", feature = "mysql")),
    allow(unused, reason = "what one database needs another may not")
)]
mod backend;
mod backfill;
mod bounded;
mod budget;
#[cfg(feature = "macros")]
mod catalog;
mod claim;
pub mod codec;
mod config;
mod connections;
mod consumer;
#[cfg_attr(
    not(all(feature = "sqlite", feature = "postgres", feature = "mysql")),
    allow(unused, reason = "what one database needs another may not")
)]
mod controls;
mod dispatch;
#[cfg_attr(
    not(any(feature = "sqlite", feature = "postgres", feature = "mysql")),
    allow(unused, reason = "without a database nothing is stored")
)]
mod draft;
mod echo;
mod error;
mod event;
mod executor;
#[cfg_attr(
    not(any(feature = "sqlite", feature = "postgres", feature = "mysql")),
    allow(unused, reason = "without a database nothing is stored")
)]
mod export;
mod faults;
mod finish;
mod group;
mod handler;
mod headers;
mod idempotency;
mod inbox;
mod key;
mod lease;
mod listen;
mod maintain;
mod message;
mod migrate;
mod names;
mod notice;
mod options;
mod outcome;
mod pace;
mod parked;
mod plan;
mod poll;
mod prune;
mod publish;
mod rate;
mod ready;
mod register;
mod registry;
mod report;
mod retention;
mod retry;
mod round;
mod select;
mod session;
mod settle;
mod signals;
#[cfg(feature = "testing")]
pub mod testing;
mod transaction;
mod trip;
mod trouble;
mod wake;

#[doc = include_str!("docs/databases.md")]
pub mod databases {}

pub use erased_serde;

pub use crate::admin::{Admin, Changed, ConsumerInfo, Dead, DeadLetter, FailedAttempt, Prune, WorkerInfo};
pub use crate::backend::Backend;
pub use crate::bounded::{Bounds, RunLock, Sweep};
pub use crate::codec::Codec;
pub use crate::config::{Config, ConsumerConfig, Pooler, Tables};
pub use crate::consumer::{Consumers, ConsumersBuilder, Report};
pub use crate::draft::Draft;
pub use crate::error::{BoxError, Error, ErrorKind, Result};
pub use crate::event::{DecodeEvent, DynEvent, EventMeta, OutboxEvent, TypeSet};
pub use crate::export::{Export, Parameter, Statement};
pub use crate::handler::{Context, Envelope, Handler, Metadata, Shutdown, Site, State};
pub use crate::headers::Headers;
pub use crate::idempotency::IdempotencyKey;
pub use crate::inbox::{Claim, Claimed, Inbox, Inboxed};
pub use crate::message::{Message, MessageId};
pub use crate::migrate::{Migrated, SchemaStatus};
pub use crate::notice::{Notice, Notices, Stored};
pub use crate::options::{Effect, HandlerOptions, OnDead, StartFrom};
pub use crate::outcome::{BatchOutcome, Classification, Classify, HandlerError, Marked, ResultExt};
pub use crate::prune::Pruned;
pub use crate::publish::{BoxFuture, Outbox, PublishTarget, Published};
pub use crate::rate::Rate;
pub use crate::registry::HandlerInfo;
pub use crate::retention::Retention;
pub use crate::retry::Retry;
pub use crate::transaction::OutboxTx;

#[cfg(feature = "macros")]
pub use crate::catalog::event_types;

#[cfg(feature = "macros")]
#[doc = include_str!("docs/outbox_event.md")]
pub use outbox_macros::OutboxEvent;
#[cfg(feature = "macros")]
#[doc = include_str!("docs/outbox_handler.md")]
pub use outbox_macros::outbox_handler;
#[cfg(all(feature = "macros", feature = "testing"))]
#[doc = include_str!("docs/test.md")]
pub use outbox_macros::test;

/// For generated code only. Nothing here is stable.
#[doc(hidden)]
pub mod __private {
    pub use std::borrow::Cow;
    pub use std::boxed::Box;
    pub use std::marker::PhantomData;
    pub use std::option::Option;
    pub use std::result::Result;
    pub use std::time::Duration;
    pub use std::vec::Vec;
    pub use std::{concat, file, format, line, module_path};

    #[cfg(feature = "macros")]
    pub use inventory;
    pub use serde::Serialize;
    #[cfg(feature = "mysql")]
    pub use sqlx::MySql;
    #[cfg(feature = "postgres")]
    pub use sqlx::Postgres;
    #[cfg(feature = "sqlite")]
    pub use sqlx::Sqlite;

    pub use crate::backend::Backend;
    #[cfg(feature = "macros")]
    pub use crate::catalog::EventEntry;
    #[cfg(all(feature = "macros", feature = "testing"))]
    pub use crate::catalog::assert_event_catalog;
    pub use crate::codec::{Codec, Codecs, encode};
    pub use crate::controls::Controls;
    pub use crate::error::Result as OutboxResult;
    pub use crate::event::{
        ConstName, DecodeEvent, DecodeInner, EventMeta, OutboxEvent, Owned, Readable, Shape, Text, TypeSet,
        Upcast, agreeing, answers, disjoint, known, member, read, too_old, unknown_type,
    };
    pub use crate::handler::{
        Context, EventParam, FromContext, Handler, HandlerFuture, HandlerVTable, MutParam, Site, States,
        batched, take_event,
    };
    pub use crate::headers::Headers;
    pub use crate::message::Message;
    pub use crate::options::{Effect, HandlerOptions, OnDead, StartFrom};
    pub use crate::outcome::{
        AsItIs, ByItself, HandlerError, HandlerReturn, Returned, Succeeded, UnlessClassified, WhenClassified,
    };
    pub use crate::rate::Rate;
    #[cfg(feature = "macros")]
    pub use crate::registry::HandlerEntry;
    pub use crate::retry::Retry;
    #[cfg(all(feature = "macros", feature = "testing"))]
    pub use crate::testing::{Fixture, run};
}

/// The README's code, compiled with the doc tests.
#[cfg(all(doctest, feature = "sqlite", feature = "macros", feature = "testing"))]
#[doc = include_str!("../../README.md")]
struct Readme;

// A handler that names no database is registered once for each that is enabled. A proc macro cannot see the
// features of this crate; these expand in its context. Written out, since a macro that a macro exports cannot be
// named by its path inside this crate.

/// Registers a handler for SQLite, where that is enabled.
#[doc(hidden)]
#[macro_export]
#[cfg(all(feature = "macros", feature = "sqlite"))]
macro_rules! __submit_sqlite {
    ($handler:ty) => {
        $crate::__private::inventory::submit! {
            $crate::__private::HandlerEntry::new::<$crate::__private::Sqlite>(
                &<$handler as $crate::__private::Handler<$crate::__private::Sqlite>>::VTABLE
            )
        }
    };
}

/// Registers a handler for SQLite, where that is enabled.
#[doc(hidden)]
#[macro_export]
#[cfg(not(all(feature = "macros", feature = "sqlite")))]
macro_rules! __submit_sqlite {
    ($handler:ty) => {};
}

/// Registers a handler for PostgreSQL, where that is enabled.
#[doc(hidden)]
#[macro_export]
#[cfg(all(feature = "macros", feature = "postgres"))]
macro_rules! __submit_postgres {
    ($handler:ty) => {
        $crate::__private::inventory::submit! {
            $crate::__private::HandlerEntry::new::<$crate::__private::Postgres>(
                &<$handler as $crate::__private::Handler<$crate::__private::Postgres>>::VTABLE
            )
        }
    };
}

/// Registers a handler for PostgreSQL, where that is enabled.
#[doc(hidden)]
#[macro_export]
#[cfg(not(all(feature = "macros", feature = "postgres")))]
macro_rules! __submit_postgres {
    ($handler:ty) => {};
}

/// Registers a handler for MySQL, where that is enabled.
#[doc(hidden)]
#[macro_export]
#[cfg(all(feature = "macros", feature = "mysql"))]
macro_rules! __submit_mysql {
    ($handler:ty) => {
        $crate::__private::inventory::submit! {
            $crate::__private::HandlerEntry::new::<$crate::__private::MySql>(
                &<$handler as $crate::__private::Handler<$crate::__private::MySql>>::VTABLE
            )
        }
    };
}

/// Registers a handler for MySQL, where that is enabled.
#[doc(hidden)]
#[macro_export]
#[cfg(not(all(feature = "macros", feature = "mysql")))]
macro_rules! __submit_mysql {
    ($handler:ty) => {};
}

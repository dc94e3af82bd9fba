//! What only one database can do, or does in its own way.

#[allow(dead_code, reason = "each suite uses its part")]
#[path = "../common/mod.rs"]
mod common;

#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
mod sqlite;

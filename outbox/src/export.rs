//! A publish as text and values, for other clients of the database.

use crate::error::{Error, ErrorKind, Result};
use crate::message::MessageId;

/// What publishes a message when another client executes it in its transaction: made by
/// [`Outbox::export_event`](crate::Outbox::export_event) and [`Outbox::export`](crate::Outbox::export).
///
/// ```text
/// // SeaORM, on its `DatabaseTransaction`; parameters as `sea_orm::Value`:
/// let affected = tx.execute(Statement::from_sql_and_values(tx.get_database_backend(), sql, values)).await?.rows_affected();
///
/// // Diesel, in `connection.transaction(..)`; Text, Integer, BigInt or Binary for each, all `Nullable`:
/// let mut query = diesel::sql_query(sql).into_boxed();
/// for parameter in parameters { query = match parameter { Parameter::Text(text) => query.bind::<Nullable<Text>, _>(text), .. } }
/// let affected = query.execute(connection)?;
/// ```
///
/// Execute all statements, in their order and on the connection of your transaction, and give the number of rows that each has affected to
/// [`check`](Statement::check). After an error roll the transaction back.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
#[must_use = "nothing is published until the statements are executed"]
pub struct Export {
    /// The message's id.
    pub id: MessageId,
    /// One on PostgreSQL and SQLite; several on MySQL, which share variables of the session.
    pub statements: Vec<Statement>,
}

/// A statement with its values.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
#[must_use = "nothing is published until the statement is executed"]
pub struct Statement {
    /// Its text, with the database's own marks: `$1`, `?1` or `?`. It has no value of a message in it.
    pub sql: String,
    /// The values of the marks, in their order. Where there are none, send it as text, unprepared: MySQL does not prepare
    /// all of them.
    pub parameters: Vec<Parameter>,
    /// Whether it stores the message.
    stores: bool,
}

/// A value of a statement, in the type that the database wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parameter {
    /// `text`.
    Text(Option<String>),
    /// `integer`, of 4 bytes.
    Int(Option<i32>),
    /// `bigint`, of 8 bytes.
    BigInt(Option<i64>),
    /// `bytea`, BLOB: payloads, and on MySQL every text, which no character set of the connection changes then.
    Bytes(Option<Vec<u8>>),
}

impl Statement {
    pub(crate) fn new(sql: impl Into<String>, parameters: Vec<Parameter>) -> Self {
        Self { sql: sql.into(), parameters, stores: false }
    }

    /// The number of rows that it affects is 1 where it has stored the message, and 0 where a message of that id is there.
    pub(crate) fn storing(self) -> Self {
        Self { stores: true, ..self }
    }

    /// What the number of affected rows says: false where a message of this id was there already, so that nothing was written; on MySQL
    /// that is an error of the database instead (1062).
    ///
    /// # Errors
    /// [`Guard`](ErrorKind::Guard) for a number that it cannot have affected: it was changed on its way, or the number is that of
    /// something else. Roll back.
    pub fn check(&self, affected: u64) -> Result<bool> {
        match affected {
            _ if !self.stores => Ok(true),
            0 | 1 => Ok(affected == 1),
            _ => Err(Error::new(
                ErrorKind::Guard,
                format!(
                    "a statement that stores one message has affected {affected} rows; roll back the transaction"
                ),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_that_stores_affects_one_row_or_none() {
        let any = Statement::new("set @a = 1", Vec::new());
        assert!([0, 1, 7].iter().all(|rows| any.check(*rows).is_ok_and(|stored| stored)));
        let stores = any.storing();
        assert!(stores.check(1).expect("stored"));
        assert!(!stores.check(0).expect("a duplicate"));
        assert_eq!(stores.check(2).expect_err("impossible").kind(), ErrorKind::Guard);
    }
}

//! The names of a consumer. Each that it has, had or gave as an alias leads to it: one that is renamed goes on where it was, and a
//! build that calls it by an old name works on the same messages.

use crate::backend::{Backend, ConsumerRow, SqlResult};
use crate::error::{Error, ErrorKind, Result};
use crate::faults;

/// The consumer of this name, under the registry's lock: made with so many lanes, or renamed from one of its aliases, where the
/// name is new. Afterwards all of these names lead to it.
pub(crate) async fn resolve<DB: Backend>(
    conn: &mut DB::Connection,
    sql: &DB::Sql,
    name: &str,
    aliases: &[&str],
    lanes: i16,
) -> Result<ConsumerRow> {
    let by_name = DB::consumer(conn, sql, name).await.map_err(failed::<DB>)?;
    let (mut found, mut free) = (by_name.clone(), Vec::new());
    for alias in aliases {
        match (DB::consumer(conn, sql, alias).await.map_err(failed::<DB>)?, &found) {
            (None, _) => free.push(*alias),
            (Some(other), Some(one)) if other.id != one.id => return Err(two_of_them(name, one, &other)),
            (there, _) => found = there,
        }
    }
    let present = match found {
        None => {
            let added = DB::add_consumer(conn, sql, name, lanes).await;
            expect_one::<DB>(added)?;
            add_name::<DB>(conn, sql, name, name).await?;
            tracing::info!(consumer = name, "a new consumer");
            name.to_owned()
        }
        Some(there) if there.name == name => there.name,
        Some(there) if aliases.contains(&&*there.name) => {
            if by_name.is_none() {
                add_name::<DB>(conn, sql, name, &there.name).await?;
            }
            expect_one::<DB>(DB::rename_consumer(conn, sql, there.id, &there.name, name).await)?;
            faults::point("renamed");
            tracing::info!(consumer = name, before = %there.name, "renamed");
            name.to_owned()
        }
        // A build that still calls it by an older name.
        Some(there) if by_name.is_some() => there.name,
        Some(there) => return Err(renamed_by_another(name, aliases, &there)),
    };
    for alias in free {
        // Whoever comes with it later, as an old build does that is started again, finds this consumer and makes none.
        add_name::<DB>(conn, sql, alias, &present).await?;
    }
    DB::add_lanes(conn, sql, &present).await.map_err(failed::<DB>)?;
    let row = DB::consumer(conn, sql, name).await.map_err(failed::<DB>)?;
    row.ok_or_else(|| {
        Error::new(ErrorKind::Guard, format!("consumer `{name}` is gone right after it was made known"))
    })
}

async fn add_name<DB: Backend>(
    conn: &mut DB::Connection,
    sql: &DB::Sql,
    name: &str,
    present: &str,
) -> Result<()> {
    expect_one::<DB>(DB::add_name(conn, sql, name, present).await)
}

fn expect_one<DB: Backend>(count: SqlResult<u64>) -> Result<()> {
    match count.map_err(failed::<DB>)? {
        1 => Ok(()),
        count => Err(Error::new(
            ErrorKind::Guard,
            format!(
                "could not make a consumer known: {count} rows were in the expected state, not 1; everything was rolled back"
            ),
        )),
    }
}

fn two_of_them(name: &str, one: &ConsumerRow, other: &ConsumerRow) -> Error {
    let (one, other) = (&one.name, &other.name);
    Error::new(
        ErrorKind::Registry,
        format!(
            "consumer `{name}` cannot go on as `{one}` and as `{other}`: both are in this database, each with messages of its own. Of \
             two consumers none is made; remove the alias, and run a handler for the one that is to go until nothing waits for it"
        ),
    )
}

fn renamed_by_another(name: &str, aliases: &[&str], there: &ConsumerRow) -> Error {
    let aliases: Vec<_> = aliases.iter().map(|alias| format!("`{alias}`")).collect();
    let (aliases, present) = (aliases.join(", "), &there.name);
    Error::new(
        ErrorKind::Registry,
        format!(
            "consumer `{name}` has the alias {aliases}, and that one is called `{present}` by now: if they are all the same, say \
             `alias = \"{present}\"` too; if not, remove the alias, since the messages can go to one of them only"
        ),
    )
}

fn failed<DB: Backend>(error: sqlx::Error) -> Error {
    Error::database(DB::kind(&error), "make a consumer known", error)
}

//! Processor time of this process with its children, and of a server on the same machine, from Linux's `/proc`.

use std::fs;

use crate::database::{Database, Place};

/// The kernel counts in hundredths of a second, whatever its own ticks are.
const TICKS: i64 = 100;

/// What has been used since some moment.
#[derive(Debug)]
pub(crate) struct Cpu {
    server: Option<u32>,
    before: Spent,
}

/// Hundredths of a second; `None` where nobody can say.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Spent {
    pub(crate) client: Option<i64>,
    pub(crate) server: Option<i64>,
}

impl Spent {
    /// Microseconds for each of so many.
    pub(crate) fn each(ticks: Option<i64>, count: i64) -> Option<i64> {
        ticks.map(|ticks| ticks * (1_000_000 / TICKS) / count.max(1))
    }
}

impl Cpu {
    pub(crate) async fn start<DB: Database>(place: &Place<DB>) -> anyhow::Result<Self> {
        let server = DB::server_process(&mut *place.pool.acquire().await?).await;
        Ok(Self { server, before: now(server) })
    }

    /// What was used since the start: call it when the children have ended.
    pub(crate) fn spent(&self) -> Spent {
        let after = now(self.server);
        let difference = |after: Option<i64>, before: Option<i64>| Some(after? - before?);
        Spent {
            client: difference(after.client, self.before.client),
            server: difference(after.server, self.before.server),
        }
    }
}

fn now(server: Option<u32>) -> Spent {
    Spent {
        client: stat("self").map(|process| process.ticks),
        // Its processes first: one that ends in between is then counted by their parent as well, if at all.
        server: server.and_then(|server| {
            let children = processes().filter_map(|id| stat(&id)).filter(|process| process.parent == server);
            let children: i64 = children.map(|process| process.ticks).sum();
            Some(children + stat(&server.to_string())?.ticks)
        }),
    }
}

/// The parent of a process, where both have this name.
pub(crate) fn parent(process: u32, name: &str) -> Option<u32> {
    let child = stat(&process.to_string()).filter(|child| child.name == name)?;
    stat(&child.parent.to_string()).filter(|parent| parent.name == name)?;
    Some(child.parent)
}

/// Whether a process of this machine has one of these names.
#[cfg(feature = "mysql")]
pub(crate) fn is_named(process: u32, names: &[&str]) -> bool {
    stat(&process.to_string()).is_some_and(|process| names.contains(&process.name.as_str()))
}

fn processes() -> impl Iterator<Item = String> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
}

struct Stat {
    name: String,
    parent: u32,
    /// Its own and those of its children that have ended.
    ticks: i64,
}

fn stat(process: &str) -> Option<Stat> {
    parse(&fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
}

/// `pid (name) state ppid …`, see proc(5); the name may contain anything.
fn parse(text: &str) -> Option<Stat> {
    let (before, after) = text.rsplit_once(')')?;
    let (_, name) = before.split_once('(')?;
    let fields: Vec<&str> = after.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<i64>().ok();
    let ticks = field(14)? + field(15)? + field(16)? + field(17)?;
    Some(Stat { name: name.to_owned(), parent: u32::try_from(field(4)?).ok()?, ticks })
}

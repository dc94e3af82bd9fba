//! Which handlers there are: collected by `inventory` or named by hand, checked before anything runs.

#[cfg(feature = "macros")]
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
#[cfg(feature = "macros")]
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::Backend;
use crate::error::{Error, ErrorKind, Result};
#[cfg(feature = "macros")]
use crate::event::TypeSet;
use crate::handler::{HandlerVTable, Site, States};
use crate::message::check_text;
use crate::options::{Effect, HandlerOptions, StartFrom};
use crate::rate::{self, Rate};

/// One handler of any database, as `inventory` collects it: it cannot collect a generic type.
#[cfg(feature = "macros")]
#[doc(hidden)]
pub struct HandlerEntry {
    handler: &'static (dyn Any + Send + Sync),
    types: TypeSet,
}

#[cfg(feature = "macros")]
impl HandlerEntry {
    /// For generated code.
    #[must_use]
    pub const fn new<DB: Backend>(vtable: &'static HandlerVTable<DB>) -> Self {
        Self { handler: vtable, types: vtable.types }
    }

    /// The types that it takes, whatever its database.
    #[must_use]
    pub const fn types(&self) -> TypeSet {
        self.types
    }

    /// The handler, if it is one for this database.
    #[must_use]
    pub fn of<DB: Backend>(&self) -> Option<HandlerVTable<DB>> {
        self.handler.downcast_ref().copied()
    }
}

#[cfg(feature = "macros")]
impl fmt::Debug for HandlerEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HandlerEntry")
    }
}

#[cfg(feature = "macros")]
inventory::collect!(HandlerEntry);

/// The handlers for this database that are linked into the program.
#[cfg(feature = "macros")]
pub(crate) fn linked<DB: Backend>() -> Vec<HandlerVTable<DB>> {
    inventory::iter::<HandlerEntry>().filter_map(HandlerEntry::of).collect()
}

/// A registered handler, for banners and listings.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct HandlerInfo {
    /// The consumer that it handles for.
    pub consumer: &'static str,
    /// What the consumer was called before, by this handler.
    pub aliases: &'static [&'static str],
    /// The function's name.
    pub name: &'static str,
    /// The event types that it takes, without aliases.
    pub event_types: Vec<&'static str>,
    /// Whether it takes several messages at once, as a `Vec`.
    pub batched: bool,
    /// Where it has its effect.
    pub effect: Effect,
    /// Its policies, as the builder left them.
    pub options: HandlerOptions,
    /// Where it is written.
    pub site: Site,
}

/// A consumer with its handlers, each event type of which has exactly one.
pub(crate) struct Registered<DB: Backend> {
    pub(crate) name: Arc<str>,
    /// What it was called before, by any of its handlers.
    aliases: Vec<&'static str>,
    handlers: Vec<HandlerVTable<DB>>,
}

impl<DB: Backend> Registered<DB> {
    pub(crate) fn aliases(&self) -> &[&'static str] {
        &self.aliases
    }

    /// The handler of a type, by its name or an alias.
    pub(crate) fn handler(&self, event_type: &str) -> Option<&HandlerVTable<DB>> {
        self.handlers.iter().find(|handler| handler.types.find(event_type).is_some())
    }

    /// Every name that a message for this consumer can have: types and their aliases.
    pub(crate) fn event_types(&self) -> Vec<&'static str> {
        let metas = self.handlers.iter().flat_map(|handler| handler.types.all());
        let mut names: Vec<_> =
            metas.flat_map(|meta| meta.aliases.iter().copied().chain([meta.event_type])).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// What it gets of a type that was published before it subscribed.
    pub(crate) fn start_from(&self, event_type: &str) -> StartFrom {
        self.handler(event_type).map_or(StartFrom::Unrouted, |handler| handler.options.start_from)
    }

    /// Whether it runs outside of transactions: one of its handlers has an effect there.
    pub(crate) fn is_external(&self) -> bool {
        self.handlers.iter().any(|handler| handler.effect == Effect::External)
    }

    /// How many calls it makes at once, outside of transactions.
    pub(crate) fn concurrency(&self) -> u32 {
        self.handlers.iter().map(|handler| handler.options.concurrency).max().unwrap_or(1)
    }

    /// How long its lanes are leased.
    pub(crate) fn lease(&self) -> Duration {
        self.handlers.iter().map(|handler| handler.options.lease).max().unwrap_or_default()
    }

    pub(crate) fn longest_timeout(&self) -> Duration {
        self.handlers.iter().map(|handler| handler.options.timeout).max().unwrap_or_default()
    }

    /// How many messages it handles in a process, by the handler that allows the least.
    pub(crate) fn rate(&self) -> Option<Rate> {
        rate::least(self.handlers.iter().filter_map(|handler| handler.options.rate))
    }

    /// How many messages may share a transaction at most, by the handler that allows the most.
    pub(crate) fn largest_group(&self) -> u32 {
        self.handlers.iter().map(|handler| handler.options.group).max().unwrap_or(1)
    }

    /// How many messages a batch handler wants at once; 1 if there is none.
    pub(crate) fn largest_batch(&self) -> u32 {
        let batched = self.handlers.iter().filter(|handler| handler.batched);
        batched.map(|handler| handler.options.batch).max().unwrap_or(1)
    }

    pub(crate) fn infos(&self) -> impl Iterator<Item = HandlerInfo> {
        self.handlers.iter().map(|handler| HandlerInfo {
            consumer: handler.consumer,
            aliases: handler.aliases,
            name: handler.name,
            event_types: handler.types.all().iter().map(|meta| meta.event_type).collect(),
            batched: handler.batched,
            effect: handler.effect,
            options: handler.options,
            site: handler.site,
        })
    }
}

/// Refuses to start without a consumer that is expected: its crate may not be linked.
pub(crate) fn require<DB: Backend>(expected: &[String], handlers: &[HandlerVTable<DB>]) -> Result<()> {
    let is_there = |name: &String| handlers.iter().any(|handler| handler.consumer == name);
    let missing: Vec<_> =
        expected.iter().filter(|name| !is_there(name)).map(|name| format!("`{name}`")).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let there: BTreeSet<_> = handlers.iter().map(|handler| format!("`{}`", handler.consumer)).collect();
    let there = if there.is_empty() { "none".to_owned() } else { Vec::from_iter(there).join(", ") };
    Err(refuse(format!(
        "consumers are expected that have no handler for {}: {}; those that have one: {there}. A crate that nothing mentions is not \
         linked: write `use its_name as _;`, or name the handler with `.handler::<name>()`",
        DB::DATABASE,
        missing.join(", ")
    )))
}

/// Sorts handlers into consumers and refuses what does not fit together.
pub(crate) fn resolve<DB: Backend>(
    mut handlers: Vec<HandlerVTable<DB>>,
    states: &States,
) -> Result<Vec<Registered<DB>>> {
    // The order of inventory is unspecified. Two linked copies of a crate (a dev-dependency cycle makes them)
    // bring the same handler twice.
    let identity = |handler: &HandlerVTable<DB>| {
        let types: Vec<_> = handler.types.all().iter().map(|meta| meta.event_type).collect();
        (handler.consumer, handler.name, handler.site, types)
    };
    handlers.sort_by_key(identity);
    handlers.dedup_by_key(|handler| identity(handler));

    let mut consumers: BTreeMap<&'static str, Vec<HandlerVTable<DB>>> = BTreeMap::new();
    for handler in handlers {
        check_text("consumer's name", handler.consumer).map_err(|cause| {
            refuse(format!("handler `{}` ({}) has no usable consumer", handler.name, handler.site))
                .with_source(cause)
        })?;
        if let Some(problem) = handler.options.problem() {
            return Err(refuse(format!(
                "the options of handler `{}` of consumer `{}` ({}) make no sense: {problem}",
                handler.name, handler.consumer, handler.site
            )));
        }
        if let Err(missing) = (handler.check)(states) {
            return Err(refuse(format!(
                "handler `{}` of consumer `{}` ({}) takes `State<{missing}>`, and none was given; add `.state(..)` \
                 before `.build()`",
                handler.name, handler.consumer, handler.site
            )));
        }
        let others = consumers.entry(handler.consumer).or_default();
        for other in &*others {
            if let Some(shared) = shared_type(other, &handler) {
                return Err(refuse(format!(
                    "consumer `{}` has two handlers for `{shared}`: `{}` ({}) and `{}` ({}); give one of them a \
                     consumer of its own",
                    handler.consumer, other.name, other.site, handler.name, handler.site
                )));
            }
            if let Some((external, other)) = opposed(other, &handler) {
                return Err(refuse(format!(
                    "consumer `{}` has handlers that cannot run together: `{}` ({}) has its effect outside of the database, and \
                     `{}` ({}) in its transaction; give one of them a consumer of its own, or say `effect = \"none\"` of the \
                     first if it may be repeated",
                    handler.consumer, external.name, external.site, other.name, other.site
                )));
            }
        }
        others.push(handler);
    }
    check_aliases(&consumers)?;
    consumers.values().try_for_each(|handlers| check_marks(handlers))?;
    let registered = consumers.into_iter().map(|(name, handlers)| {
        let mut aliases: Vec<_> = handlers.iter().flat_map(|handler| handler.aliases).copied().collect();
        aliases.sort_unstable();
        aliases.dedup();
        Registered { name: name.into(), aliases, handlers }
    });
    Ok(registered.collect())
}

/// A call is claimed in the inbox, and that is where its mark comes from.
fn check_marks<DB: Backend>(handlers: &[HandlerVTable<DB>]) -> Result<()> {
    let external = handlers.iter().find(|handler| handler.effect == Effect::External);
    let unmarked = handlers.iter().find(|handler| !handler.options.inbox);
    let (Some(external), Some(unmarked)) = (external, unmarked) else { return Ok(()) };
    Err(refuse(format!(
        "handler `{}` of consumer `{}` ({}) says `inbox = false`, and the consumer is external by `{}` ({}): each of its calls is \
         claimed in the inbox, or it would be made twice; remove `inbox`",
        unmarked.name, unmarked.consumer, unmarked.site, external.name, external.site
    )))
}

/// Two consumers cannot both go on where one was, and one that is there has not become another.
fn check_aliases<DB: Backend>(consumers: &BTreeMap<&'static str, Vec<HandlerVTable<DB>>>) -> Result<()> {
    let mut given: BTreeMap<&'static str, &HandlerVTable<DB>> = BTreeMap::new();
    for handler in consumers.values().flatten() {
        for alias in handler.aliases {
            let who = || {
                format!("handler `{}` of consumer `{}` ({})", handler.name, handler.consumer, handler.site)
            };
            check_text("alias", alias)
                .map_err(|cause| refuse(format!("{} has no usable alias", who())).with_source(cause))?;
            if *alias == handler.consumer {
                return Err(refuse(format!("{} has its own name as an alias; remove that", who())));
            }
            if let Some(others) = consumers.get(alias) {
                let other = &others[0];
                return Err(refuse(format!(
                    "{} says that `{alias}` was its name, and `{alias}` has a handler too: `{}` ({}); remove the alias, or give \
                     that handler the consumer `{}`",
                    who(),
                    other.name,
                    other.site,
                    handler.consumer
                )));
            }
            if let Some(other) =
                given.insert(alias, handler).filter(|other| other.consumer != handler.consumer)
            {
                return Err(refuse(format!(
                    "{} says that `{alias}` was its name, and so does handler `{}` of consumer `{}` ({}); one of them can go \
                     on where it was: remove the alias of the other",
                    who(),
                    other.name,
                    other.consumer,
                    other.site
                )));
            }
        }
    }
    Ok(())
}

/// The two in this order, where one calls somebody, outside of transactions, and the other needs one. A handler without an
/// effect goes with either.
fn opposed<'a, DB: Backend>(
    one: &'a HandlerVTable<DB>,
    other: &'a HandlerVTable<DB>,
) -> Option<(&'a HandlerVTable<DB>, &'a HandlerVTable<DB>)> {
    match (one.effect, other.effect) {
        (Effect::External, Effect::Database) => Some((one, other)),
        (Effect::Database, Effect::External) => Some((other, one)),
        _ => None,
    }
}

/// A name that both would answer to.
fn shared_type<DB: Backend>(one: &HandlerVTable<DB>, other: &HandlerVTable<DB>) -> Option<&'static str> {
    other.types.all().into_iter().find_map(|meta| {
        meta.aliases.iter().copied().chain([meta.event_type]).find(|name| one.types.find(name).is_some())
    })
}

pub(crate) fn refuse(message: String) -> Error {
    Error::new(ErrorKind::Registry, message)
}

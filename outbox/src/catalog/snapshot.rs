//! The catalogue as a file, so that a renamed event or a new version is seen in a review.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs, io};

use super::{event_types, sorted};
use crate::event::{EventMeta, TypeSet};

/// Set to `1`, it writes the file in place of comparing with it.
const UPDATE: &str = "UPDATE_EVENT_CATALOG";

/// Compares the event types of the program with a file that is kept beside the code; for tests.
///
/// A name on the wire is a contract with every message that is stored and every program that reads it, and a renamed
/// struct breaks it silently. With the file a change of a name, a version, a topic or an alias stands in the same review
/// as the code. The path is relative to the crate's manifest; `UPDATE_EVENT_CATALOG=1 cargo test` writes the file.
/// Generic events are in it where a registered handler takes them, or where they are named behind the path.
///
/// ```no_run
/// # #[cfg(feature = "macros")] {
/// # use outbox::OutboxEvent;
/// # #[derive(serde::Serialize, OutboxEvent)]
/// # struct OrderPaid<C> { order_id: u64, currency: C }
/// # type Usd = ();
/// #[test]
/// fn event_types_are_a_contract() {
///     outbox::assert_event_catalog!("events.txt", OrderPaid<Usd>);
/// }
/// # }
/// ```
///
/// # Panics
/// Where the file says something else, with the lines that differ.
#[macro_export]
macro_rules! assert_event_catalog {
    ($path:expr $(, $event:ty)* $(,)?) => {
        $crate::__private::assert_event_catalog(
            ::core::concat!(::core::env!("CARGO_MANIFEST_DIR"), "/", $path),
            &[$(<$event as $crate::OutboxEvent>::TYPES),*],
        )
    };
}

/// For [`assert_event_catalog!`](crate::assert_event_catalog).
#[doc(hidden)]
#[track_caller]
pub fn assert_event_catalog(path: &str, more: &[TypeSet]) {
    let types = event_types().into_iter().chain(sorted(more.iter().copied()));
    let mut types: Vec<_> = types.collect();
    types.sort_by_key(|meta| (meta.event_type, meta.rust_type, meta.version));
    types.dedup();
    let update = env::var_os(UPDATE).is_some_and(|value| value == "1");
    if let Err(problem) = compare(Path::new(path), &text(&types), update) {
        panic!("{problem}");
    }
}

fn compare(path: &Path, now: &str, update: bool) -> Result<(), String> {
    let known = match fs::read_to_string(path) {
        Ok(known) => known,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(format!("{} cannot be read: {error}", path.display())),
    };
    if known == now {
        return Ok(());
    }
    if update {
        return fs::write(path, now)
            .map_err(|error| format!("{} cannot be written: {error}", path.display()));
    }
    Err(format!(
        "the event types are not those of {}:\n{}\nStored messages and other programs know them by these names: a renamed \
         event keeps its `type`, or takes the old one as an `alias`; another shape is another `version`. If all of it is \
         meant, write the file with {UPDATE}=1.",
        path.display(),
        difference(&known, now)
    ))
}

/// A line for each type. Not in columns: a longer name would change every line.
fn text(types: &[&EventMeta]) -> String {
    let mut text = String::from("# event type, version, topic, Rust type, aliases\n");
    for EventMeta { event_type, version, topic, rust_type, aliases, .. } in types {
        let _ = write!(text, "{event_type} {version} {topic:?} {rust_type}");
        for alias in *aliases {
            let _ = write!(text, " {alias}");
        }
        text.push('\n');
    }
    text
}

fn difference(known: &str, now: &str) -> String {
    let mut text = String::new();
    for (lines, others, sign) in [(known, now, '-'), (now, known, '+')] {
        let others: Vec<_> = others.lines().collect();
        for line in lines.lines().filter(|line| !others.contains(line) && !line.starts_with('#')) {
            let _ = writeln!(text, "{sign} {line}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    static PAID: EventMeta = EventMeta::new("order.paid", 1, "order", None, &[], "shop::OrderPaid");
    static SETTLED: EventMeta =
        EventMeta::new("order.settled", 2, "the orders", None, &["order.paid", "paid"], "shop::Paid");

    #[test]
    fn a_change_is_shown_and_taken_on_request() {
        let folder = env::temp_dir().join(format!("outbox-catalog-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a temporary folder");
        let path = folder.join("events.txt");
        let problem = compare(&path, &text(&[&PAID]), false).expect_err("there is no file yet");
        assert!(problem.contains("+ order.paid 1 \"order\" shop::OrderPaid\n"), "{problem}");
        assert_eq!(compare(&path, &text(&[&PAID]), true), Ok(()));
        assert_eq!(compare(&path, &text(&[&PAID]), false), Ok(()));
        let problem = compare(&path, &text(&[&SETTLED]), false).expect_err("it was renamed");
        let lines = "\n- order.paid 1 \"order\" shop::OrderPaid\n\
                     + order.settled 2 \"the orders\" shop::Paid order.paid paid\n\n";
        assert!(problem.contains(lines) && problem.contains("UPDATE_EVENT_CATALOG=1"), "{problem}");
        fs::remove_dir_all(&folder).expect("nobody else uses it");
    }
}

//! The modules of the library stand in one order, and each uses only what stands before it.

use crate::rust::{Source, is_word, line_of};
use crate::{assert_clean, assert_found, finding, rust_files};

/// From what knows nothing of the others to what knows them all. `lib` may name everything.
const FLOW: &[&str] = &[
    "error",
    "controls",
    "faults",
    "trouble",
    "finish",
    "headers",
    "codec",
    "message",
    "event",
    "idempotency",
    "key",
    "draft",
    "export",
    "retry",
    "retention",
    "config",
    "budget",
    "rate",
    "options",
    "outcome",
    "backend",
    "echo",
    "session",
    "wake",
    "notice",
    "publish",
    "migrate",
    "transaction",
    "handler",
    "registry",
    "catalog",
    "backfill",
    "names",
    "register",
    "alive",
    "connections",
    "lease",
    "plan",
    "claim",
    "settle",
    "parked",
    "inbox",
    "prune",
    "attempt",
    "pace",
    "group",
    "report",
    "select",
    "dispatch",
    "round",
    "trip",
    "ready",
    "executor",
    "poll",
    "maintain",
    "listen",
    "signals",
    "consumer",
    "bounded",
    "admin",
    "testing",
    "lib",
];

/// Modules of `backend` that nothing else may know.
const ADAPTERS: &[&str] = &["postgres", "sqlite", "mysql"];

#[test]
fn modules_use_only_what_stands_before_them() {
    assert_clean(rust_files(&["outbox/src"]).iter().flat_map(order));
}

#[test]
fn nothing_knows_an_adapter() {
    assert_clean(rust_files(&["outbox/src"]).iter().flat_map(adapters));
}

fn order(source: &Source) -> Vec<String> {
    let Some(module) = module(&source.path) else {
        return Vec::new();
    };
    let place = |name: &str| FLOW.iter().position(|listed| *listed == name);
    let Some(own) = place(module) else {
        return vec![finding(
            &source.path,
            1,
            format!("`{module}` has no place in FLOW of tests/tidy/imports.rs"),
        )];
    };
    if module == "lib" {
        return Vec::new();
    }
    let code = source.library_code();
    // At the left margin of a module's own file, `super` is the crate.
    let is_at_root = |offset: usize| {
        let line = code[..offset].lines().last().unwrap_or_default();
        source.path == format!("outbox/src/{module}.rs") && line.starts_with("use super::")
    };
    let by_super = names_after(&code, "super::").filter(|(offset, _)| is_at_root(*offset));
    let mut found = Vec::new();
    for (offset, name) in names_after(&code, "crate::").chain(by_super) {
        let rule = match place(name) {
            Some(used) if used <= own => continue,
            Some(_) => format!("`{module}` comes before `{name}` in the flow and must not use it"),
            None => format!("use `{name}` by its module, so that the order of the modules can be checked"),
        };
        found.push(finding(&source.path, line_of(&code, offset), rule));
    }
    found
}

fn adapters(source: &Source) -> Vec<String> {
    let code = source.library_code();
    let mut found = Vec::new();
    for parent in ["backend::", "super::"] {
        if parent == "super::" && !source.path.starts_with("outbox/src/backend/") {
            continue;
        }
        for (offset, name) in names_after(&code, parent) {
            let own = format!("outbox/src/backend/{name}");
            let at_home = source.path == "outbox/src/backend.rs" || source.path.starts_with(&own);
            if ADAPTERS.contains(&name) && !at_home {
                let rule = format!("only `backend` knows `backend::{name}`; ask the trait instead");
                found.push(finding(&source.path, line_of(&code, offset), rule));
            }
        }
    }
    found
}

/// The module at the root of the library that a file belongs to; none for the binaries, which are crates of their own.
fn module(path: &str) -> Option<&str> {
    let path = path.strip_prefix("outbox/src/")?;
    let first = path.split('/').next()?;
    (first != "bin").then(|| first.trim_end_matches(".rs"))
}

/// The names that directly follow a path's prefix, in `prefix::name` and in `prefix::{name, name::{…}}`.
/// Macros are left out: they live at the root wherever they are written.
fn names_after<'a>(code: &'a str, prefix: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
    let paths = code.match_indices(prefix).filter(|(at, _)| {
        // `$crate::` is expanded in the user's crate.
        !code[..*at].ends_with(|char| is_word(char) || char == '$')
    });
    let names = paths.flat_map(move |(at, _)| heads(code, at + prefix.len()));
    names.filter(|(at, name)| !name.is_empty() && !code[at + name.len()..].starts_with('!'))
}

fn heads(code: &str, start: usize) -> Vec<(usize, &str)> {
    let name_at = |at: usize| {
        let at = at + (code[at..].len() - code[at..].trim_start().len());
        let length = code[at..].find(|char| !is_word(char)).unwrap_or(code[at..].len());
        (at, &code[at..at + length])
    };
    if !code[start..].starts_with('{') {
        return vec![name_at(start)];
    }
    let mut found = vec![name_at(start + 1)];
    let mut depth = 0_usize;
    for (at, char) in code[start..].char_indices() {
        match char {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => found.push(name_at(start + at + 1)),
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    found
}

#[test]
fn a_look_ahead_is_found() {
    let text = "use crate::{\n    error::Error,\n    settle::{self, claim},\n};\n\
                /// See [`crate::consumer`].\nfn f() { crate::row!(); $crate::settle::g(); crate::testing::h() }\n\
                use super::dispatch::Run;\nuse crate::Outbox;\n\
                #[cfg(test)]\nmod tests {\n    use crate::consumer::Consumers;\n    use super::*;\n}\n";
    let places = ["publish.rs:3", "publish.rs:6", "publish.rs:8", "publish.rs:7"]
        .map(|place| format!("outbox/src/{place}"));
    let places: Vec<_> = places.iter().map(String::as_str).collect();
    assert_found(order(&Source::new("outbox/src/publish.rs", text)), &places);
    assert_found(order(&Source::new("outbox/src/surprise.rs", "")), &["outbox/src/surprise.rs:1"]);
    assert_found(order(&Source::new("outbox/src/lib.rs", text)), &[]);
    assert_found(order(&Source::new("outbox/src/bin/outbox.rs", text)), &[]);
}

#[test]
fn an_imported_adapter_is_found() {
    let text = "use crate::{\n    backend::{Backend, postgres::Listener},\n};\nuse crate::backend::sqlite;\n";
    let path = "outbox/src/wake.rs";
    assert_found(adapters(&Source::new(path, text)), &["outbox/src/wake.rs:2", "outbox/src/wake.rs:4"]);
    let path = "outbox/src/backend/sqlite.rs";
    let text = "use super::postgres::row;\nuse crate::backend::sqlite::row;\n";
    assert_found(adapters(&Source::new(path, text)), &["outbox/src/backend/sqlite.rs:1"]);
    assert_found(adapters(&Source::new("outbox/src/backend.rs", "use backend::postgres;")), &[]);
}

//! Invariants of the sources that neither the compiler nor clippy knows, as ordinary tests.
//!
//! A rule is a function from text to findings, so each has a second test that shows it a bad sample: a rule that
//! cannot fail protects nothing. What is not written yet breaks no rule.

mod code;
mod docs;
mod imports;
mod rust;
mod sql;

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A file's path, relative to the root and with `/` on every system, and its text.
type File = (String, String);

/// All files below `folder` with this extension, in the order of their paths; none when there is no such folder.
fn files(folder: &str, extension: &str) -> Vec<File> {
    let entries = fs::read_dir(root().join(folder)).into_iter().flatten();
    let names = entries.map(|entry| entry.expect("a folder that can be read").file_name());
    let mut names: Vec<_> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    names.retain(|name| !name.starts_with('.') && name != "target");
    names.sort();
    let mut found = Vec::new();
    for name in names {
        let path = format!("{folder}/{name}").trim_start_matches('/').to_owned();
        if root().join(&path).is_dir() {
            found.extend(files(&path, extension));
        } else if Path::new(&name).extension().is_some_and(|found| found == extension) {
            let text = fs::read_to_string(root().join(&path)).expect("sources are UTF-8");
            found.push((path, text));
        }
    }
    found
}

/// The Rust files below the folders, split into code and comments.
fn rust_files(folders: &[&str]) -> Vec<rust::Source> {
    let files = folders.iter().flat_map(|folder| files(folder, "rs"));
    files.map(|(path, text)| rust::Source::new(&path, &text)).collect()
}

fn finding(path: &str, line: usize, rule: impl Display) -> String {
    format!("{path}:{line}: {rule}")
}

#[track_caller]
fn assert_clean(findings: impl IntoIterator<Item = String>) {
    let findings: Vec<_> = findings.into_iter().collect();
    assert!(findings.is_empty(), "{} finding(s)\n{}\n", findings.len(), findings.join("\n"));
}

/// Compares the places only, `path:line`; the wording of a rule is free to change.
#[track_caller]
fn assert_found(findings: impl IntoIterator<Item = String>, places: &[&str]) {
    let found: Vec<String> = findings
        .into_iter()
        .map(|finding| finding.split(": ").next().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(found, places);
}

#[test]
fn the_walk_finds_this_file() {
    assert!(files("tests", "rs").iter().any(|(path, _)| path == "tests/tidy/main.rs"));
    assert!(files("no/such/folder", "rs").is_empty());
}

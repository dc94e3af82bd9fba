//! Rules about single lines and single files of Rust.

use std::slice;

use crate::rust::{Source, is_word};
use crate::{assert_clean, assert_found, files, finding, rust_files};

const LIBRARY: &[&str] = &["outbox/src", "outbox-macros/src"];
const ALL: &[&str] = &["outbox/src", "outbox-macros/src", "tests", "examples"];

#[test]
fn sql_is_declared_safe_in_one_place() {
    let sources = rust_files(&["outbox/src"]);
    // Before there is a backend there is nothing to declare.
    if sources.iter().any(|source| source.path.starts_with("outbox/src/backend/")) {
        assert_clean(safe_sql(&sources));
    }
}

fn safe_sql(sources: &[Source]) -> Vec<String> {
    let rule = "there is exactly one `AssertSqlSafe(` in the library, where the templates are rendered";
    let mut places = Vec::new();
    for source in sources {
        let lines = source.numbered().filter(|(_, line)| line.code.contains("AssertSqlSafe("));
        places.extend(lines.map(|(number, _)| finding(&source.path, number, rule)));
    }
    match places.len() {
        0 => vec![finding("outbox/src", 1, rule)],
        1 => Vec::new(),
        _ => places,
    }
}

#[test]
fn what_is_said_works_behind_a_pooler() {
    assert_clean(rust_files(&["outbox/src"]).iter().flat_map(unpooled));
}

/// Statements that would have a name behind a pooler, and reads that would be outside of a transaction there.
fn unpooled(source: &Source) -> Vec<String> {
    const OWN: &[&str] = &["server.rs", "plans.rs", "testing.rs"];
    let own = OWN.iter().any(|file| source.path.ends_with(&format!("/postgres/{file}")));
    let postgres = source.path.starts_with("outbox/src/backend/postgres/") && !own;
    let admin = source.path.starts_with("outbox/src/admin");
    let mut found = Vec::new();
    for (number, line) in source.numbered() {
        let code = &line.code;
        let called = ["query(", "query_as(", "query_scalar("].iter().any(|call| {
            let mut before = code.match_indices(call).map(|(at, _)| code[..at].chars().next_back());
            before.any(|before| before.is_none_or(|before| before != '.' && !is_word(before)))
        });
        if postgres && called {
            found.push(finding(
                &source.path,
                number,
                "`sql.query(&sql.name)` knows whether statements have names",
            ));
        }
        if admin && code.contains(".pool().acquire()") {
            found.push(finding(
                &source.path,
                number,
                "`outbox.reader()` knows whether a read needs a transaction",
            ));
        }
    }
    found
}

#[test]
fn tests_wait_for_progress_and_not_for_time() {
    assert_clean(rust_files(&["tests"]).iter().flat_map(sleeps));
}

fn sleeps(source: &Source) -> Vec<String> {
    let excused =
        |comment: &str| comment.split_once("sleep-ok:").is_some_and(|(_, why)| !why.trim().is_empty());
    let lines = source.numbered().filter(|(_, line)| line.code.contains("sleep(") && !excused(&line.comment));
    let rule = "a test waits for progress; where only time helps, say `sleep-ok: why` on the same line";
    lines.map(|(number, _)| finding(&source.path, number, rule)).collect()
}

#[test]
fn files_stay_readable_in_one_sitting() {
    assert_clean(rust_files(ALL).iter().filter_map(length));
}

fn length(source: &Source) -> Option<String> {
    const MOST: usize = 600;
    // The text after the last line end counts as a line only when there is some.
    let lines = source.lines.len() - 1;
    let rule = format!("{lines} lines; a file has {MOST} at most");
    (lines > MOST).then(|| finding(&source.path, lines, rule))
}

#[test]
fn the_library_is_finished_and_does_not_panic_by_habit() {
    assert_clean(rust_files(LIBRARY).iter().flat_map(unfinished));
}

fn unfinished(source: &Source) -> Vec<String> {
    const REFUSED: &[(&str, &str)] = &[
        ("unwrap()", "return the error, or `expect(\"why it holds\")`"),
        ("todo!", "the library is finished code"),
        ("unimplemented!", "the library is finished code"),
        ("dbg!", "the library traces, it does not print"),
        ("dead_code", "delete what nobody calls"),
    ];
    let mut found = Vec::new();
    for (number, line) in source.numbered() {
        for (text, advice) in REFUSED {
            if !line.test && contains_from_word(&line.code, text) {
                found.push(finding(&source.path, number, format!("`{text}`: {advice}")));
            }
        }
        // The library's own tests count here: one that never runs only looks like a test.
        if line.code.contains("#[ignore") {
            let rule = "`#[ignore`: repair the test or delete it";
            found.push(finding(&source.path, number, rule));
        }
    }
    found
}

fn contains_from_word(code: &str, text: &str) -> bool {
    code.match_indices(text).any(|(at, _)| !code[..at].ends_with(is_word))
}

#[test]
fn names_say_what_they_mean_instead_of_numbers() {
    assert_clean(rust_files(ALL).iter().flat_map(ids));
    for (path, text) in ALL.iter().flat_map(|folder| files(folder, "sql")) {
        assert_clean(ids_in_sql(&path, &text));
    }
}

const ID_RULE: &str = "a case or feature number means nothing to a reader; say it in words";

fn ids(source: &Source) -> Vec<String> {
    let mut found = Vec::new();
    for (number, line) in source.numbered() {
        let name = function_name(&line.code).to_uppercase();
        if words(&line.comment).chain(name.split('_')).any(is_row)
            || words(&line.comment).chain(name.split('_')).chain(words(&line.code)).any(is_case)
        {
            found.push(finding(&source.path, number, ID_RULE));
        }
    }
    let strings = source.strings.iter().filter(|(_, text)| words(text).any(is_case));
    found.extend(strings.map(|(number, _)| finding(&source.path, *number, ID_RULE)));
    found
}

fn ids_in_sql(path: &str, text: &str) -> Vec<String> {
    let lines = (1..).zip(text.lines());
    let lines = lines.filter(|(_, line)| words(line).any(|word| is_case(word) || is_row(word)));
    lines.map(|(number, _)| finding(path, number, ID_RULE)).collect()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|char| !is_word(char))
}

fn function_name(code: &str) -> &str {
    let (_, name) = code.split_once("fn ").unwrap_or_default();
    words(name).next().unwrap_or_default()
}

/// `B`, `0` or `1`, and two more digits.
fn is_case(word: &str) -> bool {
    word.strip_prefix('B').is_some_and(|number| {
        number.len() == 3
            && number.starts_with(['0', '1'])
            && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// A section's letter and a number that the section has.
fn is_row(word: &str) -> bool {
    const SECTIONS: &[(char, u32)] = &[('P', 14), ('D', 16), ('O', 9), ('T', 8), ('I', 6), ('X', 4)];
    SECTIONS.iter().any(|(letter, most)| {
        let number = word.strip_prefix(*letter).filter(|number| !number.starts_with(['0', '+']));
        number.and_then(|number| number.parse().ok()).is_some_and(|number: u32| number <= *most)
    })
}

#[test]
fn a_second_declaration_is_found() {
    let one = Source::new("a.rs", "// AssertSqlSafe(no)\nquery(AssertSqlSafe(text));\n");
    let two = Source::new("b.rs", "AssertSqlSafe(\"x\")");
    assert_found(safe_sql(slice::from_ref(&one)), &[]);
    assert_found(safe_sql(&[one, two]), &["a.rs:2", "b.rs:1"]);
    assert_found(safe_sql(&[]), &["outbox/src:1"]);
}

#[test]
fn what_does_not_work_behind_a_pooler_is_found() {
    let text = "sql.query(&sql.name).bind(7);\n    .query(&sql.name);\nquery(sql.name.clone());\nlet a = query_scalar(sql.name.clone());\n\
                outbox.pool().acquire();\n";
    let source = |path| Source::new(path, text);
    let postgres = "outbox/src/backend/postgres/publishing.rs";
    assert_found(unpooled(&source(postgres)), &[&format!("{postgres}:3"), &format!("{postgres}:4")]);
    assert_found(unpooled(&source("outbox/src/backend/postgres/server.rs")), &[]);
    assert_found(unpooled(&source("outbox/src/admin/list.rs")), &["outbox/src/admin/list.rs:5"]);
}

#[test]
fn a_sleep_is_found() {
    let text = "tokio::time::sleep(second).await;\nsleep(a); // sleep-ok: the lease must run out\nsleep(b); // sleep-ok:\n\
                // sleep(\nlet c = \"sleep(\";\n";
    assert_found(sleeps(&Source::new("a.rs", text)), &["a.rs:1", "a.rs:3"]);
}

#[test]
fn a_long_file_is_found() {
    assert_found(length(&Source::new("a.rs", &"\n".repeat(600))), &[]);
    assert_found(length(&Source::new("a.rs", &"\n".repeat(601))), &["a.rs:601"]);
}

#[test]
fn unfinished_code_is_found() {
    let text = "a.unwrap();\na.unwrap_or(1);\ntodo!(\"x\");\nunimplemented!();\ndbg!(a);\n#[allow(dead_code)]\n\
                /// a.unwrap()\n#[cfg(test)]\nmod tests {\n    fn f() { a.unwrap(); }\n    #[ignore = \"slow\"]\n}\n";
    let places = ["a.rs:1", "a.rs:3", "a.rs:4", "a.rs:5", "a.rs:6", "a.rs:11"];
    assert_found(unfinished(&Source::new("a.rs", text)), &places);
}

#[test]
fn a_number_is_found() {
    // Put together here, so that this file passes its own rule.
    let (case, row) = (format!("B0{}", 42), format!("D1{}", 1));
    let text = format!(
        "// see {case}\n// as {row} says\nfn {}_is_kept() {{}}\nconst {case}: u8 = 1;\nlet a = \"{case}\";\n\
         // T20, P, UTF8, {row}x\nlet {row} = 1;\n",
        row.to_lowercase()
    );
    assert_found(ids(&Source::new("a.rs", &text)), &["a.rs:1", "a.rs:2", "a.rs:3", "a.rs:4", "a.rs:5"]);
    assert_found(ids_in_sql("a.sql", &format!("-- {row}\nselect 1;\n")), &["a.sql:1"]);
}

//! The documents: their links lead somewhere, and they are about no particular machine.

use std::fs;
use std::path::Path;

use crate::{File, assert_clean, assert_found, files, finding, root, rust_files};

fn documents() -> Vec<File> {
    let top = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md"];
    let top = files("", "md").into_iter().filter(move |(path, _)| top.contains(&path.as_str()));
    top.chain(files("docs", "md")).collect()
}

#[test]
fn links_lead_somewhere() {
    let read = |path: &str| match fs::read(root().join(path)) {
        Ok(text) => Some(String::from_utf8_lossy(&text).into_owned()),
        Err(_) => root().join(path).is_dir().then(String::new),
    };
    let documents = documents();
    let findings = documents.iter().flat_map(|(path, text)| broken_links(path, text, read));
    assert_clean(findings);
}

/// `read` gives the text of a file, an empty one for a folder, and nothing for what does not exist.
fn broken_links(path: &str, text: &str, read: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut found = Vec::new();
    for (number, link) in links(text) {
        // `mailto:` and the like have a colon before any slash.
        if link.split('/').next().is_some_and(|first| first.contains(':')) {
            continue;
        }
        let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
        let file = if file.is_empty() { path } else { &resolve(path, file) };
        let target = if file == path { Some(text.to_owned()) } else { read(file) };
        let Some(target) = target else {
            let rule = format!("`{link}` leads to {file}, which does not exist");
            found.push(finding(path, number, rule));
            continue;
        };
        // Only of documents do we know what can be jumped to.
        let is_document = Path::new(file).extension().is_some_and(|extension| extension == "md");
        if is_document && !anchor.is_empty() && !anchors(&target).iter().any(|known| known == anchor) {
            found.push(finding(path, number, format!("{file} has no heading `#{anchor}`")));
        }
    }
    found
}

fn resolve(from: &str, link: &str) -> String {
    let mut parts: Vec<&str> = if link.starts_with('/') { Vec::new() } else { from.split('/').collect() };
    parts.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The lines outside of fenced code, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fence = None;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let mark = ["```", "~~~"].into_iter().find(|mark| line.trim_start().starts_with(mark));
        match (fence, mark) {
            (None, Some(_)) => fence = mark,
            (Some(_), _) if fence == mark => fence = None,
            (None, None) => return true,
            _ => {}
        }
        false
    })
}

/// The targets of `[text](target "title")`, of `[name]: target`, and of HTML's `href` and `src`.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        // Every second piece stands between backticks.
        let line: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        let mut add = |target: Option<&str>| found.extend(target.map(|target| (number, target.to_owned())));
        for (open, close) in [("](", ')'), ("href=\"", '"'), ("src=\"", '"')] {
            for part in line.split(open).skip(1) {
                let target = part.split(close).next().unwrap_or_default();
                add(target.split_whitespace().next().map(|target| target.trim_matches(['<', '>'])));
            }
        }
        if let Some((name, target)) = line.split_once("]: ")
            && name.starts_with('[')
        {
            add(target.split_whitespace().next());
        }
    }
    found
}

/// What a reader of the rendered page can jump to.
fn anchors(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for (_, line) in prose(text) {
        if let Some(heading) = line.strip_prefix('#') {
            let slug = slug(heading.trim_start_matches('#').trim());
            let mut anchor = slug.clone();
            let mut again = 0;
            while found.contains(&anchor) {
                again += 1;
                anchor = format!("{slug}-{again}");
            }
            found.push(anchor);
        }
        for attribute in ["id=\"", "name=\""] {
            let named = line.split(attribute).skip(1).filter_map(|part| part.split('"').next());
            found.extend(named.map(str::to_owned));
        }
    }
    found
}

fn slug(heading: &str) -> String {
    // Of a link in a heading only the text counts.
    let mut text = String::new();
    for (index, part) in heading.split("](").enumerate() {
        text.push_str(if index == 0 { part } else { part.split_once(')').map_or("", |(_, after)| after) });
    }
    let kept = text.chars().filter(|char| char.is_alphanumeric() || matches!(char, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|char| if char == ' ' { '-' } else { char }).collect()
}

/// Doc tests are no tests: what stands below `#[outbox::test]` in one is not even compiled.
#[test]
fn documented_tests_are_compiled() {
    let compiled = fs::read_to_string(root().join(COMPILED)).expect("it is there");
    let documents =
        files("outbox/src", "md").into_iter().chain(files("", "md")).chain(files("outbox/src", "rs"));
    let documents: Vec<_> = documents.collect();
    assert_clean(documents.iter().flat_map(|(path, text)| unknown_tests(path, text, &compiled)));
    let shown: usize = documents.iter().map(|(_, text)| tests_in(text).len()).sum();
    assert!(shown >= 4, "only {shown} tests are found in the documents");
}

const COMPILED: &str = "tests/testkit/documented.rs";

/// The tests of a document that do not stand in `compiled`, with the same lines.
fn unknown_tests(path: &str, text: &str, compiled: &str) -> Vec<String> {
    let plain = |text: &str| text.lines().map(str::trim).collect::<Vec<_>>().join("\n");
    let compiled = plain(compiled);
    let unknown = tests_in(text).into_iter().filter(|(_, code)| !compiled.contains(plain(code).trim()));
    unknown
        .map(|(line, _)| finding(path, line, format!("{COMPILED} does not have this test as it is")))
        .collect()
}

/// The blocks of code with a test of the library's, and where they begin; without what a reader does not see.
fn tests_in(text: &str) -> Vec<(usize, String)> {
    let (mut found, mut block) = (Vec::new(), None::<(usize, Vec<&str>)>);
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_start().trim_start_matches("//!").trim_start_matches("///");
        match &mut block {
            _ if line.trim_start().starts_with("```") => match block.take() {
                Some((begin, lines)) => found.push((begin, lines.join("\n"))),
                None => block = Some((number, Vec::new())),
            },
            Some((_, lines)) if !line.starts_with("# ") && line != "#" => lines.push(line),
            _ => {}
        }
    }
    found.retain(|(_, code)| code.lines().any(|line| line.trim() == "#[outbox::test]"));
    found
}

#[test]
fn a_documented_test_that_is_not_compiled_is_found() {
    let text = "a\n```\n# use hidden;\n#[outbox::test]\nasync fn a() {}\n```\n```\nfn other() {}\n```\n";
    let compiled = "mod a {\n    #[outbox::test]\n    async fn a() {}\n}\n";
    assert_found(unknown_tests("a.md", text, compiled), &[]);
    assert_found(unknown_tests("a.md", text, &compiled.replace("fn a", "fn b")), &["a.md:2"]);
}

#[test]
fn documents_are_about_no_particular_machine() {
    assert_clean(files("", "md").iter().flat_map(|(path, text)| {
        let lines = (1..).zip(text.lines());
        lines
            .filter(|(_, line)| names_machine_path(line))
            .map(|(number, _)| finding(path, number, MACHINE_RULE))
    }));
    assert_clean(rust_files(&["outbox", "outbox-macros", "tests", "examples"]).iter().flat_map(|source| {
        let lines = source.numbered().filter(|(_, line)| names_machine_path(&line.comment));
        lines.map(|(number, _)| finding(&source.path, number, MACHINE_RULE)).collect::<Vec<_>>()
    }));
}

const MACHINE_RULE: &str = "a path of one machine means nothing to a reader";

/// At the start of a path; in the middle of one, or of a URL, the same names are harmless.
fn names_machine_path(line: &str) -> bool {
    ["/work/", "/root/", "/home/"].iter().any(|path| {
        let is_start = |at: usize| {
            !line[..at].ends_with(|char: char| char.is_alphanumeric() || "_-.~$}{*".contains(char))
        };
        line.match_indices(path).any(|(at, _)| is_start(at))
    })
}

#[test]
fn a_broken_link_is_found() {
    let text = "# Start here\n[a](docs/a.md) ![b](none.png \"title\") [c](https://x.org/none)\n\
                [d](#start-here) [e](#nowhere)\n`[f](none.md)`\n```\n[g](none.md)\n```\n\
                [h](docs/a.md#two-words-1) [i](docs/a.md#three)\n[j]: ./gone.md\n[k](docs) <a href=\"lost.md\">l</a>\n";
    let read = |path: &str| match path {
        "docs/a.md" => Some("## Two `words`!\n## [Two words](x.md)\n[up](../README.md)\n".to_owned()),
        "docs" => Some(String::new()),
        _ => None,
    };
    let places = [2, 3, 8, 9, 10].map(|line| format!("README.md:{line}"));
    let places: Vec<_> = places.iter().map(String::as_str).collect();
    assert_found(broken_links("README.md", text, read), &places);
    assert_found(
        broken_links("docs/b.md", "[a](a.md) [b](../docs/a.md) [c](../a.md)", read),
        &["docs/b.md:1"],
    );
}

#[test]
fn a_machine_path_is_found() {
    for bad in ["see /work/x", "(`/root/.cargo`)", "/home/me/x", "file:///home/me"] {
        assert!(names_machine_path(bad), "{bad}");
    }
    for good in ["https://x.org/home/", "a/work/b", "$HOME/work/", "~/work/", "the work/ folder"] {
        assert!(!names_machine_path(good), "{good}");
    }
}

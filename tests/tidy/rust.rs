//! Just enough of Rust's lexer to tell code from comments and string literals, and library code from tests.

#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) lines: Vec<Line>,
    /// The content of each string literal, with the number of the line on which it starts.
    pub(crate) strings: Vec<(usize, String)>,
}

#[derive(Debug, Default)]
pub(crate) struct Line {
    /// Without comments and without the content of string literals.
    pub(crate) code: String,
    pub(crate) comment: String,
    /// Inside an item that is compiled for tests only.
    pub(crate) test: bool,
}

impl Source {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let mut lexer = Lexer { rest: text, lines: vec![Line::default()], strings: Vec::new() };
        lexer.run();
        let mut source = Self { path: path.to_owned(), lines: lexer.lines, strings: lexer.strings };
        source.mark_tests();
        source
    }

    /// Lines with their numbers.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = (usize, &Line)> {
        (1..).zip(&self.lines)
    }

    /// The code that users compile; test code leaves empty lines, so that line numbers hold.
    pub(crate) fn library_code(&self) -> String {
        let lines = self.lines.iter().map(|line| if line.test { "" } else { line.code.as_str() });
        lines.collect::<Vec<_>>().join("\n")
    }

    pub(crate) fn is_test(&self, line: usize) -> bool {
        self.lines[line - 1].test
    }

    fn mark_tests(&mut self) {
        if self.path.ends_with("/tests.rs") || self.path.contains("/tests/") {
            self.lines.iter_mut().for_each(|line| line.test = true);
        }
        let code = self.library_code();
        for attribute in ["#[cfg(test)]", "#[cfg(all(test"] {
            for (start, _) in code.match_indices(attribute) {
                let after = start + "#[cfg".len();
                let end = after + item_length(&code[after..]);
                let (first, last) = (line_of(&code, start), line_of(&code, end));
                self.lines[first - 1..last].iter_mut().for_each(|line| line.test = true);
            }
        }
    }
}

/// How far it is to the end of the item: its `;`, or the brace that closes its body.
fn item_length(code: &str) -> usize {
    let mut depth = 0_usize;
    for (at, char) in code.char_indices() {
        match char {
            '(' | '[' | '{' => depth += 1,
            // The bracket that closes the attribute itself was opened before `code`.
            ')' | ']' => depth = depth.saturating_sub(1),
            '}' if depth <= 1 => return at,
            '}' => depth -= 1,
            ';' if depth == 0 => return at,
            _ => {}
        }
    }
    code.len()
}

pub(crate) fn line_of(text: &str, offset: usize) -> usize {
    text[..offset].matches('\n').count() + 1
}

pub(crate) fn is_word(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

struct Lexer<'a> {
    rest: &'a str,
    lines: Vec<Line>,
    strings: Vec<(usize, String)>,
}

impl Lexer<'_> {
    fn run(&mut self) {
        while let Some(char) = self.rest.chars().next() {
            if self.rest.starts_with("//") {
                let length = self.rest.find('\n').unwrap_or(self.rest.len());
                self.comment(length);
            } else if self.rest.starts_with("/*") {
                self.comment(block_comment(self.rest));
            } else if let Some((open, hashes)) = raw_string(self.rest).filter(|_| !self.after_word()) {
                let close = format!("\"{}", "#".repeat(hashes));
                let length = self.rest[open..].find(&close).unwrap_or(self.rest.len() - open);
                self.string(open, length, close.len());
            } else if char == '"' {
                self.string(1, until_quote(&self.rest[1..]), 1);
            } else if let Some(length) = char_literal(self.rest) {
                self.advance(length);
                self.line().code.push_str("''");
            } else {
                self.advance(char.len_utf8());
                if char != '\n' {
                    self.line().code.push(char);
                }
            }
        }
    }

    fn line(&mut self) -> &mut Line {
        self.lines.last_mut().expect("there is a line from the start")
    }

    fn after_word(&mut self) -> bool {
        self.line().code.ends_with(is_word)
    }

    /// Takes text off the rest and opens as many lines as it ends.
    fn advance(&mut self, length: usize) {
        let length = length.min(self.rest.len());
        let ended = self.rest[..length].matches('\n').count();
        self.lines.extend((0..ended).map(|_| Line::default()));
        self.rest = &self.rest[length..];
    }

    fn comment(&mut self, length: usize) {
        for (index, text) in self.rest[..length].split('\n').enumerate() {
            if index > 0 {
                self.lines.push(Line::default());
            }
            self.line().comment.push_str(text);
        }
        self.rest = &self.rest[length..];
    }

    fn string(&mut self, open: usize, length: usize, close: usize) {
        let start = self.lines.len();
        self.strings.push((start, self.rest[open..open + length].to_owned()));
        self.line().code.push_str("\"\"");
        self.advance(open + length + close);
    }
}

fn block_comment(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if text[at..].starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// The length of `r##"` and the number of its hashes.
fn raw_string(text: &str) -> Option<(usize, usize)> {
    let prefix = ["br", "cr", "r"].into_iter().find(|prefix| text.starts_with(prefix))?;
    let after = &text[prefix.len()..];
    let hashes = after.len() - after.trim_start_matches('#').len();
    after[hashes..].starts_with('"').then_some((prefix.len() + hashes + 1, hashes))
}

fn until_quote(text: &str) -> usize {
    let mut escaped = false;
    text.find(|char| {
        let end = char == '"' && !escaped;
        escaped = char == '\\' && !escaped;
        end
    })
    .unwrap_or(text.len())
}

/// The length of a character literal; a lifetime has no closing quote after its first character.
fn char_literal(text: &str) -> Option<usize> {
    let inner = text.strip_prefix('\'')?;
    if let Some(escape) = inner.strip_prefix('\\') {
        let kind = escape.chars().next()?.len_utf8();
        return Some(2 + kind + escape[kind..].find('\'')? + 1);
    }
    let char = inner.chars().next()?.len_utf8();
    inner[char..].starts_with('\'').then_some(1 + char + 1)
}

#[test]
fn code_comments_and_strings_are_told_apart() {
    let text = r##"let a = "x // \" no"; // yes "no"
/* one /* two */
three */ let b = r#"raw " // text"#; let c = '"'; let d: &'static str = b"end";
let e = '\''; // tail"##;
    let source = Source::new("a.rs", text);
    let code: Vec<_> = source.lines.iter().map(|line| line.code.trim()).collect();
    assert_eq!(
        code,
        ["let a = \"\";", "", "let b = \"\"; let c = ''; let d: &'static str = b\"\";", "let e = '';"]
    );
    let comments: Vec<_> = source.lines.iter().map(|line| line.comment.as_str()).collect();
    assert_eq!(comments, ["// yes \"no\"", "/* one /* two */", "three */", "// tail"]);
    let strings: Vec<_> = source.strings.iter().map(|(line, text)| (*line, text.as_str())).collect();
    assert_eq!(strings, [(1, r#"x // \" no"#), (3, r#"raw " // text"#), (3, "end")]);
}

#[test]
fn test_items_end_with_their_body() {
    let text = "#[cfg(test)]\nuse a::b;\nfn library() {}\n#[cfg(test)]\nmod tests {\n    fn f() { [1; 2]; }\n}\nfn more() {}\n";
    let source = Source::new("a.rs", text);
    let marks: Vec<_> = source.lines.iter().map(|line| line.test).collect();
    assert_eq!(marks, [true, true, false, true, true, true, true, false, false]);
    assert!(Source::new("outbox/src/a/tests.rs", "fn f() {}").is_test(1));
}

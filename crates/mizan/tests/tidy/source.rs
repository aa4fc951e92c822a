//! Rust source as the rules see it: tokens with their lines, comments and literals left out.

use std::path::{Path, PathBuf};

/// One file.
pub(crate) struct Source {
    /// Relative to the workspace, with `/`.
    pub(crate) path: String,
    /// As it stands.
    pub(crate) text: String,
    /// What the compiler sees of it.
    pub(crate) tokens: Vec<Token>,
}

/// A word, a number, `::`, or one character of punctuation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) text: String,
    /// From 1.
    pub(crate) line: usize,
}

impl Source {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
            tokens: tokens(&blank(text)),
        }
    }

    /// Whether `tokens[at..]` reads as `pattern`.
    pub(crate) fn reads(&self, at: usize, pattern: &[&str]) -> bool {
        self.tokens.len() >= at + pattern.len()
            && self.tokens[at..]
                .iter()
                .zip(pattern)
                .all(|(token, want)| token.text == *want)
    }

    /// The index just behind the bracket that closes the one at `open`.
    pub(crate) fn close(&self, open: usize) -> usize {
        let mut depth = 0usize;
        for (at, token) in self.tokens.iter().enumerate().skip(open) {
            match token.text.as_str() {
                "{" | "(" | "[" => depth += 1,
                "}" | ")" | "]" => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return at + 1;
            }
        }
        self.tokens.len()
    }

    /// The tokens that are compiled for tests only: the whole file's, or those of its `#[cfg(test)] mod … { }`.
    pub(crate) fn test_code(&self) -> Vec<usize> {
        if self.path.contains("/tests/") || self.path.ends_with("/tests.rs") {
            return (0..self.tokens.len()).collect();
        }
        let attribute = ["#", "[", "cfg", "(", "test", ")", "]"];
        let mut found = Vec::new();
        for at in 0..self.tokens.len() {
            if !self.reads(at, &attribute) {
                continue;
            }
            let item = at + attribute.len();
            let body = (item..self.tokens.len())
                .find(|&at| ["{", ";"].contains(&self.tokens[at].text.as_str()));
            if let Some(body) = body.filter(|&body| self.tokens[body].text == "{") {
                found.extend(at..self.close(body));
            }
        }
        found
    }
}

/// All `.rs` files under `root`'s `folders`, in order of their paths.
pub(crate) fn read_all(root: &Path, folders: &[&str]) -> Vec<Source> {
    let mut paths = Vec::new();
    for folder in folders {
        let before = paths.len();
        collect(&root.join(folder), &mut paths);
        assert!(
            paths.len() > before,
            "{folder} has no Rust file: a rule that looks at nothing holds nothing"
        );
    }
    paths.sort();
    let source = |path: &PathBuf| {
        let text = std::fs::read_to_string(path).expect("a source file is readable UTF-8");
        let relative = path
            .strip_prefix(root)
            .expect("it was found under the root");
        Source::new(&relative.to_string_lossy(), &text)
    };
    paths.iter().map(source).collect()
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries.filter_map(Result::ok) {
        let path = entry.path();
        if path.is_dir() && !path.ends_with("target") {
            collect(&path, paths);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            paths.push(path);
        }
    }
}

fn tokens(code: &str) -> Vec<Token> {
    let mut found = Vec::new();
    for (number, line) in code.lines().enumerate() {
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next() {
            let length = if first.is_alphanumeric() || first == '_' {
                rest.find(|c: char| !c.is_alphanumeric() && c != '_')
                    .unwrap_or(rest.len())
            } else if rest.starts_with("::") {
                2
            } else {
                first.len_utf8()
            };
            found.push(Token {
                text: rest[..length].to_owned(),
                line: number + 1,
            });
            rest = rest[length..].trim_start();
        }
    }
    found
}

/// The text with comments and the insides of literals turned into spaces; line ends stay.
fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = literal_or_comment(bytes, at);
        for byte in &mut out[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end.max(at + 1);
    }
    String::from_utf8(out).expect("whole comments and literals are blanked, never half a character")
}

/// Where the comment or literal that begins at `at` ends; `at` if none begins there.
fn literal_or_comment(bytes: &[u8], at: usize) -> usize {
    let word_before = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
    match bytes[at] {
        b'/' if bytes[at..].starts_with(b"//") => find(bytes, at, b"\n"),
        b'/' if bytes[at..].starts_with(b"/*") => block_comment(bytes, at),
        b'"' => quoted(bytes, at, b'"'),
        b'\'' => character(bytes, at),
        b'r' | b'b' | b'c' if !word_before => raw_string(bytes, at).unwrap_or(at),
        _ => at,
    }
}

fn find(bytes: &[u8], from: usize, what: &[u8]) -> usize {
    (from..bytes.len())
        .find(|&at| bytes[at..].starts_with(what))
        .unwrap_or(bytes.len())
}

fn block_comment(bytes: &[u8], from: usize) -> usize {
    let (mut at, mut depth) = (from, 0usize);
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                break;
            }
        } else {
            at += 1;
        }
    }
    at
}

fn quoted(bytes: &[u8], from: usize, quote: u8) -> usize {
    let mut at = from + 1;
    while at < bytes.len() && bytes[at] != quote {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

/// A character literal; a lifetime (`'a` with no closing quote) is left as it is.
fn character(bytes: &[u8], from: usize) -> usize {
    let escaped = bytes.get(from + 1) == Some(&b'\\');
    let width = std::str::from_utf8(&bytes[from + 1..])
        .ok()
        .and_then(|rest| rest.chars().next())
        .map_or(1, char::len_utf8);
    if escaped || bytes.get(from + 1 + width) == Some(&b'\'') {
        quoted(bytes, from, b'\'')
    } else {
        from
    }
}

/// `r"…"`, `r#"…"#`, also with `b` or `c` before; `None` if this is only a word.
fn raw_string(bytes: &[u8], from: usize) -> Option<usize> {
    let prefix = bytes[from..]
        .iter()
        .take_while(|byte| b"rbc".contains(byte))
        .count();
    let raw = bytes[from..from + prefix].contains(&b'r');
    let hashes = bytes[from + prefix..]
        .iter()
        .take_while(|byte| **byte == b'#')
        .count();
    let open = from + prefix + hashes;
    if prefix > 2 || !raw || bytes.get(open) != Some(&b'"') {
        return None;
    }
    let closing = [b"\"".as_slice(), &vec![b'#'; hashes]].concat();
    Some((find(bytes, open + 1, &closing) + closing.len()).min(bytes.len()))
}

//! What is wrong with a scenario file, where, and what was meant.

use std::fmt;
use std::ops::Range;

/// One fault of a scenario file. `Display` gives it as one line, `name:3:5: message`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The file, as the reader named it.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong, and what was meant.
    pub message: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}:{}: {}",
            self.file, self.line, self.column, self.message
        )
    }
}

impl std::error::Error for Diagnostic {}

/// The faults found so far in one file.
pub(super) struct Findings<'a> {
    file: &'a str,
    text: &'a str,
    found: Vec<Diagnostic>,
}

impl<'a> Findings<'a> {
    pub(super) fn new(file: &'a str, text: &'a str) -> Self {
        Self {
            file,
            text,
            found: Vec::new(),
        }
    }

    /// Notes a fault of the text at `span`.
    pub(super) fn add(&mut self, span: Range<usize>, message: impl Into<String>) {
        let at = self
            .text
            .floor_char_boundary(span.start.min(self.text.len()));
        let before = &self.text[..at];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        self.found.push(Diagnostic {
            file: self.file.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            message: message.into(),
        });
    }

    /// Notes a fault unless `holds`.
    pub(super) fn require(&mut self, holds: bool, span: Range<usize>, message: impl Into<String>) {
        if !holds {
            self.add(span, message);
        }
    }

    /// What the TOML reader found, in this crate's words.
    pub(super) fn add_syntax(&mut self, error: &toml::de::Error) {
        let span = error.span().unwrap_or(0..0);
        self.add(span, reworded(error.message()));
    }

    pub(super) fn into_vec(mut self) -> Vec<Diagnostic> {
        self.found
            .sort_by_key(|diagnostic| (diagnostic.line, diagnostic.column));
        self.found
    }

    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }
}

/// The reader says "unknown field `x`, expected one of `a`, `b`" (or variant): which of them was meant?
fn reworded(message: &str) -> String {
    let Some((what, rest)) = ["field", "variant"].iter().find_map(|&what| {
        let rest = message.strip_prefix(&format!("unknown {what} "))?;
        Some((what, rest))
    }) else {
        return message.replace("missing field", "missing key");
    };
    let mut quoted = rest.split('`').skip(1).step_by(2);
    let word = quoted.next().unwrap_or_default();
    let known: Vec<&str> = quoted.collect();
    let kind = if what == "field" { "key" } else { "value" };
    match nearest(word, &known) {
        Some(meant) => format!("unknown {kind} `{word}`: did you mean `{meant}`?"),
        None => format!("unknown {kind} `{word}`: there are {}", known.join(", ")),
    }
}

/// The word of `known` that `word` is likely a slip of.
pub(super) fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let distance_max = (word.len() / 3).clamp(1, 3);
    known
        .iter()
        .map(|&other| (strsim::damerau_levenshtein(word, other), other))
        .filter(|&(distance, _)| distance <= distance_max)
        .min()
        .map(|(_, other)| other)
}

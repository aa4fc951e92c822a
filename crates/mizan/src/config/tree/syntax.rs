//! TOML's own errors, said in the words of this file format.

use super::{Diagnostic, Severity, Source};
use std::ops::Range;
use toml::de::Error;

/// A syntax error.
pub(in super::super) struct Syntax {
    /// The error as shown.
    pub(in super::super) diagnostic: Diagnostic,
    /// Index of its source.
    pub(in super::super) file: usize,
    /// Whether what stands behind it may have been read wrongly, so that a missing thing may be there after all.
    pub(in super::super) is_structural: bool,
    /// Whether everything behind it in the file is noise.
    pub(in super::super) ends_it: bool,
}

impl Syntax {
    /// Whether what the shape check says of a place in the same file is only a consequence of this error.
    pub(in super::super) fn explains(&self, other: &Diagnostic) -> bool {
        let (own, other_span) = (&self.diagnostic.span, &other.span);
        let overlap = own.start <= other_span.end && other_span.start <= own.end;
        let behind = other_span.start >= own.start;
        overlap
            || (self.is_structural && self.diagnostic.line == other.line)
            || (self.ends_it && behind)
    }
}

/// One error a line; behind a list that is never closed, everything else is noise.
pub(super) fn explain(source: &Source, file: usize, errors: &[Error]) -> Vec<Syntax> {
    let mut errors: Vec<(Range<usize>, &str)> = errors
        .iter()
        .map(|error| (error.span().unwrap_or(0..0), error.message()))
        .collect();
    errors.sort_by_key(|(span, _)| span.start);
    let mut out: Vec<Syntax> = Vec::new();
    for (span, message) in errors {
        let value = if is_bare_value(message) {
            word(&source.text, span)
        } else {
            widened(&source.text, span)
        };
        let (text, help, is_structural) = in_our_words(message, &source.text[value.clone()]);
        let mut diagnostic = Diagnostic::new(source, value, Severity::Error, "syntax", text);
        diagnostic.help = help;
        if out
            .last()
            .is_some_and(|last| last.diagnostic.line == diagnostic.line)
        {
            continue;
        }
        let ends_it = message.starts_with("unclosed") || message.starts_with("missing comma");
        out.push(Syntax {
            diagnostic,
            file,
            is_structural,
            ends_it,
        });
        if ends_it {
            break;
        }
    }
    out
}

/// The message, a help text, and whether the error is structural.
fn in_our_words(message: &str, marked: &str) -> (String, Option<String>, bool) {
    if is_bare_value(message) {
        let text = format!("`{marked}` is not a TOML value; did you mean `\"{marked}\"`?");
        let help = "names, durations and sizes are strings and stand in quotes";
        return (text, Some(help.to_owned()), false);
    }
    if message == "duplicate key" {
        let help = "a key may stand once in its table; `[[listener]]` and `[[route]]` (two brackets) may repeat";
        return (
            format!("`{marked}` is there already"),
            Some(help.to_owned()),
            false,
        );
    }
    if message.starts_with("invalid basic string, expected `\"`")
        || message.starts_with("invalid literal string, expected")
    {
        return (
            "this string is not closed".to_owned(),
            Some("strings end on the line where they begin".to_owned()),
            true,
        );
    }
    if message.starts_with("unclosed array") {
        return (
            "this list is not closed; a `]` is missing".to_owned(),
            None,
            true,
        );
    }
    if message.starts_with("missing comma between array elements") {
        return (
            "a `,` or a closing `]` is missing here".to_owned(),
            None,
            true,
        );
    }
    (message.to_owned(), None, true)
}

/// Errors about a value that was likely meant to be a string.
fn is_bare_value(message: &str) -> bool {
    [
        "string values must be quoted",
        "invalid float",
        "invalid integer",
    ]
    .iter()
    .any(|start| message.starts_with(start))
}

/// The whole word around `span`.
fn word(text: &str, span: Range<usize>) -> Range<usize> {
    let ends_word =
        |c: char| c.is_whitespace() || matches!(c, ',' | '[' | ']' | '{' | '}' | '=' | '#');
    let start = text.floor_char_boundary(span.start.min(text.len()));
    let end = text.ceil_char_boundary(span.end.clamp(start, text.len()));
    let before = text[..start]
        .rfind(ends_word)
        .map_or(0, |at| text.ceil_char_boundary(at + 1));
    let behind = text[end..]
        .find(ends_word)
        .map_or(text.len(), |at| end + at);
    before..behind
}

/// `span`, or the nearest character before it on its line when it is empty (there must be something to mark).
fn widened(text: &str, span: Range<usize>) -> Range<usize> {
    let start = text.floor_char_boundary(span.start.min(text.len()));
    let end = text.ceil_char_boundary(span.end.clamp(start, text.len()));
    if start < end {
        return start..end;
    }
    let before = text[..start].chars().next_back().filter(|c| *c != '\n');
    start - before.map_or(0, char::len_utf8)..end
}

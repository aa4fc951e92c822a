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
        let value = widened(&source.text, span.clone());
        let (text, help, is_structural) = in_our_words(message, &source.text[value.clone()]);
        let mut diagnostic = Diagnostic::new(source, value, Severity::Error, "syntax", text);
        diagnostic.help = help;
        if out
            .last()
            .is_some_and(|last| last.diagnostic.line == diagnostic.line)
        {
            continue;
        }
        let is_last = message.starts_with("unclosed") || message.starts_with("missing comma");
        out.push(Syntax {
            diagnostic,
            file,
            is_structural,
        });
        if is_last {
            break;
        }
    }
    out
}

/// The message, a help text, and whether the error is structural.
fn in_our_words(message: &str, marked: &str) -> (String, Option<String>, bool) {
    if message.starts_with("string values must be quoted") {
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

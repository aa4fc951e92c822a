//! Exit statuses, and the one place that prints.

use super::client::ClientError;
use crate::telemetry::chain;
use std::borrow::Cow;
use std::io::{self, Write};
use std::process::ExitCode;

/// Exit statuses; stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    /// Done and verified.
    Done = 0,
    /// A check is violated; `status`: the last reload was refused.
    Violated = 1,
    /// Wrong usage, a file is refused, or the output cannot be written.
    Usage = 2,
    /// The configuration changed meanwhile.
    Changed = 3,
    /// No instance answers.
    Unreachable = 4,
    /// Not done in time, or not the same everywhere.
    NotConverged = 5,
    /// The store did not say whether it was done.
    Inconclusive = 10,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// The exit status of a command that talks to an instance; says what went wrong.
pub(super) fn finish(result: Result<Exit, ClientError>) -> ExitCode {
    result
        .unwrap_or_else(|error| {
            err(&format!("mizan: {}", chain(&error)));
            error.exit()
        })
        .into()
}

/// Text to standard output, and the exit status that then holds: `exit`, or [`Exit::Usage`] if it could not
/// be written. A script that reads half a table must not take it for a whole one.
pub(super) fn out(text: &str, exit: Exit) -> Exit {
    print(&plain(text), exit)
}

fn print(text: &str, exit: Exit) -> Exit {
    let mut stdout = io::stdout().lock();
    written(
        writeln!(stdout, "{text}").and_then(|()| stdout.flush()),
        exit,
    )
}

/// Without what a terminal would obey: names and reasons may come from whoever can write to the store, or from a log.
fn plain(text: &str) -> Cow<'_, str> {
    let is_obeyed = |letter: char| letter.is_control() && !matches!(letter, '\n' | '\t');
    if !text.contains(is_obeyed) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        match is_obeyed(letter) {
            true => escaped.extend(letter.escape_default()),
            false => escaped.push(letter),
        }
    }
    Cow::Owned(escaped)
}

/// What became of writing. A reader that has gone away (`| head`) has what it wanted.
pub(super) fn written(result: io::Result<()>, exit: Exit) -> Exit {
    match result {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            err(&format!("mizan: cannot write to standard output: {error}"));
            Exit::Usage
        }
        _ => exit,
    }
}

/// A line to standard error. There is nobody to tell if that fails.
pub(super) fn err(text: &str) {
    let _ = writeln!(io::stderr(), "{}", plain(text));
}

/// JSON for programs, as [`out`].
pub(super) fn json(value: &impl serde::Serialize, exit: Exit) -> Exit {
    match serde_json::to_string_pretty(value) {
        Ok(text) => print(&text, exit),
        Err(error) => {
            err(&format!("mizan: {error}"));
            Exit::Usage
        }
    }
}

/// `rows` in columns, indented; the first row is the heading.
pub(super) fn table(indent: &str, rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
    };
    let widths: Vec<usize> = (0..columns)
        .map(|column| width(column).unwrap_or_default())
        .collect();
    let line = |row: &Vec<String>| {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"));
        format!("{indent}{}", cells.collect::<Vec<_>>().join("  "))
            .trim_end()
            .to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// `1 route`, `2 routes`.
pub(super) fn count(number: impl std::fmt::Display, noun: &str) -> String {
    let number = number.to_string();
    let plural = if number == "1" { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// The one word that tells most of a backend: its state, or what traffic says of one that is in service.
pub(super) fn state_word<'s>(state: &'s str, traffic: &'s str) -> &'s str {
    match (state, traffic) {
        ("usable", "degraded") => "degraded",
        _ => state,
    }
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn a_name_from_elsewhere_steers_no_terminal() {
        let said = plain("REJECTED pools/kr/\u{1b}[31mEVIL\r\u{9b}2J:\n\tbad — ünicode");
        let shown = "REJECTED pools/kr/\\u{1b}[31mEVIL\\r\\u{9b}2J:\n\tbad — ünicode";
        assert_eq!(said, shown);
        assert!(matches!(plain("as it is\n"), std::borrow::Cow::Borrowed(_)));
    }
}

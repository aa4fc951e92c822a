//! Exit statuses, and the one place that prints.

use super::client::ClientError;
use std::io::{self, Write};
use std::process::ExitCode;

/// Exit statuses; stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    /// Done and verified.
    Done = 0,
    /// A check is violated; `status`: the last reload was refused.
    Violated = 1,
    /// Wrong usage, or a file is refused.
    Usage = 2,
    /// The configuration changed meanwhile.
    Changed = 3,
    /// No instance answers.
    Unreachable = 4,
    /// Not done in time.
    NotInTime = 5,
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

/// An error with all that it comes from.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// A line to standard output. A reader that has gone away (`| head`) is no error.
pub(super) fn out(text: &str) {
    let _ = writeln!(io::stdout(), "{text}");
}

/// A line to standard error.
pub(super) fn err(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// JSON for programs.
pub(super) fn json(value: &impl serde::Serialize) {
    match serde_json::to_string_pretty(value) {
        Ok(text) => out(&text),
        Err(error) => err(&format!("mizan: {error}")),
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
pub(super) fn count(number: usize, noun: &str) -> String {
    if number == 1 {
        format!("1 {noun}")
    } else {
        format!("{number} {noun}s")
    }
}

//! A JSON text as a tree of values with their places: what a list of backends in a file is checked as.

use super::{Entry, List, Node, Place, Value};
use crate::config::Source;
use crate::config::diagnostic::{Diagnostic, Severity};
use std::collections::BTreeMap;

/// The values of `source`, the first of the sources, and keys that stand twice.
///
/// # Errors
/// It is no JSON (RFC 8259).
pub(in super::super) fn parse(source: &Source) -> Result<(Node, Vec<Diagnostic>), Vec<Diagnostic>> {
    let text = source.text.as_str();
    if let Err(error) = serde_json::from_str::<serde_json::Value>(text) {
        let at = byte_at(text, error.line(), error.column());
        let message = error.to_string();
        // The place is told apart from it.
        let message = message.split(" at line ").next().unwrap_or_default();
        let message = format!("this is no JSON: {message}");
        let (severity, code) = (Severity::Error, "syntax");
        let wrong = Diagnostic::new(source, at..at, severity, code, message);
        return Err(vec![wrong]);
    }
    let mut walk = Walk {
        source,
        at: 0,
        found: Vec::new(),
    };
    let node = walk.value();
    Ok((node, walk.found))
}

/// The byte of a line and a column, both from 1; columns are bytes, as the parser counts them.
fn byte_at(text: &str, line: usize, column: usize) -> usize {
    let before: usize = text
        .split_inclusive('\n')
        .take(line.saturating_sub(1))
        .map(str::len)
        .sum();
    before + column.saturating_sub(1)
}

/// Goes through a text that is known to be JSON.
struct Walk<'a> {
    source: &'a Source,
    at: usize,
    found: Vec<Diagnostic>,
}

impl Walk<'_> {
    fn value(&mut self) -> Node {
        self.skip_space();
        let start = self.at;
        let value = match self.byte() {
            b'{' => Value::Table(self.object()),
            b'[' => Value::Array(List {
                items: self.array(),
                has_refused: false,
            }),
            b'"' => Value::String(self.string()),
            _ => self.scalar(),
        };
        Node {
            place: Place::new(0, start..self.at),
            value,
            refused: false,
        }
    }

    fn object(&mut self) -> BTreeMap<String, Entry> {
        let mut entries = BTreeMap::new();
        while self.goes_on(b'}') {
            let start = self.at;
            let key = self.string();
            let key_place = Place::new(0, start..self.at);
            self.skip_space();
            // The colon.
            self.at += 1;
            let node = self.value();
            if entries.contains_key(&key) {
                let message = format!("`{}` stands twice", key.escape_debug());
                let (span, severity) = (key_place.span(), Severity::Error);
                let twice = Diagnostic::new(self.source, span, severity, "duplicate", message);
                self.found.push(twice);
            }
            // A null is a key that is not set.
            if !matches!(node.value, Value::Datetime) {
                entries.insert(key, Entry { key_place, node });
            }
        }
        entries
    }

    fn array(&mut self) -> Vec<Node> {
        let mut items = Vec::new();
        while self.goes_on(b']') {
            items.push(self.value());
        }
        items
    }

    /// Steps over what stands before the next member, or over the end.
    fn goes_on(&mut self, end: u8) -> bool {
        if matches!(self.byte(), b'{' | b'[') {
            self.at += 1;
        }
        self.skip_space();
        if self.byte() == b',' {
            self.at += 1;
            self.skip_space();
        }
        let is_over = self.byte() == end;
        self.at += usize::from(is_over);
        !is_over
    }

    fn string(&mut self) -> String {
        let start = self.at;
        self.at += 1;
        while !matches!(self.byte(), b'"' | 0) {
            self.at += if self.byte() == b'\\' { 2 } else { 1 };
        }
        self.at += 1;
        let quoted = self.source.text.get(start..self.at).unwrap_or("\"\"");
        serde_json::from_str(quoted).unwrap_or_default()
    }

    fn scalar(&mut self) -> Value {
        let start = self.at;
        while !matches!(
            self.byte(),
            b',' | b']' | b'}' | b' ' | b'\t' | b'\r' | b'\n' | 0
        ) {
            self.at += 1;
        }
        match &self.source.text[start..self.at] {
            "true" => Value::Boolean(true),
            "false" => Value::Boolean(false),
            // No key takes it, as none takes a date.
            "null" => Value::Datetime,
            number => match number.parse() {
                Ok(number) => Value::Integer(number),
                Err(_) => number.parse().map_or(Value::Unreadable, Value::Float),
            },
        }
    }

    fn skip_space(&mut self) {
        while matches!(self.byte(), b' ' | b'\t' | b'\r' | b'\n') {
            self.at += 1;
        }
    }

    /// The next byte; 0 at the end, which no JSON has elsewhere.
    fn byte(&self) -> u8 {
        let bytes = self.source.text.as_bytes();
        bytes.get(self.at).copied().unwrap_or_default()
    }
}

//! The files as one tree of values that know where they stand.
//!
//! The tree keeps what was wrong as well as what was right: later stages ask it where a key is, and
//! whether a key that they miss was given but refused, so that one mistake is reported once.

use super::Source;
use super::diagnostic::{Diagnostic, Severity};
use super::suggest;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use toml::de::{DeTable, DeValue};

pub(super) mod json;
mod stored;
mod syntax;
pub(super) use stored::{Stored, pool_name};
pub(super) use syntax::Syntax;

/// Where something stands: which source, and which bytes of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// Index into the sources.
    pub(super) file: usize,
    /// First byte.
    pub(super) start: usize,
    /// Behind the last byte.
    pub(super) end: usize,
}

impl Place {
    fn new(file: usize, span: Range<usize>) -> Self {
        Self {
            file,
            start: span.start,
            end: span.end,
        }
    }

    /// The bytes.
    pub(super) fn span(&self) -> Range<usize> {
        self.start..self.end
    }
}

/// A value and its place.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) place: Place,
    pub(super) value: Value,
    /// Refused by the check against the schema, and left out of what is compiled.
    pub(super) refused: bool,
}

/// A value of the file.
#[derive(Debug)]
pub(super) enum Value {
    Table(BTreeMap<String, Entry>),
    Array(List),
    String(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    Datetime,
    /// A number beyond 64 bits, or a string whose `${NAME}` or `file:` could not be read: reported already.
    Unreadable,
}

/// A key, its place and its value.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key_place: Place,
    pub(super) node: Node,
}

/// A path to a value, kept on the stack while the walk goes down.
#[derive(Clone, Copy, Debug)]
pub(super) struct At<'a> {
    /// `None` at the root.
    last: Option<(&'a At<'a>, Step<'a>)>,
}

/// One step of a path.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

impl<'a> At<'a> {
    /// The whole configuration.
    pub(super) const ROOT: At<'static> = At { last: None };

    /// The value of `key` in it.
    pub(super) fn key(&'a self, key: &'a str) -> At<'a> {
        At {
            last: Some((self, Step::Key(key))),
        }
    }

    /// Its element `index`.
    pub(super) fn index(&'a self, index: usize) -> At<'a> {
        At {
            last: Some((self, Step::Index(index))),
        }
    }

    /// The steps from the root down.
    pub(super) fn steps(&self) -> Vec<Step<'a>> {
        let mut steps = Vec::new();
        let mut at = self;
        while let Some((parent, step)) = at.last {
            steps.push(step);
            at = parent;
        }
        steps.reverse();
        steps
    }
}

/// `pool.api.backends[2].weight`.
impl std::fmt::Display for At<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write_steps(&self.steps(), f)
    }
}

/// A path as text.
pub(super) fn show_steps(steps: &[Step<'_>]) -> String {
    let mut path = String::new();
    // Writing to a String does not fail.
    let _ = write_steps(steps, &mut path);
    path
}

fn write_steps(steps: &[Step<'_>], f: &mut impl std::fmt::Write) -> std::fmt::Result {
    for (number, step) in steps.iter().enumerate() {
        match step {
            Step::Key(key) => write!(f, "{}{}", if number == 0 { "" } else { "." }, quoted(key))?,
            Step::Index(index) => write!(f, "[{index}]")?,
        }
    }
    Ok(())
}

/// A key as TOML wants it written.
pub(super) fn quoted(key: &str) -> Cow<'_, str> {
    let bare = !key.is_empty()
        && key
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    if bare {
        Cow::Borrowed(key)
    } else {
        Cow::Owned(format!("{key:?}"))
    }
}

/// What [`Node::locate`] found.
pub(super) struct Located {
    /// What to mark: a scalar itself, a key for tables and lists.
    pub(super) place: Place,
    /// The path as the file has it (refused elements counted).
    pub(super) path: String,
}

/// A list.
#[derive(Debug)]
pub(super) struct List {
    pub(super) items: Vec<Node>,
    /// Whether some item was refused: then the indexes of what is compiled are not those of the file.
    pub(super) has_refused: bool,
}

impl List {
    /// The item that is compiled as number `index`, and its number in the file.
    fn compiled(&self, index: usize) -> Option<(usize, &Node)> {
        if !self.has_refused {
            return self.items.get(index).map(|item| (index, item));
        }
        self.items
            .iter()
            .enumerate()
            .filter(|(_, item)| !item.refused)
            .nth(index)
    }
}

impl Node {
    /// The value that a path leads to.
    pub(super) fn find(&self, steps: &[Step<'_>]) -> Option<&Node> {
        steps.iter().try_fold(self, |node, step| {
            node.child(*step).map(|(child, _, _)| child)
        })
    }

    /// The place of the key that a path ends with.
    pub(super) fn key_place(&self, steps: &[Step<'_>]) -> Option<Place> {
        let (Step::Key(key), table) = steps
            .split_last()
            .map(|(last, steps)| (*last, self.find(steps)))?
        else {
            return None;
        };
        match &table?.value {
            Value::Table(table) => table.get(key).map(|entry| entry.key_place.clone()),
            _ => None,
        }
    }

    /// The place of a path, or of as much of it as is there: that of [`Node::locate`], without saying it in words.
    pub(super) fn place(&self, steps: &[Step<'_>]) -> Place {
        let mut place = None;
        let mut node = self;
        for step in steps {
            let Some((child, child_place, _)) = node.child(*step) else {
                break;
            };
            (node, place) = (child, Some(child_place));
        }
        place.cloned().unwrap_or(Place {
            end: self.place.start,
            ..self.place
        })
    }

    /// The place of a path, or of as much of it as is there, and the path in words.
    pub(super) fn locate(&self, steps: &[Step<'_>]) -> Located {
        let mut shown = Vec::with_capacity(steps.len());
        let mut node = Some(self);
        for step in steps {
            let child = node.and_then(|node| node.child(*step));
            shown.push(child.as_ref().map_or(*step, |(_, _, step)| *step));
            node = child.map(|(child, _, _)| child);
        }
        Located {
            place: self.place(steps),
            path: show_steps(&shown),
        }
    }

    /// One step down: the value, what to mark for it, and the step as the file has it.
    fn child<'a>(&self, step: Step<'a>) -> Option<(&Node, &Place, Step<'a>)> {
        match (step, &self.value) {
            (Step::Key(key), Value::Table(table)) => table.get(key).map(|entry| {
                let place = if entry.node.is_scalar() {
                    &entry.node.place
                } else {
                    &entry.key_place
                };
                (&entry.node, place, step)
            }),
            (Step::Index(index), Value::Array(list)) => list
                .compiled(index)
                .map(|(index, item)| (item, &item.place, Step::Index(index))),
            _ => None,
        }
    }

    /// What messages call a value of this type.
    pub(super) fn kind(&self) -> &'static str {
        match self.value {
            Value::Table(_) => "a table",
            Value::Array(_) => "a list",
            Value::String(_) => "a string",
            Value::Integer(_) => "an integer",
            Value::Float(_) => "a number",
            Value::Boolean(_) => "a boolean",
            Value::Datetime => "a date",
            Value::Unreadable => "something unreadable",
        }
    }

    fn is_scalar(&self) -> bool {
        !matches!(self.value, Value::Table(_) | Value::Array(_))
    }
}

/// The tree of all files, and what is wrong with their syntax.
pub(super) struct Tree {
    pub(super) root: Node,
    pub(super) syntax: Vec<Syntax>,
    pub(super) found: Vec<Diagnostic>,
    pub(super) stored: Stored,
}

/// Reads the files, and the store's objects behind them. The first is the main file; further files may hold listeners, routes
/// and pools only.
pub(super) fn parse(sources: &[Source]) -> Tree {
    let mut tree = Tree {
        root: Node {
            place: Place::new(0, 0..0),
            value: Value::Table(BTreeMap::new()),
            refused: false,
        },
        syntax: Vec::new(),
        found: Vec::new(),
        stored: Stored::default(),
    };
    let mut table = BTreeMap::new();
    for (file, source) in sources.iter().enumerate() {
        if source.object.is_some() {
            continue;
        }
        let (parsed, errors) = DeTable::parse_recoverable(&source.text);
        tree.syntax.extend(syntax::explain(source, file, &errors));
        let mut builder = Builder {
            source,
            file,
            found: Vec::new(),
        };
        let entries = builder.table(parsed.get_ref());
        tree.found.append(&mut builder.found);
        merge(&mut table, entries, sources, file, &mut tree.found);
    }
    tree.stored = stored::graft(&mut table, sources, &mut tree.found);
    tree.root.value = Value::Table(table);
    tree
}

/// Turns the parser's values into ours, with `${NAME}` and `file:` values put in.
struct Builder<'a> {
    source: &'a Source,
    file: usize,
    found: Vec<Diagnostic>,
}

impl Builder<'_> {
    fn table(&mut self, table: &DeTable<'_>) -> BTreeMap<String, Entry> {
        let mut out = BTreeMap::new();
        for (key, value) in table {
            let node = self.node(value.span(), value.get_ref());
            let key_place = Place::new(self.file, key.span());
            out.insert(key.get_ref().to_string(), Entry { key_place, node });
        }
        out
    }

    fn node(&mut self, span: Range<usize>, value: &DeValue<'_>) -> Node {
        let value = match value {
            DeValue::String(text) => match self.source.values.get(&span.start) {
                None => Value::String(text.to_string()),
                Some(Some(text)) => Value::String(text.clone()),
                Some(None) => Value::Unreadable,
            },
            DeValue::Integer(number) => {
                match i64::from_str_radix(number.as_str(), number.radix()) {
                    Ok(number) => Value::Integer(number),
                    Err(_) => self.unreadable(span.clone(), "this integer is beyond 64 bits"),
                }
            }
            DeValue::Float(number) => match number.as_str().parse::<f64>() {
                Ok(number) if number.is_finite() => Value::Float(number),
                _ => self.unreadable(span.clone(), "a number must be finite"),
            },
            DeValue::Boolean(value) => Value::Boolean(*value),
            DeValue::Datetime(_) => Value::Datetime,
            DeValue::Array(items) => {
                let items = items
                    .iter()
                    .map(|item| self.node(item.span(), item.get_ref()))
                    .collect();
                Value::Array(List {
                    items,
                    has_refused: false,
                })
            }
            DeValue::Table(table) => Value::Table(self.table(table)),
        };
        Node {
            place: Place::new(self.file, span),
            value,
            refused: false,
        }
    }

    fn unreadable(&mut self, span: Range<usize>, message: &str) -> Value {
        let message = message.to_owned();
        self.found.push(Diagnostic::new(
            self.source,
            span,
            Severity::Error,
            "out_of_range",
            message,
        ));
        Value::Unreadable
    }
}

/// Keys that an included file may hold.
const INCLUDABLE: [&str; 4] = ["chain", "listener", "pool", "route"];

fn merge(
    into: &mut BTreeMap<String, Entry>,
    from: BTreeMap<String, Entry>,
    sources: &[Source],
    file: usize,
    found: &mut Vec<Diagnostic>,
) {
    for (key, entry) in from {
        // A slip of one of them is told as such, by the schema.
        let is_meant = || suggest::meant_key(&key, &INCLUDABLE).is_some();
        if file > 0 && !INCLUDABLE.contains(&key.as_str()) && !is_meant() {
            let message = format!(
                "an included file may hold `listener`, `route`, `pool` and `chain` only; `{key}` belongs in the main file"
            );
            let span = entry.key_place.span();
            found.push(Diagnostic::new(
                &sources[file],
                span,
                Severity::Error,
                "misplaced_key",
                message,
            ));
            continue;
        }
        let Some(there) = into.get_mut(&key) else {
            into.insert(key, entry);
            continue;
        };
        match (&mut there.node.value, entry.node.value) {
            (Value::Array(list), Value::Array(more)) => list.items.extend(more.items),
            (Value::Table(items), Value::Table(more)) => {
                for (name, entry) in more {
                    let Some(first) = items.get(&name) else {
                        items.insert(name, entry);
                        continue;
                    };
                    let message = format!(
                        "{key} `{name}` is there already, in {}",
                        shown(sources, &first.key_place)
                    );
                    let span = entry.key_place.span();
                    found.push(Diagnostic::new(
                        &sources[file],
                        span,
                        Severity::Error,
                        "duplicate",
                        message,
                    ));
                }
            }
            (_, _) => {
                let message = format!(
                    "`{key}` is of another type in {}",
                    shown(sources, &there.key_place)
                );
                let span = entry.key_place.span();
                found.push(Diagnostic::new(
                    &sources[file],
                    span,
                    Severity::Error,
                    "wrong_type",
                    message,
                ));
            }
        }
    }
}

/// `lb.toml:12`.
pub(super) fn shown(sources: &[Source], place: &Place) -> String {
    let source = &sources[place.file];
    if source.object.is_some() {
        return source.path.display().to_string();
    }
    let line = source.text.as_bytes()[..place.start]
        .iter()
        .filter(|byte| **byte == b'\n')
        .count()
        + 1;
    format!("{}:{line}", source.path.display())
}

/// The strings of a text with their spans and paths (keys only), in the order of the text.
pub(super) fn strings(text: &str) -> Vec<(Range<usize>, Vec<String>, String)> {
    fn collect(
        value: &DeValue<'_>,
        span: Range<usize>,
        path: &mut Vec<String>,
        out: &mut Vec<(Range<usize>, Vec<String>, String)>,
    ) {
        match value {
            DeValue::String(text) => out.push((span, path.clone(), text.to_string())),
            DeValue::Array(items) => items
                .iter()
                .for_each(|item| collect(item.get_ref(), item.span(), path, out)),
            DeValue::Table(table) => {
                for (key, value) in table {
                    path.push(key.get_ref().to_string());
                    collect(value.get_ref(), value.span(), path, out);
                    path.pop();
                }
            }
            _ => {}
        }
    }
    let (table, _) = DeTable::parse_recoverable(text);
    let mut out = Vec::new();
    let span = table.span();
    collect(
        &DeValue::Table(table.into_inner()),
        span,
        &mut Vec::new(),
        &mut out,
    );
    out.sort_by_key(|(span, _, _)| span.start);
    out
}

/// Where an admin token stands in the text itself, be it only a part of it.
pub(super) fn token_spans(text: &str) -> Vec<Range<usize>> {
    let is_variable =
        |value: &str| value.starts_with("${") && value.find('}') == Some(value.len() - 1);
    let inline = |value: &str| !value.starts_with("file:") && !is_variable(value);
    let is_token = |path: &[String]| path.len() == 2 && path[0] == "admin" && path[1] == "token";
    let spans = strings(text)
        .into_iter()
        .filter(|(_, path, value)| is_token(path) && inline(value));
    spans.map(|(span, _, _)| span).collect()
}

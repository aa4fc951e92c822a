//! File → schema → rules → [`Snapshot`], or everything that is wrong with it, at once.
//!
//! | module | what it does |
//! | --- | --- |
//! | `load` | reads the files, `${NAME}` and `file:` values, certificates and keys: the only I/O |
//! | `tree` | the files' values with their places |
//! | `schema` | the model: keys, types, ranges, defaults; its doc comments are the reference |
//! | `text` | strings that mean something: durations, sizes, addresses |
//! | `shape` | checks the tree against the schema |
//! | `rules` | what no schema says: references, duplicates, contradictions |
//! | `timing` | relations between time-outs, ours and those of the other side |
//! | `tls` | certificates, keys and roots, checked and made ready |
//! | `build` | makes the snapshot of what has passed |
//! | `listed` | backends that a file lists |
//! | `members` | host names become members, at first and whenever they may stand for others |
//! | `table` | files and the store's table together |
//! | `restart` | what a reload cannot change |
//!
//! [`compile`] does no I/O but asking `lookup` for host names, and changes nothing that is in force.

mod build;
mod diagnostic;
mod listed;
mod load;
mod members;
mod report;
mod restart;
mod rules;
mod schema;
mod shape;
mod suggest;
mod table;
mod text;
mod timing;
mod tls;
mod tree;

pub use diagnostic::{Diagnostic, Severity};
pub use listed::{instance, listed_in};
pub use load::{Watch, default_admin_socket, file_signature, load, load_with};
pub use members::{Listing, Lookup, Lost, Resolved, Unresolved, members, origins};
pub use restart::{Running, needs_restart};
pub use suggest::nearest;
pub use table::{InForce, Merged, compile_with, judge};
pub use timing::{Relation, Verdict};
pub use tls::TicketKeys;

use crate::snapshot::Snapshot;
use mizan_core::time::Instant;
use report::{Cx, Report};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What stands before an object's key where a file's path would be.
const STORED: &str = "store:";

/// A file as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Where it was read.
    pub path: PathBuf,
    /// Its text as it stands in the file, without secrets put in.
    pub text: String,
    /// Values of strings with `${NAME}` or `file:`, by the first byte of the string; `None` could not be read.
    values: BTreeMap<usize, Option<String>>,
    /// Contents of the files that its strings name (certificates, keys), by the first byte of the string; `None` could
    /// not be read.
    contents: BTreeMap<usize, Option<load::Content>>,
    /// The system's root certificates, with the main file, if some pool wants them.
    system_roots: Option<Arc<load::SystemRoots>>,
    /// When it was read, since 1970: certificates are judged by it. Zero if it was not.
    read_at: Duration,
    /// What went wrong while it was read.
    problems: Vec<Diagnostic>,
    /// The admin socket where none is set.
    admin_socket: Option<PathBuf>,
    /// What it is, if it is no file but an object of the store.
    object: Option<Stored>,
    /// The process was started with a store that the file does not name; of the main file.
    has_store: bool,
    /// Ticket keys of the store; of the main file.
    ticket_keys: TicketKeys,
}

/// An object of the store.
#[derive(Clone, Debug, PartialEq)]
struct Stored {
    object: mizan_routing::Object,
    held: Arc<mizan_routing::table::Held>,
}

impl Eq for Stored {}

impl Source {
    /// A file with that text. `${NAME}` and `file:` in it stay as they are; [`load`] puts them in.
    pub fn new(path: impl Into<PathBuf>, text: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            text: text.into(),
            values: BTreeMap::new(),
            contents: BTreeMap::new(),
            system_roots: None,
            read_at: Duration::ZERO,
            problems: Vec::new(),
            admin_socket: None,
            object: None,
            has_store: false,
            ticket_keys: TicketKeys::default(),
        }
    }

    /// The process has a store that the files do not name: what they name may come from it. For the main file.
    pub fn expect_store(&mut self) {
        self.has_store = true;
    }

    /// What the store has of ticket keys. For the main file.
    pub fn put_ticket_keys(&mut self, keys: TicketKeys) {
        self.ticket_keys = keys;
    }

    /// An object of the store's table.
    fn of_object(object: &mizan_routing::Object, held: &Arc<mizan_routing::table::Held>) -> Self {
        let text = String::from_utf8_lossy(&held.json);
        Self {
            object: Some(Stored {
                object: object.clone(),
                held: Arc::clone(held),
            }),
            ..Self::new(format!("{STORED}{object}"), text)
        }
    }

    /// Its text with `*` in place of an admin token that stands in it, byte for byte.
    pub fn text_without_secrets(&self) -> String {
        let mut text = self.text.clone();
        for span in tree::token_spans(&self.text) {
            text.replace_range(span.clone(), &"*".repeat(span.len()));
        }
        text
    }
}

/// Of the texts, of what `${NAME}` and `file:` put in, and of certificates and keys: tells two configurations apart.
pub fn digest(sources: &[Source]) -> u64 {
    let mut hash = load::Fnv::default();
    for source in sources {
        hash.bytes(source.text.as_bytes());
        if source.object.is_some() {
            // What an object is stands in its key.
            hash.bytes(source.path.as_os_str().as_encoded_bytes());
        }
        for value in source.values.values().flatten() {
            hash.bytes(&value.len().to_le_bytes());
            hash.bytes(value.as_bytes());
        }
        for content in source.contents.values().flatten() {
            content.digest_into(&mut hash);
        }
        if let Some(roots) = &source.system_roots {
            roots.digest_into(&mut hash);
        }
        source.ticket_keys.digest_into(&mut hash);
        hash.bytes(&[0xff]);
    }
    hash.0
}

/// Compiles the files (the first is the main one) into a snapshot with warnings.
///
/// Pools that `previous` has by the same name keep their live half; nothing in it is changed. `random`
/// seeds the pools that are new.
///
/// # Errors
/// All errors and warnings, in the order of the files.
pub fn compile(
    sources: &[Source],
    previous: Option<&Snapshot>,
    lookup: &dyn Lookup,
    now: Instant,
    random: u64,
) -> Result<(Snapshot, Vec<Diagnostic>), Vec<Diagnostic>> {
    let Read {
        tree,
        file,
        report,
        stored,
    } = read(sources);
    let mut cx = Cx {
        tree: &tree,
        report,
    };
    let Some(mut file) = file else {
        return Err(cx.report.finish());
    };
    rules::check(&mut cx, &file);
    timing::warn(&mut cx, &file);
    let tls = tls::compile(&mut cx, &file, previous);
    if cx.report.has_errors() {
        return Err(cx.report.finish());
    }
    // With a store they may come: until then they are pools with nobody in them.
    for name in rules::absent(&file) {
        file.pool.insert(name, schema::Pool::default());
    }
    let inputs = build::Inputs {
        previous,
        stored: &stored,
        tls: &tls,
        lookup,
        now,
        random,
    };
    let snapshot = build::snapshot(&mut cx, &file, &inputs);
    let found = cx.report.finish();
    match snapshot {
        Some(snapshot) => Ok((snapshot, found)),
        None => Err(found),
    }
}

/// The timing relations of the files, for `mizan check` to print; empty if they cannot be read.
pub fn relations(sources: &[Source]) -> Vec<Relation> {
    let file = read(sources).file;
    file.map_or(Vec::new(), |file| {
        timing::relations(&file)
            .into_iter()
            .map(|found| found.relation)
            .collect()
    })
}

/// The JSON Schema of the configuration file.
pub fn json_schema() -> serde_json::Value {
    schema::JSON_SCHEMA.clone()
}

/// What a string of this `format` in the schema is, in words; `None` for formats that are not ours.
pub fn format_meaning(format: &str) -> Option<&'static str> {
    text::format_named(format).map(|format| format.what)
}

/// Reads a duration as it is written in a file: `250ms`, `1.5s`, `1m30s`.
///
/// # Errors
/// What is wrong with it, and what may be meant.
pub fn duration(text: &str) -> Result<Duration, String> {
    <text::Time as text::Meaning>::read(text).map(|time| time.0)
}

/// Reads a store's address as it is written in a file: `embedded:/FOLDER`, `etcd://HOST:2379,…`.
///
/// # Errors
/// What is wrong with it, and what may be meant.
pub fn store_address(text: &str) -> Result<crate::snapshot::StoreAddress, String> {
    <crate::snapshot::StoreAddress as text::Meaning>::read(text)
}

/// What was read: the tree, the part of it that fits the schema, and what is wrong.
struct Read<'a> {
    tree: tree::Node,
    /// `None` if the syntax is so broken that what is missing may be there.
    file: Option<schema::File>,
    report: Report<'a>,
    /// What the store's objects say that no key of a file does.
    stored: tree::Stored,
}

fn read(sources: &[Source]) -> Read<'_> {
    let mut tree = tree::parse(sources);
    let mut found: Vec<Diagnostic> = sources
        .iter()
        .flat_map(|source| source.problems.iter().cloned())
        .collect();
    found.append(&mut tree.found);
    let mut report = Report::new(sources, found);
    let json = shape::check(&mut tree.root, &schema::JSON_SCHEMA, &mut report);
    let is_broken = tree.syntax.iter().any(|error| error.is_structural);
    // About things that are missing in a broken file, the shape is a guess.
    report.found.retain(|diagnostic| {
        let explains = |error: &tree::Syntax| {
            sources[error.file].path == diagnostic.file && error.explains(diagnostic)
        };
        let is_guess = is_broken && diagnostic.code == "missing_key";
        !is_guess && !tree.syntax.iter().any(explains)
    });
    report
        .found
        .extend(tree.syntax.into_iter().map(|error| error.diagnostic));
    let file = match serde_json::from_value::<schema::File>(json) {
        Ok(file) if !is_broken => Some(file),
        Ok(_) => None,
        Err(error) => {
            // Only a schema that says less than the types do leads here: a bug, but not one to die of.
            let place = tree.root.place.clone();
            let message = format!("this configuration cannot be read: {error}");
            report.push(
                &place,
                String::new(),
                Severity::Error,
                "internal",
                message,
                None,
            );
            None
        }
    };
    Read {
        tree: tree.root,
        file,
        report,
        stored: tree.stored,
    }
}

#[cfg(test)]
mod tests;

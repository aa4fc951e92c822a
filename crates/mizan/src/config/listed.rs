//! Lists of backends that do not stand in the configuration: those of a file, and what instances say of themselves.
//!
//! An entry has the keys of a pool's `backends`, and is checked against the same schema.

use super::build::configured;
use super::diagnostic::{Diagnostic, Severity};
use super::report::{Cx, Report};
use super::tree::{At, Entry, Node, Place, Value};
use super::{Source, rules, schema, shape, tree};
use crate::snapshot::Configured;
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The pool that a list is checked as the backends of. People never see it.
const POOL: &str = "listed";

/// The backends of the file at `path`: JSON, or TOML if its name ends so. Blocks.
///
/// # Errors
/// What is wrong with it, with line and column: all of it, in one text.
pub fn listed_in(path: &Path) -> Result<Vec<Configured>, String> {
    let text = super::load::read_text(path).map_err(|error: io::Error| error.to_string())?;
    listed(&Source::new(path, text)).map_err(|found| {
        let all: Vec<String> = found.iter().map(ToString::to_string).collect();
        all.join("; ")
    })
}

/// What one instance says of itself under a key `name`: an object with the keys of a backend. Those of a later version are
/// passed over.
///
/// # Errors
/// What is wrong with it.
pub fn instance(name: &str, json: &[u8]) -> Result<Configured, String> {
    let fields: Map<String, Json> = serde_json::from_slice(json)
        .map_err(|error| format!("{name}: this is no JSON object: {error}"))?;
    let backend = &schema::JSON_SCHEMA["$defs"]["Backend"]["properties"];
    let is_known = |key: &str| backend.get(key).is_some();
    let known: Map<String, Json> = fields
        .into_iter()
        .filter(|(key, value)| is_known(key) && !value.is_null())
        .collect();
    let source = Source::new(name, Json::from(vec![Json::from(known)]).to_string());
    let mut listed = listed(&source).map_err(|found| {
        // Its text is one line that nobody wrote.
        let first = found.into_iter().next();
        first.map_or_else(String::new, |found| format!("{name}: {}", found.message))
    })?;
    listed
        .pop()
        .ok_or_else(|| format!("{name}: it says nothing"))
}

/// The backends that `source` lists.
pub(super) fn listed(source: &Source) -> Result<Vec<Configured>, Vec<Diagnostic>> {
    let sources = std::slice::from_ref(source);
    let is_toml = source.path.extension() == Some(OsStr::new("toml"));
    let (list, found) = match is_toml {
        true => of_toml(source)?,
        false => {
            let (node, found) = tree::json::parse(source)?;
            (of_object(source, node)?, found)
        }
    };
    let mut root = as_pool(list);
    let mut report = Report::new(sources, found);
    let json = shape::check(&mut root, &schema::JSON_SCHEMA, &mut report);
    let file = serde_json::from_value::<schema::File>(json).unwrap_or_default();
    let mut cx = Cx {
        tree: &root,
        report,
    };
    let pool = file.pool.get(POOL).cloned().unwrap_or_default();
    let at = At::ROOT.key("pool");
    rules::backends(&mut cx, &pool, &[], &at.key(POOL));
    let mut errors = cx.report.finish();
    errors.retain(|it| it.severity == Severity::Error);
    if !errors.is_empty() {
        return Err(errors);
    }
    // Who may be where, and who is asked for names, is the pool's to say.
    let anywhere = Arc::from([]);
    let servers = Arc::from([]);
    let entries = pool.backends.iter();
    Ok(entries
        .filter_map(|entry| configured(entry, &anywhere, &servers))
        .collect())
}

fn of_toml(source: &Source) -> Result<(Node, Vec<Diagnostic>), Vec<Diagnostic>> {
    let mut tree = tree::parse(std::slice::from_ref(source));
    if !tree.syntax.is_empty() {
        return Err(tree.syntax.drain(..).map(|it| it.diagnostic).collect());
    }
    let found = std::mem::take(&mut tree.found);
    Ok((of_object(source, tree.root)?, found))
}

/// The list itself, or that of the only key `backends`.
fn of_object(source: &Source, node: Node) -> Result<Node, Vec<Diagnostic>> {
    let wrong = |place: &Place, message: String| {
        let (span, severity) = (place.span(), Severity::Error);
        Diagnostic::new(source, span, severity, "wrong_type", message)
    };
    let mut fields = match node.value {
        Value::Array(_) => return Ok(node),
        Value::Table(fields) => fields,
        _ => {
            let message = format!("a list of backends is meant, and this is {}", node.kind());
            return Err(vec![wrong(&node.place, message)]);
        }
    };
    let list = fields.remove("backends");
    let mut found: Vec<Diagnostic> = fields
        .iter()
        .map(|(key, entry)| {
            let message = format!(
                "unknown key `{}`: there is a list `backends`, and nothing else",
                key.escape_debug()
            );
            wrong(&entry.key_place, message)
        })
        .collect();
    match list {
        Some(entry) if found.is_empty() => Ok(entry.node),
        Some(_) => Err(found),
        None => {
            let message = "`backends` is missing: it is the list of them".to_owned();
            found.insert(0, wrong(&node.place, message));
            Err(found)
        }
    }
}

/// A configuration that has nothing but these backends.
fn as_pool(list: Node) -> Node {
    let place = || Place {
        file: 0,
        start: 0,
        end: 0,
    };
    let within = |key: &str, node: Node| Node {
        place: place(),
        value: Value::Table(BTreeMap::from([(
            key.to_owned(),
            Entry {
                key_place: place(),
                node,
            },
        )])),
        refused: false,
    };
    within("pool", within(POOL, within("backends", list)))
}

#[cfg(test)]
mod tests;

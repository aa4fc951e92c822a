//! Changes of a table: whether they may be made, and what is written.
//!
//! An edit is checked on what it would leave: a document that says nothing, or a name that leads nowhere and did not before, is
//! refused where it is written, by whoever writes it. All edits of a table follow one another: each swaps the head of the
//! history, so that what one was checked against cannot change beneath it (a pool deleted while a chain that names it is put).
//! What the author did not see is told by the revisions of the keys themselves: [`Change::seen`].

use crate::document::Document;
use crate::key::{KeyError, Object};
use crate::table::{Limit, Rejected, Table};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};

/// One key's change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Whose.
    pub object: Object,
    /// Its new document; `None`: it goes.
    pub document: Option<Vec<u8>>,
    /// The revision that the author saw it at; 0: it was not there. `None`: whatever it is.
    pub seen: Option<u64>,
}

/// Why a change may not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// A document says nothing that can be used, or leaves a name that leads nowhere: all that is wrong, a line each.
    #[error("{}", lines(.0))]
    Rejected(Vec<Rejected>),
    /// The table would be too large.
    #[error(transparent)]
    Limit(#[from] Limit),
    /// One key is changed twice.
    #[error("`{0}` is changed twice")]
    Twice(Object),
    /// It would take away most of the table.
    #[error(
        "{gone} of {all} objects would go: if that is meant, say so (`--force`), and nodes take it; else they would hold it back"
    )]
    Shrinks {
        /// How many go.
        gone: usize,
        /// How many there are.
        all: usize,
    },
}

fn lines(rejected: &[Rejected]) -> String {
    let lines: Vec<_> = rejected.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

/// What history keeps of an edit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The version of this record.
    pub schema: u64,
    /// Names the edit: who does not hear whether it was made finds it by this.
    pub edit: String,
    /// Who: as whom they were known, not as whom they named themselves.
    pub author: String,
    /// Why.
    #[serde(default)]
    pub why: String,
    /// When, in ms since 1970.
    pub at_ms: u64,
    /// What, in the order of the keys.
    pub changes: Vec<Changed>,
}

/// One key in a record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Changed {
    /// Whose.
    pub key: String,
    /// What was there; `None`: nothing.
    pub before: Option<Value>,
    /// What is there since; `None`: nothing.
    pub after: Option<Value>,
}

/// The table that `changes` would leave, if they may be made to `table`.
///
/// # Errors
/// Why they may not. A fault that was there before, and that they do not touch, is none of theirs.
pub fn check(table: &Table, changes: &[Change], force: bool) -> Result<Table, EditError> {
    let mut wanted: BTreeMap<&Object, &Change> = BTreeMap::new();
    for change in changes {
        if wanted.insert(&change.object, change).is_some() {
            return Err(EditError::Twice(change.object.clone()));
        }
    }
    let documents = changes
        .iter()
        .map(|change| (&change.object, change.document.as_deref()));
    let after = table.with(table.revision() + 1, documents)?;
    let known: HashSet<_> = table.rejected().iter().map(Rejected::fault).collect();
    let touched: HashSet<_> = wanted.keys().map(ToString::to_string).collect();
    let is_new =
        |fault: &&Rejected| touched.contains(&fault.key) || !known.contains(&fault.fault());
    let faults: Vec<_> = after.rejected().iter().filter(is_new).cloned().collect();
    if !faults.is_empty() {
        return Err(EditError::Rejected(faults));
    }
    if !force && after.has_shrunk_from(table) {
        let kept = table
            .objects()
            .filter(|(object, _)| after.held(object).is_some());
        return Err(EditError::Shrinks {
            gone: table.len() - kept.count(),
            all: table.len(),
        });
    }
    Ok(after)
}

/// What history keeps of `changes` to `table`.
pub fn record(
    table: &Table,
    changes: &[Change],
    (edit, author, why, at_ms): (String, String, String, u64),
) -> Record {
    let value = |json: &[u8]| serde_json::from_slice(json).ok();
    let mut changes: Vec<_> = changes
        .iter()
        .map(|change| Changed {
            key: change.object.to_string(),
            before: table
                .held(&change.object)
                .and_then(|held| value(&held.json)),
            after: change.document.as_deref().and_then(value),
        })
        .collect();
    changes.sort_by(|a, b| a.key.cmp(&b.key));
    Record {
        schema: crate::SCHEMA,
        edit,
        author,
        why,
        at_ms,
        changes,
    }
}

/// The changes that take `record` back, for a table that stands as the record left it. Where it does not any more, the keys'
/// revisions will tell: `seen` has those that stand in the store, and who rolls back is shown the difference.
///
/// # Errors
/// A key of the record that names no object here: half of an edit is not taken back.
pub fn undo(table: &Table, record: &Record) -> Result<Vec<Change>, KeyError> {
    record
        .changes
        .iter()
        .map(|changed| {
            let object: Object = changed.key.parse()?;
            let seen = table.stored_at(&object);
            Ok(Change {
                object,
                document: changed
                    .before
                    .as_ref()
                    .map(|value| value.to_string().into_bytes()),
                seen: Some(seen),
            })
        })
        .collect()
}

/// Keys of `record` that do not stand as it left them, also those of which the store has a later form that is no good.
pub fn since(table: &Table, record: &Record) -> Vec<String> {
    let differs = |changed: &&Changed| {
        let Ok(object) = changed.key.parse::<Object>() else {
            return true;
        };
        if table.is_bad(&object) {
            return true;
        }
        let now = table.held(&object);
        let now = now.and_then(|held| serde_json::from_slice::<Value>(&held.json).ok());
        now != changed.after
    };
    let changed = record.changes.iter().filter(differs);
    changed.map(|changed| changed.key.clone()).collect()
}

/// One field of a document in three versions.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldDiff {
    /// Its path, as in `health`, `interval`; empty: the whole document.
    pub path: Vec<String>,
    /// What both began with.
    pub base: Option<Value>,
    /// What is there now, by somebody else.
    pub theirs: Option<Value>,
    /// What was to be written.
    pub ours: Option<Value>,
}

impl FieldDiff {
    /// Whether both have changed it, and not to the same.
    pub fn is_conflict(&self) -> bool {
        self.theirs != self.base && self.ours != self.base && self.theirs != self.ours
    }
}

/// Where three versions of a document differ, field by field.
pub fn three_way(
    base: Option<&Value>,
    theirs: Option<&Value>,
    ours: Option<&Value>,
) -> Vec<FieldDiff> {
    let mut found = Vec::new();
    compare(&[], [base, theirs, ours], &mut found);
    found
}

fn compare(path: &[String], versions: [Option<&Value>; 3], found: &mut Vec<FieldDiff>) {
    let [base, theirs, ours] = versions;
    if theirs == base && ours == base {
        return;
    }
    let is_table = |version: Option<&Value>| version.is_some_and(Value::is_object);
    // What one side has deleted is deleted whole: its fields are not told apart from those of the other.
    if is_table(theirs) && is_table(ours) && base.is_none_or(Value::is_object) {
        let names: std::collections::BTreeSet<&String> = versions
            .iter()
            .flatten()
            .filter_map(|version| version.as_object())
            .flat_map(serde_json::Map::keys)
            .collect();
        for name in names {
            let field = versions.map(|version| version.and_then(|version| version.get(name)));
            compare(&[path, std::slice::from_ref(name)].concat(), field, found);
        }
        return;
    }
    found.push(FieldDiff {
        path: path.to_vec(),
        base: base.cloned(),
        theirs: theirs.cloned(),
        ours: ours.cloned(),
    });
}

/// `ours` and `theirs` in one document, if they have not changed the same field to different things.
pub fn merge(base: &Value, theirs: &Value, ours: &Value) -> Option<Value> {
    let diffs = three_way(Some(base), Some(theirs), Some(ours));
    if diffs.iter().any(FieldDiff::is_conflict) {
        return None;
    }
    let mut merged = theirs.clone();
    for diff in diffs.iter().filter(|diff| diff.ours != diff.base) {
        if diff.path.is_empty() {
            return diff.ours.clone();
        }
        set(&mut merged, &diff.path, diff.ours.clone())?;
    }
    Some(merged)
}

fn set(document: &mut Value, path: &[String], value: Option<Value>) -> Option<()> {
    let (field, rest) = path.split_first()?;
    let fields = document.as_object_mut()?;
    if !rest.is_empty() {
        let empty = || Value::Object(serde_json::Map::new());
        return set(fields.entry(field).or_insert_with(empty), rest, value);
    }
    match value {
        Some(value) => fields.insert(field.clone(), value),
        None => fields.remove(field),
    };
    Some(())
}

impl Change {
    /// Whether its document can be read at all; what it says.
    ///
    /// # Errors
    /// See [`Document::parse`].
    pub fn parse(&self) -> Result<Option<Document>, crate::document::DocumentError> {
        let parse = |json: &Vec<u8>| Document::parse(&self.object, json);
        self.document.as_ref().map(parse).transpose()
    }
}

#[cfg(test)]
mod tests;

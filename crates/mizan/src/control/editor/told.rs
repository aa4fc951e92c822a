//! What is told of a table and its edits: the API's types, which the command line reads too.

use crate::telemetry::json::time_string;
use mizan_routing::edit::{FieldDiff, Record, merge, three_way};
use mizan_store::{Entry, Revision};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;

/// A table as it stands in the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TableView {
    /// As of when.
    pub revision: u64,
    /// Its objects, by their keys.
    pub objects: Vec<ObjectView>,
}

/// An object as it stands in the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ObjectView {
    /// Its key, such as `pools/kr/kpop`.
    pub key: String,
    /// The revision that it was put at: what an edit of it is compared with.
    pub revision: u64,
    /// What it says; null if it is no JSON.
    pub document: Value,
}

impl TableView {
    pub(super) fn new(revision: Revision, entries: &[Entry], prefix: usize) -> Self {
        let object = |entry: &Entry| ObjectView {
            key: String::from_utf8_lossy(entry.key.get(prefix..).unwrap_or_default()).into_owned(),
            revision: entry.modified,
            document: serde_json::from_slice(&entry.value).unwrap_or(Value::Null),
        };
        Self {
            revision,
            objects: entries.iter().map(object).collect(),
        }
    }
}

/// An edit that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Edited {
    /// Its name.
    pub edit: String,
    /// The revision that it made.
    pub revision: u64,
    /// What it has put something over, or taken away, without its author's having said which revision was meant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaced: Vec<Replaced>,
    /// Why the store's table was not in force on the instance that was asked; empty: it was, or no instance was.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub held_back: String,
}

/// What stood under a key before an edit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Replaced {
    /// Whose.
    pub key: String,
    /// The revision that it was put at.
    pub revision: u64,
    /// The edit that had put it, without what that changed; null: history has it no more, or somebody wrote to the store past
    /// all editors.
    pub by: Option<EditView>,
}

impl std::fmt::Display for Replaced {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "revision {} of {}", self.revision, self.key)?;
        let Some(by) = &self.by else {
            return f.write_str("; who put it is not known");
        };
        let at = time_string(Duration::from_millis(by.at_ms));
        let why = match &*by.why {
            "" => "no reason given",
            why => why,
        };
        write!(f, " by {}, {at} (edit {}: {why})", by.author, by.edit)
    }
}

/// An edit as history has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EditView {
    /// Its name.
    pub edit: String,
    /// The revision that it made.
    pub revision: u64,
    /// Who: as whom they were known.
    pub author: String,
    /// Why.
    pub why: String,
    /// When, in ms since 1970.
    pub at_ms: u64,
    /// What, by the keys.
    pub changes: Vec<ChangedView>,
}

/// One key of an edit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChangedView {
    /// Whose.
    pub key: String,
    /// What was there; null: nothing.
    pub before: Option<Value>,
    /// What is there since; null: nothing.
    pub after: Option<Value>,
}

impl EditView {
    pub(super) fn new(revision: Revision, record: &Record) -> Self {
        let changed = |it: &mizan_routing::edit::Changed| ChangedView {
            key: it.key.clone(),
            before: it.before.clone(),
            after: it.after.clone(),
        };
        Self {
            edit: record.edit.clone(),
            revision,
            author: record.author.clone(),
            why: record.why.clone(),
            at_ms: record.at_ms,
            changes: record.changes.iter().map(changed).collect(),
        }
    }
}

/// A key that has changed since the author of an edit looked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Conflicting {
    /// Which.
    pub key: String,
    /// The revision that the author saw; 0: it was not there.
    pub seen: u64,
    /// The one that stands there; 0: nothing does.
    pub found: u64,
    /// What stands there; null: nothing.
    pub theirs: Option<Value>,
    /// What the edit would have left; null: nothing.
    pub ours: Option<Value>,
    /// Where what the author saw, what stands there and what the author wants differ, field by field.
    pub fields: Vec<FieldView>,
    /// Both in one, where they have not changed the same field to different things.
    pub merged: Option<Value>,
    /// The edit that changed it, if history still has it.
    pub by: Option<EditView>,
}

/// One field in three versions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FieldView {
    /// Its path, as in `health.interval`; empty: all of it.
    pub field: String,
    /// What the author saw.
    pub base: Option<Value>,
    /// What stands there.
    pub theirs: Option<Value>,
    /// What the author wants.
    pub ours: Option<Value>,
    /// Both have changed it, and not to the same.
    pub is_conflict: bool,
}

impl Conflicting {
    pub(super) fn new(
        (key, seen, found): (String, Revision, Revision),
        (base, theirs, ours): (Option<Value>, Option<Value>, Option<Value>),
        by: Option<EditView>,
    ) -> Self {
        let diffs = three_way(base.as_ref(), theirs.as_ref(), ours.as_ref());
        let field = |diff: FieldDiff| FieldView {
            field: diff.path.join("."),
            is_conflict: diff.is_conflict(),
            base: diff.base,
            theirs: diff.theirs,
            ours: diff.ours,
        };
        let merged = match (&base, &theirs, &ours) {
            (Some(base), Some(theirs), Some(ours)) => merge(base, theirs, ours),
            _ => None,
        };
        Self {
            key,
            seen,
            found,
            theirs,
            ours,
            fields: diffs.into_iter().map(field).collect(),
            merged,
            by,
        }
    }
}

/// An object that could not come into force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RejectedView {
    /// Its key.
    pub key: String,
    /// Why.
    pub reason: String,
    /// What was probably meant; empty if nobody knows.
    pub hint: String,
    /// What was there before stays in force.
    pub is_kept: bool,
}

impl From<mizan_routing::Rejected> for RejectedView {
    fn from(rejected: mizan_routing::Rejected) -> Self {
        Self {
            key: rejected.key,
            reason: rejected.reason,
            hint: rejected.hint.unwrap_or_default(),
            is_kept: rejected.is_kept,
        }
    }
}

impl std::fmt::Display for RejectedView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.key, self.reason)?;
        if !self.hint.is_empty() {
            write!(f, "; {}", self.hint)?;
        }
        match self.is_kept {
            true => f.write_str(" (what was there before stays in force)"),
            false => Ok(()),
        }
    }
}

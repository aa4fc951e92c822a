//! Changes the table: compared with what their author saw, checked, written down, taken back.
//!
//! All edits of a table follow one another: each swaps the head, which names the last. So what an edit was checked against
//! cannot change beneath it. What its author did not see is told by the revision of each key ([`Change::seen`]), with who
//! changed it, when and why.

mod boosts;
#[cfg(test)]
mod tests;
mod told;

pub use boosts::{BOOST_MAX, BOOST_MIN, BoostView, Share};
pub use told::{
    ChangedView, Conflicting, EditView, Edited, FieldView, ObjectView, RejectedView, TableView,
};

use super::Layout;
use crate::clock;
use bytes::Bytes;
use mizan_routing::edit::{self, Change, EditError, Record};
use mizan_routing::table::{Limit, Rejected, Stored};
use mizan_routing::{Object, Table};
use mizan_store::{
    Compare, Entry, Error, LeaseId, Operation, Query, Range, Revision, Store, Transaction,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most keys that one edit changes: it is one transaction, whole or not at all.
pub const CHANGES_MAX: usize = 100;

/// Most edits that are written down; the oldest are forgotten.
pub const HISTORY_MAX: u64 = 1_000;

/// How often an edit is checked again because another one came first.
const TURNS_MAX: usize = 100;

/// What the rules of the configuration say of a table: objects that could not come into force. A region's name is given.
pub type Judge = fn(&Table, &str) -> Vec<Rejected>;

/// Changes a table.
#[derive(Clone, Debug)]
pub struct Editor {
    store: Arc<dyn Store>,
    layout: Layout,
    judge: Judge,
}

/// An edit as its author wants it.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// What, at least one.
    pub changes: Vec<Change>,
    /// As whom the author is known, not as whom they name themselves.
    pub author: String,
    /// Why.
    pub why: String,
    /// That most of the table goes is meant.
    pub force: bool,
}

/// Why an edit was not made.
#[derive(Debug, thiserror::Error)]
pub enum EditFailed {
    /// It may not be made.
    #[error(transparent)]
    Refused(#[from] EditError),
    /// Something has changed since its author looked.
    #[error("{} changed since you looked: nothing is overwritten", keys(.0))]
    Conflict(Vec<Conflicting>),
    /// It changes too much at once.
    #[error("{0} changes are more than the {CHANGES_MAX} that one edit may make")]
    Many(usize),
    /// There is no such edit, or nothing to change.
    #[error("{0}")]
    Nothing(String),
    /// The store's.
    #[error(transparent)]
    Store(#[from] Error),
}

impl From<Limit> for EditFailed {
    fn from(limit: Limit) -> Self {
        Self::Refused(limit.into())
    }
}

fn keys(conflicts: &[Conflicting]) -> String {
    let keys: Vec<_> = conflicts.iter().map(|it| format!("`{}`", it.key)).collect();
    keys.join(", ")
}

/// What the head says.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Head {
    /// The number of the last edit.
    number: u64,
}

/// The table as it stands, and what an edit is compared with.
struct Now {
    table: Table,
    /// Each key's own revision, also of what the table rejects.
    modified: BTreeMap<Object, Revision>,
    head: Head,
    head_modified: Revision,
}

impl Editor {
    /// Edits the table of `layout` in `store`. `judge` says what the configuration's rules think of a table.
    pub fn new(store: Arc<dyn Store>, layout: Layout, judge: Judge) -> Self {
        Self {
            store,
            layout,
            judge,
        }
    }

    /// The store that it edits.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Where the table stands in it.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The table as it stands, at one revision; as it stood `at` one that is still held.
    ///
    /// # Errors
    /// The store's; [`EditFailed::Refused`] if it passes a limit.
    pub async fn table(&self, at: Option<Revision>) -> Result<TableView, EditFailed> {
        let query = Query {
            at,
            ..Query::now(Range::Prefix(self.layout.table()))
        };
        let listing = self.store.list(query).await?;
        let revision = at.unwrap_or(listing.revision);
        Ok(TableView::new(
            revision,
            &listing.entries,
            self.layout.table().len(),
        ))
    }

    /// The table as it stands, as routes are resolved by.
    ///
    /// # Errors
    /// See [`Editor::table`].
    pub async fn routing(&self) -> Result<Table, EditFailed> {
        Ok(self.now().await?.table)
    }

    async fn now(&self) -> Result<Now, EditFailed> {
        let prefix = self.layout.table();
        let all = Query::now(Range::Prefix(prefix.clone()));
        let listing = self.store.list(all).await?;
        let table = table_of(listing.revision, &listing.entries, prefix.len())?;
        let modified = listing.entries.iter().filter_map(|entry| {
            let key = std::str::from_utf8(entry.key.get(prefix.len()..)?).ok()?;
            Some((key.parse().ok()?, entry.modified))
        });
        let head = self
            .entry(self.layout.head(), Some(listing.revision))
            .await?;
        let read = |entry: &Entry| serde_json::from_slice(&entry.value).unwrap_or_default();
        Ok(Now {
            table,
            modified: modified.collect(),
            head: head.as_ref().map(read).unwrap_or_default(),
            head_modified: head.map_or(0, |head| head.modified),
        })
    }

    async fn entry(&self, key: Bytes, at: Option<Revision>) -> Result<Option<Entry>, Error> {
        // Nothing was there before the first revision, and nobody holds it.
        let query = Query {
            at: at.filter(|at| *at > 0),
            ..Query::now(Range::Key(key))
        };
        Ok(self.store.list(query).await?.entries.pop())
    }

    /// Makes an edit, or says why not. If it fails with the store's [`Error::Unknown`], nobody knows whether it was made, and
    /// it was looked for in vain.
    ///
    /// # Errors
    /// See [`EditFailed`]; nothing was changed but with [`Error::Unknown`].
    pub async fn edit(&self, wanted: &Wanted) -> Result<Edited, EditFailed> {
        self.edit_with(wanted, None).await
    }

    async fn edit_with(
        &self,
        wanted: &Wanted,
        lease: Option<LeaseId>,
    ) -> Result<Edited, EditFailed> {
        if wanted.changes.is_empty() {
            return Err(EditFailed::Nothing("there is nothing to change".to_owned()));
        }
        if wanted.changes.len() > CHANGES_MAX {
            return Err(EditFailed::Many(wanted.changes.len()));
        }
        let id = format!("{:08x}", clock::random() as u32);
        // The number under which it may have been made, where the store did not say.
        let mut doubt: Option<(u64, Error)> = None;
        for _ in 0..TURNS_MAX {
            let now = self.now().await?;
            if let Some((number, _)) = &doubt
                && let Some((edited, _)) = self.made(*number, &id).await?
            {
                return Ok(edited);
            }
            self.compare(&wanted.changes, &now).await?;
            self.check(wanted, &now.table)?;
            let number = now.head.number + 1;
            let at = clock::wall().as_millis() as u64;
            let by = (id.clone(), wanted.author.clone(), wanted.why.clone(), at);
            let record = edit::record(&now.table, &wanted.changes, by);
            let transaction = self.transaction(wanted, &now, (number, &record), lease)?;
            match self.store.commit(transaction).await {
                Ok(committed) => {
                    return Ok(Edited {
                        edit: id,
                        revision: committed.revision,
                    });
                }
                Err(Error::Conflict(_)) => {}
                Err(error @ Error::Unknown(_)) => doubt = Some((number, error)),
                Err(error) => return Err(error.into()),
            }
        }
        let busy = || Error::Unavailable("too many edits at once: try it again".to_owned());
        Err(doubt.map_or_else(busy, |(_, error)| error).into())
    }

    /// The edit of that number, if it is the one called `id`.
    async fn made(&self, number: u64, id: &str) -> Result<Option<(Edited, Record)>, Error> {
        let Some(entry) = self.entry(self.layout.edit(number), None).await? else {
            return Ok(None);
        };
        let record: Option<Record> = serde_json::from_slice(&entry.value).ok();
        let record = record.filter(|record| record.edit == id);
        Ok(record.map(|record| {
            let edited = Edited {
                edit: id.to_owned(),
                revision: entry.modified,
            };
            (edited, record)
        }))
    }

    /// Fails if a key has changed since its author looked.
    async fn compare(&self, changes: &[Change], now: &Now) -> Result<(), EditFailed> {
        let mut conflicts = Vec::new();
        for change in changes {
            let Some(seen) = change.seen else { continue };
            let found = now.modified.get(&change.object).copied().unwrap_or(0);
            if found != seen {
                conflicts.push((change, seen, found));
            }
        }
        if conflicts.is_empty() {
            return Ok(());
        }
        let history = self.records().await?;
        let mut told = Vec::with_capacity(conflicts.len());
        for (change, seen, found) in conflicts {
            let key = change.object.to_string();
            let base = self.value_at(&key, seen).await;
            let theirs = match found {
                0 => None,
                _ => self.value_at(&key, found).await,
            };
            let by = history
                .iter()
                .rev()
                .find(|(_, record)| record.changes.iter().any(|it| it.key == key))
                .map(|(modified, record)| EditView::new(*modified, record));
            let ours = change.document.as_deref();
            let ours = ours.and_then(|json| serde_json::from_slice(json).ok());
            told.push(Conflicting::new(
                (key, seen, found),
                (base, theirs, ours),
                by,
            ));
        }
        Err(EditFailed::Conflict(told))
    }

    /// What a key said at a revision, if that is still held.
    async fn value_at(&self, key: &str, revision: Revision) -> Option<serde_json::Value> {
        let key = [&self.layout.table()[..], key.as_bytes()].concat();
        let entry = self
            .entry(key.into(), Some(revision).filter(|it| *it > 0))
            .await;
        let entry = entry.ok().flatten()?;
        serde_json::from_slice(&entry.value).ok()
    }

    /// Fails if what the edit leaves could not come into force.
    fn check(&self, wanted: &Wanted, before: &Table) -> Result<(), EditFailed> {
        let after = edit::check(before, &wanted.changes, wanted.force)?;
        let touched: BTreeSet<String> = wanted
            .changes
            .iter()
            .map(|change| change.object.to_string())
            .collect();
        let mut faults: Vec<Rejected> = Vec::new();
        for region in regions(&after, &wanted.changes) {
            let found = (self.judge)(&after, &region).into_iter();
            faults.extend(found.filter(|it| touched.contains(&it.key)));
        }
        faults.sort_by(|a, b| a.key.cmp(&b.key));
        faults.dedup();
        match faults.is_empty() {
            true => Ok(()),
            false => Err(EditError::Rejected(faults).into()),
        }
    }

    fn transaction(
        &self,
        wanted: &Wanted,
        now: &Now,
        (number, record): (u64, &Record),
        lease: Option<LeaseId>,
    ) -> Result<Transaction, EditFailed> {
        let json = |value: Result<Vec<u8>, serde_json::Error>| {
            value.map_err(|error| Error::Invalid(error.to_string()))
        };
        let prefix = self.layout.table();
        let key =
            |object: &Object| Bytes::from([&prefix[..], object.to_string().as_bytes()].concat());
        let mut compares = vec![Compare::modified(self.layout.head(), now.head_modified)];
        let mut operations = vec![
            Operation::put(
                self.layout.head(),
                json(serde_json::to_vec(&Head { number }))?,
            ),
            Operation::put(self.layout.edit(number), json(serde_json::to_vec(record))?),
        ];
        if let Some(oldest) = number.checked_sub(HISTORY_MAX).filter(|it| *it > 0) {
            operations.push(Operation::delete(self.layout.edit(oldest)));
        }
        for change in &wanted.changes {
            let key = key(&change.object);
            // Whoever writes to the store by other means swaps no head.
            let found = now.modified.get(&change.object).copied().unwrap_or(0);
            compares.push(Compare::modified(key.clone(), found));
            operations.push(match &change.document {
                Some(json) => Operation::Put {
                    key,
                    value: Bytes::from(json.clone()),
                    lease,
                },
                None => Operation::delete(key),
            });
        }
        let names_meta = wanted.changes.iter().any(|it| it.object == Object::Meta);
        if wanted.force && !names_meta {
            let meta = br#"{"schema":1,"allow_shrink":true}"#;
            operations.push(Operation::put(key(&Object::Meta), &meta[..]));
        }
        Ok(Transaction {
            compares,
            operations,
        })
    }

    /// The records that are held, each with the revision that it was made at, oldest first.
    async fn records(&self) -> Result<Vec<(Revision, Record)>, Error> {
        let all = Query::now(Range::Prefix(self.layout.history()));
        let listing = self.store.list(all).await?;
        let read = |entry: &Entry| {
            let record = serde_json::from_slice(&entry.value).ok()?;
            Some((entry.modified, record))
        };
        Ok(listing.entries.iter().filter_map(read).collect())
    }

    /// The last `count` edits, newest first; of `key` and what stands below it, if one is given.
    ///
    /// # Errors
    /// The store's.
    pub async fn history(
        &self,
        key: Option<&str>,
        count: usize,
    ) -> Result<Vec<EditView>, EditFailed> {
        let is_meant = |record: &Record| match key {
            None => true,
            Some(key) => record.changes.iter().any(|it| it.key.starts_with(key)),
        };
        let records = self.records().await?;
        let meant = records.iter().rev().filter(|(_, record)| is_meant(record));
        Ok(meant
            .take(count)
            .map(|(revision, record)| EditView::new(*revision, record))
            .collect())
    }

    /// Takes an edit back, by its name or the revision that it was made at: a new edit. What was changed since is not touched
    /// unless `force`d.
    ///
    /// # Errors
    /// See [`Editor::edit`]; [`EditFailed::Conflict`] names what was changed since.
    pub async fn rollback(
        &self,
        which: &str,
        (author, why): (String, String),
        force: bool,
    ) -> Result<Edited, EditFailed> {
        let records = self.records().await?;
        let is_meant = |(revision, record): &&(Revision, Record)| {
            record.edit == which || which.parse() == Ok(*revision)
        };
        let Some((revision, record)) = records.iter().find(is_meant) else {
            return Err(EditFailed::Nothing(format!(
                "there is no edit `{which}` among the last {}: `mizan config history` lists them",
                records.len()
            )));
        };
        let now = self.now().await?;
        let mut changes = edit::undo(&now.table, record)
            .map_err(|error| EditFailed::Nothing(error.to_string()))?;
        let since: BTreeSet<String> = edit::since(&now.table, record).into_iter().collect();
        for change in &mut changes {
            // It was last touched by that edit, or somebody has to be told who did since.
            let is_as_left = !since.contains(&change.object.to_string());
            change.seen = match (force, is_as_left) {
                (true, _) => None,
                (false, true) => now.modified.get(&change.object).copied().or(Some(0)),
                (false, false) => Some(*revision),
            };
        }
        let why = match why.is_empty() {
            true => format!("takes back {}: {}", record.edit, record.why),
            false => why,
        };
        self.edit(&Wanted {
            changes,
            author,
            why,
            force,
        })
        .await
    }
}

fn table_of(revision: Revision, entries: &[Entry], prefix: usize) -> Result<Table, Limit> {
    let stored = entries.iter().map(|entry| Stored {
        key: entry.key.get(prefix..).unwrap_or_default(),
        value: &entry.value,
        modified: entry.modified,
    });
    Table::build(revision, stored, None)
}

/// The regions that an edit touches; a route is of all.
fn regions(table: &Table, changes: &[Change]) -> BTreeSet<String> {
    let of = |object: &Object| match object {
        Object::Pool { region, .. }
        | Object::Backend { region, .. }
        | Object::Chain { region, .. }
        | Object::Boost { region, .. } => Some(region.to_string()),
        Object::Route { .. } | Object::Settings { .. } | Object::Meta => None,
    };
    let mut found: BTreeSet<String> = changes.iter().filter_map(|it| of(&it.object)).collect();
    if changes
        .iter()
        .any(|it| matches!(it.object, Object::Route { .. }))
    {
        found.extend(table.objects().filter_map(|(object, _)| of(object)));
        found.extend(found.is_empty().then(|| "default".to_owned()));
    }
    found
}

//! Changes the table: compared with what their author saw, checked, written down, taken back.
//!
//! All edits of a table follow one another: each swaps the head, which names the last. So what an edit was checked against
//! cannot change beneath it. What its author did not see is told by the revision of each key ([`Change::seen`]), with who
//! changed it, when and why.

mod boosts;
mod lost;
mod past;
#[cfg(test)]
mod tests;
mod told;

pub use boosts::{BOOST_MAX, BOOST_MIN, BoostView, Share};
pub use past::is_below;
pub use told::{
    ChangedView, Conflicting, EditView, Edited, FieldView, ObjectView, RejectedView, Replaced,
    TableView,
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
use std::sync::{Arc, Mutex, PoisonError};

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
    /// The table that was looked at last: what stands as it did is not read again.
    known: Arc<Mutex<Arc<Table>>>,
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
    /// That most of the table goes is meant, and that routes lose what they name.
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
    /// It is nothing that could be done.
    #[error("{0}")]
    Invalid(String),
    /// There is no such edit, or boost.
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
    table: Arc<Table>,
    /// What stands under each key, also what the table rejects.
    entries: BTreeMap<Object, Entry>,
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
            known: Arc::default(),
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
    pub async fn routing(&self) -> Result<Arc<Table>, EditFailed> {
        Ok(self.now().await?.table)
    }

    async fn now(&self) -> Result<Now, EditFailed> {
        let prefix = self.layout.table();
        let all = Query::now(Range::Prefix(prefix.clone()));
        let listing = self.store.list(all).await?;
        let known = Arc::clone(&self.known.lock().unwrap_or_else(PoisonError::into_inner));
        let table = table_of(listing.revision, &listing.entries, prefix.len(), &known)?;
        let table = Arc::new(table);
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&table);
        let entries = listing.entries.into_iter().filter_map(|entry| {
            let key = std::str::from_utf8(entry.key.get(prefix.len()..)?).ok()?;
            Some((key.parse().ok()?, entry))
        });
        let head = self
            .entry(self.layout.head(), Some(listing.revision))
            .await?;
        let read = |entry: &Entry| serde_json::from_slice(&entry.value).unwrap_or_default();
        Ok(Now {
            table,
            entries: entries.collect(),
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

    /// Makes an edit, or says why not.
    ///
    /// # Errors
    /// See [`EditFailed`]. Nothing was changed then, but with the store's [`Error::Unknown`]: then nobody knows whether it was
    /// made, for it was looked for in vain.
    pub async fn edit(&self, wanted: &Wanted) -> Result<Edited, EditFailed> {
        if wanted.changes.is_empty() {
            let message = "there is nothing to change".to_owned();
            return Err(EditFailed::Invalid(message));
        }
        if wanted.changes.len() > CHANGES_MAX {
            return Err(EditFailed::Many(wanted.changes.len()));
        }
        let lease = self.lease(&wanted.changes).await?;
        let made = self.make(wanted, lease).await;
        if let (Err(_), Some(lease)) = (&made, lease) {
            // Nobody lives by it. A store that is away forgets it by itself.
            let _ = self.store.revoke(lease).await;
        }
        made
    }

    /// Checks and commits, again if another edit came first.
    async fn make(&self, wanted: &Wanted, lease: Option<LeaseId>) -> Result<Edited, EditFailed> {
        let id = format!("{:08x}", clock::random() as u32);
        // The number under which it may have been made, where the store did not say; or it may still be.
        let mut doubt: Option<(u64, Error)> = None;
        for _ in 0..TURNS_MAX {
            let now = match self.now().await {
                Ok(now) => now,
                Err(error) => return Err(in_doubt(doubt, error)),
            };
            if let Some((number, _)) = &doubt
                && now.head.number >= *number
            {
                match self.made(*number, &id).await {
                    Ok(Some(edited)) => return Ok(edited),
                    // That place is another edit's: ours can come there no more.
                    Ok(None) => doubt = None,
                    Err(error) => return Err(in_doubt(doubt, error.into())),
                }
            }
            let number = now.head.number + 1;
            let transaction = match self.prepare(wanted, &now, &id, lease).await {
                Ok(transaction) => transaction,
                Err(error) => return Err(in_doubt(doubt, error)),
            };
            match self.store.commit(transaction).await {
                Ok(committed) => {
                    return Ok(Edited {
                        edit: id,
                        revision: committed.revision,
                        replaced: self.replaced(&wanted.changes, &now).await,
                        held_back: String::new(),
                    });
                }
                Err(Error::Conflict(_)) => {}
                Err(error @ Error::Unknown(_)) => doubt = Some((number, error)),
                Err(error) => return Err(in_doubt(doubt, error.into())),
            }
        }
        let busy = Error::Unavailable("too many edits at once: try it again".to_owned());
        Err(in_doubt(doubt, busy.into()))
    }

    /// What makes the edit to the table of `now`, if it may be made.
    async fn prepare(
        &self,
        wanted: &Wanted,
        now: &Now,
        id: &str,
        lease: Option<LeaseId>,
    ) -> Result<Transaction, EditFailed> {
        self.compare(&wanted.changes, now).await?;
        let changes = self.check(wanted, now)?;
        let at = clock::wall().as_millis() as u64;
        let by = (id.to_owned(), wanted.author.clone(), wanted.why.clone(), at);
        let mut record = edit::record(&now.table, &changes, by);
        // What the table rejects stood there all the same, and comes back if the edit is taken back.
        for changed in record.changes.iter_mut().filter(|it| it.before.is_none()) {
            let object: Option<Object> = changed.key.parse().ok();
            let entry = object.and_then(|object| now.entries.get(&object));
            changed.before = entry.and_then(|entry| serde_json::from_slice(&entry.value).ok());
        }
        self.transaction(&changes, now, &record, lease)
    }

    /// Fails if a key has changed since its author looked.
    async fn compare(&self, changes: &[Change], now: &Now) -> Result<(), EditFailed> {
        let mut conflicts = Vec::new();
        for change in changes {
            let Some(seen) = change.seen else { continue };
            let found = now.modified(&change.object);
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
            let base = self.version(&history, &key, seen).await?;
            let theirs = now.entries.get(&change.object);
            let theirs = theirs.and_then(|entry| serde_json::from_slice(&entry.value).ok());
            let ours = change.document.as_deref();
            let ours = ours.and_then(|json| serde_json::from_slice(json).ok());
            let by = past::cause(&history, &key, found);
            told.push(Conflicting::new(
                (key, seen, found),
                (base, theirs, ours),
                by,
            ));
        }
        Err(EditFailed::Conflict(told))
    }

    /// All that is to be changed; fails if what that leaves could not come into force.
    fn check(&self, wanted: &Wanted, now: &Now) -> Result<Vec<Change>, EditFailed> {
        let before = &now.table;
        let mut changes = wanted.changes.clone();
        let after = match edit::check(before, &changes, false) {
            Err(EditError::Shrinks { .. }) if wanted.force => {
                allow_shrink(&mut changes, now);
                edit::check(before, &changes, false)?
            }
            after => after?,
        };
        let touched: BTreeSet<String> = changes.iter().map(|it| it.object.to_string()).collect();
        let mut faults: Vec<Rejected> = match wanted.force {
            true => Vec::new(),
            false => lost::lost(before, &after),
        };
        let regions = regions(&after, &changes);
        let concerned_after = concerned(&after, &changes);
        for region in regions {
            let mut found = (self.judge)(&concerned_after, &region);
            if found.iter().any(|it| !touched.contains(&it.key)) {
                // What the edit does not touch may have been at fault before.
                let known = (self.judge)(&concerned(before, &changes), &region);
                found.retain(|it| touched.contains(&it.key) || !known.contains(it));
            }
            faults.extend(found);
        }
        faults.sort_by(|a, b| a.key.cmp(&b.key));
        faults.dedup();
        match faults.is_empty() {
            true => Ok(changes),
            false => Err(EditError::Rejected(faults).into()),
        }
    }

    fn transaction(
        &self,
        changes: &[Change],
        now: &Now,
        record: &Record,
        lease: Option<LeaseId>,
    ) -> Result<Transaction, EditFailed> {
        let json = |value: Result<Vec<u8>, serde_json::Error>| {
            value.map_err(|error| Error::Invalid(error.to_string()))
        };
        let prefix = self.layout.table();
        let number = now.head.number + 1;
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
        for change in changes {
            let key = Bytes::from([&prefix[..], change.object.to_string().as_bytes()].concat());
            // Whoever writes to the store by other means swaps no head.
            compares.push(Compare::modified(key.clone(), now.modified(&change.object)));
            operations.push(match &change.document {
                Some(json) => Operation::Put {
                    key,
                    value: Bytes::from(json.clone()),
                    lease: lease.filter(|_| matches!(change.object, Object::Boost { .. })),
                },
                None => Operation::delete(key),
            });
        }
        Ok(Transaction {
            compares,
            operations,
        })
    }
}

impl Now {
    /// The revision that an object was put at; 0: it is not there.
    fn modified(&self, object: &Object) -> Revision {
        self.entries.get(object).map_or(0, |entry| entry.modified)
    }
}

/// Why an edit was not made; or, if it may have been made before, that this is not known.
fn in_doubt(doubt: Option<(u64, Error)>, why: EditFailed) -> EditFailed {
    doubt.map_or(why, |(_, unsaid)| unsaid.into())
}

/// Says in the table itself that it is meant to shrink, beside what `meta` says already.
fn allow_shrink(changes: &mut Vec<Change>, now: &Now) {
    let wanted = changes.iter().find(|it| it.object == Object::Meta);
    let stands = now.entries.get(&Object::Meta);
    let text = match wanted {
        Some(change) => change.document.as_deref(),
        None => stands.map(|entry| &entry.value[..]),
    };
    let read = text.and_then(|json| serde_json::from_slice(json).ok());
    let mut fields: serde_json::Map<String, serde_json::Value> = read.unwrap_or_default();
    fields.insert("schema".to_owned(), mizan_routing::SCHEMA.into());
    fields.insert("allow_shrink".to_owned(), true.into());
    let seen = wanted.and_then(|change| change.seen);
    changes.retain(|it| it.object != Object::Meta);
    changes.push(Change {
        object: Object::Meta,
        document: Some(serde_json::Value::Object(fields).to_string().into_bytes()),
        seen,
    });
}

fn table_of(
    revision: Revision,
    entries: &[Entry],
    prefix: usize,
    known: &Table,
) -> Result<Table, Limit> {
    let stored = entries.iter().map(|entry| Stored {
        key: entry.key.get(prefix..).unwrap_or_default(),
        value: &entry.value,
        modified: entry.modified,
    });
    Table::build_knowing(revision, stored, known)
}

/// What of a table the rules have to see to judge `changes` to it. A rule looks at one pool with all its backends, and at what
/// routes and chains name: so backends of pools that are not touched say nothing of those that are, and where only backends
/// or boosts change, nothing but their pools does.
fn concerned(table: &Table, changes: &[Change]) -> Table {
    let pools: BTreeSet<_> = changes.iter().filter_map(|it| it.object.pool()).collect();
    let names_nothing =
        |change: &Change| matches!(change.object, Object::Backend { .. } | Object::Boost { .. });
    let is_of_pools = changes.iter().all(names_nothing);
    table.part(|object| match (object, object.pool()) {
        (Object::Pool { .. }, Some(pool)) => !is_of_pools || pools.contains(&pool),
        (_, Some(pool)) => pools.contains(&pool),
        (_, None) => !is_of_pools,
    })
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

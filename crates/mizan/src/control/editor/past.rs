//! What became of a table: its edits as they were written down, who changed what, and how an edit is taken back.

use super::{EditFailed, EditView, Edited, Editor, Now, Replaced, Wanted};
use crate::clock;
use mizan_routing::edit::{self, Change, Record};
use mizan_routing::{Boost, Object};
use mizan_store::{Entry, Error, Query, Range, Revision};
use serde_json::Value;
use std::collections::BTreeSet;

/// An edit that is written down, with the revision that it made.
pub(super) type Written = (Revision, Record);

/// The edit that left `key` as it was found at revision `found`; `None`: history has it no more, or somebody wrote to the
/// store by other means.
pub(super) fn cause(history: &[Written], key: &str, found: Revision) -> Option<EditView> {
    // More may have been written since it was found.
    let is_it = |(revision, record): &&Written| {
        let changed = record.changes.iter().find(|it| it.key == key);
        changed.is_some_and(|changed| match found {
            0 => changed.after.is_none(),
            found => *revision == found,
        })
    };
    let (revision, record) = history.iter().rev().find(is_it)?;
    Some(EditView::new(*revision, record))
}

impl Editor {
    /// The records that are held, oldest first.
    pub(super) async fn records(&self) -> Result<Vec<Written>, Error> {
        let all = Query::now(Range::Prefix(self.layout.history()));
        let listing = self.store.list(all).await?;
        let read = |entry: &Entry| {
            let record = serde_json::from_slice(&entry.value).ok()?;
            Some((entry.modified, record))
        };
        Ok(listing.entries.iter().filter_map(read).collect())
    }

    /// The edit of that number, if it is the one called `id`.
    pub(super) async fn made(&self, number: u64, id: &str) -> Result<Option<Edited>, Error> {
        let Some(entry) = self.entry(self.layout.edit(number), None).await? else {
            return Ok(None);
        };
        let record: Option<Record> = serde_json::from_slice(&entry.value).ok();
        let is_ours = record.is_some_and(|record| record.edit == id);
        Ok(is_ours.then(|| Edited {
            edit: id.to_owned(),
            revision: entry.modified,
            replaced: Vec::new(),
            held_back: String::new(),
        }))
    }

    /// What `changes` have put something over though their authors named no revision, with who had put that.
    pub(super) async fn replaced(&self, changes: &[Change], now: &Now) -> Vec<Replaced> {
        let blind = changes.iter().filter(|change| change.seen.is_none());
        let mut replaced: Vec<Replaced> = blind
            .filter_map(|change| {
                let entry = now.entries.get(&change.object)?;
                Some(Replaced {
                    key: change.object.to_string(),
                    revision: entry.modified,
                    by: None,
                })
            })
            .collect();
        let keys = Query {
            keys_only: true,
            ..Query::now(Range::Prefix(self.layout.history()))
        };
        if replaced.is_empty() {
            return replaced;
        }
        // The edit is made: whom it went over is told if that can be had.
        let Ok(history) = self.store.list(keys).await else {
            return replaced;
        };
        for replaced in &mut replaced {
            // An edit and the record of it are of one revision.
            let mut records = history.entries.iter();
            let record = records.find(|record| record.modified == replaced.revision);
            let Some(record) = record else { continue };
            let read = self.entry(record.key.clone(), None).await;
            let read = read.ok().flatten();
            let written = read.and_then(|read| {
                let record = serde_json::from_slice(&read.value).ok()?;
                Some((read.modified, record))
            });
            let by = cause(written.as_slice(), &replaced.key, replaced.revision);
            replaced.by = by.map(|by| EditView {
                changes: Vec::new(),
                ..by
            });
        }
        replaced
    }

    /// What `key` said when it had been put at `revision`; `None`: it was not there, or nobody knows it any more.
    pub(super) async fn version(
        &self,
        history: &[Written],
        key: &str,
        revision: Revision,
    ) -> Result<Option<Value>, Error> {
        let written = history.iter().find(|(at, _)| *at == revision);
        let changed =
            written.and_then(|(_, record)| record.changes.iter().find(|it| it.key == key));
        if let Some(changed) = changed {
            return Ok(changed.after.clone());
        }
        if revision == 0 {
            return Ok(None);
        }
        let key = [&self.layout.table()[..], key.as_bytes()].concat();
        match self.entry(key.into(), Some(revision)).await {
            Ok(entry) => Ok(entry.and_then(|it| serde_json::from_slice(&it.value).ok())),
            Err(Error::Compacted { .. } | Error::Future { .. }) => Ok(None),
            Err(error) => Err(error),
        }
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
        let is_meant = |record: &Record| {
            key.is_none_or(|part| record.changes.iter().any(|it| is_below(&it.key, part)))
        };
        let records = self.records().await?;
        let meant = records.iter().rev().filter(|(_, record)| is_meant(record));
        Ok(meant
            .take(count)
            .map(|(revision, record)| EditView::new(*revision, record))
            .collect())
    }

    /// Takes an edit back, by its name or the revision that it made: a new edit. What was changed since is not touched unless
    /// `force`d; a boost that has ended meanwhile stays away.
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
        let by_name = records.iter().find(|(_, record)| record.edit == which);
        let by_revision = || records.iter().find(|(at, _)| which.parse() == Ok(*at));
        let Some((revision, record)) = by_name.or_else(by_revision) else {
            return Err(EditFailed::Nothing(format!(
                "there is no edit `{which}` among the last {}: `mizan config history` lists them",
                records.len()
            )));
        };
        let now = self.now().await?;
        let mut changes = edit::undo(&now.table, record)
            .map_err(|error| EditFailed::Invalid(error.to_string()))?;
        let wall = clock::wall().as_millis() as u64;
        changes.retain(|change| !has_ended(change, wall));
        let since: BTreeSet<String> = edit::since(&now.table, record).into_iter().collect();
        for change in &mut changes {
            // It was last touched by that edit, or somebody has to be told who did since.
            let is_as_left = !since.contains(&change.object.to_string());
            change.seen = match (force, is_as_left) {
                (true, _) => None,
                (false, true) => Some(now.modified(&change.object)),
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

/// Whether `key` is `part` or stands below it.
pub fn is_below(key: &str, part: &str) -> bool {
    let rest = key.strip_prefix(part.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether it would put a boost that has ended.
fn has_ended(change: &Change, now_ms: u64) -> bool {
    let boost: Option<Boost> = change
        .document
        .as_deref()
        .filter(|_| matches!(change.object, Object::Boost { .. }))
        .and_then(|json| serde_json::from_slice(json).ok());
    boost.is_some_and(|boost| boost.expires_at_ms <= now_ms)
}

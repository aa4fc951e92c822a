//! What is known of a prefix: no I/O, no time.

use crate::{Batch, Entry, Event, Listing, Revision};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Entries by their keys, as they stood at one revision. Whoever holds them keeps them as they were.
pub type Entries = Arc<BTreeMap<Bytes, Entry>>;

/// What is known, and up to when.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    entries: Entries,
    revision: Revision,
}

/// A key of which something else is known than the store has.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Difference {
    pub(super) key: Bytes,
    /// When the store has it from, and when memory; 0: not there.
    pub(super) listed: Revision,
    pub(super) known: Revision,
}

impl Memory {
    /// What was written down at `revision`.
    pub fn new(entries: BTreeMap<Bytes, Entry>, revision: Revision) -> Self {
        Self {
            entries: Arc::new(entries),
            revision,
        }
    }

    /// What stands there.
    pub fn entries(&self) -> Entries {
        Arc::clone(&self.entries)
    }

    /// All that happened up to it is known.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Knows what was listed and nothing else; how many keys are new or another, and how many are gone.
    pub(super) fn replace(&mut self, listing: Listing) -> (usize, usize) {
        let entries: BTreeMap<_, _> = listing
            .entries
            .into_iter()
            .map(|entry| (entry.key.clone(), entry))
            .collect();
        let put = entries
            .iter()
            .filter(|(key, entry)| self.entries.get(*key) != Some(entry))
            .count();
        let is_gone = |key: &&Bytes| !entries.contains_key(*key);
        let deleted = self.entries.keys().filter(is_gone).count();
        self.entries = Arc::new(entries);
        self.revision = listing.revision;
        (put, deleted)
    }

    /// Knows what has changed; whether anything has. A batch that is known already, which some stores say twice after a
    /// reconnect, changes nothing.
    pub(super) fn apply(&mut self, batch: Batch) -> bool {
        if batch.revision <= self.revision {
            return false;
        }
        self.revision = batch.revision;
        let entries = Arc::make_mut(&mut self.entries);
        for event in batch.events {
            match event {
                Event::Put(entry) => entries.insert(entry.key.clone(), entry),
                Event::Delete(key) => entries.remove(&key),
            };
        }
        true
    }

    /// Nothing has changed up to `revision` beyond what is known.
    pub(super) fn progress(&mut self, revision: Revision) {
        self.revision = self.revision.max(revision);
    }

    /// Where this and a listing of the keys disagree. What is on its way here differs, too.
    pub(super) fn differences(&self, listing: &Listing) -> Vec<Difference> {
        let mut known = self.entries.iter().peekable();
        let mut found = Vec::new();
        let mut differ = |key: &Bytes, listed, known| {
            // What memory has of later than the listing is no difference: it is the listing that is old.
            if listed != known && known <= listing.revision {
                let key = key.clone();
                found.push(Difference { key, listed, known });
            }
        };
        for listed in &listing.entries {
            while let Some((key, entry)) = known.next_if(|(key, _)| **key < listed.key) {
                differ(key, 0, entry.modified);
            }
            let same = known.next_if(|(key, _)| **key == listed.key);
            differ(
                &listed.key,
                listed.modified,
                same.map_or(0, |(_, entry)| entry.modified),
            );
        }
        for (key, entry) in known {
            differ(key, 0, entry.modified);
        }
        found
    }
}

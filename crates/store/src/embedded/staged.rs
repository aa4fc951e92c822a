//! What a group of requests would make of the history, before any of it is on the disk.

use super::history::{Changes, History, Made, Term, entry_bytes};
use crate::{
    Batch, Committed, Conflict, Entry, Error, Event, Lease, LeaseId, Operation, Range, Revision,
    Transaction,
};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// The history, and what the requests so far have put over it. Each request sees those before it.
#[derive(Debug)]
pub(super) struct Staged<'a> {
    base: &'a History,
    revision: Revision,
    next_number: i64,
    present_bytes: usize,
    /// Keys that have changed; `None`: deleted.
    keys: BTreeMap<Bytes, Option<Entry>>,
    changes: Changes,
    now: Duration,
}

impl<'a> Staged<'a> {
    /// Nothing so far, at `now` of the monotonic clock.
    pub(super) fn over(base: &'a History, now: Duration) -> Self {
        Self {
            base,
            revision: base.revision,
            next_number: base.next_number,
            present_bytes: base.present_bytes,
            keys: BTreeMap::new(),
            changes: Changes::default(),
            now,
        }
    }

    /// The revision that they lead to, and the changes.
    pub(super) fn finish(self) -> (Revision, Changes) {
        (self.revision, self.changes)
    }

    /// See [`Store::commit`](crate::Store::commit). No more than `bytes_max` of keys and values may be there afterwards,
    /// but what makes it less is always taken.
    pub(super) fn commit(
        &mut self,
        transaction: &Transaction,
        bytes_max: usize,
    ) -> Result<Committed, Error> {
        self.check_compares(transaction)?;
        for operation in &transaction.operations {
            if let Operation::Put {
                lease: Some(id), ..
            } = operation
            {
                self.term(*id)?;
            }
        }
        let (events, deleted) = self.events(&transaction.operations);
        let bytes = self.bytes_after(&events);
        if bytes > bytes_max && bytes > self.present_bytes {
            return Err(Error::Full(format!(
                "with this it would hold {bytes} bytes of keys and values, and may hold {bytes_max}: delete what is not \
                 needed, or give it more room"
            )));
        }
        self.push(events);
        Ok(Committed {
            revision: self.revision,
            deleted,
        })
    }

    fn check_compares(&self, transaction: &Transaction) -> Result<(), Error> {
        let compares = &transaction.compares;
        if compares
            .iter()
            .all(|compare| compare.holds(self.entry(&compare.key)))
        {
            return Ok(());
        }
        let mut seen = BTreeSet::new();
        let keys = compares.iter().map(|compare| &compare.key);
        let found = keys
            .filter(|key| seen.insert(*key))
            .map(|key| (key.clone(), self.entry(key).cloned()));
        Err(Error::Conflict(Box::new(Conflict {
            revision: self.revision,
            found: found.collect(),
        })))
    }

    fn entry(&self, key: &Bytes) -> Option<&Entry> {
        match self.keys.get(key) {
            Some(staged) => staged.as_ref(),
            None => self.base.entry(key),
        }
    }

    /// What `operations` do at the next revision, and how many keys they delete.
    fn events(&self, operations: &[Operation]) -> (Vec<Event>, u64) {
        let revision = self.revision + 1;
        let mut events = Vec::new();
        let mut deleted = BTreeSet::new();
        for operation in operations {
            match operation {
                Operation::Put { key, value, lease } => {
                    let before = self.entry(key);
                    events.push(Event::Put(Entry {
                        key: key.clone(),
                        value: value.clone(),
                        created: before.map_or(revision, |before| before.created),
                        modified: revision,
                        version: before.map_or(0, |before| before.version) + 1,
                        lease: *lease,
                    }));
                }
                Operation::Delete(range) => {
                    for key in self.present(range) {
                        if deleted.insert(key.clone()) {
                            events.push(Event::Delete(key));
                        }
                    }
                }
            }
        }
        (events, deleted.len() as u64)
    }

    /// The keys of `range` that are there, in order.
    fn present(&self, range: &Range) -> BTreeSet<Bytes> {
        let base = self.base.entries(range, self.base.revision);
        let mut keys: BTreeSet<_> = base.map(|entry| entry.key.clone()).collect();
        // Those of a range stand together, from its key or its prefix on.
        let (Range::Key(first) | Range::Prefix(first)) = range;
        let staged = self.keys.range(first.clone()..);
        for (key, entry) in staged.take_while(|(key, _)| range.contains(key)) {
            match entry {
                Some(_) => keys.insert(key.clone()),
                None => keys.remove(key),
            };
        }
        keys
    }

    fn bytes_after(&self, events: &[Event]) -> usize {
        let mut bytes = self.present_bytes;
        for event in events {
            if let Event::Put(entry) = event {
                bytes += entry_bytes(entry);
            }
            bytes -= self.entry(event.key()).map_or(0, entry_bytes);
        }
        bytes
    }

    /// Makes a revision of `events`, if there are any.
    fn push(&mut self, events: Vec<Event>) {
        if events.is_empty() {
            return;
        }
        self.present_bytes = self.bytes_after(&events);
        self.revision += 1;
        for event in &events {
            let entry = match event {
                Event::Put(entry) => Some(entry.clone()),
                Event::Delete(_) => None,
            };
            self.keys.insert(event.key().clone(), entry);
        }
        let number = self.next_number;
        self.next_number += events.len() as i64;
        self.changes.made.push(Made {
            batch: Arc::new(Batch {
                revision: self.revision,
                events,
            }),
            number,
            at: self.now,
        });
    }

    /// A lease that is alive.
    fn term(&self, id: LeaseId) -> Result<&Term, Error> {
        let term = match self.changes.leases.get(&id) {
            Some(staged) => staged.as_ref(),
            None => self.base.lease(id).map(|(term, _)| term),
        };
        term.filter(|term| term.until > self.now)
            .ok_or(Error::NoLease(id))
    }

    /// A lease under the name `id`, for `life` from now on; `None` if there is one of that name.
    pub(super) fn grant(&mut self, id: LeaseId, life: Duration, wall: Duration) -> Option<Lease> {
        if self.base.lease(id).is_some() || self.changes.leases.contains_key(&id) {
            return None;
        }
        Some(self.set(id, life, wall))
    }

    pub(super) fn keep_alive(&mut self, id: LeaseId, wall: Duration) -> Result<Lease, Error> {
        let life = self.term(id)?.granted;
        Ok(self.set(id, life, wall))
    }

    fn set(&mut self, id: LeaseId, life: Duration, wall: Duration) -> Lease {
        let term = Term {
            granted: life,
            until: self.now + life,
            until_wall: wall + life,
        };
        let lease = term.lease(id, self.now);
        self.changes.leases.insert(id, Some(term));
        lease
    }

    pub(super) fn revoke(&mut self, id: LeaseId) -> Result<(), Error> {
        self.term(id)?;
        self.end(id);
        Ok(())
    }

    /// Ends all leases whose time is over: each at a revision of its own.
    pub(super) fn expire(&mut self) {
        let over = self
            .base
            .leases()
            .filter(|(_, term)| term.until <= self.now);
        let over: Vec<_> = over.map(|(id, _)| id).collect();
        for id in over {
            self.end(id);
        }
    }

    fn end(&mut self, id: LeaseId) {
        let mut keys = self
            .base
            .lease(id)
            .map(|(_, keys)| keys.clone())
            .unwrap_or_default();
        for (key, entry) in &self.keys {
            match entry {
                Some(entry) if entry.lease == Some(id) => keys.insert(key.clone()),
                _ => keys.remove(key),
            };
        }
        self.push(keys.into_iter().map(Event::Delete).collect());
        self.changes.leases.insert(id, None);
    }
}

//! What a store should be, as simply as it can be said: a map for each revision.

use crate::{
    Batch, Committed, Conflict, Entry, Error, Event, LeaseId, Operation, Range, Revision,
    Transaction,
};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

type State = BTreeMap<Bytes, Entry>;

/// A store whose whole history is held, state by state.
#[derive(Debug)]
pub(super) struct Model {
    /// What was there at each revision, from the one at which the model begins.
    states: Vec<State>,
    /// What made each of them, the first excepted.
    batches: Vec<Batch>,
    first: Revision,
    /// The oldest that the store still has to answer for.
    pub(super) oldest: Revision,
    pub(super) leases: BTreeSet<LeaseId>,
}

impl Model {
    /// A store without keys at `revision`.
    pub(super) fn new(revision: Revision) -> Self {
        Self {
            states: vec![State::new()],
            batches: Vec::new(),
            first: revision,
            oldest: revision,
            leases: BTreeSet::new(),
        }
    }

    pub(super) fn revision(&self) -> Revision {
        self.first + self.batches.len() as u64
    }

    /// Whether something of its own is forgotten.
    pub(super) fn has_forgotten(&self) -> bool {
        self.oldest > self.first
    }

    fn present(&self) -> &State {
        self.states.last().expect("the first is always there")
    }

    pub(super) fn entry(&self, key: &Bytes) -> Option<&Entry> {
        self.present().get(key)
    }

    /// What [`Store::list`](crate::Store::list) has to find.
    pub(super) fn list(&self, range: &Range, at: Revision) -> Result<Vec<Entry>, Error> {
        if at > self.revision() {
            return Err(Error::Future {
                asked: at,
                current: self.revision(),
            });
        }
        if at < self.oldest {
            return Err(Error::Compacted {
                oldest: self.oldest,
            });
        }
        let state = &self.states[(at - self.first) as usize];
        let entries = state.values().filter(|entry| range.contains(&entry.key));
        Ok(entries.cloned().collect())
    }

    /// What a watch of `range` has to say next, after `after`.
    pub(super) fn next_change(&self, range: &Range, after: Revision) -> Option<Batch> {
        let skipped = after.saturating_sub(self.first) as usize;
        let watched = self.batches.iter().skip(skipped).map(|batch| Batch {
            revision: batch.revision,
            events: batch
                .events
                .iter()
                .filter(|event| range.contains(event.key()))
                .cloned()
                .collect(),
        });
        watched.into_iter().find(|batch| !batch.events.is_empty())
    }

    /// What [`Store::commit`](crate::Store::commit) has to answer.
    pub(super) fn commit(&mut self, transaction: &Transaction) -> Result<Committed, Error> {
        let present = self.present();
        let holds = |compare: &crate::Compare| compare.holds(present.get(&compare.key));
        if !transaction.compares.iter().all(holds) {
            let mut found: Vec<(Bytes, Option<Entry>)> = Vec::new();
            for compare in &transaction.compares {
                if found.iter().all(|(key, _)| *key != compare.key) {
                    found.push((compare.key.clone(), present.get(&compare.key).cloned()));
                }
            }
            let revision = self.revision();
            return Err(Error::Conflict(Box::new(Conflict { revision, found })));
        }
        for operation in &transaction.operations {
            match operation {
                Operation::Put {
                    lease: Some(id), ..
                } if !self.leases.contains(id) => {
                    return Err(Error::NoLease(*id));
                }
                _ => {}
            }
        }
        Ok(self.apply(&transaction.operations))
    }

    /// Ends a lease that is alive.
    pub(super) fn revoke(&mut self, id: LeaseId) {
        self.leases.remove(&id);
        let hung = self
            .present()
            .values()
            .filter(|entry| entry.lease == Some(id));
        let deletes: Vec<_> = hung
            .map(|entry| Operation::delete(entry.key.clone()))
            .collect();
        self.apply(&deletes);
    }

    fn apply(&mut self, operations: &[Operation]) -> Committed {
        let revision = self.revision() + 1;
        let mut state = self.present().clone();
        let mut events = Vec::new();
        let mut deleted = 0;
        for operation in operations {
            match operation {
                Operation::Put { key, value, lease } => {
                    let before = state.get(key);
                    let entry = Entry {
                        key: key.clone(),
                        value: value.clone(),
                        created: before.map_or(revision, |before| before.created),
                        modified: revision,
                        version: before.map_or(0, |before| before.version) + 1,
                        lease: *lease,
                    };
                    state.insert(key.clone(), entry.clone());
                    events.push(Event::Put(entry));
                }
                Operation::Delete(range) => {
                    let keys: Vec<_> = state
                        .keys()
                        .filter(|key| range.contains(key))
                        .cloned()
                        .collect();
                    for key in keys {
                        state.remove(&key);
                        deleted += 1;
                        events.push(Event::Delete(key));
                    }
                }
            }
        }
        if events.is_empty() {
            return Committed {
                revision: self.revision(),
                deleted: 0,
            };
        }
        self.states.push(state);
        self.batches.push(Batch { revision, events });
        Committed { revision, deleted }
    }
}

//! All that is held, in memory: each key's versions, each revision's changes, the leases.

use crate::{Batch, Entry, Error, Event, Lease, LeaseId, Listing, Query, Range, Revision};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

/// What a key stood for from one revision on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Version {
    /// The row's, on the disk.
    pub(super) number: i64,
    pub(super) revision: Revision,
    /// `None`: it was deleted.
    pub(super) entry: Option<Entry>,
}

/// A lease that is alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Term {
    pub(super) granted: Duration,
    /// When it ends, by the monotonic clock: what counts while the process runs.
    pub(super) until: Duration,
    /// When it ends, by the wall clock: what is left to a process that starts.
    pub(super) until_wall: Duration,
}

impl Term {
    pub(super) fn lease(&self, id: LeaseId, now: Duration) -> Lease {
        Lease {
            id,
            left: self.until.saturating_sub(now),
            granted: self.granted,
        }
    }
}

/// The changes of one revision.
#[derive(Clone, Debug)]
pub(super) struct Made {
    pub(super) batch: Arc<Batch>,
    /// The first event's row; the others follow.
    pub(super) number: i64,
    /// When, by the monotonic clock; for what was read from the disk, when it was read.
    pub(super) at: Duration,
}

impl Made {
    fn bytes(&self) -> usize {
        self.batch.events.iter().map(event_bytes).sum()
    }
}

fn event_bytes(event: &Event) -> usize {
    match event {
        Event::Put(entry) => entry_bytes(entry),
        Event::Delete(key) => key.len(),
    }
}

pub(super) fn entry_bytes(entry: &Entry) -> usize {
    entry.key.len() + entry.value.len()
}

/// What a group of requests changes, all at once.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) made: Vec<Made>,
    /// Granted or prolonged; `None`: ended.
    pub(super) leases: BTreeMap<LeaseId, Option<Term>>,
}

impl Changes {
    pub(super) fn is_empty(&self) -> bool {
        self.made.is_empty() && self.leases.is_empty()
    }
}

/// The store's present and past, from `oldest` on.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) revision: Revision,
    /// The oldest revision that can be listed; the changes after it are held.
    pub(super) oldest: Revision,
    /// The next row's, on the disk.
    pub(super) next_number: i64,
    keys: BTreeMap<Bytes, Vec<Version>>,
    made: VecDeque<Made>,
    leases: BTreeMap<LeaseId, (Term, BTreeSet<Bytes>)>,
    /// Of the keys and values that are there now.
    pub(super) present_bytes: usize,
    /// Of the keys and values of all changes that are held.
    pub(super) history_bytes: usize,
}

impl History {
    /// One that is held from `oldest` on; what is in force at it is put in next.
    pub(super) fn from(oldest: Revision) -> Self {
        Self {
            revision: oldest,
            oldest,
            ..Self::default()
        }
    }

    /// What is there under `key` now.
    pub(super) fn entry(&self, key: &[u8]) -> Option<&Entry> {
        self.keys.get(key)?.last()?.entry.as_ref()
    }

    /// The entries of `range` at `at`, in order.
    pub(super) fn entries<'a>(
        &'a self,
        range: &'a Range,
        at: Revision,
    ) -> impl Iterator<Item = &'a Entry> {
        let begin = match range {
            Range::Key(key) | Range::Prefix(key) => key,
        };
        self.keys
            .range::<[u8], _>((Bound::Included(&begin[..]), Bound::Unbounded))
            .take_while(|(key, _)| range.contains(key))
            .filter_map(move |(_, versions)| {
                let later = versions.partition_point(|version| version.revision <= at);
                versions[..later].last()?.entry.as_ref()
            })
    }

    /// See [`Store::list`](crate::Store::list).
    pub(super) fn list(&self, query: &Query) -> Result<Listing, Error> {
        let at = query.at.unwrap_or(self.revision);
        if at > self.revision {
            return Err(Error::Future {
                asked: at,
                current: self.revision,
            });
        }
        if at < self.oldest {
            return Err(self.compacted());
        }
        let mut entries: Vec<_> = self.entries(&query.range, at).cloned().collect();
        if query.keys_only {
            entries.iter_mut().for_each(|entry| entry.value.clear());
        }
        Ok(Listing {
            revision: self.revision,
            entries,
        })
    }

    pub(super) fn compacted(&self) -> Error {
        Error::Compacted {
            oldest: self.oldest,
        }
    }

    /// The changes from revision `from` on, at most `most` revisions of them.
    ///
    /// # Errors
    /// [`Error::Compacted`] if they are not held any more.
    pub(super) fn changes(
        &self,
        from: Revision,
        most: usize,
    ) -> Result<impl Iterator<Item = &Arc<Batch>>, Error> {
        let Some(first) = from.checked_sub(self.oldest + 1) else {
            return Err(self.compacted());
        };
        let skipped = usize::try_from(first).unwrap_or(usize::MAX);
        let later = self.made.range(skipped.min(self.made.len())..);
        Ok(later.take(most).map(|made| &made.batch))
    }

    /// What is known of a lease, and the keys that hang on it.
    pub(super) fn lease(&self, id: LeaseId) -> Option<&(Term, BTreeSet<Bytes>)> {
        self.leases.get(&id)
    }

    pub(super) fn leases(&self) -> impl Iterator<Item = (LeaseId, &Term)> {
        self.leases.iter().map(|(id, (term, _))| (*id, term))
    }

    /// Every version that is held, in no order.
    pub(super) fn versions(&self) -> impl Iterator<Item = (&Bytes, &Version)> {
        let versions = self.keys.iter();
        versions.flat_map(|(key, versions)| versions.iter().map(move |version| (key, version)))
    }

    /// Takes over what is on the disk by now.
    pub(super) fn apply(&mut self, changes: Changes) {
        for (id, term) in &changes.leases {
            if let Some(term) = term {
                self.set_lease(*id, term.clone());
            }
        }
        for made in changes.made {
            self.push(made);
        }
        for (id, term) in changes.leases {
            if term.is_none() {
                self.leases.remove(&id);
            }
        }
    }

    pub(super) fn set_lease(&mut self, id: LeaseId, term: Term) {
        match self.leases.get_mut(&id) {
            Some((held, _)) => *held = term,
            None => drop(self.leases.insert(id, (term, BTreeSet::new()))),
        }
    }

    /// Takes over the next revision.
    pub(super) fn push(&mut self, made: Made) {
        self.revision = made.batch.revision;
        self.history_bytes += made.bytes();
        for (number, event) in (made.number..).zip(&made.batch.events) {
            let version = Version {
                number,
                revision: made.batch.revision,
                entry: match event {
                    Event::Put(entry) => Some(entry.clone()),
                    Event::Delete(_) => None,
                },
            };
            self.put(event.key(), version);
        }
        self.made.push_back(made);
    }

    /// Takes over the next version of `key`.
    pub(super) fn put(&mut self, key: &Bytes, version: Version) {
        self.next_number = self.next_number.max(version.number + 1);
        let versions = self.keys.entry(key.clone()).or_default();
        if let Some(before) = versions.last().and_then(|before| before.entry.as_ref()) {
            self.present_bytes -= entry_bytes(before);
            if let Some((_, keys)) = before.lease.and_then(|id| self.leases.get_mut(&id)) {
                keys.remove(key);
            }
        }
        if let Some(entry) = &version.entry {
            self.present_bytes += entry_bytes(entry);
            if let Some((_, keys)) = entry.lease.and_then(|id| self.leases.get_mut(&id)) {
                keys.insert(key.clone());
            }
        }
        versions.push(version);
    }

    /// The rows that a compaction at `at` does away with.
    pub(super) fn forgettable(&self, at: Revision) -> Vec<i64> {
        let mut numbers = Vec::new();
        for key in self.keys_before(at) {
            let versions = &self.keys[key];
            let gone = &versions[..forgotten(versions, at)];
            numbers.extend(gone.iter().map(|version| version.number));
        }
        numbers.sort_unstable();
        numbers
    }

    /// Forgets what `forgettable` said.
    pub(super) fn forget(&mut self, at: Revision) {
        let touched: Vec<_> = self.keys_before(at).into_iter().cloned().collect();
        for key in touched {
            let versions = self.keys.get_mut(&key).expect("it was found there");
            versions.drain(..forgotten(versions, at));
            if versions.is_empty() {
                self.keys.remove(&key);
            }
        }
        while self
            .made
            .front()
            .is_some_and(|made| made.batch.revision <= at)
        {
            let made = self.made.pop_front().expect("it was looked at");
            self.history_bytes -= made.bytes();
        }
        self.oldest = at;
    }

    /// Keys that changed up to `at`, of the changes that are held.
    fn keys_before(&self, at: Revision) -> BTreeSet<&Bytes> {
        let old = self
            .made
            .iter()
            .take_while(|made| made.batch.revision <= at);
        old.flat_map(|made| made.batch.events.iter().map(Event::key))
            .collect()
    }

    /// The revision up to which history is longer than it need be, if it is: at least `least` revisions are kept, and as
    /// many as are not yet `age` old; but of those no more than fit in `bytes_max`.
    pub(super) fn excess(&self, keep: &Keep, now: Duration) -> Option<Revision> {
        let mut bytes = self.history_bytes;
        // A little less than may be, so that it is not done again at once.
        let target = match bytes > keep.bytes_max {
            true => keep.bytes_max / 8 * 7,
            false => keep.bytes_max,
        };
        let mut excess = None;
        for (at, made) in self.made.iter().enumerate() {
            let left = self.made.len() - at;
            let is_old = now.saturating_sub(made.at) >= keep.age;
            let is_over = bytes > target;
            if !(is_over || is_old && left > keep.revisions_min) || left == 1 {
                break;
            }
            bytes -= made.bytes();
            excess = Some(made.batch.revision);
        }
        excess
    }
}

/// How much of the past is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// At least as many revisions, whatever their age; 10,000.
    pub revisions_min: usize,
    /// Beyond those, what is younger; an hour.
    pub age: Duration,
    /// But never more bytes of keys and values than this; 64 MiB.
    pub bytes_max: usize,
}

impl Default for Keep {
    fn default() -> Self {
        Self {
            revisions_min: 10_000,
            age: Duration::from_secs(60 * 60),
            bytes_max: 64 << 20,
        }
    }
}

/// How many of `versions`, from the first, are not in force at `at` any more.
fn forgotten(versions: &[Version], at: Revision) -> usize {
    let until = versions.partition_point(|version| version.revision <= at);
    match until.checked_sub(1) {
        Some(last) if versions[last].entry.is_some() => last,
        _ => until,
    }
}

//! Counters by worker, their labels, and the hot path's entry points.
//!
//! A set of label values has `Slots`: a cell for each worker, made when that worker first counts.
//! [`Metrics`] keeps them by label, so that a reload forgets nothing. [`Series`] is one snapshot's table
//! of them by position: a worker keeps its [`WorkerSeries`] beside its copy of the snapshot, and a
//! request takes both together.
//!
//! ```text
//! reload:  series = metrics.register(&snapshot)
//! worker:  mine = series.worker(2)
//! request: mine.listener(listener.index).started()
//!          place = mine.place(Some(route.index), Some(&pool), backend.version())
//!          mine.pool(place).latency.record(upstream)
//!          mine.finished(&Finished { place, .. })
//! ```

mod cells;
mod registry;
mod series;

pub use cells::{
    BackendCells, BackendCounter, Counter, ListenerCells, OpenConnection, PoolCells, RequestCells,
};
pub(crate) use cells::{GRPC_CODES, Slots};
pub use registry::{BackendTotals, ListenerTotals, PoolTotals, RequestKey, Totals};
pub use series::{Finished, OTHER_VERSIONS, Place, Series, VERSIONS_MAX, WorkerSeries};

use super::cause::ReloadResult;
use crate::snapshot::Snapshot;
use cells::Padded;
use registry::Registry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// One worker's counters that have no label but a code.
#[derive(Debug, Default)]
struct OwnCells {
    /// Answers that Mizan made, by reason and status. Only its worker and the scraper take the lock.
    answers: Mutex<BTreeMap<(&'static str, u16), u64>>,
}

/// What is known of the store's table, for [`Metrics::set_store`].
#[derive(Clone, Debug)]
pub struct StoreFigures {
    /// How well it is known: a word of [`StoreFigures::STANDINGS`].
    pub standing: &'static str,
    /// Since when, since the Unix epoch.
    pub since: Duration,
    /// The revision that is known.
    pub revision: u64,
    /// The revision that is in force.
    pub revision_in_force: u64,
    /// Objects that are in force.
    pub objects: usize,
    /// Objects that are not in force as they stand in the store.
    pub rejected: usize,
    /// Objects that wait for a new pool.
    pub waiting: usize,
    /// Whether what the store says is held back as a whole.
    pub is_held_back: bool,
    /// What has happened between here and the store, and how often.
    pub events: Vec<(&'static str, u64)>,
    /// How far another node's clock is ahead of this one's, if it is by more than is good.
    pub clock_ahead: Option<Duration>,
}

impl StoreFigures {
    /// How well a table may be known.
    pub const STANDINGS: [&str; 4] = ["unknown", "restored", "live", "stale"];
}

/// All of a process's metrics.
#[derive(Debug)]
pub struct Metrics {
    workers: usize,
    registry: Mutex<Registry>,
    own: Box<[Padded<OwnCells>]>,
    pub(crate) reloads: [AtomicU64; ReloadResult::COUNT],
    pub(crate) generation: AtomicU64,
    pub(crate) loaded_at_ms: AtomicU64,
    pub(crate) started_at: Duration,
    /// Lines that the access log lost; see [`super::AccessLog`].
    pub(crate) access_log_dropped: Arc<AtomicU64>,
    store: Mutex<Option<StoreFigures>>,
}

impl Metrics {
    /// Metrics of a process with `workers` workers that started at `now` (since the Unix epoch).
    pub fn new(workers: usize, now: Duration) -> Arc<Self> {
        Arc::new(Self {
            workers,
            registry: Mutex::default(),
            own: (0..workers).map(|_| Padded::default()).collect(),
            reloads: [const { AtomicU64::new(0) }; ReloadResult::COUNT],
            generation: AtomicU64::new(0),
            loaded_at_ms: AtomicU64::new(0),
            started_at: now,
            access_log_dropped: Arc::default(),
            store: Mutex::default(),
        })
    }

    /// The table of `snapshot`'s series. Series of the same label values go on counting.
    pub fn register(self: &Arc<Self>, snapshot: &Snapshot) -> Arc<Series> {
        Arc::new(Series::new(self, snapshot))
    }

    /// A configuration came into force at `now` (since the Unix epoch).
    pub fn loaded(&self, generation: u64, now: Duration) {
        self.generation.store(generation, Ordering::Relaxed);
        self.loaded_at_ms.store(
            u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
            Ordering::Relaxed,
        );
    }

    /// What became of a reload.
    pub fn reloaded(&self, result: ReloadResult) {
        self.reloads[result as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// One worker's counters of a backend. Not for each request: a worker keeps them beside its
    /// connections to that backend.
    pub fn backend(&self, worker: usize, pool: &str, key: &str) -> BackendCounter {
        BackendCounter {
            slots: self.registry().backend(pool, key, self.workers),
            worker,
        }
    }

    /// When the process started, since the Unix epoch.
    pub fn started_at(&self) -> Duration {
        self.started_at
    }

    /// Where the access log counts lines that it lost.
    pub fn access_log_dropped(&self) -> Arc<AtomicU64> {
        self.access_log_dropped.clone()
    }

    /// What is known of the store's table now.
    pub fn set_store(&self, figures: StoreFigures) {
        *self.store.lock().unwrap_or_else(PoisonError::into_inner) = Some(figures);
    }

    /// What was known of the store's table last, if there is one.
    pub(crate) fn store(&self) -> Option<StoreFigures> {
        let store = self.store.lock();
        store.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Answers that Mizan made, by reason and status, of all workers.
    pub(crate) fn answers(&self) -> BTreeMap<(&'static str, u16), u64> {
        let mut sum = BTreeMap::new();
        for own in &self.own {
            for (key, count) in own
                .0
                .answers
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .iter()
            {
                *sum.entry(*key).or_default() += count;
            }
        }
        sum
    }

    /// All that was counted until now.
    pub fn totals(&self) -> Totals {
        self.registry().totals()
    }

    /// Forgets counters of backends that are not among `members` (pool, key).
    pub(crate) fn retain_backends(&self, members: &BTreeSet<(Arc<str>, Arc<str>)>) {
        self.registry().retain_backends(members);
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;

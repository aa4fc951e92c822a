//! Cells by label, kept over reloads.
//!
//! Workers come here once for each series, never once for each request. A scrape copies the pointers
//! under the lock and adds up outside it, so that a worker never waits for a scrape's text.

use super::{BackendCells, Counter, ListenerCells, PoolCells, RequestCells, Slots};
use crate::snapshot::Snapshot;
use crate::telemetry::histogram::Merged;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// For how many reloads a series that no configuration names any more is still shown, so that a last
/// scrape sees its end. Without an end, a version for each deploy would add up for ever.
const RELOADS_KEPT: u64 = 8;

/// Labels of a request's series.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestKey {
    /// Listener's name.
    pub listener: Arc<str>,
    /// Route's name; "" if none was found.
    pub route: Arc<str>,
    /// Pool's name; "" if the request went to none.
    pub pool: Arc<str>,
    /// The picked backend's version; "" if it has none or none was picked.
    pub version: Arc<str>,
}

#[derive(Debug)]
struct Kept<T> {
    /// The last registration that named it.
    named: u64,
    slots: Arc<Slots<T>>,
}

type Named<T> = (Arc<str>, Arc<Slots<T>>);
type Pair = (Arc<str>, Arc<str>);

#[derive(Debug, Default)]
pub(super) struct Registry {
    registrations: u64,
    listeners: BTreeMap<Arc<str>, Kept<ListenerCells>>,
    routes: BTreeMap<Arc<str>, u64>,
    pools: BTreeMap<Pair, Kept<PoolCells>>,
    requests: BTreeMap<RequestKey, Arc<Slots<RequestCells>>>,
    backends: BTreeMap<Pair, Arc<Slots<BackendCells>>>,
}

/// Pointers to all cells at one moment, by label.
#[derive(Debug)]
pub struct Totals {
    pub(crate) listeners: BTreeMap<Arc<str>, Arc<Slots<ListenerCells>>>,
    pub(crate) pools: BTreeMap<Pair, Arc<Slots<PoolCells>>>,
    pub(crate) requests: BTreeMap<RequestKey, Arc<Slots<RequestCells>>>,
    pub(crate) backends: BTreeMap<Pair, Arc<Slots<BackendCells>>>,
}

/// What a listener has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListenerTotals {
    /// Client connections that are open.
    pub connections: u64,
    /// Client connections accepted and served.
    pub connections_accepted: u64,
    /// Requests that have ended.
    pub requests: u64,
    /// Requests that have begun and not ended.
    pub requests_in_flight: u64,
}

/// What a pool's version has counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolTotals {
    /// Requests that reached nothing.
    pub unreached: u64,
    /// Requests that a retry saved from that.
    pub rescued: u64,
    /// Tries beyond a request's first.
    pub retries: u64,
    /// Of each try that got a response head.
    pub latency: Merged,
}

/// What a backend has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackendTotals {
    /// Tries at it.
    pub requests: u64,
    /// Tries that failed, and answers with a status of 500 or more.
    pub failures: u64,
}

impl Totals {
    /// Sums of the listener of this name; zeros if it is not known.
    pub fn listener(&self, name: &str) -> ListenerTotals {
        let mut totals = ListenerTotals::default();
        let (mut started, mut closed) = (0, 0u64);
        for cells in self
            .listeners
            .get(name)
            .iter()
            .flat_map(|slots| slots.made())
        {
            totals.connections_accepted += cells.connections_accepted.get();
            closed += cells.connections_closed.get();
            started += cells.requests_started.get();
            totals.requests += cells.requests_finished.get();
        }
        totals.connections = totals.connections_accepted.saturating_sub(closed);
        totals.requests_in_flight = u64::saturating_sub(started, totals.requests);
        totals
    }

    /// Sums of a pool's version, "" for requests that no backend was picked for.
    pub fn pool(&self, pool: &Arc<str>, version: &Arc<str>) -> PoolTotals {
        let mut totals = PoolTotals::default();
        let sum = |counters: &[Counter]| counters.iter().map(Counter::get).sum::<u64>();
        for cells in self
            .pools
            .get(&(pool.clone(), version.clone()))
            .iter()
            .flat_map(|slots| slots.made())
        {
            totals.unreached += sum(&cells.unreached);
            totals.rescued += sum(&cells.rescued);
            totals.retries += sum(&cells.retries);
            totals.latency.add(&cells.latency);
        }
        totals
    }

    /// Sums of a backend.
    pub fn backend(&self, pool: &Arc<str>, key: &Arc<str>) -> BackendTotals {
        let mut totals = BackendTotals::default();
        for cells in self
            .backends
            .get(&(pool.clone(), key.clone()))
            .iter()
            .flat_map(|slots| slots.made())
        {
            totals.requests += cells.requests.get();
            totals.failures += cells.failures.get();
        }
        totals
    }
}

impl Registry {
    pub(super) fn begin(&mut self) {
        self.registrations += 1;
    }

    pub(super) fn route(&mut self, name: &Arc<str>) {
        self.routes.insert(name.clone(), self.registrations);
    }

    /// The snapshot's listeners by index, then those of earlier snapshots that may still have connections,
    /// then "".
    pub(super) fn listeners(
        &mut self,
        snapshot: &Snapshot,
        workers: usize,
    ) -> Vec<Named<ListenerCells>> {
        let now = self.registrations;
        let mut listeners: Vec<_> = snapshot
            .listeners
            .iter()
            .map(|listener| listener.name.clone())
            .collect();
        listeners.push(Arc::from(""));
        let mut named: Vec<_> = listeners
            .into_iter()
            .map(|name| (name.clone(), keep(&mut self.listeners, name, now, workers)))
            .collect();
        let unknown = named.pop();
        let earlier = self.listeners.iter().filter(|(_, kept)| kept.named < now);
        named.extend(earlier.map(|(name, kept)| (name.clone(), kept.slots.clone())));
        named.extend(unknown);
        named
    }

    pub(super) fn pool(
        &mut self,
        pool: &Arc<str>,
        version: &Arc<str>,
        workers: usize,
    ) -> Arc<Slots<PoolCells>> {
        keep(
            &mut self.pools,
            (pool.clone(), version.clone()),
            self.registrations,
            workers,
        )
    }

    pub(super) fn request(&mut self, key: RequestKey, workers: usize) -> Arc<Slots<RequestCells>> {
        self.requests
            .entry(key)
            .or_insert_with(|| Arc::new(Slots::new(workers)))
            .clone()
    }

    pub(super) fn backend(
        &mut self,
        pool: &str,
        key: &str,
        workers: usize,
    ) -> Arc<Slots<BackendCells>> {
        let key = (Arc::from(pool), Arc::from(key));
        self.backends
            .entry(key)
            .or_insert_with(|| Arc::new(Slots::new(workers)))
            .clone()
    }

    /// Forgets what has not been named for [`RELOADS_KEPT`] reloads. Workers that still hold cells of it
    /// count into the void.
    pub(super) fn retire(&mut self) {
        let oldest = self.registrations.saturating_sub(RELOADS_KEPT);
        self.listeners.retain(|_, kept| kept.named >= oldest);
        self.routes.retain(|_, named| *named >= oldest);
        self.pools.retain(|_, kept| kept.named >= oldest);
        self.requests.retain(|key, _| {
            self.listeners.contains_key(&key.listener)
                && (key.route.is_empty() || self.routes.contains_key(&key.route))
                && self
                    .pools
                    .contains_key(&(key.pool.clone(), key.version.clone()))
        });
    }

    /// Forgets backends that are no members any more. Names change without a reload, so a scrape does it.
    pub(super) fn retain_backends(&mut self, members: &BTreeSet<Pair>) {
        self.backends.retain(|key, _| members.contains(key));
    }

    pub(super) fn totals(&self) -> Totals {
        Totals {
            listeners: slots(&self.listeners),
            pools: slots(&self.pools),
            requests: self.requests.clone(),
            backends: self.backends.clone(),
        }
    }
}

fn slots<K: Ord + Clone, T>(map: &BTreeMap<K, Kept<T>>) -> BTreeMap<K, Arc<Slots<T>>> {
    map.iter()
        .map(|(key, kept)| (key.clone(), kept.slots.clone()))
        .collect()
}

fn keep<K: Ord, T: Default>(
    map: &mut BTreeMap<K, Kept<T>>,
    key: K,
    now: u64,
    workers: usize,
) -> Arc<Slots<T>> {
    let kept = map.entry(key).or_insert_with(|| Kept {
        named: now,
        slots: Arc::new(Slots::new(workers)),
    });
    kept.named = now;
    kept.slots.clone()
}

//! Cells by label, kept over reloads.
//!
//! Workers come here once for each series, never once for each request. A scrape copies the pointers
//! under the lock and adds up outside it, so that a worker never waits for a scrape's text.

use super::{BackendCells, ListenerCells, PoolCells, RequestCells, Slots};
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

/// Pointers to all cells at one moment, sorted by label.
#[derive(Debug)]
pub struct Totals {
    pub(crate) listeners: Vec<(Arc<str>, Arc<Slots<ListenerCells>>)>,
    pub(crate) pools: Vec<(Pair, Arc<Slots<PoolCells>>)>,
    pub(crate) requests: Vec<(RequestKey, Arc<Slots<RequestCells>>)>,
    pub(crate) backends: BTreeMap<Pair, Arc<Slots<BackendCells>>>,
}

impl Registry {
    pub(super) fn begin(&mut self) {
        self.registrations += 1;
    }

    pub(super) fn route(&mut self, name: &Arc<str>) {
        self.routes.insert(name.clone(), self.registrations);
    }

    pub(super) fn listener(
        &mut self,
        name: &Arc<str>,
        workers: usize,
    ) -> Arc<Slots<ListenerCells>> {
        keep(
            &mut self.listeners,
            name.clone(),
            self.registrations,
            workers,
        )
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
            listeners: self
                .listeners
                .iter()
                .map(|(name, kept)| (name.clone(), kept.slots.clone()))
                .collect(),
            pools: self
                .pools
                .iter()
                .map(|(key, kept)| (key.clone(), kept.slots.clone()))
                .collect(),
            requests: self
                .requests
                .iter()
                .map(|(key, slots)| (key.clone(), slots.clone()))
                .collect(),
            backends: self.backends.clone(),
        }
    }
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

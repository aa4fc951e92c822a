//! Counters by worker, their labels, and the hot path's entry points.
//!
//! A set of label values has [`Slots`]: a cell for each worker, made when that worker first counts.
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

mod registry;

pub use registry::{BackendTotals, ListenerTotals, PoolTotals, RequestKey, Totals};

use super::cause::{Cause, ConnectionRefusal, ReloadResult, RetryCause};
use super::histogram::Histogram;
use crate::snapshot::Snapshot;
use crate::snapshot::route::Action;
use registry::Registry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// Versions of one pool that get series of their own; the rest share [`OTHER_VERSIONS`]. Bounds what
/// histograms can cost when every backend has a version of its own.
pub const VERSIONS_MAX: usize = 32;

/// The label value for versions beyond [`VERSIONS_MAX`].
pub const OTHER_VERSIONS: &str = "other";

/// A counter with one writer, so that counting needs no locked instruction. A second thread that
/// writes would lose counts. Any thread may read.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Zero.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds `count`.
    #[inline]
    pub fn add(&self, count: u64) {
        self.0.store(
            self.0.load(Ordering::Relaxed).wrapping_add(count),
            Ordering::Relaxed,
        );
    }

    /// Takes `count` away: for gauges. One worker's part may pass below zero, the sum does not.
    #[inline]
    pub fn sub(&self, count: u64) {
        self.0.store(
            self.0.load(Ordering::Relaxed).wrapping_sub(count),
            Ordering::Relaxed,
        );
    }

    /// The value.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A cell for each worker, made when it first counts; on lines of its own, so that workers share none.
#[derive(Debug)]
pub(crate) struct Slots<T>(Box<[OnceLock<Box<Padded<T>>>]>);

#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded<T>(T);

impl<T: Default> Slots<T> {
    fn new(workers: usize) -> Self {
        Self((0..workers).map(|_| OnceLock::new()).collect())
    }

    #[inline]
    fn of(&self, worker: usize) -> &T {
        &self.0[worker].get_or_init(Box::default).0
    }

    /// The cells of the workers that have counted.
    pub(crate) fn made(&self) -> impl Iterator<Item = &T> {
        self.0
            .iter()
            .filter_map(|slot| slot.get().map(|cell| &cell.0))
    }
}

/// What is counted for a listener.
#[derive(Debug, Default)]
pub struct ListenerCells {
    /// Connections accepted and served.
    pub connections_accepted: Counter,
    /// Connections of those that have ended. The difference is what is open.
    pub connections_closed: Counter,
    pub(crate) refused: [Counter; ConnectionRefusal::COUNT],
    pub(crate) requests_started: Counter,
    pub(crate) requests_finished: Counter,
    pub(crate) bytes_in: Counter,
    pub(crate) bytes_out: Counter,
    pub(crate) duration: Histogram,
}

impl ListenerCells {
    /// A request's head has been read.
    #[inline]
    pub fn started(&self) {
        self.requests_started.add(1);
    }

    /// A connection was not served.
    pub fn refused(&self, why: ConnectionRefusal) {
        self.refused[why as usize].add(1);
    }
}

/// What is counted for a (listener, route, pool, version): requests by class of status.
#[derive(Debug, Default)]
pub struct RequestCells {
    pub(crate) classes: [Counter; 6],
}

/// What is counted for a (pool, version).
#[derive(Debug, Default)]
pub struct PoolCells {
    /// From the request's last byte to the end of the response head, of each try that got one.
    pub latency: Histogram,
    /// Connections to backends opened.
    pub connections_opened: Counter,
    /// Requests sent on a connection that was used before.
    pub connections_reused: Counter,
    /// Connections to backends closed.
    pub connections_closed: Counter,
    /// Connections that wait for a request; `add` and `sub`.
    pub connections_idle: Counter,
    pub(crate) retries: [Counter; RetryCause::COUNT],
    pub(crate) unreached: [Counter; Cause::COUNT],
    pub(crate) rescued: [Counter; Cause::COUNT],
}

impl PoolCells {
    /// A request is tried again.
    #[inline]
    pub fn retried(&self, cause: RetryCause) {
        self.retries[cause as usize].add(1);
    }

    /// A request reached nothing: once for each request, when it is given up.
    #[inline]
    pub fn unreached(&self, cause: Cause) {
        self.unreached[cause as usize].add(1);
    }

    /// A request that would have been unreached was saved by a retry.
    #[inline]
    pub fn rescued(&self, cause: Cause) {
        self.rescued[cause as usize].add(1);
    }
}

/// What is counted for a backend: counters only, since there may be 10,000.
#[derive(Debug, Default)]
pub struct BackendCells {
    /// Tries sent to it, or that failed on the way to it.
    pub requests: Counter,
    /// Tries that failed, and answers with a status of 500 or more.
    pub failures: Counter,
}

/// One worker's counters that have no label but a code.
#[derive(Debug, Default)]
struct OwnCells {
    /// Answers that Mizan made, by reason and status. Only its worker and the scraper take the lock.
    answers: Mutex<BTreeMap<(&'static str, u16), u64>>,
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
        })
    }

    /// The table of `snapshot`'s series. Series of the same label values go on counting.
    pub fn register(self: &Arc<Self>, snapshot: &Snapshot) -> Arc<Series> {
        let mut registry = self.registry();
        registry.begin();
        let none: Arc<str> = Arc::from("");
        let mut pools = Vec::with_capacity(snapshot.pools.len());
        let mut destinations = vec![registry.pool(&none, &none, self.workers)];
        for pool in snapshot.pools.values() {
            let first = destinations.len();
            let versions = labels_of(&pool.versions);
            for version in &versions {
                destinations.push(registry.pool(&pool.name, version, self.workers));
            }
            pools.push(PoolPlace {
                address: Arc::as_ptr(pool).addr(),
                name: pool.name.clone(),
                versions,
                first,
            });
        }
        pools.sort_unstable_by_key(|pool| pool.address);
        let (routes, row_length) = routes_of(snapshot, &pools);
        routes.iter().for_each(|route| registry.route(&route.name));
        let listeners = registry
            .listeners(snapshot, self.workers)
            .into_iter()
            .map(|(name, cells)| ListenerPlace {
                name,
                cells,
                row: OnceLock::new(),
            })
            .collect();
        registry.retire();
        drop(registry);
        Arc::new(Series {
            metrics: self.clone(),
            listeners,
            routes,
            row_length,
            pools,
            destinations,
        })
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

/// One worker's hold on a backend's counters.
#[derive(Debug)]
pub struct BackendCounter {
    slots: Arc<Slots<BackendCells>>,
    worker: usize,
}

impl std::ops::Deref for BackendCounter {
    type Target = BackendCells;

    #[inline]
    fn deref(&self) -> &BackendCells {
        self.slots.of(self.worker)
    }
}

/// One snapshot's series by position.
#[derive(Debug)]
pub struct Series {
    metrics: Arc<Metrics>,
    /// The snapshot's by index, then those of earlier ones, then "".
    listeners: Vec<ListenerPlace>,
    routes: Vec<RoutePlace>,
    /// Places in a listener's row: one for no route, then those of each route.
    row_length: usize,
    /// By address, for binary search.
    pools: Vec<PoolPlace>,
    /// Cells by (pool, version); the first are of no pool.
    destinations: Vec<Arc<Slots<PoolCells>>>,
}

type Row = Box<[OnceLock<Arc<Slots<RequestCells>>>]>;

#[derive(Debug)]
struct ListenerPlace {
    name: Arc<str>,
    cells: Arc<Slots<ListenerCells>>,
    /// Made with the first request: most of a large table is never counted in.
    row: OnceLock<Row>,
}

#[derive(Debug)]
struct RoutePlace {
    name: Arc<str>,
    /// The place of this route with no pool; those of its pools' versions follow.
    first: usize,
    /// Index in [`Series::pools`] and first place of each pool that the route names.
    pools: Vec<(usize, usize)>,
}

#[derive(Debug)]
struct PoolPlace {
    /// Address of the snapshot's pool: a key, never followed.
    address: usize,
    name: Arc<str>,
    /// The first is "": a request for which no backend was picked.
    versions: Vec<Arc<str>>,
    /// Index in [`Series::destinations`] of the first version.
    first: usize,
}

/// Where a request is counted: found once for each try, then a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    in_row: u32,
    destination: u32,
}

impl Place {
    /// A request for which no route was found.
    pub const NOWHERE: Self = Self {
        in_row: 0,
        destination: 0,
    };
}

impl Series {
    /// What a worker counts with. `index` is below the number of workers.
    pub fn worker(self: &Arc<Self>, index: usize) -> WorkerSeries {
        assert!(
            index < self.metrics.workers,
            "a worker that the metrics were not made for"
        );
        WorkerSeries {
            series: self.clone(),
            worker: index,
        }
    }

    /// Route, pool and version of a place in a row: the reverse of [`WorkerSeries::place`].
    fn labels(&self, in_row: usize) -> (Arc<str>, Arc<str>, Arc<str>) {
        let none: Arc<str> = Arc::from("");
        let Some(route) = self.routes.iter().rev().find(|route| route.first <= in_row) else {
            return (none.clone(), none.clone(), none);
        };
        match route.pools.iter().rev().find(|(_, first)| *first <= in_row) {
            None => (route.name.clone(), none.clone(), none),
            Some(&(pool, first)) => {
                let pool = &self.pools[pool];
                (
                    route.name.clone(),
                    pool.name.clone(),
                    pool.versions[in_row - first].clone(),
                )
            }
        }
    }

    #[cold]
    fn open(&self, listener: usize, in_row: usize) -> Arc<Slots<RequestCells>> {
        let (route, pool, version) = self.labels(in_row);
        let key = RequestKey {
            listener: self.listeners[listener].name.clone(),
            route,
            pool,
            version,
        };
        self.metrics.registry().request(key, self.metrics.workers)
    }
}

/// One worker's view of a [`Series`]: everything that the data path counts.
#[derive(Clone, Debug)]
pub struct WorkerSeries {
    series: Arc<Series>,
    worker: usize,
}

/// A request that has ended, whatever came of it. Its [`ListenerCells::started`] was called before.
#[derive(Clone, Copy, Debug)]
pub struct Finished {
    /// [`WorkerSeries::listener_index`].
    pub listener: usize,
    /// The last try's place.
    pub place: Place,
    /// What the client was sent; 0 if it was sent nothing.
    pub status: u16,
    /// The reason code when Mizan made the answer itself.
    pub reason: Option<&'static str>,
    /// From the request's first byte to the answer's last.
    pub duration: Duration,
    /// Bytes read from the client for this request, head and body.
    pub bytes_in: u64,
    /// Bytes written to the client for this request, head and body.
    pub bytes_out: u64,
}

impl WorkerSeries {
    /// Counters of the listener with this index.
    #[inline]
    pub fn listener(&self, index: usize) -> &ListenerCells {
        self.series.listeners[index].cells.of(self.worker)
    }

    /// The index of the listener of this name, for connections that were accepted under an earlier
    /// snapshot: there its position was another, and here it may be gone. A name that no recent
    /// configuration had is counted under "".
    pub fn listener_index(&self, name: &str) -> usize {
        let listeners = &self.series.listeners;
        listeners
            .iter()
            .position(|listener| *listener.name == *name)
            .unwrap_or(listeners.len() - 1)
    }

    /// Where a request is counted. `route` is [`crate::snapshot::route::Route::index`]; `version` is the
    /// picked backend's, "" while none is picked.
    #[inline]
    pub fn place(
        &self,
        route: Option<usize>,
        pool: Option<&Arc<crate::snapshot::Pool>>,
        version: &str,
    ) -> Place {
        let series = &*self.series;
        let Some(route) = route.and_then(|route| series.routes.get(route)) else {
            return Place::NOWHERE;
        };
        let address = pool.map_or(0, |pool| Arc::as_ptr(pool).addr());
        let found = route
            .pools
            .iter()
            .find(|(pool, _)| series.pools[*pool].address == address);
        let Some(&(pool, first)) = found else {
            return Place {
                in_row: route.first as u32,
                destination: 0,
            };
        };
        let pool = &series.pools[pool];
        let version = pool.version(version);
        Place {
            in_row: (first + version) as u32,
            destination: (pool.first + version) as u32,
        }
    }

    /// The place of a pool outside any route: connections that are opened or closed for no request.
    pub fn pool_place(&self, pool: &Arc<crate::snapshot::Pool>, version: &str) -> Place {
        let address = Arc::as_ptr(pool).addr();
        match self
            .series
            .pools
            .binary_search_by_key(&address, |pool| pool.address)
        {
            Err(_) => Place::NOWHERE,
            Ok(at) => {
                let pool = &self.series.pools[at];
                Place {
                    in_row: 0,
                    destination: (pool.first + pool.version(version)) as u32,
                }
            }
        }
    }

    /// Counters of the place's pool and version.
    #[inline]
    pub fn pool(&self, place: Place) -> &PoolCells {
        self.series.destinations[place.destination as usize].of(self.worker)
    }

    /// A request has ended: once for each request.
    #[inline]
    pub fn finished(&self, finished: &Finished) {
        let listener = self.listener(finished.listener);
        listener.requests_finished.add(1);
        listener.bytes_in.add(finished.bytes_in);
        listener.bytes_out.add(finished.bytes_out);
        listener.duration.record(finished.duration);
        self.request(finished.listener, finished.place).classes[class(finished.status)].add(1);
        if let Some(reason) = finished.reason {
            self.answered(reason, finished.status);
        }
    }

    #[inline]
    fn request(&self, listener: usize, place: Place) -> &RequestCells {
        let series = &*self.series;
        let in_row = place.in_row as usize;
        let row = series.listeners[listener]
            .row
            .get_or_init(|| (0..series.row_length).map(|_| OnceLock::new()).collect());
        row[in_row]
            .get_or_init(|| series.open(listener, in_row))
            .of(self.worker)
    }

    fn answered(&self, reason: &'static str, status: u16) {
        let own = &self.series.metrics.own[self.worker].0;
        let mut answers = own.answers.lock().unwrap_or_else(PoisonError::into_inner);
        *answers.entry((reason, status)).or_default() += 1;
    }
}

impl PoolPlace {
    /// Position of a version; one that is not known is counted with the last.
    #[inline]
    fn version(&self, version: &str) -> usize {
        if version.is_empty() {
            return 0;
        }
        self.versions
            .iter()
            .position(|known| **known == *version)
            .unwrap_or(self.versions.len() - 1)
    }
}

/// "" first, then the versions that get series of their own.
fn labels_of(versions: &[Arc<str>]) -> Vec<Arc<str>> {
    let mut labels: Vec<Arc<str>> = vec![Arc::from("")];
    labels.extend(
        versions
            .iter()
            .filter(|version| !version.is_empty())
            .take(VERSIONS_MAX)
            .cloned(),
    );
    if versions
        .iter()
        .filter(|version| !version.is_empty())
        .count()
        > VERSIONS_MAX
    {
        labels.push(Arc::from(OTHER_VERSIONS));
    }
    labels
}

/// The routes' places in a row, by route index, and the row's length.
fn routes_of(snapshot: &Snapshot, pools: &[PoolPlace]) -> (Vec<RoutePlace>, usize) {
    let mut next = 1;
    let mut in_order: Vec<_> = snapshot.routes.routes().iter().collect();
    in_order.sort_unstable_by_key(|route| route.index);
    let mut routes = Vec::with_capacity(in_order.len());
    for route in in_order {
        // An index that no route has takes no place.
        routes.resize_with(route.index, || RoutePlace {
            name: Arc::from(""),
            first: next,
            pools: Vec::new(),
        });
        let mut place = RoutePlace {
            name: route.name.clone(),
            first: next,
            pools: Vec::new(),
        };
        next += 1;
        if let Action::Forward(split) = &route.action {
            for (pool, _) in &split.pools {
                let address = Arc::as_ptr(pool).addr();
                let Ok(at) = pools.binary_search_by_key(&address, |pool| pool.address) else {
                    continue;
                };
                place.pools.push((at, next));
                next += pools[at].versions.len();
            }
        }
        routes.push(place);
    }
    (routes, next)
}

/// 1 to 5 for 1xx to 5xx, 0 for no answer.
#[inline]
fn class(status: u16) -> usize {
    (usize::from(status) / 100).min(5)
}

#[cfg(test)]
mod tests;

//! One snapshot's series by position: what the data path counts with.

use super::cells::{ListenerCells, OpenConnection, PoolCells, RequestCells, Slots};
use super::{Metrics, RequestKey};
use crate::snapshot::{Pool, Snapshot};
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Duration;

/// Versions of one pool that get series of their own; the rest share [`OTHER_VERSIONS`]. Bounds what
/// histograms can cost when every backend has a version of its own.
pub const VERSIONS_MAX: usize = 32;

/// The label value for versions beyond [`VERSIONS_MAX`].
pub const OTHER_VERSIONS: &str = "other";

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
    pub(super) in_row: u32,
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
    pub(super) fn new(metrics: &Arc<Metrics>, snapshot: &Snapshot) -> Self {
        let mut registry = metrics.registry();
        registry.begin();
        let none: Arc<str> = Arc::from("");
        let mut pools = Vec::with_capacity(snapshot.pools.len());
        let mut destinations = vec![registry.pool(&none, &none, metrics.workers)];
        for pool in snapshot.pools.values() {
            let first = destinations.len();
            let versions = labels_of(&pool.versions);
            for version in &versions {
                destinations.push(registry.pool(&pool.name, version, metrics.workers));
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
            .listeners(snapshot, metrics.workers)
            .into_iter()
            .map(|(name, cells)| ListenerPlace {
                name,
                cells,
                row: OnceLock::new(),
            })
            .collect();
        registry.retire();
        drop(registry);
        Self {
            metrics: Arc::clone(metrics),
            listeners,
            routes,
            row_length,
            pools,
            destinations,
        }
    }

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
    pub(super) fn labels(&self, in_row: usize) -> (Arc<str>, Arc<str>, Arc<str>) {
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
    pub fn place(&self, route: Option<usize>, pool: Option<&Arc<Pool>>, version: &str) -> Place {
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

    /// The place of a pool outside any route: for connections that a listener hands to it unread.
    pub fn pool_place(&self, pool: &Arc<Pool>, version: &str) -> Place {
        let series = &*self.series;
        let address = Arc::as_ptr(pool).addr();
        let pools = &series.pools;
        let Ok(at) = pools.binary_search_by_key(&address, |pool| pool.address) else {
            return Place::NOWHERE;
        };
        let (pool, version) = (&pools[at], pools[at].version(version));
        let handed = series.routes.last().into_iter();
        let mut handed = handed.flat_map(|listeners| &listeners.pools);
        let first = handed.find(|(pool, _)| *pool == at).map(|(_, first)| first);
        Place {
            in_row: first.map_or(0, |first| (first + version) as u32),
            destination: (pool.first + version) as u32,
        }
    }

    /// A connection to a backend has been opened.
    pub fn connection_opened(&self, place: Place) -> OpenConnection {
        let slots = Arc::clone(&self.series.destinations[place.destination as usize]);
        OpenConnection::new(slots, self.worker)
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
    /// Position of a version. One that is not known (a reload has just given it to a backend) is counted
    /// with the other versions if there are such, else with none.
    #[inline]
    fn version(&self, version: &str) -> usize {
        let versions = &self.versions;
        let known = versions.iter().position(|known| **known == *version);
        known.unwrap_or_else(|| {
            versions
                .iter()
                .position(|known| **known == *OTHER_VERSIONS)
                .unwrap_or(0)
        })
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

/// The routes' places in a row, by route index, and the row's length. What listeners hand to pools without a route
/// stands last, as a route without a name.
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
        for split in route.splits() {
            let chosen = split.pools.iter().map(|(pool, _)| pool);
            for pool in chosen.chain(&split.fallback) {
                place.add(pool, pools, &mut next);
            }
        }
        routes.push(place);
    }
    let mut handed = RoutePlace {
        name: Arc::from(""),
        first: next,
        pools: Vec::new(),
    };
    next += 1;
    for pool in snapshot.handed_pools() {
        handed.add(pool, pools, &mut next);
    }
    routes.push(handed);
    (routes, next)
}

impl RoutePlace {
    /// Gives each version of `pool` a place, from `next` on.
    fn add(&mut self, pool: &Arc<Pool>, pools: &[PoolPlace], next: &mut usize) {
        let address = Arc::as_ptr(pool).addr();
        if let Ok(at) = pools.binary_search_by_key(&address, |pool| pool.address) {
            self.pools.push((at, *next));
            *next += pools[at].versions.len();
        }
    }
}

/// 1 to 5 for 1xx to 5xx, 0 for no answer.
#[inline]
fn class(status: u16) -> usize {
    (usize::from(status) / 100).min(5)
}

//! The compiled configuration: the only place where `config` and `proxy` meet.
//!
//! A [`Snapshot`] is whole and never changes. A request takes the one in force once and keeps it to its
//! end. [`Current`] is the pointer that a reload swaps. What lives longer than a snapshot (health,
//! counts, latencies) is in [`mizan_core::pool::Pool`], which snapshots share by the pool's name.

mod discovery;
mod explained;
mod listener;
mod pool;
mod region;
pub mod route;
mod settings;
mod tls;

pub use discovery::{Discovery, Origin, OriginState};
pub use explained::{Answer, AskError, Asked, Explained, Offered, Picked, Seen};
pub use listener::{
    Bind, ClientTimeouts, Datagrams, HeadLimits, Http2, Listener, ListenerKind, MinRate, Networks,
    Passthrough, Ping, ProxyHeader,
};
pub use pool::{
    Configured, HashKey, HealthCheck, Http2Upstream, Keepalive, LoadProbes, LoadReports, Pool,
    ProbeKind, Protocol, ProxyVersion, Queue, ReportCounts, Retry, RetryOn, StatusSet,
    UpstreamTimeouts, Waiters, Waiting,
};
pub use region::{Regions, SettingHeaders, Varying};
pub use settings::{
    AccessLog, AdminBind, DrainSettings, LogTarget, Settings, StoreAddress, StoreSettings, StoreTls,
};
pub use tls::{
    Certificate, CertificateChoice, ClientAuth, ClientAuthMode, ClientTls, ClientTrust,
    IdentityHeaders, KeyChoice, MadeOf, ServerTls, Tickets, is_reserved,
};

use arc_swap::ArcSwap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// One compiled configuration.
#[derive(Debug)]
pub struct Snapshot {
    /// Counts up by one with each configuration that came into force, from 1.
    pub generation: u64,
    /// SHA-256-free content digest of the source text (64-bit, hex in the API): tells two configurations apart.
    pub digest: u64,
    /// Listeners in the order of the file.
    pub listeners: Vec<Arc<Listener>>,
    /// Pools by name.
    pub pools: BTreeMap<Arc<str>, Arc<Pool>>,
    /// All routes, compiled for lookup.
    pub routes: route::RouteTable,
    /// How a request's region is known, where it may be another than the balancer's own.
    pub regions: Regions,
    /// Process-wide settings.
    pub settings: Settings,
}

impl Snapshot {
    /// Whether a listener's ticket keys come from the store.
    pub fn wants_ticket_keys(&self) -> bool {
        let tickets = |it: &Arc<Listener>| it.tls.as_ref()?.tickets.clone();
        let mut tickets = self.listeners.iter().filter_map(tickets);
        tickets.any(|tickets| tickets.is_shared_by_store)
    }

    /// The pools that listeners hand connections to without asking a route, each once.
    pub fn handed_pools(&self) -> Vec<&Arc<Pool>> {
        let names = self
            .listeners
            .iter()
            .flat_map(|listener| listener.pool_names());
        let names: std::collections::BTreeSet<_> = names.collect();
        names
            .into_iter()
            .filter_map(|name| self.pools.get(name))
            .collect()
    }
}

/// The snapshot in force.
#[derive(Debug)]
pub struct Current {
    snapshot: ArcSwap<Snapshot>,
}

impl Current {
    /// Starts with `snapshot`.
    pub fn new(snapshot: Arc<Snapshot>) -> Self {
        Self {
            snapshot: ArcSwap::new(snapshot),
        }
    }

    /// The snapshot in force. Cheap, but not for each request: a worker keeps its own copy and asks
    /// [`Current::is`] whether that is still the one.
    pub fn load(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// Whether `snapshot` is still the one in force: one load, no reference count.
    pub fn is(&self, snapshot: &Arc<Snapshot>) -> bool {
        std::ptr::eq(Arc::as_ptr(&self.snapshot.load()), Arc::as_ptr(snapshot))
    }

    /// Puts `snapshot` into force.
    pub fn publish(&self, snapshot: Arc<Snapshot>) {
        self.snapshot.store(snapshot);
    }
}

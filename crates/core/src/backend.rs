//! Who a backend is, and its live load.
//!
//! A [`Backend`] is a member as configured plus its live state: requests in flight, latency, failure
//! penalty, gate. The live state outlives every reload that keeps the backend's key and address; a
//! new version label makes a new `Backend` over the *same* live state, so that requests that began
//! under the old label still count under it.

use std::fmt;
use std::hint::cold_path;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::availability::Gate;
use crate::pool::shared::Shared;
use crate::spread::Place;
use crate::time::Instant;

pub(crate) mod live;
pub(crate) mod load;
pub(crate) mod peak;
pub(crate) mod told;

use live::Live;

/// Where a backend listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// TCP.
    Ip(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// What configuration says of one backend.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// Identity in the pool: `10.0.0.1:8080`, or `api.local:80/10.0.0.7`. Of two members with one
    /// key the first is taken.
    pub key: Arc<str>,
    /// Where it listens.
    pub address: Address,
    /// Share of traffic, `1..=65535`. 0: never picked. More is read as 65535.
    pub weight: u32,
    /// What runs there, for deploys; empty if not said.
    pub version: Arc<str>,
    /// Most requests in flight at a time; `None` for no limit.
    pub in_flight_max: Option<u32>,
    /// Its tier and its zone.
    pub place: Place,
}

/// The largest weight.
pub(crate) const WEIGHT_MAX: u32 = 65_535;

/// One backend of a pool.
// In this order, because the counts of the `Arc` lie just before it: a claim then touches one or two
// neighbouring cache lines, and no line of another backend.
#[repr(C)]
pub struct Backend {
    /// Whose live state this shares, if not its own.
    root: Option<Arc<Backend>>,
    shared: Arc<Shared>,
    live: Live,
    id: u64,
    key: Arc<str>,
    version: Arc<str>,
    address: Address,
}

impl Backend {
    pub(crate) fn new(id: u64, member: &Member, shared: Arc<Shared>) -> Self {
        Self {
            root: None,
            live: Live::new(member.weight, member.in_flight_max),
            id,
            key: Arc::clone(&member.key),
            version: Arc::clone(&member.version),
            address: member.address.clone(),
            shared,
        }
    }

    /// The same backend with live state of its own.
    pub(crate) fn copy(&self, shared: Arc<Shared>) -> Self {
        Self {
            root: None,
            live: self.live().copy(),
            id: self.id,
            key: Arc::clone(&self.key),
            version: Arc::clone(&self.version),
            address: self.address.clone(),
            shared,
        }
    }

    /// The same backend under another version label.
    pub(crate) fn relabelled(this: &Arc<Self>, version: &Arc<str>) -> Self {
        let root = this.root.as_ref().unwrap_or(this);
        Self {
            root: Some(Arc::clone(root)),
            live: Live::new(0, None),
            id: this.id,
            key: Arc::clone(&this.key),
            version: Arc::clone(version),
            address: this.address.clone(),
            shared: Arc::clone(&this.shared),
        }
    }

    /// Identity in the pool.
    pub fn key(&self) -> &Arc<str> {
        &self.key
    }

    /// Where it listens.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// What runs there; empty if not said.
    pub fn version(&self) -> &Arc<str> {
        &self.version
    }

    /// Its share of traffic as configured, `0..=65535`.
    pub fn weight(&self) -> u32 {
        self.live().nominal_weight()
    }

    /// Requests in flight.
    pub fn in_flight(&self) -> u32 {
        self.live().in_flight()
    }

    /// Unique in this process and never used again. A backend keeps it while its key and address
    /// stay, so connections to it may be filed under it.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Whether nothing speaks against picking it, its limit of requests in flight apart. Others may be
    /// asked before it.
    pub fn is_usable(&self) -> bool {
        let speaks_against = self.shared.mask().without(Gate::KEPT_BACK);
        !self.live().gate.load().has(speaks_against)
    }

    /// Whether probes of it say anything that matters: not outside of the part of the pool that this balancer
    /// sends to, unless it is known to be down, for then it could not be taken in when it is needed.
    pub fn is_worth_probing(&self) -> bool {
        let gate = self.live().gate.load();
        !gate.has(Gate::OUTSIDE) || gate.has(Gate::DOWN)
    }

    /// Latency as the policies see it: decayed to `now`. `None` before the first outcome.
    pub fn latency(&self, now: Instant) -> Option<Duration> {
        self.live().latency.at(now)
    }

    #[inline]
    pub(crate) fn live(&self) -> &Live {
        match &self.root {
            None => &self.live,
            Some(root) => {
                // So that this is a branch, which the processor foresees: else all that follows would wait
                // until `root` is read.
                cold_path();
                &root.live
            }
        }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backend")
            .field("id", &self.id)
            .field("key", &self.key)
            .field("version", &self.version)
            .field("address", &self.address)
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}

/// Ids are drawn from one counter for the whole process, so that two pools never share one.
pub(crate) fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

//! Pools: sets of backends, and how Mizan speaks with them.

use super::discovery::{Discovery, Origin};
use super::listener::Ping;
use super::tls::ClientTls;
use mizan_core::backend::Member;
use mizan_core::pool::{PoolConfig, PrequalConfig};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// A compiled pool. Its live half, `core`, is shared by all snapshots that have a pool of this name.
#[derive(Debug)]
pub struct Pool {
    /// Its name.
    pub name: Arc<str>,
    /// Decisions and live state, carried over reloads.
    pub core: Arc<mizan_core::pool::Pool>,
    /// What `core` is told when this snapshot comes into force.
    pub config: PoolConfig,
    /// The members when this snapshot was compiled (host names: as resolved then).
    pub members: Vec<Member>,
    /// The backends as the file has them: host names among them are resolved again and again.
    pub configured: Vec<Configured>,
    /// What is known of the places that members are learned from; carried over reloads by name.
    pub discovery: Arc<Discovery>,
    /// Distinct versions of its backends, "" for none; the index is the label of traffic metrics.
    pub versions: Vec<Arc<str>>,
    /// Where the hash of a request comes from, for policies and splits that hash.
    pub hash_key: Option<HashKey>,
    /// Active checks.
    pub health: Option<HealthCheck>,
    /// Whom backends tell how much they have to do; `None`: they are not asked.
    pub load_probes: Option<LoadProbes>,
    /// What its backends speak.
    pub protocol: Protocol,
    /// HTTP/2 with its backends.
    pub http2: Http2Upstream,
    /// TLS towards its backends; `None`: plain.
    pub tls: Option<Arc<ClientTls>>,
    /// The PROXY header that begins each connection to a backend; `None`: none.
    pub proxy_protocol: Option<ProxyVersion>,
    /// Time-outs towards backends.
    pub timeouts: UpstreamTimeouts,
    /// Retry rule.
    pub retry: Retry,
    /// Idle connections.
    pub keepalive: Keepalive,
    /// What happens when every usable backend is at its `in_flight_max`.
    pub queue: Queue,
    /// Who waits in the queue now; carried over reloads by name.
    pub waiters: Arc<Waiters>,
}

impl Pool {
    /// Whether members are learned while it runs: a backend is given by its host name, or a list stands elsewhere.
    pub fn is_discovered(&self) -> bool {
        let is_fixed = |backend: &Configured| matches!(backend, Configured::Fixed(_));
        !self.configured.iter().all(is_fixed)
    }
}

/// What backends speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1 (default).
    #[default]
    Http1,
    /// HTTP/2: over TLS by ALPN, without it by prior knowledge.
    Http2,
    /// Whichever the backend chooses by ALPN; with TLS only.
    Auto,
}

/// HTTP/2 with backends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http2Upstream {
    /// What a backend may send on one stream before it is read (default 128 KiB).
    pub window_bytes: u32,
    /// The same for a whole connection (default 16 MiB).
    pub connection_window_bytes: u32,
    /// Whether backends with open streams still live.
    pub ping: Ping,
}

impl Http2Upstream {
    /// Streams at once on a connection: so many that each has its whole window of it, for those whose clients do not
    /// read keep theirs full.
    pub fn streams_max(&self) -> usize {
        (self.connection_window_bytes / self.window_bytes.max(1)).max(1) as usize
    }
}

impl Default for Http2Upstream {
    fn default() -> Self {
        Self {
            window_bytes: 128 << 10,
            connection_window_bytes: 16 << 20,
            ping: Ping::default(),
        }
    }
}

/// A backend as the file has it.
#[derive(Clone, Debug)]
pub enum Configured {
    /// An address: one member.
    Fixed(Member),
    /// A host name: a member for each of its addresses.
    Named {
        /// `host:port` as written.
        name: String,
        /// What its members have in common; its address is never connected to.
        template: Member,
        /// Who is asked; empty: the system's servers.
        servers: Arc<[SocketAddr]>,
        /// Where they may be; empty: anywhere. Others are passed over.
        networks: Arc<[ipnet::IpNet]>,
    },
    /// A list that stands elsewhere: a member for each of its backends.
    Listed {
        /// Where.
        origin: Origin,
        /// Version, zone and most requests in flight of those that say none; its address is never connected to.
        template: Member,
        /// Who is asked for the names in it; empty: the system's servers.
        servers: Arc<[SocketAddr]>,
        /// Where they may be; empty: anywhere. Others are passed over.
        networks: Arc<[ipnet::IpNet]>,
    },
}

impl Configured {
    /// Where its list stands, if it is one.
    pub fn origin(&self) -> Option<&Origin> {
        match self {
            Self::Listed { origin, .. } => Some(origin),
            Self::Fixed(_) | Self::Named { .. } => None,
        }
    }

    /// The member, or what the members of a name have in common.
    pub fn template(&self) -> &Member {
        match self {
            Self::Fixed(member)
            | Self::Named {
                template: member, ..
            }
            | Self::Listed {
                template: member, ..
            } => member,
        }
    }
}

/// The requests that wait for room in a pool, in the order in which they came. Only the first looks for room; it is
/// called when a place is given back.
#[derive(Debug, Default)]
pub struct Waiters {
    /// The length of `line`, for those who only want to know whether anybody waits.
    count: AtomicUsize,
    line: Mutex<Line>,
}

#[derive(Debug, Default)]
struct Line {
    next: u64,
    /// By number, which grows.
    waiting: BTreeMap<u64, Caller>,
}

/// How one who waits is called.
#[derive(Debug, Default)]
struct Caller {
    is_called: bool,
    waker: Option<Waker>,
}

impl Line {
    /// The number of who has waited longest.
    fn first(&self) -> Option<u64> {
        self.waiting.first_key_value().map(|(number, _)| *number)
    }

    fn call_first(&mut self) {
        if let Some(mut first) = self.waiting.first_entry() {
            let first = first.get_mut();
            first.is_called = true;
            if let Some(waker) = first.waker.take() {
                waker.wake();
            }
        }
    }
}

impl Waiters {
    /// A place in the line, given up when dropped; `None` if `requests_max` wait already.
    pub fn enter(&self, requests_max: usize) -> Option<Waiting<'_>> {
        let mut line = self.line();
        if line.waiting.len() >= requests_max {
            return None;
        }
        let number = line.next;
        line.next += 1;
        let is_first = line.waiting.is_empty();
        let caller = Caller {
            // What came free before has called nobody.
            is_called: is_first,
            waker: None,
        };
        line.waiting.insert(number, caller);
        self.count.store(line.waiting.len(), Ordering::SeqCst);
        Some(Waiting {
            waiters: self,
            number,
        })
    }

    /// A place is free: who has waited longest looks for it.
    pub fn wake(&self) {
        if self.count() > 0 {
            self.line().call_first();
        }
    }

    /// How many wait.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in a pool's line.
#[derive(Debug)]
pub struct Waiting<'w> {
    waiters: &'w Waiters,
    number: u64,
}

impl Waiting<'_> {
    /// Ready when this one was called; each call is told once.
    pub fn poll_called(&self, cx: &Context<'_>) -> Poll<()> {
        let mut line = self.waiters.line();
        let Some(caller) = line.waiting.get_mut(&self.number) else {
            return Poll::Ready(());
        };
        if std::mem::take(&mut caller.is_called) {
            return Poll::Ready(());
        }
        caller.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Whether nobody has waited longer.
    pub fn is_first(&self) -> bool {
        self.waiters.line().first() == Some(self.number)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut line = self.waiters.line();
        let was_first = line.first() == Some(self.number);
        line.waiting.remove(&self.number);
        self.waiters
            .count
            .store(line.waiting.len(), Ordering::SeqCst);
        // There may be room for more than one.
        if was_first {
            line.call_first();
        }
    }
}

/// What a request is hashed by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashKey {
    /// The client's address.
    ClientAddress,
    /// A header's value; lower-case name.
    Header(String),
    /// A cookie's value.
    Cookie(String),
    /// A query parameter's value.
    Query(String),
    /// The path without the query.
    Path,
}

/// How backends are asked for their load ahead of requests, for the policy that goes by it.
#[derive(Clone, Debug)]
pub struct LoadProbes {
    /// Origin-form target.
    pub path: String,
    /// How many.
    pub config: PrequalConfig,
    /// TLS towards the backends; `None`: plain.
    pub tls: Option<Arc<ClientTls>>,
    /// The PROXY header that begins a connection.
    pub proxy_protocol: Option<ProxyVersion>,
    /// What answers held; carried over reloads by the pool's name.
    pub reports: Arc<LoadReports>,
}

impl LoadProbes {
    /// Whether a connection that was made for `other` may be used for this.
    pub fn connects_as(&self, other: &Self) -> bool {
        self.tls == other.tls && self.proxy_protocol == other.proxy_protocol
    }
}

/// Reports in answers to probes, by the version of the backend that sent them.
#[derive(Debug, Default)]
pub struct LoadReports(Mutex<BTreeMap<Arc<str>, ReportCounts>>);

/// How many reports there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReportCounts {
    /// That were read.
    pub good: u64,
    /// That could not be read, or claimed what cannot be.
    pub malformed: u64,
}

impl LoadReports {
    /// Counts one.
    pub fn count(&self, version: &Arc<str>, is_good: bool) {
        let mut counts = self.lock();
        let counts = counts.entry(Arc::clone(version)).or_default();
        match is_good {
            true => counts.good += 1,
            false => counts.malformed += 1,
        }
    }

    /// How many there were of this version.
    pub fn of(&self, version: &str) -> ReportCounts {
        self.lock().get(version).copied().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, ReportCounts>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Active checks of a pool.
#[derive(Clone, Debug, PartialEq)]
pub struct HealthCheck {
    /// What a probe does.
    pub kind: ProbeKind,
    /// Between the starts of two probes of one backend (default 2 s), ± `jitter`.
    pub interval: Duration,
    /// Share of the interval by which a probe's start varies, 0.0–0.5 (default 0.1).
    pub jitter: f64,
    /// A probe that takes longer has failed (default 1 s).
    pub timeout: Duration,
    /// Port to probe instead of the backend's.
    pub port: Option<u16>,
    /// TLS of a probe: the pool's, or none.
    pub tls: Option<Arc<ClientTls>>,
    /// Whether probes speak HTTP/2: where the pool speaks nothing else.
    pub http2: bool,
    /// The PROXY header that begins a probe of the backend's own port, as the pool's connections have it.
    pub proxy_protocol: Option<ProxyVersion>,
}

/// A version of the PROXY protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyVersion {
    /// One line of text.
    V1,
    /// Binary.
    V2,
}

/// What a probe does.
#[derive(Clone, Debug, PartialEq)]
pub enum ProbeKind {
    /// A TCP (or Unix) connect.
    Tcp,
    /// A call of `grpc.health.v1.Health/Check`, which passes if the answer is `SERVING`.
    Grpc {
        /// Whose health is asked for; "" is the whole server's.
        service: String,
        /// `:authority`; the backend's address if not given.
        host: Option<String>,
    },
    /// `GET path`.
    Http {
        /// Origin-form target.
        path: String,
        /// `Host` header; the backend's address if not given.
        host: Option<String>,
        /// Statuses that pass (default 200–399).
        expect: StatusSet,
        /// A piece of text that the first 64 KiB of the body must hold.
        body: Option<String>,
    },
}

/// A set of status codes as ranges, both ends included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusSet(pub Vec<(u16, u16)>);

impl StatusSet {
    /// Whether `status` is in the set.
    pub fn contains(&self, status: u16) -> bool {
        self.0
            .iter()
            .any(|(low, high)| (*low..=*high).contains(&status))
    }
}

/// Time-outs towards backends. A zero switches one off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamTimeouts {
    /// TCP connect (default 1 s).
    pub connect: Duration,
    /// From the request's last byte to the end of the response head (default 30 s): 504.
    pub response_header: Duration,
    /// Silence of the backend within a response body (default 60 s): cut. Long polls and event streams: 0.
    pub response_idle: Duration,
    /// One try, from its first byte sent to the end of the response head (default off).
    pub per_try: Duration,
    /// The whole request (default off).
    pub request: Duration,
}

/// When and how a request is tried again.
#[derive(Clone, Debug, PartialEq)]
pub struct Retry {
    /// Tries in all, the first included (default 3). 1 is no retry.
    pub tries_max: u32,
    /// What is retried.
    pub on: RetryOn,
    /// First back-off (default 10 ms), doubled each try with full jitter. A different backend after a
    /// failed connect is tried at once.
    pub backoff: Duration,
    /// Largest back-off (default 250 ms).
    pub backoff_max: Duration,
    /// Request bodies up to this many bytes are kept for a retry (default 0: a body that has begun to flow is not retried).
    pub buffer_bytes_max: usize,
}

/// What is retried, beyond what provably reached nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryOn {
    /// Reset, close or garbage before a response byte reached the client, for idempotent methods (default on).
    pub reset: bool,
    /// A per-try or response-header time-out, for idempotent methods (default off).
    pub timeout: bool,
    /// These statuses from the backend, for idempotent methods (default none).
    pub statuses: Vec<u16>,
}

/// Idle connections to backends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Closed after this long without use (default 4 s: below the 5 s that many backends use).
    pub idle_timeout: Duration,
    /// Kept for each backend and worker (default 256).
    pub idle_max: usize,
}

/// A bounded queue for requests when all backends are full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Requests that may wait (default 1,024): 503 `queue_full` beyond.
    pub requests_max: usize,
    /// How long one waits (default 1 s): 503 with `Retry-After` beyond.
    pub timeout: Duration,
}

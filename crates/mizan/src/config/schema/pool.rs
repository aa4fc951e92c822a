//! `[pool.NAME]`.

use super::OneOrMany;
use super::discover::Discover;
use super::http2::PoolHttp2;
use super::tls::PoolTls;
use crate::config::text::{BackendAddress, Bytes, HeaderValue, StatusRange, Text, Time};
use crate::snapshot::HashKey;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A set of backends that can stand for each other.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in super::super) struct Pool {
    /// How a backend is picked.
    pub(in super::super) policy: Policy,
    /// What a request is hashed by, for `consistent_hash` and `maglev`: `client_address`, `path`, `header:NAME`,
    /// `cookie:NAME` or `query:NAME`. A request without it is placed at random.
    pub(in super::super) hash_key: Option<Text<HashKey>>,
    /// For `consistent_hash` and `maglev`: a backend that has this many times the mean of requests in flight (for its
    /// weight) gets no more, and they go to the next of their key's own order; 1.25 is usual, and the nearer to 1, the
    /// more move. Unset: none.
    #[schemars(range(min = 1.0, max = 100.0))]
    #[schemars(extend("x-help" = "it is a multiple of the mean, and below 1 there would be no place for some requests; 1.25 is usual"))]
    pub(in super::super) hash_load_bound: Option<f64>,
    /// When a smaller share of the backends than this looks healthy, health is ignored and all are used; 0: never.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub(in super::super) panic_threshold: f64,
    /// A tier (of backends with one `priority`), or a zone, bears its available share of backends times this, and the rest
    /// goes to the next: with 1.4 nothing moves until more than two of seven are out. A large number, such as 1000, keeps all
    /// traffic there until the last one is out.
    #[schemars(range(min = 1.0, max = 100_000.0))]
    pub(in super::super) overprovisioning: f64,
    /// About so many of the backends get this balancer's requests, chosen so that all balancers together load all backends
    /// alike; needs `index` and `of` in `[node]`. Unset: all.
    #[schemars(range(min = 1, max = 10_000))]
    pub(in super::super) subset_size: Option<u32>,
    /// The backends: an address, or a table with more about it.
    pub(in super::super) backends: Vec<BackendEntry>,
    /// Places that further backends are learned from while Mizan runs. A pool has `backends`, this, or both.
    #[schemars(length(max = 100))]
    pub(in super::super) discover: Vec<Discover>,
    /// TLS towards the backends; unset: plain.
    pub(in super::super) tls: Option<PoolTls>,
    /// What is spoken with the backends.
    pub(in super::super) protocol: Protocol,
    /// Limits on HTTP/2, where it is spoken.
    pub(in super::super) http2_limits: PoolHttp2,
    /// Active checks, in HTTP/2 if `protocol` is; unset: none.
    pub(in super::super) health: Option<Health>,
    /// Passive checks: backends whose answers fail are ejected for a while.
    pub(in super::super) ejection: Ejection,
    /// How a backend's share of the traffic follows what traffic says of it.
    pub(in super::super) adaptive: Adaptive,
    /// For `prequal`: how backends are asked for their load ahead of requests.
    pub(in super::super) prequal: Prequal,
    /// The PROXY header that begins each connection to a backend, and says for whom it is; unset: none. Over HTTP such a
    /// connection is not kept for another request. Probes of the backends' own port begin with one, too.
    pub(in super::super) proxy_protocol: Option<ProxyVersion>,
    /// Time-outs towards the backends.
    pub(in super::super) timeouts: PoolTimeouts,
    /// When and how a request is tried again.
    pub(in super::super) retry: Retry,
    /// Idle connections to the backends.
    pub(in super::super) keepalive: Keepalive,
    /// Where requests wait when all backends are full.
    pub(in super::super) queue: Queue,
    /// The backends' numbers, where they differ from `[expect]`.
    pub(in super::super) expect: PoolExpect,
}

impl Default for Pool {
    fn default() -> Self {
        Self {
            policy: Policy::PowerOfTwo,
            hash_key: None,
            hash_load_bound: None,
            panic_threshold: 0.5,
            overprovisioning: 1.4,
            subset_size: None,
            backends: Vec::new(),
            discover: Vec::new(),
            tls: None,
            protocol: Protocol::Http1,
            http2_limits: PoolHttp2::default(),
            health: None,
            ejection: Ejection::default(),
            adaptive: Adaptive::default(),
            prequal: Prequal::default(),
            proxy_protocol: None,
            timeouts: PoolTimeouts::default(),
            retry: Retry::default(),
            keepalive: Keepalive::default(),
            queue: Queue::default(),
            expect: PoolExpect::default(),
        }
    }
}

/// How a backend is picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(in super::super) enum Policy {
    /// At random by weight, whatever the load.
    Random,
    /// In turn; weights are ignored.
    RoundRobin,
    /// In turn, smoothly interleaved; shares exact by weight.
    WeightedRoundRobin,
    /// Fewest requests in flight, divided by weight.
    LeastConnections,
    /// Least expected latency: (in flight + 1) × average latency ÷ weight.
    LeastResponseTime,
    /// Two at random (by weight), the one with the lower load wins.
    PowerOfTwo,
    /// Two at random (by weight), the one with the lower (in flight + 1) × peak of latency wins; slower ones keep a share.
    PeakEwma,
    /// The quickest of those that say that they have little to do, by probes or in their answers; see `prequal`.
    Prequal,
    /// The same key goes to the same backend, on a ring; see `hash_key`.
    ConsistentHash,
    /// The same key goes to the same backend, by a table: more even shares, and a few more keys move when backends join or leave.
    Maglev,
}

impl Policy {
    /// Whether it goes by `hash_key`.
    pub(in super::super) fn hashes(self) -> bool {
        matches!(self, Self::ConsistentHash | Self::Maglev)
    }
}

/// What is spoken with the backends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(in super::super) enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2: over TLS by ALPN, in the clear by prior knowledge.
    Http2,
    /// What a backend chooses by ALPN; with TLS only.
    Auto,
}

/// A version of the PROXY protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(in super::super) enum ProxyVersion {
    /// One line of text.
    V1,
    /// Binary; a probe's says `LOCAL`.
    V2,
}

/// A backend: its address alone, or a table.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(in super::super) enum BackendEntry {
    Address(Text<BackendAddress>),
    Full(Backend),
}

impl BackendEntry {
    /// Its tier; the lowest is asked first.
    pub(in super::super) fn tier(&self) -> u32 {
        match self {
            Self::Address(_) => 0,
            Self::Full(backend) => backend.priority.max(u32::from(backend.backup)),
        }
    }

    /// Its share of the traffic relative to the others'.
    pub(in super::super) fn weight(&self) -> u32 {
        match self {
            Self::Address(_) => 1,
            Self::Full(backend) => backend.weight,
        }
    }
}

/// A backend.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["address"]))]
pub(in super::super) struct Backend {
    /// IP address and port, host name and port (all of its addresses are used, as long as their TTL says), or `unix:/path`.
    pub(in super::super) address: Option<Text<BackendAddress>>,
    /// Its share of the traffic relative to the others'; 0: none.
    #[schemars(range(min = 0, max = 65_535))]
    pub(in super::super) weight: u32,
    /// Its tier: those with the lowest number are asked first, and the others as far as that cannot bear the traffic.
    #[schemars(range(min = 0, max = 100))]
    pub(in super::super) priority: u32,
    /// The same as `priority = 1`: gets traffic as far as the others cannot bear it.
    pub(in super::super) backup: bool,
    /// The zone it is in; see `zone` in `[node]`.
    #[schemars(extend("format" = "name"))]
    pub(in super::super) zone: Option<String>,
    /// Its version, a label of metrics.
    #[schemars(extend("format" = "name"))]
    pub(in super::super) version: Option<String>,
    /// Requests in flight at once, and so connections in use; unset: unlimited.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(in super::super) in_flight_max: Option<u32>,
}

impl Default for Backend {
    fn default() -> Self {
        Self {
            address: None,
            weight: 1,
            priority: 0,
            backup: false,
            zone: None,
            version: None,
            in_flight_max: None,
        }
    }
}

/// Active checks. One of `path` and `tcp` says what a probe does.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in super::super) struct Health {
    /// A probe is `GET` of this path, which may have a query.
    #[schemars(extend("format" = "probe_path"))]
    pub(in super::super) path: Option<String>,
    /// A probe is a connect.
    pub(in super::super) tcp: bool,
    /// A probe asks gRPC's health service how this service is; `""`: the whole server. For pools with
    /// `protocol = "http2"`.
    #[schemars(length(max = 127))]
    pub(in super::super) grpc: Option<String>,
    /// The `Host` header of a probe; unset: the backend's address.
    pub(in super::super) host: Option<Text<HeaderValue>>,
    /// Statuses that pass: a number, a range or a list of them; unset: 200 to 399.
    pub(in super::super) expect: Option<OneOrMany<Statuses>>,
    /// Text that the first 64 KiB of the body must hold.
    pub(in super::super) body: Option<String>,
    /// Between the starts of two probes of one backend.
    #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "1h"))]
    pub(in super::super) interval: Text<Time>,
    /// A probe that takes longer has failed; less than `interval`.
    #[schemars(extend("x-minimum" = "10ms", "x-maximum" = "10m"))]
    pub(in super::super) timeout: Text<Time>,
    /// Failed probes in a row until a backend is down.
    #[schemars(range(min = 1, max = 100))]
    pub(in super::super) fall: u32,
    /// Passed probes in a row until a backend is up again.
    #[schemars(range(min = 1, max = 100))]
    pub(in super::super) rise: u32,
    /// Port to probe instead of the backend's.
    #[schemars(range(min = 1, max = 65_535))]
    pub(in super::super) port: Option<u16>,
    /// Whether probes speak TLS; unset: if the pool does, and as it does.
    pub(in super::super) tls: Option<bool>,
    /// Share of the interval by which a probe's start varies.
    #[schemars(range(min = 0.0, max = 0.5))]
    pub(in super::super) jitter: f64,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            path: None,
            tcp: false,
            grpc: None,
            host: None,
            expect: None,
            body: None,
            interval: Text::preset("2s"),
            timeout: Text::preset("1s"),
            fall: 3,
            rise: 2,
            port: None,
            tls: None,
            jitter: 0.1,
        }
    }
}

/// A status, or a range of them.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(in super::super) enum Statuses {
    Number(#[schemars(range(min = 100, max = 599))] u16),
    Range(Text<StatusRange>),
}

/// Passive checks.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in super::super) struct Ejection {
    /// Whether backends are ejected at all.
    pub(in super::super) enabled: bool,
    /// Failures in a row (of the connection, or 5xx) that eject a backend.
    #[schemars(range(min = 1, max = 1000))]
    pub(in super::super) failures: u32,
    /// Length of the first ejection; the n-th in a row takes n times as long.
    #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "1h"))]
    pub(in super::super) time: Text<Time>,
    /// Longest ejection.
    #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "24h"))]
    pub(in super::super) time_max: Text<Time>,
    /// Largest share of the pool that is ejected at once, but at least one backend.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub(in super::super) max_ejected: f64,
    /// A success rate that is this many standard deviations below the mean of five backends or more ejects, if it is 5
    /// points lower at least; 0: never.
    #[schemars(range(min = 0.0, max = 10.0))]
    pub(in super::super) success_rate_deviations: f64,
    /// This share of failed requests ejects, whatever the other backends do.
    #[schemars(range(min = 0.05, max = 1.0))]
    pub(in super::super) failed_share: f64,
    /// Requests within ten seconds that it takes to judge a backend by a share.
    #[schemars(range(min = 1, max = 1000000))]
    pub(in super::super) requests_min: u32,
}

impl Default for Ejection {
    fn default() -> Self {
        let (time, time_max) = (Text::preset("30s"), Text::preset("300s"));
        Self {
            enabled: true,
            failures: 5,
            time,
            time_max,
            max_ejected: 0.5,
            success_rate_deviations: 1.9,
            failed_share: 0.85,
            requests_min: 100,
        }
    }
}

/// Healthy or degraded: a backend that serves worse than its siblings gets less than its share.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in super::super) struct Adaptive {
    /// Whether shares adapt at all.
    pub(in super::super) enabled: bool,
    /// Degraded: more than a twentieth of its answers take longer than this many times the p95 of its siblings, or of its
    /// own past where that is longer.
    #[schemars(range(min = 1.0, max = 100.0))]
    pub(in super::super) latency_factor: f64,
    /// Degraded: a larger share of its requests fails than this, and than twice that of its siblings.
    #[schemars(range(min = 0.01, max = 1.0))]
    pub(in super::super) failed_share: f64,
    /// Degraded: more of what it can take is taken than this, and clearly more than of its siblings.
    #[schemars(range(min = 0.1, max = 1.0))]
    pub(in super::super) saturation: f64,
    /// The smallest share of its weight that it gets.
    #[schemars(range(min = 0.05, max = 1.0))]
    pub(in super::super) weight_min: f64,
    /// This long within all bounds makes it healthy again.
    #[schemars(extend("x-minimum" = "1s", "x-maximum" = "1h"))]
    pub(in super::super) recover_after: Text<Time>,
    /// A backend that comes new or back reaches its full weight in this time, or in twice that where few requests come.
    #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "1h", "x-zero" = "off"))]
    pub(in super::super) slow_start: Text<Time>,
    /// Requests that it has to serve until then.
    #[schemars(range(min = 1, max = 1000000))]
    pub(in super::super) slow_start_requests: u32,
}

impl Default for Adaptive {
    fn default() -> Self {
        Self {
            enabled: true,
            latency_factor: 2.0,
            failed_share: 0.1,
            saturation: 0.8,
            weight_min: 0.1,
            recover_after: Text::preset("30s"),
            slow_start: Text::preset("10s"),
            slow_start_requests: 50,
        }
    }
}

/// How backends are asked for their load, for the policy `prequal`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in super::super) struct Prequal {
    /// Asked by `GET`, in HTTP/1.1: the answer's `endpoint-load-metrics` has the named metrics `rif` and, perhaps,
    /// `latency_ms`. Unset: nobody is asked, and what backends say in answers to requests is all that is known.
    #[schemars(extend("format" = "probe_path"))]
    pub(in super::super) path: Option<String>,
    /// Probes for each request.
    #[schemars(range(min = 0.01, max = 10.0))]
    pub(in super::super) probes_per_request: f64,
    /// Probes a second, all backends together.
    #[schemars(range(min = 1, max = 100000))]
    pub(in super::super) probes_per_second_max: u32,
}

impl Default for Prequal {
    fn default() -> Self {
        Self {
            path: None,
            probes_per_request: 3.0,
            probes_per_second_max: 1_000,
        }
    }
}

/// Time-outs towards the backends.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in super::super) struct PoolTimeouts {
    /// To connect.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "10m", "x-zero" = "off"))]
    pub(in super::super) connect: Text<Time>,
    /// From the request's last byte to the end of the response head: 504 beyond.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "24h", "x-zero" = "off"))]
    pub(in super::super) response_header: Text<Time>,
    /// Silence of the backend within a response body. Event streams and long polls: 0.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "24h", "x-zero" = "off"))]
    pub(in super::super) response_idle: Text<Time>,
    /// One try, from its first byte sent to the end of the response head; to connect has its own time-out.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "24h", "x-zero" = "off"))]
    pub(in super::super) per_try: Text<Time>,
    /// The whole request.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "24h", "x-zero" = "off"))]
    pub(in super::super) request: Text<Time>,
}

impl Default for PoolTimeouts {
    fn default() -> Self {
        Self {
            connect: Text::preset("1s"),
            response_header: Text::preset("30s"),
            response_idle: Text::preset("60s"),
            per_try: Text::preset("0s"),
            request: Text::preset("0s"),
        }
    }
}

/// When and how a request is tried again. What provably reached no backend is retried for any method.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in super::super) struct Retry {
    /// Tries in all, the first included; 1: no retry.
    #[schemars(range(min = 1, max = 8))]
    pub(in super::super) tries_max: u32,
    /// Whether a reset before a byte of the answer reached the client is retried (idempotent methods).
    pub(in super::super) reset: bool,
    /// Whether a per-try or response-header time-out is retried (idempotent methods).
    pub(in super::super) timeout: bool,
    /// Statuses of a backend that are retried (idempotent methods).
    #[schemars(inner(range(min = 400, max = 599)))]
    pub(in super::super) statuses: Vec<u16>,
    /// First back-off, doubled each try, with full jitter; another backend after a failed connect is tried at once.
    #[schemars(extend("x-maximum" = "1m"))]
    pub(in super::super) backoff: Text<Time>,
    /// Largest back-off.
    #[schemars(extend("x-maximum" = "10m"))]
    pub(in super::super) backoff_max: Text<Time>,
    /// Request bodies up to this size are kept for a retry; 0: a body that has begun to flow is not retried.
    #[schemars(extend("x-maximum" = "64MiB"))]
    pub(in super::super) buffer_max: Text<Bytes>,
    /// Share of the requests that may be retries of what a backend may have had. What provably reached nobody is bounded by
    /// `tries_max` alone.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub(in super::super) budget: f64,
    /// Retries a second that are allowed on top of the share.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub(in super::super) budget_min_per_second: u32,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            tries_max: 3,
            reset: true,
            timeout: false,
            statuses: Vec::new(),
            backoff: Text::preset("10ms"),
            backoff_max: Text::preset("250ms"),
            buffer_max: Text::preset("0B"),
            budget: 0.2,
            budget_min_per_second: 10,
        }
    }
}

/// Idle connections to the backends.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in super::super) struct Keepalive {
    /// How long one is kept; at least a second less than the backend keeps it.
    #[schemars(extend("x-maximum" = "24h"))]
    pub(in super::super) idle_timeout: Text<Time>,
    /// How many are kept, for each backend and worker; 0: none.
    #[schemars(range(min = 0, max = 100_000))]
    pub(in super::super) idle_max: usize,
}

impl Default for Keepalive {
    fn default() -> Self {
        Self {
            idle_timeout: Text::preset("4s"),
            idle_max: 256,
        }
    }
}

/// Where requests wait when every usable backend is at its `in_flight_max`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in super::super) struct Queue {
    /// Requests that may wait: 503 beyond; 0: none.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub(in super::super) requests_max: usize,
    /// How long one waits: 503 with `Retry-After` beyond.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "10m"))]
    pub(in super::super) timeout: Text<Time>,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            requests_max: 1024,
            timeout: Text::preset("1s"),
        }
    }
}

/// The backends' numbers.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in super::super) struct PoolExpect {
    /// Keep-alive time-out of these backends.
    #[schemars(extend("x-maximum" = "24h"))]
    pub(in super::super) backend_keepalive: Option<Text<Time>>,
    /// What one of these backends carries, in requests a second.
    #[schemars(range(min = 0.001, max = 1e9))]
    pub(in super::super) capacity: Option<f64>,
    /// Peak load of this pool, in requests a second.
    #[schemars(range(min = 0.001, max = 1e9))]
    pub(in super::super) load: Option<f64>,
}

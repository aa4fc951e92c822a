//! The configuration file's model: every key, its type, range and default.
//!
//! The doc comments are the reference: the JSON Schema and `docs/configuration.md` are made from them.
//! `x-minimum` and `x-maximum` are the bounds of durations and sizes, `x-zero` what a zero means.

mod discover;
mod http2;
mod listener;
mod node;
mod pool;
mod route;
mod store;
mod tls;

pub(super) use discover::Discover;
pub(super) use http2::PoolHttp2;
pub(super) use listener::{Listener, ListenerKind};
pub(super) use node::{Dns, Node};
pub(super) use pool::{
    Backend, BackendEntry, Health, Policy, Pool, PoolTimeouts, Protocol, ProxyVersion, Retry,
    Statuses,
};
pub(super) use route::{
    ErrorPage, ErrorPageTable, HeaderEdits, Rewrite, Route, RouteTimeouts, SplitPart, ValueMatch,
};

pub(super) use store::{Chain, Region, Store};
pub(super) use tls::{
    ClientAuth, ClientAuthMode, Group, Hsts, IdentityHeaders, ListenerTls, PoolTls, TicketChoice,
    Tickets, TlsVersion,
};

use super::text::{BindOrOff, LogChoice, SocketOrOff, Text, Time};
use ipnet::IpNet;
use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::LazyLock;

/// The configuration of Mizan.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "Mizan configuration")]
pub(super) struct File {
    /// Further files that hold listeners, routes and pools. Relative to this file; `*` stands for any
    /// characters in the last part; matches are read in the order of their names. Main file only.
    pub(super) include: Vec<String>,
    /// Worker threads; unset: one a core. Read at start only.
    #[schemars(range(min = 1, max = 1024))]
    pub(super) workers: Option<u16>,
    /// Where this balancer stands among others, for pools with zones or a subset.
    pub(super) node: Node,
    /// Who is asked what host names of backends stand for.
    pub(super) dns: Dns,
    /// The region that this balancer serves.
    pub(super) region: Region,
    /// The routing table that balancers share.
    pub(super) store: Store,
    /// The admin API.
    pub(super) admin: Admin,
    /// The listener of `/livez` and `/readyz`.
    pub(super) health: ReadOnlyBind,
    /// The listener of `/metrics`.
    pub(super) metrics: ReadOnlyBind,
    /// Logs.
    pub(super) log: Log,
    /// What happens at SIGTERM.
    pub(super) drain: Drain,
    /// Reloads.
    pub(super) reload: Reload,
    /// Limits of the whole process.
    pub(super) limits: Limits,
    /// The other side's numbers. Nothing is done with them but checking the timing relations that
    /// `mizan check` prints: a relation with an unset number is "not checked", never passed.
    pub(super) expect: Expect,
    /// Sockets that accept clients.
    pub(super) listener: Vec<Listener>,
    /// What is done with requests. The most specific match wins; of equal ones the first in the file.
    pub(super) route: Vec<Route>,
    /// Sets of backends, by name.
    #[schemars(extend("propertyNames" = { "format": "name" }))]
    pub(super) pool: BTreeMap<String, Pool>,
    /// Pools that stand in for each other, by the name that routes give.
    #[schemars(extend("propertyNames" = { "format": "name" }))]
    pub(super) chain: BTreeMap<String, Chain>,
}

impl File {
    /// The pools of a chain, one at least: where there is no such chain, or it names nobody, the pool of its name.
    pub(super) fn chained<'f>(&'f self, name: &'f str) -> Vec<&'f str> {
        match self.chain.get(name) {
            Some(Chain { pools }) if pools.is_empty() => vec![name],
            Some(chain) => chain.pools.iter().map(String::as_str).collect(),
            None => vec![name],
        }
    }
}

/// The admin API.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Admin {
    /// Absolute path of its Unix socket (mode 0600), or `off`; unset: `/run/mizan/admin.sock`, or
    /// `$XDG_RUNTIME_DIR/mizan/admin.sock` where `/run/mizan` is not there. Read at start only.
    pub(super) socket: Option<Text<SocketOrOff>>,
    /// Additional TCP address; loopback only, and with a `token` only. Read at start only.
    pub(super) bind: Option<Text<SocketAddr>>,
    /// What a caller over TCP must show: visible ASCII characters, 16 to 512. Better `${NAME}` or
    /// `file:/path` than the token itself. A reload replaces it at once.
    #[schemars(extend("format" = "token", "x-file" = true))]
    pub(super) token: Option<String>,
}

/// A read-only listener of Mizan itself.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ReadOnlyBind {
    /// Where it listens, or `off`. Read at start only.
    pub(super) bind: Text<BindOrOff>,
}

impl Default for ReadOnlyBind {
    fn default() -> Self {
        Self {
            bind: Text::preset("127.0.0.1:9901"),
        }
    }
}

/// Logs.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Log {
    /// Where the access log (one JSON object a line) goes: `off`, `stdout`, a file by its absolute path, `syslog`
    /// (`/dev/log`) or `syslog:/path`, as `local0.info`.
    pub(super) access: Text<LogChoice>,
    /// Whether query strings are logged.
    pub(super) query: bool,
}

impl Default for Log {
    fn default() -> Self {
        Self {
            access: Text::preset("off"),
            query: false,
        }
    }
}

/// What happens at SIGTERM.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Drain {
    /// First: how long `/readyz` says 503 while new requests are still served.
    #[schemars(extend("x-maximum" = "1h"))]
    pub(super) window: Text<Time>,
    /// Then: how long requests in flight may take before they are cut.
    #[schemars(extend("x-maximum" = "24h"))]
    pub(super) deadline: Text<Time>,
}

impl Default for Drain {
    fn default() -> Self {
        Self {
            window: Text::preset("15s"),
            deadline: Text::preset("30s"),
        }
    }
}

/// Reloads.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Reload {
    /// Whether a change of the file, or of an included one, reloads it (after 200 ms of quiet).
    pub(super) watch: bool,
}

impl Default for Reload {
    fn default() -> Self {
        Self { watch: true }
    }
}

/// Limits of the whole process.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Limits {
    /// Idle connections to all backends together. Read at start only.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub(super) upstream_idle_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            upstream_idle_max: 10_000,
        }
    }
}

/// The other side's numbers.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Expect {
    /// Time between SIGTERM and SIGKILL: systemd's `TimeoutStopSec`, Kubernetes'
    /// `terminationGracePeriodSeconds`, `docker stop --time`.
    #[schemars(extend("x-maximum" = "24h"))]
    pub(super) stop_grace: Option<Text<Time>>,
    /// How what stands before Mizan probes its `/readyz`.
    pub(super) outer_probe: Option<OuterProbe>,
    /// Idle time-out of what stands before Mizan for its connections to Mizan (AWS ALB: 60 s).
    #[schemars(extend("x-maximum" = "24h"))]
    pub(super) outer_idle: Option<Text<Time>>,
    /// How long clients, or what stands before Mizan, wait for an answer.
    #[schemars(extend("x-maximum" = "24h"))]
    pub(super) outer_timeout: Option<Text<Time>>,
    /// Keep-alive time-out of the backends (Node.js 5 s, gunicorn 2 s, nginx 75 s).
    #[schemars(extend("x-maximum" = "24h"))]
    pub(super) backend_keepalive: Option<Text<Time>>,
    /// What one backend carries, in requests a second.
    #[schemars(range(min = 0.001, max = 1e9))]
    pub(super) capacity: Option<f64>,
    /// Peak load of a pool, in requests a second; with several pools, say it in each.
    #[schemars(range(min = 0.001, max = 1e9))]
    pub(super) load: Option<f64>,
}

/// How what stands before Mizan probes it.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["interval", "timeout", "fall"]))]
pub(super) struct OuterProbe {
    /// Between two probes.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1h"))]
    pub(super) interval: Option<Text<Time>>,
    /// A probe that takes longer has failed.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1h"))]
    pub(super) timeout: Option<Text<Time>>,
    /// Failed probes in a row until Mizan gets no more traffic.
    #[schemars(range(min = 1, max = 100))]
    pub(super) fall: Option<u32>,
}

/// One value, or a list of them.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(super) enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

impl<T> Default for OneOrMany<T> {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl<T> OneOrMany<T> {
    /// The values.
    pub(super) fn as_slice(&self) -> &[T] {
        match self {
            Self::One(value) => std::slice::from_ref(value),
            Self::Many(values) => values,
        }
    }

    /// Whether it was written without a list: paths to its value then have no index.
    pub(super) fn is_one(&self) -> bool {
        matches!(self, Self::One(_))
    }
}

/// Networks as the file has them.
pub(super) type NetworkList = Vec<Text<IpNet>>;

/// The JSON Schema of the file.
pub(super) static JSON_SCHEMA: LazyLock<serde_json::Value> = LazyLock::new(|| {
    SchemaSettings::draft2020_12()
        .with_transform(RecursiveTransform(Tidy))
        .into_generator()
        .into_root_schema_for::<File>()
        .to_value()
});

/// TOML has no null, and JSON Schema no `uint16`; defaults that are empty or a whole table say nothing.
#[derive(Clone, Debug)]
struct Tidy;

impl Transform for Tidy {
    fn transform(&mut self, schema: &mut Schema) {
        use serde_json::Value;
        let Some(object) = schema.as_object_mut() else {
            return;
        };
        if let Some(Value::Array(types)) = object.get_mut("type") {
            types.retain(|name| name != "null");
            if let [only] = types.as_slice() {
                let only = only.clone();
                object.insert("type".to_owned(), only);
            }
        }
        if let Some(Value::Array(choices)) = object.get_mut("anyOf") {
            choices.retain(|choice| choice["type"] != "null");
            if let [Value::Object(only)] = choices.as_slice() {
                let only = only.clone();
                object.remove("anyOf");
                for (key, value) in only {
                    object.entry(key).or_insert(value);
                }
            }
        }
        let is_width = |format: &Value| {
            format
                .as_str()
                .is_some_and(|name| name.starts_with("uint") || name == "double")
        };
        if object.get("format").is_some_and(is_width) {
            object.remove("format");
        }
        let is_empty = |value: &Value| match value {
            Value::Null | Value::Object(_) => true,
            Value::Array(items) => items.is_empty(),
            _ => false,
        };
        if object.get("default").is_some_and(is_empty) {
            object.remove("default");
        }
    }
}

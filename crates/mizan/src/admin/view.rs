//! What the API says, in types that the command line reads too.
//!
//! Flat and in words: a reader of the JSON should need no manual. Durations end in their unit.

mod build;

pub use crate::control::editor::{Conflicting, RejectedView};
pub use crate::control::nodes::Account;
#[cfg(test)]
pub(crate) use build::state_of;
pub(in crate::admin) use build::{action, conditions, state};

use crate::telemetry::ReloadResult;
use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where the process stands between start and end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Not all listeners are open.
    Starting,
    /// Serving; `/readyz` says 200 in this phase only.
    Serving,
    /// The drain's window: new requests are still served, `/readyz` says 503.
    Draining,
    /// Listeners are closed; requests in flight end.
    Stopping,
}

impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Starting => "starting",
            Self::Serving => "serving",
            Self::Draining => "draining",
            Self::Stopping => "stopping",
        })
    }
}

/// `GET /v1/status`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StatusView {
    /// Version of Mizan.
    pub mizan: String,
    /// Where the process stands.
    pub phase: Phase,
    /// Number of the configuration in force.
    pub generation: u64,
    /// Digest of the configuration in force, in hexadecimal.
    pub digest: String,
    /// The main configuration file.
    pub config: String,
    /// When the process started (RFC 3339).
    pub started_at: String,
    /// Worker threads that run.
    pub workers: usize,
    /// Client connections that are open.
    pub connections: u64,
    /// Listeners in the order of the file.
    pub listeners: Vec<ListenerView>,
    /// Pools by name; their backends are under `/v1/pools`.
    pub pools: Vec<PoolSummary>,
    /// The store of the routing table, and what is in force of it; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreView>,
    /// What became of the last reload, or of the start.
    pub last_reload: ReloadReport,
}

/// The store of the routing table, and what is in force of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StoreView {
    /// Its address.
    pub address: String,
    /// Which of the tables in it.
    pub namespace: String,
    /// `live`: it is watched. `stale`: it was lost, and what was known then is in force. `restored`: it has not been heard
    /// since the start, and what the last run left is in force. `unknown`: nothing is known of the table.
    pub standing: String,
    /// Since when it stands so (RFC 3339); of a restored one, when it was written.
    pub since: String,
    /// How long that is, in seconds.
    pub age_seconds: u64,
    /// As of which revision the table is known.
    pub revision: u64,
    /// Why the store is not heard; empty if it is.
    pub trouble: String,
    /// What its users should know of it.
    pub warnings: Vec<String>,
    /// How often it was lost since the start.
    pub losses: u64,
    /// How often what was known differed from the store though nothing was missed.
    pub divergences: u64,
    /// Objects that are in force.
    pub objects: usize,
    /// Objects that are not in force as they stand in the store.
    pub rejected: Vec<RejectedView>,
    /// Objects that wait until a new pool that they name has a backend that passed a probe.
    pub waiting: Vec<RejectedView>,
    /// What this node has in force.
    pub node: Account,
    /// What all nodes have in force, this one among them, by their names.
    pub nodes: Vec<Account>,
    /// Why the nodes are not known; empty if they are.
    pub nodes_unknown: String,
}

/// A listener.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ListenerView {
    /// Its name.
    pub name: String,
    /// Where it listens.
    pub bind: String,
    /// Client connections that are open.
    pub connections: u64,
    /// Client connections accepted since the start.
    pub connections_accepted: u64,
    /// Requests since the start.
    pub requests: u64,
    /// Requests that have begun and not ended.
    pub requests_in_flight: u64,
}

/// A pool in brief.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PoolSummary {
    /// Its name.
    pub name: String,
    /// How it balances.
    pub policy: String,
    /// Whether so few backends look healthy that health is ignored.
    pub panic: bool,
    /// Backends that may get new requests.
    pub usable: usize,
    /// All backends.
    pub total: usize,
    /// What is likelier at fault in a panic, as a sentence; empty without one.
    pub belief: String,
    /// Which tiers and zones get how much, as a sentence; empty where there are not several.
    pub spread: String,
    /// Requests that its backends hold.
    pub in_flight: u64,
}

/// `GET /v1/pools/{pool}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PoolView {
    /// The pool in brief.
    #[serde(flatten)]
    pub summary: PoolSummary,
    /// Whether probes are sent.
    pub probed: bool,
    /// Places that its backends are learned from while it runs, by their names.
    #[serde(default)]
    pub discovery: Vec<OriginView>,
    /// Traffic by version.
    pub versions: Vec<VersionView>,
    /// Backends in the order of the configuration.
    pub backends: Vec<BackendView>,
}

/// A place that backends are learned from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OriginView {
    /// What is asked there: `dns` for the addresses of a name, `srv` for those who serve a service, `file`, `instances` for those
    /// who say so in the store.
    pub kind: String,
    /// What it is called there.
    pub name: String,
    /// When it was last heard (RFC 3339); empty: never.
    pub heard_at: String,
    /// How long ago that is, in seconds; null: never.
    pub age_seconds: Option<u64>,
    /// Why it could not be heard since, or not whole; empty if all is well.
    pub error: String,
    /// How often it could not be heard.
    pub failures: u64,
    /// Instances that are kept though their lease has ended, because they serve.
    #[serde(default)]
    pub kept: Vec<String>,
}

/// A version's traffic since the start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VersionView {
    /// The version; empty for backends that have none, and for requests that no backend was picked for.
    pub version: String,
    /// Tries that got a response.
    pub responses: u64,
    /// Half of the responses came within this time, in milliseconds.
    pub latency_p50_ms: Option<f64>,
    /// 99 % of the responses came within this time, in milliseconds.
    pub latency_p99_ms: Option<f64>,
    /// Tries beyond a request's first.
    pub retries: u64,
    /// Requests that reached nothing.
    pub unreached: u64,
    /// Requests that a retry saved from that.
    pub rescued: u64,
}

/// A backend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BackendView {
    /// Its name in the pool: what `drain` takes.
    pub key: String,
    /// Where it listens.
    pub address: String,
    /// What runs there; empty if not said.
    pub version: String,
    /// Its share of traffic as configured.
    pub weight: u32,
    /// The part of that which it gets, `0.0` to `1.0`.
    pub weight_share: f64,
    /// Its tier: those with the lowest number are asked first.
    pub priority: u32,
    /// The zone it is in; empty if not said.
    pub zone: String,
    /// What traffic says of it: `healthy`, `degraded` or `unhealthy`.
    pub traffic: String,
    /// How well it serves, `0.0` to `1.0`.
    pub score: f64,
    /// Whether nothing speaks against new requests for it; `standby` and `outside` ones are usable, too.
    pub usable: bool,
    /// One word for all of it: `usable`, `panic` (used although it does not look healthy), `drain`,
    /// `maintenance`, `refused`, `ejected`, `down`, `standby` (others are asked before it) or `outside` (of the
    /// part of the pool that this balancer sends to).
    pub state: String,
    /// Why, as a sentence; empty if there is nothing to say.
    pub reason: String,
    /// For how long, in seconds.
    pub since_seconds: u64,
    /// What the operator wants: `ready`, `drain` or `maintenance`.
    pub admin: String,
    /// What probes say: `unknown`, `up` or `down`.
    pub health: String,
    /// Requests that it holds.
    pub in_flight: u32,
    /// Tries at it since the start.
    pub requests: u64,
    /// Tries that failed, and answers with a status of 500 or more.
    pub failures: u64,
    /// Latency as the policies see it, in milliseconds.
    pub latency_ms: Option<f64>,
    /// What it said last of its own load, where the policy goes by that; null if it never did.
    #[serde(default)]
    pub told: Option<LoadView>,
}

/// What a backend said of its own load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadView {
    /// Requests in flight there, whoever sent them.
    pub rif: f64,
    /// How long one takes at that, in milliseconds; null if it did not say.
    pub latency_ms: Option<f64>,
    /// How long ago it said so, in seconds. Older than one, it is not gone by.
    pub age_seconds: f64,
}

impl std::fmt::Display for LoadView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} in flight, ", self.rif)?;
        match self.latency_ms {
            Some(ms) => write!(f, "{ms:.1} ms, ")?,
            None => f.write_str("no latency, ")?,
        }
        write!(f, "{:.1} s ago", self.age_seconds)
    }
}

/// A route; `GET /v1/routes` gives them in matching order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RouteView {
    /// Its name.
    pub name: String,
    /// The host it is matched under here; empty for any.
    pub host: String,
    /// `= /exact`, `/prefix/*` or `~ regex`.
    pub path: String,
    /// What else must hold.
    pub conditions: Vec<String>,
    /// What is done.
    pub action: String,
    /// Where its requests go, for each region of its own; empty if it answers by itself.
    pub forwards: Vec<ForwardView>,
}

/// Where a route's requests go, of one region or of all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ForwardView {
    /// Pools that they go to.
    pub pools: Vec<String>,
    /// Pools that stand in for those, in this order.
    pub fallback: Vec<String>,
}

/// `GET /v1/config`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConfigView {
    /// Number of the configuration in force.
    pub generation: u64,
    /// Its digest, in hexadecimal.
    pub digest: String,
    /// Its files: the main one first.
    pub sources: Vec<SourceView>,
}

/// A file of the configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SourceView {
    /// Its path.
    pub path: String,
    /// Its text as it was read, with `*` in place of an admin token.
    pub text: String,
}

/// What became of a reload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReloadReport {
    /// `applied`, `refused` or `unchanged`.
    pub result: ReloadResult,
    /// Number of the configuration in force after it.
    pub generation: u64,
    /// When (RFC 3339).
    pub at: String,
    /// Errors and warnings.
    pub problems: Vec<Problem>,
    /// The same, drawn for people with the source lines marked.
    pub text: String,
}

/// An error or warning in a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// `error` or `warning`.
    pub severity: String,
    /// A stable word for its kind.
    pub code: String,
    /// The file it is in.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The key it is about.
    pub path: String,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub help: Option<String>,
}

/// Every error of the API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApiError {
    #[serde(skip)]
    status: u16,
    /// A stable word for its kind.
    pub code: String,
    /// What is wrong.
    pub message: String,
    /// What it is about, such as `pool.api`.
    pub path: String,
    /// Why an edit of the table was not made.
    #[serde(flatten)]
    pub edit: Box<EditProblems>,
}

/// Why an edit of the table was not made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct EditProblems {
    /// Keys that have changed since its author looked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<Conflicting>,
    /// Objects that could not come into force.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rejected: Vec<RejectedView>,
}

impl ApiError {
    pub(super) fn new(
        status: StatusCode,
        code: &str,
        message: impl Into<String>,
        path: &str,
    ) -> Self {
        Self {
            status: status.as_u16(),
            code: code.into(),
            message: message.into(),
            path: path.into(),
            edit: Box::default(),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, Json(self)).into_response()
    }
}

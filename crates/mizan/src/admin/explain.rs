//! What would become of a request: how it is asked, and how it is told.

mod question;
mod told;

use super::view::LoadView;
pub use question::{ExplainRequest, Malformed};
pub use told::meant;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `POST /v1/explain`: what would become of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExplainView {
    /// Number of the configuration that was asked.
    pub generation: u64,
    /// The listener that it comes to.
    pub listener: String,
    /// Whether several listeners would do, and this is the first of them.
    pub listener_assumed: bool,
    /// What routes see of it.
    pub request: RequestSeen,
    /// The route that it takes.
    pub route: Option<RouteTaken>,
    /// Routes that it nearly takes, the nearest first; at most eight.
    pub nearly: Vec<NearMiss>,
    /// How many more there are.
    pub nearly_more: usize,
    /// The settings that its backend is offered; not there if the route offers none.
    pub offered: Option<SettingsOffered>,
    /// What Mizan answers by itself; not there if a backend does.
    pub answer: Option<OwnAnswer>,
    /// The pool that it goes to, and whom that picks; not there if Mizan answers before a pool is asked.
    pub pool: Option<PoolAsked>,
}

/// What routes see of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RequestSeen {
    /// Method.
    pub method: String,
    /// Host without port.
    pub host: String,
    /// Path in normal form.
    pub path: String,
    /// Query.
    pub query: Option<String>,
    /// The client's address under the trust rule; not there on a Unix socket.
    pub client: Option<String>,
    /// Its region; not there where all requests are of one.
    pub region: Option<String>,
}

/// Settings of the store that a backend is offered as headers, by the request's language.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SettingsOffered {
    /// What the request says of its language; not there: nothing.
    pub language: Option<String>,
    /// Values by the headers' names.
    pub headers: BTreeMap<String, String>,
}

/// The route that a request takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RouteTaken {
    /// Its name.
    pub name: String,
    /// Its hosts; empty: any.
    pub hosts: Vec<String>,
    /// `= /exact`, `/prefix/*` or `~ regex`.
    pub path: String,
    /// What else must hold.
    pub conditions: Vec<String>,
    /// What is done.
    pub action: String,
}

/// A route that a request nearly takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NearMiss {
    /// Its name.
    pub route: String,
    /// The host that it is matched under here; empty for any.
    pub host: String,
    /// `= /exact`, `/prefix/*` or `~ regex`.
    pub path: String,
    /// What does not hold; empty: all holds, but a more specific route is asked first.
    pub failed: Vec<FailedCondition>,
}

/// A condition that does not hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FailedCondition {
    /// Of what: `host`, `path`, `method`, `listener`, `client`, `header NAME` or `query NAME`.
    pub what: String,
    /// What the route wants.
    pub wanted: String,
    /// What the request has; not there: nothing.
    pub saw: Option<String>,
}

/// An answer that Mizan makes itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OwnAnswer {
    /// Its status; 0: the connection is closed without an answer.
    pub status: u16,
    /// Its code, as in the access log.
    pub code: String,
    /// Whether a route or listener asks for it, so that nothing is refused.
    pub wanted: bool,
    /// Where a redirect leads.
    pub location: Option<String>,
    /// Why.
    pub why: String,
}

/// A pool that is asked whom it picks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PoolAsked {
    /// Its name.
    pub name: String,
    /// Whether it was asked for, in place of the one that the route gives.
    pub instead: bool,
    /// Pools of the route that have nobody to give, and that it stands in for.
    pub stands_in_for: Vec<String>,
    /// Pools that the route asks after it, in this order, where none of its backends can be reached.
    pub then: Vec<String>,
    /// How it balances.
    pub policy: String,
    /// Whether health is ignored, because too few backends look healthy.
    pub panic: bool,
    /// Backends that may get new requests: in a panic more than look healthy.
    pub usable: usize,
    /// All backends.
    pub total: usize,
    /// Pools of the route's split with their shares in percent; empty if there is one.
    pub split: Vec<SplitShare>,
    /// What decided between them, `NAME = VALUE`; not there: chance.
    pub split_by: Option<String>,
    /// The target as the backend gets it.
    pub target: String,
    /// What is hashed; not there if the pool goes by no hash.
    pub key: Option<KeyHashed>,
    /// Stands for all that is left to chance; the same seed draws the same.
    pub seed: u64,
    /// The two that are drawn, for policies that compare two, in the order of the draw.
    pub drawn: Vec<String>,
    /// For a hash: who stands before the picked backend in its order, the owner first.
    pub passed_over: Vec<PassedOverView>,
    /// Requests that wait in the pool's queue.
    pub waiting: usize,
    /// The backend that gets the request; not there if none does.
    pub backend: Option<String>,
    /// Why that one, or why none.
    pub why: String,
    /// Each backend, in configured order.
    pub candidates: Vec<Candidate>,
}

/// A pool of a split.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SplitShare {
    /// Its name.
    pub pool: String,
    /// Its share in percent.
    pub percent: f64,
}

/// The key that a pool goes by.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KeyHashed {
    /// What it is: `client_address`, `path`, `header:NAME`, `cookie:NAME` or `query:NAME`.
    pub what: String,
    /// Its value; not there if the request has none, so that chance decides.
    pub value: Option<String>,
    /// The hash of that, in hexadecimal.
    pub hash: Option<String>,
}

/// A backend that a hash would go to, but for what holds now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PassedOverView {
    /// The backend.
    pub backend: String,
    /// Why it does not get the request.
    pub why: String,
}

/// A backend as the pick found it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Candidate {
    /// Its name in the pool.
    pub key: String,
    /// One word for all that is known of it, as in a pool's status: `usable`, `panic` (used although it does not look
    /// healthy), `drain`, `maintenance`, `refused`, `ejected`, `down`, `standby` (others are asked before it) or
    /// `outside` (of the part of the pool that this balancer sends to).
    pub state: String,
    /// What traffic says of it: `healthy`, `degraded` or `unhealthy`. One that is `degraded` and `usable` gets less.
    pub traffic: String,
    /// Whether it may be picked, limits of requests in flight apart.
    pub usable: bool,
    /// Its share of traffic as configured.
    pub weight: u32,
    /// The part of that which it gets, `0.0` to `1.0`.
    pub weight_share: f64,
    /// How well it serves, `0.0` to `1.0`.
    pub score: f64,
    /// Requests that it holds.
    pub in_flight: u32,
    /// Failures of late, counted as so many requests in flight.
    pub penalty: f64,
    /// Latency as the policies see it, in milliseconds.
    pub latency_ms: Option<f64>,
    /// What it said last of its own load, where the policy goes by that; null if it never did.
    #[serde(default)]
    pub told: Option<LoadView>,
    /// Why it is as it is; empty if there is nothing to say.
    pub reason: String,
}

//! What a simulation showed, as plain figures.
//!
//! Only requests that arrived after the warm-up count. Latency is that of requests that succeeded,
//! from their arrival at the balancer to the answer's, with all tries and back-offs in between.

use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::scenario::Scenario;

mod chart;
mod html;
mod measure;
mod share;
mod text;

pub(crate) use measure::measure;

/// A scenario's outcome under each policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The scenario's name.
    pub scenario: String,
    /// What it shows.
    pub about: String,
    /// The seed that repeats it.
    pub seed: u64,
    /// Simulated time, seconds.
    pub seconds: f64,
    /// Of which not measured, seconds.
    pub warmup_seconds: f64,
    /// Balancers.
    pub balancers: usize,
    /// Backends.
    pub backends: usize,
    /// Requests a second that the backends can serve when well.
    pub capacity_per_second: f64,
    /// Requests a second at first.
    pub rate_per_second: f64,
    /// What went wrong when.
    pub faults: Vec<FaultSpan>,
    /// The outcome of each policy.
    pub policies: Vec<PolicyReport>,
}

/// When a fault was there.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FaultSpan {
    /// Its kind, and how many backends had it.
    pub label: String,
    /// First begin, seconds.
    pub from_seconds: f64,
    /// Last end, seconds; not beyond the simulated time.
    pub to_seconds: f64,
}

/// One policy's outcome.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PolicyReport {
    /// The policy's name in configuration.
    pub policy: String,
    /// Requests that were measured.
    pub requests: u64,
    /// Those that failed, of all.
    pub failed_share: f64,
    /// Those that failed, of the ones that arrived later than 5 s after the faults' begin and before
    /// their end; `None` if there were none.
    pub failed_share_settled: Option<f64>,
    /// How many failed of what.
    pub causes: Vec<(&'static str, u64)>,
    /// Tries for each request: 1 without any retry.
    pub tries_per_request: f64,
    /// Latency of all requests that succeeded.
    pub latency: Option<Latency>,
    /// Of those that arrived before the first fault.
    pub latency_before: Option<Latency>,
    /// Of those that arrived from the first fault's begin to the last one's end.
    pub latency_during: Option<Latency>,
    /// Of those that arrived later.
    pub latency_after: Option<Latency>,
    /// The largest share of picks that a backend had in the measured time, as a multiple of a fair
    /// one (by weight).
    pub share_max: f64,
    /// The same within any window of [`share window`](Self::window_seconds).
    pub share_peak: f64,
    /// Length of a window in which shares are judged, seconds: at least 1 s, and long enough for 20
    /// fair picks.
    pub window_seconds: f64,
    /// The largest share of a fair one that a backend with a steady fault has in any window within the fault that
    /// begins a second after it or later; `None` if the scenario does not ask it.
    pub share_at_fault: Option<f64>,
    /// The same of windows that begin 5 s after the fault's begin or later.
    pub share_at_fault_settled: Option<f64>,
    /// From a fault's begin until the backend that has it gets less than 15 % of a fair share for a
    /// window's length; the slowest of all.
    pub shift: Delay,
    /// From a fault's end until the backend gets over 80 % of a fair share; the slowest of all.
    pub recovery: Delay,
    /// Ejections, all balancers together.
    pub ejections: u64,
    /// Those of backends with no fault at that time, or with one that all backends had and that lost
    /// no requests.
    pub false_ejections: u64,
    /// How often a backend became degraded, all balancers together.
    pub degraded: u64,
    /// Changes of a pool's mind (up, down, ejected, returned, refused, panic) a minute, for each
    /// balancer.
    pub changes_per_minute: f64,
    /// How often a minute a backend's share swung from a quarter above its mean to a quarter below,
    /// or back, beyond what chance does; mean of all backends.
    pub swings_per_minute: f64,
    /// The smallest and the largest share of picks before the first fault, of what the backend's part of all capacity
    /// is. `None` if there were too few picks to tell.
    pub capacity_shares: Option<(f64, f64)>,
    /// Jain's index of picks for capacity before the first fault: 1 is even. `None` if there were too
    /// few picks to tell.
    pub jain: Option<f64>,
    /// The longest queue at a backend.
    pub queue_max: usize,
    /// What is drawn.
    pub series: Series,
    /// What the simulation cost in real time, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
}

/// Latency, milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Latency {
    /// Requests that it is of.
    pub count: u64,
    /// Mean.
    pub mean_ms: f64,
    /// Median. Quantiles are exact to 0.8 %.
    pub p50_ms: f64,
    /// 95 %.
    pub p95_ms: f64,
    /// 99 %.
    pub p99_ms: f64,
    /// 99.9 %.
    pub p999_ms: f64,
    /// The longest.
    pub max_ms: f64,
}

/// How long something took. In JSON a number of seconds, `"never"`, or null if it was not asked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Delay {
    /// The scenario does not ask it.
    NotAsked,
    /// Not before the end.
    Never,
    /// Seconds.
    Seconds(f64),
}

impl Delay {
    /// The longer of two.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        match (self, other) {
            (Self::NotAsked, delay) | (delay, Self::NotAsked) => delay,
            (Self::Never, _) | (_, Self::Never) => Self::Never,
            (Self::Seconds(one), Self::Seconds(two)) => Self::Seconds(one.max(two)),
        }
    }
}

impl Serialize for Delay {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::NotAsked => serializer.serialize_none(),
            Self::Never => serializer.serialize_str("never"),
            Self::Seconds(seconds) => serializer.serialize_f64(*seconds),
        }
    }
}

/// What happened over time, in stretches of equal length.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// Length of a stretch, seconds.
    pub stretch_seconds: f64,
    /// Latency of the requests that ended in it, milliseconds; null if none succeeded.
    pub p50_ms: Vec<Option<f64>>,
    /// Latency, milliseconds.
    pub p99_ms: Vec<Option<f64>>,
    /// Share of requests that failed, of those that ended in it.
    pub failed_share: Vec<f64>,
    /// Requests a second that ended in it.
    pub per_second: Vec<f64>,
    /// Shares of picks.
    pub shares: Lines,
}

/// Shares of picks by backend: some backends each, the others as a band.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Lines {
    /// Number and shares of each backend that is shown by itself: those with a fault come first.
    pub backends: Vec<(usize, Vec<f64>)>,
    /// How many of them have a fault.
    pub faulty: usize,
    /// The smallest share of the others; empty if there are none.
    pub rest_min: Vec<f64>,
    /// The largest share of the others.
    pub rest_max: Vec<f64>,
}

/// Real time that a simulation took. Differs from run to run, unlike all else.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// Seconds in all.
    pub seconds: f64,
    /// Simulated requests for each second.
    pub requests_per_second: f64,
    /// Nanoseconds of a pick and the return of its claim, in the pool as it is at the end.
    pub pick_nanos: f64,
}

impl Cost {
    pub(crate) fn new(took: Duration, requests: u64, pick: Duration) -> Self {
        let seconds = took.as_secs_f64();
        Self {
            seconds,
            requests_per_second: requests as f64 / seconds.max(1e-9),
            pick_nanos: pick.as_nanos() as f64,
        }
    }
}

impl Report {
    pub(crate) fn new(scenario: &Scenario, seed: u64, policies: Vec<PolicyReport>) -> Self {
        Self {
            scenario: scenario.name.clone(),
            about: scenario.about.clone(),
            seed,
            seconds: scenario.time.as_secs_f64(),
            warmup_seconds: scenario.warmup.as_secs_f64(),
            balancers: scenario.balancers,
            backends: scenario.backends.len(),
            capacity_per_second: scenario.capacity(),
            rate_per_second: scenario
                .arrivals
                .first()
                .map_or(0.0, |rate| rate.per_second),
            faults: measure::fault_spans(scenario),
            policies,
        }
    }

    /// The outcome of the policy of this name.
    pub fn policy(&self, name: &str) -> Option<&PolicyReport> {
        self.policies.iter().find(|policy| policy.policy == name)
    }

    /// A table for a terminal, a row for each policy.
    pub fn to_text(&self) -> String {
        text::write(self)
    }

    /// All of it as JSON.
    ///
    /// # Errors
    /// None that is known: every figure is finite.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self)
    }

    /// A page with the table and plots, in one file: no scripts, nothing fetched.
    pub fn to_html(&self) -> String {
        html::write(self)
    }
}

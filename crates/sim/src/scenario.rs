//! What is simulated: backends, traffic, and what goes wrong when.
//!
//! A [`Scenario`] is a plain value. It is read from TOML by [`Scenario::parse`], which refuses what
//! it does not know, or built in code. All times count from the start of the simulation.

use std::time::Duration;

use crate::law::Law;

mod check;
mod diagnostic;
mod fault;
mod file;
mod shipped;
#[cfg(test)]
mod tests;
mod text;

pub use diagnostic::Diagnostic;
pub use fault::{Cold, Failing, Fault, FaultKind, Warm};
pub use shipped::{ShippedScenario, shipped};

/// A simulation's setting. What it leaves open (seed, policies) is in [`Options`](crate::Options).
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Its name: letters, digits, `-` and `_`.
    pub name: String,
    /// What it shows, as a sentence or two.
    pub about: String,
    /// How long requests arrive. Those in flight then are still served to their end.
    pub time: Duration,
    /// The first part of `time`, which is not measured: the balancers learn.
    pub warmup: Duration,
    /// How many balancers share the traffic evenly, each of which sees only its own, `1..=1000`.
    pub balancers: usize,
    /// Zones, `1..=100`; the balancers are in them in turn, and prefer backends of their own. 1: they do not count.
    pub zones: u32,
    /// Distinct keys of the requests, evenly likely; for policies that hash. At least 1.
    pub keys: u64,
    /// The backends, numbered from 0.
    pub backends: Vec<BackendPlan>,
    /// The work of a request.
    pub service: Law,
    /// From balancer to backend, and again back.
    pub network: Duration,
    /// Requests a second over time, in order of `from`; the first begins at zero.
    pub arrivals: Vec<Rate>,
    /// After this long a client goes away: to the balancer that is an abort, which says that the backend
    /// is slow if it waited for longer than is usual.
    pub client_timeout: Option<Duration>,
    /// What the balancers are configured to do.
    pub pool: PoolPlan,
    /// What goes wrong.
    pub faults: Vec<Fault>,
}

impl Scenario {
    /// Reads a scenario from TOML. `name` is its name if the text gives none, and stands for the
    /// file in diagnostics.
    ///
    /// # Errors
    /// All that is wrong with it, each with its place.
    pub fn parse(name: &str, text: &str) -> Result<Self, Vec<Diagnostic>> {
        check::compile(name, text)
    }

    /// Requests a second that all backends together can serve when they are well.
    pub fn capacity(&self) -> f64 {
        let slots: f64 = self.backends.iter().map(BackendPlan::power).sum();
        slots * 1e9 / self.service.mean_nanos()
    }
}

/// A backend: a queue before slots that each work on one request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BackendPlan {
    /// Requests that it works on at a time, `1..`.
    pub slots: usize,
    /// Requests that may wait for a slot; one more gets 503.
    pub queue_max: usize,
    /// How fast each slot works, above 0; 1 does a request's work in just that time.
    pub speed: f64,
    /// Its weight in the balancers' configuration, `1..=65535`.
    pub weight: u32,
    /// Its tier: 0 is asked first.
    pub priority: u32,
    /// The zone it is in, from 0.
    pub zone: u32,
}

impl BackendPlan {
    /// Seconds of work that it does a second.
    pub(crate) fn power(&self) -> f64 {
        self.slots as f64 * self.speed
    }
}

/// Requests a second from a time on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// From when on.
    pub from: Duration,
    /// Requests a second, all balancers together, `0.0..`. They come by a Poisson process.
    pub per_second: f64,
}

/// The part of a pool's configuration that simulations vary. Defaults are the product's.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolPlan {
    /// From a try's start to the response's head; beyond, the try has failed. Default 30 s; `None`: never.
    pub response_timeout: Option<Duration>,
    /// When a request is tried again.
    pub retry: RetryPlan,
    /// Active checks, if any.
    pub probes: Option<ProbePlan>,
    /// Whether failures in traffic eject. Default true.
    pub ejection: bool,
    /// Share of healthy backends below which health is ignored, `0.0..=1.0`. Default 0.5.
    pub panic_threshold: f64,
    /// Within this time each balancer hears of a member that came or went, at a random moment of its
    /// own. Default 200 ms.
    pub propagation: Duration,
}

impl Default for PoolPlan {
    fn default() -> Self {
        Self {
            response_timeout: Some(Duration::from_secs(30)),
            retry: RetryPlan::default(),
            probes: None,
            ejection: true,
            panic_threshold: 0.5,
            propagation: Duration::from_millis(200),
        }
    }
}

/// When a request is tried again. All requests are taken to be idempotent.
#[derive(Clone, Debug, PartialEq)]
pub struct RetryPlan {
    /// Tries in all, the first included, `1..=8`. Default 3. A refused connection is always tried
    /// again, the rest only within the pool's retry budget.
    pub tries_max: u32,
    /// After a reset. Default true.
    pub reset: bool,
    /// After the response time-out. Default false.
    pub timeout: bool,
    /// After these statuses, each `400..=599`. Default none.
    pub statuses: Vec<u16>,
}

impl Default for RetryPlan {
    fn default() -> Self {
        Self {
            tries_max: 3,
            reset: true,
            timeout: false,
            statuses: Vec::new(),
        }
    }
}

/// Active checks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProbePlan {
    /// From start to start, varied by a tenth. Default 2 s.
    pub interval: Duration,
    /// A probe that takes longer has failed. Default 1 s.
    pub timeout: Duration,
    /// Passed probes in a row that bring a backend up. Default 2.
    pub rise: u32,
    /// Failed probes in a row that take it down. Default 3.
    pub fall: u32,
}

impl Default for ProbePlan {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(2),
            timeout: Duration::from_secs(1),
            rise: 2,
            fall: 3,
        }
    }
}

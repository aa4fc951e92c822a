//! A seeded simulator of many balancers and backends around `mizan-core`, in virtual time.
//!
//! It drives the decision code that ships, by the same verbs as the product does (pick, observe,
//! probed, tick), and asks: under this traffic and these faults, how do the policies compare? It has
//! no I/O and reads no clock: a scenario is text that the caller has read, a report is a value that
//! three writers turn into text, JSON or a page. The same scenario and seed give the same report, to
//! the last bit (on machines whose logarithms agree to the last bit).
//!
//! | module | has |
//! | --- | --- |
//! | `scenario` | what is simulated, and its TOML |
//! | `engine` | the simulation of one policy |
//! | `record` | what is written down meanwhile |
//! | `report` | the figures, and their writers |
//! | `contender` | a policy, and how much the pool around it does |
//! | `figures` | the default beside baselines, and what is asked of it |
//! | `replay` | an access log, played again |
//! | `law`, `random`, `histogram` | service times, entropy from the seed, quantiles |
//!
//! What the model leaves out: connections (each request makes its own try, as over HTTP/2), bodies
//! (an answer is whole when it comes), the queue of requests before a pool that is full, CPU time of
//! the balancers, and a network that varies or loses.
//!
//! ```
//! use std::time::Duration;
//! let shipped = mizan_sim::shipped();
//! let scenario = shipped[0].scenario();
//! let options = mizan_sim::Options { seconds: Some(2), ..Default::default() };
//! let report = mizan_sim::run(&scenario, &options);
//! println!("{}", report.to_text());
//! ```

mod contender;
mod engine;
mod figures;
mod histogram;
mod law;
mod random;
mod record;
mod replay;
mod report;
mod scenario;

use std::time::Duration;

use mizan_core::PolicyKind;

pub use contender::{Care, Contender, WeightRule};
pub use figures::{Bar, Judged, Judgement, judge};
pub use law::Law;
pub use replay::{
    BadLine, Changes, Figures, LineCounts, LogFormat, LogReader, ReplayError, ReplayReport, replay,
};
pub use report::{Cost, Delay, FaultSpan, Latency, Lines, PolicyReport, Report, Series};
pub use scenario::{
    BackendPlan, Cold, Diagnostic, Failing, Fault, FaultKind, PoolPlan, ProbePlan, Rate, RetryPlan,
    Scenario, ShippedScenario, Warm, shipped,
};

/// What a scenario leaves open.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where all random numbers come from. Default 1.
    pub seed: u64,
    /// Which policies are compared. Default all.
    pub policies: Vec<PolicyKind>,
    /// Simulated time in place of the scenario's own, seconds, at least 1. Faults keep their times.
    pub seconds: Option<u64>,
    /// Reads real time since any origin, to report what a run cost; without it no cost is reported.
    pub stopwatch: Option<fn() -> Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: 1,
            policies: PolicyKind::ALL.to_vec(),
            seconds: None,
            stopwatch: None,
        }
    }
}

/// Simulates the scenario once for each policy, each with the same requests.
pub fn run(scenario: &Scenario, options: &Options) -> Report {
    let scenario = &with_time(scenario, options.seconds);
    let policies = options.policies.iter();
    let policies = policies
        .map(|&policy| run_one(scenario, policy.into(), options))
        .collect();
    Report::new(scenario, options.seed, policies)
}

fn run_one(scenario: &Scenario, contender: Contender, options: &Options) -> PolicyReport {
    let begin = options.stopwatch.map(|stopwatch| stopwatch());
    let (record, pool) = engine::Engine::new(scenario, options.seed, contender).run();
    let mut report = report::measure(scenario, contender, &record);
    if let (Some(begin), Some(stopwatch)) = (begin, options.stopwatch) {
        let took = stopwatch().saturating_sub(begin);
        let pick = pool.time_of_pick(stopwatch);
        report.cost = Some(Cost::new(took, record.arrived, pick));
    }
    report
}

fn with_time(scenario: &Scenario, seconds: Option<u64>) -> Scenario {
    let mut scenario = scenario.clone();
    if let Some(seconds) = seconds {
        scenario.time = Duration::from_secs(seconds.max(1));
        scenario.warmup = scenario.warmup.min(scenario.time / 10);
    }
    scenario
}

#[cfg(test)]
mod tests;

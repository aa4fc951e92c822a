//! What is written down while a simulation runs. `report` makes figures of it.

use std::time::Duration;

use crate::engine::Cause;
use crate::histogram::Histogram;
use crate::scenario::Scenario;

/// Picks are counted in buckets of this, or longer in simulations of more than [`BUCKETS_MAX`] of them.
const BUCKET: u64 = 100_000_000;
const BUCKETS_MAX: u64 = 3_000;
/// Points of a plot, at most.
const POINTS_MAX: u64 = 120;
/// A plot's points are no closer than this.
const POINT: u64 = 500_000_000;
/// A balancer may take this long to react to a fault before its failures count as settled.
pub(crate) const SETTLE: Duration = Duration::from_secs(5);

/// Part of the measured time, relative to the faults. By a request's arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Before,
    During,
    After,
}

/// Latency and failures of a stretch of time, by the end of the requests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Point {
    /// Nanoseconds; `None` if nothing succeeded.
    pub(crate) p50: Option<u64>,
    pub(crate) p99: Option<u64>,
    pub(crate) ok: u64,
    pub(crate) failed: u64,
}

/// Counts, histograms and series of one run.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) warmup: u64,
    pub(crate) end: u64,
    pub(crate) backends: usize,
    /// Length of a bucket of `picks`, nanoseconds.
    pub(crate) bucket: u64,
    /// Picks by bucket, then by backend.
    pub(crate) picks: Vec<u32>,
    /// Length of a stretch of `points`, nanoseconds.
    pub(crate) stretch: u64,
    pub(crate) points: Vec<Point>,
    /// First begin and last end of a fault, within the simulated time.
    pub(crate) trouble: Option<(u64, u64)>,
    /// Of requests that succeeded: all, then by phase.
    pub(crate) latency: Histogram,
    pub(crate) by_phase: [Histogram; 3],
    pub(crate) ok: u64,
    pub(crate) failed: [u64; Cause::COUNT],
    /// Requests while a fault lasts and balancers have had time to react; how many of them failed.
    pub(crate) settled: (u64, u64),
    pub(crate) tries: u64,
    pub(crate) first_tries: u64,
    pub(crate) ejections: u64,
    pub(crate) false_ejections: u64,
    pub(crate) degraded: u64,
    pub(crate) changes: u64,
    pub(crate) queue_max: usize,
    /// All arrivals, and all ends: measured or not.
    pub(crate) arrived: u64,
    pub(crate) ended: u64,
    now: u64,
    recent: Histogram,
    recent_failed: u64,
}

impl Record {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let end = scenario.time.as_nanos() as u64;
        let backends = scenario.backends.len();
        let bucket = BUCKET.max(end / BUCKETS_MAX);
        let stretch = POINT.max(end.div_ceil(POINTS_MAX));
        let buckets = end.div_ceil(bucket) as usize;
        Self {
            warmup: scenario.warmup.as_nanos() as u64,
            end,
            backends,
            bucket,
            picks: vec![0; buckets * backends],
            stretch,
            points: Vec::with_capacity(end.div_ceil(stretch) as usize),
            trouble: trouble(scenario, end),
            latency: Histogram::new(),
            by_phase: [Histogram::new(), Histogram::new(), Histogram::new()],
            ok: 0,
            failed: [0; Cause::COUNT],
            settled: (0, 0),
            tries: 0,
            first_tries: 0,
            ejections: 0,
            false_ejections: 0,
            degraded: 0,
            changes: 0,
            queue_max: 0,
            arrived: 0,
            ended: 0,
            now: 0,
            recent: Histogram::new(),
            recent_failed: 0,
        }
    }

    /// Time passes. Closes the stretches of the plot that are over.
    pub(crate) fn pass_to(&mut self, now: u64) {
        self.now = now;
        while now >= (self.points.len() as u64 + 1) * self.stretch
            && (self.points.len() as u64) < self.end.div_ceil(self.stretch)
        {
            self.close_point();
        }
    }

    pub(crate) fn picked(&mut self, now: u64, backend: u32, tries: u32) {
        if now < self.end {
            let bucket = (now / self.bucket) as usize;
            self.picks[bucket * self.backends + backend as usize] += 1;
        }
        if now >= self.warmup {
            self.tries += 1;
            self.first_tries += u64::from(tries == 1);
        }
    }

    pub(crate) fn queued(&mut self, length: usize) {
        if self.now >= self.warmup {
            self.queue_max = self.queue_max.max(length);
        }
    }

    /// A request that arrived at `arrived` has ended.
    pub(crate) fn ended(&mut self, now: u64, arrived: u64, result: Result<(), Cause>) {
        self.ended += 1;
        if now < self.end {
            match result {
                Ok(()) => self.recent.record(now - arrived),
                Err(_) => self.recent_failed += 1,
            }
        }
        if arrived < self.warmup {
            return;
        }
        if self.is_settled(arrived) {
            self.settled.0 += 1;
            self.settled.1 += u64::from(result.is_err());
        }
        match result {
            Ok(()) => {
                self.ok += 1;
                self.latency.record(now - arrived);
                self.by_phase[self.phase(arrived) as usize].record(now - arrived);
            }
            Err(cause) => self.failed[cause.index()] += 1,
        }
    }

    pub(crate) fn ejected(&mut self, now: u64, is_excused: bool) {
        if now >= self.warmup {
            self.ejections += 1;
            self.false_ejections += u64::from(!is_excused);
        }
    }

    pub(crate) fn degraded(&mut self, now: u64) {
        self.degraded += u64::from(now >= self.warmup);
    }

    /// So many backends have another standing with a balancer's traffic.
    pub(crate) fn changed(&mut self, now: u64, count: u64) {
        if now >= self.warmup && now < self.end {
            self.changes += count;
        }
    }

    pub(crate) fn close(&mut self, arrived: u64) {
        self.arrived = arrived;
        while (self.points.len() as u64) < self.end.div_ceil(self.stretch) {
            self.close_point();
        }
    }

    fn close_point(&mut self) {
        self.points.push(Point {
            p50: self.recent.quantile(0.5),
            p99: self.recent.quantile(0.99),
            ok: self.recent.count(),
            failed: self.recent_failed,
        });
        self.recent.clear();
        self.recent_failed = 0;
    }

    fn phase(&self, arrived: u64) -> Phase {
        match self.trouble {
            Some((from, _)) if arrived < from => Phase::Before,
            Some((_, to)) if arrived < to => Phase::During,
            Some(_) => Phase::After,
            None => Phase::Before,
        }
    }

    fn is_settled(&self, arrived: u64) -> bool {
        let settle = SETTLE.as_nanos() as u64;
        self.trouble
            .is_some_and(|(from, to)| arrived >= from + settle && arrived < to)
    }
}

/// From the first begin of a fault to the last end.
fn trouble(scenario: &Scenario, end: u64) -> Option<(u64, u64)> {
    let windows = || scenario.faults.iter().flat_map(|fault| fault.windows());
    let from = windows().map(|(_, from, _)| from).min()?;
    let to = windows().map(|(_, _, to)| to).max()?;
    (from < end).then(|| (from, to.min(end)))
}

//! From what was recorded to figures.

use std::time::Duration;

use super::share::Shares;
use super::{FaultSpan, Latency, Lines, PolicyReport, Series};
use crate::contender::Contender;
use crate::engine::Cause;
use crate::histogram::Histogram;
use crate::record::{Phase, Record, SETTLE};
use crate::scenario::Scenario;

/// Backends that are drawn by themselves, and how many of those may be faulty.
const LINES_MAX: usize = 10;
const FAULTY_MAX: usize = 6;
/// What fails fast has this long before its share must be lower than the others'.
const AT_ONCE: Duration = Duration::from_secs(1);

/// Figures of one run.
pub(crate) fn measure(
    scenario: &Scenario,
    contender: impl Into<Contender>,
    record: &Record,
) -> PolicyReport {
    let shares = Shares::new(scenario, record);
    let failed: u64 = record.failed.iter().sum();
    let requests = record.ok + failed;
    let minutes = (record.end - record.warmup) as f64 / 60e9;
    let (settled, settled_failed) = record.settled;
    let causes = Cause::NAMES.into_iter().zip(record.failed);
    let of_phase = |phase: Phase| Latency::of(&record.by_phase[phase as usize]);
    PolicyReport {
        policy: contender.into().name(),
        requests,
        failed_share: ratio(failed, requests),
        failed_share_settled: (settled > 0).then(|| ratio(settled_failed, settled)),
        causes: causes.filter(|&(_, count)| count > 0).collect(),
        tries_per_request: ratio(record.tries, record.first_tries),
        latency: Latency::of(&record.latency),
        latency_before: of_phase(Phase::Before),
        latency_during: of_phase(Phase::During),
        latency_after: of_phase(Phase::After),
        share_max: shares.max(),
        share_peak: shares.peak(),
        window_seconds: shares.window_seconds(),
        shift: shares.shift(scenario),
        recovery: shares.recovery(scenario),
        share_at_fault: shares.at_fault(scenario, AT_ONCE),
        share_at_fault_settled: shares.at_fault(scenario, SETTLE),
        ejections: record.ejections,
        false_ejections: record.false_ejections,
        degraded: record.degraded,
        changes_per_minute: record.changes as f64 / minutes / scenario.balancers as f64,
        swings_per_minute: shares.swings() / minutes,
        capacity_shares: shares.of_capacity(scenario),
        jain: shares.jain(scenario),
        queue_max: record.queue_max,
        series: series(scenario, record),
        cost: None,
    }
}

/// When each fault is there.
pub(super) fn fault_spans(scenario: &Scenario) -> Vec<FaultSpan> {
    let end = scenario.time.as_nanos() as u64;
    let spans = scenario.faults.iter().filter_map(|fault| {
        let from = fault.windows().map(|(_, from, _)| from).min()?;
        let to = fault.windows().map(|(_, _, to)| to).max()?.min(end);
        let count = fault.backends.len();
        (from < end).then(|| FaultSpan {
            label: format!(
                "{} of {count} of {}",
                fault.kind.name(),
                scenario.backends.len()
            ),
            from_seconds: seconds(from),
            to_seconds: seconds(to),
        })
    });
    spans.collect()
}

impl Latency {
    /// Of a histogram of nanoseconds; `None` of none.
    pub(crate) fn of(histogram: &Histogram) -> Option<Self> {
        let quantile = |q| histogram.quantile(q).map(millis);
        Some(Self {
            count: histogram.count(),
            mean_ms: histogram.mean()? * 1e-6,
            p50_ms: quantile(0.5)?,
            p95_ms: quantile(0.95)?,
            p99_ms: quantile(0.99)?,
            p999_ms: quantile(0.999)?,
            max_ms: millis(histogram.max()),
        })
    }
}

fn series(scenario: &Scenario, record: &Record) -> Series {
    let points = &record.points;
    let stretch_seconds = seconds(record.stretch);
    let ended = |ok: u64, failed: u64| (ok + failed) as f64;
    Series {
        stretch_seconds,
        p50_ms: points.iter().map(|point| point.p50.map(millis)).collect(),
        p99_ms: points.iter().map(|point| point.p99.map(millis)).collect(),
        failed_share: points
            .iter()
            .map(|point| rounded(point.failed as f64 / ended(point.ok, point.failed).max(1.0)))
            .collect(),
        per_second: points
            .iter()
            .map(|point| rounded(ended(point.ok, point.failed) / stretch_seconds))
            .collect(),
        shares: lines(scenario, record),
    }
}

fn lines(scenario: &Scenario, record: &Record) -> Lines {
    let shares = shares_by_stretch(record);
    let faulty = faulty(scenario);
    let well = (0..record.backends).filter(|backend| !faulty.contains(backend));
    let mut shown: Vec<usize> = faulty.iter().copied().take(FAULTY_MAX).collect();
    let faulty_shown = shown.len();
    shown.extend(well.take(LINES_MAX - faulty_shown));
    let rest: Vec<usize> = (0..record.backends)
        .filter(|backend| !shown.contains(backend))
        .collect();
    let of_rest = |pick: fn(f64, f64) -> f64, first: f64| -> Vec<f64> {
        if rest.is_empty() {
            return Vec::new();
        }
        let extreme = |row: &Vec<f64>| rest.iter().map(|&at| row[at]).fold(first, pick);
        shares.iter().map(extreme).collect()
    };
    Lines {
        rest_min: of_rest(f64::min, 1.0),
        rest_max: of_rest(f64::max, 0.0),
        faulty: faulty_shown,
        backends: shown
            .iter()
            .map(|&at| (at, shares.iter().map(|row| row[at]).collect()))
            .collect(),
    }
}

/// Backends that some fault singles out, in order.
fn faulty(scenario: &Scenario) -> Vec<usize> {
    let all = scenario.backends.len();
    let mut faulty: Vec<usize> = scenario
        .faults
        .iter()
        .filter(|fault| fault.backends.len() < all)
        .flat_map(|fault| fault.backends.iter().copied())
        .collect();
    faulty.sort_unstable();
    faulty.dedup();
    faulty
}

/// The share of each backend, stretch by stretch.
fn shares_by_stretch(record: &Record) -> Vec<Vec<f64>> {
    let each = (record.stretch / record.bucket).max(1) as usize;
    let rows = record.picks.chunks(each * record.backends);
    rows.map(|chunk| {
        let mut sums = vec![0u64; record.backends];
        for bucket in chunk.chunks(record.backends) {
            for (sum, &count) in sums.iter_mut().zip(bucket) {
                *sum += u64::from(count);
            }
        }
        let total: u64 = sums.iter().sum();
        sums.iter().map(|&sum| rounded(ratio(sum, total))).collect()
    })
    .collect()
}

fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// To a millionth: what a plot can show, and no longer in JSON than that.
fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

fn millis(nanos: u64) -> f64 {
    nanos as f64 * 1e-6
}

fn seconds(nanos: u64) -> f64 {
    // Divided and not multiplied: so a whole number of seconds stays one.
    nanos as f64 / 1e9
}

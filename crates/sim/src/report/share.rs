//! Who got how much, and how fast that changed.

use std::time::Duration;

use super::Delay;
use crate::record::Record;
use crate::scenario::{BackendPlan, Fault, FaultKind, Scenario};

/// A window has at least this many picks of a backend that gets a fair share.
const WINDOW_PICKS: f64 = 20.0;
/// And is at least this long, seconds.
const WINDOW_MIN: f64 = 1.0;
/// Traffic has left a backend that gets less than this part of a fair share.
const SHIFTED: f64 = 0.15;
/// It is back at one that gets more than this.
const RECOVERED: f64 = 0.8;
/// A swing goes this far to both sides of a backend's mean, or three deviations of chance.
const SWING: f64 = 0.25;
/// With fewer picks for each backend, Jain's index would show chance.
const JAIN_PICKS: f64 = 200.0;

/// Picks by bucket, summed up, so that any window is a difference.
pub(super) struct Shares<'r> {
    record: &'r Record,
    /// Picks of all backends before each bucket.
    totals: Vec<u64>,
    /// Each backend's fair share, by weight.
    fair: Vec<f64>,
    /// Buckets of a window.
    window: usize,
    /// First bucket that is measured.
    first: usize,
}

impl<'r> Shares<'r> {
    pub(super) fn new(scenario: &Scenario, record: &'r Record) -> Self {
        let mut totals = vec![0];
        let mut sum = 0u64;
        for bucket in record.picks.chunks(record.backends) {
            sum += bucket.iter().map(|&count| u64::from(count)).sum::<u64>();
            totals.push(sum);
        }
        let weights: f64 = scenario
            .backends
            .iter()
            .map(|one| f64::from(one.weight))
            .sum();
        let fair = scenario
            .backends
            .iter()
            .map(|one| f64::from(one.weight) / weights);
        let per_bucket = sum as f64 / (totals.len() - 1).max(1) as f64;
        let fair_picks = per_bucket / record.backends as f64;
        let bucket_seconds = record.bucket as f64 * 1e-9;
        let wanted = (WINDOW_MIN / bucket_seconds).max(WINDOW_PICKS / fair_picks.max(1e-9));
        Self {
            fair: fair.collect(),
            window: (wanted.ceil() as usize).clamp(1, (totals.len() / 4).max(1)),
            first: record.warmup.div_ceil(record.bucket) as usize,
            totals,
            record,
        }
    }

    pub(super) fn window_seconds(&self) -> f64 {
        self.window as f64 * self.record.bucket as f64 * 1e-9
    }

    /// The largest share of a fair one in the measured time.
    pub(super) fn max(&self) -> f64 {
        let last = self.buckets();
        let of = |backend| {
            let sums = self.sums(backend);
            self.of_fair(backend, &sums, self.first, last)
        };
        (0..self.fair.len()).map(of).fold(0.0, f64::max)
    }

    /// The largest share of a fair one in any window.
    pub(super) fn peak(&self) -> f64 {
        let mut peak = 0.0f64;
        for backend in 0..self.fair.len() {
            let sums = self.sums(backend);
            for at in self.first..=self.buckets().saturating_sub(self.window) {
                peak = peak.max(self.of_fair(backend, &sums, at, at + self.window));
            }
        }
        peak
    }

    /// How long traffic takes to leave the backends that get a steady fault.
    pub(super) fn shift(&self, scenario: &Scenario) -> Delay {
        let is_asked = |kind: &FaultKind| kind.is_steady();
        let delays = singled_out(scenario, is_asked).map(|(backend, from, to)| {
            self.first_window(backend, from, to, |share| share < SHIFTED)
        });
        delays.fold(Delay::NotAsked, Delay::max)
    }

    /// How long it takes to come back after the fault.
    pub(super) fn recovery(&self, scenario: &Scenario) -> Delay {
        let is_asked = |kind: &FaultKind| {
            let is_lasting = matches!(
                kind,
                FaultKind::BrownOut { .. } | FaultKind::Leave { .. } | FaultKind::ColdStart(_)
            );
            kind.is_steady() || is_lasting
        };
        let delays = singled_out(scenario, is_asked).map(|(backend, _, to)| {
            self.first_window(backend, to, u64::MAX, |share| share > RECOVERED)
        });
        delays.fold(Delay::NotAsked, Delay::max)
    }

    /// The largest share of a fair one that a backend with a steady fault has in a window within the fault that
    /// begins so long after it or later.
    pub(super) fn at_fault(&self, scenario: &Scenario, after: Duration) -> Option<f64> {
        let bucket = self.record.bucket;
        let faults = singled_out(scenario, FaultKind::is_steady);
        let largest = faults.filter_map(|(backend, from, to)| {
            let first = (from + after.as_nanos() as u64).div_ceil(bucket) as usize;
            let end = ((to / bucket) as usize).min(self.buckets());
            let sums = self.sums(backend);
            let starts = first..=end.checked_sub(self.window)?;
            let shares = starts.map(|at| self.of_fair(backend, &sums, at, at + self.window));
            shares.max_by(f64::total_cmp)
        });
        largest.max_by(f64::total_cmp)
    }

    /// Swings of a backend's share from high to low or back; the mean of all backends.
    pub(super) fn swings(&self) -> f64 {
        let all: u64 = (0..self.fair.len())
            .map(|backend| self.swings_of(backend))
            .sum();
        all as f64 / self.fair.len() as f64
    }

    /// Jain's index of picks for capacity before the first fault.
    pub(super) fn jain(&self, scenario: &Scenario) -> Option<f64> {
        let loads = self.loads(scenario)?;
        let sum: f64 = loads.iter().sum();
        let squares: f64 = loads.iter().map(|load| load * load).sum();
        Some(sum * sum / (squares * loads.len() as f64))
    }

    /// The smallest and the largest share of picks before the first fault, of what is the backend's by capacity.
    pub(super) fn of_capacity(&self, scenario: &Scenario) -> Option<(f64, f64)> {
        let loads = self.loads(scenario)?;
        let (least, most) = loads
            .iter()
            .fold((f64::MAX, 0.0f64), |(least, most), &load| {
                (least.min(load), most.max(load))
            });
        Some((least, most))
    }

    /// Picks of each backend before the first fault, of what is its by capacity; `None` of too few.
    fn loads(&self, scenario: &Scenario) -> Option<Vec<f64>> {
        let until = self
            .record
            .trouble
            .map_or(self.record.end, |(from, _)| from);
        let last = ((until / self.record.bucket) as usize).min(self.buckets());
        let last = last.max(self.first);
        let total = (self.totals[last] - self.totals[self.first.min(last)]) as f64;
        if total < JAIN_PICKS * self.fair.len() as f64 {
            return None;
        }
        let power: f64 = scenario.backends.iter().map(BackendPlan::power).sum();
        let plans = scenario.backends.iter().enumerate();
        let loads = plans.map(|(backend, plan)| {
            let sums = self.sums(backend);
            (sums[last] - sums[self.first]) as f64 / (total * plan.power() / power)
        });
        Some(loads.collect())
    }

    fn buckets(&self) -> usize {
        self.totals.len() - 1
    }

    /// Picks of one backend before each bucket.
    fn sums(&self, backend: usize) -> Vec<u64> {
        let mut sum = 0u64;
        let counts = self.record.picks.iter().skip(backend);
        let counts = counts.step_by(self.record.backends);
        std::iter::once(0)
            .chain(counts.map(|&count| {
                sum += u64::from(count);
                sum
            }))
            .collect()
    }

    /// Its share of a fair one between two buckets; of nothing, a fair one.
    fn of_fair(&self, backend: usize, sums: &[u64], from: usize, to: usize) -> f64 {
        let total = self.totals[to] - self.totals[from];
        if total == 0 {
            return 1.0;
        }
        (sums[to] - sums[from]) as f64 / (total as f64 * self.fair[backend])
    }

    /// From `from` until the first window that `holds` says yes to and that ends before `to`.
    fn first_window(
        &self,
        backend: usize,
        from: u64,
        to: u64,
        holds: impl Fn(f64) -> bool,
    ) -> Delay {
        let bucket = self.record.bucket;
        let first = from.div_ceil(bucket) as usize;
        let end = ((to / bucket) as usize).min(self.buckets());
        if first + self.window > end {
            return Delay::NotAsked;
        }
        let sums = self.sums(backend);
        for at in first..=end - self.window {
            if holds(self.of_fair(backend, &sums, at, at + self.window)) {
                let waited = (at as u64 * bucket).saturating_sub(from);
                return Delay::Seconds(Duration::from_nanos(waited).as_secs_f64());
            }
        }
        Delay::Never
    }

    fn swings_of(&self, backend: usize) -> u64 {
        let sums = self.sums(backend);
        let mean = self.of_fair(backend, &sums, self.first, self.buckets());
        let (mut swings, mut was_high) = (0, None);
        let mut at = self.first;
        while at + self.window <= self.buckets() {
            let to = at + self.window;
            let total = (self.totals[to] - self.totals[at]) as f64;
            let expected = total * self.fair[backend] * mean;
            let bound = SWING.max(3.0 / expected.max(1.0).sqrt());
            let relative = (sums[to] - sums[at]) as f64 / expected.max(1e-9);
            let is_high = relative > 1.0 + bound;
            if is_high || relative < 1.0 - bound {
                swings += u64::from(was_high.is_some_and(|was| was != is_high));
                was_high = Some(is_high);
            }
            at = to;
        }
        swings
    }
}

/// Backends with faults of a kind, begin and end of each, where there are others that traffic could go to.
fn singled_out(
    scenario: &Scenario,
    is_asked: impl Fn(&FaultKind) -> bool,
) -> impl Iterator<Item = (usize, u64, u64)> {
    let all = scenario.backends.len();
    let faults = scenario.faults.iter().filter(move |fault| {
        is_asked(&fault.kind) && (fault.backends.len() < all || !fault.step.is_zero())
    });
    faults.flat_map(Fault::windows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::shipped;

    const SECOND: usize = 10;

    /// Ten backends for 60 s, backend 0 slow from 20 s to 40 s; `picks` of it in each tenth of a
    /// second, where each other gets 100.
    fn record(picks: impl Fn(usize) -> u32) -> (Scenario, Record) {
        let scenario = shipped()[0].scenario();
        let mut record = Record::new(&scenario);
        for (at, bucket) in record.picks.chunks_mut(10).enumerate() {
            bucket.fill(100);
            bucket[0] = picks(at);
        }
        (scenario, record)
    }

    #[test]
    fn shift_and_recovery_are_counted_from_the_faults_begin_and_end() {
        let (scenario, record) = record(|at| match at {
            230..450 => 10,
            _ => 100,
        });
        let shares = Shares::new(&scenario, &record);
        assert_eq!(shares.shift(&scenario), Delay::Seconds(3.0));
        // A window is a second, of which four fifths are enough.
        let Delay::Seconds(recovery) = shares.recovery(&scenario) else {
            panic!("it recovers");
        };
        assert!((4.7..5.0).contains(&recovery), "{recovery}");
    }

    #[test]
    fn what_never_moves_is_never() {
        let (scenario, even) = record(|_| 100);
        let shares = Shares::new(&scenario, &even);
        assert_eq!(shares.shift(&scenario), Delay::Never);
        assert_eq!(shares.recovery(&scenario), Delay::Seconds(0.0));
        assert!((shares.jain(&scenario).unwrap() - 1.0).abs() < 1e-12);
        assert!((shares.max() - 1.0).abs() < 1e-12);
        let (scenario, gone) = record(|at| if at < 200 { 100 } else { 0 });
        let shares = Shares::new(&scenario, &gone);
        assert_eq!(shares.shift(&scenario), Delay::Seconds(0.0));
        assert_eq!(shares.recovery(&scenario), Delay::Never);
    }

    #[test]
    fn a_share_that_goes_up_and_down_swings_and_a_peak_is_seen() {
        // Two seconds high, two seconds low, in turn.
        let (scenario, record) = record(|at| {
            if (at / (2 * SECOND)).is_multiple_of(2) {
                150
            } else {
                50
            }
        });
        let shares = Shares::new(&scenario, &record);
        let swings = shares.swings_of(0);
        assert!((26..=28).contains(&swings), "{swings}");
        assert_eq!(shares.swings_of(1), 0);
        let peak = shares.peak();
        assert!((1.4..1.5).contains(&peak), "{peak}");
    }

    #[test]
    fn jain_shows_what_is_uneven() {
        let (scenario, record) = record(|_| 200);
        let jain = Shares::new(&scenario, &record).jain(&scenario).unwrap();
        let expected = 1_100.0f64.powi(2) / (10.0 * (9.0 * 1e4 + 4e4));
        assert!((jain - expected).abs() < 1e-9, "{jain} for {expected}");
    }
}

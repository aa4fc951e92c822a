//! The live state of a backend: atomics that picks read and outcomes write.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::availability::{AtomicGate, Gate};
use crate::ejection::{EjectionCause, Runs};
use crate::time::Instant;

use super::WEIGHT_MAX;
use super::load::{Latency, Penalty};
use super::peak::Peak;
use super::told::Told;
use crate::adaptive::LEVELS;
use crate::measure::Cells;

/// `in_flight_max` of a backend without a limit.
const UNLIMITED: u32 = u32::MAX;

/// An account of load that is older says nothing.
const REPORT_AGE_MAX: Duration = Duration::from_secs(10);
/// Parts of a backend that a subset holds as a whole. With the largest weight and level it fits a `u32`.
pub(crate) const FACTORS: u32 = 256;
/// Nobody is more than this many times full.
const UTILIZATION_MAX: f64 = 10.0;

// The order is the layout: what a pick reads comes first.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Live {
    in_flight: AtomicU32,
    pub(crate) gate: AtomicGate,
    /// Nominal weight × level × factor.
    weight: AtomicU32,
    /// The configured limit, or a lower one while it starts slowly.
    in_flight_max: AtomicU32,
    /// Where it stands in the picker in force: a hint, to be checked.
    pub(crate) slot: AtomicU32,
    failures: AtomicU32,
    pub(crate) penalty: Penalty,
    pub(crate) latency: Latency,
    errors: AtomicU32,
    refused: AtomicU32,
    lost: AtomicU32,
    /// Answers in a row that ask for fewer requests.
    limited: AtomicU32,
    /// When and why a request marked it; read by the next `tick`.
    marked_at: AtomicU64,
    mark: AtomicU32,
    /// Its own account of its load (`f32`), and when that came.
    reported: AtomicU32,
    reported_at: AtomicU64,
    /// What the configuration says.
    nominal: AtomicU32,
    in_flight_limit: AtomicU32,
    /// Share of its nominal weight that it gets, `1..=LEVELS`.
    level: AtomicU32,
    /// What part of it a subset holds, `1..=FACTORS`; 1 for all where all are held as a whole.
    factor: AtomicU32,
    pub(crate) cells: Cells,
    /// Kept where the policy goes by it, and read by no other.
    pub(crate) peak: Peak,
    /// Likewise.
    pub(crate) told: Told,
}

impl Live {
    pub(crate) fn new(weight: u32, in_flight_max: Option<u32>) -> Self {
        let live = Self {
            in_flight: AtomicU32::new(0),
            gate: AtomicGate::default(),
            weight: AtomicU32::new(0),
            in_flight_max: AtomicU32::new(UNLIMITED),
            penalty: Penalty::default(),
            latency: Latency::default(),
            slot: AtomicU32::new(0),
            failures: AtomicU32::new(0),
            errors: AtomicU32::new(0),
            refused: AtomicU32::new(0),
            lost: AtomicU32::new(0),
            limited: AtomicU32::new(0),
            marked_at: AtomicU64::new(0),
            mark: AtomicU32::new(0),
            reported: AtomicU32::new(0),
            reported_at: AtomicU64::new(0),
            nominal: AtomicU32::new(0),
            in_flight_limit: AtomicU32::new(UNLIMITED),
            level: AtomicU32::new(LEVELS),
            factor: AtomicU32::new(1),
            cells: Cells::default(),
            peak: Peak::default(),
            told: Told::default(),
        };
        live.configure(weight, in_flight_max);
        live
    }

    /// One of its own with the same figures, for picks that nobody shall notice. Written out, so that a new
    /// field cannot be forgotten here.
    pub(crate) fn copy(&self) -> Self {
        let copy = |figure: &AtomicU32| AtomicU32::new(figure.load(Ordering::SeqCst));
        let copy_long = |figure: &AtomicU64| AtomicU64::new(figure.load(Ordering::SeqCst));
        Self {
            in_flight: copy(&self.in_flight),
            gate: self.gate.copy(),
            weight: copy(&self.weight),
            in_flight_max: copy(&self.in_flight_max),
            slot: copy(&self.slot),
            failures: copy(&self.failures),
            penalty: self.penalty.copy(),
            latency: self.latency.copy(),
            errors: copy(&self.errors),
            refused: copy(&self.refused),
            lost: copy(&self.lost),
            limited: copy(&self.limited),
            marked_at: copy_long(&self.marked_at),
            mark: copy(&self.mark),
            reported: copy(&self.reported),
            reported_at: copy_long(&self.reported_at),
            nominal: copy(&self.nominal),
            in_flight_limit: copy(&self.in_flight_limit),
            level: copy(&self.level),
            factor: copy(&self.factor),
            // What has become of requests is for the next look at traffic alone.
            cells: Cells::default(),
            peak: self.peak.copy(),
            told: self.told.copy(),
        }
    }

    /// Takes over what the configuration says.
    pub(crate) fn configure(&self, weight: u32, in_flight_max: Option<u32>) {
        let weight = weight.min(WEIGHT_MAX);
        self.nominal.store(weight, Ordering::SeqCst);
        self.in_flight_limit
            .store(in_flight_max.unwrap_or(UNLIMITED), Ordering::SeqCst);
        self.in_flight_max
            .store(in_flight_max.unwrap_or(UNLIMITED), Ordering::SeqCst);
        self.set_level(self.level.load(Ordering::SeqCst));
        self.gate.put(Gate::UNWEIGHTED, weight == 0);
    }

    /// What it gets now, in units that only compare: nominal weight × level × factor.
    pub(crate) fn weight(&self) -> u32 {
        self.weight.load(Ordering::SeqCst)
    }

    /// What the configuration says, `0..=WEIGHT_MAX`.
    pub(crate) fn nominal_weight(&self) -> u32 {
        self.nominal.load(Ordering::SeqCst)
    }

    /// Gives it `level` of `LEVELS` parts of its nominal weight; true if that is another share.
    pub(crate) fn set_level(&self, level: u32) -> bool {
        let before = self.level.swap(level, Ordering::SeqCst);
        self.set_weight();
        before != level
    }

    /// What part of it counts, `1..=FACTORS`.
    pub(crate) fn set_factor(&self, factor: u32) {
        self.factor.store(factor, Ordering::SeqCst);
        self.set_weight();
    }

    pub(crate) fn factor(&self) -> u32 {
        self.factor.load(Ordering::SeqCst)
    }

    /// Control alone changes what this is made of.
    fn set_weight(&self) {
        let weight = self.nominal_weight() * self.level() * self.factor();
        self.weight.store(weight, Ordering::SeqCst);
    }

    pub(crate) fn level(&self) -> u32 {
        self.level.load(Ordering::SeqCst)
    }

    /// Whether it may have fewer in flight than the configuration allows.
    pub(crate) fn is_capped(&self) -> bool {
        self.in_flight_max() != self.in_flight_limit.load(Ordering::SeqCst)
    }

    /// No more than `most` requests in flight, whatever the configuration allows; `None`: no such cap.
    pub(crate) fn cap(&self, most: Option<u32>) {
        let limit = self.in_flight_limit.load(Ordering::SeqCst);
        self.in_flight_max
            .store(limit.min(most.unwrap_or(UNLIMITED)), Ordering::SeqCst);
    }

    /// How much of what it can take is taken: by its own account of late, else by the configured limit
    /// of requests in flight; 0 without either.
    pub(crate) fn saturation(&self, now: Instant) -> f64 {
        let reported_at = Instant::from_nanos(self.reported_at.load(Ordering::Relaxed));
        if reported_at != Instant::default() && now - reported_at < REPORT_AGE_MAX {
            return f64::from(f32::from_bits(self.reported.load(Ordering::Relaxed)));
        }
        match self.in_flight_limit.load(Ordering::SeqCst) {
            UNLIMITED => 0.0,
            limit => f64::from(self.in_flight()) / f64::from(limit.max(1)),
        }
    }

    /// It says how much of what it can take is taken.
    pub(crate) fn report(&self, now: Instant, utilization: f64) {
        let figure = utilization.clamp(0.0, UTILIZATION_MAX) as f32;
        self.reported.store(figure.to_bits(), Ordering::Relaxed);
        self.reported_at.store(now.as_nanos(), Ordering::Relaxed);
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::SeqCst)
    }

    pub(crate) fn in_flight_max(&self) -> u32 {
        self.in_flight_max.load(Ordering::SeqCst)
    }

    pub(crate) fn is_saturated(&self) -> bool {
        self.in_flight() >= self.in_flight_max()
    }

    /// Takes one request's place, unless the backend is full, has `limit` requests in flight or is
    /// gated by `mask`.
    pub(crate) fn claim(&self, mask: Gate, limit: u32) -> bool {
        let max = self.in_flight_max.load(Ordering::Relaxed).min(limit);
        if self.in_flight.fetch_add(1, Ordering::SeqCst) >= max {
            self.in_flight.fetch_sub(1, Ordering::SeqCst);
            return false;
        }
        if self.enter(mask) {
            return true;
        }
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
        false
    }

    pub(crate) fn release(&self) {
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
    }

    /// Passes the gate; of several claims that meet a trial, one does.
    fn enter(&self, mask: Gate) -> bool {
        loop {
            let gate = self.gate.load();
            if gate.has(mask) {
                return false;
            }
            if !gate.has(Gate::TRIAL) {
                return true;
            }
            let taken = gate.without(Gate::TRIAL).or(Gate::TRYING).or(Gate::REFUSED);
            if self.gate.change(gate, taken) {
                return true;
            }
        }
    }

    /// Counts an outcome that spoke for the backend.
    pub(crate) fn count_success(&self) {
        // Read first: of a healthy backend these are zero, and stay so without a write.
        for run in [&self.failures, &self.errors, &self.refused, &self.lost] {
            if run.load(Ordering::Relaxed) != 0 {
                run.store(0, Ordering::Relaxed);
            }
        }
    }

    /// Counts an answer that asks for fewer requests; gives how many were in a row.
    pub(crate) fn count_limited(&self) -> u32 {
        self.limited
            .fetch_add(1, Ordering::Relaxed)
            .saturating_add(1)
    }

    /// An answer that does not.
    pub(crate) fn end_limited(&self) {
        if self.limited.load(Ordering::Relaxed) != 0 {
            self.limited.store(0, Ordering::Relaxed);
        }
    }

    /// Counts an outcome that spoke against it.
    pub(crate) fn count_failure(&self, kind: FailureKind) -> Runs {
        let grow = |run: &AtomicU32| run.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let reset = |run: &AtomicU32| {
            run.store(0, Ordering::Relaxed);
            0
        };
        Runs {
            errors: grow(&self.errors),
            failures: if kind == FailureKind::Error {
                reset(&self.failures)
            } else {
                grow(&self.failures)
            },
            refused: if kind == FailureKind::Refused {
                grow(&self.refused)
            } else {
                reset(&self.refused)
            },
            lost: if matches!(kind, FailureKind::Refused | FailureKind::Reset) {
                grow(&self.lost)
            } else {
                reset(&self.lost)
            },
        }
    }

    /// The runs as they are.
    pub(crate) fn runs(&self) -> Runs {
        Runs {
            failures: self.failures.load(Ordering::Relaxed),
            errors: self.errors.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
            lost: self.lost.load(Ordering::Relaxed),
        }
    }

    /// Starts all runs anew.
    pub(crate) fn clear_runs(&self) {
        self.count_success();
        self.end_limited();
    }

    /// Notes when and why, for the next `tick`. Before the gate is changed.
    pub(crate) fn mark(&self, now: Instant, cause: EjectionCause) {
        self.mark.store(cause.code(), Ordering::SeqCst);
        self.marked_at.store(now.as_nanos(), Ordering::SeqCst);
    }

    pub(crate) fn marked(&self) -> (Instant, EjectionCause) {
        let at = Instant::from_nanos(self.marked_at.load(Ordering::SeqCst));
        (
            at,
            EjectionCause::from_code(self.mark.load(Ordering::SeqCst)),
        )
    }
}

/// What a failed outcome adds to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// The connection was refused.
    Refused,
    /// The connection was closed or reset.
    Reset,
    /// Another failure, or a 502, 503 or 504.
    Failure,
    /// Another 5xx: the backend answered, and only its answer was wrong.
    Error,
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::*;

    /// The counts of the `Arc` and two pointers lie before it: with what every policy reads, 64 bytes.
    #[test]
    fn what_picks_read_stays_together_and_what_one_policy_keeps_lies_behind() {
        assert!(offset_of!(Live, penalty) + 8 <= 32);
        assert!(offset_of!(Live, latency) <= 40);
        assert!(offset_of!(Live, peak) >= 64);
        assert!(size_of::<Peak>() <= 24, "what one policy keeps");
    }
}

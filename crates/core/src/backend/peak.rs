//! Latency with a memory for peaks: what the policy of that name goes by.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::time::Instant;

use super::load::{FAILURE_LATENCY, LATENCY_TAU, SAMPLE_MAX, SAMPLE_MIN};

/// Who was picked is noted to within this, so that a busy backend's line is seldom written.
const PICKED_STEP: Duration = Duration::from_millis(100);

/// Peak-EWMA (Finagle's, later linkerd's and tower's): a sample above the estimate is taken as it is,
/// one below draws the estimate down with a time constant of 10 s. So a backend that stalls is known to
/// at once, and believed to be well again only after a while.
///
/// While a backend idles the estimate fades, so that it is tried again. While it has requests in flight
/// it does not: one that answers nothing must not come to look fast (Finagle's does).
#[derive(Debug, Default)]
pub(crate) struct Peak {
    /// Seconds, as of `sampled_at`; 0 before the first sample (`f64`).
    value: AtomicU64,
    /// Nanoseconds.
    sampled_at: AtomicU64,
    /// Nanoseconds; 0 for never.
    picked_at: AtomicU64,
}

impl Peak {
    /// One of its own with the same figures.
    pub(crate) fn copy(&self) -> Self {
        let copy = |figure: &AtomicU64| AtomicU64::new(figure.load(Ordering::SeqCst));
        Self {
            value: copy(&self.value),
            sampled_at: copy(&self.sampled_at),
            picked_at: copy(&self.picked_at),
        }
    }

    /// The estimate in seconds as of `now`, for a backend that idles or does not.
    pub(crate) fn at(&self, now: Instant, idle: bool) -> Option<f64> {
        let value = f64::from_bits(self.value.load(Ordering::SeqCst));
        if value == 0.0 {
            return None;
        }
        let since = if idle {
            now - self.sampled_at()
        } else {
            Duration::ZERO
        };
        Some(if since.is_zero() {
            value
        } else {
            value * kept(since)
        })
    }

    /// A request took `latency`.
    pub(crate) fn sample(&self, now: Instant, latency: Duration) {
        let keep = kept(self.elapsed(now));
        let seconds = latency.as_secs_f64().clamp(SAMPLE_MIN, SAMPLE_MAX);
        let update = |bits| {
            let faded = f64::from_bits(bits) * keep;
            let value = if seconds >= faded {
                seconds
            } else {
                faded + seconds * (1.0 - keep)
            };
            Some(value.to_bits())
        };
        // The closure never declines, so this cannot fail.
        let _ = self
            .value
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, update);
    }

    /// A request failed after `latency`: it never counts as fast.
    pub(crate) fn sample_failure(&self, now: Instant, latency: Duration) {
        let before = Duration::from_secs_f64(f64::from_bits(self.value.load(Ordering::SeqCst)));
        self.sample(now, latency.max(FAILURE_LATENCY).max(before));
    }

    /// A request ended after `waited` without an answer: it would have taken longer. Never lowers the estimate.
    pub(crate) fn sample_at_least(&self, now: Instant, waited: Duration) {
        self.elapsed(now);
        let seconds = waited.as_secs_f64().clamp(SAMPLE_MIN, SAMPLE_MAX);
        // The bits of positive numbers are ordered as the numbers are.
        self.value.fetch_max(seconds.to_bits(), Ordering::SeqCst);
    }

    /// A request ended with nothing learnt: the estimate stays what it last was.
    pub(crate) fn hold(&self, now: Instant) {
        self.elapsed(now);
    }

    /// How long it has not been picked: all of time if it never was.
    pub(crate) fn unpicked(&self, now: Instant) -> Duration {
        now - Instant::from_nanos(self.picked_at.load(Ordering::SeqCst))
    }

    /// It was picked.
    pub(crate) fn picked(&self, now: Instant) {
        if self.unpicked(now) >= PICKED_STEP {
            self.picked_at.store(now.as_nanos(), Ordering::SeqCst);
        }
    }

    /// Whether this caller, of several at once, is the one that picks it because it has not been for
    /// `time`. Nobody is while the last pick has not led to anything.
    pub(crate) fn take_turn(&self, now: Instant, time: Duration) -> bool {
        let before = self.picked_at.load(Ordering::SeqCst);
        let picked_at = Instant::from_nanos(before);
        self.sampled_at() >= picked_at
            && now - picked_at > time
            && self
                .picked_at
                .compare_exchange(before, now.as_nanos(), Ordering::SeqCst, Ordering::SeqCst)
                .is_ok()
    }

    fn sampled_at(&self) -> Instant {
        Instant::from_nanos(self.sampled_at.load(Ordering::SeqCst))
    }

    /// Time since the last sample; this one is then the last.
    fn elapsed(&self, now: Instant) -> Duration {
        let before = self.sampled_at.fetch_max(now.as_nanos(), Ordering::SeqCst);
        now - Instant::from_nanos(before)
    }
}

/// The part of an estimate that is left after `time`.
fn kept(time: Duration) -> f64 {
    (-time.as_secs_f64() / LATENCY_TAU).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Instant {
        Instant::default() + Duration::from_secs_f64(seconds)
    }

    fn millis(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn assert_about(found: Option<f64>, expected: f64) {
        let found = found.expect("it is known");
        assert!((found - expected).abs() < 1e-6, "{found} for {expected}");
    }

    #[test]
    fn nothing_is_known_before_the_first_sample() {
        let peak = Peak::default();
        peak.hold(at(1.0));
        assert_eq!(peak.at(at(2.0), true), None);
    }

    #[test]
    fn a_peak_is_taken_at_once_and_forgotten_with_the_time_constant() {
        let peak = Peak::default();
        peak.sample(at(1.0), millis(10));
        peak.sample(at(1.0), millis(500));
        assert_about(peak.at(at(1.0), false), 0.5);
        peak.sample(at(1.0), millis(10));
        assert_about(peak.at(at(1.0), false), 0.5);
        // Ten seconds: 0.5 ÷ e + 0.01 × (1 − 1 ÷ e).
        let keep = (-1.0f64).exp();
        peak.sample(at(11.0), millis(10));
        assert_about(peak.at(at(11.0), false), 0.5 * keep + 0.01 * (1.0 - keep));
    }

    #[test]
    fn how_often_is_sampled_does_not_matter() {
        let (often, seldom) = (Peak::default(), Peak::default());
        for peak in [&often, &seldom] {
            peak.sample(at(0.0), millis(500));
        }
        for n in 1..=1_000 {
            often.sample(at(f64::from(n) * 0.01), millis(10));
        }
        seldom.sample(at(10.0), millis(10));
        let (often, seldom) = (often.at(at(10.0), false), seldom.at(at(10.0), false));
        assert!((often.unwrap() - seldom.unwrap()).abs() < 1e-4);
    }

    #[test]
    fn it_fades_while_the_backend_idles_and_not_while_it_keeps_requests() {
        let peak = Peak::default();
        peak.sample(at(1.0), millis(100));
        assert_about(peak.at(at(11.0), true), 0.1 * (-1.0f64).exp());
        assert_about(peak.at(at(11.0), false), 0.1);
        peak.hold(at(11.0));
        assert_about(peak.at(at(11.0), true), 0.1);
    }

    #[test]
    fn a_failure_never_lowers_it() {
        for before in [10, 3_000] {
            let peak = Peak::default();
            peak.sample(at(0.0), millis(before));
            peak.sample_failure(at(8.0), Duration::ZERO);
            let charged = millis(before).max(FAILURE_LATENCY).as_secs_f64();
            assert_about(peak.at(at(8.0), false), charged);
        }
    }

    #[test]
    fn of_several_that_find_it_overdue_one_has_the_turn() {
        let peak = Peak::default();
        peak.picked(at(1.0));
        assert!(
            !peak.take_turn(at(9.0), Duration::from_secs(3)),
            "that pick is not answered yet"
        );
        peak.sample(at(1.1), millis(100));
        assert!(!peak.take_turn(at(3.9), Duration::from_secs(3)));
        assert!(peak.take_turn(at(4.1), Duration::from_secs(3)));
        assert!(!peak.take_turn(at(4.1), Duration::from_secs(3)));
    }
}

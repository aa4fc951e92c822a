//! Latency and failure penalty of a backend: two figures that decay with time.
//!
//! Both are kept as `ln(value) + t / TAU`: a decaying figure is a constant in that form. So reading
//! one projects it to `now` and writes nothing, one word holds it, and two figures compare without
//! knowing what time it is.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::policy::Usual;
use crate::time::Instant;

/// The latency estimate forgets with this time constant, seconds.
pub(crate) const LATENCY_TAU: f64 = 10.0;

/// After this many time constants an average is of all times, to within a thousandth.
const KNOWN_MAX: f64 = 7.0;

/// The failure penalty decays with this time constant, seconds.
const PENALTY_TAU: f64 = 2.0;

/// A failed request is charged at least this long.
pub(super) const FAILURE_LATENCY: Duration = Duration::from_secs(1);

/// Bounds of one latency sample, seconds.
pub(super) const SAMPLE_MIN: f64 = 1e-6;
pub(super) const SAMPLE_MAX: f64 = 3_600.0;

/// Below this (a hundredth of a request), a penalty counts as none. As a logarithm.
const PENALTY_MIN_LN: f64 = -4.605_170_185_988_091;
/// One failure is never worth more requests in flight than this on account of latency.
const PENALTY_STEP_MAX: f64 = 64.0;
/// Nor all of them together.
const PENALTY_MAX: f64 = 1e6;

/// A figure in the form above; `-∞` is zero, or no figure.
#[derive(Debug)]
struct Decaying(AtomicU64);

impl Default for Decaying {
    fn default() -> Self {
        Self(AtomicU64::new(f64::NEG_INFINITY.to_bits()))
    }
}

impl Decaying {
    fn copy(&self) -> Self {
        Self(AtomicU64::new(self.0.load(Ordering::SeqCst)))
    }

    fn level(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::SeqCst))
    }

    /// Gives what it was before.
    fn update(&self, change: impl Fn(f64) -> f64) -> f64 {
        let update = |bits| Some(change(f64::from_bits(bits)).to_bits());
        let before = self
            .0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, update);
        // The closure never declines, so both are the same.
        let (Ok(before) | Err(before)) = before;
        f64::from_bits(before)
    }
}

/// Exponentially weighted moving average of latency. A sample's weight is what has passed since the
/// one before (`1 - e^(-dt/τ)`) of what has passed since the first (`1 - e^(-t/τ)`), so it does not
/// matter how many come, and the first ones share alike instead of the very first ruling for τ;
/// without samples it fades towards zero, so that an idle backend is tried again.
#[derive(Debug, Default)]
pub(crate) struct Latency {
    level: Decaying,
    /// When the first sample's request began, nanoseconds; 0 before it.
    began_at: AtomicU64,
    /// Nanoseconds.
    sampled_at: AtomicU64,
}

impl Latency {
    /// One of its own with the same figures.
    pub(crate) fn copy(&self) -> Self {
        Self {
            level: self.level.copy(),
            began_at: AtomicU64::new(self.began_at.load(Ordering::SeqCst)),
            sampled_at: AtomicU64::new(self.sampled_at.load(Ordering::SeqCst)),
        }
    }

    /// `ln(seconds) + t / LATENCY_TAU`, or none before the first sample.
    pub(crate) fn level(&self) -> Option<f64> {
        let level = self.level.level();
        level.is_finite().then_some(level)
    }

    /// The logarithm of this estimate's ratio to another: of any time, as both fade alike. Not finite where
    /// one of the two has no sample.
    #[inline]
    pub(crate) fn ratio_ln(&self, other: &Self) -> f64 {
        self.level.level() - other.level.level()
    }

    /// How long ago the last sample was.
    pub(crate) fn age(&self, now: Instant) -> Duration {
        now - Instant::from_nanos(self.sampled_at.load(Ordering::Relaxed))
    }

    /// The estimate as of `now`.
    pub(crate) fn at(&self, now: Instant) -> Option<Duration> {
        self.level().map(|level| {
            let seconds = (level - now.as_secs_f64() / LATENCY_TAU).exp();
            Duration::from_secs_f64(seconds.clamp(0.0, SAMPLE_MAX))
        })
    }

    /// A request took `latency`.
    pub(crate) fn sample(&self, now: Instant, latency: Duration) {
        let since = self.elapsed(now);
        let seconds = latency.as_secs_f64().clamp(SAMPLE_MIN, SAMPLE_MAX);
        let keep = (-since / LATENCY_TAU).exp();
        let weight = (1.0 - keep) / self.known_share(now);
        let shift = now.as_secs_f64() / LATENCY_TAU;
        let before = self.level.update(|level| {
            if level == f64::NEG_INFINITY {
                return seconds.ln() + shift;
            }
            // What it fades by is what the sample weighs in the long run, so nothing is taken off twice.
            let kept = (1.0 - weight) / keep.max(f64::MIN_POSITIVE);
            let projected = (level - shift).exp();
            seconds.mul_add(weight, projected * kept).ln() + shift
        });
        if before == f64::NEG_INFINITY {
            let began = now.as_nanos().saturating_sub((seconds * 1e9) as u64);
            self.began_at.store(began.max(1), Ordering::Relaxed);
        }
    }

    /// How much of an average over all times the samples so far are, above 0 and at most 1.
    fn known_share(&self, now: Instant) -> f64 {
        let began = self.began_at.load(Ordering::Relaxed);
        let known = (now - Instant::from_nanos(began)).as_secs_f64() / LATENCY_TAU;
        if began == 0 || known > KNOWN_MAX {
            return 1.0;
        }
        1.0 - (-known).exp()
    }

    /// A request failed after `latency`: it never counts as fast.
    pub(crate) fn sample_failure(&self, now: Instant, latency: Duration) {
        let charged = latency
            .max(FAILURE_LATENCY)
            .max(self.at(now).unwrap_or_default());
        self.sample(now, charged);
    }

    /// A request ended with nothing learnt: the estimate stays what it last was, rather than having
    /// faded meanwhile. Otherwise a backend that hangs until its clients go away would fade into the
    /// fastest of all.
    pub(crate) fn hold(&self, now: Instant) {
        let since = self.elapsed(now);
        self.level.update(|level| level + since / LATENCY_TAU);
    }

    /// A request ended after `waited` without an answer: it would have taken longer. Raises the estimate, as it last
    /// was, if that is less; true if so. Never lowers it.
    pub(crate) fn sample_at_least(&self, now: Instant, waited: Duration) -> bool {
        let since = self.elapsed(now);
        let seconds = waited.as_secs_f64().clamp(SAMPLE_MIN, SAMPLE_MAX);
        let keep = (-since / LATENCY_TAU).exp();
        let shift = now.as_secs_f64() / LATENCY_TAU;
        let before = self.level.update(|level| {
            if level == f64::NEG_INFINITY {
                return seconds.ln() + shift;
            }
            // Not faded, or a backend that hangs would fade into the fastest of all.
            let held = (level + since / LATENCY_TAU - shift).exp();
            let raised = seconds.max(held).mul_add(1.0 - keep, held * keep);
            raised.ln() + shift
        });
        before + since / LATENCY_TAU - shift < seconds.ln()
    }

    /// Seconds since the last sample; this one is then the last.
    fn elapsed(&self, now: Instant) -> f64 {
        let before = self.sampled_at.fetch_max(now.as_nanos(), Ordering::SeqCst);
        (now - Instant::from_nanos(before)).as_secs_f64()
    }
}

/// Failures of late, as virtual requests in flight: what fails fast has few real ones, and would
/// otherwise look like the best choice.
#[derive(Debug)]
pub(crate) struct Penalty {
    level: Decaying,
    /// The value when it was last projected (`f32`), for readers that have no `now`.
    projected: AtomicU32,
}

impl Default for Penalty {
    fn default() -> Self {
        Self {
            level: Decaying::default(),
            projected: AtomicU32::new(0),
        }
    }
}

impl Penalty {
    /// One of its own with the same figures.
    pub(crate) fn copy(&self) -> Self {
        Self {
            level: self.level.copy(),
            projected: AtomicU32::new(self.projected.load(Ordering::SeqCst)),
        }
    }

    /// Whether there was no failure, or all are forgotten. One that has faded is not none, but zero.
    #[inline]
    pub(crate) fn is_none(&self) -> bool {
        self.level.level() == f64::NEG_INFINITY
    }

    /// The penalty as of `now`, in requests.
    #[inline]
    pub(crate) fn at(&self, now: Instant) -> f32 {
        // None is the rule, and picks come here: so that is asked first, and what is left is compared
        // before it is raised.
        if self.is_none() {
            return 0.0;
        }
        let logarithm = self.level.level() - now.as_secs_f64() / PENALTY_TAU;
        if logarithm < PENALTY_MIN_LN {
            return 0.0;
        }
        logarithm.exp() as f32
    }

    /// As of the last projection.
    pub(crate) fn projected(&self) -> f32 {
        f32::from_bits(self.projected.load(Ordering::SeqCst))
    }

    /// Projects to `now`; gives the value.
    pub(crate) fn project(&self, now: Instant) -> f32 {
        let value = self.at(now);
        self.projected.store(value.to_bits(), Ordering::SeqCst);
        value
    }

    /// Its cause is gone.
    pub(crate) fn forget(&self) {
        self.level.update(|_| f64::NEG_INFINITY);
        self.projected.store(0, Ordering::SeqCst);
    }

    /// One more failure, worth `step` requests.
    pub(crate) fn add(&self, now: Instant, step: f64) {
        let shift = now.as_secs_f64() / PENALTY_TAU;
        self.level.update(|level| {
            let value = (level - shift).exp() + step;
            value.min(PENALTY_MAX).ln() + shift
        });
        self.project(now);
    }

    /// It does not fall below `step` requests for `time` from `now` on.
    pub(crate) fn last(&self, now: Instant, time: Duration, step: f64) {
        let shift = (now + time).as_secs_f64() / PENALTY_TAU;
        self.level.update(|level| level.max(step.ln() + shift));
        self.project(now);
    }
}

/// What one failure is worth, in requests in flight: one at least; half of what a backend of the pool
/// has in flight, so that a few failures outweigh it, however much that is; and more where requests
/// take longer than the penalty lasts, so that the backend gets at most half of an even share.
///
/// (In balance the penalty is as high as the others' load: failures a second × step × τ = load. With
/// half of the load a step that is one failure a second. With load = rate × latency and twice the
/// latency ÷ τ a step, it is half of the rate.)
pub(crate) fn penalty_step(latency: Option<Duration>, usual: Usual) -> f64 {
    let latency = latency.unwrap_or_default().max(usual.latency);
    let by_latency = 2.0 * latency.as_secs_f64() / PENALTY_TAU;
    let by_load = usual.load / 2.0;
    by_latency.clamp(1.0, PENALTY_STEP_MAX).max(by_load)
}

#[cfg(test)]
mod tests;

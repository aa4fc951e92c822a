//! What traffic says: failures in a row eject a backend, for longer each time.
//!
//! ```text
//!          run of failures             time is up
//!    In ─────────────────▶ Ejected ────────────────▶ Probation
//!    ▲                     ▲   │ proved by probes        │ │
//!    │◀────────────────────┼───┘ (lost connections only) │ │
//!    │                     └───────── first failure ─────┘ │
//!    └──────────────────────────────── first success ──────┘
//! ```
//!
//! The counters are passive's own: a probe that passes never clears them, because a backend with a
//! good `/healthz` and a broken endpoint is exactly what this is for. Two exceptions, where the probe
//! tests the very same thing:
//!
//! - an ejection whose whole run was refused connections;
//! - one whose whole run was lost connections (resets, refusals), once it has also been seen to refuse:
//!   the process that lost them is gone, and what answers the probes is another one. A `kill -9` under
//!   load looks like that.
//!
//! Without probes nobody proves that, and the second of these ends as soon as the backend is seen to refuse: then its
//! refusal goes on, which tries it with single requests from a second on.
//!
//! Only the first ejection in a row: a process that dies again and again passes its probes each time
//! in between.

use std::fmt;
use std::time::Duration;

use crate::time::Instant;

pub(crate) mod outlier;
pub(crate) mod refusal;

/// When a backend is ejected, and for how long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EjectionConfig {
    /// Whether traffic may eject at all.
    pub enabled: bool,
    /// Failures in a row (no connection, reset, time-out, unreadable answer, 502, 503, 504) that
    /// eject. Default 5; 0 is read as 1.
    pub consecutive_failures: u32,
    /// 5xx or failures in a row that eject. Default 5; 0 is read as 1.
    pub consecutive_errors: u32,
    /// The n-th ejection lasts n times this. Default 30 s.
    pub time_base: Duration,
    /// No ejection lasts longer. Default 300 s.
    pub time_max: Duration,
    /// At most this share of the pool is ejected at a time, but at least one backend may be.
    /// `0.0..=1.0`, default 0.5.
    pub max_ejected: f64,
    /// For each such stretch without an ejection, n shrinks by one. Default 300 s.
    pub forgive_after: Duration,
    /// A success rate this many standard deviations below the mean of the pool ejects, if it is at
    /// least 5 points lower. Default 1.9; 0: never.
    pub success_rate_deviations: f64,
    /// So many backends must have had `requests_min` requests for that. Default 5.
    pub success_rate_backends_min: u32,
    /// This share of failed requests ejects, whatever the others do. `0.0..=1.0`, default 0.85; above 1:
    /// never.
    pub failed_share: f64,
    /// Requests within ten seconds that it takes to judge by a share. Default 100.
    pub requests_min: u32,
}

impl Default for EjectionConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            consecutive_failures: 5,
            consecutive_errors: 5,
            time_base: Duration::from_secs(30),
            time_max: Duration::from_secs(300),
            max_ejected: 0.5,
            forgive_after: Duration::from_secs(300),
            success_rate_deviations: 1.9,
            success_rate_backends_min: 5,
            failed_share: 0.85,
            requests_min: 100,
        }
    }
}

impl EjectionConfig {
    /// How many of `members` may be ejected at a time.
    pub(crate) fn ejected_max(&self, members: usize) -> u32 {
        let share = (members as f64 * self.max_ejected.clamp(0.0, 1.0)).floor();
        (share as u32).max(1)
    }

    /// How long the `count`-th ejection in a row lasts.
    fn time(&self, count: u32) -> Duration {
        self.time_base
            .saturating_mul(count.max(1))
            .min(self.time_max)
    }
}

/// Why a backend was ejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EjectionCause {
    /// Failures in a row.
    Failures,
    /// 5xx in a row.
    Errors,
    /// Failures in a row, each of which was a refused connection.
    Refused,
    /// Failures in a row, each of which was a reset or a refused connection.
    Lost,
    /// The first request after an ejection failed again.
    Probation,
    /// Fewer of its requests succeed than of its siblings'.
    SuccessRate,
    /// Nearly all of its requests fail.
    FailedShare,
    /// Nothing succeeded for five seconds.
    Steady,
    /// It went and came back again and again.
    Flapping,
}

impl fmt::Display for EjectionCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Failures => "failures in a row",
            Self::Errors => "5xx answers in a row",
            Self::Refused => "refused connections in a row",
            Self::Lost => "lost connections in a row",
            Self::Probation => "the first request after its return failed",
            Self::SuccessRate => "fewer requests succeed than at its siblings",
            Self::FailedShare => "nearly all requests fail",
            Self::Steady => "nothing succeeded for five seconds",
            Self::Flapping => "it went and came back twice within a minute",
        })
    }
}

impl EjectionCause {
    /// Whether a look at the last seconds finds it out, rather than a run of failures.
    pub(crate) fn is_of_a_window(self) -> bool {
        matches!(self, Self::SuccessRate | Self::FailedShare | Self::Steady)
    }

    /// As a number that fits an atomic.
    pub(crate) fn code(self) -> u32 {
        self as u32
    }

    /// The inverse of `code`; an unknown number reads as `Failures`.
    pub(crate) fn from_code(code: u32) -> Self {
        [
            Self::Failures,
            Self::Errors,
            Self::Refused,
            Self::Lost,
            Self::Probation,
            Self::SuccessRate,
            Self::FailedShare,
            Self::Steady,
            Self::Flapping,
        ]
        .into_iter()
        .find(|cause| cause.code() == code)
        .unwrap_or(Self::Failures)
    }
}

/// How many outcomes in a row spoke against a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Runs {
    /// Failures: the backend did not answer, or a gateway in it said so.
    pub(crate) failures: u32,
    /// Failures and any 5xx.
    pub(crate) errors: u32,
    /// Refused connections.
    pub(crate) refused: u32,
    /// Refused connections and resets.
    pub(crate) lost: u32,
}

/// At which lengths runs eject. Kept apart from the configuration because picks read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) failures: u32,
    pub(crate) errors: u32,
    /// Whether a run of refused connections alone ejects. Without probes it does not: then the
    /// refusal's own back-off holds the backend out, and tries it again sooner.
    pub(crate) refused_ejects: bool,
}

impl Limits {
    /// Whether `runs` are long enough, and why.
    pub(crate) fn crossed(&self, runs: Runs, on_probation: bool) -> Option<EjectionCause> {
        let only_refused = runs.refused > 0 && runs.refused >= runs.errors;
        if only_refused && !self.refused_ejects {
            return None;
        }
        if on_probation && !only_refused {
            return Some(EjectionCause::Probation);
        }
        if on_probation || runs.failures >= self.failures {
            let cause = if only_refused {
                EjectionCause::Refused
            } else if runs.lost >= runs.errors {
                EjectionCause::Lost
            } else {
                EjectionCause::Failures
            };
            return Some(cause);
        }
        (runs.errors >= self.errors).then_some(EjectionCause::Errors)
    }
}

/// Whether a backend is ejected, as shown to people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ejection {
    /// It is not.
    None,
    /// It is.
    Ejected {
        /// When it comes back on probation.
        until: Instant,
        /// Which ejection in a row this is.
        count: u32,
        /// Why.
        cause: EjectionCause,
    },
    /// It was; the next outcome decides.
    Probation {
        /// How many ejections in a row it has behind it.
        count: u32,
    },
}

/// The slow half of the machine of one backend: how long and what then. The fast half is the
/// crossing of [`Limits`], seen by whichever request crosses.
#[derive(Clone, Debug)]
pub(crate) struct Ejector {
    state: Ejection,
    /// Ejections in a row at `settled`; each `forgive_after` since then takes one off.
    count: u32,
    /// When the last ejection ended.
    settled: Instant,
    /// Probes that passed since the ejection began.
    passed: u32,
    /// Whether it refused a connection, of a request or a probe, in or after the run that ejected it.
    gone: bool,
}

impl Ejector {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            state: Ejection::None,
            count: 0,
            settled: now,
            passed: 0,
            gone: false,
        }
    }

    pub(crate) fn state(&self) -> Ejection {
        self.state
    }

    pub(crate) fn is_ejected(&self) -> bool {
        matches!(self.state, Ejection::Ejected { .. })
    }

    /// When it ends.
    pub(crate) fn until(&self) -> Option<Instant> {
        match self.state {
            Ejection::Ejected { until, .. } => Some(until),
            _ => None,
        }
    }

    /// A request crossed the limits at `at`; gives the end and the count.
    pub(crate) fn eject(
        &mut self,
        at: Instant,
        cause: EjectionCause,
        config: &EjectionConfig,
    ) -> (Instant, u32) {
        let stretch = config.forgive_after.as_nanos().max(1);
        let forgiven = (at - self.settled).as_nanos() / stretch;
        let forgiven = u32::try_from(forgiven).unwrap_or(u32::MAX);
        self.count = self.count.saturating_sub(forgiven).saturating_add(1);
        self.passed = 0;
        self.gone = false;
        let until = at + config.time(self.count);
        self.state = Ejection::Ejected {
            until,
            count: self.count,
            cause,
        };
        (until, self.count)
    }

    /// The time is up: back, on probation.
    pub(crate) fn release(&mut self, now: Instant) {
        self.settled = now;
        self.state = Ejection::Probation { count: self.count };
    }

    /// It refuses connections: whatever listened is gone.
    pub(crate) fn refused(&mut self) {
        self.gone = self.is_ejected();
    }

    /// Ends the first ejection for lost connections of one that has been seen to refuse, where there are no probes: the
    /// process that lost them is gone, and whether there is another one the refusal's trials show. False if it is not
    /// of that kind.
    pub(crate) fn end_if_gone(&mut self, now: Instant) -> bool {
        let is_lost = matches!(
            self.state,
            Ejection::Ejected {
                cause: EjectionCause::Lost,
                count: 1,
                ..
            }
        );
        if is_lost && self.gone {
            self.settled = now;
            self.state = Ejection::None;
        }
        is_lost && self.gone
    }

    /// A probe passed. True if that ends the ejection: the run behind it is one that a probe can prove
    /// to be over (see the module), and probes have now passed `rise` times since. An ejection by
    /// refusals then counts as if it had not been.
    pub(crate) fn probe_passed(&mut self, now: Instant, rise: u32) -> bool {
        let Ejection::Ejected { cause, count, .. } = self.state else {
            return false;
        };
        let provable = match cause {
            EjectionCause::Refused => count == 1,
            EjectionCause::Lost => self.gone && count == 1,
            _ => false,
        };
        if !provable {
            return false;
        }
        self.passed = self.passed.saturating_add(1);
        if self.passed < rise.max(1) {
            return false;
        }
        if cause == EjectionCause::Refused {
            self.count = self.count.saturating_sub(1);
        }
        self.settled = now;
        self.state = Ejection::None;
        true
    }

    /// The other backends fail as much. True if that ends the ejection, which then counts as if it had
    /// not been: it was for a run of failures, and not for lost connections.
    pub(crate) fn pardon(&mut self, now: Instant) -> bool {
        let Ejection::Ejected { cause, .. } = self.state else {
            return false;
        };
        let is_of_answers = matches!(
            cause,
            EjectionCause::Failures | EjectionCause::Errors | EjectionCause::Probation
        );
        if is_of_answers {
            self.count = self.count.saturating_sub(1);
            self.settled = now;
            self.state = Ejection::None;
        }
        is_of_answers
    }

    /// A probe failed: those that passed before prove nothing any more.
    pub(crate) fn probe_failed(&mut self) {
        self.passed = 0;
    }

    /// The first request of a probation succeeded.
    pub(crate) fn reinstate(&mut self) {
        self.state = Ejection::None;
    }

    /// Ejection was switched off, or the backend is a new one.
    pub(crate) fn forget(&mut self, now: Instant) {
        *self = Self::new(now);
    }
}

#[cfg(test)]
mod tests;

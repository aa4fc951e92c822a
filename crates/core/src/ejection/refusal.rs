//! A backend that refuses connections: nothing listens there.
//!
//! ```text
//!     two refusals in a row, or one                  a probe passes and it is up,
//!     that a probe confirms                          or a trial was answered
//! In ───────────────────────────▶ Refused ──────────────────────────────────────▶ In
//!                                  ▲    │ back-off over (pools without probes)
//!                                  │    ▼
//!                                  Trial: one claim; refused again doubles the back-off
//! ```
//!
//! It has its own machine beside ejection because it is another kind of fact. Nothing listens, so no
//! request would be served and none is harmed by trying: the back-off can begin at a second, where a
//! backend that accepts requests and spoils them stays out for thirty.

use std::time::Duration;

use crate::time::Instant;

/// Refusals in a row that mark a backend.
pub(crate) const REFUSALS: u32 = 2;

/// The first back-off.
const BACKOFF_MIN: Duration = Duration::from_secs(1);
/// The longest back-off.
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// The slow half of the machine; the fast half is the gate's `REFUSED`, `TRIAL` and `TRYING`.
#[derive(Clone, Debug)]
pub(crate) enum Refusal {
    In,
    Refused {
        since: Instant,
        backoff: Duration,
        /// When the next trial is offered. `None` in a pool with probes: they decide.
        next: Option<Instant>,
        /// A trial was offered, and its outcome is not yet known.
        on_trial: bool,
    },
}

impl Refusal {
    pub(crate) fn since(&self) -> Option<Instant> {
        match self {
            Self::In => None,
            Self::Refused { since, .. } => Some(*since),
        }
    }

    pub(crate) fn is_refused(&self) -> bool {
        matches!(self, Self::Refused { .. })
    }

    pub(crate) fn is_on_trial(&self) -> bool {
        matches!(self, Self::Refused { on_trial: true, .. })
    }

    /// When a trial has to be offered.
    pub(crate) fn next(&self) -> Option<Instant> {
        match self {
            Self::In => None,
            Self::Refused { next, .. } => *next,
        }
    }

    /// Traffic marked the backend.
    pub(crate) fn refuse(&mut self, now: Instant, probed: bool) {
        *self = Self::Refused {
            since: now,
            backoff: BACKOFF_MIN,
            next: (!probed).then(|| now + BACKOFF_MIN),
            on_trial: false,
        };
    }

    /// The back-off is over: offers a trial. Should nobody take it, or should its outcome get lost,
    /// it is offered again after the same time.
    pub(crate) fn offer(&mut self, now: Instant) {
        if let Self::Refused {
            backoff,
            next,
            on_trial,
            ..
        } = self
        {
            *on_trial = true;
            *next = Some(now + *backoff);
        }
    }

    /// The trial failed: the back-off doubles.
    pub(crate) fn fail(&mut self, now: Instant) {
        if let Self::Refused {
            backoff,
            next,
            on_trial,
            ..
        } = self
        {
            *on_trial = false;
            *backoff = (*backoff * 2).min(BACKOFF_MAX);
            *next = Some(now + *backoff);
        }
    }

    /// The pool gained or lost its probes.
    pub(crate) fn set_probed(&mut self, now: Instant, probed: bool) {
        if let Self::Refused { backoff, next, .. } = self {
            match (probed, *next) {
                (true, _) => *next = None,
                (false, None) => *next = Some(now + *backoff),
                (false, Some(_)) => {}
            }
        }
    }

    /// It accepts connections again.
    pub(crate) fn clear(&mut self) {
        *self = Self::In;
    }
}

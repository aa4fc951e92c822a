//! What active checks say of a backend: unknown, up or down, with hysteresis.
//!
//! ```text
//!            first probe passed                fall failures in a row
//! Unknown ─────────────────────▶ Up ◀──────────────────────────────▶ Down
//!    └──────────────────────────── rise passes in a row ──────────────▲
//!            first probe failed
//! ```
//!
//! The first probe decides at once: a backend that starts broken would otherwise get traffic for
//! `fall` intervals, and one that starts well would wait `rise` intervals for none.

use std::fmt;

use crate::time::Instant;

/// What probes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Health {
    /// Not probed yet, or the pool has no probes. Counts as usable.
    Unknown,
    /// Probes pass.
    Up,
    /// Probes fail.
    Down,
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "unknown",
            Self::Up => "up",
            Self::Down => "down",
        })
    }
}

/// What one probe found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeResult {
    /// The check passed, which also proves that the backend accepts connections.
    Passed,
    /// The check passed on another address than traffic goes to: of that it proves nothing.
    PassedElsewhere,
    /// The check failed.
    Failed {
        /// The connection was refused: nothing listens there.
        refused: bool,
        /// What failed, for people: "status 500, expected 200-399".
        reason: String,
    },
}

/// How many probes in a row change the mind. Both at least 1 (0 is read as 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Thresholds {
    pub(crate) rise: u32,
    pub(crate) fall: u32,
}

/// The machine of one backend.
#[derive(Clone, Debug)]
pub(crate) struct HealthCheck {
    health: Health,
    since: Instant,
    /// Probes in a row that contradict `health`.
    against: u32,
    /// What the last failed probe found.
    reason: String,
}

/// A transition, with the reason for people.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HealthChange {
    pub(crate) from: Health,
    pub(crate) to: Health,
    pub(crate) reason: String,
}

impl HealthCheck {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            health: Health::Unknown,
            since: now,
            against: 0,
            reason: String::new(),
        }
    }

    pub(crate) fn health(&self) -> Health {
        self.health
    }

    /// When `health` became what it is.
    pub(crate) fn since(&self) -> Instant {
        self.since
    }

    /// What the last failed probe found; empty if none failed.
    pub(crate) fn reason(&self) -> &str {
        &self.reason
    }

    /// Takes one probe's result; says so if it changed the mind.
    pub(crate) fn observe(
        &mut self,
        now: Instant,
        result: ProbeResult,
        thresholds: Thresholds,
    ) -> Option<HealthChange> {
        let (says, reason) = match result {
            ProbeResult::Passed | ProbeResult::PassedElsewhere => (Health::Up, None),
            ProbeResult::Failed { reason, .. } => (Health::Down, Some(reason)),
        };
        if let Some(reason) = reason {
            self.reason = reason;
        }
        if says == self.health {
            self.against = 0;
            return None;
        }
        self.against = self.against.saturating_add(1);
        let needed = match (self.health, says) {
            (Health::Unknown, _) => 1,
            (_, Health::Up) => thresholds.rise.max(1),
            (_, _) => thresholds.fall.max(1),
        };
        if self.against < needed {
            return None;
        }
        let run = self.against;
        Some(self.change(now, says, run))
    }

    /// The pool's probes were removed: nothing is known any more.
    pub(crate) fn forget(&mut self, now: Instant) -> Option<HealthChange> {
        if self.health == Health::Unknown {
            return None;
        }
        let from = self.health;
        *self = Self::new(now);
        Some(HealthChange {
            from,
            to: Health::Unknown,
            reason: "the pool has no health check any more".to_owned(),
        })
    }

    fn change(&mut self, now: Instant, to: Health, run: u32) -> HealthChange {
        let from = self.health;
        let reason = match (to, run) {
            (Health::Down, 1) => format!("a probe failed: {}", self.reason),
            (Health::Down, _) => format!("{run} probes in a row failed, the last: {}", self.reason),
            (_, 1) => "a probe passed".to_owned(),
            (_, _) => format!("{run} probes in a row passed"),
        };
        self.health = to;
        self.since = now;
        self.against = 0;
        HealthChange { from, to, reason }
    }
}

#[cfg(test)]
mod tests;

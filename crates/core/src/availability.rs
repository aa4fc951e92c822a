//! Who may be picked: the one place that joins what people want, what probes say and what traffic says.
//!
//! Each backend carries its reasons to stay out as bits in one atomic word (its *gate*); the pool's
//! mode is a mask over those bits. A pick tests `gate & mask == 0`, so a mark takes effect with the
//! next pick, before anything is rebuilt.
//!
//! | reason | normal | panic | last resort |
//! | --- | --- | --- | --- |
//! | drained, in maintenance, weight 0, removed | out | out | out |
//! | refuses connections | out | out | **used** |
//! | probes fail | out | **used** | **used** |
//! | ejected | out | **used** | **used** |
//! | others are asked before it | out | out | out |
//!
//! *Panic*: so few look healthy that the rest would be run over, and it is likelier that the judge is
//! wrong than that all are broken. *Last resort*: panic, and every backend refuses: then a request
//! may as well fail by itself and show the truth.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::health::Health;

/// What the operator wants of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Admin {
    /// Traffic.
    #[default]
    Ready,
    /// No new requests; those in flight end by themselves.
    Drain,
    /// No requests at all.
    Maintenance,
}

impl fmt::Display for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ready => "ready",
            Self::Drain => "drain",
            Self::Maintenance => "maintenance",
        })
    }
}

/// What a pool ignores at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Nothing: every reason to stay out counts.
    Normal,
    /// Probes and ejection.
    Panic,
    /// Everything but the operator's will: it is a panic and all refuse connections.
    LastResort,
}

/// Whether a backend may be picked, and if not, the first reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Availability {
    /// It may, and nothing speaks against it.
    Usable,
    /// It may, because the pool is in panic; it does not look healthy.
    UsedInPanic,
    /// The operator drained it or put it in maintenance.
    Withdrawn(Admin),
    /// It refuses connections.
    Refused,
    /// Traffic failed on it too often.
    Ejected,
    /// Its probes fail.
    Down,
    /// Others are asked before it: a lower tier, or a zone that is preferred.
    Standby,
    /// It lies outside of the part of the pool that this balancer sends to.
    Outside,
}

/// Joins the questions. `ejected` and `refused` are what traffic says.
pub fn availability(
    admin: Admin,
    health: Health,
    ejected: bool,
    refused: bool,
    mode: Mode,
) -> Availability {
    let mut gate = Gate::OPEN;
    gate = gate.with(Gate::WITHDRAWN, admin != Admin::Ready);
    gate = gate.with(Gate::DOWN, health == Health::Down);
    gate = gate.with(Gate::EJECTED, ejected);
    gate = gate.with(Gate::REFUSED, refused);
    if gate == Gate::OPEN {
        return Availability::Usable;
    }
    let counts = gate.and(mode.mask());
    match counts {
        Gate::OPEN => Availability::UsedInPanic,
        _ if counts.has(Gate::WITHDRAWN) => Availability::Withdrawn(admin),
        _ if counts.has(Gate::REFUSED) => Availability::Refused,
        _ if counts.has(Gate::EJECTED) => Availability::Ejected,
        _ => Availability::Down,
    }
}

impl Mode {
    /// The reasons that count in this mode.
    pub(crate) const fn mask(self) -> Gate {
        let always = Gate::NEVER.0 | Gate::KEPT_BACK.0;
        match self {
            Self::Normal => Gate(always | Gate::REFUSED.0 | Gate::EJECTED.0 | Gate::DOWN.0),
            Self::Panic => Gate(always | Gate::REFUSED.0),
            Self::LastResort => Gate(always),
        }
    }
}

/// A set of facts about a backend that a pick has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gate(pub(crate) u32);

impl Gate {
    pub(crate) const OPEN: Self = Self(0);
    /// Drained or in maintenance.
    pub(crate) const WITHDRAWN: Self = Self(1);
    /// Weight 0.
    pub(crate) const UNWEIGHTED: Self = Self(1 << 1);
    /// No longer a member.
    pub(crate) const REMOVED: Self = Self(1 << 2);
    pub(crate) const DOWN: Self = Self(1 << 3);
    pub(crate) const EJECTED: Self = Self(1 << 4);
    pub(crate) const REFUSED: Self = Self(1 << 5);
    /// It refused, its back-off is over, and one claim may try it. Whoever turns this bit into
    /// `TRYING` has that claim.
    pub(crate) const TRIAL: Self = Self(1 << 6);
    /// The trial's claim was taken; what becomes of it decides.
    pub(crate) const TRYING: Self = Self(1 << 7);
    /// An ejection ended; the next outcome decides.
    pub(crate) const PROBATION: Self = Self(1 << 8);
    /// The last probe was refused as well.
    pub(crate) const PROBE_REFUSED: Self = Self(1 << 9);
    /// It has a failure penalty and is on the list of those to be refreshed while that fades.
    pub(crate) const PENALISED: Self = Self(1 << 10);

    /// Healthy or not, others are asked before it: see [`spread`](crate::spread).
    pub(crate) const STANDBY: Self = Self(1 << 11);
    /// It lies outside of the part of the pool that this balancer sends to.
    pub(crate) const OUTSIDE: Self = Self(1 << 12);

    /// Reasons that the operator or the configuration gives: no mode ignores them.
    pub(crate) const NEVER: Self = Self(Self::WITHDRAWN.0 | Self::UNWEIGHTED.0 | Self::REMOVED.0);
    /// Nothing speaks against it, but it is not asked at present.
    pub(crate) const KEPT_BACK: Self = Self(Self::STANDBY.0 | Self::OUTSIDE.0);
    /// What makes a backend look unhealthy, for the panic threshold.
    pub(crate) const UNHEALTHY: Self =
        Self(Self::DOWN.0 | Self::EJECTED.0 | Self::REFUSED.0 | Self::TRIAL.0);

    pub(crate) const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(crate) const fn with(self, other: Self, present: bool) -> Self {
        if present { self.or(other) } else { self }
    }

    /// Whether any of `bits` is set.
    pub(crate) const fn has(self, bits: Self) -> bool {
        self.0 & bits.0 != 0
    }
}

/// A gate that many threads read and few change.
#[derive(Debug, Default)]
pub(crate) struct AtomicGate(AtomicU32);

impl AtomicGate {
    // Sequentially consistent throughout: `policy::tree` argues with a total order over changes of
    // gates, counts and its own cells. On x86 such a load costs nothing extra.
    pub(crate) fn load(&self) -> Gate {
        Gate(self.0.load(Ordering::SeqCst))
    }

    /// One of its own that stands alike.
    pub(crate) fn copy(&self) -> Self {
        Self(AtomicU32::new(self.load().0))
    }

    /// Sets `bits`; gives what was there before.
    pub(crate) fn set(&self, bits: Gate) -> Gate {
        Gate(self.0.fetch_or(bits.0, Ordering::SeqCst))
    }

    /// Clears `bits`; gives what was there before.
    pub(crate) fn clear(&self, bits: Gate) -> Gate {
        Gate(self.0.fetch_and(!bits.0, Ordering::SeqCst))
    }

    /// Sets or clears `bits`; gives what was there before.
    pub(crate) fn put(&self, bits: Gate, present: bool) -> Gate {
        if present {
            self.set(bits)
        } else {
            self.clear(bits)
        }
    }

    /// Changes the gate in one step, if `change` wants to; gives what was there before.
    pub(crate) fn update(&self, change: impl Fn(Gate) -> Option<Gate>) -> Result<Gate, Gate> {
        self.0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |bits| {
                change(Gate(bits)).map(|gate| gate.0)
            })
            .map(Gate)
            .map_err(Gate)
    }

    /// Changes `from`, exactly, to `to`.
    pub(crate) fn change(&self, from: Gate, to: Gate) -> bool {
        self.0
            .compare_exchange(from.0, to.0, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }
}

/// Panic with hysteresis.
#[derive(Clone, Debug, Default)]
pub(crate) struct Panic {
    on: bool,
}

/// Added to the threshold before panic is left, as a share of the pool.
const HYSTERESIS: f64 = 0.1;

impl Panic {
    pub(crate) fn is_on(&self) -> bool {
        self.on
    }

    /// Decides anew; true if it changed. `ready` are those that people left in, `usable` those of
    /// them that look healthy. `threshold` 0 means never.
    pub(crate) fn observe(&mut self, usable: usize, ready: usize, threshold: f64) -> bool {
        let before = self.on;
        let enter_below = ready as f64 * threshold;
        self.on = if self.on {
            threshold > 0.0 && usable < Self::leave_at(ready, threshold)
        } else {
            (usable as f64) < enter_below
        };
        before != self.on
    }

    /// Ten points or one backend above the threshold, whichever is more, but never more than all.
    fn leave_at(ready: usize, threshold: f64) -> usize {
        // The small number keeps 0.6 × 10 from being rounded up to 7.
        let ceil = |share: f64| (ready as f64 * share - 1e-9).ceil().max(0.0) as usize;
        let by_share = ceil(threshold + HYSTERESIS);
        let by_count = ceil(threshold) + 1;
        by_share.max(by_count).min(ready)
    }
}

#[cfg(test)]
mod tests;

//! What goes wrong with backends.

use std::time::Duration;

/// One fault of some backends for a time.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// What is wrong.
    pub kind: FaultKind,
    /// Which backends have it, by number.
    pub backends: Vec<usize>,
    /// When the first of them has it.
    pub from: Duration,
    /// When it is over for the first of them.
    pub to: Duration,
    /// By how much each further backend is later than the one before: 0 for all at once.
    pub step: Duration,
}

impl Fault {
    /// Each backend with the time of its own fault, nanoseconds.
    pub(crate) fn windows(&self) -> impl Iterator<Item = (usize, u64, u64)> + '_ {
        let nanos = |time: Duration| time.as_nanos() as u64;
        self.backends.iter().zip(0..).map(move |(&backend, n)| {
            let later = nanos(self.step).saturating_mul(n);
            let shifted = |time| nanos(time).saturating_add(later);
            (backend, shifted(self.from), shifted(self.to))
        })
    }
}

impl Fault {
    /// How often all its backends together change within `time`; 0 for one that does not come and go.
    pub(crate) fn changes_within(&self, time: Duration) -> u64 {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let Some(cycle) = self.kind.cycle().map(nanos).filter(|cycle| *cycle > 0) else {
            return 0;
        };
        let turns = |(_, from, to): (usize, u64, u64)| {
            to.min(nanos(time)).saturating_sub(from).div_ceil(cycle)
        };
        2 * self.windows().map(turns).sum::<u64>()
    }
}

/// Kinds of fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FaultKind {
    /// Works `factor` times slower.
    Slow {
        /// Above 0; below 1 it is faster.
        factor: f64,
    },
    /// Stands still for `length` once every `period`, as in garbage collection.
    Pause {
        /// From pause to pause.
        period: Duration,
        /// How long one is; shorter than `period`.
        length: Duration,
    },
    /// Somebody else on the machine takes a share of its speed: always, or for `on` and then not for
    /// `off` in turn.
    Antagonist {
        /// `0.0..1.0`.
        steal: f64,
        /// Zero with `off` for always.
        on: Duration,
        /// The time between.
        off: Duration,
    },
    /// Speed sinks evenly from 1 to `floor` over the fault's time.
    BrownOut {
        /// `0.0..1.0`.
        floor: f64,
    },
    /// Answers at once, or after a while, with an error: a black hole, a slow failure.
    Failing(Failing),
    /// Stands still: accepts, and answers nothing.
    Hang {
        /// Whether its health check passes all the same.
        probes_pass: bool,
    },
    /// Has just started, at the fault's begin: see [`Cold`]. The fault's end means nothing.
    ColdStart(Cold),
    /// Refuses connections for `down`, then works for `up`, in turn.
    Flap {
        /// Time in which it works.
        up: Duration,
        /// Time in which it does not.
        down: Duration,
    },
    /// Dies: what it works on is lost, connections are refused. Comes back at the end.
    Kill {
        /// How it comes back.
        cold: Option<Cold>,
    },
    /// Is taken out of the pool, then stopped, and put back at the end; with a `step`, a rolling
    /// deploy.
    Leave {
        /// From the change of membership until the process stops.
        grace: Duration,
        /// How it comes back.
        cold: Option<Cold>,
    },
}

impl FaultKind {
    /// Its name in scenario files, which has other names for variants of one kind.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Slow { .. } => "slow",
            Self::Pause { .. } => "gc_pause",
            Self::Antagonist { .. } => "antagonist",
            Self::BrownOut { .. } => "brown_out",
            Self::Failing(failing) if failing.after >= Duration::from_millis(100) => "slow_fail",
            Self::Failing(_) => "black_hole",
            Self::Hang { .. } => "hang",
            Self::ColdStart(_) => "cold_start",
            Self::Flap { .. } => "flap",
            Self::Kill { .. } => "kill",
            Self::Leave { .. } => "leave",
        }
    }

    /// From turn to turn, of a fault that comes and goes.
    pub(crate) fn cycle(&self) -> Option<Duration> {
        match *self {
            Self::Pause { period, .. } => Some(period),
            Self::Antagonist { on, off, .. } if !off.is_zero() => Some(on + off),
            Self::Flap { up, down } => Some(up + down),
            _ => None,
        }
    }

    /// Whether it lasts from begin to end, so that traffic can move away once and come back once.
    pub(crate) fn is_steady(&self) -> bool {
        match self {
            Self::Slow { .. } | Self::Failing(_) | Self::Hang { .. } | Self::Kill { .. } => true,
            Self::Antagonist { off, .. } => off.is_zero(),
            _ => false,
        }
    }

    /// Whether a request to it would be lost, so that keeping traffic from it is right even if all
    /// backends have it.
    pub(crate) fn loses_requests(&self) -> bool {
        !matches!(
            self,
            Self::Slow { .. }
                | Self::Pause { .. }
                | Self::Antagonist { .. }
                | Self::BrownOut { .. }
                | Self::ColdStart(_)
        )
    }
}

/// Errors in place of answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Failing {
    /// The status, `500..=599`.
    pub status: u16,
    /// How long it takes.
    pub after: Duration,
    /// Share of requests that it hits, above 0, `..=1.0`.
    pub share: f64,
    /// Whether its health check passes all the same.
    pub probes_pass: bool,
}

/// A process that has just started.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cold {
    /// Its speed at first, of the later one, `0.01..=1.0`.
    pub speed: f64,
    /// How it gets warm.
    pub warm: Warm,
}

/// How a cold process gets warm, evenly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Warm {
    /// With each request that it serves; this many in all.
    Requests(u64),
    /// With time.
    Time(Duration),
}

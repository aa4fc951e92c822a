//! What changed in a pool, for log and metrics.

use std::fmt;
use std::sync::Arc;

use crate::adaptive::AdaptiveState;
use crate::availability::Admin;
use crate::ejection::EjectionCause;
use crate::health::Health;
use crate::time::Instant;

/// One transition. `Display` gives it as a plain sentence.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// Probes changed their mind.
    HealthChanged {
        /// The backend's key.
        backend: Arc<str>,
        /// What they said before.
        from: Health,
        /// What they say now.
        to: Health,
        /// Why.
        reason: String,
    },
    /// Traffic failed too often.
    Ejected {
        /// The backend's key.
        backend: Arc<str>,
        /// Why.
        cause: EjectionCause,
        /// When it comes back on probation.
        until: Instant,
        /// How long that is, in whole seconds.
        seconds: u64,
        /// Which ejection in a row this is.
        count: u32,
        /// Why, with the figures where there are any.
        reason: String,
    },
    /// An ejection is over.
    EjectionEnded {
        /// The backend's key.
        backend: Arc<str>,
        /// What ended it.
        end: EjectionEnd,
    },
    /// The first request after an ejection succeeded.
    ProbationPassed {
        /// The backend's key.
        backend: Arc<str>,
    },
    /// It refuses connections.
    Refused {
        /// The backend's key.
        backend: Arc<str>,
    },
    /// It accepts connections again.
    Answering {
        /// The backend's key.
        backend: Arc<str>,
    },
    /// The operator changed their will.
    AdminChanged {
        /// The backend's key.
        backend: Arc<str>,
        /// What it was.
        from: Admin,
        /// What it is.
        to: Admin,
    },
    /// A member came.
    Joined {
        /// The backend's key.
        backend: Arc<str>,
    },
    /// A member went.
    Left {
        /// The backend's key.
        backend: Arc<str>,
        /// Requests it still serves.
        in_flight: u32,
    },
    /// Too few look healthy: health is ignored from here on.
    PanicEntered {
        /// Backends that look healthy.
        usable: usize,
        /// Backends that people left in.
        total: usize,
        /// What is likelier at fault, as a plain sentence.
        belief: String,
    },
    /// The share of its weight that a backend gets follows another rule from here on.
    StateChanged {
        /// The backend's key.
        backend: Arc<str>,
        /// What traffic said of it before.
        from: AdaptiveState,
        /// What it says now.
        to: AdaptiveState,
        /// Why, with the figures.
        reason: String,
    },
    /// Other tiers or zones get traffic from here on.
    SpreadChanged {
        /// Who gets how much, as a plain sentence.
        to: String,
        /// Whether traffic goes further from those that are asked first.
        falls_back: bool,
    },
    /// Enough look healthy again.
    PanicLeft {
        /// Backends that look healthy.
        usable: usize,
        /// Backends that people left in.
        total: usize,
    },
}

/// What ended an ejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EjectionEnd {
    /// Its time was up: the backend is on probation.
    Elapsed,
    /// It was for refused or lost connections, and probes connect again.
    Proved,
    /// It was for lost connections, and the backend has been seen to refuse since: in a pool without probes it is
    /// tried again as one that refuses is.
    Gone,
    /// Ejection was switched off.
    SwitchedOff,
    /// The other backends fail as much: the fault is not its own.
    LikeOthers,
}

/// What is said of the backend.
impl fmt::Display for EjectionEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Elapsed => "is back from ejection, on probation",
            Self::Proved => "is back from ejection: probes connect again",
            Self::Gone => {
                "is no longer ejected: it refuses connections, and is tried again as such"
            }
            Self::LikeOthers => {
                "is back from ejection: the others fail as much, so the fault is not its own"
            }
            Self::SwitchedOff => "is back: ejection was switched off",
        })
    }
}

impl Event {
    /// Whether there is less to serve with from here on: somebody may have to look.
    pub fn degrades_service(&self) -> bool {
        matches!(
            self,
            Self::HealthChanged {
                to: Health::Down,
                ..
            } | Self::Ejected { .. }
                | Self::StateChanged {
                    to: AdaptiveState::Degraded,
                    ..
                }
                | Self::Refused { .. }
                | Self::PanicEntered { .. }
                | Self::SpreadChanged {
                    falls_back: true,
                    ..
                }
        )
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HealthChanged {
                backend,
                from,
                to,
                reason,
            } => write!(f, "backend {backend} is {to} (was {from}): {reason}"),
            Self::Ejected {
                backend,
                seconds,
                count,
                reason,
                ..
            } => write!(
                f,
                "backend {backend} is ejected for {seconds} s (number {count} in a row): {reason}"
            ),
            Self::EjectionEnded { backend, end } => write!(f, "backend {backend} {end}"),
            Self::ProbationPassed { backend } => {
                write!(f, "backend {backend} passed its probation")
            }
            Self::Refused { backend } => write!(f, "backend {backend} refuses connections"),
            Self::Answering { backend } => write!(f, "backend {backend} accepts connections again"),
            Self::AdminChanged { backend, from, to } => {
                write!(f, "backend {backend} was set to {to} (was {from})")
            }
            Self::Joined { backend } => write!(f, "backend {backend} joined"),
            Self::Left { backend, in_flight } => {
                write!(
                    f,
                    "backend {backend} left, with {in_flight} requests in flight"
                )
            }
            Self::PanicEntered {
                usable,
                total,
                belief,
            } => write!(
                f,
                "panic: only {usable} of {total} backends look healthy, so health is ignored: {belief}"
            ),
            Self::StateChanged {
                backend,
                from,
                to,
                reason,
            } => write!(f, "backend {backend} is {to} (was {from}): {reason}"),
            Self::SpreadChanged { to, .. } => write!(f, "traffic moved: {to}"),
            Self::PanicLeft { usable, total } => write!(
                f,
                "panic is over: {usable} of {total} backends look healthy"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_something_away_degrades_service_and_what_mends_does_not() {
        let backend: Arc<str> = Arc::from("a");
        let health = |to| Event::HealthChanged {
            backend: Arc::clone(&backend),
            from: Health::Unknown,
            to,
            reason: String::new(),
        };
        let ejected = Event::Ejected {
            backend: Arc::clone(&backend),
            cause: EjectionCause::Failures,
            until: Instant::default(),
            seconds: 30,
            count: 1,
            reason: String::new(),
        };
        let refused = Event::Refused {
            backend: Arc::clone(&backend),
        };
        let (usable, total) = (1, 4);
        for event in [
            health(Health::Down),
            ejected,
            refused,
            Event::PanicEntered {
                usable,
                total,
                belief: String::new(),
            },
        ] {
            assert!(event.degrades_service(), "{event}");
        }
        let ended = Event::EjectionEnded {
            backend: Arc::clone(&backend),
            end: EjectionEnd::Proved,
        };
        let answering = Event::Answering {
            backend: Arc::clone(&backend),
        };
        for event in [
            health(Health::Up),
            ended,
            answering,
            Event::PanicLeft { usable, total },
        ] {
            assert!(!event.degrades_service(), "{event}");
        }
    }
}

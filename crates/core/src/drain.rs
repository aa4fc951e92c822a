//! The order in which a process or a listener stops: fail readiness, go on serving, close, wait, end.
//!
//! ```text
//!           begin            window over           nothing in flight, or deadline
//! Serving ────────▶ Window ─────────────▶ Closing ───────────────────────────────▶ Done { cut }
//!    └──────────────────┴── begin_at_once (second signal) ──┴─────────────────────────▲
//! ```
//!
//! Why a window at all: whoever balances in front learns of the drain only from its next probes, and
//! until then goes on sending *new* requests. Closing the listener first would refuse those.

use std::time::Duration;

use crate::time::Instant;

/// How long the two waits of a drain last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainConfig {
    /// How long new requests are still served after readiness began to fail. Zero: close at once.
    pub window: Duration,
    /// How long, after the listeners closed, requests in flight may take to end.
    pub deadline: Duration,
}

/// Where a drain stands, and so what its driver has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainPhase {
    /// Nothing was asked.
    Serving,
    /// Readiness fails; new requests are served as before.
    Window,
    /// Listeners are closed, answers carry `Connection: close`; requests in flight are waited for.
    Closing,
    /// Over: end now.
    Done {
        /// Requests that were still in flight when it ended.
        cut: u64,
    },
}

/// The drain as a machine: it decides, a driver does.
#[derive(Debug)]
pub struct Drain {
    config: DrainConfig,
    state: State,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Serving,
    Window { until: Instant },
    Closing { until: Instant },
    Done { cut: u64 },
}

impl Drain {
    /// A drain that nobody has asked for yet.
    pub fn new(config: DrainConfig) -> Self {
        Self {
            config,
            state: State::Serving,
        }
    }

    /// The first signal. A drain that runs already is not started anew.
    pub fn begin(&mut self, now: Instant) {
        if matches!(self.state, State::Serving) {
            self.state = State::Window {
                until: now + self.config.window,
            };
        }
    }

    /// The second signal: ends at once and cuts what is in flight. What is done stays done.
    pub fn begin_at_once(&mut self, _now: Instant, in_flight: u64) {
        if !matches!(self.state, State::Done { .. }) {
            self.state = State::Done { cut: in_flight };
        }
    }

    /// Moves on to where the drain stands at `now`, with `in_flight` requests not yet ended.
    pub fn tick(&mut self, now: Instant, in_flight: u64) -> DrainPhase {
        match self.state {
            // From the end of the window, not from the tick that noticed it: a late driver does not
            // stretch the whole beyond window + deadline. The driver must see `Closing` once, whatever is
            // in flight: connections that wait to be accepted are counted only when it has closed the listeners.
            State::Window { until } if now >= until => {
                self.state = State::Closing {
                    until: until + self.config.deadline,
                };
            }
            State::Closing { until } if in_flight == 0 || now >= until => {
                self.state = State::Done { cut: in_flight };
            }
            _ => {}
        }
        match self.state {
            State::Serving => DrainPhase::Serving,
            State::Window { .. } => DrainPhase::Window,
            State::Closing { .. } => DrainPhase::Closing,
            State::Done { cut } => DrainPhase::Done { cut },
        }
    }

    /// When `tick` has work although nothing happened.
    pub fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Window { until } | State::Closing { until } => Some(until),
            State::Serving | State::Done { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn drain(window: u64, deadline: u64) -> Drain {
        Drain::new(DrainConfig {
            window: Duration::from_secs(window),
            deadline: Duration::from_secs(deadline),
        })
    }

    #[test]
    fn closing_is_seen_once_even_with_nothing_in_flight() {
        let mut drain = drain(0, 10);
        drain.begin(at(1));
        assert_eq!(drain.tick(at(1), 0), DrainPhase::Closing);
        assert_eq!(
            drain.tick(at(1), 3),
            DrainPhase::Closing,
            "what the queue held is in flight now"
        );
        assert_eq!(drain.tick(at(2), 0), DrainPhase::Done { cut: 0 });
    }

    #[test]
    fn serves_through_the_window_even_with_nothing_in_flight() {
        let mut drain = drain(10, 30);
        assert_eq!(drain.tick(at(99), 0), DrainPhase::Serving);
        assert_eq!(drain.deadline(), None);
        drain.begin(at(100));
        assert_eq!(drain.tick(at(100), 0), DrainPhase::Window);
        assert_eq!(drain.deadline(), Some(at(110)));
        assert_eq!(drain.tick(at(109), 0), DrainPhase::Window);
        assert_eq!(drain.tick(at(110), 3), DrainPhase::Closing);
        assert_eq!(drain.deadline(), Some(at(140)));
        assert_eq!(drain.tick(at(111), 1), DrainPhase::Closing);
        assert_eq!(drain.tick(at(112), 0), DrainPhase::Done { cut: 0 });
        assert_eq!(drain.deadline(), None);
    }

    #[test]
    fn the_deadline_cuts_what_is_left_and_says_how_many() {
        let mut drain = drain(0, 5);
        drain.begin(at(1));
        assert_eq!(drain.tick(at(1), 7), DrainPhase::Closing);
        assert_eq!(drain.tick(at(5), 7), DrainPhase::Closing);
        assert_eq!(drain.tick(at(6), 4), DrainPhase::Done { cut: 4 });
        assert_eq!(
            drain.tick(at(7), 0),
            DrainPhase::Done { cut: 4 },
            "done stays done"
        );
    }

    #[test]
    fn a_late_tick_does_not_stretch_the_whole() {
        let mut drain = drain(10, 5);
        drain.begin(at(0));
        assert_eq!(drain.tick(at(20), 2), DrainPhase::Closing);
        assert_eq!(drain.tick(at(20), 2), DrainPhase::Done { cut: 2 });
    }

    #[test]
    fn a_second_begin_does_not_start_anew() {
        let mut drain = drain(10, 5);
        drain.begin(at(0));
        drain.begin(at(9));
        assert_eq!(drain.tick(at(10), 1), DrainPhase::Closing);
    }

    #[test]
    fn a_second_signal_ends_at_once_from_every_phase() {
        for wait in [0, 1, 11] {
            let mut drain = drain(10, 5);
            if wait > 0 {
                drain.begin(at(0));
                drain.tick(at(wait), 3);
            }
            drain.begin_at_once(at(wait), 3);
            assert_eq!(drain.tick(at(wait), 2), DrainPhase::Done { cut: 3 });
        }
    }
}

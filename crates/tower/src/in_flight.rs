//! One request at a backend: its place, and what core hears of it.

use crate::classify::Verdict;
use crate::driver::Held;
use mizan_core::{Instant, Outcome};
use std::time::Duration;

/// A request in flight. It is observed once: by `ended`, or as aborted when it drops without.
#[derive(Debug)]
pub(crate) struct InFlight {
    place: Held,
    started: Instant,
    is_observed: bool,
}

impl InFlight {
    /// Begins at `started`.
    pub(crate) fn new(place: Held, started: Instant) -> Self {
        Self {
            place,
            started,
            is_observed: false,
        }
    }

    /// The service's result is there. The place is given back.
    pub(crate) fn ended(mut self, verdict: Verdict) {
        self.observe(|latency| verdict.outcome(latency));
    }

    fn observe(&mut self, outcome: impl FnOnce(Duration) -> Outcome) {
        self.is_observed = true;
        let driver = self.place.driver();
        let now = driver.now();
        let waited = now.saturating_since(self.started);
        driver.observe(now, self.place.backend(), outcome(waited));
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if !self.is_observed {
            self.observe(aborted);
        }
    }
}

impl Verdict {
    /// The same for core, of a request that took `time`.
    pub(crate) fn outcome(self, time: Duration) -> Outcome {
        match self {
            Self::Success => Outcome::Success { latency: time },
            Self::ServerError(status) => Outcome::ServerError {
                status,
                latency: time,
                retry_after: None,
            },
            Self::Failure(failure) => Outcome::Failure(failure),
            // What says nothing of the backend says nothing of its time.
            Self::Nothing => aborted(Duration::ZERO),
        }
    }
}

/// A request whose caller waited for `waited` and learnt nothing.
fn aborted(waited: Duration) -> Outcome {
    Outcome::Aborted { waited }
}

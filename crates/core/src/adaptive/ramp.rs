//! The slow start of a backend: by time and by requests served.

use crate::time::Instant;

use super::AdaptiveConfig;

/// A slow start lasts at most this many times `slow_start`, however few requests come.
const LONGEST: f64 = 2.0;

/// A backend that warms up. Time alone would end with a cold backend where few requests come, and
/// requests alone would never end there, or end within a moment under load.
#[derive(Clone, Debug)]
pub(crate) struct Ramp {
    started: Instant,
    /// Requests that it has answered since.
    pub(crate) served: u32,
}

impl Ramp {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            started: now,
            served: 0,
        }
    }

    /// How far it has come, `0.0..=1.0`.
    pub(crate) fn progress(&self, now: Instant, config: &AdaptiveConfig) -> f64 {
        let length = config.slow_start.as_secs_f64().max(1e-9);
        let by_time = (now - self.started).as_secs_f64() / length;
        if by_time >= LONGEST {
            return 1.0;
        }
        let by_requests = f64::from(self.served) / f64::from(config.slow_start_requests.max(1));
        by_time.min(by_requests.max(by_time / LONGEST)).min(1.0)
    }
}

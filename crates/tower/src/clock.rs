//! Where time and entropy come from: the one file of this crate that reads either.

use mizan_core::Instant;
use std::fmt;

/// Gives the balancer its time and its random numbers, so that it can be run in virtual time and
/// repeated from a seed.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Monotonic time since any origin, the same for all calls.
    fn now(&self) -> Instant;

    /// 64 random bits, new ones with each call. Not for secrets.
    fn random(&self) -> u64;
}

/// Tokio's clock, which a test can pause, and a generator for each thread. It needs no runtime.
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    origin: tokio::time::Instant,
}

impl TokioClock {
    /// A clock that begins now.
    pub fn new() -> Self {
        Self {
            origin: tokio::time::Instant::now(),
        }
    }
}

impl Default for TokioClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.origin.elapsed().as_nanos() as u64)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "this module is the one that may draw entropy"
    )]
    fn random(&self) -> u64 {
        fastrand::u64(..)
    }
}

//! The one place that reads time and entropy.
//!
//! Everything else takes [`Instant`] and `u64` as arguments, so that decisions can be run in virtual time.

use mizan_core::time::Instant;
use std::sync::LazyLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[expect(
    clippy::disallowed_methods,
    reason = "this module is the one that may read the clock"
)]
static ORIGIN: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);

/// Monotonic time since the first call in this process.
#[expect(
    clippy::disallowed_methods,
    reason = "this module is the one that may read the clock"
)]
pub fn now() -> Instant {
    let origin = *ORIGIN;
    Instant::from_nanos(std::time::Instant::now().duration_since(origin).as_nanos() as u64)
}

/// Wall-clock time since the Unix epoch: for logs and dates, and for a decision only where a peer names a time of day.
#[expect(
    clippy::disallowed_methods,
    reason = "this module is the one that may read the clock"
)]
pub fn wall() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// 64 random bits from this thread's generator. Not for secrets.
#[expect(
    clippy::disallowed_methods,
    reason = "this module is the one that may draw entropy"
)]
pub fn random() -> u64 {
    fastrand::u64(..)
}

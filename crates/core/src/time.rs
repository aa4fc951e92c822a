//! What "now" is: a plain number of nanoseconds.
//!
//! Ours and not `std::time::Instant`, because that one can neither start at zero in a simulator nor
//! sit in an atomic.

use std::ops::{Add, Sub};
use std::time::Duration;

/// Nanoseconds since an arbitrary origin (the start of the process in the product, zero in a
/// simulator). All arithmetic saturates: 584 years are enough.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The instant `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time since `earlier`, or zero if that one is later.
    pub fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Seconds since the origin, for decay in floating point.
    pub(crate) fn as_secs_f64(self) -> f64 {
        self.0 as f64 * 1e-9
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.saturating_since(earlier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        let start = Instant::from_nanos(5);
        assert_eq!(start - Instant::from_nanos(9), Duration::ZERO);
        assert_eq!(
            (start + Duration::MAX).as_nanos(),
            u64::MAX,
            "a far deadline never wraps into the past"
        );
        assert_eq!(
            (start + Duration::from_nanos(7)) - start,
            Duration::from_nanos(7)
        );
    }
}

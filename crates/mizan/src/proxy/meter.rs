//! The minimum body rate: bytes that moved against the time that Mizan waited for them.

use std::time::Duration;

/// Judges a stream by windows of waiting time, so that a fast start buys no slow rest.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Meter {
    waiting_since_ms: Option<u64>,
    waited_ms: u64,
    /// Bytes that had moved when the window began.
    mark: u64,
}

impl Meter {
    /// A meter for the rest of a stream of which `moved` bytes have come.
    pub(super) fn from(moved: u64) -> Self {
        Self {
            mark: moved,
            ..Self::default()
        }
    }

    /// Mizan waits from now on.
    pub(super) fn wait(&mut self, now_ms: u64) {
        self.waiting_since_ms.get_or_insert(now_ms);
    }

    /// Mizan no longer waits.
    pub(super) fn go_on(&mut self, now_ms: u64) {
        if let Some(since) = self.waiting_since_ms.take() {
            self.waited_ms += now_ms - since;
        }
    }

    /// Whether, with `moved` bytes in all, the window that is now full (of `grace` waiting) was too slow.
    pub(super) fn is_too_slow(
        &mut self,
        now_ms: u64,
        moved: u64,
        bytes_per_second: u64,
        grace: Duration,
    ) -> bool {
        let waited = self.waited_ms + self.waiting_since_ms.map_or(0, |since| now_ms - since);
        if bytes_per_second == 0 || waited < grace.as_millis() as u64 {
            return false;
        }
        let slow = moved.saturating_sub(self.mark).saturating_mul(1000)
            < bytes_per_second.saturating_mul(waited);
        self.waited_ms = 0;
        self.waiting_since_ms = self.waiting_since_ms.map(|_| now_ms);
        self.mark = moved;
        slow
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(5);

    /// A stream that brings `bytes` each `every` ms while Mizan waits: when is it cut?
    fn cut_at(bytes: u64, every: u64) -> Option<u64> {
        let mut meter = Meter::default();
        (1..=600_000 / every).map(|n| n * every).find(|now| {
            meter.wait(now - every);
            meter.go_on(*now);
            meter.is_too_slow(*now, bytes * now / every, 256, GRACE)
        })
    }

    #[test]
    fn a_byte_every_half_second_is_cut_after_the_grace() {
        assert_eq!(cut_at(1, 500), Some(5_000));
    }

    #[test]
    fn a_stream_above_the_rate_is_never_cut() {
        assert_eq!(cut_at(150, 500), None);
    }

    #[test]
    fn a_fast_start_buys_no_slow_rest() {
        let mut meter = Meter::default();
        meter.wait(0);
        meter.go_on(5_000);
        assert!(!meter.is_too_slow(5_000, 10_000_000, 256, GRACE));
        meter.wait(5_000);
        assert!(meter.is_too_slow(10_000, 10_000_010, 256, GRACE));
    }

    #[test]
    fn time_in_which_mizan_does_not_wait_is_not_counted() {
        let mut meter = Meter::default();
        meter.wait(0);
        meter.go_on(1_000);
        assert!(!meter.is_too_slow(60_000, 1, 256, GRACE));
    }
}

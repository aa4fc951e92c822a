//! Latencies in log-linear buckets: eight to each doubling, so a quantile is off by at most an eighth.
//!
//! From 16 µs to 67 s; what is below or above has a bucket of its own. One writer, like every counter here.

use super::metrics::Counter;
use std::time::Duration;

/// Smallest bound is 2^4 µs.
const EXPONENT_MIN: u32 = 4;
/// Largest bound is 2^26 µs.
const EXPONENT_MAX: u32 = 26;
/// Three bits: eight buckets to a doubling.
const SUB_BITS: u32 = 3;
const SUBS: usize = 1 << SUB_BITS;
/// One below, eight for each doubling, one above.
pub const BUCKETS: usize = 2 + (EXPONENT_MAX - EXPONENT_MIN) as usize * SUBS;

/// One worker's histogram.
#[derive(Debug)]
pub struct Histogram {
    buckets: [Counter; BUCKETS],
    /// In microseconds: nanoseconds could overflow within days of 100,000 long polls.
    sum_us: Counter,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: [const { Counter::new() }; BUCKETS],
            sum_us: Counter::new(),
        }
    }
}

impl Histogram {
    /// Counts one latency. Only its worker may call it.
    #[inline]
    pub fn record(&self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[index(nanos)].add(1);
        self.sum_us.add(nanos / 1000);
    }
}

/// Several workers' histograms added up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merged {
    buckets: [u64; BUCKETS],
    sum_us: u64,
}

impl Default for Merged {
    fn default() -> Self {
        Self {
            buckets: [0; BUCKETS],
            sum_us: 0,
        }
    }
}

impl Merged {
    /// Adds what one worker has counted.
    pub fn add(&mut self, histogram: &Histogram) {
        for (total, bucket) in self.buckets.iter_mut().zip(&histogram.buckets) {
            *total = total.wrapping_add(bucket.get());
        }
        self.sum_us = self.sum_us.wrapping_add(histogram.sum_us.get());
    }

    /// How many latencies were counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Their sum in seconds.
    pub fn sum_seconds(&self) -> f64 {
        self.sum_us as f64 / 1e6
    }

    /// The latency that a share `quantile` (0.0–1.0) did not exceed, rounded up to its bucket's bound.
    /// `None` without a count. What lies above the last bound is given as that bound.
    pub fn quantile(&self, quantile: f64) -> Option<Duration> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let rank = ((count as f64 * quantile).ceil() as u64).clamp(1, count);
        let mut seen = 0;
        for (at, bucket) in self.buckets.iter().enumerate() {
            seen += bucket;
            if seen >= rank {
                return Some(Duration::from_micros(bound_us(at.min(BUCKETS - 2))));
            }
        }
        None
    }

    /// Bounds in seconds with the count at or below each: two to a doubling, to keep the exposition
    /// small. `+Inf` is [`Merged::count`].
    pub fn exposed(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let mut seen = 0;
        self.buckets[..BUCKETS - 1]
            .iter()
            .enumerate()
            .filter_map(move |(at, bucket)| {
                seen += bucket;
                at.is_multiple_of(SUBS / 2)
                    .then(|| (bound_us(at) as f64 / 1e6, seen))
            })
    }
}

/// The bucket of a latency: bounds are inclusive, as Prometheus' `le` is.
#[inline]
fn index(nanos: u64) -> usize {
    let us = nanos.saturating_sub(1) / 1000;
    if us < 1 << EXPONENT_MIN {
        return 0;
    }
    let exponent = us.ilog2();
    if exponent >= EXPONENT_MAX {
        return BUCKETS - 1;
    }
    let sub = (us >> (exponent - SUB_BITS)) as usize & (SUBS - 1);
    1 + (exponent - EXPONENT_MIN) as usize * SUBS + sub
}

/// The inclusive upper bound of a bucket, but the last, in microseconds.
fn bound_us(at: usize) -> u64 {
    let Some(at) = at.checked_sub(1) else {
        return 1 << EXPONENT_MIN;
    };
    let (octave, sub) = (at / SUBS, at % SUBS);
    ((SUBS + sub + 1) as u64) << (octave as u32 + EXPONENT_MIN - SUB_BITS)
}

#[cfg(test)]
mod tests;

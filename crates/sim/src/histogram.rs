//! Counts of latencies by size: fixed memory, relative error below one percent.
//!
//! Sixty-four buckets for each power of two: the bucket of a value is its highest seven bits, so
//! counting is a shift and an addition, and a quantile is read off to within half a bucket (0.8 %).

/// Bits of a value that choose its bucket within a power of two.
const BITS: u32 = 6;
const PER_OCTAVE: usize = 1 << BITS;
/// The smallest values have buckets of their own, and none is too large for one: a replay may queue for days.
const BUCKETS: usize = PER_OCTAVE * (64 - BITS as usize + 1);

/// Latencies in nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    counts: Vec<u32>,
    count: u64,
    sum: f64,
    max: u64,
}

impl Histogram {
    pub(crate) fn new() -> Self {
        Self {
            counts: vec![0; BUCKETS],
            count: 0,
            sum: 0.0,
            max: 0,
        }
    }

    pub(crate) fn record(&mut self, nanos: u64) {
        self.counts[bucket(nanos)] += 1;
        self.count += 1;
        self.sum += nanos as f64;
        self.max = self.max.max(nanos);
    }

    pub(crate) fn clear(&mut self) {
        if self.count > 0 {
            self.counts.fill(0);
        }
        (self.count, self.sum, self.max) = (0, 0.0, 0);
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Nanoseconds; `None` of no values.
    pub(crate) fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }

    /// Nanoseconds.
    pub(crate) fn max(&self) -> u64 {
        self.max
    }

    /// The value that the share `q` (`0.0..=1.0`) of all values does not exceed, nanoseconds.
    pub(crate) fn quantile(&self, q: f64) -> Option<u64> {
        if self.count == 0 {
            return None;
        }
        let wanted = ((q * self.count as f64).ceil() as u64).clamp(1, self.count);
        let mut seen = 0;
        let at = self.counts.iter().position(|&count| {
            seen += u64::from(count);
            seen >= wanted
        })?;
        Some(middle(at).min(self.max))
    }
}

fn bucket(nanos: u64) -> usize {
    let value = nanos.max(1);
    let octave = (63 - value.leading_zeros()).saturating_sub(BITS);
    let at = ((octave as usize) << BITS) + (value >> octave) as usize;
    at.min(BUCKETS - 1)
}

/// The middle of the bucket's values.
fn middle(at: usize) -> u64 {
    if at < 2 * PER_OCTAVE {
        return at as u64;
    }
    let octave = at / PER_OCTAVE - 1;
    let low = ((at - octave * PER_OCTAVE) as u64) << octave;
    low + (1 << octave) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_near_the_middle_of_its_bucket() {
        let mut value = 1u64;
        while value < 1 << 62 {
            for near in [value, value + value / 3, value + value / 2 + 1] {
                let error = (middle(bucket(near)) as f64 - near as f64).abs() / near as f64;
                assert!(error <= 0.008, "{near}: {error}");
            }
            value = value * 2 + 1;
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1, "the last one is of use");
    }

    #[test]
    fn quantiles_are_those_of_the_values() {
        let mut histogram = Histogram::new();
        assert_eq!(histogram.quantile(0.5), None);
        for value in 1..=1_000u64 {
            histogram.record(value * 1_000);
        }
        for (q, expected) in [(0.0, 1.0), (0.5, 500.0), (0.99, 990.0), (1.0, 1_000.0)] {
            let value = histogram.quantile(q).unwrap() as f64 / 1_000.0;
            assert!(
                (value - expected).abs() <= expected * 0.008,
                "{q}: {value} for {expected}"
            );
        }
        assert_eq!(histogram.mean(), Some(500_500.0));
        histogram.clear();
        assert_eq!((histogram.count(), histogram.quantile(1.0)), (0, None));
    }
}

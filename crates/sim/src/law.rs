//! How long the work of a request takes.

use std::time::Duration;

use crate::random::Random;

/// The distribution of a request's work: the time that it takes in one slot of a backend of speed 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Law {
    /// Always the same.
    Fixed {
        /// The work.
        mean: Duration,
    },
    /// Memoryless: what queueing theory has formulas for.
    Exponential {
        /// Mean work.
        mean: Duration,
    },
    /// Skewed to the right, as most real services are.
    Lognormal {
        /// Mean work.
        mean: Duration,
        /// Deviation of the logarithm, `0.0..=4.0`. 0.5 puts p99 at about three times the median.
        sigma: f64,
    },
    /// Two kinds of request, each of fixed work.
    Bimodal {
        /// Work of the cheap kind.
        fast: Duration,
        /// Work of the dear kind.
        slow: Duration,
        /// Share of the dear kind, `0.0..=1.0`.
        slow_share: f64,
    },
}

impl Law {
    /// Mean work, nanoseconds.
    pub(crate) fn mean_nanos(&self) -> f64 {
        match *self {
            Self::Fixed { mean } | Self::Exponential { mean } | Self::Lognormal { mean, .. } => {
                nanos(mean)
            }
            Self::Bimodal {
                fast,
                slow,
                slow_share,
            } => nanos(fast) * (1.0 - slow_share) + nanos(slow) * slow_share,
        }
    }

    /// The work of one request, nanoseconds, at least 1.
    pub(crate) fn draw(&self, random: &mut Random) -> f64 {
        let work = match *self {
            Self::Fixed { mean } => nanos(mean),
            Self::Exponential { mean } => nanos(mean) * random.exponential(),
            Self::Lognormal { mean, sigma } => {
                nanos(mean) * (sigma * random.normal() - sigma * sigma / 2.0).exp()
            }
            Self::Bimodal {
                fast,
                slow,
                slow_share,
            } => nanos(if random.unit() < slow_share {
                slow
            } else {
                fast
            }),
        };
        work.max(1.0)
    }
}

fn nanos(duration: Duration) -> f64 {
    duration.as_nanos() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_have_the_mean_that_capacity_is_reckoned_with() {
        let mean = Duration::from_millis(10);
        let laws = [
            Law::Fixed { mean },
            Law::Exponential { mean },
            Law::Lognormal { mean, sigma: 0.7 },
            Law::Bimodal {
                fast: Duration::from_millis(5),
                slow: Duration::from_millis(105),
                slow_share: 0.05,
            },
        ];
        for law in laws {
            let mut random = Random::new(5, 0);
            let sum: f64 = (0..100_000).map(|_| law.draw(&mut random)).sum();
            let ratio = sum / 100_000.0 / law.mean_nanos();
            assert!((ratio - 1.0).abs() < 0.02, "{law:?}: {ratio}");
            assert!((law.mean_nanos() - 1e7).abs() < 1.0, "{law:?}");
        }
    }
}

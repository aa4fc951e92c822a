//! Random numbers from a seed: the only entropy of a simulation.
//!
//! Each purpose draws from a stream of its own. So the requests that arrive, and the work that each
//! brings, are the same under every policy: what differs in a report is the policy's doing.

/// One stream of random numbers. Whole numbers are the same for the same seed on every machine; those that
/// logarithms and the like are taken of may differ in the last bit where the system's mathematics does.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: u64,
    /// The second of two normal numbers, which come in pairs.
    spare: Option<f64>,
}

impl Random {
    /// The stream number `stream` of `seed`.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let state = scramble(seed ^ scramble(stream.wrapping_add(0xA5A5)));
        Self { state, spare: None }
    }

    /// Any number. The generator is a counter with an odd step, finished by [`scramble`].
    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        scramble(self.state)
    }

    /// `0.0..1.0`, never 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// `0..bound`; 0 if `bound` is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// Exponential with mean 1.
    pub(crate) fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }

    /// Normal with mean 0 and deviation 1 (Box and Muller's transform).
    pub(crate) fn normal(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        let radius = (2.0 * self.exponential()).sqrt();
        let (sine, cosine) = (std::f64::consts::TAU * self.unit()).sin_cos();
        self.spare = Some(radius * sine);
        radius * cosine
    }
}

/// SplitMix64's finaliser: near inputs give independent outputs.
pub(crate) const fn scramble(value: u64) -> u64 {
    let z = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: usize = 200_000;

    fn mean_and_variance(draw: impl Fn(&mut Random) -> f64) -> (f64, f64) {
        let mut random = Random::new(3, 0);
        let (mut sum, mut squares) = (0.0, 0.0);
        for _ in 0..DRAWS {
            let value = draw(&mut random);
            sum += value;
            squares += value * value;
        }
        let mean = sum / DRAWS as f64;
        (mean, squares / DRAWS as f64 - mean * mean)
    }

    #[test]
    fn draws_have_the_moments_of_their_laws() {
        let near = |(mean, variance): (f64, f64), expected: (f64, f64)| {
            assert!((mean - expected.0).abs() < 0.02, "{mean} for {expected:?}");
            assert!(
                (variance - expected.1).abs() < 0.03,
                "{variance} for {expected:?}"
            );
        };
        near(mean_and_variance(Random::unit), (0.5, 1.0 / 12.0));
        near(mean_and_variance(Random::exponential), (1.0, 1.0));
        near(mean_and_variance(Random::normal), (0.0, 1.0));
        near(
            mean_and_variance(|random| random.below(4) as f64),
            (1.5, 1.25),
        );
    }

    #[test]
    fn streams_of_one_seed_differ_and_repeat() {
        let first = |seed, stream| Random::new(seed, stream).next();
        assert_eq!(first(1, 0), first(1, 0));
        assert_ne!(first(1, 0), first(1, 1));
        assert_ne!(first(1, 0), first(2, 0));
    }
}

//! What "least" means, and the policy for pools small enough to look at every backend.

use crate::availability::Gate;
use crate::backend::load::LATENCY_TAU;
use crate::pool::Claim;
use crate::time::Instant;

use super::{Membership, Policy, View, below, mix};

/// What is to be least. A cost is a `u32` that orders like the real figure: equal costs are ties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    /// (in flight + penalty) ÷ weight.
    Connections,
    /// (in flight + penalty + 1) × latency ÷ weight.
    ResponseTime,
}

/// The cost of a backend that may not be picked.
pub(crate) const NEVER: u32 = u32::MAX;

/// Costs of response time are logarithms in steps of 1/4096 (0.02 %), which is finer than latency is
/// known and coarse enough for ties.
const STEPS: f64 = 4_096.0;
/// Added to them, so that a figure that has faded for a month is still above zero.
const OFFSET: f64 = 262_144.0;

/// What a cost is computed from.
pub(crate) struct Load {
    /// Whether it refused, and may be tried again.
    pub(crate) on_trial: bool,
    pub(crate) in_flight: u32,
    pub(crate) penalty: f32,
    pub(crate) weight: u32,
    /// Latency level, see `backend::load`.
    pub(crate) latency: f64,
}

impl Measure {
    /// What costs may be relative to: of any instant that the costs to be compared have in common,
    /// not much older than a month. A fading latency is a constant in the logarithm relative to it,
    /// so costs compare without knowing the time.
    pub(crate) fn base(at: Instant) -> f64 {
        at.as_secs_f64() / LATENCY_TAU
    }

    pub(crate) fn cost(self, load: &Load, base: f64) -> u32 {
        if load.on_trial {
            // Whoever may be tried again is, by the next request.
            return 0;
        }
        let requests = f64::from(load.in_flight) + f64::from(load.penalty);
        let weight = f64::from(load.weight);
        match self {
            // The bits of a positive float order like the float. Division rounds correctly, so that
            // 1 ÷ 3 and 2 ÷ 6 are a tie.
            Self::Connections => ((requests / weight) as f32).to_bits(),
            Self::ResponseTime => {
                let cost = ln((requests + 1.0) / weight) + (load.latency - base) + OFFSET;
                // Saturates at both ends.
                ((cost * STEPS) as u32).min(NEVER - 1)
            }
        }
    }
}

/// The natural logarithm to within half a step, in a third of the time: exponent from the float's
/// bits, mantissa by the series of artanh.
fn ln(value: f64) -> f64 {
    let bits = value.to_bits();
    let exponent = (bits >> 52) as i64 - 1_023;
    let mantissa = f64::from_bits((bits & ((1 << 52) - 1)) | (1_023 << 52));
    // ln m = ln √2 + 2 artanh z, with |z| below 0.172.
    let z = (mantissa - std::f64::consts::SQRT_2) / (mantissa + std::f64::consts::SQRT_2);
    let square = z * z;
    let series = z * (2.0 + square * (2.0 / 3.0 + square * (2.0 / 5.0)));
    exponent as f64 * std::f64::consts::LN_2 + 0.5 * std::f64::consts::LN_2 + series
}

/// Looks at every candidate. Exact, also about penalties, and for few backends the fastest.
pub(crate) struct LeastOfAll {
    pub(crate) measure: Measure,
}

impl LeastOfAll {
    fn cost(&self, membership: &Membership, index: usize, now: Instant, base: f64) -> u32 {
        let live = membership.backends[index].live();
        let latency = live.latency.level();
        let load = Load {
            on_trial: live.gate.load().has(Gate::TRIAL),
            in_flight: live.in_flight(),
            penalty: live.penalty.at(now),
            weight: live.weight(),
            latency: latency.unwrap_or_else(|| membership.default_latency()),
        };
        self.measure.cost(&load, base)
    }
}

impl Policy for LeastOfAll {
    fn pick(&self, view: &View<'_>) -> Option<Claim> {
        let now = view.pick.now;
        let base = Measure::base(now);
        let mut random = view.pick.random;
        let mut best = None;
        let mut least = NEVER;
        // Reservoir: of those that tie so far, each is `best` in proportion to its weight.
        let mut tied = 0usize;
        for &index in view.candidates {
            let index = index as usize;
            if !view.is_eligible(index) {
                continue;
            }
            let cost = self.cost(view.membership, index, now, base);
            let weight = view.backend(index).live().weight() as usize;
            if cost < least {
                (best, least, tied) = (Some(index), cost, weight);
            } else if cost == least {
                tied += weight;
                random = mix(random);
                if below(random, tied) < weight {
                    best = Some(index);
                }
            }
        }
        view.claim_at(best?)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_quick_logarithm_is_within_half_a_step(value in 1e-6f64..1e9) {
            let error = (ln(value) - value.ln()).abs();
            prop_assert!(error < 0.5 / STEPS, "off by {error} at {value}");
        }

        #[test]
        fn the_quick_logarithm_is_monotonous(value in 1e-6f64..1e9, factor in 1.0f64..2.0) {
            prop_assert!(ln(value) <= ln(value * factor) + 1e-9);
        }
    }
}

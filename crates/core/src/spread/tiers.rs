//! How traffic is split between tiers.
//!
//! Envoy's rule of priority levels ("Priority levels", "Overprovisioning factor" in its documentation of
//! load balancing): a tier bears its available share times a factor, 1.4 unless configured, and what is
//! beyond that goes to the next tier. So nothing moves until two of seven are out, and then it moves
//! by as much as is missing, up and down without a step: there is no threshold about which traffic could
//! flap. With a large factor a tier keeps all as long as one of it is left, as nginx and HAProxy do it.

/// Each tier's share of the traffic, given how much of each is available, `0.0..=1.0`, the first to be
/// asked first. The shares add up to 1, or are all 0 where nothing is available.
pub(crate) fn shares(available: &[f64], overprovisioning: f64) -> Vec<f64> {
    let mut rest = 1.0;
    let mut shares: Vec<f64> = available
        .iter()
        .map(|&available| {
            let share = borne(available, overprovisioning).min(rest);
            rest -= share;
            share
        })
        .collect();
    // All together cannot bear it: each gets what it gets in proportion.
    let sum: f64 = shares.iter().sum();
    if sum > 0.0 {
        shares.iter_mut().for_each(|share| *share /= sum);
    }
    shares
}

/// What part of its whole load something bears of which `available` is left.
pub(crate) fn borne(available: f64, overprovisioning: f64) -> f64 {
    (available * overprovisioning).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_first_tier_keeps_all_until_more_than_two_of_seven_are_out() {
        let of = |available: &[f64]| {
            let shares = shares(available, 1.4);
            shares
                .iter()
                .map(|share| (share * 100.0).round() as u32)
                .collect::<Vec<_>>()
        };
        assert_eq!(of(&[1.0, 1.0]), [100, 0]);
        assert_eq!(of(&[5.0 / 7.0, 1.0]), [100, 0]);
        assert_eq!(of(&[0.5, 1.0]), [70, 30]);
        assert_eq!(of(&[0.5, 0.1, 1.0]), [70, 14, 16]);
        assert_eq!(of(&[0.0, 1.0]), [0, 100]);
        assert_eq!(of(&[0.2, 0.2]), [50, 50], "all bear too little");
        assert_eq!(of(&[0.0, 0.0]), [0, 0]);
        assert_eq!(shares(&[0.01, 1.0], 1_000.0), [1.0, 0.0], "as in nginx");
        assert_eq!(shares(&[0.0, 1.0], 1_000.0), [0.0, 1.0]);
    }

    proptest! {
        #[test]
        fn shares_add_up_and_more_of_the_first_tier_never_takes_from_it(
            available in prop::collection::vec(0.0f64..=1.0, 1..5),
            more in 0.0f64..=1.0,
            factor in 1.0f64..10.0,
        ) {
            let before = shares(&available, factor);
            let sum: f64 = before.iter().sum();
            prop_assert!((sum - 1.0).abs() < 1e-9 || available.iter().all(|&a| a == 0.0), "{before:?}");
            let mut better = available.clone();
            better[0] = better[0].max(more);
            let after = shares(&better, factor);
            prop_assert!(after[0] >= before[0] - 1e-9, "{before:?} {after:?}");
            for (at, share) in before.iter().enumerate() {
                let is_needed = available[..at].iter().map(|a| a * factor).sum::<f64>() < 1.0;
                prop_assert!(*share < 1e-9 || is_needed, "tier {at} of {available:?}: {before:?}");
            }
        }

        /// No step: a little less of a tier moves a little.
        #[test]
        fn what_moves_is_in_proportion_to_what_is_missing(
            first in 0.0f64..=1.0, lost in 0.0f64..0.05, second in 0.8f64..=1.0,
        ) {
            let (before, after) = (shares(&[first, second], 1.4), shares(&[(first - lost).max(0.0), second], 1.4));
            prop_assert!((before[0] - after[0]).abs() <= 1.4 * lost + 1e-9);
        }
    }
}

//! Which part of a large pool one of many balancers sends to.
//!
//! Finagle's deterministic aperture: the backends stand on a ring, each as wide as its weight, and each
//! balancer's slice begins at its own place, a whole number of balancer's widths long. So each point of
//! the ring is in equally many slices, and each backend gets the same for its weight, to the last bit; one
//! at the edge of a slice gets the part of its weight that lies within. (A random choice of so many
//! backends would leave some with twice the mean.) On the ring they stand by the hash of their keys, so
//! that all balancers agree, in whatever order they read their members.
//!
//! A slice in which too many are out goes on along the ring, as far as it takes.

use super::tiers::borne;

/// This balancer's part of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subset {
    /// About so many backends, 1 or more: at least so many, and so many more that the slices of all
    /// balancers cover the pool evenly.
    pub size: u32,
    /// Which of the balancers this is, from 0.
    pub index: u32,
    /// How many there are, 1 or more.
    pub of: u32,
}

/// A backend on the ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Where it stands.
    pub(crate) hash: u64,
    /// Its weight.
    pub(crate) width: u32,
    /// Whether it may be picked.
    pub(crate) is_able: bool,
}

/// What part of a backend's weight counts here.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Part {
    /// While all is well, `0.0..=1.0`.
    pub(crate) planned: f64,
    /// At present.
    pub(crate) now: f64,
}

/// The part of each of `places` that `subset` gets.
pub(crate) fn slice(places: &[Place], subset: &Subset, overprovisioning: f64) -> Vec<Part> {
    let mut order: Vec<usize> = (0..places.len())
        .filter(|&at| places[at].width > 0)
        .collect();
    order.sort_unstable_by_key(|&at| (places[at].hash, at));
    let mut parts = vec![Part::default(); places.len()];
    let total: u128 = order.iter().map(|&at| u128::from(places[at].width)).sum();
    let (of, count) = (u128::from(subset.of.max(1)), order.len() as u128);
    if total == 0 {
        return parts;
    }
    // In units of 1/of of a unit of weight, a balancer's width is `total` and the ring `total * of`.
    let whole = total * of;
    let length = total
        * (u128::from(subset.size.max(1)) * of)
            .div_ceil(count)
            .min(of);
    let start = total * (u128::from(subset.index) % of);
    let (mut at, mut first) = (0, 0);
    for (number, &index) in order.iter().enumerate() {
        let width = u128::from(places[index].width) * of;
        let inside = overlap((at, at + width), (start, start + length))
            + overlap(
                (at, at + width),
                (0, (start + length).saturating_sub(whole)),
            );
        parts[index].planned = inside.min(width) as f64 / width as f64;
        parts[index].now = parts[index].planned;
        // The one that holds the end: from there on the slice is extended.
        let end = (start + length - 1) % whole;
        if (at..at + width).contains(&end) {
            first = number;
        }
        at += width;
    }
    extend(places, &order[first..], &mut parts, overprovisioning);
    extend(places, &order[..first], &mut parts, overprovisioning);
    parts
}

/// Takes in backends of `order` until what may be picked bears what was planned.
fn extend(places: &[Place], order: &[usize], parts: &mut [Part], overprovisioning: f64) {
    let sum = |parts: &[Part], part: &dyn Fn(&Part, &Place) -> f64| -> f64 {
        let weights = parts.iter().zip(places);
        weights
            .map(|(own, place)| part(own, place) * f64::from(place.width))
            .sum()
    };
    let planned = sum(parts, &|part, _| part.planned);
    let mut able = sum(parts, &|part, place| {
        if place.is_able { part.now } else { 0.0 }
    });
    for &index in order {
        if borne(able / planned, overprovisioning) >= 1.0 {
            return;
        }
        if places[index].is_able {
            able += (1.0 - parts[index].now) * f64::from(places[index].width);
            parts[index].now = 1.0;
        }
    }
}

fn overlap(a: (u128, u128), b: (u128, u128)) -> u128 {
    a.1.min(b.1).saturating_sub(a.0.max(b.0))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::policy::mix;

    fn places(weights: &[u32]) -> Vec<Place> {
        let hashes = (0..).map(mix);
        let place = |(hash, &width)| Place {
            hash,
            width,
            is_able: true,
        };
        hashes.zip(weights).map(place).collect()
    }

    fn subset(size: u32, index: u32, of: u32) -> Subset {
        Subset { size, index, of }
    }

    fn members(parts: &[Part]) -> BTreeSet<usize> {
        (0..parts.len()).filter(|&at| parts[at].now > 0.0).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        /// Each balancer gets the same, and spreads it over its slice by weight and part.
        #[test]
        fn every_backend_gets_the_same_for_its_weight_from_all_balancers(
            weights in prop::collection::vec(1u32..20, 1..200), size in 1u32..50, of in 1u32..40,
        ) {
            let places = places(&weights);
            let mut loads = vec![0.0; weights.len()];
            for index in 0..of {
                let parts = slice(&places, &subset(size, index, of), 1.4);
                let own: f64 = parts.iter().zip(&weights).map(|(part, &w)| part.now * f64::from(w)).sum();
                for ((load, part), &weight) in loads.iter_mut().zip(&parts).zip(&weights) {
                    *load += part.now * f64::from(weight) / own;
                }
            }
            let total: u32 = weights.iter().sum();
            for (load, &weight) in loads.iter().zip(&weights) {
                let fair = f64::from(of) * f64::from(weight) / f64::from(total);
                prop_assert!((load / fair - 1.0).abs() < 1e-9, "{load} for {fair}");
            }
        }

        /// No fewer than asked for (by weight), and no more than the evenness of the cover takes.
        #[test]
        fn the_size_is_kept(count in 1usize..500, size in 1u32..60, of in 1u32..60, index in 0u32..60) {
            let parts = slice(&places(&vec![1; count]), &subset(size, index % of, of), 1.4);
            let own: f64 = parts.iter().map(|part| part.now).sum();
            let asked = (size as usize).min(count) as f64;
            prop_assert!(own >= asked - 1e-6, "{own} of {asked}");
            let step = count as f64 / f64::from(of);
            prop_assert!(own <= asked.max(f64::from(size)) + step + 1e-6, "{own} of {asked}, step {step}");
            prop_assert!(members(&parts).len() as f64 <= own + 2.0, "one more at each end");
        }

        /// One that joins or leaves changes each slice at its two ends and where it stands itself.
        #[test]
        fn one_more_or_one_fewer_moves_three_at_most(
            count in 2usize..400, size in 1u32..40, of in 1u32..40, index in 0u32..40, gone in 0usize..400,
        ) {
            let subset = subset(size, index % of, of);
            let mut all = places(&vec![1; count]);
            let steps = |count: usize| (u64::from(size) * u64::from(of)).div_ceil(count as u64).min(u64::from(of));
            let before = members(&slice(&all, &subset, 1.4));
            let gone = gone % count;
            // Stays in the list, so that numbers do not shift.
            all[gone].width = 0;
            let after = members(&slice(&all, &subset, 1.4));
            let moved = before.symmetric_difference(&after).count();
            let grown = steps(count).abs_diff(steps(count - 1)) as usize;
            // Where the number of steps changes, that many steps are moved as well.
            let bound = 5 + grown * (count / of as usize + 1);
            prop_assert!(moved <= bound, "{moved} of {} moved, {grown} steps", before.len());
            let entered = after.difference(&before).count();
            prop_assert!(grown > 0 || entered <= 3, "{entered} came");
        }
    }

    #[test]
    fn all_balancers_agree_in_whatever_order_they_read_their_members() {
        let all = places(&[1; 50]);
        let mut reversed = all.clone();
        reversed.reverse();
        for index in 0..7 {
            let subset = subset(9, index, 7);
            let mut other = slice(&reversed, &subset, 1.4);
            other.reverse();
            assert_eq!(slice(&all, &subset, 1.4), other);
        }
    }

    #[test]
    fn a_slice_in_which_too_many_are_out_goes_on_along_the_ring_and_shrinks_again() {
        let mut all = places(&[1; 100]);
        let subset = subset(10, 3, 10);
        let plain = members(&slice(&all, &subset, 1.4));
        assert_eq!(plain.len(), 10);
        let out: Vec<usize> = plain.iter().copied().collect();
        for &at in &out[..2] {
            all[at].is_able = false;
        }
        assert_eq!(
            members(&slice(&all, &subset, 1.4)),
            plain,
            "two of ten may be"
        );
        for &at in &out {
            all[at].is_able = false;
        }
        let wide = members(&slice(&all, &subset, 1.4));
        assert_eq!(
            wide.difference(&plain).count(),
            8,
            "8 bear 10, with a factor of 1.4"
        );
        out.iter().for_each(|&at| all[at].is_able = true);
        assert_eq!(members(&slice(&all, &subset, 1.4)), plain);
        all.iter_mut().for_each(|place| place.is_able = false);
        assert_eq!(
            members(&slice(&all, &subset, 1.4)),
            plain,
            "nobody to take in"
        );
    }
}

//! The cycle of `weighted_round_robin`: each backend as often as its weight, spread evenly.
//!
//! Computed when the table is built, so that a pick is one step of a cursor. Small cycles are those
//! of nginx's smooth weighted round robin (weights 5, 1, 1 give a a b a c a a); its cost grows with
//! members × length, so large ones are laid out by the time at which each turn is due. Both are exact
//! over one cycle.

/// Longest cycle. Weights whose sum (after dividing out what they have in common) is larger are
/// scaled down to it and rounded, none below 1: a share is then off by at most one turn a cycle, or,
/// for a weight of less than a millionth of the sum, raised to that.
pub(crate) const CYCLE_MAX: u64 = 1 << 20;

/// Up to this many steps (members × length) the smooth algorithm is run itself.
const SMOOTH_STEPS_MAX: u64 = 1 << 20;

/// One cycle over `candidates`, given as (index, weight above 0).
pub(crate) fn cycle(candidates: &[(u32, u32)]) -> Vec<u32> {
    let turns = reduce(candidates);
    let length: u64 = turns.iter().map(|&(_, weight)| weight).sum();
    if length * turns.len() as u64 <= SMOOTH_STEPS_MAX {
        smooth(&turns, length)
    } else {
        spread(&turns, length)
    }
}

/// Weights as turns in a cycle: divided by what they have in common, and scaled to the cap.
fn reduce(candidates: &[(u32, u32)]) -> Vec<(u32, u64)> {
    let common = candidates
        .iter()
        .fold(0, |common, &(_, weight)| gcd(common, weight))
        .max(1);
    let total: u64 = candidates
        .iter()
        .map(|&(_, weight)| u64::from(weight / common))
        .sum();
    candidates
        .iter()
        .map(|&(index, weight)| {
            let turns = u64::from(weight / common);
            let scaled = if total > CYCLE_MAX {
                ((turns * CYCLE_MAX + total / 2) / total).max(1)
            } else {
                turns
            };
            (index, scaled)
        })
        .collect()
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// nginx's: each step, everybody earns their weight; the richest is served and pays the sum.
fn smooth(turns: &[(u32, u64)], length: u64) -> Vec<u32> {
    let mut credit = vec![0i64; turns.len()];
    let mut order = Vec::with_capacity(length as usize);
    for _ in 0..length {
        let mut richest = 0;
        for (at, &(_, weight)) in turns.iter().enumerate() {
            credit[at] += weight as i64;
            if credit[at] > credit[richest] {
                richest = at;
            }
        }
        credit[richest] -= length as i64;
        order.push(turns[richest].0);
    }
    order
}

/// Each backend's j-th of w turns is due at (j + ½) ÷ w of the cycle; turns are taken as they fall
/// due. Sorted by counting: as many buckets as turns, and then within each.
fn spread(turns: &[(u32, u64)], length: u64) -> Vec<u32> {
    let due = |weight: u64, turn: u64| {
        // In units of 2⁻²⁰ of a bucket; below 2⁴⁰.
        let scaled = u128::from(2 * turn + 1) * u128::from(length << 20) / u128::from(2 * weight);
        scaled as u64
    };
    let mut starts = vec![0u32; length as usize + 1];
    for &(_, weight) in turns {
        for turn in 0..weight {
            starts[(due(weight, turn) >> 20) as usize + 1] += 1;
        }
    }
    for bucket in 1..starts.len() {
        starts[bucket] += starts[bucket - 1];
    }
    let mut filled = starts.clone();
    let mut order = vec![(0u64, 0u32); length as usize];
    for &(index, weight) in turns {
        for turn in 0..weight {
            let at = due(weight, turn);
            let place = &mut filled[(at >> 20) as usize];
            order[*place as usize] = (at, index);
            *place += 1;
        }
    }
    for bounds in starts.windows(2) {
        order[bounds[0] as usize..bounds[1] as usize].sort_unstable();
    }
    order.into_iter().map(|(_, index)| index).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn numbered(weights: &[u32]) -> Vec<(u32, u32)> {
        (0..).zip(weights.iter().copied()).collect()
    }

    fn count(order: &[u32], members: usize) -> Vec<u64> {
        let mut counts = vec![0; members];
        for &index in order {
            counts[index as usize] += 1;
        }
        counts
    }

    #[test]
    fn five_one_one_is_a_a_b_a_c_a_a() {
        assert_eq!(cycle(&numbered(&[5, 1, 1])), [0, 0, 1, 0, 2, 0, 0]);
        assert_eq!(
            cycle(&numbered(&[50, 10, 10])),
            [0, 0, 1, 0, 2, 0, 0],
            "what is common does not lengthen it"
        );
    }

    #[test]
    fn the_longest_cycle_is_bounded_and_its_shares_are_close() {
        let weights: Vec<u32> = (0..10_000).map(|n| 1 + (n * 7_919) % 65_535).collect();
        let order = cycle(&numbered(&weights));
        assert!(order.len() as u64 <= CYCLE_MAX + 10_000, "{}", order.len());
        let total: f64 = weights.iter().map(|&weight| f64::from(weight)).sum();
        for (turns, &weight) in count(&order, weights.len()).iter().zip(&weights) {
            let exact = f64::from(weight) / total * CYCLE_MAX as f64;
            assert!(
                (*turns as f64 - exact).abs() <= 1.0,
                "{turns} turns for {exact}"
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn shares_are_exact_over_one_cycle(weights in prop::collection::vec(1u32..200, 1..40)) {
            for lay_out in [smooth, spread] {
                let turns = reduce(&numbered(&weights));
                let length: u64 = turns.iter().map(|turn| turn.1).sum();
                let order = lay_out(&turns, length);
                let expected: Vec<u64> = turns.iter().map(|turn| turn.1).collect();
                prop_assert_eq!(count(&order, weights.len()), expected);
            }
        }

        /// Never bursts: within a cycle the heaviest has no longer run than it would have if its
        /// turns were dealt out evenly between those of the rest.
        #[test]
        fn the_heaviest_is_interleaved_with_the_rest(heavy in 1u32..100, others in 1usize..20) {
            let mut weights = vec![1; others];
            weights.push(heavy);
            let order = cycle(&numbered(&weights));
            let longest = order
                .split(|&index| index as usize != others)
                .map(<[u32]>::len)
                .max()
                .unwrap_or(0);
            let even = (heavy as usize).div_ceil(others);
            prop_assert!(longest <= even, "{longest} in a row of {heavy} beside {others}");
        }

        /// In either layout, between two turns of one backend lies about its share of the cycle.
        #[test]
        fn turns_of_one_backend_are_spread(weights in prop::collection::vec(1u32..50, 2..30)) {
            let turns = reduce(&numbered(&weights));
            let length: u64 = turns.iter().map(|turn| turn.1).sum();
            for lay_out in [smooth, spread] {
                let order = lay_out(&turns, length);
                for &(index, weight) in &turns {
                    let places: Vec<usize> = (0..order.len()).filter(|&at| order[at] == index).collect();
                    let even = length as f64 / weight as f64;
                    for pair in places.windows(2) {
                        let gap = (pair[1] - pair[0]) as f64;
                        prop_assert!(gap <= 2.0 * even + turns.len() as f64, "gap {gap}, even {even}");
                    }
                }
            }
        }
    }
}

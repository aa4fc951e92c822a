//! A table for [consistent hashing](super::hashing) (Eisenbud et al., "Maglev: a fast and reliable
//! software network load balancer", NSDI 2016, §3.4).
//!
//! Each member has an order of its own over all slots of the table, and in rounds each takes the next
//! free ones of its order, as many as its weight says, until none is free. A look-up is one read; the
//! shares are exact to within a round, a hundredth for the mean weight, where a [ring](super::ring)'s
//! are off by a tenth. The price: when a member joins or leaves for good, a few slots of others change
//! hands too (less than one in a hundred: measured in a test below).
//!
//! As the ring does, the table holds all members, and one that is out is stepped over: a hash goes on
//! to slots that are drawn for it alone, so that the hashes of one that is out spread over the rest by
//! weight, and none of the others' move at all. (Filling the table anew without it, as the paper does,
//! would move some.)
//!
//! Memory: 4 bytes a slot, 256 KiB for pools of up to 655 members, 4 MiB beyond.

use super::{below, mix};

/// Sizes of a table, ascending. Primes, so that each step width passes all slots. Few, because with
/// another size nearly all hashes move: it happens where a pool outgrows the first, and nowhere else.
const SIZES: [usize; 2] = [65_537, 1_048_583];

/// Slots for each member that a table should have. The paper's; pools beyond the largest size have fewer.
const SLOTS_EACH: usize = 100;

/// A slot that nobody took yet.
const FREE: u32 = u32::MAX;

/// See the module.
pub(crate) struct Maglev {
    /// Members, as indices; none where no member has weight.
    slots: Vec<u32>,
}

/// A member while the table is filled.
struct Taker {
    index: u32,
    weight: u64,
    /// The next slot in its order.
    next: usize,
    step: usize,
    taken: u64,
}

impl Taker {
    fn new(index: u32, name: u64, weight: u64, size: usize) -> Self {
        Self {
            index,
            weight,
            next: below(mix(name ^ 0x006F_6666_7365_7400), size),
            step: 1 + below(mix(name ^ 0x0000_736B_6970_0000), size - 1),
            taken: 0,
        }
    }

    /// Takes the next free slot of its order. There is one.
    fn take(&mut self, slots: &mut [u32]) {
        loop {
            let at = self.next;
            self.next += self.step;
            if self.next >= slots.len() {
                self.next -= slots.len();
            }
            if slots[at] == FREE {
                slots[at] = self.index;
                self.taken += 1;
                return;
            }
        }
    }
}

impl Maglev {
    /// Over members as their keys' hashes and weights.
    pub(crate) fn new(names: &[u64], weights: &[u64]) -> Self {
        let mut members: Vec<(u64, u32)> = names
            .iter()
            .copied()
            .zip(0..)
            .filter(|&(_, index)| weights[index as usize] > 0)
            .collect();
        // In an order that does not depend on the configuration's.
        members.sort_unstable();
        let size = size_for(members.len());
        let takers = members
            .iter()
            .map(|&(name, index)| Taker::new(index, name, weights[index as usize], size))
            .collect();
        Self {
            slots: fill(takers, size),
        }
    }

    /// Visits the owner of the hash's slot, and then of slots drawn for this hash, `steps` in all,
    /// until one gives something.
    #[inline]
    pub(crate) fn walk<T>(
        &self,
        hash: u64,
        steps: usize,
        mut visit: impl FnMut(usize) -> Option<T>,
    ) -> Option<T> {
        (0..steps as u64).find_map(|step| {
            let place = if step == 0 {
                hash
            } else {
                mix(hash.wrapping_add(step))
            };
            let &index = self.slots.get(below(place, self.slots.len()))?;
            visit(index as usize)
        })
    }
}

fn size_for(members: usize) -> usize {
    let fitting = SIZES.into_iter().find(|&size| size >= members * SLOTS_EACH);
    fitting.unwrap_or(SIZES[SIZES.len() - 1])
}

/// In each round a member of the usual weight takes one slot or two, a heavier one more, a lighter one
/// none in most rounds, but each one in the first.
fn fill(mut takers: Vec<Taker>, size: usize) -> Vec<u32> {
    let total: u64 = takers.iter().map(|taker| taker.weight).sum();
    let Some(mean) = total.checked_div(takers.len() as u64) else {
        return Vec::new();
    };
    // What earns a slot a round. A power of two, so that it seldom changes with the members: a change
    // of it puts the taking in another order.
    let unit = 1u64 << mean.max(1).ilog2();
    let mut slots = vec![FREE; size];
    let mut free = size;
    for round in 1.. {
        for taker in &mut takers {
            let due = (round * taker.weight).div_ceil(unit);
            while taker.taken < due {
                if free == 0 {
                    return slots;
                }
                taker.take(&mut slots);
                free -= 1;
            }
        }
    }
    slots
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names(count: u64) -> Vec<u64> {
        (0..count).map(mix).collect()
    }

    fn counts(table: &Maglev, members: usize) -> Vec<usize> {
        let mut counts = vec![0; members];
        for &index in &table.slots {
            counts[index as usize] += 1;
        }
        counts
    }

    /// How many slots that were not `gone`'s have another owner in `after`, whose indices skip `gone`.
    fn moved(before: &Maglev, after: &Maglev, gone: u32) -> usize {
        let renumbered = |index: u32| index + u32::from(index >= gone);
        let pairs = before.slots.iter().zip(&after.slots);
        pairs
            .filter(|&(&old, &new)| old != gone && old != renumbered(new))
            .count()
    }

    #[test]
    fn sizes_are_primes_and_the_smallest_that_has_a_hundred_slots_each() {
        for size in SIZES {
            let divisor = (2..).take_while(|n| n * n <= size).find(|n| size % n == 0);
            assert_eq!(divisor, None, "of {size}");
        }
        assert_eq!([0, 1, 655].map(size_for), [65_537; 3]);
        assert_eq!([656, 10_000, 2_000_000].map(size_for), [1_048_583; 3]);
    }

    #[test]
    fn equal_members_have_equal_shares_to_within_two_slots() {
        for count in [1, 2, 10, 655, 1_000] {
            let table = Maglev::new(&names(count), &vec![3; count as usize]);
            let counts = counts(&table, count as usize);
            let (least, most) = (counts.iter().min(), counts.iter().max());
            assert!(
                most.unwrap() - least.unwrap() <= 2,
                "{count}: {least:?} to {most:?}"
            );
        }
    }

    #[test]
    fn without_weight_there_is_no_table() {
        assert_eq!(
            Maglev::new(&names(2), &[0, 0]).walk(7, 48, Some),
            None::<usize>
        );
        assert_eq!(
            Maglev::new(&names(2), &[0, 1]).walk(7, 48, Some),
            Some(1),
            "one of weight 0 has no slot"
        );
    }

    /// The paper's figure 12: the larger the table for its members, the fewer move.
    #[test]
    fn few_slots_of_others_change_hands_when_one_leaves_or_joins() {
        for (count, bound) in [(2, 0.0), (3, 0.001), (10, 0.005), (100, 0.01), (600, 0.01)] {
            let (names, weights) = (names(count), vec![1; count as usize]);
            let all = Maglev::new(&names, &weights);
            let gone = count as usize / 2;
            let mut rest = names.clone();
            rest.remove(gone);
            let without = Maglev::new(&rest, &weights[1..]);
            let share = moved(&all, &without, gone as u32) as f64 / all.slots.len() as f64;
            assert!(share <= bound, "{count}: {share}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn shares_follow_weights(weights in prop::collection::vec(1u64..=1_000, 1..60)) {
            let table = Maglev::new(&names(weights.len() as u64), &weights);
            let total: u64 = weights.iter().sum();
            let mean = total as f64 / weights.len() as f64;
            for (&count, &weight) in counts(&table, weights.len()).iter().zip(&weights) {
                let exact = table.slots.len() as f64 * weight as f64 / total as f64;
                // What a round gives.
                let round = 2.0 * (weight as f64 / mean) + 2.0;
                prop_assert!((count as f64 - exact).abs() <= round, "{count} for {exact}");
            }
        }

        /// Whatever the weights, and also where what earns a slot a round changes with them.
        #[test]
        fn few_slots_of_others_change_hands_when_a_weighted_one_leaves(
            weights in prop::collection::vec(1u64..=200, 2..60),
            gone: prop::sample::Index,
        ) {
            let gone = gone.index(weights.len());
            let (names, mut rest) = (names(weights.len() as u64), weights.clone());
            let all = Maglev::new(&names, &weights);
            let mut others = names.clone();
            others.remove(gone);
            rest.remove(gone);
            let moved = moved(&all, &Maglev::new(&others, &rest), gone as u32);
            prop_assert!(moved <= all.slots.len() / 100, "{moved} of {}", all.slots.len());
        }

        #[test]
        fn nobody_with_weight_is_left_out(heavy in 1u64..=65_535, others in 1usize..500) {
            let mut weights = vec![1; others];
            weights.push(heavy);
            let table = Maglev::new(&names(weights.len() as u64), &weights);
            prop_assert!(counts(&table, weights.len()).iter().all(|&count| count > 0));
        }
    }
}

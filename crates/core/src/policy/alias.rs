//! A draw in proportion to weight.
//!
//! Alias table (Walker 1974, built as in Vose 1991): a draw costs one random number and one look-up,
//! whatever the weights. Twelve bytes for each candidate.

use super::{View, below, mix};

/// Draws by weight, before the rest are uniform. A heavy backend may be drawn again and again.
const DRAWS_WEIGHTED: usize = 4;
/// Draws of one candidate in all, before it is done without.
const DRAWS: usize = 8;

/// Candidates, to be drawn by weight.
pub(crate) struct Alias {
    slots: Vec<Slot>,
}

struct Slot {
    own: u32,
    alias: u32,
    /// `own` is drawn below this, of 2³².
    threshold: u32,
}

impl Alias {
    /// Over `candidates` as (index, weight above 0).
    pub(crate) fn new(candidates: &[(u32, u32)]) -> Self {
        let total: u64 = candidates
            .iter()
            .map(|&(_, weight)| u64::from(weight))
            .sum();
        let count = candidates.len() as u64;
        // Scaled so that the mean is `total`: whole numbers, no rounding.
        let mut rest: Vec<u64> = candidates
            .iter()
            .map(|&(_, weight)| u64::from(weight) * count)
            .collect();
        let mut slots: Vec<Slot> = candidates
            .iter()
            .map(|&(index, _)| Slot {
                own: index,
                alias: index,
                threshold: u32::MAX,
            })
            .collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) =
            (0..slots.len()).partition(|&slot| rest[slot] < total);
        while let (Some(poor), Some(&rich)) = (small.pop(), large.last()) {
            let part = rest[poor] as f64 / total as f64;
            slots[poor].threshold = (part * 4_294_967_296.0) as u32;
            slots[poor].alias = slots[rich].own;
            rest[rich] -= total - rest[poor];
            if rest[rich] < total {
                large.pop();
                small.push(rich);
            }
        }
        Self { slots }
    }

    /// A candidate, whatever its state. There is one at least.
    fn draw(&self, random: u64) -> usize {
        let slot = &self.slots[below(random, self.slots.len())];
        let by_own = (random as u32) < slot.threshold;
        (if by_own { slot.own } else { slot.alias }) as usize
    }

    /// Draws a candidate that the request may get, other than `but`. `None` if a few draws found none.
    #[inline(always)]
    pub(crate) fn draw_eligible(
        &self,
        view: &View<'_>,
        random: &mut u64,
        but: Option<usize>,
    ) -> Option<usize> {
        *random = mix(*random);
        let index = self.draw(*random);
        if Some(index) != but && view.is_eligible(index) {
            return Some(index);
        }
        self.draw_again(view, random, but)
    }

    /// The draws after a first one that found nobody.
    fn draw_again(&self, view: &View<'_>, random: &mut u64, but: Option<usize>) -> Option<usize> {
        for draw in 1..DRAWS {
            *random = mix(*random);
            let index = if draw < DRAWS_WEIGHTED {
                self.draw(*random)
            } else {
                self.slots[below(*random, self.slots.len())].own as usize
            };
            if Some(index) != but && view.is_eligible(index) {
                return Some(index);
            }
        }
        self.look_for(view, *random, but)
    }

    /// All candidates from a random one on, where they are few: draws miss one of two eight times in a row
    /// every 256 times.
    fn look_for(&self, view: &View<'_>, random: u64, but: Option<usize>) -> Option<usize> {
        if self.slots.len() > DRAWS {
            return None;
        }
        let (before, from) = self.slots.split_at(below(mix(random), self.slots.len()));
        from.iter()
            .chain(before)
            .map(|slot| slot.own as usize)
            .find(|&index| Some(index) != but && view.is_eligible(index))
    }

    /// Draws two different candidates that the request may get; the second is missing if a few draws
    /// found no other.
    #[inline]
    pub(crate) fn draw_two(&self, view: &View<'_>) -> Option<(usize, Option<usize>)> {
        let mut random = view.pick.random;
        let first = self.draw_eligible(view, &mut random, None)?;
        if self.slots.len() == 1 {
            return Some((first, None));
        }
        Some((first, self.draw_eligible(view, &mut random, Some(first))))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The exact share of each candidate, read off the table.
    fn shares(table: &Alias, candidates: &[(u32, u32)]) -> Vec<f64> {
        let mut shares = vec![0.0; candidates.len()];
        let slot_share = 1.0 / table.slots.len() as f64;
        for slot in &table.slots {
            let own = f64::from(slot.threshold) / 4_294_967_295.0;
            shares[slot.own as usize] += own * slot_share;
            shares[slot.alias as usize] += (1.0 - own) * slot_share;
        }
        shares
    }

    proptest! {
        #[test]
        fn the_alias_table_holds_each_weights_share(weights in prop::collection::vec(1u32..=65_535, 1..200)) {
            let candidates: Vec<(u32, u32)> = (0..).zip(weights).collect();
            let table = Alias::new(&candidates);
            let total: f64 = candidates.iter().map(|&(_, weight)| f64::from(weight)).sum();
            for (share, &(_, weight)) in shares(&table, &candidates).iter().zip(&candidates) {
                let expected = f64::from(weight) / total;
                prop_assert!((share - expected).abs() < 1e-6, "{share} for {expected}");
            }
        }
    }
}

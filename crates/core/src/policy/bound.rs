//! A bound on load for [consistent hashing](super::hashing) (Mirrokni, Thorup, Zadimoghaddam,
//! "Consistent hashing with bounded loads", SODA 2018).
//!
//! With T requests in flight, this one included, a backend of weight w out of W may have ⌈c·T·w ÷ W⌉
//! of them. The limits add up to more than T, so that somebody always has room: the part of the weight
//! that is full is at most 1 ÷ c, and a walk over places visits c ÷ (c − 1) of them on average at the
//! worst, five with c = 1.25, however many backends there are.
//!
//! **Knowing T.** A counter for the pool, which only pools with a bound have. It is the sum of what was
//! counted of each candidate, and each change of a backend's load brings its part up to date, the way a
//! [tree](super::tree)'s leaf is: so it counts candidates alone, needs no start from an idle pool, and
//! heals whatever a race between two changes leaves. The claim itself tests the limit in the same
//! operation that takes the place, so two picks cannot both take the last.
//!
//! Where a request has tried all that have room, or those that have are full of their own limit, went out
//! just now or fail, the bound yields: no request fails for it, and no failure attracts what is too much
//! for others.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::padded::Padded;

use super::Membership;
use super::hashing::STEPS;

/// Most places that a pick visits.
const STEPS_MAX: f64 = 1_024.0;
/// A walk misses all that have room once in e to this: 10⁷.
const MISS_LN: f64 = 16.0;
/// Taken off limits, so that rounding never raises one that is a whole number. Requests.
const ROUNDING: f64 = 1e-9;

/// See the module.
pub(crate) struct LoadBound {
    /// c ÷ W.
    factor: f64,
    steps: usize,
    /// By index in the membership.
    counted: Vec<Counted>,
    /// The sum over `counted`. May be negative for a moment (two's complement).
    in_flight: Padded<AtomicU64>,
}

struct Counted {
    in_flight: AtomicU32,
    /// 0 for those that are no candidates.
    weight: u32,
}

/// How many requests a backend may have for each unit of its weight.
#[derive(Clone, Copy)]
pub(crate) struct Room(f64);

impl LoadBound {
    /// `c` is 1 or more; 1.25 is usual. Less is read as 1.
    pub(crate) fn new(c: f64, membership: &Membership, candidates: &[u32]) -> Self {
        let c = c.max(1.0);
        let backends = &membership.backends;
        let mut weights = vec![0; backends.len()];
        for &index in candidates {
            weights[index as usize] = backends[index as usize].live().weight().max(1);
        }
        let total: u64 = weights.iter().map(|&weight| u64::from(weight)).sum();
        let bound = Self {
            factor: c / total.max(1) as f64,
            steps: steps(c, backends.len(), candidates.len()),
            counted: weights
                .into_iter()
                .map(|weight| Counted {
                    in_flight: AtomicU32::new(0),
                    weight,
                })
                .collect(),
            in_flight: Padded::default(),
        };
        for index in 0..backends.len() {
            bound.refresh(membership, index);
        }
        bound
    }

    /// Places to visit before all candidates are looked at.
    pub(crate) fn steps(&self) -> usize {
        self.steps
    }

    /// What there is room for at present, with one request more than there are.
    pub(crate) fn room(&self) -> Room {
        let in_flight = self.in_flight.load(Ordering::SeqCst) as i64;
        Room(self.factor * (in_flight.max(0) + 1) as f64)
    }

    /// The backend at `index` gets no request while it has this many in flight.
    pub(crate) fn limit(&self, Room(each): Room, index: usize) -> u32 {
        let exact = each * f64::from(self.counted[index].weight);
        (exact - ROUNDING).ceil() as u32
    }

    /// The load of the backend at `index` changed. Whoever swaps looks again, so that the last swap
    /// left what is so: see the tree.
    pub(crate) fn refresh(&self, membership: &Membership, index: usize) {
        let counted = &self.counted[index];
        if counted.weight == 0 {
            return;
        }
        let live = membership.backends[index].live();
        loop {
            let before = counted.in_flight.load(Ordering::SeqCst);
            let after = live.in_flight();
            if before == after {
                return;
            }
            let swap = counted.in_flight.compare_exchange(
                before,
                after,
                Ordering::SeqCst,
                Ordering::SeqCst,
            );
            if swap.is_ok() {
                let change = i64::from(after) - i64::from(before);
                self.in_flight.fetch_add(change as u64, Ordering::SeqCst);
            }
        }
    }

    /// Where counts do not agree with the backends.
    #[cfg(test)]
    pub(crate) fn fault(&self, membership: &Membership) -> Option<(usize, usize)> {
        let mut sum = 0;
        for (index, counted) in self.counted.iter().enumerate() {
            if counted.weight > 0 {
                let so_far = counted.in_flight.load(Ordering::SeqCst);
                if so_far != membership.backends[index].in_flight() {
                    return Some((0, index));
                }
                sum += u64::from(so_far);
            }
        }
        (sum != self.in_flight.load(Ordering::SeqCst)).then_some((1, 0))
    }
}

/// So many that all are full with a chance of e^-16, and no more than looking at all would cost.
fn steps(c: f64, members: usize, candidates: usize) -> usize {
    let open = (1.0 - 1.0 / c) * candidates as f64 / members.max(1) as f64;
    let needed = (MISS_LN / open).min(STEPS_MAX) as usize;
    needed.min(4 * members).max(STEPS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_follow_from_the_bound_and_not_from_the_size() {
        assert_eq!(steps(1.25, 10_000, 10_000), 80);
        assert_eq!(steps(1.25, 10_000, 5_000), 160);
        assert_eq!(steps(2.0, 10_000, 10_000), STEPS);
        assert_eq!(steps(1.0, 10_000, 10_000), 1_024, "a limit on everything");
        assert_eq!(steps(1.0, 10, 10), STEPS);
        assert_eq!(steps(1.25, 0, 0), STEPS);
    }
}

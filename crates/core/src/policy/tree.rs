//! The least loaded of many, without looking at all of them and without a lock.
//!
//! A tournament tree in an array of atomic words. Each word holds the least cost below it and the
//! sum of weights of the backends that tie at it; a leaf is computed from its backend. A pick walks
//! down from the root, choosing among ties in proportion to those sums, so that a tie is broken
//! exactly fairly and never towards the first. A change of load walks up from the leaf.
//!
//! **Why it ends up right.** A word is brought up to date by: read the word, *then* what lies below,
//! compute; if they differ, swap and look again; if they agree, done. Consider the last swap that
//! ever changes a word. Its thread looks again, and finds agreement. A change below that it did not
//! see came later than that look; and the thread that made that change reads the word after it, so
//! it either finds agreement or swaps, which contradicts "last". So when all is quiet each word is
//! what lies below it. (Comparing values alone would not do: a word may change away and back between
//! a read and a swap. It is the second look that mends that.)
//!
//! A thread stops climbing at a word that agrees already: if another thread wrote it, that one
//! climbs on. A pick may then see a word that is a moment old. It tests the backend itself in any
//! case, and mends the leaf if it finds otherwise.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::availability::Gate;
use crate::pool::Claim;
use crate::time::Instant;

use super::least::{Measure, NEVER};
use super::{Membership, Policy, View, mix};

/// Picks that found their backend changed, before the rest is left to the scan.
const TRIES: usize = 8;
/// Backends already tried by one request that a descent can avoid; requests are not retried so often.
const TRIED_MAX: usize = 16;
/// Costs of response time are relative to when the tree was built, and run out of numbers after a
/// quarter of a year.
const LIFE: Duration = Duration::from_secs(30 * 24 * 3_600);

/// A word without anybody.
const NOBODY: u64 = (NEVER as u64) << 32;

pub(crate) struct Tree {
    measure: Measure,
    base: Instant,
    /// Number of leaves, a power of two. Word 1 is the root, below word n lie 2n and 2n + 1, and
    /// word `leaves + i` is the leaf of backend i.
    leaves: usize,
    words: Box<[AtomicU64]>,
}

impl Tree {
    pub(crate) fn new(measure: Measure, membership: &Membership, mask: Gate, now: Instant) -> Self {
        let leaves = membership.backends.len().next_power_of_two();
        let words: Box<[AtomicU64]> = (0..2 * leaves).map(|_| AtomicU64::new(NOBODY)).collect();
        let tree = Self {
            measure,
            base: now,
            leaves,
            words,
        };
        for (index, backend) in membership.backends.iter().enumerate() {
            backend.live().penalty.project(now);
            let leaf = tree.leaf(membership, mask, index);
            tree.words[leaves + index].store(leaf, Ordering::SeqCst);
        }
        for at in (1..leaves).rev() {
            tree.words[at].store(tree.below(at), Ordering::SeqCst);
        }
        tree
    }

    /// What the leaf of a backend has to be.
    fn leaf(&self, membership: &Membership, mask: Gate, index: usize) -> u64 {
        let live = membership.backends[index].live();
        if live.gate.load().has(mask) || live.is_saturated() {
            return NOBODY;
        }
        let cost = self.measure.cost(
            live,
            live.penalty.projected(),
            membership.default_latency(),
            self.base,
        );
        word(cost, live.weight())
    }

    /// What a word above the leaves has to be.
    fn below(&self, at: usize) -> u64 {
        better(self.read(2 * at), self.read(2 * at + 1))
    }

    fn read(&self, at: usize) -> u64 {
        self.words[at].load(Ordering::SeqCst)
    }

    /// Brings one word up to date; true if this thread changed it.
    fn settle(&self, at: usize, now: impl Fn() -> u64) -> bool {
        let mut changed = false;
        loop {
            let before = self.read(at);
            let after = now();
            if before == after {
                return changed;
            }
            let swap =
                self.words[at].compare_exchange(before, after, Ordering::SeqCst, Ordering::SeqCst);
            changed |= swap.is_ok();
        }
    }

    fn update(&self, membership: &Membership, mask: Gate, index: usize) {
        let mut at = self.leaves + index;
        let mut changed = self.settle(at, || self.leaf(membership, mask, index));
        while changed && at > 1 {
            at /= 2;
            changed = self.settle(at, || self.below(at));
        }
    }

    /// Walks from `at` down to a leaf; `random` decides ties.
    fn descend(&self, mut at: usize, random: u64) -> usize {
        // One number below the sum of ties stands for one of them: it is handed down, less what it
        // passes on the left.
        let sum = u64::from(ties(self.read(at)));
        let mut ticket = (u128::from(mix(random)) * u128::from(sum)) >> 64;
        while at < self.leaves {
            let (left, right) = (self.read(2 * at), self.read(2 * at + 1));
            let to_right = match cost(left).cmp(&cost(right)) {
                std::cmp::Ordering::Less => false,
                std::cmp::Ordering::Greater => true,
                std::cmp::Ordering::Equal => {
                    let passed = u128::from(ties(left));
                    let beyond = ticket >= passed;
                    if beyond {
                        ticket -= passed;
                    }
                    beyond
                }
            };
            at = 2 * at + usize::from(to_right);
        }
        at - self.leaves
    }

    /// Where to begin the descent so that it meets none of the leaves in `tried`: of the largest
    /// parts without one, that of least cost.
    fn avoid(&self, at: usize, tried: &[usize], random: u64) -> Option<(u64, usize)> {
        if !tried.iter().any(|&leaf| is_below(leaf, at)) {
            return Some((self.read(at), at));
        }
        if at >= self.leaves {
            return None;
        }
        let random = mix(random);
        let left = self.avoid(2 * at, tried, random);
        let right = self.avoid(2 * at + 1, tried, random);
        let (Some(left), Some(right)) = (left, right) else {
            return left.or(right);
        };
        let sum = u64::from(ties(left.0)) + u64::from(ties(right.0));
        let ticket = (u128::from(random) * u128::from(sum)) >> 64;
        let to_left = match cost(left.0).cmp(&cost(right.0)) {
            std::cmp::Ordering::Less => true,
            std::cmp::Ordering::Greater => false,
            std::cmp::Ordering::Equal => ticket < u128::from(ties(left.0)),
        };
        let part = if to_left { left.1 } else { right.1 };
        // The value of both together, for the comparison further up.
        Some((better(left.0, right.0), part))
    }

    fn least(&self, view: &View<'_>, random: u64) -> Option<usize> {
        let mut tried = [0; TRIED_MAX];
        let mut count = 0;
        for &id in view.pick.tried.iter().take(TRIED_MAX) {
            if let Some(index) = view.membership.index_of_id(id) {
                tried[count] = self.leaves + index;
                count += 1;
            }
        }
        let (value, part) = self.avoid(1, &tried[..count], random)?;
        (cost(value) != NEVER).then(|| self.descend(part, random))
    }
}

impl Policy for Tree {
    fn pick(&self, view: &View<'_>) -> Option<Claim> {
        let mut random = view.pick.random;
        for _ in 0..TRIES {
            random = mix(random);
            let index = self.least(view, random)?;
            let live = view.membership.backends.get(index)?.live();
            let claim = if view.is_tried(index) {
                None
            } else {
                view.claim_at(index)
            };
            if live.gate.load().has(Gate::PENALISED) {
                live.penalty.project(view.pick.now);
            }
            self.update(view.membership, view.mask, index);
            if claim.is_some() {
                return claim;
            }
        }
        None
    }

    fn keeps_load(&self) -> bool {
        true
    }

    fn refresh(&self, membership: &Membership, mask: Gate, index: usize) {
        self.update(membership, mask, index);
    }

    fn expires(&self) -> Option<Instant> {
        (self.measure == Measure::ResponseTime).then(|| self.base + LIFE)
    }
}

fn word(cost: u32, ties: u32) -> u64 {
    u64::from(cost) << 32 | u64::from(ties)
}

fn cost(word: u64) -> u32 {
    (word >> 32) as u32
}

fn ties(word: u64) -> u32 {
    word as u32
}

/// The word above two words.
fn better(left: u64, right: u64) -> u64 {
    match cost(left).cmp(&cost(right)) {
        std::cmp::Ordering::Less => left,
        std::cmp::Ordering::Greater => right,
        std::cmp::Ordering::Equal => word(cost(left), ties(left).saturating_add(ties(right))),
    }
}

/// Whether word `leaf` is word `at`, or lies below it.
fn is_below(leaf: usize, at: usize) -> bool {
    let levels = leaf.ilog2().saturating_sub(at.ilog2());
    leaf >> levels == at
}

//! The least loaded of many, without looking at all of them and without a lock.
//!
//! A tournament tree of atomic words, four to a group. Each word holds the least cost of the
//! group below it and the sum of weights of the backends that tie at it; a leaf is computed from its
//! backend. A pick walks down from the top group, choosing among ties in proportion to those sums, so
//! that a tie is broken exactly fairly and never towards the first. A change of load walks up from
//! the leaf. (Groups of 4, 8 and 16 were measured; four is where the fewer swaps of wide groups and
//! the cheaper reads of narrow ones meet.)
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
use crate::backend::live::Live;
use crate::pool::Claim;
use crate::pool::shared::Shared;
use crate::time::Instant;

use super::least::{Load, Measure, NEVER};
use super::{Membership, Policy, View, mix};

/// Picks that found their backend changed, before the rest is left to the scan.
const TRIES: usize = 8;
/// Backends already tried by one request that a descent can avoid; requests are not retried so often.
const TRIED_MAX: usize = 16;
/// Costs of response time are relative to when the tree was built, and run out of numbers after a
/// quarter of a year.
const LIFE: Duration = Duration::from_secs(30 * 24 * 3_600);

/// Words in a group.
const GROUP: usize = 4;
/// `GROUP` is 2 to this.
const GROUP_BITS: u32 = 2;

/// Most groups of the last level, at most `GROUP`.
const TOP_GROUPS: usize = 4;

/// A word without anybody.
const NOBODY: u64 = (NEVER as u64) << 32;

pub(crate) struct Tree {
    measure: Measure,
    built: Instant,
    /// What the costs of response time are relative to.
    base: f64,
    /// The leaves, then the groups above them: word i of a level is the best of group i below. The
    /// last level has a few groups; which of them is best is looked up by each pick, which costs less
    /// than keeping one more level.
    levels: Vec<Box<[Group]>>,
}

/// Within one cache line.
#[repr(align(32))]
struct Group([AtomicU64; GROUP]);

impl Group {
    fn empty() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(NOBODY)))
    }

    #[inline]
    fn read(&self) -> [u64; GROUP] {
        let mut words = [0; GROUP];
        for (word, atomic) in words.iter_mut().zip(&self.0) {
            *word = atomic.load(Ordering::SeqCst);
        }
        words
    }
}

/// The least cost of some words, and the sum of ties at it.
#[inline]
fn best(words: &[u64; GROUP]) -> u64 {
    let least = least_cost(words);
    let mut sum = 0;
    for &word in words {
        sum += share(word, least);
    }
    word(least, sum)
}

/// In pairs, because in one chain each comparison would wait for the one before.
#[inline]
fn least_cost(words: &[u64; GROUP]) -> u32 {
    let [a, b, c, d] = words.map(cost);
    a.min(b).min(c.min(d))
}

/// The ties of a word, if it is one of least cost.
#[inline]
fn share(word: u64, least: u32) -> u64 {
    if cost(word) == least { word & TIES } else { 0 }
}

impl Tree {
    /// Over the members at `indices`; of others no change must be told it.
    pub(crate) fn new(
        measure: Measure,
        membership: &Membership,
        indices: impl Iterator<Item = usize>,
        now: Instant,
    ) -> Self {
        let mut levels: Vec<Box<[Group]>> = Vec::new();
        let mut count = membership.backends.len();
        loop {
            count = count.div_ceil(GROUP).max(1);
            levels.push((0..count).map(|_| Group::empty()).collect());
            if count <= TOP_GROUPS {
                break;
            }
        }
        let tree = Self {
            measure,
            built: now,
            base: Measure::base(now),
            levels,
        };
        for index in indices {
            let sources = Sources::new(membership, index);
            sources.live.penalty.project(now);
            let leaf = tree.leaf(&sources.read());
            tree.word(0, index).store(leaf, Ordering::SeqCst);
        }
        for level in 1..tree.levels.len() {
            for (at, group) in tree.levels[level - 1].iter().enumerate() {
                tree.word(level, at)
                    .store(best(&group.read()), Ordering::SeqCst);
            }
        }
        tree
    }

    fn word(&self, level: usize, at: usize) -> &AtomicU64 {
        &self.levels[level][at / GROUP].0[at % GROUP]
    }

    /// What the leaf of a backend with these figures has to be.
    fn leaf(&self, figures: &[u64; FIGURES]) -> u64 {
        let (in_flight, max) = halves(figures[0]);
        let (gate, mask) = halves(figures[1]);
        let (weight, penalty) = halves(figures[2]);
        let gate = Gate(gate);
        if gate.has(Gate(mask)) || in_flight >= max {
            return NOBODY;
        }
        let load = Load {
            on_trial: gate.has(Gate::TRIAL),
            in_flight,
            penalty: f32::from_bits(penalty),
            weight,
            latency: f64::from_bits(figures[3]),
        };
        word(self.measure.cost(&load, self.base), u64::from(weight))
    }

    fn update(&self, membership: &Membership, index: usize) {
        let leaf = self.word(0, index);
        let sources = Sources::new(membership, index);
        if !settle(leaf, || sources.read(), |figures| self.leaf(figures)) {
            return;
        }
        let mut at = index;
        let mut below = &self.levels[0];
        for above in &self.levels[1..] {
            at /= GROUP;
            let (word, group) = (&above[at / GROUP].0[at % GROUP], &below[at]);
            if !settle(word, || group.read(), best) {
                return;
            }
            below = above;
        }
    }

    /// The best of each group of the last level.
    fn top(&self) -> [u64; GROUP] {
        let groups = self.levels[self.levels.len() - 1].iter();
        let mut words = [NOBODY; GROUP];
        for (word, group) in words.iter_mut().zip(groups) {
            *word = best(&group.read());
        }
        words
    }

    /// Walks down to the leaf of least cost, without those in `tried`; `random` decides ties.
    fn least(&self, tried: &[usize], mut random: u64) -> Option<usize> {
        if !tried.is_empty() {
            return self.least_untried(tried, random);
        }
        random = mix(random);
        let mut at = choose(&self.top(), random)?;
        for groups in self.levels.iter().rev() {
            random = mix(random);
            at = at * GROUP + choose(&groups[at].read(), random)?;
        }
        Some(at)
    }

    /// The same around the leaves in `tried`. Their own groups, at each level, are compared word by
    /// word, each word that has one of them below it by what it would be without.
    fn least_untried(&self, tried: &[usize], random: u64) -> Option<usize> {
        let above = self.levels.len();
        self.untried(above, 0, tried, random).map(|(_, leaf)| leaf)
    }

    /// The best leaf of one group, and what the word above the group would be.
    fn untried(
        &self,
        level: usize,
        group: usize,
        tried: &[usize],
        random: u64,
    ) -> Option<(u64, usize)> {
        let mut best: Option<(u64, usize)> = None;
        let mut random = random;
        for at in group * GROUP..(group + 1) * GROUP {
            random = mix(random);
            let spoilt = tried
                .iter()
                .any(|leaf| leaf >> (GROUP_BITS * level as u32) == at);
            let found = match (spoilt, level) {
                (false, _) => self.whole(level, at, random),
                (true, 0) => None,
                (true, _) => self.untried(level - 1, at, tried, random),
            };
            best = match (best, found) {
                (Some(left), Some(right)) => Some(either(left, right, random)),
                (left, right) => left.or(right),
            };
        }
        best
    }

    /// The best leaf below a word, and that word.
    fn whole(&self, level: usize, at: usize, mut random: u64) -> Option<(u64, usize)> {
        let value = match self.levels.get(level) {
            Some(_) => self.word(level, at).load(Ordering::SeqCst),
            None => self.top()[at],
        };
        let mut leaf = at;
        if cost(value) == NEVER {
            return None;
        }
        for groups in self.levels[..level].iter().rev() {
            random = mix(random);
            leaf = leaf * GROUP + choose(&groups[leaf].read(), random)?;
        }
        Some((value, leaf))
    }
}

/// How many figures a leaf is computed from.
const FIGURES: usize = 4;

/// Where the figures of a leaf stand. Read as a whole, and compared as a whole by [`settle`].
struct Sources<'a> {
    live: &'a Live,
    shared: &'a Shared,
    membership: &'a Membership,
}

impl<'a> Sources<'a> {
    #[inline]
    fn new(membership: &'a Membership, index: usize) -> Self {
        let backend = &membership.backends[index];
        Self {
            live: backend.live(),
            shared: backend.shared(),
            membership,
        }
    }

    #[inline]
    fn read(&self) -> [u64; FIGURES] {
        let live = self.live;
        let both = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        let latency = live
            .latency
            .level()
            .unwrap_or_else(|| self.membership.default_latency());
        [
            both(live.in_flight(), live.in_flight_max()),
            both(live.gate.load().0, self.shared.mask().0),
            both(live.weight(), live.penalty.projected().to_bits()),
            latency.to_bits(),
        ]
    }
}

fn halves(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

/// Brings one word up to date with what lies below it; true if this thread changed it.
fn settle<const N: usize>(
    word: &AtomicU64,
    read: impl Fn() -> [u64; N],
    best: impl Fn(&[u64; N]) -> u64,
) -> bool {
    let mut before = word.load(Ordering::SeqCst);
    let mut below = read();
    let mut changed = false;
    loop {
        let after = best(&below);
        if before == after {
            return changed;
        }
        let swap = word.compare_exchange(before, after, Ordering::SeqCst, Ordering::SeqCst);
        changed |= swap.is_ok();
        // The second look. If the word is as it was left, and all below as it was read, they agree.
        before = word.load(Ordering::SeqCst);
        let again = read();
        // Compared word by word: `==` on arrays is a call of `memcmp`.
        let differs = again
            .iter()
            .zip(&below)
            .fold(0, |bits, (a, b)| bits | (a ^ b));
        if before == after && differs == 0 {
            return changed;
        }
        below = again;
    }
}

/// Which word of a group has the least cost; of several, each in proportion to its ties.
#[inline]
fn choose(words: &[u64; GROUP], random: u64) -> Option<usize> {
    let least = least_cost(words);
    if least == NEVER {
        return None;
    }
    let shares = words.map(|word| share(word, least));
    let [a, b, c, d] = shares;
    let ties = ((a + b) + (c + d)).min(TIES);
    // A number below the sum stands for one of the ties: it falls to the first word with which the
    // sum so far exceeds it. Counted without branches, which would be guessed wrong half of the time.
    let ticket = ((u128::from(random) * u128::from(ties)) >> 64) as u64;
    let (mut sum, mut at) = (0, 0);
    for share in shares {
        sum += share;
        at += usize::from(sum <= ticket);
    }
    (at < GROUP).then_some(at)
}

/// The better of two parts; if they tie, each in proportion to its ties. Its value counts both.
fn either(left: (u64, usize), right: (u64, usize), random: u64) -> (u64, usize) {
    match cost(left.0).cmp(&cost(right.0)) {
        std::cmp::Ordering::Less => left,
        std::cmp::Ordering::Greater => right,
        std::cmp::Ordering::Equal => {
            let sum = (left.0 & TIES) + (right.0 & TIES);
            let ticket = ((u128::from(mix(random)) * u128::from(sum)) >> 64) as u64;
            let leaf = if ticket < left.0 & TIES {
                left.1
            } else {
                right.1
            };
            (word(cost(left.0), sum), leaf)
        }
    }
}

impl Policy for Tree {
    fn pick(&self, view: &View<'_>) -> Option<Claim> {
        let mut tried = [0; TRIED_MAX];
        let mut count = 0;
        for &id in view.pick.tried.iter().take(TRIED_MAX) {
            if let Some(index) = view.membership.index_of_id(id) {
                tried[count] = index;
                count += 1;
            }
        }
        let mut random = view.pick.random;
        for _ in 0..TRIES {
            random = mix(random);
            let index = self.least(&tried[..count], random)?;
            let live = view.membership.backends.get(index)?.live();
            let claim = view.claim(index);
            if live.gate.load().has(Gate::PENALISED) {
                live.penalty.project(view.pick.now);
            }
            self.update(view.membership, index);
            if claim.is_some() {
                return claim;
            }
        }
        None
    }

    fn keeps_load(&self) -> bool {
        true
    }

    fn refresh(&self, membership: &Membership, index: usize) {
        self.update(membership, index);
    }

    #[cfg(test)]
    fn fault(&self, membership: &Membership) -> Option<(usize, usize)> {
        self.first_fault(membership)
    }

    fn expires(&self) -> Option<Instant> {
        (self.measure == Measure::ResponseTime).then(|| self.built + LIFE)
    }
}

/// The part of a word that is the sum of ties.
const TIES: u64 = u32::MAX as u64;

fn word(cost: u32, ties: u64) -> u64 {
    u64::from(cost) << 32 | ties.min(TIES)
}

fn cost(word: u64) -> u32 {
    (word >> 32) as u32
}

#[cfg(test)]
impl Tree {
    /// The first word that is not what lies below it.
    fn first_fault(&self, membership: &Membership) -> Option<(usize, usize)> {
        for index in 0..membership.backends.len() {
            let leaf = self.leaf(&Sources::new(membership, index).read());
            if self.word(0, index).load(Ordering::SeqCst) != leaf {
                return Some((0, index));
            }
        }
        for level in 1..self.levels.len() {
            for (at, group) in self.levels[level - 1].iter().enumerate() {
                if self.word(level, at).load(Ordering::SeqCst) != best(&group.read()) {
                    return Some((level, at));
                }
            }
        }
        None
    }
}

//! Consistent hashing: the same hash goes to the same backend, for as long as that may be picked.
//!
//! Each hash has an order of its own over the backends, which is that of its [`Places`]: a
//! [ring](super::ring) or a [table](super::maglev). It gets the first that it may have; so the hashes
//! of one that is out spread over the rest, each stays at its second place meanwhile, and all are back
//! with the first pick after it is. Where traffic is split between tiers or zones, each hash belongs to a
//! [group](super::groups) and gets the first of that. With a [bound on load](super::bound), one that has enough is passed
//! over as if it were out.

use std::sync::Arc;

use crate::pool::Claim;

use super::bound::LoadBound;
use super::maglev::Maglev;
use super::ring::Ring;
use super::{Groups, Membership, Policy, View, mix};
use crate::availability::Gate;

/// Places visited before all candidates are looked at instead: with one in two out, a pick visits two.
pub(crate) const STEPS: usize = 48;

/// FNV-1a, finished by SplitMix64. The same for ever, on every machine: keys would move if it
/// changed. Also meant for hashing what [`crate::Pick::hash`] is made of.
pub const fn stable_hash(bytes: &[u8]) -> u64 {
    let mut hash = 0xCBF2_9CE4_8422_2325_u64;
    let mut at = 0;
    while at < bytes.len() {
        hash ^= bytes[at] as u64;
        hash = hash.wrapping_mul(0x0000_0100_0000_01B3);
        at += 1;
    }
    mix(hash)
}

/// Which backends a hash goes to. Over all members of the subset, whoever may be picked, and of their keys and
/// weights alone: every balancer has the same places, in whatever order it read its members.
pub(crate) struct Places {
    table: Table,
    /// Each member's hash.
    names: Vec<u64>,
}

enum Table {
    Ring(Ring),
    Maglev(Maglev),
}

impl Places {
    pub(crate) fn ring(membership: &Membership) -> Self {
        Self::new(membership, |names, weights| {
            Table::Ring(Ring::new(names, weights))
        })
    }

    pub(crate) fn maglev(membership: &Membership) -> Self {
        Self::new(membership, |names, weights| {
            Table::Maglev(Maglev::new(names, weights))
        })
    }

    fn new(membership: &Membership, table: impl FnOnce(&[u64], &[u64]) -> Table) -> Self {
        let backends = &membership.backends;
        let names: Vec<u64> = backends
            .iter()
            .map(|backend| stable_hash(backend.key().as_bytes()))
            .collect();
        let weights: Vec<u64> = backends
            .iter()
            .map(
                |backend| match backend.live().gate.load().has(Gate::OUTSIDE) {
                    true => 0,
                    false => u64::from(backend.weight()),
                },
            )
            .collect();
        Self {
            table: table(&names, &weights),
            names,
        }
    }

    /// Visits the members in the order of this hash, each perhaps more than once, until one gives
    /// something or `steps` have not.
    #[inline]
    pub(crate) fn walk<T>(
        &self,
        hash: u64,
        steps: usize,
        visit: impl FnMut(usize) -> Option<T>,
    ) -> Option<T> {
        match &self.table {
            Table::Ring(ring) => ring.walk(hash, steps, visit),
            Table::Maglev(maglev) => maglev.walk(hash, steps, visit),
        }
    }

    /// Where nearly all are out: of the `wanted` candidates below their `limit`, or of all if none is, the one
    /// that scores highest for this hash, in proportion to weight (rendezvous hashing: Thaler and
    /// Ravishankar 1998). Seldom, or few candidates are left, so that looking at all is cheap.
    fn highest(
        &self,
        view: &View<'_>,
        hash: u64,
        wanted: impl Fn(usize) -> bool,
        limit: impl Fn(usize) -> u32,
    ) -> Option<usize> {
        let score = |index: usize| {
            // In (0, 1].
            let uniform = ((mix(hash ^ self.names[index]) >> 11) + 1) as f64 / (1u64 << 53) as f64;
            f64::from(view.backend(index).weight()) / -uniform.ln()
        };
        view.candidates
            .iter()
            .map(|&index| index as usize)
            .filter(|&index| wanted(index) && view.is_eligible(index))
            .map(|index| {
                let is_below = view.backend(index).in_flight() < limit(index);
                (is_below, score(index), index)
            })
            .max_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)))
            .map(|(_, _, index)| index)
    }
}

/// The policy of either kind of places.
pub(crate) struct Hashing {
    places: Arc<Places>,
    bound: Option<LoadBound>,
    groups: Option<Groups>,
}

impl Hashing {
    pub(crate) fn new(
        places: Arc<Places>,
        bound: Option<LoadBound>,
        groups: Option<Groups>,
    ) -> Self {
        Self {
            places,
            bound,
            groups,
        }
    }

    fn pick_unbounded(&self, view: &View<'_>, hash: u64) -> Option<Claim> {
        self.places
            .walk(hash, STEPS, |index| view.claim(index))
            .or_else(|| view.claim(self.places.highest(view, hash, |_| true, |_| u32::MAX)?))
    }

    /// The same among those of the hash's group.
    #[cold]
    fn pick_in_group(&self, view: &View<'_>, hash: u64, groups: &Groups) -> Option<Claim> {
        let group = groups.of_hash(hash);
        let limit = |bound: &LoadBound, index| bound.limit(bound.room(), index);
        let limit = |index| {
            self.bound
                .as_ref()
                .map_or(u32::MAX, |bound| limit(bound, index))
        };
        let claim = |index: usize, limit: u32| Some((view.claim_below(index, limit)?, index));
        let (claim, index) = self
            .places
            .walk(hash, STEPS, |index| {
                let is_own = groups.has(group, index);
                is_own.then(|| claim(index, limit(index)))?
            })
            .or_else(|| {
                // Seldom: the group is small beside the others.
                let is_own = |index| groups.has(group, index);
                claim(self.places.highest(view, hash, is_own, limit)?, u32::MAX)
            })?;
        if let Some(bound) = &self.bound {
            bound.refresh(view.membership, index);
        }
        Some(claim)
    }

    /// One that fails keeps what is its own, as it would without a bound, and attracts nothing of what
    /// others have too much of: where those that do not fail are all full, the bound yields.
    fn pick_bounded(&self, view: &View<'_>, hash: u64, bound: &LoadBound) -> Option<Claim> {
        let room = bound.room();
        let (mut is_own, mut spared) = (true, false);
        let claim = |index: usize, limit: u32| Some((view.claim_below(index, limit)?, index));
        let (claim, index) = self
            .places
            .walk(hash, bound.steps(), |index| {
                if !std::mem::take(&mut is_own) && view.is_failing(index) {
                    spared = true;
                    return None;
                }
                claim(index, bound.limit(room, index))
            })
            .or_else(|| {
                self.places.walk(hash, STEPS, |index| {
                    let is_wanted = spared && !view.is_failing(index);
                    is_wanted.then(|| claim(index, u32::MAX))?
                })
            })
            .or_else(|| {
                let highest = |index| bound.limit(room, index);
                claim(
                    self.places.highest(view, hash, |_| true, highest)?,
                    u32::MAX,
                )
            })?;
        bound.refresh(view.membership, index);
        Some(claim)
    }
}

impl Policy for Hashing {
    fn pick(&self, view: &View<'_>) -> Option<Claim> {
        let hash = mix(view.pick.hash.unwrap_or(view.pick.random));
        if let Some(groups) = &self.groups
            && let Some(claim) = self.pick_in_group(view, hash, groups)
        {
            return Some(claim);
        }
        match &self.bound {
            None => self.pick_unbounded(view, hash),
            Some(bound) => self.pick_bounded(view, hash, bound),
        }
    }

    fn keeps_load(&self) -> bool {
        self.bound.is_some()
    }

    fn refresh(&self, membership: &Membership, index: usize) {
        if let Some(bound) = &self.bound {
            bound.refresh(membership, index);
        }
    }

    fn limit(&self, index: usize) -> Option<u32> {
        let bound = self.bound.as_ref()?;
        Some(bound.limit(bound.room(), index))
    }

    fn places(&self) -> Option<&Arc<Places>> {
        Some(&self.places)
    }

    #[cfg(test)]
    fn fault(&self, membership: &Membership) -> Option<(usize, usize)> {
        self.bound.as_ref()?.fault(membership)
    }
}

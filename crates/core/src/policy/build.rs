//! Builds the tables.

use std::sync::Arc;

use crate::time::Instant;

use super::bound::LoadBound;
use super::hashing::{Hashing, Places};
use super::least::{LeastOfAll, Measure};
use super::peak_ewma::PeakEwma;
use super::power_of_two::PowerOfTwo;
use super::prequal::{Prequal, Probes};
use super::random::Random;
use super::round_robin::Turns;
use super::split::Split;
use super::tree::Tree;
use super::weighted::cycle;
use super::{Groups, Membership, Picker, Policy, PolicyKind, below, mix};

/// Up to this many members, looking at all of them beats keeping a tree (measured: `benches/pick.rs`).
pub(crate) const SCAN_MAX: usize = 16;

/// What a table is built from.
pub(crate) struct Blueprint<'a> {
    pub(crate) kind: PolicyKind,
    pub(crate) membership: &'a Membership,
    pub(crate) candidates: &'a [u32],
    /// The picker in force so far.
    pub(crate) previous: &'a Picker,
    /// [`PoolConfig::hash_load_bound`](crate::PoolConfig::hash_load_bound).
    pub(crate) hash_load_bound: Option<f64>,
    /// How traffic is split between groups of members, if it is.
    pub(crate) groups: Option<Groups>,
    /// Whether the table is one group's.
    pub(crate) is_part: bool,
    /// Whether `previous` has the same kind, bound, members and weights, so that a table which does not
    /// depend on the candidates may be kept.
    pub(crate) same: bool,
    pub(crate) seed: u64,
    pub(crate) now: Instant,
    /// What a policy that goes by backends' own words has heard; set by [`build`] itself.
    pub(crate) probes: Option<Arc<Probes>>,
}

/// Builds the table of `plan.kind`.
pub(crate) fn build(mut plan: Blueprint<'_>) -> Arc<dyn Policy> {
    if plan.kind == PolicyKind::Prequal {
        plan.probes = Some(probes(&plan));
    }
    match plan.kind {
        PolicyKind::ConsistentHash => hashing(plan, Places::ring),
        PolicyKind::Maglev => hashing(plan, Places::maglev),
        _ => match plan.groups.take() {
            None => one(&plan),
            Some(groups) => Arc::new(Split::new(groups, plan.candidates, |candidates| {
                one(&Blueprint {
                    candidates,
                    groups: None,
                    probes: plan.probes.clone(),
                    is_part: true,
                    // Where turns begin anew, they do not begin with the same one again and again.
                    seed: mix(plan.seed ^ plan.now.as_nanos()),
                    ..plan
                })
            })),
        },
    }
}

/// A table over the candidates, of a kind that does not go by a hash.
fn one(plan: &Blueprint<'_>) -> Arc<dyn Policy> {
    match plan.kind {
        PolicyKind::Random => Arc::new(Random::new(&weighted_candidates(plan))),
        PolicyKind::RoundRobin => Arc::new(in_turn(plan)),
        PolicyKind::WeightedRoundRobin => Arc::new(in_weighted_turn(plan)),
        PolicyKind::LeastConnections => least(plan, Measure::Connections),
        PolicyKind::LeastResponseTime => least(plan, Measure::ResponseTime),
        PolicyKind::PeakEwma => Arc::new(PeakEwma::new(&weighted_candidates(plan))),
        PolicyKind::Prequal => {
            let probes = plan.probes.clone().unwrap_or_default();
            Arc::new(Prequal::new(&weighted_candidates(plan), probes))
        }
        PolicyKind::PowerOfTwo | PolicyKind::ConsistentHash | PolicyKind::Maglev => {
            Arc::new(PowerOfTwo::new(&weighted_candidates(plan)))
        }
    }
}

/// Whom picks asked about, and what is hot, go on being known while backends stay where they are. One for all groups:
/// they are asked as one pool.
fn probes(plan: &Blueprint<'_>) -> Arc<Probes> {
    let before = plan.previous;
    let probes = before
        .policy
        .probes()
        .filter(|_| before.membership.is_of_same(plan.membership));
    match probes {
        Some(probes) if std::ptr::eq(plan.membership, &raw const *before.membership) => {
            Arc::clone(probes)
        }
        // Other objects, of which picks are not to be noticed.
        Some(probes) => Arc::new(probes.copy()),
        None => Arc::default(),
    }
}

/// Places depend on the members alone, a bound on the candidates too.
fn hashing(plan: Blueprint<'_>, places: fn(&Membership) -> Places) -> Arc<dyn Policy> {
    let bound = plan
        .hash_load_bound
        .map(|c| LoadBound::new(c, plan.membership, plan.candidates));
    let places = match plan.previous.policy.places().filter(|_| plan.same) {
        Some(same) => Arc::clone(same),
        None => Arc::new(places(plan.membership)),
    };
    Arc::new(Hashing::new(places, bound, plan.groups))
}

fn least(plan: &Blueprint<'_>, measure: Measure) -> Arc<dyn Policy> {
    if plan.same && !plan.is_part && !plan.previous.is_split {
        return Arc::clone(&plan.previous.policy);
    }
    let members = plan.membership.backends.len();
    if members <= SCAN_MAX {
        return Arc::new(LeastOfAll { measure });
    }
    let tree = match plan.is_part {
        false => Tree::new(measure, plan.membership, 0..members, plan.now),
        true => {
            let own = plan.candidates.iter().map(|&index| index as usize);
            Tree::new(measure, plan.membership, own, plan.now)
        }
    };
    Arc::new(tree)
}

fn weighted_candidates(plan: &Blueprint<'_>) -> Vec<(u32, u32)> {
    let weight = |index: u32| {
        plan.membership.backends[index as usize]
            .live()
            .weight()
            .max(1)
    };
    plan.candidates
        .iter()
        .map(|&index| (index, weight(index)))
        .collect()
}

/// The candidates in configured order, from the successor of the last one served; where a subset holds
/// parts of some, each as often as that says.
fn in_turn(plan: &Blueprint<'_>) -> Turns {
    let factor = |index: u32| plan.membership.backends[index as usize].live().factor();
    let factors: Vec<(u32, u32)> = plan
        .candidates
        .iter()
        .map(|&index| (index, factor(index)))
        .collect();
    if factors.iter().any(|&(_, factor)| factor != factors[0].1) {
        return in_cycle(plan, &factors);
    }
    let order = plan.candidates.to_vec();
    let start = match resume_at(plan) {
        Some(index) => successor(&order, index),
        None => below(plan.seed, order.len().max(1)),
    };
    Turns::new(order, start)
}

fn in_weighted_turn(plan: &Blueprint<'_>) -> Turns {
    in_cycle(plan, &weighted_candidates(plan))
}

/// A smooth cycle, from where the last one served has its turn in the new one.
fn in_cycle(plan: &Blueprint<'_>, weights: &[(u32, u32)]) -> Turns {
    let order = cycle(weights);
    let length = order.len().max(1);
    let Some(progress) = plan.previous.policy.progress() else {
        return Turns::new(order, below(plan.seed, length));
    };
    let phase = (progress.phase * length as f64) as usize % length;
    let last = plan.previous.membership.backends[progress.last as usize].id();
    let last = plan.membership.index_of_id(last).map(|index| index as u32);
    let turn = last.and_then(|last| {
        (0..length)
            .map(|step| (phase + step) % length)
            .find(|&at| order.get(at) == Some(&last))
    });
    let start = match turn {
        Some(turn) => turn + 1,
        // Equal weights are plain turns; otherwise the place in the cycle is what there is to keep.
        None if order.len() == plan.candidates.len() => {
            resume_at(plan).map_or(phase, |index| successor(&order, index))
        }
        None => phase,
    };
    Turns::new(order, start % length)
}

/// Where the first of `order` (ascending) at or after `index` stands; the first of all if none is.
fn successor(order: &[u32], index: u32) -> usize {
    order.partition_point(|&candidate| candidate < index) % order.len().max(1)
}

/// The index whose turn it is, in the new membership, if somebody was served before.
fn resume_at(plan: &Blueprint<'_>) -> Option<u32> {
    let progress = plan.previous.policy.progress()?;
    let before = &plan.previous.membership.backends;
    let last = progress.last as usize;
    if let Some(index) = plan.membership.index_of_id(before[last].id()) {
        return Some(index as u32 + 1);
    }
    // It left: the next of its old successors that stayed.
    before[last..]
        .iter()
        .chain(&before[..last])
        .find_map(|backend| plan.membership.index_of_id(backend.id()))
        .map(|index| index as u32)
}

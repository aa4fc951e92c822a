//! Builds the tables.

use std::sync::Arc;

use crate::time::Instant;

use super::round_robin::Turns;
use super::{Membership, Picker, Policy, PolicyKind, below, mix};

/// What a table is built from.
pub(crate) struct Blueprint<'a> {
    pub(crate) kind: PolicyKind,
    pub(crate) membership: &'a Membership,
    pub(crate) candidates: &'a [u32],
    /// The picker in force so far.
    pub(crate) previous: &'a Picker,
    /// Whether `previous` has the same kind, members and weights, so that a table which does not
    /// depend on the candidates may be kept.
    pub(crate) same: bool,
    pub(crate) seed: u64,
    pub(crate) now: Instant,
}

/// Builds the table of `plan.kind`.
pub(crate) fn build(plan: &Blueprint<'_>) -> Arc<dyn Policy> {
    let _ = (plan.same, plan.now);
    Arc::new(in_turn(plan))
}

/// The candidates in configured order, from the successor of the last one served.
fn in_turn(plan: &Blueprint<'_>) -> Turns {
    let order = plan.candidates.to_vec();
    let start = match resume_at(plan) {
        Some(index) => order.partition_point(|&candidate| candidate < index) % order.len().max(1),
        None => below(mix(plan.seed), order.len().max(1)),
    };
    Turns::new(order, start)
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

//! The policies that ship.

use mizan_core::PolicyKind;

/// All policies of the core, in the order of reports. A policy that is added to the core without a
/// place here does not compile, so none is left out of the comparison.
pub fn policies() -> Vec<PolicyKind> {
    std::iter::successors(Some(PolicyKind::RoundRobin), |&policy| after(policy)).collect()
}

fn after(policy: PolicyKind) -> Option<PolicyKind> {
    match policy {
        PolicyKind::RoundRobin => Some(PolicyKind::WeightedRoundRobin),
        PolicyKind::WeightedRoundRobin => Some(PolicyKind::LeastConnections),
        PolicyKind::LeastConnections => Some(PolicyKind::LeastResponseTime),
        PolicyKind::LeastResponseTime => Some(PolicyKind::PowerOfTwo),
        PolicyKind::PowerOfTwo => Some(PolicyKind::ConsistentHash),
        PolicyKind::ConsistentHash => None,
    }
}

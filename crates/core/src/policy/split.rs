//! A policy for each group of members, where traffic is split between groups (see [`crate::spread`]).
//!
//! The group of a request is drawn in proportion to the groups' shares, and the policy picks within it. So
//! shares are kept whatever the policy goes by: one table with lighter weights would not do, since a policy
//! that goes by load or latency asks the heaviest first while all are idle.

use std::sync::Arc;

use crate::pool::Claim;
use crate::time::Instant;

use super::prequal::Probes;
use super::{Groups, LoadReport, LoadSource, Membership, Policy, View, mix};

/// Makes the draw of a group independent of what is drawn within it.
const DRAW: u64 = 0x6772_6F75_7073_0000;

/// See the module.
pub(crate) struct Split {
    groups: Groups,
    parts: Vec<Part>,
}

/// A group with traffic.
struct Part {
    number: u16,
    candidates: Vec<u32>,
    policy: Arc<dyn Policy>,
}

impl Split {
    /// Over `candidates`, with the policy that `build` makes of a group's own.
    pub(crate) fn new(
        groups: Groups,
        candidates: &[u32],
        build: impl Fn(&[u32]) -> Arc<dyn Policy>,
    ) -> Self {
        let part = |number: u16| {
            let of_group = |&&index: &&u32| groups.has(number, index as usize);
            let candidates: Vec<u32> = candidates.iter().filter(of_group).copied().collect();
            Part {
                number,
                policy: build(&candidates),
                candidates,
            }
        };
        Self {
            parts: groups.numbers().map(part).collect(),
            groups,
        }
    }
}

impl Policy for Split {
    fn pick(&self, view: &View<'_>) -> Option<Claim> {
        let drawn = self.groups.of_hash(mix(view.pick.random ^ DRAW));
        let from = |part: &Part| {
            let view = View {
                candidates: &part.candidates,
                ..*view
            };
            part.policy.pick(&view)
        };
        let own = self.parts.iter().find(|part| part.number == drawn);
        let others = self.parts.iter().filter(|part| part.number != drawn);
        own.into_iter().chain(others).find_map(from)
    }

    fn keeps_load(&self) -> bool {
        self.parts.iter().any(|part| part.policy.keeps_load())
    }

    fn refresh(&self, membership: &Membership, index: usize) {
        for part in &self.parts {
            if self.groups.has(part.number, index) {
                part.policy.refresh(membership, index);
            }
        }
    }

    fn probes(&self) -> Option<&Arc<Probes>> {
        self.parts.first()?.policy.probes()
    }

    fn hear(
        &self,
        now: Instant,
        (membership, index): (&Membership, usize),
        report: LoadReport,
        source: LoadSource,
    ) {
        let is_its = |part: &&Part| self.groups.has(part.number, index);
        if let Some(part) = self.parts.iter().find(is_its) {
            part.policy.hear(now, (membership, index), report, source);
        }
    }

    fn expires(&self) -> Option<Instant> {
        let parts = self.parts.iter();
        parts.filter_map(|part| part.policy.expires()).min()
    }
}

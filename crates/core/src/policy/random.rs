//! At random, in proportion to weight.
//!
//! Knows nothing of load, so a failure attracts nothing and a stale figure misleads nobody; but with
//! as many requests as backends the busiest has about ln n ÷ ln ln n of them, where
//! [two choices](super::power_of_two) have log₂ ln n (Mitzenmacher 2001).

use crate::pool::Claim;

use super::alias::Alias;
use super::{Policy, View};

/// See the module.
pub(crate) struct Random {
    candidates: Alias,
}

impl Random {
    /// Over `candidates` as (index, weight above 0).
    pub(crate) fn new(candidates: &[(u32, u32)]) -> Self {
        Self {
            candidates: Alias::new(candidates),
        }
    }
}

impl Policy for Random {
    fn pick(&self, view: &View<'_>) -> Option<Claim> {
        let mut random = view.pick.random;
        let drawn = self.candidates.draw_eligible(view, &mut random, None)?;
        view.claim_at(drawn)
    }
}

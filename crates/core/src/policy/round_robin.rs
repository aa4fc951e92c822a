//! In turn.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::padded::Padded;
use crate::pool::Claim;

use super::{Policy, Progress, View};

/// Backends stepped over before the pick is left to the scan.
const STEPS: usize = 32;

/// One shared cursor over a list. The list is the candidates in configured order for `round_robin`,
/// or a whole smooth cycle for `weighted_round_robin`.
pub(crate) struct Turns {
    order: Vec<u32>,
    cursor: Padded<AtomicU64>,
}

impl Turns {
    /// `order` from `start` on.
    pub(crate) fn new(order: Vec<u32>, start: usize) -> Self {
        Self {
            order,
            cursor: Padded(AtomicU64::new(start as u64)),
        }
    }
}

impl Policy for Turns {
    fn pick(&self, view: &View<'_>) -> Option<Claim> {
        let length = self.order.len() as u64;
        for _ in 0..STEPS.min(self.order.len()) {
            let turn = self.cursor.fetch_add(1, Ordering::Relaxed) % length;
            let claim = view.claim(self.order[turn as usize] as usize);
            if claim.is_some() {
                return claim;
            }
        }
        None
    }

    fn progress(&self) -> Option<Progress> {
        let length = self.order.len() as u64;
        let cursor = self.cursor.load(Ordering::Relaxed);
        if length == 0 || cursor == 0 {
            return None;
        }
        let last = (cursor - 1) % length;
        Some(Progress {
            last: self.order[last as usize],
            phase: last as f64 / length as f64,
        })
    }
}

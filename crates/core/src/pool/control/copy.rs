//! A copy of a pool's control, for picks that nobody shall notice.

use std::collections::BinaryHeap;
use std::sync::Arc;

use crate::policy::{Membership, Picker};
use crate::time::Instant;

use super::super::adapt::Looks;
use super::super::entry::Entry;
use super::super::shared::Shared;
use super::super::status::PoolStatus;
use super::Control;

/// A copy that has all that is needed of a pool, and no table yet: to make that takes time, in which nobody else has
/// to be held up.
pub(in crate::pool) struct Draft {
    control: Control,
    /// What was usual when the table in force was built, which is what that goes by.
    default_latency: f64,
}

impl Control {
    /// The same members in the same state, with live state of their own: what is picked from them is not counted here.
    pub(in crate::pool) fn copy(&self) -> Draft {
        let shared = Arc::new(Shared::new(Picker::empty()));
        // A policy that goes in turn reads off it whose turn it is.
        shared.picker.store(self.shared.picker.load_full());
        shared.set_due(self.shared.due());
        shared.set_mask(self.shared.mask());
        let entries: Vec<Entry> = self
            .entries
            .iter()
            .map(|entry| {
                let mut entry = entry.clone();
                entry.backend = Arc::new(entry.backend.copy(Arc::clone(&shared)));
                entry
            })
            .collect();
        let backends = entries.iter().map(|entry| Arc::clone(&entry.backend));
        let control = Self {
            membership: Arc::new(Membership::new(backends.collect())),
            entries,
            shared,
            config: self.config.clone(),
            // For what is told of members by name, which nobody tells a copy.
            by_key: std::collections::BTreeMap::new(),
            timers: BinaryHeap::new(),
            panic: self.panic.clone(),
            spread: self.spread.clone(),
            events: Vec::new(),
            departed: std::collections::BTreeMap::new(),
            penalised: Vec::new(),
            next_fade: None,
            looks: Looks::default(),
            built: None,
            seed: self.seed,
        };
        Draft {
            control,
            default_latency: self.membership.default_latency(),
        }
    }
}

impl Draft {
    /// What the copied pool looked like at `now`.
    pub(in crate::pool) fn status(&self, now: Instant) -> PoolStatus {
        self.control.status(now)
    }

    /// Builds its table, by what builds the one in force and from where that stands.
    pub(in crate::pool) fn settle(self, now: Instant) -> Control {
        let mut copy = self.control;
        copy.settle(now);
        copy.membership.set_default_latency(self.default_latency);
        copy.shared.picker.load().refresh_all();
        copy
    }
}

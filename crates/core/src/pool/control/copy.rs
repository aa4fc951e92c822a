//! A copy of a pool's control, for picks that nobody shall notice.

use std::collections::BinaryHeap;
use std::sync::Arc;

use crate::policy::{Membership, Picker};
use crate::time::Instant;

use super::super::adapt::Looks;
use super::super::entry::Entry;
use super::super::shared::Shared;
use super::Control;

impl Control {
    /// The same members in the same state, with live state and a table of their own: what is picked from
    /// them is not counted here. The table is built by what builds the one in force, and goes on from where that stands.
    pub(in crate::pool) fn copy(&self, now: Instant) -> Self {
        let shared = Arc::new(Shared::new(Picker::empty()));
        // A policy that goes in turn reads off it whose turn it is.
        shared.picker.store(self.shared.picker.load_full());
        shared.set_due(self.shared.due());
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
        let mut copy = Self {
            membership: Arc::new(Membership::new(backends.collect())),
            entries,
            shared,
            config: self.config.clone(),
            by_key: self.by_key.clone(),
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
        copy.settle(now);
        // What was usual when the table in force was built, which is what that goes by.
        copy.membership
            .set_default_latency(self.membership.default_latency());
        copy.shared.picker.load().refresh_all();
        copy
    }
}

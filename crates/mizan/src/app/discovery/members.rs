//! What is on the board becomes members of pools.

use super::Discovery;
use crate::app::drive::log_events;
use crate::config;
use crate::snapshot::{Origin, Pool, Snapshot};
use mizan_core::backend::Member;
use mizan_core::time::Instant;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The pools in force whose members are learned while they run.
#[derive(Default)]
pub(in crate::app) struct Discovered {
    generation: u64,
    pools: Vec<Learning>,
    /// Which of them, by what they learn from.
    of: BTreeMap<Origin, Vec<usize>>,
}

struct Learning {
    pool: Arc<Pool>,
    /// What its core was told last.
    members: Vec<Member>,
    origins: BTreeSet<Origin>,
}

impl Discovered {
    /// Tells pools what was learned since the last call.
    pub(in crate::app) fn tick(&mut self, now: Instant, snapshot: &Snapshot, from: &Discovery) {
        let mut stale: BTreeSet<usize> = BTreeSet::new();
        let news = from.board().take_news();
        if snapshot.generation != self.generation {
            self.begin(snapshot);
            stale.extend(0..self.pools.len());
        }
        let of_news = news.iter().filter_map(|origin| self.of.get(origin));
        stale.extend(of_news.flatten());
        let mut asks_anew = snapshot.generation != self.generation;
        self.generation = snapshot.generation;
        for index in stale {
            asks_anew |= self.pools[index].learn(now, from);
        }
        if asks_anew {
            self.of.clear();
            for (index, learning) in self.pools.iter().enumerate() {
                for origin in &learning.origins {
                    self.of.entry(origin.clone()).or_default().push(index);
                }
            }
            from.want(self.of.keys().cloned().collect());
        }
    }

    fn begin(&mut self, snapshot: &Snapshot) {
        let learns = |pool: &&Arc<Pool>| pool.is_discovered();
        let pools = snapshot.pools.values().filter(learns);
        self.pools = pools
            .map(|pool| Learning {
                pool: Arc::clone(pool),
                members: pool.members.clone(),
                origins: BTreeSet::new(),
            })
            .collect();
    }
}

impl Learning {
    /// Whether it learns from other places than before.
    fn learn(&mut self, now: Instant, from: &Discovery) -> bool {
        let (pool, board) = (&self.pool, from.board());
        let origins = config::origins(&pool.configured, board);
        let states = origins.iter().map(|origin| board.state(origin));
        pool.discovery.tell(states.collect());
        // What is new is waited for, so that nobody goes before those are known who come instead.
        if origins.iter().all(|origin| board.has(origin)) {
            let found = config::members(&pool.configured, &pool.core.backends(), board);
            if found.members != self.members {
                self.members.clone_from(&found.members);
                let events = pool.core.update(now, pool.config.clone(), found.members);
                log_events(&pool.name, events);
            }
        }
        let are_other = origins != self.origins;
        self.origins = origins;
        are_other
    }
}

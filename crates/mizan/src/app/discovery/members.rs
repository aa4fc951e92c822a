//! What is on the board becomes members of pools.

use super::board::{Found, Heard};
use super::{Board, Discovery};
use crate::app::drive::log_events;
use crate::app::shared_table::SharedTable;
use crate::clock;
use crate::config;
use crate::control::instances::{Following, Judged, Listed, Roster};
use crate::snapshot::{Configured, Origin, Pool, Snapshot};
use mizan_core::availability::Availability;
use mizan_core::backend::Member;
use mizan_core::health::Health;
use mizan_core::time::Instant;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Between two looks at instances whose lease has ended, and at what people are told.
const LOOK: Duration = Duration::from_millis(200);
/// How long a start waits for a store to say which instances there are.
const FIRST_WAIT: Duration = Duration::from_secs(5);

/// The pools in force whose members are learned while they run.
#[derive(Default)]
pub(in crate::app) struct Discovered {
    generation: u64,
    pools: Vec<Learning>,
    /// Which of them, by what they learn from.
    of: BTreeMap<Origin, Vec<usize>>,
    instances: Option<Instances>,
    looked: Option<Instant>,
}

struct Learning {
    pool: Arc<Pool>,
    /// What its core was told last.
    members: Vec<Member>,
    origins: BTreeSet<Origin>,
}

/// Those that say of themselves in the store where they are.
struct Instances {
    following: Following,
    roster: Roster,
    trouble: String,
}

impl Discovered {
    /// Waits until it is known which instances there are, if there is a pool of them and the store is at hand.
    pub(in crate::app) async fn first(
        &mut self,
        snapshot: &Snapshot,
        shared: Option<&SharedTable>,
    ) {
        let of_instances = |pool: &Arc<Pool>| {
            let mut listed = pool.configured.iter().filter_map(Configured::origin);
            listed.any(|origin| matches!(origin, Origin::Instances(_)))
        };
        if let Some(shared) = shared
            && snapshot.pools.values().any(of_instances)
        {
            let instances = self.instances.insert(Instances::of(shared));
            // What is not known then is told when it is.
            let _ = tokio::time::timeout(FIRST_WAIT, instances.following.first()).await;
        }
    }

    /// Tells pools what was learned since the last call.
    pub(in crate::app) fn tick(
        &mut self,
        now: Instant,
        snapshot: &Snapshot,
        from: &Discovery,
        shared: Option<&SharedTable>,
    ) {
        let is_new = snapshot.generation != self.generation;
        if is_new {
            self.begin(snapshot, from.board());
        }
        let is_due = |at: Instant| now.saturating_since(at) >= LOOK;
        let looks = is_new || self.looked.is_none_or(is_due);
        if looks {
            self.looked = Some(now);
        }
        self.hear_instances(now, looks, from.board(), shared);
        let news = from.board().take_news();
        let mut stale: BTreeSet<usize> = BTreeSet::new();
        if is_new {
            stale.extend(0..self.pools.len());
        }
        let of_news = news.iter().filter_map(|origin| self.of.get(origin));
        stale.extend(of_news.flatten());
        let mut asks_anew = is_new;
        for index in stale {
            asks_anew |= self.pools[index].learn(now, from.board());
        }
        if asks_anew {
            self.index();
            from.want(self.of.keys().cloned().collect());
        }
        if looks {
            for learning in &self.pools {
                learning.tell(from.board());
            }
        }
    }

    fn begin(&mut self, snapshot: &Snapshot, board: &Board) {
        self.generation = snapshot.generation;
        let learns = |pool: &&Arc<Pool>| pool.is_discovered();
        let pools = snapshot.pools.values().filter(learns);
        self.pools = pools
            .map(|pool| Learning {
                pool: Arc::clone(pool),
                members: pool.members.clone(),
                origins: config::origins(&pool.configured, board),
            })
            .collect();
        self.index();
    }

    fn index(&mut self) {
        self.of.clear();
        for (index, learning) in self.pools.iter().enumerate() {
            for origin in &learning.origins {
                self.of.entry(origin.clone()).or_default().push(index);
            }
        }
    }

    /// Puts on the board what instances there are.
    fn hear_instances(
        &mut self,
        now: Instant,
        looks: bool,
        board: &Board,
        shared: Option<&SharedTable>,
    ) {
        let wanted: Vec<(&Arc<str>, &Vec<usize>)> = self
            .of
            .iter()
            .filter_map(|(origin, pools)| match origin {
                Origin::Instances(name) => Some((name, pools)),
                _ => None,
            })
            .collect();
        let (false, Some(shared)) = (wanted.is_empty(), shared) else {
            return;
        };
        let instances = self.instances.get_or_insert_with(|| Instances::of(shared));
        let mut changed = BTreeSet::new();
        if let Some(seen) = instances.following.news() {
            instances.trouble = seen.trouble;
            if seen.is_known {
                let prefix = instances.following.prefix_length();
                instances.roster.observe(now, &seen.entries, prefix);
            }
            changed.extend(wanted.iter().map(|(name, _)| Arc::clone(name)));
        }
        if looks {
            let unsettled: BTreeSet<Arc<str>> = instances.roster.unsettled().cloned().collect();
            for (name, pools) in &wanted {
                let pools = pools.iter().map(|index| &*self.pools[*index].pool);
                if unsettled.contains(*name) && settle(&mut instances.roster, now, name, pools) {
                    changed.insert(Arc::clone(name));
                }
            }
        }
        for (name, _) in wanted {
            let origin = Origin::Instances(Arc::clone(name));
            if changed.contains(name) || !board.has(&origin) {
                instances.put(&origin, name, board);
            }
        }
    }
}

/// Lets those go whose lease has ended and who do not serve; whether there were any. Who serves in one of the pools stays in
/// all.
fn settle<'p>(
    roster: &mut Roster,
    now: Instant,
    name: &str,
    pools: impl Iterator<Item = &'p Pool>,
) -> bool {
    let pools: Vec<_> = pools
        .map(|pool| (pool.health.is_some(), pool.core.status(now)))
        .collect();
    roster.settle(now, name, |key| {
        let (mut is_there, mut passes, mut refuses) = (false, None, true);
        for (has_probes, status) in &pools {
            for backend in status.backends.iter().filter(|it| *it.key == *key) {
                is_there = true;
                refuses &= backend.refused;
                let is_asked = backend.availability != Availability::Outside;
                match backend.health {
                    Health::Up if *has_probes && is_asked => passes = Some(true),
                    Health::Down if *has_probes => passes = passes.or(Some(false)),
                    _ => {}
                }
            }
        }
        is_there.then_some(match passes {
            Some(true) => Judged::Passes,
            Some(false) => Judged::Fails,
            None => Judged::Unprobed { refuses },
        })
    })
}

impl Instances {
    fn of(shared: &SharedTable) -> Self {
        Self {
            following: Following::start(Arc::clone(&shared.store), &shared.layout),
            roster: Roster::default(),
            trouble: String::new(),
        }
    }

    fn put(&self, origin: &Origin, name: &str, board: &Board) {
        let Listed {
            backends,
            kept,
            problem,
        } = self.roster.listed(name);
        let before = board.heard(origin);
        let (had_failed, failures, at) = before.map_or((false, 0, Duration::ZERO), |it| {
            (it.has_failed, it.failures, it.at)
        });
        let has_failed = !self.trouble.is_empty();
        let error = match has_failed {
            true => self.trouble.clone(),
            false => problem,
        };
        board.put(
            origin,
            Heard {
                found: Some(Found::List(backends.into())),
                at: if has_failed { at } else { clock::wall() },
                failures: failures + u64::from(has_failed && !had_failed),
                has_failed,
                error,
                kept,
                until: clock::now(),
            },
        );
    }
}

impl Learning {
    /// Whether it learns from other places than before.
    fn learn(&mut self, now: Instant, board: &Board) -> bool {
        let pool = &self.pool;
        let origins = config::origins(&pool.configured, board);
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
        self.tell(board);
        are_other
    }

    /// People are told what is known.
    fn tell(&self, board: &Board) {
        let states = self.origins.iter().map(|origin| board.state(origin));
        self.pool.discovery.tell(states.collect());
    }
}

//! Instances that say of themselves where they are, under a lease in the store.
//!
//! A lease that is lost says little of who held it: a leader of etcd that is deposed revokes leases that are kept alive
//! (etcd issues 12528, 15247), and an instance that cannot reach the store serves all the same. So nobody leaves because of a
//! lease alone:
//!
//! ```text
//!            key gone                     its probe fails; or, without
//! present ───────────▶ lease has ended ── probes, it refuses or a minute has passed ──▶ gone
//!    ▲                       │
//!    └───── key is back ─────┘      key names another address: gone at once, it says so itself
//! ```
//!
//! A store that is away says nothing: what was known stays. When it is another store, or an older one, its keys are judged no
//! otherwise, so that a loss of all of them is no more than many losses.

use super::Layout;
use crate::clock;
use crate::config;
use crate::snapshot::Configured;
use mizan_core::backend::Address;
use mizan_core::time::Instant;
use mizan_store::Store;
use mizan_store::follower::{Entries, Follower, Notice, Options, Standing, Told};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How long an instance that is not probed stays when its lease has ended.
pub const UNPROBED_STAY: Duration = Duration::from_secs(60);
/// The trouble of a store at first.
const NOT_YET: &str = "the store was not heard yet";
/// Most instances of a pool.
const INSTANCES_MAX: usize = 10_000;

/// What is seen of the store.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The keys of all instances, with the prefix before them.
    pub entries: Entries,
    /// Whether the store was heard at all.
    pub is_known: bool,
    /// Why it is not heard now; empty if it is.
    pub trouble: String,
}

/// Follows the instances' keys until it is dropped.
#[derive(Debug)]
pub struct Following {
    seen: watch::Receiver<Seen>,
    task: JoinHandle<()>,
    prefix: usize,
}

impl Drop for Following {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Following {
    /// Follows those of `layout` in `store`, in the runtime that it is called in.
    pub fn start(store: Arc<dyn Store>, layout: &Layout) -> Self {
        let (tell, seen) = watch::channel(Seen {
            entries: Entries::default(),
            is_known: false,
            trouble: NOT_YET.to_owned(),
        });
        let told = move |told| match told {
            Told::View(view) => tell.send_modify(|seen| {
                let is_known = view.standing != Standing::Unknown;
                seen.is_known |= is_known;
                seen.entries = view.entries;
                if view.standing == Standing::Live {
                    seen.trouble.clear();
                }
            }),
            // That of the table says the same in the log.
            Told::Notice(Notice::Lost { error, .. }) => {
                tell.send_modify(|seen| seen.trouble = error.to_string());
            }
            Told::Notice(notice) => tracing::debug!(?notice, "instances"),
        };
        let prefix = layout.instances();
        let length = prefix.len();
        let follower = Follower::new(store, prefix, Options::new(clock::random), told);
        Self {
            seen,
            task: tokio::spawn(async move { follower.run().await }),
            prefix: length,
        }
    }

    /// What is seen now, if it is something else than when this was last asked.
    pub fn news(&mut self) -> Option<Seen> {
        let has_changed = self.seen.has_changed().unwrap_or(false);
        has_changed.then(|| self.seen.borrow_and_update().clone())
    }

    /// Waits until the store was heard, or is known to be away.
    pub async fn first(&mut self) {
        let is_settled = |seen: &Seen| seen.is_known || seen.trouble != NOT_YET;
        // The other end is dropped with the task alone, which ends with this.
        let _ = self.seen.wait_for(is_settled).await;
        self.seen.mark_changed();
    }

    /// How long the prefix is that stands before each key.
    pub fn prefix_length(&self) -> usize {
        self.prefix
    }
}

/// The instances of all pools.
#[derive(Debug, Default)]
pub struct Roster {
    pools: BTreeMap<Arc<str>, Pool>,
}

#[derive(Debug, Default)]
struct Pool {
    /// By the key of the member that it is: its address.
    instances: BTreeMap<Arc<str>, Instance>,
    /// What is wrong with keys; such an instance stays as it was.
    problems: Vec<String>,
}

#[derive(Debug)]
struct Instance {
    backend: Configured,
    ids: BTreeSet<String>,
    /// When its key was missed, if it was.
    lost: Option<Instant>,
}

/// What a pool knows of its instances.
#[derive(Clone, Debug, Default)]
pub struct Listed {
    /// They, sorted by their addresses.
    pub backends: Vec<Configured>,
    /// Those whose lease has ended.
    pub kept: Vec<String>,
    /// What is wrong with keys; empty if nothing is.
    pub problem: String,
}

impl Roster {
    /// These keys are in the store now, each with `prefix` bytes before its pool and its name.
    pub fn observe(&mut self, now: Instant, entries: &Entries, prefix: usize) {
        let mut said: BTreeMap<&str, Vec<(&str, &[u8])>> = BTreeMap::new();
        for entry in entries.values() {
            let key = entry.key.get(prefix..).unwrap_or_default();
            // A key of another shape is nobody's.
            let name = std::str::from_utf8(key)
                .ok()
                .and_then(|it| it.split_once('/'));
            if let Some((pool, id)) = name.filter(|(_, id)| !id.is_empty()) {
                said.entry(pool).or_default().push((id, &entry.value));
            }
        }
        for pool in said
            .keys()
            .filter(|pool| !self.pools.contains_key(**pool))
            .copied()
            .collect::<Vec<_>>()
        {
            self.pools.insert(Arc::from(pool), Pool::default());
        }
        for (name, pool) in &mut self.pools {
            let of_pool = said.get(&**name);
            pool.observe(now, name, of_pool.map_or(&[], Vec::as_slice));
        }
    }

    /// Looks at those of `pool` whose lease has ended, and lets go who is to go; whether there were any. `judge` says what is
    /// known of a member; `None`: there is no such member.
    pub fn settle(
        &mut self,
        now: Instant,
        pool: &str,
        judge: impl Fn(&str) -> Option<Judged>,
    ) -> bool {
        let Some(pool) = self.pools.get_mut(pool) else {
            return false;
        };
        let before = pool.instances.len();
        pool.instances.retain(|key, instance| {
            let Some(lost) = instance.lost else {
                return true;
            };
            match judge(key) {
                // It is outside of the networks that backends may be in, or was never taken in.
                None | Some(Judged::Fails) => false,
                Some(Judged::Passes) => true,
                Some(Judged::Unprobed { refuses }) => {
                    let is_over = now.saturating_since(lost) >= UNPROBED_STAY;
                    !is_over && !refuses
                }
            }
        });
        pool.instances.len() != before
    }

    /// Pools that have instances whose lease has ended.
    pub fn unsettled(&self) -> impl Iterator<Item = &Arc<str>> {
        let is_unsettled = |pool: &Pool| pool.instances.values().any(|it| it.lost.is_some());
        let pools = self.pools.iter();
        pools
            .filter(move |(_, pool)| is_unsettled(pool))
            .map(|(name, _)| name)
    }

    /// What `pool` has.
    pub fn listed(&self, pool: &str) -> Listed {
        let Some(pool) = self.pools.get(pool) else {
            return Listed::default();
        };
        let instances = pool.instances.values();
        Listed {
            backends: instances.map(|it| it.backend.clone()).collect(),
            kept: pool
                .instances
                .iter()
                .filter(|(_, instance)| instance.lost.is_some())
                .map(|(key, _)| key.to_string())
                .collect(),
            problem: pool.problems.join("; "),
        }
    }
}

/// What is known of a member whose lease has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judged {
    /// Its probes pass.
    Passes,
    /// Its probes fail.
    Fails,
    /// It is not probed: the pool has no health check, or does not send to it.
    Unprobed {
        /// Whether it refuses connections.
        refuses: bool,
    },
}

impl Pool {
    fn observe(&mut self, now: Instant, name: &str, said: &[(&str, &[u8])]) {
        self.problems.clear();
        let mut present: BTreeMap<Arc<str>, Instance> = BTreeMap::new();
        let mut moved: BTreeSet<&str> = BTreeSet::new();
        let mut stuck: BTreeSet<&str> = BTreeSet::new();
        for (id, value) in said {
            match read(&format!("{name}/{id}"), value) {
                Ok((key, backend)) => {
                    moved.insert(id);
                    let instance = present.entry(key).or_insert_with(|| Instance {
                        backend,
                        ids: BTreeSet::new(),
                        lost: None,
                    });
                    instance.ids.insert((*id).to_owned());
                }
                Err(problem) => {
                    stuck.insert(id);
                    self.problems.push(problem);
                }
            }
        }
        if present.len() > INSTANCES_MAX {
            self.problems.push(format!(
                "{} instances are more than the {INSTANCES_MAX} that a pool may have",
                present.len()
            ));
            present = present.into_iter().take(INSTANCES_MAX).collect();
        }
        for (key, mut instance) in std::mem::take(&mut self.instances) {
            if present.contains_key(&key) {
                continue;
            }
            // Who says that it is elsewhere is not here any more.
            instance.ids.retain(|id| !moved.contains(id.as_str()));
            if instance.ids.is_empty() {
                continue;
            }
            // Whose word cannot be read stays as it was.
            let is_stuck = instance.ids.iter().any(|id| stuck.contains(id.as_str()));
            instance.lost = match is_stuck {
                true => None,
                false => instance.lost.or(Some(now)),
            };
            present.insert(key, instance);
        }
        self.instances = present;
    }
}

/// The member that an instance says that it is, and its key.
fn read(name: &str, value: &[u8]) -> Result<(Arc<str>, Configured), String> {
    let backend = config::instance(name, value)?;
    match &backend {
        Configured::Fixed(member) if matches!(member.address, Address::Ip(_)) => {
            Ok((Arc::clone(&member.key), backend))
        }
        Configured::Fixed(_) | Configured::Named { .. } | Configured::Listed { .. } => Err(
            format!("{name}: an instance gives its own IP address and port, as \"10.0.0.1:8080\""),
        ),
    }
}

#[cfg(test)]
mod tests;

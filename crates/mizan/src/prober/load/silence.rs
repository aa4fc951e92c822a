//! Who serves and has never said how much it has to do, though the pool's policy goes by that. Told once in words,
//! because nothing else shows it: two choices decide instead, and no request fails.

use crate::orca::LATENCY_MS_MAX;
use crate::snapshot::{Pool, Snapshot};
use mizan_core::pool::{LoadReport, PolicyKind};
use mizan_core::time::Instant;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Between two looks. Who is silent at two in a row has had time to answer.
const LOOK: Duration = Duration::from_secs(3);

/// What the last question of a backend got in place of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lack {
    /// A status that is none of success.
    Status(u16),
    /// No field of a report, or none of requests in flight in it.
    Report,
    /// One that cannot be read, or claims what cannot be.
    Sense,
    /// No answer in time.
    Answer,
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(f, "is answered with status {status}"),
            Self::Report => f.write_str("is answered without a load report that has `rif`"),
            Self::Sense => write!(
                f,
                "is answered with a load report that cannot be read or cannot be true (`rif` is from 0 to {}, \
                 `latency_ms` from 0 to {LATENCY_MS_MAX})",
                LoadReport::IN_FLIGHT_MAX
            ),
            Self::Answer => f.write_str("is not answered in time"),
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Silence {
    looked_at: Option<Instant>,
    /// By pool.
    pools: HashMap<Arc<str>, Watched>,
}

#[derive(Debug)]
struct Watched {
    path: Option<String>,
    was_silent: bool,
    is_told: bool,
}

impl Silence {
    /// What is to be warned of now, with the pool it is about; `lacks` by `Backend::id`. Forgets those of backends that
    /// are gone.
    pub(super) fn look(
        &mut self,
        now: Instant,
        snapshot: &Snapshot,
        lacks: &mut HashMap<u64, Lack>,
    ) -> Vec<(Arc<str>, String)> {
        let is_due = self.looked_at.is_none_or(|at| now - at >= LOOK);
        if !is_due {
            return Vec::new();
        }
        self.looked_at = Some(now);
        let listens = |pool: &&Arc<Pool>| pool.config.policy == PolicyKind::Prequal;
        let pools: Vec<&Arc<Pool>> = snapshot.pools.values().filter(listens).collect();
        self.pools
            .retain(|name, _| pools.iter().any(|pool| pool.name == *name));
        let members = pools.iter().flat_map(|pool| pool.core.backends());
        let members: HashSet<u64> = members.map(|backend| backend.id()).collect();
        lacks.retain(|id, _| members.contains(id));
        let told = |pool: &&Arc<Pool>| Some((Arc::clone(&pool.name), self.of(pool, now, lacks)?));
        pools.iter().filter_map(told).collect()
    }

    fn of(&mut self, pool: &Pool, now: Instant, lacks: &HashMap<u64, Lack>) -> Option<String> {
        let path = pool.load_probes.as_ref().map(|probes| probes.path.clone());
        let new = || Watched {
            path: path.clone(),
            was_silent: false,
            is_told: false,
        };
        let watched = self
            .pools
            .entry(Arc::clone(&pool.name))
            .and_modify(|watched| {
                if watched.path != path {
                    *watched = new();
                }
            })
            .or_insert_with(new);
        if watched.is_told {
            return None;
        }
        let backends = pool.core.status(now).backends;
        let serve = backends.iter().filter(|one| one.latency.is_some());
        let silent: Vec<_> = serve.clone().filter(|one| one.told.is_none()).collect();
        let was_silent = std::mem::replace(&mut watched.was_silent, !silent.is_empty());
        let one = silent.first().filter(|_| was_silent)?;
        watched.is_told = true;
        let count = format!("{} of {}", silent.len(), serve.count());
        let begin = format!(
            "{count} backends that serve have never said how much they have to do, so two choices decide about them"
        );
        let wanted =
            "`endpoint-load-metrics: TEXT named_metrics.rif=3,named_metrics.latency_ms=12.5`";
        Some(match path {
            Some(path) => {
                let got = lacks.get(&one.id).copied().unwrap_or(Lack::Answer);
                format!(
                    "{begin}: GET {path} of {} {got}; let it answer 200 with a field such as {wanted}, or set \
                     `prequal.path` to where it does",
                    one.key
                )
            }
            None => format!(
                "{begin}: answers of {} have no load report with `rif`; add a field such as {wanted} to them, or set \
                 `prequal.path` to where backends can be asked",
                one.key
            ),
        })
    }
}

//! What a pick would do, and why.
//!
//! Nothing here decides: a pick is explained by making it, on a copy of the pool. The copy has the same
//! members in the same state, so that it picks as the pool would, and what is picked from it nobody
//! notices: no place is taken, no turn is used up, no trial begins.
//!
//! For policies that go by a hash it also tells who would have got the request if all were well. That is
//! found by the same means: by picks from a pool of the same members that nothing has happened to. Whoever
//! is found there before the one that is picked here was passed over.

use std::sync::{Arc, Mutex};

use crate::availability::Availability;
use crate::backend::Member;
use crate::policy::PolicyKind;
use crate::retry::RetryBudget;
use crate::spread::Place;

use super::shared::work;
use super::{Backend, BackendStatus, Control, NoPick, Pick, Pool, PoolConfig, PoolStatus};

/// Most backends that are listed as passed over.
const PASSED_OVER_MAX: usize = 32;

/// What a pick would do. See [`Pool::explain`].
#[derive(Clone, Debug, PartialEq)]
pub struct Explained {
    /// The pool as the pick found it.
    pub status: PoolStatus,
    /// The key of the backend that would be picked, or why none would.
    pub picked: Result<Arc<str>, NoPick>,
    /// Whether that one gets the request whatever the policy says, because it is due one that shows how it is.
    pub due: bool,
    /// Whom a policy that draws two compares, in the order of the draw: one if there is no other.
    pub drawn: Vec<Arc<str>>,
    /// For policies that go by a hash: who stands before the picked one in this hash's own order, the owner
    /// first, and why the request does not go there. At most 32.
    pub passed_over: Vec<PassedOver>,
}

/// A backend that a hash would go to, but for what holds now.
#[derive(Clone, Debug, PartialEq)]
pub struct PassedOver {
    /// Its key.
    pub key: Arc<str>,
    /// Why.
    pub why: Why,
}

/// Why a backend was passed over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Why {
    /// It may not be picked; its [`status`](super::BackendStatus) says why.
    Out,
    /// It has as many requests in flight as it may.
    Full {
        /// Requests in flight.
        in_flight: u32,
        /// The most that it may have.
        max: u32,
    },
    /// It has more than its share of what is in flight ([`PoolConfig::hash_load_bound`]).
    OverBound {
        /// Requests in flight.
        in_flight: u32,
        /// The most that the bound allows at present.
        limit: u32,
    },
    /// It failed of late, and gets nothing of what others have too much of.
    Failing {
        /// The penalty for that, in requests in flight.
        penalty: f32,
    },
    /// This request tried it already.
    Tried,
    /// Another one is due a request that shows how it is.
    OtherIsDue,
}

impl Pool {
    /// What [`pick`](Self::pick) would do with `pick`, made on a copy: equal arguments give the backend
    /// that the next pick gets, and nothing changes but that fresh marks are taken note of, as `tick` does.
    /// Copies the whole pool and builds its table anew, the latter without holding up the pool: not for the hot path,
    /// nor for a thread that others wait for.
    pub fn explain(&self, pick: &Pick<'_>) -> Explained {
        let now = pick.now;
        let draft = {
            let mut control = self.control();
            if self.shared.work() & work::STALE != 0 {
                control.advance(now);
            }
            control.copy()
        };
        let status = draft.status(now);
        let copy = draft.settle(now);
        let config = copy.config.clone();
        let copy = Self::of_copy(copy, pick);
        let due = copy.shared.due();
        let mask = copy.shared.mask();
        let before = copy.shared.picker.load_full();
        let key = |index: usize| Arc::clone(before.membership.backends[index].key());
        let drawn = match before.drawn(mask, pick) {
            Some((first, second)) => [Some(first), second]
                .into_iter()
                .flatten()
                .map(key)
                .collect(),
            None => Vec::new(),
        };
        let picked = copy.pick(pick).map(|claim| Arc::clone(claim.backend()));
        let due = picked
            .as_ref()
            .is_ok_and(|backend| due == Some(backend.id()));
        let picked = picked.map(|backend| Arc::clone(backend.key()));
        let passed_over = match config.policy {
            PolicyKind::ConsistentHash | PolicyKind::Maglev => {
                let why = |key: &str| copy.why(key, pick, due);
                let picked = picked.as_ref().ok();
                let asked = asked(&status, &config, picked);
                let backends = before.membership.backends.iter().zip(asked);
                let backends: Vec<Arc<Backend>> = backends
                    .filter(|(_, asked)| *asked)
                    .map(|(backend, _)| Arc::clone(backend))
                    .collect();
                preferred(&config, &backends, pick, picked)
                    .into_iter()
                    .map(|key| PassedOver {
                        why: why(&key),
                        key,
                    })
                    .collect()
            }
            _ => Vec::new(),
        };
        Explained {
            status,
            picked,
            due,
            drawn: if due { Vec::new() } else { drawn },
            passed_over,
        }
    }

    fn of_copy(control: Control, pick: &Pick<'_>) -> Self {
        Self {
            shared: Arc::clone(&control.shared),
            retry_budget: RetryBudget::new(pick.now, control.config.retry_budget),
            control: Mutex::new(control),
        }
    }

    /// Why a pick passes over the member `key`. The place that the pick has taken is given back by now.
    fn why(&self, key: &str, pick: &Pick<'_>, due: bool) -> Why {
        let picker = self.shared.picker.load();
        let backends = &picker.membership.backends;
        let Some(index) = backends.iter().position(|backend| &**backend.key() == key) else {
            return Why::Out;
        };
        let live = backends[index].live();
        let in_flight = live.in_flight();
        let penalty = live.penalty.at(pick.now);
        let limit = picker.policy.limit(index);
        match limit {
            _ if due => Why::OtherIsDue,
            _ if pick.tried.contains(&backends[index].id()) => Why::Tried,
            _ if live.gate.load().has(self.shared.mask()) => Why::Out,
            _ if live.is_saturated() => Why::Full {
                in_flight,
                max: live.in_flight_max(),
            },
            Some(limit) if in_flight >= limit => Why::OverBound { in_flight, limit },
            _ => Why::Failing { penalty },
        }
    }
}

/// Who is asked at present, and stands in the tier and zone of `picked`: a hash has its order within those.
fn asked(status: &PoolStatus, config: &PoolConfig, picked: Option<&Arc<str>>) -> Vec<bool> {
    let of_key = |key: &Arc<str>| status.backends.iter().find(|one| one.key == *key);
    let place = picked.and_then(of_key).map(|one| &one.place);
    let is_near = |one: &BackendStatus| {
        place.is_none_or(|place| {
            let by_zone = config.spread.zone.is_some();
            one.place.tier == place.tier && (!by_zone || one.place.zone == place.zone)
        })
    };
    let is_asked = |one: &BackendStatus| {
        let kept_back = [Availability::Standby, Availability::Outside];
        !kept_back.contains(&one.availability) && is_near(one)
    };
    status.backends.iter().map(is_asked).collect()
}

/// Who stands before `picked` in the order of this hash: picks from a pool of the same members that nothing has
/// happened to, each without those that were picked before.
fn preferred(
    config: &PoolConfig,
    backends: &[Arc<Backend>],
    pick: &Pick<'_>,
    picked: Option<&Arc<str>>,
) -> Vec<Arc<str>> {
    let members = backends.iter().map(|backend| Member {
        key: Arc::clone(backend.key()),
        address: backend.address().clone(),
        weight: backend.weight(),
        version: Arc::clone(backend.version()),
        in_flight_max: None,
        place: Place::default(),
    });
    let config = PoolConfig {
        policy: config.policy,
        ..PoolConfig::default()
    };
    let well = Pool::new(pick.now, config, members.collect(), 0);
    let (mut tried, mut found) = (Vec::new(), Vec::new());
    while found.len() < PASSED_OVER_MAX.min(backends.len()) {
        let Ok(claim) = well.pick(&Pick {
            tried: &tried,
            ..*pick
        }) else {
            break;
        };
        let (id, key) = (claim.backend().id(), Arc::clone(claim.backend().key()));
        if Some(&key) == picked || tried.contains(&id) {
            break;
        }
        tried.push(id);
        found.push(key);
    }
    found
}

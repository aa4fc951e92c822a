//! A new pool is warm before anything is sent to it: what names it waits until a backend of it has passed a probe.
//!
//! The pool itself comes into force at once, so that it is probed. A route or a chain that names it stays as it was until then, with
//! the pools that it named; one that was not there before is not there yet. A pool without a health check has nothing to wait for,
//! and neither has a start: what serves nothing yet can only gain.

use super::InForce;
use crate::config::tree::pool_name;
use crate::snapshot::{Pool, Snapshot};
use mizan_core::health::Health;
use mizan_core::time::Instant;
use mizan_routing::table::{Held, Rejected};
use mizan_routing::{Document, Name, Object};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(super) type Objects = BTreeMap<Object, Arc<Held>>;

/// Takes back from `objects` what names a pool that is cold: it stands there as `last` has it, if it does. Gives the cold pools,
/// and what waits for them.
pub(super) fn hold_back(
    objects: &mut Objects,
    (previous, last): (&Snapshot, &InForce),
    now: Instant,
) -> (BTreeSet<Object>, Vec<Rejected>) {
    let cold: BTreeSet<Object> = objects
        .iter()
        .filter(|(object, held)| match &held.document {
            Document::Pool(fields) => {
                let is_probed = fields.get("health").is_some_and(|it| !it.is_null());
                let is_new = last.held(object).is_none();
                is_probed
                    && (is_new || last.cold.contains(object) && !is_warm(object, previous, now))
            }
            _ => false,
        })
        .map(|(object, _)| object.clone())
        .collect();
    if cold.is_empty() {
        return (cold, Vec::new());
    }
    let named = Named {
        previous,
        cold: &cold,
    };
    let mut waiting = Vec::new();
    // Chains sort before routes: those that are not there yet are known when routes are looked at.
    let mut missing = BTreeSet::new();
    let mut back = BTreeSet::new();
    for (object, held) in objects.iter() {
        if last.held(object).is_some_and(|last| last.json == held.json) {
            continue;
        }
        let Some(reason) = named.why_to_wait(object, &held.document, &missing) else {
            continue;
        };
        let is_kept = last.held(object).is_some();
        if !is_kept {
            missing.insert(object.clone());
        }
        back.insert(object.clone());
        waiting.push(Rejected {
            key: object.to_string(),
            reason,
            hint: None,
            is_kept,
        });
    }
    for object in &back {
        match last.held(object) {
            Some(held) => objects.insert(object.clone(), Arc::clone(held)),
            None => objects.remove(object),
        };
    }
    restore(objects, &back, last, &named);
    (cold, waiting)
}

/// Whether a pool of `snapshot` has a backend that passed its last probes. A pool that is not there, or has no probes, is not
/// waited for.
pub(super) fn is_warm(pool: &Object, snapshot: &Snapshot, now: Instant) -> bool {
    let Object::Pool { region, pool } = pool else {
        return true;
    };
    let name = pool_name(&snapshot.settings.region, region, pool);
    let has_passed = |pool: &Arc<Pool>| {
        let backends = pool.core.status(now).backends;
        backends.iter().any(|backend| backend.health == Health::Up)
    };
    let pool = snapshot.pools.get(&*name).filter(|it| it.health.is_some());
    pool.is_none_or(has_passed)
}

/// Who names which pool, on a balancer that has `previous` in force.
struct Named<'a> {
    previous: &'a Snapshot,
    cold: &'a BTreeSet<Object>,
}

impl Named<'_> {
    /// Why the object has to wait: it names a cold pool, or a chain that is `missing` for naming one.
    fn why_to_wait(
        &self,
        object: &Object,
        document: &Document,
        missing: &BTreeSet<Object>,
    ) -> Option<String> {
        let own = &self.previous.settings.region;
        match (object, document) {
            (Object::Chain { region, .. }, Document::Chain(chain)) if self.counts(region) => {
                let mut links = chain.links.iter().map(|link| link.object(region));
                let cold = links.find(|pool| self.cold.contains(pool))?;
                Some(new_pool(own, &cold))
            }
            (Object::Route { .. }, Document::Route(fields)) => {
                let pools: Vec<&str> = pools(fields).collect();
                let mut cold = self.cold.iter();
                let cold = cold.find(|pool| pools.iter().any(|name| self.is_called(pool, name)));
                let by_chain = || {
                    let name = fields.get("chain")?.as_str()?;
                    let chain = missing.iter().find(|it| self.is_called(it, name));
                    chain.map(|_| format!("its chain `{name}` is new, and waits for a new pool"))
                };
                cold.map(|cold| new_pool(own, cold)).or_else(by_chain)
            }
            _ => None,
        }
    }

    /// Whether requests here may be of this region.
    fn counts(&self, region: &Name) -> bool {
        let regions = &self.previous.regions;
        *region.as_str() == *self.previous.settings.region
            || regions.header().is_some()
            || regions.names().iter().any(|it| **it == *region.as_str())
    }

    /// Whether a route that says `name` means this pool or chain, for requests of some region.
    fn is_called(&self, object: &Object, name: &str) -> bool {
        let (Object::Pool { region, pool: own } | Object::Chain { region, chain: own }) = object
        else {
            return false;
        };
        pool_name(&self.previous.settings.region, region, own) == name
            || own.as_str() == name && self.counts(region)
    }
}

/// Puts back what the objects that were taken back need and that is gone from the table by now: chains, pools, and the backends of
/// pools that have none any more.
fn restore(objects: &mut Objects, back: &BTreeSet<Object>, last: &InForce, named: &Named<'_>) {
    let routes = back
        .iter()
        .filter_map(|object| match &last.held(object)?.document {
            Document::Route(fields) => Some(fields),
            _ => None,
        });
    let names: BTreeSet<&str> = routes
        .flat_map(|fields| {
            let fallback = fields.get("fallback").and_then(Value::as_array);
            let fallback = fallback.into_iter().flatten().filter_map(Value::as_str);
            let chain = fields.get("chain").and_then(Value::as_str);
            pools(fields).chain(fallback).chain(chain)
        })
        .collect();
    let is_named = |object: &Object| names.iter().any(|name| named.is_called(object, name));
    let mut needed: BTreeSet<Object> = BTreeSet::new();
    for (object, held) in last.iter() {
        match (object, &held.document) {
            (Object::Chain { region, .. }, Document::Chain(chain))
                if back.contains(object) || is_named(object) && !objects.contains_key(object) =>
            {
                objects.insert(object.clone(), Arc::clone(held));
                needed.extend(chain.links.iter().map(|link| link.object(region)));
            }
            (Object::Pool { .. }, _) if is_named(object) => {
                needed.insert(object.clone());
            }
            _ => {}
        }
    }
    let with_backends: BTreeSet<Object> = objects.keys().filter_map(pool_of).collect();
    needed.retain(|pool| !objects.contains_key(pool) || !with_backends.contains(pool));
    for (object, held) in last.iter() {
        let is_needed =
            needed.contains(object) || pool_of(object).is_some_and(|it| needed.contains(&it));
        if is_needed && !objects.contains_key(object) {
            objects.insert(object.clone(), Arc::clone(held));
        }
    }
}

/// The pools that a route sends requests to, other than where those fail.
fn pools(route: &Map<String, Value>) -> impl Iterator<Item = &str> {
    let split = route.get("split").and_then(Value::as_array);
    let parts = split
        .into_iter()
        .flatten()
        .filter_map(|part| part.get("pool"));
    route
        .get("pool")
        .into_iter()
        .chain(parts)
        .filter_map(Value::as_str)
}

/// A backend's pool.
fn pool_of(object: &Object) -> Option<Object> {
    match object {
        Object::Backend { region, pool, .. } => Some(Object::Pool {
            region: region.clone(),
            pool: pool.clone(),
        }),
        _ => None,
    }
}

fn new_pool(own: &str, pool: &Object) -> String {
    let name = match pool {
        Object::Pool { region, pool } => pool_name(own, region, pool),
        other => other.to_string(),
    };
    format!("its pool `{name}` is new, and no backend of it has passed a probe yet")
}

//! Routes that an edit would leave with nowhere to go.
//!
//! A route may name what is not there yet, or only in some regions: then its requests are answered 503 there. So that is no
//! fault of a table. To take away what a route has been going by is one, unless it is meant.

use mizan_routing::{Document, Object, Table};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

use super::Rejected;

/// Routes of `after` that name a pool or a chain which `before` had and `after` has not.
pub(super) fn lost(before: &Table, after: &Table) -> Vec<Rejected> {
    let gone: Vec<&Object> = before
        .objects()
        .map(|(object, _)| object)
        .filter(|object| matches!(object, Object::Pool { .. } | Object::Chain { .. }))
        .filter(|object| after.held(object).is_none())
        .collect();
    if gone.is_empty() {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (object, held) in after.objects() {
        let Document::Route(fields) = &held.document else {
            continue;
        };
        let (chains, pools) = named(fields);
        let is_named = |gone: &&&Object| match gone {
            Object::Chain { chain, .. } => chains.contains(chain.as_str()),
            Object::Pool { pool, .. } => pools.contains(pool.as_str()),
            _ => false,
        };
        found.extend(gone.iter().filter(is_named).map(|gone| Rejected {
            key: object.to_string(),
            reason: format!("it names `{gone}`, which would be gone"),
            hint: Some(
                "change the route in the same edit, or say that it is meant (`--force`)".to_owned(),
            ),
            is_kept: false,
        }));
    }
    found
}

/// Chains and pools that a route names.
fn named(route: &Map<String, Value>) -> (BTreeSet<&str>, BTreeSet<&str>) {
    let text = |field: &str| route.get(field).and_then(Value::as_str);
    let list = |field: &str| route.get(field).and_then(Value::as_array);
    let parts = list("split").into_iter().flatten();
    let split = parts.filter_map(|part| part.get("pool")?.as_str());
    let fallback = list("fallback").into_iter().flatten();
    let fallback = fallback.filter_map(Value::as_str);
    let pools = text("pool").into_iter().chain(split).chain(fallback);
    (text("chain").into_iter().collect(), pools.collect())
}

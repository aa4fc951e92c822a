//! Rules of tiers, zones and subsets: `[node]`, and what pools and backends say of them.

use crate::config::report::Cx;
use crate::config::schema::{Backend, BackendEntry, File, Node, Pool};
use crate::config::text::BackendAddress;
use crate::config::tree::At;
use std::collections::BTreeSet;

/// Most zones that are named where none is one's own.
const ZONES_SHOWN: usize = 5;

pub(super) fn check(cx: &mut Cx<'_>, file: &File) {
    node(cx, file);
    let pools = At::ROOT.key("pool");
    for (name, pool) in &file.pool {
        let at = pools.key(name);
        tiers(cx, pool, &at);
        zones(cx, pool, &file.node, &at);
        subset(cx, pool, &file.node, &at);
        let is_used = has_tiers(pool)
            || pool.subset_size.is_some()
            || (file.node.zone.is_some() && zones_of(pool).next().is_some());
        let factor = at.key("overprovisioning");
        if cx.is_set(&factor) && !is_used && !cx.is_partial(&at) {
            let message =
                "`overprovisioning` has no effect: this pool has one tier, no zones and no subset";
            let help = "`backup = true` makes a backend of the next tier; else leave it out";
            cx.warn(&factor, "no_effect", message, help);
        }
    }
}

/// What `[node]` says, by itself and beside the pools.
fn node(cx: &mut Cx<'_>, file: &File) {
    let at = At::ROOT.key("node");
    let (index_at, of_at) = (at.key("index"), at.key("of"));
    match (file.node.index, file.node.of) {
        (Some(index), Some(of)) if index >= of => {
            let message = format!(
                "`index` is {index}, but of {of} balancers the last is number {}",
                of - 1
            );
            let help = "they are counted from 0; `of` is how many there are";
            cx.error_with(&index_at, "contradiction", message, help);
        }
        (Some(_), None) if !cx.is_set(&of_at) => {
            let help = "`of = 3` for three balancers";
            cx.error_with(
                &index_at,
                "missing_key",
                "`index` needs `of`: how many balancers there are",
                help,
            );
        }
        (None, Some(_)) if !cx.is_set(&index_at) => {
            let help = "`index = 0` on the first, `index = 1` on the second and so on";
            cx.error_with(
                &of_at,
                "missing_key",
                "`of` needs `index`: which of the balancers this is",
                help,
            );
        }
        _ => {}
    }
    let has_subset = file.pool.values().any(|pool| pool.subset_size.is_some());
    if file.node.index.is_some()
        && file.node.of.is_some()
        && !has_subset
        && !cx.is_partial(&At::ROOT.key("pool"))
    {
        let message = "`index` and `of` have no effect: no pool has a `subset_size`";
        cx.warn(
            &index_at,
            "no_effect",
            message,
            "`subset_size = 20` in a pool, or leave them out",
        );
    }
    let zones: BTreeSet<&str> = file
        .pool
        .values()
        .flat_map(zones_of)
        .map(|(_, zone)| zone)
        .collect();
    if let Some(own) = &file.node.zone
        && !zones.contains(own.as_str())
        && !cx.is_partial(&At::ROOT.key("pool"))
    {
        let message = match zones.is_empty() {
            true => "`zone` has no effect: no backend says which zone it is in".to_owned(),
            false => format!("no backend is in zone `{own}`: none is preferred"),
        };
        let named: Vec<String> = zones
            .iter()
            .take(ZONES_SHOWN)
            .map(|zone| format!("`{zone}`"))
            .collect();
        let help = match named.is_empty() {
            true => format!("`zone = \"{own}\"` at the backends that are near"),
            false => format!("backends are in {}", named.join(", ")),
        };
        cx.warn(&at.key("zone"), "no_effect", message, &help);
    }
}

fn tiers(cx: &mut Cx<'_>, pool: &Pool, at: &At<'_>) {
    let list = at.key("backends");
    for (index, backend) in tables(pool) {
        let at = list.index(index);
        if backend.backup && cx.is_set(&at.key("priority")) {
            let message = "`backup` and `priority` both say which tier the backend is of";
            let help = "`backup = true` is `priority = 1`: leave one of them out";
            cx.error_with(&at.key("backup"), "contradiction", message, help);
        }
    }
    let with_weight = pool.backends.iter().filter(|entry| entry.weight() > 0);
    let lowest = with_weight.map(BackendEntry::tier).min();
    if lowest.is_some_and(|lowest| lowest > 0) && !cx.is_partial(at) {
        let first = tables(pool).find(|(_, backend)| backend.weight > 0);
        let message = "every backend of this pool is a backup: nothing is asked before them";
        let help = "leave `backup` or `priority` out where requests go first";
        let first = first.map_or(0, |(index, _)| index);
        cx.warn(&list.index(first), "no_effect", message, help);
    }
}

fn zones(cx: &mut Cx<'_>, pool: &Pool, node: &Node, at: &At<'_>) {
    let list = at.key("backends");
    let Some((first, zone)) = zones_of(pool).next() else {
        return;
    };
    if node.zone.is_none() && !cx.is_set(&At::ROOT.key("node").key("zone")) {
        let message = "`zone` has no effect: this balancer does not say which zone it is in";
        let help = format!("`[node]` with `zone = \"{zone}\"` on balancers in that zone");
        cx.warn(&list.index(first).key("zone"), "no_effect", message, &help);
        return;
    }
    let mut entries = pool.backends.iter().enumerate();
    let without = entries.find(|(_, entry)| match entry {
        BackendEntry::Address(_) => true,
        BackendEntry::Full(backend) => backend.zone.is_none(),
    });
    if let Some((index, _)) = without.filter(|_| !cx.is_partial(&list)) {
        let message =
            "this backend says no zone, and others of its pool do: it counts as in another zone";
        cx.warn(
            &list.index(index),
            "missing_key",
            message,
            "give it a `zone`, too",
        );
    }
}

fn subset(cx: &mut Cx<'_>, pool: &Pool, node: &Node, at: &At<'_>) {
    let Some(size) = pool.subset_size else {
        return;
    };
    let at_size = at.key("subset_size");
    let at_node = At::ROOT.key("node");
    let is_named = |key: &str| cx.is_set(&at_node.key(key));
    if node.index.is_none() && node.of.is_none() && !is_named("index") && !is_named("of") {
        let message = "`subset_size` needs to know which of how many balancers this is";
        let help = "`[node]` with `index = 0` and `of = 3` on the first of three";
        cx.error_with(&at_size, "missing_key", message, help);
        return;
    }
    if node.zone.is_some() && zones_of(pool).next().is_some() {
        let message = "a pool has zones or a subset, not both: balancers of one zone alone would not cover it evenly";
        let help = "leave `subset_size` out, or a pool for each zone, each with its own";
        cx.error_with(&at_size, "contradiction", message, help);
    }
    let is_counted = |entry: &BackendEntry| {
        let address = match entry {
            BackendEntry::Address(address) => Some(address),
            BackendEntry::Full(backend) => backend.address.as_ref(),
        };
        address.is_some_and(|address| !matches!(address.value, BackendAddress::Name(_)))
    };
    let count = pool.backends.len();
    let is_partial = cx.is_partial(at) || !pool.backends.iter().all(is_counted);
    if node.of == Some(1) || (size as usize >= count && !is_partial) {
        let message = match node.of {
            Some(1) => {
                "`subset_size` has no effect: the only balancer sends to all backends".to_owned()
            }
            _ => format!(
                "`subset_size` has no effect: the pool has {count} backends, not more than {size}"
            ),
        };
        cx.warn(&at_size, "no_effect", message, "leave it out");
    } else if pool.policy.hashes() {
        let message = "with a subset a key goes to another backend by each balancer";
        let help = "leave `subset_size` out where all balancers shall agree on a key's backend";
        cx.warn(&at_size, "unstable", message, help);
    }
}

/// Backends that are tables, with their place in the list.
fn tables(pool: &Pool) -> impl Iterator<Item = (usize, &Backend)> {
    let entries = pool.backends.iter().enumerate();
    entries.filter_map(|(index, entry)| match entry {
        BackendEntry::Address(_) => None,
        BackendEntry::Full(backend) => Some((index, backend)),
    })
}

fn has_tiers(pool: &Pool) -> bool {
    let mut tiers = pool.backends.iter().map(BackendEntry::tier);
    let first = tiers.next();
    tiers.any(|tier| Some(tier) != first)
}

fn zones_of(pool: &Pool) -> impl Iterator<Item = (usize, &str)> {
    tables(pool).filter_map(|(index, backend)| Some((index, backend.zone.as_deref()?)))
}

//! Rules of `[pool.NAME]`.

use super::Seen;
use crate::config::report::Cx;
use crate::config::schema::{BackendEntry, File, Health, ListenerKind, Policy, Pool, Protocol};
use crate::config::text::BackendAddress;
use crate::config::tree::At;
use crate::snapshot::Bind;
use std::net::SocketAddr;

/// Most backends in a pool.
const BACKENDS_MAX: usize = 10_000;

pub(super) fn check(cx: &mut Cx<'_>, file: &File) {
    let tcp = |bind: &Bind| {
        if let Bind::Tcp(address) = bind {
            Some(*address)
        } else {
            None
        }
    };
    let own: Vec<SocketAddr> = file
        .listener
        .iter()
        .filter_map(|listener| listener.bind.as_ref())
        .filter_map(|bind| tcp(&bind.value))
        .collect();
    let pools = At::ROOT.key("pool");
    let by_routes = super::tcp::pools_of_routes(file);
    let unread = super::tcp::pools(file, &[ListenerKind::Tcp, ListenerKind::Udp]);
    for (name, pool) in &file.pool {
        let at = pools.key(name);
        // Where no request is read, all that is about requests is told at once.
        let gets_requests = by_routes.contains(name.as_str()) || !unread.contains(name.as_str());
        if gets_requests && !cx.is_partial(&at) {
            connections(cx, pool, &at);
        }
        policy(cx, pool, &at);
        prequal(cx, pool, &at);
        backends(cx, pool, &own, &at);
        super::discover::check(cx, file, pool, &at);
        let limits = &pool.http2_limits;
        let at_limits = at.key("http2_limits");
        super::windows(cx, &at_limits, &limits.window, &limits.connection_window);
        if let Some(health) = &pool.health {
            probe(cx, health, &at.key("health"));
            grpc_probe(cx, pool, health, &at);
        }
        switched_off(cx, pool, &at);
        numbers(cx, pool, &at);
    }
}

/// Tells what is said of connections that this pool does not have.
fn connections(cx: &mut Cx<'_>, pool: &Pool, at: &At<'_>) {
    let limits_at = at.key("http2_limits");
    if pool.protocol == Protocol::Http1 && cx.is_set(&limits_at) {
        let message = "`http2_limits` has no effect: this pool speaks HTTP/1.1";
        let help = "`protocol = \"http2\"`, or `\"auto\"` over TLS; else leave it out";
        cx.warn(&limits_at, "no_effect", message, help);
    }
    let keepalive = at.key("keepalive");
    let (idle_timeout, idle_max) = (keepalive.key("idle_timeout"), keepalive.key("idle_max"));
    if pool.proxy_protocol.is_some() {
        for at in [idle_timeout, idle_max] {
            if cx.is_set(&at) {
                let message = "no effect with `proxy_protocol`: a connection that is one client's is not kept";
                cx.warn(&at, "no_effect", message, "leave one of them out");
            }
        }
    } else if pool.protocol == Protocol::Http2 && cx.is_set(&idle_max) {
        let message = "`idle_max` has no effect with `protocol = \"http2\"`: requests share connections, and none is put by";
        let help = "leave it out; `idle_timeout` says how long one without requests is kept";
        cx.warn(&idle_max, "no_effect", message, help);
    }
}

/// What is asked is for one policy, and in HTTP/1.1.
fn prequal(cx: &mut Cx<'_>, pool: &Pool, at: &At<'_>) {
    let table = at.key("prequal");
    if !cx.is_set(&table) || cx.is_refused(&at.key("policy")) {
        return;
    }
    if pool.policy != Policy::Prequal {
        let message = "`prequal` has no effect: this pool goes by another policy";
        cx.warn(
            &table,
            "no_effect",
            message,
            "`policy = \"prequal\"`, or leave it out",
        );
    } else if pool.protocol == Protocol::Http2 && pool.prequal.path.is_some() {
        let message = "backends are asked for their load in HTTP/1.1, and this pool's speak HTTP/2";
        let help = "leave `path` out: what their answers to requests say of their load is gone by";
        cx.error_with(&table.key("path"), "contradiction", message, help);
    }
}

fn policy(cx: &mut Cx<'_>, pool: &Pool, at: &At<'_>) {
    let key_at = at.key("hash_key");
    let has_key = pool.hash_key.is_some() || cx.is_set(&key_at);
    if cx.is_refused(&at.key("policy")) {
        return;
    }
    if pool.policy.hashes() && !has_key && !cx.is_partial(at) {
        let name = match pool.policy {
            Policy::Maglev => "maglev",
            _ => "consistent_hash",
        };
        let help = "add `hash_key = \"client_address\"`, `\"header:NAME\"`, `\"cookie:NAME\"`, `\"query:NAME\"` or `\"path\"`";
        cx.warn(
            &at.key("policy"),
            "missing_key",
            format!("`{name}` without `hash_key` places every request at random"),
            help,
        );
    }
    if !pool.policy.hashes() && has_key {
        cx.warn(
            &key_at,
            "no_effect",
            "`hash_key` has an effect with `policy = \"consistent_hash\"` or `\"maglev\"` only",
            "set the policy, or leave it out",
        );
    }
    let bound_at = at.key("hash_load_bound");
    let is_judged = !cx.is_partial(at) || !cx.is_set(&at.key("policy"));
    if !pool.policy.hashes() && cx.is_set(&bound_at) && is_judged {
        cx.error_with(
            &bound_at,
            "contradiction",
            "`hash_load_bound` is for policies that hash, and this pool's does not",
            "set `policy = \"consistent_hash\"` or `\"maglev\"`, or leave it out: the policies that go by load need no bound",
        );
    }
    if pool.policy == Policy::RoundRobin
        && let Some((index, _)) = weights(pool).find(|(_, weight)| *weight > 1)
    {
        let list = at.key("backends");
        let weight_at = list.index(index);
        let help = "`policy = \"weighted_round_robin\"` heeds them";
        cx.warn(
            &weight_at.key("weight"),
            "no_effect",
            "`round_robin` ignores weights",
            help,
        );
    }
}

fn weights(pool: &Pool) -> impl Iterator<Item = (usize, u32)> {
    pool.backends
        .iter()
        .enumerate()
        .map(|(index, entry)| match entry {
            BackendEntry::Address(_) => (index, 1),
            BackendEntry::Full(backend) => (index, backend.weight),
        })
}

/// Backends against each other, and against the listeners of this balancer.
pub(in super::super) fn backends(cx: &mut Cx<'_>, pool: &Pool, own: &[SocketAddr], at: &At<'_>) {
    let list = at.key("backends");
    if pool.backends.len() > BACKENDS_MAX {
        let message = format!(
            "{} backends are more than the {BACKENDS_MAX} that a pool may have",
            pool.backends.len()
        );
        cx.error(&list, "out_of_range", message);
    }
    if cx.list_len(&list) == Some(0) && pool.discover.is_empty() {
        cx.warn(
            &list,
            "empty",
            "this pool has no backends: its requests are answered 503",
            "add an address to `backends`",
        );
    }
    if !pool.backends.is_empty() && weights(pool).all(|(_, weight)| weight == 0) {
        cx.warn(
            &list,
            "empty",
            "every backend has weight 0: requests are answered 503",
            "a weight of 1 or more takes traffic",
        );
    }
    let mut seen = Seen::new();
    for (index, entry) in pool.backends.iter().enumerate() {
        let at = list.index(index);
        let (address, at) = match entry {
            BackendEntry::Address(address) => (address, at),
            BackendEntry::Full(backend) => match &backend.address {
                Some(address) => (address, at.key("address")),
                None => continue,
            },
        };
        let key = match &address.value {
            BackendAddress::Ip(address) => address.to_string(),
            BackendAddress::Unix(path) => format!("unix:{}", path.display()),
            BackendAddress::Name(name) => name.clone(),
        };
        seen.once(cx, &at, "backend", &key);
        if let BackendAddress::Ip(address) = &address.value
            && own.iter().any(|own| leads_to(*address, *own))
        {
            let help = "its requests would come back to Mizan for ever";
            cx.error_with(
                &at,
                "loop",
                format!("`{address}` is a listener of this configuration"),
                help,
            );
        }
    }
}

/// Whether a connection to `address` is accepted by `listener` on this machine, as far as one can tell from here.
fn leads_to(address: SocketAddr, listener: SocketAddr) -> bool {
    let same_ip = address.ip() == listener.ip().to_canonical()
        || (listener.ip().is_unspecified() && address.ip().is_loopback());
    address.port() == listener.port() && same_ip
}

fn probe(cx: &mut Cx<'_>, health: &Health, at: &At<'_>) {
    let has_path = health.path.is_some() || cx.is_set(&at.key("path"));
    let kinds =
        usize::from(has_path) + usize::from(health.tcp) + usize::from(health.grpc.is_some());
    if kinds > 1 {
        let key = if health.tcp { "tcp" } else { "grpc" };
        let message = "a probe is one of `GET` of `path`, `tcp` and `grpc`, not two of them";
        cx.error(&at.key(key), "contradiction", message);
        return;
    }
    if kinds == 0 && !cx.is_partial(at) {
        let help = "`path = \"/healthz\"` for a request, `tcp = true` for a connect, or `grpc = \"\"` for gRPC's \
                    health service";
        let message = "a health check needs to know what a probe does";
        cx.error_with(at, "missing_key", message, help);
    }
    if health.tcp {
        let why = "needs an answer, and `tcp` probes do not ask for one";
        of_a_request(cx, at, &["host", "expect", "body"], why);
    }
    if health.grpc.is_some() {
        let why = "is of an ordinary request, and a `grpc` probe looks at its own answer";
        of_a_request(cx, at, &["expect", "body"], why);
    }
}

/// gRPC needs HTTP/2, also for its probes.
fn grpc_probe(cx: &mut Cx<'_>, pool: &Pool, health: &Health, at: &At<'_>) {
    let is_unread = cx.is_refused(&at.key("protocol"));
    let is_alone = health.path.is_none() && !health.tcp;
    if health.grpc.is_some() && is_alone && pool.protocol != Protocol::Http2 && !is_unread {
        let message = "gRPC is spoken over HTTP/2, and this pool does not speak it";
        let help = "`protocol = \"http2\"` in the pool";
        let at = at.key("health");
        cx.error_with(&at.key("grpc"), "contradiction", message, help);
    }
}

/// Keys that only a probe by `path` gives a meaning.
fn of_a_request(cx: &mut Cx<'_>, at: &At<'_>, keys: &[&str], why: &str) {
    for key in keys {
        let at = at.key(key);
        if cx.is_set(&at) {
            cx.error_with(
                &at,
                "contradiction",
                format!("`{key}` {why}"),
                "use `path` instead",
            );
        }
    }
}

/// Keys that stand beside a switch that is off.
fn switched_off(cx: &mut Cx<'_>, pool: &Pool, at: &At<'_>) {
    const EJECTION: &[&str] = &[
        "failures",
        "time",
        "time_max",
        "max_ejected",
        "success_rate_deviations",
        "failed_share",
        "requests_min",
    ];
    const ADAPTIVE: &[&str] = &[
        "latency_factor",
        "failed_share",
        "saturation",
        "weight_min",
        "recover_after",
        "slow_start",
        "slow_start_requests",
    ];
    let switches = [
        ("ejection", pool.ejection.enabled, EJECTION),
        ("adaptive", pool.adaptive.enabled, ADAPTIVE),
    ];
    for (table, is_on, keys) in switches {
        let table = at.key(table);
        for key in keys.iter().filter(|_| !is_on) {
            let key_at = table.key(key);
            if cx.is_set(&key_at) {
                let message = format!("`{key}` has no effect while `enabled` is false");
                cx.warn(&key_at, "no_effect", message, "leave one of them out");
            }
        }
    }
    let prequal = at.key("prequal");
    for key in ["probes_per_request", "probes_per_second_max"] {
        let key_at = prequal.key(key);
        if pool.policy == Policy::Prequal && pool.prequal.path.is_none() && cx.is_set(&key_at) {
            let message = format!("`{key}` has no effect: without `path` nobody is asked");
            cx.warn(&key_at, "no_effect", message, "set `path`, or leave it out");
        }
    }
}

fn numbers(cx: &mut Cx<'_>, pool: &Pool, at: &At<'_>) {
    let ejection = &pool.ejection;
    if ejection.time.value > ejection.time_max.value {
        let message = format!(
            "`time` ({}) is longer than `time_max` ({})",
            ejection.time.text, ejection.time_max.text
        );
        let at = at.key("ejection");
        let key = if cx.is_set(&at.key("time")) {
            "time"
        } else {
            "time_max"
        };
        cx.error(&at.key(key), "contradiction", message);
    }
    let retry = &pool.retry;
    let at = at.key("retry");
    if retry.backoff.value > retry.backoff_max.value {
        let message = format!(
            "`backoff` ({}) is longer than `backoff_max` ({})",
            retry.backoff.text, retry.backoff_max.text
        );
        let key = if cx.is_set(&at.key("backoff")) {
            "backoff"
        } else {
            "backoff_max"
        };
        cx.error(&at.key(key), "contradiction", message);
    }
    if retry.tries_max == 1 && !retry.statuses.is_empty() {
        cx.warn(
            &at.key("statuses"),
            "no_effect",
            "`statuses` has no effect: `tries_max = 1` is no retry",
            "raise `tries_max`",
        );
    }
}

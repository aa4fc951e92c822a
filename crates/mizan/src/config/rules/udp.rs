//! Rules of listeners that hand datagrams through, and of the pools that they name.

use super::tcp::{self, HTTP_ONLY, HTTP_TIMEOUTS, POOL_HTTP_ONLY};
use crate::config::report::Cx;
use crate::config::schema::{BackendEntry, File, Listener, ListenerKind, Pool};
use crate::config::text::BackendAddress;
use crate::config::tree::At;
use crate::snapshot::{Bind, HashKey};

/// Keys of a listener that only connections give a meaning.
const CONNECTIONS_ONLY: [&str; 3] = ["connections_max", "connections_per_address_max", "backlog"];

/// Its time-outs of that kind.
const CONNECTION_TIMEOUTS: [&str; 3] = ["header", "tunnel_idle", "tunnel"];

/// Keys of a pool that mean nothing where a datagram is sent once and at once, beside those of HTTP.
const POOL_CONNECTIONS_ONLY: [(&str, &str); 6] = [
    ("timeouts", "connect"),
    ("retry", "tries_max"),
    ("retry", "backoff"),
    ("retry", "backoff_max"),
    ("queue", "requests_max"),
    ("queue", "timeout"),
];

/// Keys that are of no other listener.
const UDP_ONLY: [&str; 1] = ["sessions_max"];

pub(super) fn check(cx: &mut Cx<'_>, file: &File) {
    let list = At::ROOT.key("listener");
    for (index, listener) in file.listener.iter().enumerate() {
        let at = list.index(index);
        if cx.is_refused(&at.key("kind")) {
            continue;
        }
        if listener.kind == ListenerKind::Udp {
            udp(cx, file, listener, &at);
        } else {
            other(cx, &at);
        }
    }
    let by_routes = tcp::pools_of_routes(file);
    let by_tcp = tcp::pools(file, &[ListenerKind::Tcp]);
    for name in tcp::pools(file, &[ListenerKind::Udp]) {
        if let Some(pool) = file.pool.get(name) {
            let pools = At::ROOT.key("pool");
            let at = pools.key(name);
            pool_of_udp(cx, pool, &at);
            if !by_routes.contains(name) && !by_tcp.contains(name) {
                pool_of_udp_alone(cx, pool, &at);
            }
        }
    }
}

fn udp(cx: &mut Cx<'_>, file: &File, listener: &Listener, at: &At<'_>) {
    let pool_at = at.key("pool");
    if !cx.is_set(&pool_at) && !cx.is_partial(at) {
        let message = "this listener does not say where to";
        let help = "`pool = \"NAME\"` takes all datagrams";
        cx.error_with(at, "missing_key", message, help);
    }
    if let Some(name) = &listener.pool {
        tcp::known_pool(cx, file, name, &pool_at);
    }
    if let Some(Bind::Unix(_)) = listener.bind.as_ref().map(|bind| &bind.value) {
        let message = "a Unix socket has no UDP";
        let help = "an address and a port, such as `\"0.0.0.0:53\"`";
        cx.error_with(&at.key("bind"), "contradiction", message, help);
    }
    for (key, message, help) in [
        (
            "sni",
            "datagrams have no server name that Mizan reads",
            "its `pool` takes all of them",
        ),
        (
            "tls",
            "Mizan speaks no DTLS: datagrams are handed through as they are",
            "leave it out; the backends may speak DTLS or QUIC themselves",
        ),
        (
            "proxy_protocol",
            "no PROXY header is read from datagrams",
            "leave it out",
        ),
    ] {
        let at = at.key(key);
        if cx.is_set(&at) {
            cx.error_with(&at, "contradiction", message, help);
        }
    }
    let timeouts = at.key("timeouts");
    let keys = HTTP_ONLY.iter().chain(&CONNECTIONS_ONLY);
    let mut without_effect: Vec<At<'_>> = keys.map(|key| at.key(key)).collect();
    let times = HTTP_TIMEOUTS.iter().chain(&CONNECTION_TIMEOUTS);
    without_effect.extend(times.map(|key| timeouts.key(key)));
    for at in without_effect {
        if cx.is_set(&at) {
            let message = "no effect on a listener that hands UDP through";
            let help = match at.to_string().rsplit('.').next() {
                Some("connections_max") => "`sessions_max` bounds its sessions",
                Some("idle" | "tunnel_idle") => "`session_idle` ends its sessions",
                _ => "leave it out",
            };
            cx.warn(&at, "no_effect", message, help);
        }
    }
}

/// A listener of connections.
fn other(cx: &mut Cx<'_>, at: &At<'_>) {
    let timeouts = at.key("timeouts");
    let keys = UDP_ONLY.iter().map(|key| at.key(key));
    for at in keys.chain([timeouts.key("session_idle")]) {
        if cx.is_set(&at) {
            let message = "no effect without `kind = \"udp\"`: only UDP has sessions";
            cx.warn(&at, "no_effect", message, "leave it out");
        }
    }
}

/// What datagrams would go without, wherever else the pool is used.
fn pool_of_udp(cx: &mut Cx<'_>, pool: &Pool, at: &At<'_>) {
    for (key, message) in [
        (
            "tls",
            "this pool gets datagrams, which would go to its backends without TLS",
        ),
        (
            "proxy_protocol",
            "this pool gets datagrams, which would go to its backends without a PROXY header",
        ),
    ] {
        let at = at.key(key);
        if cx.is_set(&at) {
            let help = "a pool of its own for the listener with `kind = \"udp\"`";
            cx.error_with(&at, "contradiction", message, help);
        }
    }
    let list = at.key("backends");
    for (index, entry) in pool.backends.iter().enumerate() {
        let at = list.index(index);
        let (address, at) = match entry {
            BackendEntry::Address(address) => (Some(address), at),
            BackendEntry::Full(backend) => (backend.address.as_ref(), at.key("address")),
        };
        if let Some(BackendAddress::Unix(_)) = address.map(|address| &address.value) {
            let message = "this pool gets datagrams, and a Unix socket has no UDP";
            cx.error_with(&at, "contradiction", message, "an address and a port");
        }
    }
}

/// What such a pool says of requests and connections, where only datagrams come.
fn pool_of_udp_alone(cx: &mut Cx<'_>, pool: &Pool, at: &At<'_>) {
    let of_tables = POOL_HTTP_ONLY.iter().chain(&POOL_CONNECTIONS_ONLY);
    let tables: Vec<(At<'_>, &str)> = of_tables
        .map(|(table, key)| (at.key(table), *key))
        .collect();
    let alone = ["protocol", "http2_limits"].map(|key| (at.key(key), key));
    let nested = tables.iter().map(|(table, key)| (table.key(key), *key));
    for (at, key) in nested.chain(alone) {
        if cx.is_set(&at) {
            let message = format!("`{key}` has no effect: this pool gets datagrams only");
            cx.warn(&at, "no_effect", message, "leave it out");
        }
    }
    if let Some(key) = &pool.hash_key
        && key.value != HashKey::ClientAddress
    {
        let message = format!(
            "a datagram has no `{}`: each session is placed at random",
            key.text
        );
        let help = "`hash_key = \"client_address\"`";
        cx.warn(&at.key("hash_key"), "no_effect", message, help);
    }
}

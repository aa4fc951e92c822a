//! Rules of listeners that hand TCP through, of the pools that they name, and of PROXY headers.

use super::{Seen, for_each};
use crate::config::report::Cx;
use crate::config::schema::{File, Listener, ListenerKind, Pool, Protocol};
use crate::config::tree::At;
use crate::snapshot::{Bind, HashKey};
use std::collections::BTreeSet;

/// Keys of a listener that only HTTP gives a meaning.
pub(super) const HTTP_ONLY: [&str; 12] = [
    "trusted_proxies",
    "trusted_depth",
    "body_max",
    "head_max",
    "headers_max",
    "target_max",
    "requests_per_connection_max",
    "upstream_header",
    "http2",
    "http2_limits",
    "redirect_to_https",
    "min_rate",
];

/// Its time-outs of that kind.
pub(super) const HTTP_TIMEOUTS: [&str; 4] = ["body", "send", "idle", "half_close"];

/// Keys of a pool that mean nothing where no request is read, table and key.
pub(super) const POOL_HTTP_ONLY: [(&str, &str); 12] = [
    ("timeouts", "response_header"),
    ("timeouts", "response_idle"),
    ("timeouts", "per_try"),
    ("timeouts", "request"),
    ("retry", "reset"),
    ("retry", "timeout"),
    ("retry", "statuses"),
    ("retry", "buffer_max"),
    ("keepalive", "idle_timeout"),
    ("keepalive", "idle_max"),
    // A further try draws on no budget where nothing has reached a backend.
    ("retry", "budget"),
    ("retry", "budget_min_per_second"),
];

pub(super) fn check(cx: &mut Cx<'_>, file: &File) {
    let list = At::ROOT.key("listener");
    for (index, listener) in file.listener.iter().enumerate() {
        let at = list.index(index);
        proxy_header(cx, listener, &at);
        // What it was meant to be, nobody knows.
        if cx.is_refused(&at.key("kind")) {
            continue;
        }
        match listener.kind {
            ListenerKind::Http => http(cx, &at),
            ListenerKind::Tcp => tcp(cx, file, listener, &at),
            ListenerKind::Udp => {}
        }
    }
    routes(cx, file);
    for (name, pool) in &file.pool {
        one_client(cx, pool, &At::ROOT.key("pool").key(name));
    }
    let by_routes = pools_of_routes(file);
    for name in pools(file, &[ListenerKind::Tcp]) {
        if let Some(pool) = file.pool.get(name)
            && !by_routes.contains(name)
        {
            pool_of_tcp(cx, pool, &At::ROOT.key("pool").key(name));
        }
    }
}

/// The pools that listeners of these kinds name.
pub(in super::super) fn pools<'f>(file: &'f File, kinds: &[ListenerKind]) -> BTreeSet<&'f str> {
    let listeners = file.listener.iter();
    let of_kind = listeners.filter(|listener| kinds.contains(&listener.kind));
    of_kind
        .flat_map(|listener| {
            let by_name = listener.sni.iter().filter_map(|sni| sni.pool.as_deref());
            by_name.chain(listener.pool.as_deref())
        })
        .collect()
}

/// The pools that routes name.
pub(in super::super) fn pools_of_routes(file: &File) -> BTreeSet<&str> {
    let of_route = |route| pools_of_route(file, route);
    file.route.iter().flat_map(of_route).collect()
}

/// The pools that a route names, by its chain too.
pub(super) fn pools_of_route<'f>(
    file: &'f File,
    route: &'f crate::config::schema::Route,
) -> impl Iterator<Item = &'f str> {
    let parts = route.split.iter().flatten();
    let parts = parts.filter_map(|part| part.pool.as_deref());
    let fallback = route.fallback.iter().map(String::as_str);
    let chained = route.chain.iter().flat_map(|chain| file.chained(chain));
    parts
        .chain(route.pool.as_deref())
        .chain(chained)
        .chain(fallback)
}

/// Pools that are named and not there, which with a store is no error: they may come.
pub(in super::super) fn absent(file: &File) -> BTreeSet<String> {
    let every = [ListenerKind::Http, ListenerKind::Tcp, ListenerKind::Udp];
    let named = pools_of_routes(file).into_iter().chain(pools(file, &every));
    let is_absent = |name: &&str| !file.pool.contains_key(*name);
    named.filter(is_absent).map(str::to_owned).collect()
}

fn http(cx: &mut Cx<'_>, at: &At<'_>) {
    for key in ["pool", "sni"] {
        let at = at.key(key);
        if cx.is_set(&at) {
            let message = format!("`{key}` is for `kind = \"tcp\"`: this listener speaks HTTP");
            let help = "`kind = \"tcp\"` hands bytes through; for HTTP, `[[route]]` names the pool";
            cx.error_with(&at, "contradiction", message, help);
        }
    }
}

fn tcp(cx: &mut Cx<'_>, file: &File, listener: &Listener, at: &At<'_>) {
    let (pool_at, sni_at) = (at.key("pool"), at.key("sni"));
    if !cx.is_set(&pool_at) && !cx.is_set(&sni_at) && !cx.is_partial(at) {
        let help = "`pool = \"NAME\"` takes all connections, `sni` TLS clients by the name that they ask for";
        cx.error_with(
            at,
            "missing_key",
            "this listener does not say where to",
            help,
        );
    }
    if let Some(name) = &listener.pool {
        known_pool(cx, file, name, &pool_at);
    }
    let mut names = Seen::new();
    for (index, sni) in listener.sni.iter().enumerate() {
        let at = sni_at.index(index);
        let names_at = at.key("names");
        if sni.names.as_slice().is_empty() && cx.list_len(&names_at) == Some(0) {
            let help = "a name such as \"www.example.org\", or `pool` of the listener for everyone";
            cx.error_with(&names_at, "empty", "`names` names nobody", help);
        }
        for_each(&sni.names, &names_at, |name, at| {
            let root = name.text.strip_suffix('.').unwrap_or(&name.text);
            names.once(cx, at, "server name", &root.to_ascii_lowercase());
        });
        if let Some(pool) = &sni.pool {
            known_pool(cx, file, pool, &at.key("pool"));
        }
    }
    if listener.tls.is_some() && cx.is_set(&sni_at) {
        let message = "`sni` passes TLS on as it is, and `[listener.tls]` ends it here";
        let help = "take out `tls`, or `sni` and give its `pool`";
        cx.error_with(&sni_at, "contradiction", message, help);
    }
    let (timeouts, tls) = (at.key("timeouts"), at.key("tls"));
    let client_auth = tls.key("client_auth");
    let mut without_effect: Vec<At<'_>> = HTTP_ONLY.iter().map(|key| at.key(key)).collect();
    without_effect.extend(HTTP_TIMEOUTS.iter().map(|key| timeouts.key(key)));
    without_effect.extend([tls.key("hsts"), client_auth.key("headers")]);
    if listener.sni.is_empty() {
        without_effect.push(timeouts.key("header"));
    }
    for at in without_effect {
        if cx.is_set(&at) {
            let message = "no effect on a listener that hands TCP through";
            cx.warn(&at, "no_effect", message, "leave it out");
        }
    }
}

pub(super) fn known_pool(cx: &mut Cx<'_>, file: &File, name: &str, at: &At<'_>) {
    let is_there = file.pool.contains_key(name) || cx.is_set(&At::ROOT.key("pool").key(name));
    if !is_there && !cx.is_under_slip(name) {
        let message = format!("there is no pool `{}`", name.escape_debug());
        let known = file.pool.keys().map(String::as_str);
        let message = cx.report.suggest(message, name, known);
        match cx.has_store(file) {
            false => cx.error(at, "unknown_name", message),
            true => cx.warn(
                at,
                "unknown_name",
                message,
                "it may come from the store; until then requests for it are answered 503",
            ),
        }
    }
}

/// A route that holds on such a listener, or one of datagrams, would never be asked.
fn routes(cx: &mut Cx<'_>, file: &File) {
    let list = At::ROOT.key("route");
    for (index, route) in file.route.iter().enumerate() {
        let at = list.index(index);
        for_each(&route.listener, &at.key("listener"), |name, at| {
            let mut listeners = file.listener.iter();
            let found = listeners.find(|listener| listener.known_as().as_deref() == Some(name));
            let (what, help) = match found.map(|listener| listener.kind) {
                None | Some(ListenerKind::Http) => return,
                Some(ListenerKind::Tcp) => (
                    "TCP",
                    "its own `pool` and `sni` say where to; leave it out here",
                ),
                Some(ListenerKind::Udp) => {
                    ("UDP", "its own `pool` says where to; leave it out here")
                }
            };
            let message = format!("listener `{name}` hands {what} through and asks no route");
            cx.error_with(at, "contradiction", message, help);
        });
    }
}

/// A header says who one client is.
fn one_client(cx: &mut Cx<'_>, pool: &Pool, at: &At<'_>) {
    let name = match pool.protocol {
        Protocol::Http1 => return,
        Protocol::Http2 => "http2",
        Protocol::Auto => "auto",
    };
    if pool.proxy_protocol.is_some() {
        let message = format!(
            "a PROXY header speaks for one client, and with `protocol = \"{name}\"` a connection carries the requests of many"
        );
        let help = "`protocol = \"http1\"`; or leave it out, and `X-Forwarded-For` says for whom each request is";
        cx.error_with(&at.key("proxy_protocol"), "contradiction", message, help);
    }
}

/// What such a pool says of requests, where only connections come.
fn pool_of_tcp(cx: &mut Cx<'_>, pool: &Pool, at: &At<'_>) {
    for (table, key) in POOL_HTTP_ONLY {
        let table = at.key(table);
        let at = table.key(key);
        if cx.is_set(&at) {
            let message = format!("`{key}` has no effect: this pool gets TCP connections only");
            cx.warn(&at, "no_effect", message, "leave it out");
        }
    }
    for key in ["protocol", "http2_limits"] {
        let at = at.key(key);
        if cx.is_set(&at) {
            let message = format!("`{key}` has no effect: this pool gets TCP connections only");
            cx.warn(&at, "no_effect", message, "leave it out");
        }
    }
    let is_of_request = |key: &HashKey| *key != HashKey::ClientAddress;
    if let Some(key) = &pool.hash_key
        && is_of_request(&key.value)
    {
        let message = format!(
            "a TCP connection has no `{}`: each is placed at random",
            key.text
        );
        let help = "`hash_key = \"client_address\"`";
        cx.warn(&at.key("hash_key"), "no_effect", message, help);
    }
}

fn proxy_header(cx: &mut Cx<'_>, listener: &Listener, at: &At<'_>) {
    let Some(header) = &listener.proxy_protocol else {
        return;
    };
    let at = at.key("proxy_protocol");
    let from_at = at.key("from");
    if cx.list_len(&from_at) == Some(0) {
        let message = "`from` names nobody: no header is read";
        cx.error_with(
            &from_at,
            "empty",
            message,
            "name the networks of what stands in front",
        );
    }
    for (index, network) in header.from.iter().enumerate() {
        if network.value.prefix_len() == 0 {
            let message = format!(
                "`{}` believes every client's word about its own address",
                network.text
            );
            let help = "name the networks of what stands in front";
            cx.warn(&from_at.index(index), "forgeable", message, help);
        }
    }
    if let Some(Bind::Unix(_)) = listener.bind.as_ref().map(|bind| &bind.value) {
        let message = "a peer on a Unix socket has no address: no header is read";
        cx.warn(
            &at,
            "no_effect",
            message,
            "leave it out, or bind an address",
        );
    }
}

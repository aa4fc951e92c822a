//! What no schema says: references, duplicates, contradictions, and what has no effect.

mod chain;
mod discover;
mod edits;
mod listener;
mod pool;
mod route;
mod seen;
mod spread;
mod store;
mod tcp;
mod tls;
mod udp;

pub(super) use pool::backends;
pub(super) use route::without_slash;
pub(super) use tcp::{absent, pools, pools_of_routes};

use super::report::Cx;
use super::schema::{File, ListenerKind, OneOrMany};
use super::text::{Bytes, Text};
use super::tree::{At, Place};
use crate::snapshot::Bind;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Most routes and pools together.
const OBJECTS_MAX: usize = 20_000;

/// Tells everything that is wrong with `file` beyond its shape.
pub(super) fn check(cx: &mut Cx<'_>, file: &File) {
    admin(cx, file);
    own_addresses(cx, file);
    listener::check(cx, file);
    pool::check(cx, file);
    spread::check(cx, file);
    store::check(cx, file);
    tcp::check(cx, file);
    udp::check(cx, file);
    chain::check(cx, file);
    route::check(cx, file);
    tls::check(cx, file);
    seen::check(cx, file);
    let objects = file.route.len() + file.pool.len();
    if objects > OBJECTS_MAX {
        let message = format!(
            "{objects} routes and pools are more than the {OBJECTS_MAX} that are supported"
        );
        cx.error(&At::ROOT.key("route"), "out_of_range", message);
    }
}

fn admin(cx: &mut Cx<'_>, file: &File) {
    let at = At::ROOT.key("admin");
    let (bind_at, token_at) = (at.key("bind"), at.key("token"));
    let has_token = file.admin.token.is_some() || cx.is_set(&token_at);
    if let Some(bind) = &file.admin.bind {
        if !bind.value.ip().to_canonical().is_loopback() {
            let message = format!(
                "the admin API on `{}` could be reached from other machines, in clear text",
                bind.text
            );
            cx.error_with(
                &bind_at,
                "refused",
                message,
                "bind it to 127.0.0.1 or [::1], or use its Unix socket",
            );
        }
        if !has_token {
            cx.error_with(
                &bind_at,
                "missing_key",
                "an admin API over TCP needs `token`",
                "`token = \"file:/etc/mizan/token\"` or `token = \"${MIZAN_TOKEN}\"`",
            );
        }
    } else if has_token && !cx.is_set(&bind_at) {
        cx.warn(
            &token_at,
            "no_effect",
            "`token` has no effect without `bind`",
            "callers on the Unix socket are known by its file mode",
        );
    }
    let is_inline = file.admin.token.is_some() && !cx.is_put_in(&token_at);
    if is_inline {
        let help = "`file:/etc/mizan/token` or `${MIZAN_TOKEN}` keeps it out of the file";
        cx.warn(
            &token_at,
            "secret_in_file",
            "whoever reads this file can use the admin API",
            help,
        );
    }
}

/// Mizan's own listeners against each other and the listeners for clients.
fn own_addresses(cx: &mut Cx<'_>, file: &File) {
    let list = At::ROOT.key("listener");
    let own = [
        ("health", file.health.bind.value.0, "`/livez` and `/readyz`"),
        ("metrics", file.metrics.bind.value.0, "`/metrics`"),
        (
            "admin",
            file.admin.bind.as_ref().map(|bind| bind.value),
            "the admin API",
        ),
    ];
    for (index, listener) in file.listener.iter().enumerate() {
        let bind = listener.bind.as_ref().map(|bind| &bind.value);
        let (ListenerKind::Http | ListenerKind::Tcp, Some(Bind::Tcp(address))) =
            (listener.kind, bind)
        else {
            continue;
        };
        if cx.is_refused(&list.index(index).key("kind")) {
            continue;
        }
        let taken = own
            .iter()
            .find(|(_, own, _)| own.is_some_and(|own| overlap(own, *address)));
        if let Some((key, Some(own), what)) = taken {
            let message = format!("`{address}` takes `{own}`, the address of {what}");
            let help = format!("use another port, or set `bind` in `[{key}]`");
            cx.error_with(&list.index(index).key("bind"), "duplicate", message, help);
        }
    }
    let [(_, health, _), (_, metrics, _), (_, admin, _)] = own;
    if let Some(admin) = admin
        && [health, metrics]
            .into_iter()
            .flatten()
            .any(|open| overlap(open, admin))
    {
        let message =
            format!("`{admin}` is the address of `/livez` or `/metrics`, which need no token");
        cx.error_with(
            &At::ROOT.key("admin").key("bind"),
            "duplicate",
            message,
            "give the admin API a port of its own",
        );
    }
}

/// Whether two sockets would get each other's connections: same port, and same or wildcard address.
fn overlap(left: SocketAddr, right: SocketAddr) -> bool {
    let (a, b) = (left.ip().to_canonical(), right.ip().to_canonical());
    let wildcard_takes = |wild: std::net::IpAddr, other: std::net::IpAddr| {
        wild.is_unspecified() && (wild.is_ipv6() || other.is_ipv4())
    };
    left.port() == right.port()
        && left.port() != 0
        && (a == b || wildcard_takes(a, b) || wildcard_takes(b, a))
}

/// Calls `each` with every value of a key that may hold one or a list, and its path.
fn for_each<T>(values: &OneOrMany<T>, at: &At<'_>, mut each: impl FnMut(&T, &At<'_>)) {
    for (index, value) in values.as_slice().iter().enumerate() {
        if values.is_one() {
            each(value, at);
        } else {
            each(value, &at.index(index));
        }
    }
}

/// Remembers where names were first used, and tells repeats.
struct Seen(BTreeMap<String, Place>);

impl Seen {
    fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Tells an error if `name` was seen before.
    fn once(&mut self, cx: &mut Cx<'_>, at: &At<'_>, what: &str, name: &str) {
        if let Some(place) = self.0.get(name) {
            let place = cx.shown(place);
            cx.error(
                at,
                "duplicate",
                format!(
                    "{what} `{}` is there already, at {place}",
                    name.escape_debug()
                ),
            );
        } else {
            self.0.insert(name.to_owned(), cx.place(at));
        }
    }
}

/// A stream's window is a part of its connection's (RFC 9113 §5.2.1).
fn windows(cx: &mut Cx<'_>, at: &At<'_>, stream: &Text<Bytes>, connection: &Text<Bytes>) {
    if stream.value > connection.value {
        let (stream, connection) = (&stream.text, &connection.text);
        let message = format!(
            "a stream's window of {stream} is larger than its connection's of {connection}"
        );
        let help = "raise `connection_window`, or lower this";
        cx.error_with(&at.key("window"), "contradiction", message, help);
    }
}

//! Rules of `[[route]]`.

use super::{Seen, edits, for_each};
use crate::config::report::Cx;
use crate::config::schema::{File, Listener, ListenerKind, Protocol, Route, ValueMatch};
use crate::config::text::{PathText, did_you_mean};
use crate::config::tree::At;
use crate::snapshot::route::NormalPath;
use regex::bytes::Regex;
use std::collections::{BTreeMap, BTreeSet};

/// What a route can do; one of them it must.
const ACTIONS: [&str; 5] = ["pool", "chain", "split", "redirect", "respond"];

pub(super) fn check(cx: &mut Cx<'_>, file: &File) {
    let list = At::ROOT.key("route");
    if is_asked(cx, file) && file.route.is_empty() && !cx.is_set(&list) && !cx.is_partial(&At::ROOT)
    {
        let help = "`[[route]]` with `pool = \"NAME\"` sends them to a pool";
        cx.warn(
            &list,
            "empty",
            "there is no route: every request is answered 404",
            help,
        );
    }
    let mut names = Seen::new();
    let mut used: BTreeSet<&str> = super::tcp::pools(file, &[ListenerKind::Tcp, ListenerKind::Udp]);
    for (index, route) in file.route.iter().enumerate() {
        let at = list.index(index);
        if let Some(name) = &route.name {
            names.once(cx, &at.key("name"), "route", name);
        }
        listeners(cx, file, route, &at);
        conditions(cx, route, &at);
        action(cx, route, &at);
        pools(cx, file, route, &at, &mut used);
        fallback(cx, file, route, &at, &mut used);
        edits::check(cx, &route.request_headers, &at.key("request_headers"));
        edits::settings(cx, file, route, &at);
        edits::check(cx, &route.response_headers, &at.key("response_headers"));
        rewrite(cx, route, &at);
        location(cx, route, &at);
    }
    // While something is refused, whatever is missing may be what was refused.
    if !cx.report.has_errors() {
        shadowed(cx, file, &list);
        unused(cx, file, &used);
    }
}

/// Whether some listener asks routes; one whose kind is wrong is not known to.
fn is_asked(cx: &Cx<'_>, file: &File) -> bool {
    let list = At::ROOT.key("listener");
    let asks = |(index, listener): (usize, &Listener)| {
        listener.kind == ListenerKind::Http && !cx.is_refused(&list.index(index).key("kind"))
    };
    file.listener.is_empty() || file.listener.iter().enumerate().any(asks)
}

fn shadowed(cx: &mut Cx<'_>, file: &File, list: &At<'_>) {
    let mut first: BTreeMap<String, usize> = BTreeMap::new();
    for (index, route) in file.route.iter().enumerate() {
        let at = list.index(index);
        if let Some(first) = first.get(&signature(route)) {
            let place = cx.place(&list.index(*first));
            let message = format!(
                "this route is never reached: the one at {} matches the same",
                cx.shown(&place)
            );
            let help = "routes with equal conditions are tried in the order of the file, and the first takes all";
            cx.warn(&at, "shadowed", message, help);
        } else {
            first.insert(signature(route), index);
        }
    }
}

fn unused(cx: &mut Cx<'_>, file: &File, used: &BTreeSet<&str>) {
    let pools = At::ROOT.key("pool");
    for name in file
        .pool
        .keys()
        .filter(|name| !used.contains(name.as_str()))
    {
        // Another program, or the next edit, may go by it.
        if cx.is_stored(&pools.key(name)) {
            continue;
        }
        cx.warn(
            &pools.key(name),
            "unused",
            format!("no route uses pool `{name}`"),
            "its backends are probed all the same",
        );
    }
}

fn listeners(cx: &mut Cx<'_>, file: &File, route: &Route, at: &At<'_>) {
    let names = || {
        let listeners = file.listener.iter();
        listeners.filter_map(|listener| listener.known_as())
    };
    for_each(&route.listener, &at.key("listener"), |name, at| {
        if !names().any(|known| *known == **name) {
            let known: Vec<_> = names().collect();
            let message = format!("there is no listener `{}`", name.escape_debug());
            let known = known.iter().map(|known| &**known);
            let message = cx.report.suggest(message, name, known);
            cx.error(at, "unknown_name", message);
        }
    });
}

fn conditions(cx: &mut Cx<'_>, route: &Route, at: &At<'_>) {
    let given: Vec<&str> = ["path", "prefix", "regex"]
        .into_iter()
        .filter(|key| cx.is_set(&at.key(key)))
        .collect();
    if let [first, second, ..] = given.as_slice() {
        let message =
            format!("a route has one of `path`, `prefix` and `regex`; `{first}` is there already");
        cx.error(&at.key(second), "contradiction", message);
    }
    for (key, path) in [("path", &route.path), ("prefix", &route.prefix)] {
        let odd = path
            .as_ref()
            .and_then(|path| NormalPath::parse(path.text.as_bytes()).ok())
            .and_then(|(_, odd)| odd);
        if let (Some(odd), false) = (odd, route.allow_odd_path) {
            let message = format!("this route is never reached: {odd}, which is answered 400");
            cx.warn(
                &at.key(key),
                "no_effect",
                message,
                "`allow_odd_path = true` lets such paths through",
            );
        }
    }
    for (key, values) in [("header", &route.header), ("query", &route.query)] {
        let at = at.key(key);
        for (name, value) in values {
            if matches!(value, ValueMatch::Present(false)) {
                cx.error_with(
                    &at.key(name),
                    "bad_value",
                    format!(
                        "`false` is no condition; only the presence of a {key} can be asked for"
                    ),
                    "write `true`, a value, or `{ regex = \"…\" }`",
                );
            }
        }
    }
}

fn action(cx: &mut Cx<'_>, route: &Route, at: &At<'_>) {
    let given: Vec<&str> = ACTIONS
        .into_iter()
        .filter(|key| cx.is_set(&at.key(key)))
        .collect();
    match given.as_slice() {
        [] if cx.is_partial(at) => {}
        [] => {
            let help = "`pool = \"NAME\"`, `chain`, `split`, `redirect` or `respond`";
            cx.error_with(at, "missing_key", "this route does nothing", help);
        }
        [_] => {}
        [first, others @ ..] => {
            for other in others {
                let message =
                    format!("a route does one thing; `{other}` cannot stand beside `{first}`");
                cx.error_with(
                    &at.key(other),
                    "contradiction",
                    message,
                    "make two routes of it, or leave one out",
                );
            }
        }
    }
    if let ["redirect" | "respond"] = given.as_slice() {
        let only_forwarding = [
            "split_key",
            "fallback",
            "settings",
            "request_headers",
            "rewrite",
            "timeouts",
            "body_max",
            "grpc_web",
        ];
        for key in only_forwarding
            .into_iter()
            .filter(|key| cx.is_set(&at.key(key)))
            .collect::<Vec<_>>()
        {
            let message = format!("`{key}` has no effect: this route forwards nothing");
            cx.warn(&at.key(key), "no_effect", message, "leave it out");
        }
    }
    if let Some(respond) = &route.respond
        && matches!(respond.status, 204 | 205 | 304)
        && !respond.body.is_empty()
    {
        let at = at.key("respond");
        cx.error(
            &at.key("body"),
            "contradiction",
            format!("an answer with status {} has no body", respond.status),
        );
    }
    if given == ["pool"] && cx.is_set(&at.key("split_key")) {
        cx.warn(
            &at.key("split_key"),
            "no_effect",
            "`split_key` has no effect without `split`",
            "`hash_key` of the pool places requests within it",
        );
    }
}

/// nginx's `$uri` and its like would be sent to the client as they stand.
fn location(cx: &mut Cx<'_>, route: &Route, at: &At<'_>) {
    let Some(location) = route.redirect.as_ref().and_then(|it| it.location.as_ref()) else {
        return;
    };
    for Reference { shown, .. } in references(&location.text) {
        let at = at.key("redirect");
        cx.warn(
            &at.key("location"),
            "no_effect",
            format!("`{shown}` stands for nothing: the client is sent it as it is"),
            "`{scheme}`, `{host}`, `{port}`, `{path}` and `{query}` stand for the request's",
        );
    }
}

fn pools<'f>(
    cx: &mut Cx<'_>,
    file: &'f File,
    route: &'f Route,
    at: &At<'_>,
    used: &mut BTreeSet<&'f str>,
) {
    used.extend(super::tcp::pools_of_route(file, route));
    let refer = |cx: &mut Cx<'_>, name: &str, at: &At<'_>| {
        super::tcp::known_pool(cx, file, name, at);
    };
    grpc_web(cx, file, route, at);
    if let Some(name) = &route.pool {
        refer(cx, name, &at.key("pool"));
    }
    if let Some(name) = &route.chain {
        // A chain's own pools are looked at with it.
        if !file.chain.contains_key(name) {
            refer(cx, name, &at.key("chain"));
        }
    }
    let Some(parts) = &route.split else { return };
    let list = at.key("split");
    let mut seen = Seen::new();
    for (index, part) in parts.iter().enumerate() {
        let Some(name) = &part.pool else { continue };
        let at = list.index(index);
        let at = at.key("pool");
        refer(cx, name, &at);
        seen.once(cx, &at, "pool", name);
    }
    let all_known = parts.iter().all(|part| part.weight.is_some());
    if all_known && parts.iter().all(|part| part.weight == Some(0)) {
        let message = if parts.is_empty() {
            "a split needs a pool"
        } else {
            "a split needs a weight above 0"
        };
        cx.error(&list, "bad_value", message);
    }
}

/// Pools that stand in for others: each once, and placing requests by the same key.
fn fallback<'f>(
    cx: &mut Cx<'_>,
    file: &'f File,
    route: &'f Route,
    at: &At<'_>,
    used: &mut BTreeSet<&'f str>,
) {
    let list = at.key("fallback");
    let mut seen = Seen::new();
    if let Some(name) = &route.pool {
        seen.once(cx, &at.key("pool"), "pool", name);
    }
    let first = route.pool.as_ref().and_then(|name| file.pool.get(name));
    for (index, name) in route.fallback.iter().enumerate() {
        let at = list.index(index);
        used.insert(name);
        super::tcp::known_pool(cx, file, name, &at);
        seen.once(cx, &at, "pool", name);
        let keys = first.zip(file.pool.get(name));
        if keys.is_some_and(|(first, pool)| {
            first.hash_key.as_ref().map(|key| &key.value)
                != pool.hash_key.as_ref().map(|key| &key.value)
        }) {
            let message = format!(
                "`{name}` places requests by another key than the pool that it stands in for: what falls back to it goes to any of its backends"
            );
            cx.warn(&at, "no_effect", message, "give both the same `hash_key`");
        }
    }
}

/// gRPC needs HTTP/2 on the way to the backend.
fn grpc_web(cx: &mut Cx<'_>, file: &File, route: &Route, at: &At<'_>) {
    if !route.grpc_web {
        return;
    }
    for name in super::tcp::pools_of_route(file, route) {
        let pool = file.pool.get(name);
        let pools = At::ROOT.key("pool");
        let is_unread = cx.is_refused(&pools.key(name).key("protocol"));
        if pool.is_some_and(|pool| pool.protocol == Protocol::Http1) && !is_unread {
            let message = format!("pool `{name}` speaks HTTP/1.1, and gRPC needs HTTP/2");
            let help = format!("`protocol = \"http2\"` in `[pool.{name}]`");
            cx.error_with(&at.key("grpc_web"), "contradiction", message, help);
        }
    }
}

fn rewrite(cx: &mut Cx<'_>, route: &Route, at: &At<'_>) {
    let Some(rewrite) = &route.rewrite else {
        return;
    };
    let prefix_at = at.key("prefix");
    let at = at.key("rewrite");
    let has = |cx: &Cx<'_>, key: &str| cx.is_set(&at.key(key));
    let (prefix, regex, to) = (has(cx, "prefix"), has(cx, "regex"), has(cx, "to"));
    let is_complete = prefix || (regex && to);
    if prefix && (regex || to) {
        cx.error(
            &at.key("prefix"),
            "contradiction",
            "a rewrite has either `prefix`, or `regex` and `to`",
        );
    } else if prefix && !cx.is_set(&prefix_at) {
        let help = "give the route a `prefix`, or use `rewrite = { regex = \"…\", to = \"…\" }`";
        cx.error_with(
            &at.key("prefix"),
            "contradiction",
            "`rewrite.prefix` replaces the route's `prefix`, and there is none",
            help,
        );
    } else if !is_complete && !cx.is_partial(&at) {
        cx.error_with(
            &at,
            "missing_key",
            "a rewrite needs `prefix`, or `regex` and `to`",
            "`rewrite = { regex = \"^/old/(.*)\", to = \"/new/$1\" }`",
        );
    }
    if let (Some(pattern), Some(to)) = (&rewrite.regex, &rewrite.to) {
        groups(cx, &pattern.value.anywhere, to, &at.key("to"));
    }
    if let Some(to) = &rewrite.to
        && let Some(bad) = to
            .chars()
            .find(|c| c.is_ascii_control() || *c == ' ' || !c.is_ascii() || *c == '#' || *c == '?')
    {
        cx.error(
            &at.key("to"),
            "bad_value",
            format!("`{}` cannot stand in a path", bad.escape_debug()),
        );
    }
}

/// A group that the pattern does not have would be replaced by nothing, and its text be lost without a word.
fn groups(cx: &mut Cx<'_>, pattern: &Regex, to: &str, at: &At<'_>) {
    let has = |name: &str| match name.parse::<usize>() {
        Ok(number) => number < pattern.captures_len(),
        Err(_) => pattern.capture_names().flatten().any(|known| known == name),
    };
    for Reference { shown, name } in references(to) {
        if has(name) {
            continue;
        }
        let message = format!(
            "`{}` stands for the group `{name}`, which `regex` does not have",
            shown.escape_debug()
        );
        // `$1x` is read as the group `1x`: a name goes on as far as it can.
        let end = (1..name.len())
            .rev()
            .find(|end| name.is_char_boundary(*end) && has(&name[..*end]));
        let meant = end.map(|end| in_file(&name[..end]) + &name[end..]);
        let message = did_you_mean(message, meant);
        let help = match pattern.captures_len() - 1 {
            0 => "`regex` has no groups: `(…)` makes one; `$$` stands for `$`".to_owned(),
            1 => "its only group is `$1`; `$$` stands for `$`".to_owned(),
            last => format!("its groups are `$1` to `${last}`; `$$` stands for `$`"),
        };
        cx.error_with(at, "unknown_name", message, help);
    }
}

/// A group as this file format writes it: `${name}` would be an environment variable, `${1}` is left alone.
fn in_file(group: &str) -> String {
    if group.bytes().all(|byte| byte.is_ascii_digit()) {
        format!("${{{group}}}")
    } else {
        format!("$${{{group}}}")
    }
}

/// A group that a replacement asks for.
struct Reference<'t> {
    shown: &'t str,
    name: &'t str,
}

/// The groups in `to`, read as `regex` reads them: `$$` is a dollar, `${name}` ends at its brace, `$name` at the
/// first character that is no letter, digit or `_`.
fn references(to: &str) -> Vec<Reference<'_>> {
    let mut found = Vec::new();
    let mut rest = to;
    while let Some(at) = rest.find('$') {
        let behind = &rest[at + 1..];
        let (shown, name) = if behind.starts_with('$') {
            ("$$", "")
        } else if let Some((name, _)) = behind.strip_prefix('{').and_then(|it| it.split_once('}')) {
            (&rest[at..at + name.len() + 3], name)
        } else {
            let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let end = behind.find(|c| !is_part(c)).unwrap_or(behind.len());
            (&rest[at..at + 1 + end], &behind[..end])
        };
        if !name.is_empty() {
            found.push(Reference { shown, name });
        }
        rest = &rest[at + shown.len()..];
    }
    found
}

/// Two routes with the same signature match the same requests.
fn signature(route: &Route) -> String {
    fn sorted<T: std::fmt::Debug>(values: impl Iterator<Item = T>) -> String {
        let mut values: Vec<String> = values.map(|value| format!("{value:?}")).collect();
        values.sort();
        values.join(",")
    }
    let path = match (&route.path, &route.prefix, &route.regex) {
        (Some(path), _, _) => format!("path {}", path.text),
        (_, Some(prefix), _) => format!("prefix {}", without_slash(&prefix.value)),
        (_, _, Some(regex)) => format!("regex {}", regex.text),
        (None, None, None) => "prefix /".to_owned(),
    };
    let value = |value: &ValueMatch| match value {
        ValueMatch::Present(_) => "there".to_owned(),
        ValueMatch::Exact(text) => format!("= {text:?}"),
        ValueMatch::Regex(regex) => {
            format!("~ {:?}", regex.regex.as_ref().map(|regex| &regex.text))
        }
    };
    let listeners = sorted(route.listener.as_slice().iter());
    let hosts = sorted(route.host.as_slice().iter().map(|host| &host.value));
    let methods = sorted(route.method.as_slice().iter().map(|method| &method.text));
    let headers = sorted(
        route
            .header
            .iter()
            .map(|(name, wanted)| (name.to_ascii_lowercase(), value(wanted))),
    );
    let query = sorted(
        route
            .query
            .iter()
            .map(|(name, wanted)| (name, value(wanted))),
    );
    let client = sorted(route.client.as_slice().iter().map(|network| network.value));
    [listeners, hosts, path, methods, headers, query, client].join("\n")
}

/// A prefix as it is matched: a slash at its end makes no difference.
pub(in super::super) fn without_slash(prefix: &PathText) -> &str {
    match prefix.0.trim_end_matches('/') {
        "" => "/",
        prefix => prefix,
    }
}

//! Rules of `[listener.tls]` and `[pool.NAME.tls]` that need no file.

use crate::config::report::Cx;
use crate::config::schema::{
    BackendEntry, ClientAuth, File, Group, Hsts, Listener, ListenerTls, Pool, PoolTls, Protocol,
    TicketChoice, TlsVersion,
};
use crate::config::text::Meaning;
use crate::config::text::{BackendAddress, TlsName};
use crate::config::tree::At;
use mizan_routing::Name;
use std::time::Duration;

/// What browsers want of those that they ship with.
const PRELOAD_MIN: Duration = Duration::from_secs(365 * 24 * 3600);

/// Ports that browsers take for `https://` without a number.
const HTTPS: u16 = 443;

pub(super) fn check(cx: &mut Cx<'_>, file: &File) {
    let list = At::ROOT.key("listener");
    for (index, listener) in file.listener.iter().enumerate() {
        let at = list.index(index);
        redirect(cx, listener, &at);
        if let Some(tls) = &listener.tls {
            server(cx, tls, &at.key("tls"));
            tickets(cx, file, tls, &at.key("tls"));
        }
    }
    let pools = At::ROOT.key("pool");
    for (name, pool) in &file.pool {
        let at = pools.key(name);
        protocol(cx, (name, pool), &at);
        if let Some(tls) = &pool.tls {
            client(cx, (name, pool), tls, &at);
        }
    }
}

fn redirect(cx: &mut Cx<'_>, listener: &Listener, at: &At<'_>) {
    let port = listener
        .redirect_to_https
        .and_then(|redirect| redirect.port());
    let at = at.key("redirect_to_https");
    let Some(port) = port else { return };
    if listener.tls.is_some() {
        cx.error_with(
            &at,
            "contradiction",
            "this listener speaks TLS itself: its clients would be redirected for ever",
            "set it on the plain listener",
        );
    }
    let bind = listener.bind.as_ref().and_then(|bind| bind.value.port());
    if bind == Some(port) {
        let message =
            format!("port {port} is this listener's own: its clients would come back for ever");
        let help = format!("give the port of the listener with TLS, or `true` for {HTTPS}");
        cx.error_with(&at, "loop", message, help);
    }
}

/// Where ticket keys come from.
fn tickets(cx: &mut Cx<'_>, file: &File, tls: &ListenerTls, at: &At<'_>) {
    let Some(TicketChoice::Full(tickets)) = &tls.tickets else {
        return;
    };
    let Some(name) = &tickets.store else { return };
    let at = at.key("tickets");
    let at = at.key("store");
    if tickets.file.is_some() {
        let message = "ticket keys come from a file or from the store, not from both";
        cx.error(&at, "contradiction", message);
    }
    if let Err(problem) = name.parse::<Name>() {
        cx.error(&at, "bad_name", format!("`{name}` is no name: {problem}"));
    }
    if !cx.has_store(file) {
        let message = "there is no store that ticket keys could come from";
        let help = "name one: `[store] address`, or `mizan serve --store`";
        cx.error_with(&at, "missing_key", message, help);
    }
}

fn server(cx: &mut Cx<'_>, tls: &ListenerTls, at: &At<'_>) {
    let certificates_at = at.key("certificates");
    if cx.list_len(&certificates_at) == Some(0) {
        cx.error_with(
            &certificates_at,
            "empty",
            "a listener with TLS needs a certificate",
            "`certificates = [{ cert = \"example.org.pem\", key = \"example.org.key\" }]`",
        );
    }
    if tls.min_version > tls.max_version {
        cx.error(
            &at.key("max_version"),
            "contradiction",
            "`max_version` is older than `min_version`",
        );
    }
    let groups_at = at.key("groups");
    if cx.list_len(&groups_at) == Some(0) {
        cx.error(
            &groups_at,
            "empty",
            "without a key exchange there is no handshake",
        );
    }
    let only_hybrid = tls
        .groups
        .iter()
        .all(|group| *group == Group::X25519MlKem768);
    if only_hybrid && !tls.groups.is_empty() && tls.max_version == TlsVersion::V12 {
        cx.error(
            &groups_at,
            "contradiction",
            "`x25519mlkem768` is of TLS 1.3: TLS 1.2 has no key exchange left",
        );
    }
    if let Some(hsts) = &tls.hsts {
        preload(cx, hsts, &at.key("hsts"));
    }
    if let Some(auth) = &tls.client_auth {
        identity(cx, auth, &at.key("client_auth"));
    }
}

fn preload(cx: &mut Cx<'_>, hsts: &Hsts, at: &At<'_>) {
    let is_enough = hsts.include_subdomains && hsts.max_age.value.0 >= PRELOAD_MIN;
    if hsts.preload && !is_enough {
        cx.warn(
            &at.key("preload"),
            "no_effect",
            "browsers ship only with names whose header says a year or more, and all names below",
            "`max_age = \"365d\"` and `include_subdomains = true`",
        );
    }
}

fn identity(cx: &mut Cx<'_>, auth: &ClientAuth, at: &At<'_>) {
    let at = at.key("headers");
    let headers = &auth.headers;
    let named = [
        ("verified", &headers.verified),
        ("subject", &headers.subject),
        ("san", &headers.san),
        ("fingerprint", &headers.fingerprint),
    ];
    for (index, (key, header)) in named.iter().enumerate() {
        let Some(name) = &header.value.0 else {
            continue;
        };
        let plain = |name: &str| name.replace('_', "-");
        let same = named[..index].iter().find(|(_, other)| {
            let other = other.value.0.as_deref();
            other.is_some_and(|other| plain(other) == plain(name))
        });
        if let Some((other, _)) = same {
            let message = format!("`{}` is the header of `{other}` already", header.text);
            cx.error(&at.key(key), "duplicate", message);
        }
    }
}

fn protocol(cx: &mut Cx<'_>, (name, pool): (&str, &Pool), at: &At<'_>) {
    let has_tls = pool.tls.is_some() || cx.is_set(&at.key("tls"));
    if pool.protocol == Protocol::Auto && !has_tls {
        cx.error_with(
            &at.key("protocol"),
            "missing_key",
            "`auto` lets the backend choose by ALPN, which is a part of TLS",
            format!("add `[pool.{name}.tls]`, or say `http1` or `http2`"),
        );
    }
    let Some(health) = &pool.health else { return };
    if health.tls == Some(true) && !has_tls {
        let health_at = at.key("health");
        cx.error_with(
            &health_at.key("tls"),
            "missing_key",
            "probes speak TLS as the pool does, and this pool does not",
            format!("add `[pool.{name}.tls]`, with `roots` and the like"),
        );
    }
}

fn client(cx: &mut Cx<'_>, (name, pool): (&str, &Pool), tls: &PoolTls, at: &At<'_>) {
    let tls_at = at.key("tls");
    let has_pins = cx
        .list_len(&tls_at.key("pin_sha256"))
        .is_some_and(|count| count > 0);
    if !tls.verify && !has_pins {
        cx.warn(
            &tls_at.key("verify"),
            "unverified",
            "whoever can answer at a backend's address can read and change everything",
            "set `roots` to the backends' own root, or `pin_sha256` to their key",
        );
    }
    let roots_at = tls_at.key("roots");
    if !tls.verify && cx.is_set(&roots_at) {
        let help = "take out `verify = false`, or `roots`";
        cx.warn(
            &roots_at,
            "no_effect",
            "`roots` has no effect with `verify = false`",
            help,
        );
    }
    if tls.server_name.is_some() || cx.is_set(&tls_at.key("server_name")) {
        return;
    }
    let list = at.key("backends");
    for (index, entry) in pool.backends.iter().enumerate() {
        let address = match entry {
            BackendEntry::Address(address) => address,
            BackendEntry::Full(backend) => match &backend.address {
                Some(address) => address,
                None => continue,
            },
        };
        let help = format!(
            "`server_name` in `[pool.{name}.tls]` says which name its certificate must hold"
        );
        match &address.value {
            BackendAddress::Unix(_) => {
                let message = "a Unix socket has no name that a certificate could hold";
                cx.error_with(&list.index(index), "missing_key", message, help);
            }
            BackendAddress::Name(address) => {
                let host = address
                    .rsplit_once(':')
                    .map_or(address.as_str(), |(host, _)| host);
                if TlsName::read(host).is_err() {
                    let message = format!("no certificate can hold the name `{host}`");
                    cx.error_with(&list.index(index), "missing_key", message, help);
                }
            }
            BackendAddress::Ip(_) => {}
        }
    }
}

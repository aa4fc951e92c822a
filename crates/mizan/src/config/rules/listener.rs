//! Rules of `[[listener]]`.

use super::{Seen, overlap};
use crate::config::diagnostic::Severity;
use crate::config::report::Cx;
use crate::config::schema::{File, Listener, ListenerKind};
use crate::config::tree::{At, Place};
use crate::snapshot::Bind;
use std::net::SocketAddr;

pub(super) fn check(cx: &mut Cx<'_>, file: &File) {
    let list = At::ROOT.key("listener");
    if file.listener.is_empty() && !cx.is_set(&list) && !cx.is_partial(&At::ROOT) {
        cx.error_with(
            &list,
            "missing_key",
            "there is no listener",
            "`[[listener]]` with `bind = \"0.0.0.0:8000\"` accepts clients",
        );
    }
    let mut names = Seen::new();
    let mut sockets = Seen::new();
    // TCP and UDP have ports of their own.
    let mut bound: Vec<(bool, SocketAddr, Place)> = Vec::new();
    for (index, listener) in file.listener.iter().enumerate() {
        let at = list.index(index);
        let bind_at = at.key("bind");
        if let Some(name) = &listener.name {
            names.once(cx, &at.key("name"), "listener", name);
        }
        match listener.bind.as_ref().map(|bind| &bind.value) {
            Some(Bind::Tcp(address) | Bind::Udp(address)) => {
                let is_udp = listener.kind == ListenerKind::Udp;
                let taken = bound
                    .iter()
                    .find(|(udp, other, _)| *udp == is_udp && overlap(*other, *address));
                if let Some((_, other, place)) = taken {
                    let message =
                        format!("`{address}` is taken by `{other}` at {}", cx.shown(place));
                    let help = "`[::]` and `0.0.0.0` take the port of every address";
                    let help = (other != address).then(|| help.to_owned());
                    cx.tell(
                        &bind_at.steps(),
                        Severity::Error,
                        "duplicate",
                        message,
                        help,
                    );
                }
                bound.push((is_udp, *address, cx.place(&bind_at)));
            }
            Some(Bind::Unix(path)) => {
                sockets.once(cx, &bind_at, "socket", &path.display().to_string())
            }
            None => {}
        }
        if !matches!(
            listener.bind.as_ref().map(|bind| &bind.value),
            None | Some(Bind::Unix(_))
        ) {
            let mode_at = at.key("mode");
            if cx.is_set(&mode_at) {
                let help = "leave it out, or `bind = \"unix:/run/mizan/http.sock\"`";
                cx.warn(
                    &mode_at,
                    "no_effect",
                    "`mode` has an effect on a Unix socket only",
                    help,
                );
            }
        }
        limits(cx, listener, &at);
        without_http2(cx, listener, &at);
    }
}

/// Limits on what is not spoken. Of other kinds of listeners they are told with all that only HTTP has.
fn without_http2(cx: &mut Cx<'_>, listener: &Listener, at: &At<'_>) {
    let limits_at = at.key("http2_limits");
    if listener.kind == ListenerKind::Http && !listener.http2 && cx.is_set(&limits_at) {
        let message = "`http2_limits` has no effect with `http2 = false`";
        let help = "leave one of them out";
        cx.warn(&limits_at, "no_effect", message, help);
    }
}

fn limits(cx: &mut Cx<'_>, listener: &Listener, at: &At<'_>) {
    if listener.target_max.value > listener.head_max.value {
        let message = format!(
            "a target of {} does not fit into a head of {}",
            listener.target_max.text, listener.head_max.text
        );
        cx.error(&at.key("target_max"), "contradiction", message);
    }
    let limits = &listener.http2_limits;
    let at_limits = at.key("http2_limits");
    super::windows(cx, &at_limits, &limits.window, &limits.connection_window);
    if listener.trusted_depth > 0 && !listener.trusted_proxies.is_empty() {
        let message = "`trusted_depth` believes every peer, so `trusted_proxies` means nothing beside it; keep the \
                       networks if you know them, the depth if not"
            .to_owned();
        cx.error(&at.key("trusted_depth"), "contradiction", message);
    }
    for (index, network) in listener.trusted_proxies.iter().enumerate() {
        if network.value.prefix_len() == 0 {
            let list = at.key("trusted_proxies");
            let message = format!(
                "`{}` believes every client's word about its own address",
                network.text
            );
            cx.warn(
                &list.index(index),
                "forgeable",
                message,
                "name the networks of your own proxies",
            );
        }
    }
}

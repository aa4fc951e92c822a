//! Rules of `[store]`, and of what comes from it.

use crate::config::report::Cx;
use crate::config::schema::{BackendEntry, File};
use crate::config::text::BackendAddress;
use crate::config::tree::At;
use crate::snapshot::StoreAddress;

pub(super) fn check(cx: &mut Cx<'_>, file: &File) {
    settings(cx, file);
    backend_networks(cx, file);
}

/// What only etcd gives a meaning, and what belongs together.
fn settings(cx: &mut Cx<'_>, file: &File) {
    let at = At::ROOT.key("store");
    let store = &file.store;
    let asks_nobody = match store.address.as_ref().map(|address| &address.value) {
        Some(StoreAddress::Embedded(_)) => Some("an embedded store asks nobody who they are"),
        Some(StoreAddress::Instance(_)) => Some("who may open an instance's socket may use it"),
        Some(StoreAddress::Etcd(_)) | None => None,
    };
    for key in ["tls", "user", "password_file"] {
        if let Some(why) = asks_nobody
            && cx.is_set(&at.key(key))
        {
            let message = format!("`{key}` has no effect: {why}");
            cx.warn(
                &at.key(key),
                "no_effect",
                message,
                "leave it out, or name an etcd",
            );
        }
    }
    if store.user.is_some() != store.password_file.is_some() {
        let (there, missing) = match store.user {
            Some(_) => ("user", "password_file"),
            None => ("password_file", "user"),
        };
        let message = format!("`{there}` needs `{missing}` beside it");
        cx.error(&at.key(there), "missing_key", message);
    }
    if let Some(tls) = &store.tls
        && tls.cert.is_some() != tls.key.is_some()
    {
        let (there, missing) = match tls.cert {
            Some(_) => ("cert", "key"),
            None => ("key", "cert"),
        };
        let message = format!("`{there}` needs `{missing}` beside it");
        let at = at.key("tls");
        cx.error(&at.key(there), "missing_key", message);
    }
}

/// Whoever may write to the store must not be able to send requests anywhere at all.
fn backend_networks(cx: &mut Cx<'_>, file: &File) {
    let networks = &file.store.backend_networks;
    if networks.is_empty() {
        return;
    }
    let list = At::ROOT.key("pool");
    for (name, pool) in &file.pool {
        let at = list.key(name);
        if !cx.is_stored(&at) {
            continue;
        }
        let backends = at.key("backends");
        for (index, backend) in pool.backends.iter().enumerate() {
            let address = match backend {
                BackendEntry::Address(address) => address,
                BackendEntry::Full(table) => match &table.address {
                    Some(address) => address,
                    None => continue,
                },
            };
            let is_inside = match &address.value {
                BackendAddress::Ip(ip) => networks.iter().any(|it| it.value.contains(&ip.ip())),
                BackendAddress::Unix(_) => false,
                // What it stands for is looked at when it is resolved.
                BackendAddress::Name(_) => true,
            };
            if !is_inside {
                let message = format!(
                    "`{}` is in none of the file's `backend_networks`",
                    address.text
                );
                let at = backends.index(index);
                cx.error(&at.key("address"), "refused", message);
            }
        }
    }
}

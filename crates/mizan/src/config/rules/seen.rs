//! Rules of what routes and keys ask of a request's headers: they see what a backend would, not what a client wrote.

use crate::config::report::Cx;
use crate::config::schema::{File, IdentityHeaders};
use crate::config::tree::At;
use crate::h1::field::{Field, classify, is_same_folded};
use crate::snapshot::HashKey;

pub(super) fn check(cx: &mut Cx<'_>, file: &File) {
    let told = Told::of(file);
    let routes = At::ROOT.key("route");
    for (index, route) in file.route.iter().enumerate() {
        let at = routes.index(index);
        for name in route.header.keys() {
            told.check(cx, name, &at.key("header").key(name));
        }
        if let Some(key) = &route.split_key {
            told.check_key(cx, &key.value, &at.key("split_key"));
        }
    }
    let pools = At::ROOT.key("pool");
    for (name, pool) in &file.pool {
        if let Some(key) = &pool.hash_key {
            told.check_key(cx, &key.value, &pools.key(name).key("hash_key"));
        }
    }
}

/// The names under which backends are told who a client is by its certificate.
struct Told {
    names: Vec<String>,
    presets: Vec<String>,
}

impl Told {
    fn of(file: &File) -> Self {
        let names = |headers: &IdentityHeaders| {
            let all = [
                &headers.verified,
                &headers.subject,
                &headers.san,
                &headers.fingerprint,
            ];
            all.into_iter()
                .filter_map(|name| name.value.0.clone())
                .collect::<Vec<_>>()
        };
        let auths = file.listener.iter().filter_map(|listener| {
            let tls = listener.tls.as_ref()?;
            tls.client_auth.as_ref()
        });
        Self {
            names: auths.flat_map(|auth| names(&auth.headers)).collect(),
            presets: names(&IdentityHeaders::default()),
        }
    }

    /// A key is no condition: whoever is hashed by an address wants the same one by every way.
    fn check_key(&self, cx: &mut Cx<'_>, key: &HashKey, at: &At<'_>) {
        let HashKey::Header(name) = key else { return };
        self.check(cx, name, at);
        let field = classify(name.as_bytes());
        if matches!(field, Field::XForwardedFor | Field::Forwarded) {
            cx.warn(
                at,
                "unstable",
                format!("`{name}` ends with the address of whoever connects: another proxy in front, another key"),
                "`client_address` is the client under `trusted_proxies`",
            );
        } else if matches!(field, Field::XRequestId | Field::Traceparent) {
            let help = "`client_address`, `cookie:NAME` or a header that stays the same";
            let message = format!("`{name}` is another one with each request");
            cx.warn(at, "unstable", message, help);
        }
    }

    fn check(&self, cx: &mut Cx<'_>, name: &str, at: &At<'_>) {
        let is_known = |known: &String| known.eq_ignore_ascii_case(name);
        let lookalike = |known: &String| is_same_folded(known.as_bytes(), name.as_bytes());
        if self.names.iter().any(is_known) {
            return;
        }
        if let Some(known) = self.names.iter().find(|known| lookalike(known)) {
            let message =
                format!("no request has `{name}`: it is taken away as a look-alike of `{known}`");
            cx.warn(at, "no_effect", message, format!("write `{known}`"));
        } else if classify(name.as_bytes()) == Field::IdentityLookalike {
            let known = name.replace('_', "-");
            let message =
                format!("no request has `{name}`: it is taken away as a look-alike of `{known}`");
            cx.warn(at, "no_effect", message, format!("write `{known}`"));
        } else if self.presets.iter().any(lookalike) {
            cx.warn(
                at,
                "forgeable",
                format!("no listener sets `{name}`: whoever sends it has it"),
                "a listener sets it that has `client_auth` in its `tls`, if `headers` there does not rename it",
            );
        }
    }
}

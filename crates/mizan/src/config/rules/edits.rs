//! Rules of header edits.

use crate::config::report::Cx;
use crate::config::schema::{File, HeaderEdits, Route};
use crate::config::tree::At;
use std::collections::BTreeMap;

/// Fields that frame a message, belong to one connection, or say where a request goes (RFC 9110 §7.6.1).
const FIXED: [(&str, &str); 12] = [
    ("connection", "belongs to one connection"),
    (
        "content-length",
        "frames the message: a wrong one lets requests be smuggled",
    ),
    ("expect", "belongs to one connection"),
    (
        "host",
        "says where the request goes, and cannot be edited yet",
    ),
    ("http2-settings", "belongs to one connection"),
    ("keep-alive", "belongs to one connection"),
    ("proxy-authenticate", "belongs to one connection"),
    ("proxy-connection", "belongs to one connection"),
    ("te", "belongs to one connection"),
    ("trailer", "frames the message"),
    (
        "transfer-encoding",
        "frames the message: a wrong one lets requests be smuggled",
    ),
    ("upgrade", "belongs to one connection"),
];

pub(super) fn check(cx: &mut Cx<'_>, edits: &HeaderEdits, at: &At<'_>) {
    let remove = at.key("remove");
    for (index, name) in edits.remove.iter().enumerate() {
        if let Some(message) = fixed(&name.value.0) {
            cx.error(&remove.index(index), "refused", message);
        }
    }
    for (key, fields) in [("set", &edits.set), ("add", &edits.add)] {
        let at = at.key(key);
        let mut seen: BTreeMap<String, &str> = BTreeMap::new();
        for name in fields.keys() {
            let at = at.key(name);
            if let Some(message) = fixed(name) {
                cx.error_on_key(&at, "refused", message);
            }
            if let Some(first) = seen.insert(name.to_ascii_lowercase(), name) {
                cx.error_on_key(
                    &at,
                    "duplicate",
                    format!("`{first}` and `{name}` are one header: names do not differ by case"),
                );
            }
        }
    }
}

/// Settings become headers only by names that the file allows, whoever writes the store.
pub(super) fn settings(cx: &mut Cx<'_>, file: &File, route: &Route, at: &At<'_>) {
    let settings = at.key("settings");
    for name in route.settings.keys() {
        let at = settings.key(name);
        if let Some(message) = fixed(name) {
            cx.error_on_key(&at, "refused", message);
            continue;
        }
        let mut allowed = file.store.headers.iter();
        if !allowed.any(|it| it.value.0.eq_ignore_ascii_case(name)) {
            let message = format!(
                "`{name}` is none of `headers` in the file's `[store]`: settings become no other"
            );
            cx.error_on_key(&at, "refused", message);
        }
    }
    if route.settings.is_empty() && cx.is_set(&at.key("language")) {
        let message = "`language` has no effect without `settings`";
        cx.warn(&at.key("language"), "no_effect", message, "leave it out");
    }
}

/// Why a field cannot be edited. `_` counts as `-`: some backends fold the two.
fn fixed(name: &str) -> Option<String> {
    let folded = name.to_ascii_lowercase().replace('_', "-");
    let (_, why) = FIXED.iter().find(|(fixed, _)| *fixed == folded)?;
    Some(format!("`{name}` cannot be edited: it {why}"))
}

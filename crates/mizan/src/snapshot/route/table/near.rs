//! Which routes a request nearly takes, for people who wonder why it does not.
//!
//! Looks at every entry of the matching order one by one, by the letter of the documentation, where a look-up goes
//! through hashes and trees; that both come to the same is tested with many tables. Never on the hot path.

use super::{Entry, RouteTable, conditions, without_root_dot};
use crate::snapshot::route::{HostMatch, PathMatch, RequestView, Route};
use std::sync::Arc;

/// Most near misses that are listed.
pub(super) const NEAR_MAX: usize = 8;
/// Texts that differ by so many letters may be slips of the pen.
const SLIP: usize = 2;

/// A condition that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// Of what: `host`, `path`, `method`, `listener`, `client`, `header x-beta`, `query v`.
    pub what: String,
    /// What the route wants.
    pub wanted: String,
    /// What the request has; `None`: nothing.
    pub saw: Option<String>,
}

/// A route that a request nearly takes.
#[derive(Clone, Debug)]
pub struct Near<'a> {
    /// The route, and the host that it is matched under here.
    pub entry: Entry<'a>,
    /// What does not hold; empty: all holds, but a more specific route is asked first.
    pub failed: Vec<Failed>,
}

/// How near, the nearest first: of equals the more specific route.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Distance {
    /// Host and path match.
    Conditions(usize),
    /// All holds.
    Later,
    /// All but the path holds, and that is alike.
    Path,
    /// All but the host holds, and that is alike.
    Host,
}

impl RouteTable {
    /// The routes that a request on `listener` nearly takes, the nearest first: those of its host and path whose
    /// conditions fail, those that stand behind the one it takes, and those of a host or path much like its own. At
    /// most eight; and how many more there are.
    pub fn near(&self, listener: &str, view: &impl RequestView) -> (Vec<Near<'_>>, usize) {
        let taken = self.find(listener, view).map(Arc::as_ptr);
        let mut found: Vec<(Distance, Near<'_>)> = Vec::new();
        for entry in self.entries() {
            if Some(Arc::as_ptr(entry.route)) == taken {
                continue;
            }
            if let Some((distance, failed)) = compare(entry, listener, view) {
                found.push((distance, Near { entry, failed }));
            }
        }
        // Stable: entries come in matching order.
        found.sort_by_key(|(distance, _)| *distance);
        let more = found.len().saturating_sub(NEAR_MAX);
        let near = found.into_iter().take(NEAR_MAX).map(|(_, near)| near);
        (near.collect(), more)
    }
}

fn compare(
    entry: Entry<'_>,
    listener: &str,
    view: &impl RequestView,
) -> Option<(Distance, Vec<Failed>)> {
    let host = without_root_dot(view.host());
    let of_host = is_host(entry.host, host);
    let of_path = is_path(&entry.route.path, view.path());
    let failed = || conditions::failed(entry.route, listener, view);
    let differs = |what: &str, wanted: String, saw: &str| Failed {
        what: what.into(),
        wanted,
        saw: (!saw.is_empty()).then(|| saw.to_owned()),
    };
    match (of_host, of_path) {
        (true, true) => {
            let failed = failed();
            let distance = match failed.len() {
                0 => Distance::Later,
                count => Distance::Conditions(count),
            };
            Some((distance, failed))
        }
        (true, false) if is_path_alike(entry.route, view.path()) && failed().is_empty() => {
            let failed = differs("path", path_text(&entry.route.path), view.path());
            Some((Distance::Path, vec![failed]))
        }
        (false, true) if is_host_alike(entry.host?, host) && failed().is_empty() => {
            let failed = differs("host", host_text(entry.host?), host);
            Some((Distance::Host, vec![failed]))
        }
        _ => None,
    }
}

/// A host to match as it is written in a file.
pub fn host_text(host: &HostMatch) -> String {
    match host {
        HostMatch::Exact(name) => name.clone(),
        HostMatch::Wildcard(name) => format!("*.{name}"),
    }
}

/// A path to match: `= /exact`, `/prefix/*` or `~ regex`.
pub fn path_text(path: &PathMatch) -> String {
    match path {
        PathMatch::Exact(path) => format!("= {path}"),
        PathMatch::Prefix(path) => format!("{}/*", path.trim_end_matches('/')),
        PathMatch::Regex(regex) => format!("~ {regex}"),
    }
}

/// Whether `name`, without a root dot, is a host that is matched by `host`.
pub(super) fn is_host(host: Option<&HostMatch>, name: &str) -> bool {
    match host {
        None => true,
        Some(HostMatch::Exact(exact)) => without_root_dot(exact) == name,
        Some(HostMatch::Wildcard(below)) => name
            .strip_suffix(without_root_dot(below))
            .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
    }
}

/// Whether `path` is matched by `pattern`.
pub(super) fn is_path(pattern: &PathMatch, path: &str) -> bool {
    match pattern {
        PathMatch::Exact(exact) => exact == path,
        PathMatch::Prefix(prefix) => {
            let base = prefix.strip_suffix('/').unwrap_or(prefix);
            path.strip_prefix(base)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        }
        PathMatch::Regex(regex) => regex.is_match(path.as_bytes()),
    }
}

/// Whether whoever wrote one may have meant the other: one is a part of the other, or they differ by letters.
fn is_path_alike(route: &Route, path: &str) -> bool {
    let wanted = match &route.path {
        PathMatch::Exact(wanted) | PathMatch::Prefix(wanted) => wanted.trim_end_matches('/'),
        PathMatch::Regex(regex) => return is_regex_alike(regex.as_str(), path),
    };
    is_begin_alike(wanted, path)
}

/// Whether `path` begins much like `wanted`, or is `wanted` but for case or a slash at its end.
fn is_begin_alike(wanted: &str, path: &str) -> bool {
    if wanted.is_empty() {
        return false;
    }
    // What a prefix is about is as long as it is.
    let deep = wanted.matches('/').count();
    let end = path.match_indices('/').nth(deep).map(|(at, _)| at);
    let begun = &path[..end.unwrap_or(path.len())];
    is_slip(wanted, begun)
        || wanted.to_lowercase() == begun.to_lowercase()
        || begun.starts_with(wanted)
        || path.trim_end_matches('/') == wanted
}

/// Whether `path` would match but for case or a slash at its end, or begins much like what the expression begins with.
fn is_regex_alike(pattern: &str, path: &str) -> bool {
    let other = match path.strip_suffix('/') {
        Some(path) => path.to_owned(),
        None => format!("{path}/"),
    };
    let whatever_case = regex::bytes::RegexBuilder::new(pattern)
        .case_insensitive(true)
        .build();
    let would_match = whatever_case
        .is_ok_and(|regex| regex.is_match(path.as_bytes()) || regex.is_match(other.as_bytes()));
    would_match || is_begin_alike(literal_begin(pattern), path)
}

/// The whole segments that an expression begins with, as far as they stand in it letter by letter: `/users` of
/// `^(?:/users/[0-9]+)$`.
fn literal_begin(pattern: &str) -> &str {
    let body = pattern.strip_prefix("^(?:").unwrap_or(pattern);
    let body = body.strip_prefix('^').unwrap_or(body);
    // Alternatives begin with several.
    if body.contains('|') {
        return "";
    }
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '/' | '-' | '_' | '~');
    let end = body.find(|c| !is_plain(c)).unwrap_or(body.len());
    match body[..end].rfind('/') {
        Some(slash) => &body[..slash],
        None => "",
    }
}

fn is_host_alike(host: &HostMatch, name: &str) -> bool {
    let (HostMatch::Exact(wanted) | HostMatch::Wildcard(wanted)) = host;
    let is_below = |below: &str, above: &str| {
        below
            .strip_suffix(above)
            .is_some_and(|rest| rest.ends_with('.'))
    };
    is_slip(wanted, name) || wanted == name || is_below(name, wanted) || is_below(wanted, name)
}

fn is_slip(wanted: &str, saw: &str) -> bool {
    /// Longer texts are not compared letter by letter.
    const LONGEST: usize = 128;
    let close = wanted.len().abs_diff(saw.len()) <= SLIP;
    close
        && wanted.len() <= LONGEST
        && wanted.len() > 2 * SLIP
        && strsim::damerau_levenshtein(&wanted.to_lowercase(), &saw.to_lowercase()) <= SLIP
}

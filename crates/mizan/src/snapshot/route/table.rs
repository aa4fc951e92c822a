//! Which route a request takes.
//!
//! The order is by specificity, not by place in the file, so that moving a route about changes nothing:
//!
//! 1. host: exact, then wildcards from the longest, then routes that name no host;
//! 2. within a host, path: exact, then prefixes from the longest, then regexes in file order, then routes for
//!    all paths (the prefix `/`), which say least;
//! 3. within a path: the route with more conditions (a listener, a method, a client address, each
//!    header, each query parameter) before the one with fewer;
//! 4. then file order.
//!
//! The first route in this order whose conditions all hold is taken; if none of a path's routes holds,
//! the next less specific path is asked, then the next less specific host. A route with several hosts
//! stands in the order once for each: see [`RouteTable::entries`].
//!
//! A look-up costs one hash of the host (and one for each label, if there are wildcards), one of the
//! path (if there are exact paths) and one for each segment that some prefix begins with. Only regexes
//! of a host, and routes of one host and path that differ by their conditions, are tried one by one.

mod conditions;
mod hash;
mod near;
mod paths;
#[cfg(test)]
mod tests;

use super::{HostMatch, RequestView, Route};
use hash::FastMap;
pub use near::{Failed, Near, host_text, path_text};
use paths::Paths;
use std::collections::HashSet;
use std::sync::Arc;

/// All routes, compiled for look-up.
#[derive(Debug, Default)]
pub struct RouteTable {
    routes: Vec<Arc<Route>>,
    exact: FastMap<Paths>,
    /// By the name under which all are matched: `*.example.org` as `example.org`.
    wildcards: FastMap<Paths>,
    /// Length in bytes of the longest key of `wildcards`: bounds the work that a hostile name can cause.
    wildcard_bytes_max: usize,
    any: Paths,
    /// Exact hosts and then wildcards, in matching order.
    hosts: Vec<HostMatch>,
}

/// One place in the matching order.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The host that the route is matched under here; `None`: any.
    pub host: Option<&'a HostMatch>,
    /// The route.
    pub route: &'a Arc<Route>,
}

impl RouteTable {
    /// Compiles `routes`, which are in file order.
    pub fn build(routes: Vec<Arc<Route>>) -> Self {
        let mut table = Self {
            routes,
            ..Self::default()
        };
        for route in &table.routes {
            if route.hosts.is_empty() {
                table.any.insert(route);
            }
            for (at, host) in route.hosts.iter().enumerate() {
                if route.hosts[..at].contains(host) {
                    continue;
                }
                let (map, name) = match host {
                    HostMatch::Exact(name) => (&mut table.exact, without_root_dot(name)),
                    HostMatch::Wildcard(name) => {
                        table.wildcard_bytes_max = table.wildcard_bytes_max.max(name.len());
                        (&mut table.wildcards, without_root_dot(name))
                    }
                };
                let paths = map.entry(name.into()).or_insert_with(|| {
                    table.hosts.push(host.clone());
                    Paths::default()
                });
                paths.insert(route);
            }
        }
        table.hosts.sort_by_key(|host| match host {
            HostMatch::Exact(_) => (0, 0),
            HostMatch::Wildcard(name) => (1, usize::MAX - name.len()),
        });
        table
            .exact
            .values_mut()
            .chain(table.wildcards.values_mut())
            .chain([&mut table.any])
            .for_each(Paths::finish);
        table
    }

    /// The route for a request on `listener`: the most specific one whose conditions all hold.
    pub fn find(&self, listener: &str, view: &impl RequestView) -> Option<&Arc<Route>> {
        let host = without_root_dot(view.host());
        if !self.exact.is_empty()
            && let Some(route) = self
                .exact
                .get(host)
                .and_then(|paths| paths.find(listener, view))
        {
            return Some(route);
        }
        if !self.wildcards.is_empty()
            && let Some(route) = self.find_by_wildcard(host, listener, view)
        {
            return Some(route);
        }
        self.any.find(listener, view)
    }

    fn find_by_wildcard(
        &self,
        host: &str,
        listener: &str,
        view: &impl RequestView,
    ) -> Option<&Arc<Route>> {
        // The first byte may be no dot: `*` stands for at least one label.
        let first = host
            .len()
            .saturating_sub(self.wildcard_bytes_max + 1)
            .max(1);
        let dots = memchr::memchr_iter(b'.', host.as_bytes().get(first..)?);
        dots.map(|at| &host[first + at + 1..])
            .filter_map(|suffix| self.wildcards.get(suffix))
            .find_map(|paths| paths.find(listener, view))
    }

    /// The matching order in full: a route with several hosts is there once for each.
    pub fn entries(&self) -> Vec<Entry<'_>> {
        let named = self.hosts.iter().map(|host| {
            let paths = match host {
                HostMatch::Exact(name) => &self.exact[without_root_dot(name)],
                HostMatch::Wildcard(name) => &self.wildcards[without_root_dot(name)],
            };
            (Some(host), paths)
        });
        named
            .chain([(None, &self.any)])
            .flat_map(|(host, paths)| {
                paths
                    .in_order()
                    .into_iter()
                    .map(move |route| Entry { host, route })
            })
            .collect()
    }

    /// The matching order, each route once, at its most specific place.
    pub fn in_order(&self) -> Vec<&Arc<Route>> {
        let mut listed = HashSet::new();
        let entries = self.entries().into_iter();
        entries
            .map(|entry| entry.route)
            .filter(|route| listed.insert(Arc::as_ptr(route)))
            .collect()
    }

    /// The routes in file order.
    pub fn routes(&self) -> &[Arc<Route>] {
        &self.routes
    }
}

/// `example.org.` is the same name as `example.org` (RFC 1034 §3.1).
fn without_root_dot(host: &str) -> &str {
    host.strip_suffix('.').unwrap_or(host)
}

//! The routes of one host, by path.

use super::conditions;
use super::hash::FastMap;
use crate::snapshot::route::{PathMatch, RequestView, Route};
use regex::bytes::Regex;
use std::cmp::Reverse;
use std::sync::Arc;

/// Routes that differ by their conditions only: those with more first, then file order.
type Candidates = Vec<Arc<Route>>;

/// The routes of one host.
#[derive(Debug, Default)]
pub(super) struct Paths {
    exact: FastMap<Candidates>,
    /// Length in bytes of the longest key of `exact`: a longer path need not be hashed.
    exact_bytes_max: usize,
    prefixes: Prefixes,
    /// In the order in which each regex first stands in the file.
    regexes: Vec<(Regex, Candidates)>,
    /// By the regex's text, an index into `regexes`.
    regex_at: FastMap<usize>,
}

impl Paths {
    /// Adds a route; routes come in file order.
    pub(super) fn insert(&mut self, route: &Arc<Route>) {
        let candidates = match &route.path {
            PathMatch::Exact(path) => {
                self.exact_bytes_max = self.exact_bytes_max.max(path.len());
                self.exact.entry(path.as_str().into()).or_default()
            }
            PathMatch::Prefix(prefix) => self.prefixes.candidates_mut(prefix),
            PathMatch::Regex(regex) => {
                let at = *self
                    .regex_at
                    .entry(regex.as_str().into())
                    .or_insert(self.regexes.len());
                if at == self.regexes.len() {
                    self.regexes.push((regex.clone(), Candidates::new()));
                }
                &mut self.regexes[at].1
            }
        };
        candidates.push(Arc::clone(route));
    }

    /// Brings all candidates into order; called once, after the last insert.
    pub(super) fn finish(&mut self) {
        let exact = self.exact.values_mut();
        let prefixes = self
            .prefixes
            .nodes
            .iter_mut()
            .map(|node| &mut node.candidates);
        let regexes = self.regexes.iter_mut().map(|(_, candidates)| candidates);
        for candidates in exact.chain(prefixes).chain(regexes) {
            // Stable: among equals the order of insertion, which is the file's, stays.
            candidates.sort_by_key(|route| Reverse(conditions::count(route)));
        }
    }

    /// The most specific route whose path and conditions hold.
    pub(super) fn find(&self, listener: &str, view: &impl RequestView) -> Option<&Arc<Route>> {
        let path = view.path();
        let holds = |route: &&Arc<Route>| conditions::hold(route, listener, view);
        if path.len() <= self.exact_bytes_max
            && let Some(candidates) = self.exact.get(path)
            && let Some(route) = candidates.iter().find(holds)
        {
            return Some(route);
        }
        let prefixes = self
            .prefixes
            .longest_first(path)
            .map(|node| &node.candidates);
        let regexes = self
            .regexes
            .iter()
            .filter(|(regex, _)| regex.is_match(path.as_bytes()));
        prefixes
            .chain(regexes.map(|(_, candidates)| candidates))
            .chain([&self.prefixes.nodes[0].candidates])
            .flatten()
            .find(holds)
    }

    /// The routes in matching order; those of paths that no request could meet together in file order.
    pub(super) fn in_order(&self) -> Vec<&Arc<Route>> {
        let mut exact: Vec<_> = self.exact.values().collect();
        exact.sort_by_key(|candidates| first_in_file(candidates));
        let mut prefixes: Vec<_> = self
            .prefixes
            .nodes
            .iter()
            .filter(|node| node.depth > 0 && !node.candidates.is_empty())
            .collect();
        prefixes.sort_by_key(|node| (Reverse(node.depth), first_in_file(&node.candidates)));
        let exact = exact.into_iter().flatten();
        let prefixes = prefixes.into_iter().flat_map(|node| &node.candidates);
        let regexes = self.regexes.iter().flat_map(|(_, candidates)| candidates);
        let all = &self.prefixes.nodes[0].candidates;
        exact.chain(prefixes).chain(regexes).chain(all).collect()
    }
}

fn first_in_file(candidates: &Candidates) -> usize {
    candidates
        .iter()
        .map(|route| route.index)
        .min()
        .unwrap_or(usize::MAX)
}

/// Prefixes as a tree of segments: one step down for each segment of the path until no prefix goes on,
/// then back up over those that have routes.
#[derive(Debug)]
struct Prefixes {
    /// The first is the root: the prefix `/`.
    nodes: Vec<Node>,
}

#[derive(Debug, Default)]
struct Node {
    /// By segment, an index into [`Prefixes::nodes`].
    children: FastMap<usize>,
    /// Routes with exactly this prefix.
    candidates: Candidates,
    /// The node above; the root is its own.
    parent: usize,
    /// Segments from the root.
    depth: usize,
}

impl Default for Prefixes {
    fn default() -> Self {
        Self {
            nodes: vec![Node::default()],
        }
    }
}

impl Prefixes {
    /// The routes of `prefix`, which is made if it is new. A slash at its end says nothing: whole
    /// segments are matched in any case.
    fn candidates_mut(&mut self, prefix: &str) -> &mut Candidates {
        let mut at = 0;
        for segment in segments_of(prefix) {
            let known = self.nodes[at].children.get(segment).copied();
            at = known.unwrap_or_else(|| {
                let new = self.nodes.len();
                self.nodes.push(Node {
                    parent: at,
                    depth: self.nodes[at].depth + 1,
                    ..Node::default()
                });
                self.nodes[at].children.insert(segment.into(), new);
                new
            });
        }
        &mut self.nodes[at].candidates
    }

    /// The nodes that are a prefix of `path`, from the longest and without the root, which matches all and is
    /// asked last; some have no routes.
    fn longest_first(&self, path: &str) -> impl Iterator<Item = &Node> {
        let mut deepest = 0;
        if let Some(path) = path.strip_prefix('/') {
            for segment in path.split('/') {
                let Some(child) = self.nodes[deepest].children.get(segment) else {
                    break;
                };
                deepest = *child;
            }
        }
        std::iter::successors(Some(&self.nodes[deepest]), |node| {
            Some(&self.nodes[node.parent])
        })
        .take_while(|node| node.depth > 0)
    }
}

/// The segments of a prefix: none for `/`. A slash at the end begins no segment.
fn segments_of(prefix: &str) -> impl Iterator<Item = &str> {
    let inner = prefix.strip_prefix('/').unwrap_or(prefix);
    inner
        .strip_suffix('/')
        .unwrap_or(inner)
        .split('/')
        .filter(move |_| !inner.is_empty())
}

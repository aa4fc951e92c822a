//! Routes: what a request must look like, and what is done with it.

mod path;
mod table;

pub use path::{NormalPath, PathError};
pub use table::{Entry, Failed, Near, RouteTable, host_text, path_text};

use super::{HashKey, Networks, Pool, Varying};
use regex::bytes::Regex;
use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// One compiled route.
#[derive(Debug)]
pub struct Route {
    /// Its name: given, or `route[3]`.
    pub name: Arc<str>,
    /// Its position in the file, from 0.
    pub index: usize,
    /// Listeners it holds on, by name; empty: all.
    pub listeners: Vec<Arc<str>>,
    /// Hosts; empty: all.
    pub hosts: Vec<HostMatch>,
    /// Path.
    pub path: PathMatch,
    /// Methods; empty: all.
    pub methods: Vec<String>,
    /// All must hold.
    pub headers: Vec<(String, ValueMatch)>,
    /// All must hold; on the raw (undecoded) value of the first parameter of that name.
    pub query: Vec<(String, ValueMatch)>,
    /// Client addresses it holds for; empty: all.
    pub client: Vec<ipnet::IpNet>,
    /// Who may use it: others get 403.
    pub networks: Networks,
    /// Whether an encoded slash, a backslash or a NUL in the path is let through (default false: 400).
    pub allow_odd_path: bool,
    /// Whether calls of gRPC-Web reach the backend as gRPC (default false). For pools that speak HTTP/2.
    pub grpc_web: bool,
    /// What is done.
    pub action: Action,
    /// What depends on the request's region and language; `None`: nothing does.
    pub varying: Option<Box<Varying>>,
    /// Edits of the request's headers on its way to the backend.
    pub request_headers: HeaderEdits,
    /// Edits of the response's headers on its way to the client.
    pub response_headers: HeaderEdits,
    /// Rewrite of the path on its way to the backend.
    pub rewrite: Option<Rewrite>,
    /// Overrides the pool's time-outs.
    pub timeouts: RouteTimeouts,
    /// Overrides the listener's largest body.
    pub body_bytes_max: Option<u64>,
    /// Bodies for answers that Mizan makes itself, by status.
    pub error_pages: Vec<(u16, Arc<ErrorPage>)>,
}

/// A page in place of Mizan's own short text.
#[derive(Debug, PartialEq, Eq)]
pub struct ErrorPage {
    /// `Content-Type`.
    pub content_type: String,
    /// The body.
    pub body: Vec<u8>,
}

/// A host to match, lower case, without port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostMatch {
    /// `example.org`
    Exact(String),
    /// `*.example.org`: any name below, one label or more; kept as `example.org`.
    Wildcard(String),
}

/// A path to match; matching is on the normalised path ([`NormalPath`]).
#[derive(Clone, Debug)]
pub enum PathMatch {
    /// The whole path.
    Exact(String),
    /// Whole segments: `/api` matches `/api` and `/api/x`, not `/apix`. `/` matches all.
    Prefix(String),
    /// Anchored at both ends by the compiler.
    Regex(Regex),
}

/// A value to match.
#[derive(Clone, Debug)]
pub enum ValueMatch {
    /// The name is there.
    Present,
    /// Byte for byte.
    Exact(String),
    /// Anchored at both ends by the compiler.
    Regex(Regex),
}

/// What a route does.
#[derive(Debug)]
pub enum Action {
    /// Sends the request to a pool.
    Forward(Split),
    /// Sends the client elsewhere.
    Redirect {
        /// 301, 302, 303, 307 or 308.
        status: u16,
        /// `Location`; `{scheme}`, `{host}`, `{port}` (with its `:`, or nothing), `{path}` and `{query}` (with its `?`,
        /// or nothing) stand for the request's.
        location: String,
    },
    /// Answers by itself.
    Respond {
        /// Status.
        status: u16,
        /// `Content-Type` of the body.
        content_type: String,
        /// The body.
        body: Arc<[u8]>,
    },
}

impl Route {
    /// Where requests of a region go, by its place ([`super::Regions::of`]); `None`: nowhere.
    pub fn split(&self, region: usize) -> Option<&Split> {
        if let Some(other) = region.checked_sub(1) {
            return self.varying.as_ref()?.regions.get(other)?.as_ref();
        }
        match &self.action {
            Action::Forward(split) => Some(split),
            Action::Redirect { .. } | Action::Respond { .. } => None,
        }
    }

    /// Pools that stand in for the chosen one, in this order, for requests of that region.
    pub fn fallback(&self, region: usize) -> &[Arc<Pool>] {
        self.split(region).map_or(&[], |split| &split.fallback)
    }

    /// Where requests of all regions go.
    pub fn splits(&self) -> impl Iterator<Item = &Split> {
        let others = self.varying.iter().flat_map(|varying| &varying.regions);
        self.split(0).into_iter().chain(others.flatten())
    }
}

/// A weighted split over pools; one pool is a split of one.
#[derive(Debug)]
pub struct Split {
    /// Pools with the running sum of weights up to and with each.
    pub pools: Vec<(Arc<Pool>, u64)>,
    /// Makes the split stable: the same key goes to the same pool. `None`: at random.
    pub key: Option<HashKey>,
    /// Pools that stand in for the chosen one, in this order.
    pub fallback: Vec<Arc<Pool>>,
}

impl Split {
    /// The pool for `point`, any number: a hash of the key, or random.
    pub fn choose(&self, point: u64) -> &Arc<Pool> {
        let (last, total) = &self.pools[self.pools.len() - 1];
        if self.pools.len() == 1 {
            return last;
        }
        let point = point % total;
        let at = self.pools.partition_point(|(_, sum)| *sum <= point);
        &self.pools[at].0
    }
}

/// Edits of header fields; names lower case. In order: remove, set (replaces), add.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderEdits {
    /// Taken away.
    pub remove: Vec<String>,
    /// Replaced, or added if missing.
    pub set: Vec<(String, String)>,
    /// Added beside what is there.
    pub add: Vec<(String, String)>,
}

impl HeaderEdits {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.set.is_empty() && self.add.is_empty()
    }
}

/// Rewrite of the path (the query stays).
#[derive(Clone, Debug)]
pub enum Rewrite {
    /// The matched prefix is replaced.
    Prefix(String),
    /// The path is replaced by the regex's expansion (`$1`…).
    Regex {
        /// What is looked for.
        pattern: Regex,
        /// Its replacement.
        replacement: String,
    },
}

/// A route's overrides of its pool's time-outs; `None` keeps the pool's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteTimeouts {
    /// See [`super::UpstreamTimeouts::request`].
    pub request: Option<Duration>,
    /// See [`super::UpstreamTimeouts::response_header`].
    pub response_header: Option<Duration>,
    /// See [`super::UpstreamTimeouts::response_idle`].
    pub response_idle: Option<Duration>,
    /// See [`super::UpstreamTimeouts::per_try`].
    pub per_try: Option<Duration>,
}

/// What routes look at, borrowed from a request's head.
pub trait RequestView {
    /// Method, as sent.
    fn method(&self) -> &[u8];
    /// Host without port, lower case; empty if there is none.
    fn host(&self) -> &str;
    /// Path, normalised.
    fn path(&self) -> &str;
    /// Query without `?`.
    fn query(&self) -> Option<&[u8]>;
    /// Value of the first header of this lower-case name, as a backend would read it: no claim of a client's that
    /// would not reach one.
    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>>;
    /// The client's address under the trust rule; `None` on a Unix socket.
    fn client(&self) -> Option<IpAddr>;
}

//! What would become of a request: plain data that the proxy fills and the admin side shows.

use super::route::{Near, Route};
use super::{HashKey, Listener, Pool};
use std::net::IpAddr;
use std::sync::Arc;

/// A request that nobody sends, and what is asked about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Its head as HTTP/1.1 would send it.
    pub head: Vec<u8>,
    /// Who sends it: the peer, or whom a PROXY header names.
    pub client: Option<IpAddr>,
    /// Whether it comes over TLS; `None`: as the listener has it.
    pub secure: Option<bool>,
    /// The port that it is sent to, if that is known.
    pub port: Option<u16>,
    /// The listener that it comes to, by name; `None`: one that fits.
    pub listener: Option<String>,
    /// The pool to look at, by name; `None`: the one that its route gives it.
    pub pool: Option<String>,
    /// Stands for all that is left to chance.
    pub seed: u64,
    /// The region that it is of, whatever it says; `None`: as it says.
    pub region: Option<String>,
    /// The language that it is in, whatever it says; `None`: as it says.
    pub language: Option<String>,
}

/// Why nothing can be said.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// There is no such listener.
    #[error("there is no listener `{0}`")]
    UnknownListener(String),
    /// There is no such pool.
    #[error("there is no pool `{0}`")]
    UnknownPool(String),
    /// No request here is of that region.
    #[error("no request here is of region `{0}`")]
    UnknownRegion(String),
    /// It has no requests.
    #[error("listener `{0}` hands bytes through and reads no requests")]
    NotHttp(String),
    /// No listener reads requests.
    #[error("no listener reads HTTP requests")]
    NoListener,
    /// The request and the listener do not fit together.
    #[error("listener `{0}` {1}")]
    OtherScheme(String, &'static str),
}

/// What would become of a request.
#[derive(Debug)]
pub struct Explained<'s> {
    /// Where it comes in.
    pub listener: &'s Arc<Listener>,
    /// Whether that was not asked for, and others would do as well.
    pub assumed_listener: bool,
    /// Its method, host and target, as far as its head is sound.
    pub seen: Seen,
    /// The route that it takes.
    pub route: Option<&'s Arc<Route>>,
    /// Its region, where requests may be of several.
    pub region: Option<Arc<str>>,
    /// What its backend is offered by its language; `None`: the route offers nothing.
    pub offered: Option<Offered>,
    /// Routes that it nearly takes, the nearest first, and how many more there are.
    pub near: (Vec<Near<'s>>, usize),
    /// What Mizan answers by itself.
    pub answer: Option<Answer>,
    /// Where it goes; `None` if Mizan answers before that is asked.
    pub picked: Option<Picked<'s>>,
}

/// Settings that a backend is offered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offered {
    /// What the request says of its language, or what it was said to be in; `None`: nothing.
    pub language: Option<String>,
    /// Headers with their values.
    pub settings: Vec<(String, String)>,
}

/// What routes see of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Method.
    pub method: String,
    /// Host without port, in lower case.
    pub host: String,
    /// Path in normal form.
    pub path: String,
    /// Query.
    pub query: Option<String>,
    /// The client's address under the trust rule.
    pub client: Option<IpAddr>,
}

/// An answer that Mizan makes itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its status; 0: the connection is closed without one.
    pub status: u16,
    /// Its code, as in the access log.
    pub code: &'static str,
    /// Whether a route or a listener asks for it, so that nothing is refused.
    pub is_wanted: bool,
    /// `Location` of a redirect; else empty.
    pub location: String,
    /// Why, as a sentence.
    pub why: String,
}

/// A pool, and whom it picks.
#[derive(Debug)]
pub struct Picked<'s> {
    /// The pool.
    pub pool: &'s Arc<Pool>,
    /// Whether another pool was asked about than the route gives.
    pub instead: bool,
    /// Pools before it that have nobody to give.
    pub stands_in_for: Vec<Arc<str>>,
    /// Pools that are asked after it, in this order, where none of its backends can be reached.
    pub then: Vec<Arc<str>>,
    /// Shares of the route's split, in percent; empty if there is one pool.
    pub split: Vec<(Arc<str>, f64)>,
    /// What the split goes by, and the request's value of it; `None`: chance.
    pub split_by: Option<(&'s HashKey, String)>,
    /// Target and query as the backend gets them.
    pub target: String,
    /// What is hashed, if the pool hashes.
    pub key: Option<&'s HashKey>,
    /// Its value; `None`: the request has none, so that chance decides.
    pub value: Option<String>,
    /// The hash of that.
    pub hash: Option<u64>,
    /// Stands for all that is left to chance.
    pub seed: u64,
    /// What the pick would do.
    pub pick: mizan_core::pool::Explained,
    /// Requests that wait in the pool's queue.
    pub waiting: usize,
}

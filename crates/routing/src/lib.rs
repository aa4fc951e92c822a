//! The routing table that nodes share: what its keys and documents mean. No I/O, no clock.
//!
//! A table is a set of [`Object`]s, each a JSON document under a key of its own. It says which pools there are in each region
//! and with which backends, in what order pools stand in for each other ([`Chain`]), what free-form settings a language or a
//! service has ([`Settings`]), which routes lead where, and which pools are boosted for a while ([`Boost`]). Pools, backends
//! and routes hold what the configuration file's `[pool.X]`, its backends and `[[route]]` hold: one model, two places.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`key`] | which object a key names |
//! | [`document`] | what an object says |
//! | [`table`] | the objects of one revision that hold together, and those that were left out, with the reason |
//! | [`edit`] | whether a change may be made, and what history keeps of it |
//! | [`mod@resolve`] | where a request of a region and a language goes: a pure function |

pub mod document;
pub mod edit;
pub mod key;
pub mod resolve;
pub mod table;

pub use document::{Boost, Chain, Document, Link, Meta, Settings};
pub use key::{Name, Object};
pub use resolve::{Candidate, Resolution, resolve};
pub use table::{Limit, Rejected, Table};

/// The version of the documents that this code reads and writes. Others are refused: what they mean is not known.
pub const SCHEMA: u64 = 1;

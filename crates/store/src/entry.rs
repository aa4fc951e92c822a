//! Keys with their values, and how they are asked for.

use crate::{LeaseId, Revision};
use bytes::Bytes;

/// A key and all that is held of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name; not empty.
    pub key: Bytes,
    /// What it stands for.
    pub value: Bytes,
    /// When it came into being: the last time, if it was deleted in between.
    pub created: Revision,
    /// When it was last put.
    pub modified: Revision,
    /// How often it was put since it came into being; 1 at first.
    pub version: u64,
    /// What it lives by; `None`: it stays.
    pub lease: Option<LeaseId>,
}

/// Which keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Range {
    /// This one.
    Key(Bytes),
    /// All that begin so; of an empty one, all.
    Prefix(Bytes),
}

impl Range {
    /// Whether `key` is one of them.
    pub fn contains(&self, key: &[u8]) -> bool {
        match self {
            Self::Key(only) => only == key,
            Self::Prefix(prefix) => key.starts_with(prefix),
        }
    }
}

/// What to list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// Which keys.
    pub range: Range,
    /// As of when; `None`: now.
    pub at: Option<Revision>,
    /// Leaves the values out: they are empty in the answer.
    pub keys_only: bool,
}

impl Query {
    /// All of `range` as it is now.
    pub fn now(range: Range) -> Self {
        Self {
            range,
            at: None,
            keys_only: false,
        }
    }
}

/// What was there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The store's revision when it was asked, whatever revision was asked for: a watch from the next one misses nothing of
    /// what [`Query::now`] listed.
    pub revision: Revision,
    /// In the order of the keys' bytes.
    pub entries: Vec<Entry>,
}

//! Conditions on what stands under a key.

use crate::{Entry, LeaseId, Revision};
use bytes::Bytes;
use std::cmp::Ordering;

/// A condition that a transaction stands under. Of a key that is not there, all numbers are 0 and there is no lease; no
/// condition on its value holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compare {
    /// Whose.
    pub key: Bytes,
    /// How what is there relates to what `target` holds.
    pub relation: Relation,
    /// What of it, and with what it is compared.
    pub target: Target,
}

/// How what is there relates to what it is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// The same.
    Equal,
    /// Not the same.
    NotEqual,
    /// More, or later.
    Greater,
    /// Less, or earlier.
    Less,
}

/// What is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// [`Entry::value`], byte by byte.
    Value(Bytes),
    /// [`Entry::created`].
    Created(Revision),
    /// [`Entry::modified`].
    Modified(Revision),
    /// [`Entry::version`].
    Version(u64),
    /// [`Entry::lease`].
    Lease(Option<LeaseId>),
}

impl Compare {
    /// `key` was last put at `revision`; 0: it is not there. What compare-and-swap needs.
    pub fn modified(key: impl Into<Bytes>, revision: Revision) -> Self {
        Self {
            key: key.into(),
            relation: Relation::Equal,
            target: Target::Modified(revision),
        }
    }

    /// `key` is not there.
    pub fn absent(key: impl Into<Bytes>) -> Self {
        Self::modified(key, 0)
    }

    /// Whether it holds of what is there.
    pub fn holds(&self, entry: Option<&Entry>) -> bool {
        let order = match &self.target {
            Target::Value(value) => match entry {
                Some(entry) => entry.value.cmp(value),
                None => return false,
            },
            Target::Created(revision) => entry.map_or(0, |entry| entry.created).cmp(revision),
            Target::Modified(revision) => entry.map_or(0, |entry| entry.modified).cmp(revision),
            Target::Version(version) => entry.map_or(0, |entry| entry.version).cmp(version),
            Target::Lease(lease) => entry.and_then(|entry| entry.lease).cmp(lease),
        };
        match self.relation {
            Relation::Equal => order == Ordering::Equal,
            Relation::NotEqual => order != Ordering::Equal,
            Relation::Greater => order == Ordering::Greater,
            Relation::Less => order == Ordering::Less,
        }
    }
}

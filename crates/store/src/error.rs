//! Why a store did not do what it was asked.

use crate::{Entry, LeaseId, Revision};
use bytes::Bytes;
use std::fmt;

/// Why a store did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A compare does not hold; nothing was changed.
    #[error("it has changed in the meantime: the store is at revision {}", .0.revision)]
    Conflict(Box<Conflict>),
    /// That old a revision is not held any more.
    #[error("the store has forgotten what was before revision {oldest}")]
    Compacted {
        /// The oldest that is held.
        oldest: Revision,
    },
    /// That revision is still to come.
    #[error("revision {asked} is still to come: the store is at {current}")]
    Future {
        /// Which was asked for.
        asked: Revision,
        /// The store's.
        current: Revision,
    },
    /// Nobody who could do it was reached in time; nothing was changed.
    #[error("the store cannot be reached: {0}")]
    Unavailable(String),
    /// Nobody knows whether it was done: look before you say so, or do it again.
    #[error("the store did not say whether it was done: {0}")]
    Unknown(String),
    /// Whoever asks may not.
    #[error("the store refuses: {0}")]
    Denied(Denial),
    /// A limit is passed; nothing was changed.
    #[error("{what} of {found} {} is over the limit of {limit}", .what.unit())]
    TooLarge {
        /// Of what.
        what: What,
        /// How much it is.
        found: usize,
        /// How much it may be.
        limit: usize,
    },
    /// There is no room left for it; nothing was changed.
    #[error("the store is full: {0}")]
    Full(String),
    /// No store could do it.
    #[error("that cannot be asked of a store: {0}")]
    Invalid(String),
    /// The lease is not alive: it has ended, or never was.
    #[error("there is no lease {:x}", .0.0)]
    NoLease(LeaseId),
    /// What is on the disk is not what was written there. It is left as it is.
    #[error("the store is damaged: {0}")]
    Damaged(String),
}

/// What stood there instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The store's revision when the compares were looked at.
    pub revision: Revision,
    /// Each key that was compared, in the order of the compares, with what it stands for; once each.
    pub found: Vec<(Bytes, Option<Entry>)>,
}

/// Why whoever asks may not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// No such user, or not with this password.
    #[error("the user's name or password is wrong")]
    Password,
    /// It wants to know who asks.
    #[error("it wants a user's name and password, or a client certificate")]
    Anonymous,
    /// It has another certificate than it should, or does not take ours.
    #[error("TLS: {0}")]
    Tls(String),
    /// This user may not do this.
    #[error("this user may not do that: {0}")]
    Permission(String),
}

/// What has a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A transaction's compares.
    Compares,
    /// A transaction's operations.
    Operations,
    /// A key's bytes.
    Key,
    /// A value's bytes.
    Value,
    /// A transaction's bytes.
    Transaction,
}

impl What {
    /// What it is counted in.
    fn unit(self) -> &'static str {
        match self {
            Self::Compares | Self::Operations => "parts",
            Self::Key | Self::Value | Self::Transaction => "bytes",
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Compares => "a transaction's list of compares",
            Self::Operations => "a transaction's list of operations",
            Self::Key => "a key",
            Self::Value => "a value",
            Self::Transaction => "a transaction",
        })
    }
}

impl Error {
    /// Fails if `found` is over `limit`.
    pub(crate) fn bound(what: What, found: usize, limit: usize) -> Result<(), Self> {
        if found <= limit {
            return Ok(());
        }
        Err(Self::TooLarge { what, found, limit })
    }

    /// Whether it may be asked again as it is: nothing was changed, and it is not the question that is at fault.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }
}

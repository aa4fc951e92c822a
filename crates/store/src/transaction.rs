//! Changes that are made together or not at all.

use crate::error::What;
use crate::{Compare, Error, LeaseId, Range, Revision};
use bytes::Bytes;
use std::collections::HashSet;

/// Most compares, and most operations, of one transaction: what etcd takes by default.
pub const OPERATIONS_MAX: usize = 128;
/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 1 << 10;
/// Longest value, in bytes.
pub const VALUE_BYTES_MAX: usize = 1 << 20;
/// Most bytes of a transaction's keys and values together: below the 1.5 MiB that etcd takes by default for a request.
pub const TRANSACTION_BYTES_MAX: usize = 5 << 18;

/// Operations under conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// All must hold.
    pub compares: Vec<Compare>,
    /// What is done then, in this order. No key is changed by two of them.
    pub operations: Vec<Operation>,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Sets a key's value. Its lease is `lease` from now on, whatever it was before.
    Put {
        /// Which; not empty.
        key: Bytes,
        /// To what.
        value: Bytes,
        /// What it lives by; `None`: it stays.
        lease: Option<LeaseId>,
    },
    /// Deletes what is there.
    Delete(Range),
}

impl Operation {
    /// Sets `key` to `value`, for good.
    pub fn put(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        Self::Put {
            key: key.into(),
            value: value.into(),
            lease: None,
        }
    }

    /// Deletes `key`.
    pub fn delete(key: impl Into<Bytes>) -> Self {
        Self::Delete(Range::Key(key.into()))
    }
}

/// What became of a transaction that was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The revision that it made; the store's, where it changed nothing.
    pub revision: Revision,
    /// How many keys it deleted.
    pub deleted: u64,
}

impl Transaction {
    /// Whether every store could take it, before one is asked.
    ///
    /// # Errors
    /// [`Error::TooLarge`] where a limit is passed, [`Error::Invalid`] for an empty key or one that two operations change.
    pub fn check(&self) -> Result<(), Error> {
        let most = [
            (What::Compares, self.compares.len(), OPERATIONS_MAX),
            (What::Operations, self.operations.len(), OPERATIONS_MAX),
        ];
        for (what, found, limit) in most {
            Error::bound(what, found, limit)?;
        }
        let mut bytes = 0;
        for compare in &self.compares {
            check_key(&compare.key)?;
            bytes += compare.key.len();
            if let crate::Target::Value(value) = &compare.target {
                bytes += value.len();
            }
        }
        for operation in &self.operations {
            match operation {
                Operation::Put { key, value, .. } => {
                    check_key(key)?;
                    Error::bound(What::Value, value.len(), VALUE_BYTES_MAX)?;
                    bytes += key.len() + value.len();
                }
                Operation::Delete(Range::Key(key)) => {
                    check_key(key)?;
                    bytes += key.len();
                }
                Operation::Delete(Range::Prefix(prefix)) => {
                    Error::bound(What::Key, prefix.len(), KEY_BYTES_MAX)?;
                    bytes += prefix.len();
                }
            }
        }
        Error::bound(What::Transaction, bytes, TRANSACTION_BYTES_MAX)?;
        self.check_distinct()
    }

    /// A key that is put must not be changed by another operation; deletes may overlap, for they agree.
    fn check_distinct(&self) -> Result<(), Error> {
        let mut put = HashSet::new();
        let puts = self
            .operations
            .iter()
            .filter_map(|operation| match operation {
                Operation::Put { key, .. } => Some(key),
                Operation::Delete(_) => None,
            });
        for key in puts {
            let is_deleted = self.operations.iter().any(
                |operation| matches!(operation, Operation::Delete(range) if range.contains(key)),
            );
            if is_deleted || !put.insert(key) {
                return Err(Error::Invalid(format!(
                    "`{}` is changed twice in one transaction",
                    key.escape_ascii()
                )));
            }
        }
        Ok(())
    }
}

fn check_key(key: &[u8]) -> Result<(), Error> {
    if key.is_empty() {
        return Err(Error::Invalid("a key is empty".to_owned()));
    }
    Error::bound(What::Key, key.len(), KEY_BYTES_MAX)
}

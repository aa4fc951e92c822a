//! What shows that a row is the one that was written, and that none is missing.
//!
//! SQLite keeps checksums of the frames of its log, but none of the pages of its database. So each row carries a digest of
//! its own, and the one row of `meta` the sum of all of them: rows that were changed, lost, doubled or brought back from
//! an older state do not add up. It is SHA-256, cut to 128 bits: what has to be told apart are accidents, but a sum of
//! short checksums would cancel out too easily.

use aws_lc_rs::digest::{Context, SHA256};

/// A row's, or the sum of many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Digest(u128);

impl Digest {
    pub(super) fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_le_bytes(bytes))
    }

    pub(super) fn bytes(self) -> [u8; 16] {
        self.0.to_le_bytes()
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self(self.0.wrapping_add(other.0))
    }

    pub(super) fn minus(self, other: Self) -> Self {
        Self(self.0.wrapping_sub(other.0))
    }
}

/// Digests one row, field by field: each says its length or has a fixed one, so that no two rows read the same.
pub(super) struct Row(Context);

impl Row {
    /// Of the table `kind`.
    pub(super) fn of(kind: &'static str) -> Self {
        let mut row = Self(Context::new(&SHA256));
        row.0.update(kind.as_bytes());
        row
    }

    pub(super) fn number(mut self, number: i64) -> Self {
        self.0.update(&number.to_le_bytes());
        self
    }

    pub(super) fn bytes(mut self, bytes: Option<&[u8]>) -> Self {
        let length = bytes.map_or(-1, |bytes| bytes.len() as i64);
        self.0.update(&length.to_le_bytes());
        self.0.update(bytes.unwrap_or_default());
        self
    }

    pub(super) fn digest(self) -> Digest {
        let whole = self.0.finish();
        let mut cut = [0; 16];
        cut.copy_from_slice(&whole.as_ref()[..16]);
        Digest::from_bytes(cut)
    }
}

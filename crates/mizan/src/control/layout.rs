//! Which keys of a store are ours.

use bytes::Bytes;

/// The keys of one namespace: `/mizan/NAMESPACE/v1/…`.
///
/// Only what stands under [`Layout::table`] is followed by everybody. What changes without the table changing (history, what
/// nodes and instances say of themselves) and what not everybody may read (secrets) lies beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    root: String,
}

impl Layout {
    /// That of `namespace`, a name.
    pub fn new(namespace: &str) -> Self {
        Self {
            root: format!("/mizan/{namespace}/v1/"),
        }
    }

    /// What stands before the table's objects.
    pub fn table(&self) -> Bytes {
        self.under("table/")
    }

    /// What stands before what nodes say of themselves.
    pub fn nodes(&self) -> Bytes {
        self.under("nodes/")
    }

    /// Where `node` says it.
    pub fn node(&self, node: &str) -> Bytes {
        self.under(&format!("nodes/{node}"))
    }

    /// What stands before the ticket keys that instances share: a name behind it. They are secret.
    pub fn ticket_keys(&self) -> Bytes {
        self.under("secrets/tickets/")
    }

    /// What stands before what instances say of themselves: the pool, a slash, and a name of their own.
    pub fn instances(&self) -> Bytes {
        self.under("instances/")
    }

    /// What every edit changes: two edits at once cannot both be made. It names the last.
    pub fn head(&self) -> Bytes {
        self.under("head")
    }

    /// What stands before the records of edits.
    pub fn history(&self) -> Bytes {
        self.under("history/")
    }

    /// The record of the edit of this number, from 1; sorted as they were made.
    pub fn edit(&self, number: u64) -> Bytes {
        self.under(&format!("history/{number:012}"))
    }

    fn under(&self, key: &str) -> Bytes {
        Bytes::from(format!("{}{key}", self.root))
    }
}

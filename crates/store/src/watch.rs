//! What happens in a store, in order.

use crate::{Answer, Entry, Revision};
use bytes::Bytes;
use std::fmt::Debug;

/// Follows some keys. Every change of them is said once, in the order of revisions, all of one revision together.
pub trait Watch: Debug + Send {
    /// What comes next; waits for it. A future that is dropped loses nothing: the next call says it.
    ///
    /// # Errors
    /// It has ended, and says the same from now on: [`Error::Compacted`](crate::Error::Compacted) if it fell behind what is
    /// held, [`Error::Unavailable`](crate::Error::Unavailable) if the store is not heard of any more. Where it had come to,
    /// its last message says.
    fn next(&mut self) -> Answer<'_, Message>;
}

/// What a watch says next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Keys have changed.
    Batch(Batch),
    /// All changes up to this revision were said, and no key that is watched has changed since the last that was. It is
    /// only said where it is proven, and at least every few seconds of silence, so that an idle watch can be taken up
    /// later from a revision that is still held.
    Progress(Revision),
}

/// The changes of one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Which.
    pub revision: Revision,
    /// In the order of the transaction's operations; not empty.
    pub events: Vec<Event>,
}

/// One key's change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It was put.
    Put(Entry),
    /// It was deleted, or its lease has ended.
    Delete(Bytes),
}

impl Event {
    /// Whose change it is.
    pub fn key(&self) -> &Bytes {
        match self {
            Self::Put(entry) => &entry.key,
            Self::Delete(key) => key,
        }
    }
}

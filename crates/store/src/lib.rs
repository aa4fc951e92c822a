//! One meaning of "the store", whoever keeps it.
//!
//! A [`Store`] is a map from keys to values with a history: each [`Transaction`] that changes something makes the next
//! [`Revision`]; a reader lists a prefix at one revision and follows it from the next, and misses nothing. What two people
//! edit at once is told apart by compares; what is to end by itself hangs on a lease.
//!
//! The model is that of etcd's v3 API (<https://etcd.io/docs/v3.4/learning/api/>), whose words it keeps, less what routing
//! configuration does not need: no nested transactions, no ranges but of one key and of a prefix. Nothing here knows what
//! the values mean; nothing here names another of Mizan's crates.

mod clock;
mod compare;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod embedded;
mod entry;
mod error;
pub mod etcd;
pub mod follower;
pub mod image;
#[cfg(feature = "remote")]
pub mod remote;
mod transaction;
mod watch;

pub use clock::{Clock, System};
pub use compare::{Compare, Relation, Target};
pub use entry::{Entry, Listing, Query, Range};
pub use error::{Conflict, Denial, Error, What};
pub use transaction::{
    Committed, KEY_BYTES_MAX, OPERATIONS_MAX, Operation, TRANSACTION_BYTES_MAX, Transaction,
    VALUE_BYTES_MAX,
};
pub use watch::{Batch, Event, Message, Watch};

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// The store's version: one more with each transaction that changes something. 0 is before the first.
pub type Revision = u64;

/// What comes of asking a store.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// Names a lease. Never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub i64);

/// A grant of life to keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Its name.
    pub id: LeaseId,
    /// What is left of it. It may last longer than that, as after a change of etcd's leader; never shorter.
    pub left: Duration,
    /// How long it was granted for, which may be more than was asked for.
    pub granted: Duration,
}

/// Shortest life that a lease is asked for with.
pub const LEASE_LIFE_MIN: Duration = Duration::from_secs(1);
/// Longest life that a lease is asked for with: a year. What lives longer needs no lease.
pub const LEASE_LIFE_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);

impl Lease {
    /// Whether every store could grant `life`, before one is asked.
    ///
    /// # Errors
    /// [`Error::Invalid`] below [`LEASE_LIFE_MIN`] and above [`LEASE_LIFE_MAX`].
    pub fn check_life(life: Duration) -> Result<(), Error> {
        if (LEASE_LIFE_MIN..=LEASE_LIFE_MAX).contains(&life) {
            return Ok(());
        }
        Err(Error::Invalid(format!(
            "a lease of {life:?}: it lives for at least {} s and at most {} s",
            LEASE_LIFE_MIN.as_secs(),
            LEASE_LIFE_MAX.as_secs()
        )))
    }
}

/// What a store says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Which store it is: another one's revisions mean something else (a restored backup, a wrong address).
    pub id: u64,
    /// Its revision when it was asked.
    pub revision: Revision,
    /// Its software's version, as in `3.5.13`.
    pub version: String,
    /// What its users should know of it, a sentence each: faults of old versions and what is done about them.
    pub warnings: Vec<String>,
}

/// A versioned map with watches, leases and transactions.
///
/// All that is asked can fail with [`Error::Unavailable`]: then nothing was done. What changes something can fail with
/// [`Error::Unknown`]: then nobody knows whether it was done, and the caller has to look.
///
/// A future that is dropped before it is ready leaves the same doubt as [`Error::Unknown`].
pub trait Store: Debug + Send + Sync {
    /// Which store this is, and its revision now: read from whoever may answer for all (with etcd, a quorum).
    fn identity(&self) -> Answer<'_, Identity>;

    /// What is there, at one revision, in the order of the keys' bytes. It sees every transaction that was acknowledged
    /// before it was asked. At revision 0 nothing was there.
    ///
    /// # Errors
    /// [`Error::Compacted`] and [`Error::Future`] where it is asked for a revision that is not held.
    fn list(&self, query: Query) -> Answer<'_, Listing>;

    /// Does all of `transaction`, at one new revision, if all of its compares hold; else nothing. Acknowledged is what a
    /// loss of power does not lose. One that changes nothing (a delete of what is not there) makes no revision.
    ///
    /// # Errors
    /// [`Error::Conflict`] if a compare does not hold, with what stands there instead; [`Error::TooLarge`] and
    /// [`Error::Invalid`] for a transaction that no store takes; [`Error::NoLease`] if a lease is not alive. It is looked at
    /// in this order: the limits, the compares, the leases.
    fn commit(&self, transaction: Transaction) -> Answer<'_, Committed>;

    /// Follows `range` from revision `from`, which may be one that is still to come. From 0 is from the beginning, never
    /// from now.
    ///
    /// # Errors
    /// [`Error::Compacted`] if the changes since `from` are not held any more: list, compare with what is known, and watch
    /// from the next revision. The watch itself may say so later, too.
    fn watch(&self, range: Range, from: Revision) -> Answer<'_, Box<dyn Watch>>;

    /// A new lease of at least `life`. Its name is a positive number.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a life that [`Lease::check_life`] does not take.
    fn grant(&self, life: Duration) -> Answer<'_, Lease>;

    /// Gives a lease its whole life again.
    ///
    /// # Errors
    /// [`Error::NoLease`] if it has ended.
    fn keep_alive(&self, id: LeaseId) -> Answer<'_, Lease>;

    /// Ends a lease now: its keys are deleted, at one revision, in the order of their bytes. So they are when its life is
    /// over. Without keys it makes no revision.
    ///
    /// # Errors
    /// [`Error::NoLease`] if it has ended.
    fn revoke(&self, id: LeaseId) -> Answer<'_, ()>;

    /// What is left of a lease.
    ///
    /// # Errors
    /// [`Error::NoLease`] if it has ended.
    fn lease(&self, id: LeaseId) -> Answer<'_, Lease>;

    /// Forgets what was overwritten or deleted before or at `revision`: what was in force at it can still be listed,
    /// and changes after it followed. Whoever asks for what was before is told that `revision` is the oldest that is held.
    ///
    /// # Errors
    /// [`Error::Compacted`] if that was done already, [`Error::Future`] for a revision that is still to come.
    fn compact(&self, revision: Revision) -> Answer<'_, ()>;
}

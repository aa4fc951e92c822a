//! What the tests of the embedded store have in common.

use mizan_store::embedded::{Embedded, Options};
use mizan_store::{Clock, Committed, Entry, Error, Operation, Query, Range, Store, Transaction};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

/// A clock that a test sets, in seconds.
#[derive(Debug, Default)]
pub(crate) struct Hand {
    monotonic: AtomicU64,
    wall: AtomicU64,
}

impl Hand {
    /// A process that has just started, at `wall` seconds of the Unix time.
    pub(crate) fn at(wall: u64) -> Arc<Self> {
        let hand = Self::default();
        hand.wall.store(wall, SeqCst);
        Arc::new(hand)
    }

    /// Time goes on.
    pub(crate) fn pass(&self, seconds: u64) {
        self.monotonic.fetch_add(seconds, SeqCst);
        self.wall.fetch_add(seconds, SeqCst);
    }

    /// Somebody sets the wall clock.
    pub(crate) fn set_wall(&self, wall: u64) {
        self.wall.store(wall, SeqCst);
    }
}

impl Clock for Hand {
    fn monotonic(&self) -> Duration {
        Duration::from_secs(self.monotonic.load(SeqCst))
    }

    fn wall(&self) -> Duration {
        Duration::from_secs(self.wall.load(SeqCst))
    }
}

pub(crate) fn open(path: &Path) -> Result<Embedded, Error> {
    Embedded::open(path, Options::default())
}

/// With a clock that the test sets.
pub(crate) fn open_at(path: &Path, clock: &Arc<Hand>) -> Embedded {
    let options = Options {
        clock: clock.clone(),
        ..Options::default()
    };
    Embedded::open(path, options).expect("it opens")
}

pub(crate) fn everything() -> Range {
    Range::Prefix("".into())
}

pub(crate) async fn commit(
    store: &Embedded,
    operations: impl Into<Vec<Operation>>,
) -> Result<Committed, Error> {
    let transaction = Transaction {
        compares: Vec::new(),
        operations: operations.into(),
    };
    store.commit(transaction).await
}

pub(crate) async fn put(store: &Embedded, key: &str, value: &str) -> u64 {
    let put = Operation::put(key.to_owned(), value.to_owned());
    commit(store, [put]).await.expect("it is taken").revision
}

/// What is there at `at`.
pub(crate) async fn entries_at(store: &Embedded, at: u64) -> Result<Vec<Entry>, Error> {
    let query = Query {
        at: Some(at),
        ..Query::now(everything())
    };
    Ok(store.list(query).await?.entries)
}

pub(crate) async fn entries(store: &Embedded) -> Vec<Entry> {
    let listing = store.list(Query::now(everything())).await;
    listing.expect("it is listed").entries
}

pub(crate) async fn keys(store: &Embedded) -> Vec<String> {
    let entries = entries(store).await;
    let key = |entry: &Entry| String::from_utf8_lossy(&entry.key).into_owned();
    entries.iter().map(key).collect()
}

pub(crate) async fn revision(store: &Embedded) -> u64 {
    store.identity().await.expect("it answers").revision
}

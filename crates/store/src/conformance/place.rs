//! Where a case works: a store, and a prefix of its own in it.

use super::Options;
use crate::clock::{Clock, System};
use crate::{
    Batch, Committed, Compare, Entry, Error, LeaseId, Listing, Message, Operation, Query, Range,
    Revision, Store, Transaction, Watch,
};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;

/// Longest that a watch may take to say what has happened already.
pub(super) const SAID_WITHIN: Duration = Duration::from_secs(20);

/// A store, and a prefix that nobody else writes below.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) store: Arc<dyn Store>,
    pub(super) seed: u64,
    pub(super) history_steps: usize,
    pub(super) expiry_late_max: Duration,
    prefix: String,
}

impl Place {
    pub(super) fn new(store: Arc<dyn Store>, name: &str, options: &Options) -> Self {
        Self {
            store,
            seed: options.seed,
            history_steps: options.history_steps,
            expiry_late_max: options.expiry_late_max,
            prefix: format!("conformance/{name}/"),
        }
    }

    /// The key called `name` here.
    pub(super) fn key(&self, name: impl AsRef<[u8]>) -> Bytes {
        [self.prefix.as_bytes(), name.as_ref()].concat().into()
    }

    /// What `key` is called here.
    pub(super) fn name(&self, key: &[u8]) -> String {
        key.strip_prefix(self.prefix.as_bytes())
            .unwrap_or(key)
            .escape_ascii()
            .to_string()
    }

    /// All keys here.
    pub(super) fn all(&self) -> Range {
        self.below("")
    }

    /// All keys here whose name begins so.
    pub(super) fn below(&self, name: &str) -> Range {
        Range::Prefix(self.key(name))
    }

    /// The key called `name` here, alone.
    pub(super) fn only(&self, name: &str) -> Range {
        Range::Key(self.key(name))
    }

    pub(super) fn put_of(&self, name: &str, value: &str) -> Operation {
        Operation::put(self.key(name), value.to_owned())
    }

    pub(super) fn delete_of(&self, name: &str) -> Operation {
        Operation::delete(self.key(name))
    }

    pub(super) fn leased(&self, name: &str, lease: LeaseId) -> Operation {
        Operation::Put {
            key: self.key(name),
            value: "leased".into(),
            lease: Some(lease),
        }
    }

    pub(super) async fn commit(
        &self,
        compares: impl Into<Vec<Compare>>,
        operations: impl Into<Vec<Operation>>,
    ) -> Result<Committed, Error> {
        let transaction = Transaction {
            compares: compares.into(),
            operations: operations.into(),
        };
        self.store.commit(transaction).await
    }

    pub(super) async fn put(&self, name: &str, value: &str) -> Result<Revision, Error> {
        Ok(self.commit([], [self.put_of(name, value)]).await?.revision)
    }

    pub(super) async fn delete(&self, name: &str) -> Result<Committed, Error> {
        self.commit([], [self.delete_of(name)]).await
    }

    pub(super) async fn list(&self, range: Range) -> Result<Listing, Error> {
        self.store.list(Query::now(range)).await
    }

    pub(super) async fn list_at(&self, range: Range, at: Revision) -> Result<Listing, Error> {
        let query = Query {
            at: Some(at),
            ..Query::now(range)
        };
        self.store.list(query).await
    }

    pub(super) async fn entry(&self, name: &str) -> Result<Option<Entry>, Error> {
        Ok(self.list(self.only(name)).await?.entries.pop())
    }

    /// The names of all keys here, in order.
    pub(super) async fn names(&self) -> Result<Vec<String>, Error> {
        let listing = self.list(self.all()).await?;
        let names = listing.entries.iter().map(|entry| self.name(&entry.key));
        Ok(names.collect())
    }

    /// The store's revision.
    pub(super) async fn revision(&self) -> Result<Revision, Error> {
        Ok(self.list(self.only("revision")).await?.revision)
    }

    pub(super) async fn watch(&self, range: Range, from: Revision) -> Result<Reader, Error> {
        let watch = self.store.watch(range, from).await?;
        Ok(Reader {
            watch,
            last: None,
            prefix: self.prefix.clone(),
        })
    }

    /// Follows all keys here from the next revision.
    pub(super) async fn watch_all(&self) -> Result<Reader, Error> {
        let from = self.revision().await? + 1;
        self.watch(self.all(), from).await
    }
}

/// A watch that is held to what every watch promises.
#[derive(Debug)]
pub(super) struct Reader {
    watch: Box<dyn Watch>,
    /// The last revision that was said.
    last: Option<Revision>,
    prefix: String,
}

impl Reader {
    /// What comes next.
    pub(super) async fn change(&mut self) -> Result<Message, Error> {
        let change = tokio::time::timeout(SAID_WITHIN, self.watch.next())
            .await
            .expect("a watch says something every few seconds")?;
        self.hold(&change);
        Ok(change)
    }

    /// What is there to be said at once, if anything is.
    pub(super) async fn poll(&mut self) -> Result<Option<Message>, Error> {
        let Ok(change) = tokio::time::timeout(Duration::ZERO, self.watch.next()).await else {
            return Ok(None);
        };
        let change = change?;
        self.hold(&change);
        Ok(Some(change))
    }

    /// The next batch; whatever progress is said before.
    pub(super) async fn batch(&mut self) -> Result<Batch, Error> {
        let until = System.monotonic() + SAID_WITHIN;
        while System.monotonic() < until {
            if let Message::Batch(batch) = self.change().await? {
                return Ok(batch);
            }
        }
        panic!("a watch says progress only, after {:?}", self.last);
    }

    /// The next batch, as one word for each event: `+name=value` or `-name`.
    pub(super) async fn words(&mut self) -> Result<String, Error> {
        let batch = self.batch().await?;
        Ok(words(&batch, &self.prefix))
    }

    /// Waits until progress is said of `revision` or a later one.
    pub(super) async fn progress(&mut self, revision: Revision) -> Result<Revision, Error> {
        loop {
            match self.change().await? {
                Message::Progress(said) if said >= revision => return Ok(said),
                Message::Progress(_) => {}
                Message::Batch(batch) => panic!("a batch instead of progress: {batch:?}"),
            }
        }
    }

    /// Revisions only rise, and no batch is empty.
    fn hold(&mut self, change: &Message) {
        match change {
            Message::Batch(batch) => {
                assert!(
                    self.last.is_none_or(|last| last < batch.revision),
                    "revision {} is said after {:?}",
                    batch.revision,
                    self.last
                );
                assert!(!batch.events.is_empty(), "an empty batch");
                self.last = Some(batch.revision);
            }
            Message::Progress(revision) => {
                assert!(
                    self.last.is_none_or(|last| last <= *revision),
                    "progress of {revision} is said after {:?}",
                    self.last
                );
                self.last = Some(*revision);
            }
        }
    }
}

/// A batch as one word for each event, without `prefix`.
fn words(batch: &Batch, prefix: &str) -> String {
    let short = |key: &Bytes| {
        key.strip_prefix(prefix.as_bytes())
            .unwrap_or(key)
            .escape_ascii()
            .to_string()
    };
    let words = batch.events.iter().map(|event| match event {
        crate::Event::Put(entry) => {
            format!("+{}={}", short(&entry.key), entry.value.escape_ascii())
        }
        crate::Event::Delete(key) => format!("-{}", short(key)),
    });
    words.collect::<Vec<_>>().join(" ")
}

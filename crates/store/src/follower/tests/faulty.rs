//! A store that does what a test tells it: loses its watch, its history, its past, an event.

use crate::{
    Answer, Batch, Committed, Entry, Error, Event, Identity, Lease, LeaseId, Listing, Message,
    Query, Range, Revision, Store, Transaction, Watch,
};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;

/// What there is of the store, and what it is to do wrong.
#[derive(Debug)]
pub(super) struct Inside {
    pub(super) id: u64,
    pub(super) revision: Revision,
    pub(super) compacted: Revision,
    pub(super) entries: BTreeMap<Bytes, Entry>,
    pub(super) history: Vec<Batch>,
    /// Nobody is let in.
    pub(super) is_down: bool,
    /// Events are not told to anybody any more.
    pub(super) is_mute: bool,
    /// Events are told later.
    pub(super) is_slow: bool,
    /// Every watch ends with its first word.
    pub(super) ends_watches: bool,
    /// Every watch ends once it has said all that there is.
    pub(super) ends_read_watches: bool,
    /// Watches say this once, when all that there is was said.
    pub(super) progress: Option<Revision>,
    /// Watches always have something to say.
    pub(super) is_endless: bool,
    /// Keys are not listed before this is over.
    pub(super) holds_listings: bool,
    /// Nothing is listed.
    pub(super) refuses_listings: bool,
    /// How often all was listed, and how often the keys.
    pub(super) listings: usize,
    pub(super) comparisons: usize,
}

#[derive(Debug)]
pub(super) struct Faulty {
    inside: Arc<Mutex<Inside>>,
    /// Moves with each change; a watch that sees a lower round than its own ends.
    moved: watch::Sender<u64>,
}

#[derive(Debug)]
struct Cursor {
    inside: Arc<Mutex<Inside>>,
    moved: watch::Receiver<u64>,
    next: Revision,
}

impl Faulty {
    pub(super) fn new() -> Arc<Self> {
        let inside = Inside {
            id: 7,
            revision: 0,
            compacted: 0,
            entries: BTreeMap::new(),
            history: Vec::new(),
            is_down: false,
            is_mute: false,
            is_slow: false,
            ends_watches: false,
            ends_read_watches: false,
            progress: None,
            is_endless: false,
            holds_listings: false,
            refuses_listings: false,
            listings: 0,
            comparisons: 0,
        };
        Arc::new(Self {
            inside: Arc::new(Mutex::new(inside)),
            moved: watch::channel(0).0,
        })
    }

    /// One change of the test's, after which watches look.
    pub(super) fn with<R>(&self, act: impl FnOnce(&mut Inside) -> R) -> R {
        let done = act(&mut self.inside.lock().expect("no test panics inside"));
        self.moved.send_modify(|count| *count += 1);
        done
    }

    pub(super) fn put(&self, key: &'static str, value: &'static str) -> Revision {
        self.with(|inside| inside.put(key, value))
    }

    fn listing(&self) -> Result<Listing, Error> {
        self.with(|inside| {
            if inside.refuses_listings {
                return Err(Error::Unavailable("nothing is listed".to_owned()));
            }
            inside.up().map(|()| Listing {
                revision: inside.revision,
                entries: inside.entries.values().cloned().collect(),
            })
        })
    }

    pub(super) fn delete(&self, key: &'static str) {
        self.with(|inside| inside.delete(key));
    }
}

impl Inside {
    pub(super) fn put(&mut self, key: &'static str, value: &'static str) -> Revision {
        self.revision += 1;
        let entry = Entry {
            key: key.into(),
            value: value.into(),
            created: self.revision,
            modified: self.revision,
            version: 1,
            lease: None,
        };
        self.entries.insert(key.into(), entry.clone());
        self.tell(Event::Put(entry));
        self.revision
    }

    pub(super) fn delete(&mut self, key: &'static str) {
        self.revision += 1;
        self.entries.remove(key.as_bytes());
        self.tell(Event::Delete(key.into()));
    }

    fn tell(&mut self, event: Event) {
        if !self.is_mute {
            let (revision, events) = (self.revision, vec![event]);
            self.history.push(Batch { revision, events });
        }
    }

    fn up(&self) -> Result<(), Error> {
        match self.is_down {
            true => Err(Error::Unavailable("it is down".to_owned())),
            false => Ok(()),
        }
    }
}

impl Store for Faulty {
    fn identity(&self) -> Answer<'_, Identity> {
        let answer = self.with(|inside| {
            inside.up().map(|()| Identity {
                id: inside.id,
                revision: inside.revision,
                version: String::new(),
                warnings: Vec::new(),
            })
        });
        Box::pin(std::future::ready(answer))
    }

    fn list(&self, query: Query) -> Answer<'_, Listing> {
        self.with(|inside| {
            inside.listings += usize::from(!query.keys_only);
            inside.comparisons += usize::from(query.keys_only);
        });
        Box::pin(async move {
            let mut moved = self.moved.subscribe();
            while self
                .inside
                .lock()
                .expect("no test panics inside")
                .holds_listings
            {
                moved.changed().await.expect("it is not gone");
            }
            self.listing()
        })
    }

    fn watch(&self, _: Range, from: Revision) -> Answer<'_, Box<dyn Watch>> {
        let answer = self.with(|inside| inside.up());
        let cursor = Cursor {
            inside: Arc::clone(&self.inside),
            moved: self.moved.subscribe(),
            next: from,
        };
        let answer = answer.map(|()| Box::new(cursor) as Box<dyn Watch>);
        Box::pin(std::future::ready(answer))
    }

    fn commit(&self, _: Transaction) -> Answer<'_, Committed> {
        unasked()
    }

    fn grant(&self, _: Duration) -> Answer<'_, Lease> {
        unasked()
    }

    fn keep_alive(&self, _: LeaseId) -> Answer<'_, Lease> {
        unasked()
    }

    fn revoke(&self, _: LeaseId) -> Answer<'_, ()> {
        unasked()
    }

    fn lease(&self, _: LeaseId) -> Answer<'_, Lease> {
        unasked()
    }

    fn compact(&self, _: Revision) -> Answer<'_, ()> {
        unasked()
    }
}

/// A follower only reads.
fn unasked<T: Send + 'static>() -> Answer<'static, T> {
    let why = "a follower asks for no such thing".to_owned();
    Box::pin(std::future::ready(Err(Error::Invalid(why))))
}

impl Watch for Cursor {
    fn next(&mut self) -> Answer<'_, Message> {
        Box::pin(async move {
            loop {
                self.moved.mark_unchanged();
                let is_endless;
                {
                    let mut inside = self.inside.lock().expect("no test panics inside");
                    inside.up()?;
                    is_endless = inside.is_endless;
                    if inside.ends_watches {
                        return Err(Error::Unavailable("it ends".to_owned()));
                    }
                    if self.next <= inside.compacted {
                        let oldest = inside.compacted + 1;
                        return Err(Error::Compacted { oldest });
                    }
                    let mut history = inside.history.iter();
                    let found = history.find(|batch| batch.revision >= self.next);
                    if let Some(batch) = found.filter(|_| !inside.is_slow) {
                        self.next = batch.revision + 1;
                        return Ok(Message::Batch(batch.clone()));
                    }
                    if let Some(revision) = inside.progress.take() {
                        return Ok(Message::Progress(revision));
                    }
                    if inside.ends_read_watches {
                        return Err(Error::Unavailable("it is read".to_owned()));
                    }
                }
                if is_endless {
                    // As a channel would, which tells who never waits to let others have a turn.
                    tokio::task::consume_budget().await;
                    return Ok(Message::Progress(0));
                }
                let gone = Error::Unavailable("it is gone".to_owned());
                self.moved.changed().await.map_err(|_| gone)?;
            }
        })
    }
}

//! The store in a folder of this machine: SQLite for what has to last, memory for everything else.
//!
//! All that is held is in memory, the present and the past. One thread changes it: it writes a group of transactions to
//! SQLite (write-ahead log, `synchronous=FULL`), and what was written is seen, said to watches and acknowledged only then.
//! After a fault of the disk nothing is written any more: what a failed `fsync` has left is not known before a restart. A
//! disk that is full is no such fault: what finds no room is refused, and taken again once there is room.
//!
//! In the folder lie `store.db` and its log `store.db-wal`; `head`, which says what was acknowledged last, so that a
//! database that was cut or put back is noticed; and `lock`, which the process that has the store holds. A damaged store is
//! refused and left as it is; [`repair`] makes a new one of what can be read.

mod cursor;
mod digest;
mod directory;
mod disk;
mod history;
mod repair;
mod rows;
mod staged;
mod writer;

pub use history::Keep;
pub use repair::{Repaired, repair};

use crate::clock::{Clock, System};
use crate::{
    Answer, Committed, Error, Identity, Lease, LeaseId, Listing, Query, Range, Revision, Store,
    Transaction, Watch,
};
use cursor::Cursor;
use directory::Directory;
use disk::Disk;
use history::History;
use rows::Contents;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use writer::{Reply, Request, Writer};

/// Most requests that wait for the writer; more wait where they are asked.
const WAITING_MAX: usize = 1_024;

/// How a store is kept.
#[derive(Clone, Debug)]
pub struct Options {
    /// Most bytes of keys and values that may be there at once, the past apart; 256 MiB. All of it is in memory.
    pub bytes_max: usize,
    /// How much of the past is held.
    pub keep: Keep,
    /// What time it is; the system's.
    pub clock: Arc<dyn Clock>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            bytes_max: 256 << 20,
            keep: Keep::default(),
            clock: Arc::new(System),
        }
    }
}

/// A store in a folder, which this process alone has. As it is dropped it waits for the writer to end.
#[derive(Debug)]
pub struct Embedded {
    shared: Arc<Shared>,
    /// Gone only while it is dropped, as the thread.
    requests: Option<mpsc::Sender<Request>>,
    thread: Option<JoinHandle<()>>,
}

/// What the writer and all who read have in common.
#[derive(Debug)]
struct Shared {
    id: u64,
    options: Options,
    clock: Arc<dyn Clock>,
    history: RwLock<History>,
    /// Says that there is something new.
    moved: watch::Receiver<Revision>,
    /// How the disk failed.
    fault: OnceLock<String>,
    /// Why the disk takes nothing for now: it has no room.
    full: Mutex<Option<String>>,
}

impl Shared {
    /// The history now. Whoever holds it holds up the writer.
    fn history(&self) -> RwLockReadGuard<'_, History> {
        self.history.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn history_mut(&self) -> RwLockWriteGuard<'_, History> {
        self.history.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn fault(&self) -> Option<&str> {
        self.fault.get().map(String::as_str)
    }

    fn set_fault(&self, what: &str) {
        // The first is what matters.
        let _ = self.fault.set(what.to_owned());
    }

    fn set_full(&self, what: Option<String>) {
        *self.full.lock().unwrap_or_else(PoisonError::into_inner) = what;
    }

    /// What users should know of the disk.
    fn warnings(&self) -> Vec<String> {
        if let Some(what) = self.fault() {
            let text = format!("The disk failed, and nothing is written until a restart: {what}.");
            return vec![text];
        }
        let full = self.full.lock().unwrap_or_else(PoisonError::into_inner);
        let warn = |what: &String| {
            format!("The disk has no room, and nothing is written until it has: {what}.")
        };
        full.iter().map(warn).collect()
    }
}

impl Embedded {
    /// Opens the store in the folder `path`, or makes one there. It reads all that is held, so it blocks for a while: about
    /// a second for each 100 MB.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if another process has it (then it is named) or the file system does not let us;
    /// [`Error::Damaged`] if what is there is not what was written, or older than what was acknowledged: nothing is
    /// changed then.
    pub fn open(path: &Path, options: Options) -> Result<Self, Error> {
        let (disk, contents) = Disk::open(Directory::take(path)?)?;
        let history = contents.history(&*options.clock);
        let (moved, receiver) = watch::channel(history.revision);
        let shared = Arc::new(Shared {
            id: disk.id(),
            clock: options.clock.clone(),
            options,
            history: RwLock::new(history),
            moved: receiver,
            fault: OnceLock::new(),
            full: Mutex::new(None),
        });
        let (requests, receiver) = mpsc::channel(WAITING_MAX);
        let writer = Writer {
            disk,
            shared: shared.clone(),
            moved,
            requests: receiver,
            is_full: false,
            held_up: None,
        };
        let no_thread = |error: std::io::Error| {
            Error::Unavailable(format!("cannot start the store's writer: {error}"))
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .map_err(no_thread)?;
        let thread = std::thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || runtime.block_on(writer.run()))
            .map_err(no_thread)?;
        Ok(Self {
            shared,
            requests: Some(requests),
            thread: Some(thread),
        })
    }

    /// How the disk failed, if it did. Nothing can be written until the store is opened again; what was acknowledged can
    /// be read.
    pub fn fault(&self) -> Option<&str> {
        self.shared.fault()
    }

    /// Writes a copy of the store to the file `path`, as it is now: put into an empty folder as `store.db` it is a store
    /// with the same keys, revisions, leases and past, but another identity. It blocks meanwhile; the writer goes on.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if it cannot be written. What was at `path` is there then as before.
    pub fn backup(&self, path: &Path) -> Result<(), Error> {
        let contents = Contents::copy(&self.shared.history());
        disk::create(path, &contents)
    }

    async fn ask<T>(&self, request: impl FnOnce(Reply<T>) -> Request) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        let closed = || Error::Unavailable("the store was closed".to_owned());
        let requests = self.requests.as_ref().ok_or_else(closed)?;
        let sent = requests.send(request(reply)).await;
        sent.map_err(|_| closed())?;
        let gone = |_| Err(Error::Unknown("the store's writer has ended".to_owned()));
        answer.await.unwrap_or_else(gone)
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // If it has panicked, it has said so.
            let _ = thread.join();
        }
    }
}

impl Store for Embedded {
    fn identity(&self) -> Answer<'_, Identity> {
        let identity = Identity {
            id: self.shared.id,
            revision: self.shared.history().revision,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            warnings: self.shared.warnings(),
        };
        Box::pin(std::future::ready(Ok(identity)))
    }

    fn list(&self, query: Query) -> Answer<'_, Listing> {
        Box::pin(async move { self.shared.history().list(&query) })
    }

    fn commit(&self, transaction: Transaction) -> Answer<'_, Committed> {
        Box::pin(async move {
            transaction.check()?;
            self.ask(|reply| Request::Commit(transaction, reply)).await
        })
    }

    fn watch(&self, range: Range, from: Revision) -> Answer<'_, Box<dyn Watch>> {
        Box::pin(async move {
            let cursor = Cursor::new(self.shared.clone(), range, from)?;
            Ok(Box::new(cursor) as Box<dyn Watch>)
        })
    }

    fn grant(&self, life: Duration) -> Answer<'_, Lease> {
        Box::pin(async move {
            Lease::check_life(life)?;
            self.ask(|reply| Request::Grant(life, reply)).await
        })
    }

    fn keep_alive(&self, id: LeaseId) -> Answer<'_, Lease> {
        Box::pin(self.ask(move |reply| Request::KeepAlive(id, reply)))
    }

    fn revoke(&self, id: LeaseId) -> Answer<'_, ()> {
        Box::pin(self.ask(move |reply| Request::Revoke(id, reply)))
    }

    fn lease(&self, id: LeaseId) -> Answer<'_, Lease> {
        Box::pin(async move {
            let now = self.shared.clock.monotonic();
            let history = self.shared.history();
            let alive = history.lease(id).filter(|(term, _)| term.until > now);
            alive
                .map(|(term, _)| term.lease(id, now))
                .ok_or(Error::NoLease(id))
        })
    }

    fn compact(&self, revision: Revision) -> Answer<'_, ()> {
        Box::pin(self.ask(move |reply| Request::Compact(revision, reply)))
    }
}

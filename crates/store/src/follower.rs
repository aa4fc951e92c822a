//! Follows a prefix for ever, whatever befalls the store.
//!
//! The way is: list at a revision, watch from the next. Only what was listed, what the watch has said and what it has
//! proven by progress moves the revision that a watch is taken up from; a clock or another connection never does (a gap
//! that nobody sees would be the price). Where history is lost the prefix is listed again and compared with what is known,
//! so that keys which went away in between go away here. Now and then the keys alone are listed and compared, for stores
//! have faults of their own.
//!
//! What is known stays in force while the store is away: it is told as stale, and since when.

mod memory;
#[cfg(test)]
mod tests;

pub use memory::{Entries, Memory};

use crate::{Error, Identity, Listing, Message, Query, Range, Revision, Store, Watch};
use bytes::Bytes;
use futures_util::FutureExt;
use memory::Difference;
use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Most messages of a watch that are put together before they are told.
const TOGETHER_MAX: usize = 1_000;

/// How a prefix is followed.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Shortest and longest wait between two tries to reach the store; the wait is drawn evenly from nothing up to what is
    /// due, so that those who lost it together do not come back together.
    pub backoff: (Duration, Duration),
    /// How often the keys are compared with the store's, a fifth more or less.
    pub check: Duration,
    /// How long what differs may be on its way before it counts as missed.
    pub check_again: Duration,
    /// Least time between two listings that lost history makes necessary.
    pub relist: Duration,
    /// 64 random bits.
    pub random: fn() -> u64,
}

impl Options {
    /// Those that hold where nobody says otherwise; `random` gives 64 random bits.
    pub fn new(random: fn() -> u64) -> Self {
        Self {
            backoff: (Duration::from_millis(50), Duration::from_secs(2)),
            check: Duration::from_secs(60),
            check_again: Duration::from_secs(2),
            relist: Duration::from_secs(1),
            random,
        }
    }
}

/// What is known of the prefix, and how well.
#[derive(Clone, Debug)]
pub struct View {
    /// What stands there.
    pub entries: Entries,
    /// As of when: all that happened up to it is in `entries`.
    pub revision: Revision,
    /// Which store it is from; `None`: nobody has said.
    pub store: Option<u64>,
    /// How well it is known.
    pub standing: Standing,
    /// It is from another store than what was told before, or from an older state of it. Said with every view until
    /// [`Follower::run`] ends: who has looked into it remembers so.
    pub doubt: Option<Doubt>,
}

/// How well the prefix is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing is known yet.
    Unknown,
    /// What was known when somebody last wrote it down; the store has not been heard of since the start.
    Restored,
    /// The watch runs.
    Live,
    /// The store was lost; what was known then is in force.
    Stale,
}

impl Standing {
    /// In a word, as people and programs read it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Restored => "restored",
            Self::Live => "live",
            Self::Stale => "stale",
        }
    }
}

/// Why what was listed may not be what is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// The store names itself otherwise than the one before: a wrong address, or it was set up anew.
    OtherStore,
    /// It is at a lower revision than was seen: it was restored from a backup.
    Older {
        /// What was seen.
        was: Revision,
    },
}

/// What is told.
#[derive(Clone, Debug)]
pub enum Told {
    /// This is known now.
    View(View),
    /// This has happened.
    Notice(Notice),
}

/// What has happened between here and the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// It was reached.
    Connected(Identity),
    /// All was listed: so many keys came or changed, so many went.
    Listed {
        /// As of when.
        revision: Revision,
        /// Keys that are new or another.
        put: usize,
        /// Keys that are gone.
        deleted: usize,
    },
    /// The watch runs from this revision on.
    Watching {
        /// Which.
        from: Revision,
    },
    /// The watch has ended, or could not begin; it is tried again after `wait`.
    Lost {
        /// Why.
        error: Error,
        /// How long it is waited.
        wait: Duration,
    },
    /// History that was needed is gone: all is listed again.
    Compacted {
        /// The oldest revision that is held.
        oldest: Revision,
    },
    /// What is known differs from what the store has, though nothing was missed: all is listed again.
    Diverged {
        /// How many keys differ.
        keys: usize,
        /// One of them.
        example: Bytes,
    },
    /// The keys were compared with the store's, and agree.
    Agrees {
        /// How many.
        keys: usize,
    },
    /// It is not the store that it was.
    Doubtful(Doubt),
}

/// Follows a prefix of a store.
pub struct Follower<T> {
    store: Arc<dyn Store>,
    range: Range,
    options: Options,
    memory: Memory,
    standing: Standing,
    doubt: Option<Doubt>,
    /// The store's own name for itself; that of what was restored, at first.
    known: Option<u64>,
    /// What is in memory was listed here: it can be followed from where it is.
    is_listed: bool,
    failures: u32,
    listed_at: Option<Instant>,
    watching_since: Option<Instant>,
    tell: T,
}

/// Why a watch is over.
enum Ended {
    Lost(Error),
    Compacted(Revision),
    Diverged,
}

impl From<Error> for Ended {
    fn from(error: Error) -> Self {
        match error {
            Error::Compacted { oldest } => Self::Compacted(oldest),
            error => Self::Lost(error),
        }
    }
}

impl<T: FnMut(Told)> Follower<T> {
    /// Follows what begins with `prefix`, and says what is known of it.
    pub fn new(store: Arc<dyn Store>, prefix: Bytes, options: Options, tell: T) -> Self {
        Self {
            store,
            range: Range::Prefix(prefix),
            options,
            memory: Memory::default(),
            standing: Standing::Unknown,
            doubt: None,
            known: None,
            is_listed: false,
            failures: 0,
            listed_at: None,
            watching_since: None,
            tell,
        }
    }

    /// Begins with what was known of the store `known` when somebody last wrote it down, and tells it at once.
    pub fn restore(&mut self, memory: Memory, known: u64) {
        self.memory = memory;
        self.known = Some(known);
        self.standing = Standing::Restored;
        self.view();
    }

    /// Follows until it is dropped.
    pub async fn run(mut self) -> ! {
        loop {
            let Err(ended) = self.follow().await;
            match ended {
                Ended::Compacted(oldest) => {
                    self.notice(Notice::Compacted { oldest });
                    self.list_again().await;
                }
                Ended::Diverged => self.list_again().await,
                Ended::Lost(error) => {
                    // A store that takes a watch and ends it at once is no store that is back.
                    let since = self.watching_since.take();
                    if since.is_some_and(|since| since.elapsed() >= self.options.backoff.1) {
                        self.failures = 0;
                    }
                    if self.standing == Standing::Live {
                        self.standing = Standing::Stale;
                        self.view();
                    }
                    let wait = self.backoff();
                    self.notice(Notice::Lost { error, wait });
                    tokio::time::sleep(wait).await;
                }
            }
        }
    }

    /// No faster than [`Options::relist`], so that many who lost history together do not list together for ever.
    async fn list_again(&mut self) {
        self.is_listed = false;
        if let Some(at) = self.listed_at {
            let gap = self.options.relist.mul_f64(0.5 + self.draw());
            tokio::time::sleep_until(at + gap).await;
        }
    }

    /// Full jitter: see Brooker, "Exponential Backoff And Jitter" (AWS, 2015).
    fn backoff(&mut self) -> Duration {
        let (least, most) = self.options.backoff;
        let due = least.saturating_mul(1 << self.failures.min(16)).min(most);
        self.failures = self.failures.saturating_add(1);
        due.mul_f64(self.draw())
    }

    /// A fifth more or less than is set: nodes that started together do not compare together.
    fn until_check(&self) -> Duration {
        self.options.check.mul_f64(0.8 + 0.4 * self.draw())
    }

    /// Evenly from 0 up to 1.
    fn draw(&self) -> f64 {
        ((self.options.random)() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn view(&mut self) {
        (self.tell)(Told::View(View {
            entries: self.memory.entries(),
            revision: self.memory.revision(),
            store: self.known,
            standing: self.standing,
            doubt: self.doubt,
        }));
    }

    fn notice(&mut self, notice: Notice) {
        (self.tell)(Told::Notice(notice));
    }

    /// From no connection to the end of one.
    async fn follow(&mut self) -> Result<std::convert::Infallible, Ended> {
        let store = Arc::clone(&self.store);
        let identity = store.identity().await?;
        self.recognise(&identity);
        self.notice(Notice::Connected(identity.clone()));
        if !self.is_listed {
            let listing = store.list(Query::now(self.range.clone())).await?;
            // Not before: what is known until then is the other one's.
            self.known = Some(identity.id);
            self.listed(listing);
        }
        let from = self.memory.revision() + 1;
        let mut watch = store.watch(self.range.clone(), from).await?;
        self.notice(Notice::Watching { from });
        self.standing = Standing::Live;
        self.watching_since = Some(Instant::now());
        self.view();
        self.attend(&*store, &mut *watch).await
    }

    /// Whether it is still the store that is known, and no earlier state of it.
    fn recognise(&mut self, identity: &Identity) {
        let doubt = match self.known {
            Some(known) if known != identity.id => Some(Doubt::OtherStore),
            _ if identity.revision < self.memory.revision() => Some(Doubt::Older {
                was: self.memory.revision(),
            }),
            _ => None,
        };
        if let Some(doubt) = doubt {
            self.is_listed = false;
            self.doubt = Some(doubt);
            self.notice(Notice::Doubtful(doubt));
        }
    }

    fn listed(&mut self, listing: Listing) {
        let revision = listing.revision;
        let (put, deleted) = self.memory.replace(listing);
        self.is_listed = true;
        self.listed_at = Some(Instant::now());
        self.notice(Notice::Listed {
            revision,
            put,
            deleted,
        });
    }

    /// Hears the watch, and compares keys in between.
    async fn attend(
        &mut self,
        store: &dyn Store,
        watch: &mut dyn Watch,
    ) -> Result<std::convert::Infallible, Ended> {
        let keys = Query {
            keys_only: true,
            ..Query::now(self.range.clone())
        };
        let mut suspects = HashSet::new();
        let mut wait = self.until_check();
        loop {
            self.hear(watch, tokio::time::sleep(wait)).await?;
            let listing = self.hear(watch, store.list(keys.clone())).await??;
            // What lies ready is on its way, and no suspect.
            if let Some(message) = watch.next().now_or_never() {
                self.take(watch, message)?;
            }
            suspects = self.compare(&listing, &suspects)?;
            wait = match suspects.is_empty() {
                true => self.until_check(),
                false => self.options.check_again,
            };
        }
    }

    /// Hears the watch until `other` is there: what that waits for comes first, or a watch that always has something to say
    /// would keep it off for ever.
    async fn hear<F: Future>(
        &mut self,
        watch: &mut dyn Watch,
        other: F,
    ) -> Result<F::Output, Ended> {
        tokio::pin!(other);
        loop {
            tokio::select! {
                biased;
                output = &mut other => return Ok(output),
                message = watch.next() => self.take(watch, message)?,
            }
        }
    }

    /// Takes `message` and what lies ready behind it, and tells it: a burst of edits is one table. Also where the watch ends
    /// with it, what was said before is known.
    fn take(
        &mut self,
        watch: &mut dyn Watch,
        message: Result<Message, Error>,
    ) -> Result<(), Error> {
        let (has_changed, heard) = self.burst(watch, message);
        if has_changed {
            self.view();
        }
        heard
    }

    /// Takes up to [`TOGETHER_MAX`] messages. Whether what is known has become another, and how the watch has ended if it has.
    fn burst(
        &mut self,
        watch: &mut dyn Watch,
        message: Result<Message, Error>,
    ) -> (bool, Result<(), Error>) {
        let mut has_changed = false;
        let mut next = Some(message);
        let mut taken = 0;
        while let Some(message) = next {
            match message {
                Ok(message) => has_changed |= self.learn(message),
                Err(error) => return (has_changed, Err(error)),
            }
            taken += 1;
            // What is taken from the watch is lost if it is not looked at.
            next = match taken < TOGETHER_MAX {
                true => watch.next().now_or_never(),
                false => None,
            };
        }
        (has_changed, Ok(()))
    }

    /// Whether what is known has become another.
    fn learn(&mut self, message: Message) -> bool {
        match message {
            Message::Batch(batch) => self.memory.apply(batch),
            Message::Progress(revision) => {
                self.memory.progress(revision);
                false
            }
        }
    }

    /// What differs now and differed in the same way before was missed. Else what differs, to be looked at again.
    fn compare(
        &mut self,
        listing: &Listing,
        before: &HashSet<Difference>,
    ) -> Result<HashSet<Difference>, Ended> {
        let now = self.memory.differences(listing);
        let mut missed = now.iter().filter(|found| before.contains(found));
        if let Some(first) = missed.next() {
            let (keys, example) = (1 + missed.count(), first.key.clone());
            self.notice(Notice::Diverged { keys, example });
            return Err(Ended::Diverged);
        }
        if now.is_empty() {
            self.notice(Notice::Agrees {
                keys: listing.entries.len(),
            });
        }
        Ok(now.into_iter().collect())
    }
}

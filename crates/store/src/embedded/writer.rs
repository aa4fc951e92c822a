//! The one thread that changes anything: it takes all requests that wait, does them in order, and answers them after one
//! transaction of SQLite, that is after one `fsync`.

use super::Shared;
use super::disk::{Disk, Unwritten};
use super::staged::Staged;
use crate::{Committed, Error, Lease, LeaseId, Operation, Revision, Transaction, clock};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};

/// Most requests of one group.
const GROUP_MAX: usize = 1_024;
/// A group that has so many bytes of values takes no more requests.
const GROUP_BYTES_MAX: usize = 8 << 20;
/// How long it waits with what is due while the disk is full, and how often it looks whether there is room.
const FULL_WAIT: Duration = Duration::from_secs(1);
/// Longer than anything waits for.
const FOREVER: Duration = Duration::from_secs(1 << 30);

/// Where an answer goes to.
pub(super) type Reply<T> = oneshot::Sender<Result<T, Error>>;

/// What is asked of the thread.
#[derive(Debug)]
pub(super) enum Request {
    Commit(Transaction, Reply<Committed>),
    Grant(Duration, Reply<Lease>),
    KeepAlive(LeaseId, Reply<Lease>),
    Revoke(LeaseId, Reply<()>),
    Compact(Revision, Reply<()>),
}

impl Request {
    fn bytes(&self) -> usize {
        let Self::Commit(transaction, _) = self else {
            return 0;
        };
        let value = |operation: &Operation| match operation {
            Operation::Put { value, .. } => value.len(),
            Operation::Delete(_) => 0,
        };
        transaction.operations.iter().map(value).sum()
    }
}

/// An answer that waits for the disk; with an error, the disk's is the answer.
type Held = Box<dyn FnOnce(Option<&Error>)>;

fn hold<T: 'static>(reply: Reply<T>, outcome: Result<T, Error>) -> Held {
    // Whoever asked may have gone.
    Box::new(move |failed| drop(reply.send(failed.map_or(outcome, |error| Err(error.clone())))))
}

/// What the thread owns.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) disk: Disk,
    pub(super) shared: Arc<Shared>,
    /// Says that there is something new; who follows the store is told that it is closed as this goes.
    pub(super) moved: watch::Sender<Revision>,
    pub(super) requests: mpsc::Receiver<Request>,
    /// The disk was full the last time.
    pub(super) is_full: bool,
    /// The log could not be written back to the database for want of room: why, and when that is tried again. Until it is
    /// done nothing more goes into the log, which would grow without bounds.
    pub(super) held_up: Option<(String, Duration)>,
}

impl Writer {
    /// Works until nobody can ask any more.
    pub(super) async fn run(mut self) {
        loop {
            let wait = self.until_next_due();
            let first = match tokio::time::timeout(wait, self.requests.recv()).await {
                Ok(None) => break,
                Ok(first) => first,
                Err(_) => None,
            };
            let mut group: Vec<_> = first.into_iter().collect();
            let mut bytes: usize = group.iter().map(Request::bytes).sum();
            while group.len() < GROUP_MAX && bytes < GROUP_BYTES_MAX {
                let Ok(request) = self.requests.try_recv() else {
                    break;
                };
                bytes += request.bytes();
                group.push(request);
            }
            self.serve(group);
        }
        if self.shared.fault().is_none() {
            // What is not written back is in the log, where the next start finds it.
            let _ = self.disk.close();
        }
    }

    /// How long until something is due by itself: a lease's end, or another look whether a full disk has room.
    fn until_next_due(&self) -> Duration {
        if self.shared.fault().is_some() {
            return FOREVER;
        }
        let now = self.shared.clock.monotonic();
        if let Some((_, again)) = &self.held_up {
            return again.saturating_sub(now);
        }
        if self.is_full {
            return FULL_WAIT;
        }
        let history = self.shared.history();
        let next = history.leases().map(|(_, term)| term.until).min();
        next.map_or(FOREVER, |next| next.saturating_sub(now))
    }

    fn serve(&mut self, requests: Vec<Request>) {
        if self.held_up.is_some() {
            self.write_back();
        }
        let mut group = Vec::new();
        for request in requests {
            match request {
                Request::Compact(at, reply) => {
                    self.write(std::mem::take(&mut group));
                    let outcome = self.compact(at);
                    hold(reply, outcome)(None);
                }
                other => group.push(other),
            }
        }
        self.write(group);
        self.forget_excess();
        self.write_back();
    }

    /// Writes the log back to the database if that is due, and was not in vain a moment ago.
    fn write_back(&mut self) {
        let now = self.shared.clock.monotonic();
        if self.shared.fault().is_some()
            || self.held_up.as_ref().is_some_and(|(_, again)| now < *again)
        {
            return;
        }
        match self.disk.checkpoint_if_due() {
            Ok(()) => self.held_up = None,
            Err(Unwritten::Full(what)) => self.held_up = Some((what, now + FULL_WAIT)),
            Err(Unwritten::Broken(what)) => self.shared.set_fault(&what),
        }
        if let Some((what, _)) = &self.held_up {
            self.shared.set_full(Some(what.clone()));
        } else if !self.is_full {
            self.shared.set_full(None);
        }
    }

    /// Why nothing can be written now, if it is known before it is tried.
    fn refusal(&self) -> Option<Error> {
        if let Some(what) = self.shared.fault() {
            return Some(refused(what));
        }
        self.held_up.as_ref().map(|(what, _)| full(what))
    }

    /// Does `requests` and what is due by itself, all in one transaction of SQLite, and answers.
    fn write(&mut self, requests: Vec<Request>) {
        let mut failed = self.refusal();
        let mut answers = Vec::new();
        if let Some(error) = &failed {
            let refuse = |request| stage_nothing(request, error);
            answers.extend(requests.into_iter().map(refuse));
        } else {
            let shared = self.shared.clone();
            let history = shared.history();
            let mut staged = Staged::over(&history, shared.clock.monotonic());
            staged.expire();
            let stage = |request| self.stage(request, &mut staged);
            answers = requests.into_iter().map(stage).collect();
            let (revision, changes) = staged.finish();
            drop(history);
            if !changes.is_empty() {
                match self.disk.commit(&changes, revision) {
                    Ok(()) => {
                        self.disk.note_head();
                        self.set_full(None);
                        shared.history_mut().apply(changes);
                        self.moved.send_replace(revision);
                    }
                    Err(unwritten) => failed = Some(self.unwritten(unwritten)),
                }
            } else if self.is_full {
                self.look();
            }
        }
        for answer in answers {
            answer(failed.as_ref());
        }
    }

    /// Whether there is room again, which nobody would know before somebody writes.
    fn look(&mut self) {
        match self.disk.look() {
            Ok(()) => {
                self.disk.note_head();
                self.set_full(None);
            }
            // It is told already, or is from now on.
            Err(unwritten) => drop(self.unwritten(unwritten)),
        }
    }

    fn set_full(&mut self, what: Option<String>) {
        self.is_full = what.is_some();
        self.shared.set_full(what);
    }

    fn stage(&self, request: Request, staged: &mut Staged<'_>) -> Held {
        let wall = self.shared.clock.wall();
        match request {
            Request::Commit(transaction, reply) => hold(
                reply,
                staged.commit(&transaction, self.shared.options.bytes_max),
            ),
            Request::Grant(life, reply) => loop {
                let id = LeaseId((clock::random() >> 1) as i64);
                if let Some(lease) = (id.0 != 0).then(|| staged.grant(id, life, wall)).flatten() {
                    return hold(reply, Ok(lease));
                }
            },
            Request::KeepAlive(id, reply) => hold(reply, staged.keep_alive(id, wall)),
            Request::Revoke(id, reply) => hold(reply, staged.revoke(id)),
            Request::Compact(_, reply) => hold(reply, Err(refused("it does that alone"))),
        }
    }

    fn compact(&mut self, at: Revision) -> Result<(), Error> {
        if let Some(error) = self.refusal() {
            return Err(error);
        }
        let shared = self.shared.clone();
        let history = shared.history();
        if at > history.revision {
            return Err(Error::Future {
                asked: at,
                current: history.revision,
            });
        }
        if at <= history.oldest {
            return Err(history.compacted());
        }
        let numbers = history.forgettable(at);
        drop(history);
        if let Err(unwritten) = self.disk.forget(&numbers, at) {
            return Err(self.unwritten(unwritten));
        }
        self.disk.note_head();
        shared.history_mut().forget(at);
        Ok(())
    }

    /// Forgets by itself what need not be held.
    fn forget_excess(&mut self) {
        let shared = self.shared.clone();
        let keep = &shared.options.keep;
        let excess = {
            let history = shared.history();
            let now = shared.clock.monotonic();
            let excess = history.excess(keep, now);
            // In larger steps, as each costs a write of its own.
            let step = (keep.revisions_min / 10) as u64;
            let is_over = history.history_bytes > keep.bytes_max;
            excess.filter(|at| is_over || at - history.oldest > step)
        };
        if let Some(at) = excess {
            // A full disk leaves more history than need be; another fault is told to the next who writes.
            let _ = self.compact(at);
        }
    }

    fn unwritten(&mut self, unwritten: Unwritten) -> Error {
        match unwritten {
            Unwritten::Full(what) => {
                let error = full(&what);
                self.set_full(Some(what));
                error
            }
            Unwritten::Broken(what) => {
                self.shared.set_fault(&what);
                Error::Unknown(format!("the disk failed: {what}"))
            }
        }
    }
}

/// For a request that comes while nothing can be written.
fn stage_nothing(request: Request, error: &Error) -> Held {
    let error = error.clone();
    match request {
        Request::Commit(_, reply) => hold(reply, Err(error)),
        Request::Grant(_, reply) | Request::KeepAlive(_, reply) => hold(reply, Err(error)),
        Request::Revoke(_, reply) | Request::Compact(_, reply) => hold(reply, Err(error)),
    }
}

/// What is said to those who ask while the disk has no room.
fn full(what: &str) -> Error {
    Error::Full(format!(
        "{what}: make room on the disk; what is there already can be read"
    ))
}

/// What is said to those who ask after the disk has failed.
fn refused(what: &str) -> Error {
    Error::Unavailable(format!(
        "the disk failed, and what it holds is not known for sure until a restart: {what}"
    ))
}

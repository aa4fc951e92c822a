//! Drives the pool: asks it, tells it what became of requests, and has it do what is due.
//!
//! There is no task for that. Whoever is about to pick, or has just told of an outcome, first does what is due (as a
//! rule: two atomic loads), and whoever waits for a place has a timer. So nothing has to be spawned or shut down, a
//! balancer lives on any runtime or on several, and nothing is decided from a state whose time is over: an idle pool
//! does what came due with the next call, or the next look at its status.

use crate::clock::Clock;
use mizan_core::{
    Admin, Backend, Claim, Event, Instant, Member, NoPick, Outcome, Pick, Pool, PoolConfig,
    PoolStatus, ProbeResult, UnknownBackend,
};
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, TryLockError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;
use tokio::time::Sleep;

/// What the owner of a balancer has done with each event.
pub(crate) type Listener = Box<dyn Fn(&Event) + Send + Sync>;

/// A pool and what its driver has to know. Shared by all handles.
pub(crate) struct Driver {
    pool: Pool,
    clock: Box<dyn Clock>,
    listener: Listener,
    /// Held by the one who does what is due. Others go on: nobody waits for it.
    ticking: Mutex<()>,
    /// How many wait for a place, so that a place that is given back wakes nobody in vain.
    waiting: AtomicUsize,
    freed: Arc<Notify>,
}

impl Driver {
    pub(crate) fn new(config: PoolConfig, clock: Box<dyn Clock>, listener: Listener) -> Self {
        Self {
            pool: Pool::new(clock.now(), config, Vec::new(), clock.random()),
            clock,
            listener,
            ticking: Mutex::new(()),
            waiting: AtomicUsize::new(0),
            freed: Arc::default(),
        }
    }

    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Claims a backend, after what is due was done.
    pub(crate) fn pick(
        self: &Arc<Self>,
        now: Instant,
        hash: Option<u64>,
        tried: &[u64],
    ) -> Result<Held, NoPick> {
        self.advance(now);
        let claim = self.pool.pick(&Pick {
            now,
            random: self.clock.random(),
            hash,
            tried,
            worker: worker(),
        })?;
        Ok(Held {
            claim,
            wake: Wake {
                driver: Arc::clone(self),
                is_wanted: true,
            },
        })
    }

    /// Says what became of a request, and does what that makes due.
    pub(crate) fn observe(&self, now: Instant, backend: &Backend, outcome: Outcome) {
        self.pool.observe(now, worker(), backend, outcome);
        self.advance(now);
    }

    pub(crate) fn deposit(&self) {
        self.pool.retry_budget().deposit(worker());
    }

    pub(crate) fn withdraw(&self) -> bool {
        self.pool.retry_budget().withdraw(self.now())
    }

    pub(crate) fn report(&self, backend: &Backend, utilization: f64) {
        self.pool.report(self.now(), backend, utilization);
    }

    pub(crate) fn probed(&self, key: &str, result: ProbeResult) {
        let now = self.now();
        self.pool.probed(now, key, result);
        self.advance(now);
    }

    pub(crate) fn set_admin(&self, key: &str, admin: Admin) -> Result<(), UnknownBackend> {
        let now = self.now();
        self.pool.set_admin(now, key, admin)?;
        self.advance(now);
        self.wake_all();
        Ok(())
    }

    pub(crate) fn status(&self) -> PoolStatus {
        let now = self.now();
        self.advance(now);
        self.pool.status(now)
    }

    /// Has the pool take over configuration and members. Gives its backends.
    pub(crate) fn update(&self, config: PoolConfig, members: Vec<Member>) -> Vec<Arc<Backend>> {
        let events = self.pool.update(self.now(), config, members);
        self.tell(&events);
        self.wake_all();
        self.pool.backends()
    }

    /// Does what is due, unless somebody else is at it.
    pub(crate) fn advance(&self, now: Instant) {
        // Who found work while another was at it has left it to that one: so that looks again.
        while self.is_due(now) {
            let ticking = match self.ticking.try_lock() {
                Ok(ticking) => ticking,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return,
            };
            let events = self.pool.tick(now);
            drop(ticking);
            self.tell(&events);
            self.wake_all();
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        self.pool.is_dirty() || self.pool.deadline().is_some_and(|deadline| deadline <= now)
    }

    fn tell(&self, events: &[Event]) {
        events.iter().for_each(&self.listener);
    }

    /// A place was given back: one who waits may have it.
    fn wake_one(&self) {
        // In one order with `Waiter::poll`: either this sees the waiter, or its pick sees the place.
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.freed.notify_one();
        }
    }

    /// Something changed for everybody.
    fn wake_all(&self) {
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.freed.notify_waiters();
        }
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver")
            .field("pool", &self.pool)
            .field("clock", &self.clock)
            .field("waiting", &self.waiting)
            .finish_non_exhaustive()
    }
}

/// A backend's place for one request, given back when it drops; one who waits for a place is then woken.
#[derive(Debug)]
pub(crate) struct Held {
    claim: Claim,
    // Dropped after `claim`: fields go in their order.
    wake: Wake,
}

impl Held {
    pub(crate) fn backend(&self) -> &Arc<Backend> {
        self.claim.backend()
    }

    pub(crate) fn driver(&self) -> &Driver {
        &self.wake.driver
    }

    /// Gives it back and wakes nobody: whoever looks for a place and takes one in hand while it looks would wake itself,
    /// or another who would wake it in turn, and so for ever.
    pub(crate) fn put_back(mut self) {
        self.wake.is_wanted = false;
    }
}

#[derive(Debug)]
struct Wake {
    driver: Arc<Driver>,
    is_wanted: bool,
}

impl Drop for Wake {
    fn drop(&mut self) {
        if self.is_wanted {
            self.driver.wake_one();
        }
    }
}

/// Waits for a change that may make a pick succeed: a place, a member, what was due. Wakes at least once in
/// [`LOOK_AGAIN`] besides, which makes up for a wake that went to a handle that nobody polls any more, and for a look that
/// found a place taken which was only being looked at.
pub(crate) struct Waiter {
    freed: Pin<Box<OwnedNotified>>,
    timer: Pin<Box<Sleep>>,
    // Dropped last: while a wake is passed on there must be somebody counted.
    counted: Counted,
}

/// The longest time between two looks of one who waits.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

impl Waiter {
    /// Enters; the next pick sees all that happens without a wake. Poll before it, so that the task is known.
    pub(crate) fn new(driver: &Arc<Driver>, now: Instant) -> Self {
        let counted = Counted::new(driver);
        let until = driver
            .pool
            .deadline()
            .map_or(LOOK_AGAIN, |at| (at - now).min(LOOK_AGAIN));
        Self {
            freed: Box::pin(Arc::clone(&driver.freed).notified_owned()),
            timer: Box::pin(tokio::time::sleep(until)),
            counted,
        }
    }

    /// Ready when it is worth another look.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.freed.as_mut().poll(cx).is_ready() || self.timer.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        // In one order with `wake_one`, which reads the count after the place was given back.
        fence(Ordering::SeqCst);
        Poll::Pending
    }
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiter")
            .field("counted", &self.counted)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Counted(Arc<Driver>);

impl Counted {
    fn new(driver: &Arc<Driver>) -> Self {
        driver.waiting.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(driver))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A number of the calling thread, by which counters are spread.
fn worker() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static WORKER: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    // A thread that is ending has none any more: then any will do.
    WORKER.try_with(|worker| *worker).unwrap_or(0)
}

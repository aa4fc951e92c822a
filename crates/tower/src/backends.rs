//! The pool's owner: members, configuration, what people want, and what is known.

use crate::balance::Balance;
use crate::clock::{Clock, TokioClock};
use crate::driver::Driver;
use crate::source::{Members, Table};
use futures_core::Stream;
use mizan_core::{
    Admin, Backend, Event, Member, PoolConfig, PoolStatus, ProbeResult, UnknownBackend,
};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

/// Changes that [`Backends::follow`] puts into force together, at most.
const CHANGES_MAX: usize = 10_000;

/// What discovery found out.
#[derive(Clone, Debug, PartialEq)]
pub enum Change<S> {
    /// A backend is there, or has other settings or another service than it had. What is known of it stays while its key
    /// and address do.
    Insert(Member, S),
    /// The backend of this key is gone. Requests that it has go on.
    Remove(Arc<str>),
}

/// A pool of backends, each with its service `S`; `()` where one service reaches all, as with
/// [`BalanceLayer`](crate::BalanceLayer). Clones are handles to the same pool.
#[derive(Debug)]
pub struct Backends<S = ()> {
    driver: Arc<Driver>,
    table: Table<S>,
}

impl<S: Clone> Backends<S> {
    /// An empty pool on Tokio's clock.
    pub fn new(config: PoolConfig) -> Self {
        Self::with(config, TokioClock::new(), |_| ())
    }

    /// An empty pool with a clock of its own, whose `listener` hears of every transition, for a log. It is called by
    /// whoever brings a transition about, in the middle of a request too: it should be quick, and must not call these
    /// methods.
    pub fn with(
        config: PoolConfig,
        clock: impl Clock,
        listener: impl Fn(&Event) + Send + Sync + 'static,
    ) -> Self {
        Self {
            driver: Arc::new(Driver::new(
                config.clone(),
                Box::new(clock),
                Box::new(listener),
            )),
            table: Table::new(config),
        }
    }

    /// These are the members from here on, and no others. Of two with one key the last is taken.
    pub fn set(&self, members: impl IntoIterator<Item = (Member, S)>) {
        self.change(|known| {
            known.by_key = members
                .into_iter()
                .map(|(member, service)| (Arc::clone(&member.key), (member, service)))
                .collect();
        });
    }

    /// One member more, or one that changed: [`Change::Insert`].
    pub fn insert(&self, member: Member, service: S) {
        self.apply([Change::Insert(member, service)]);
    }

    /// One member fewer: [`Change::Remove`].
    pub fn remove(&self, key: &str) {
        self.apply([Change::Remove(key.into())]);
    }

    /// Puts changes into force together, which costs as much as one: time in proportion to the members.
    pub fn apply(&self, changes: impl IntoIterator<Item = Change<S>>) {
        self.change(|known| {
            for change in changes {
                match change {
                    Change::Insert(member, service) => {
                        let key = Arc::clone(&member.key);
                        known.by_key.insert(key, (member, service));
                    }
                    Change::Remove(key) => {
                        known.by_key.remove(&key);
                    }
                }
            }
        });
    }

    /// Applies what a discovery says until that ends; the members then stay. Those changes that are there at one time are
    /// applied together. For a task of its own, or a `select!` beside the traffic.
    pub async fn follow(&self, changes: impl Stream<Item = Change<S>>) {
        let mut changes = pin!(changes);
        loop {
            let mut found = Vec::new();
            let is_over = poll_fn(|cx| {
                while found.len() < CHANGES_MAX {
                    match changes.as_mut().poll_next(cx) {
                        Poll::Ready(Some(change)) => found.push(change),
                        Poll::Ready(None) => return Poll::Ready(true),
                        Poll::Pending if found.is_empty() => return Poll::Pending,
                        Poll::Pending => break,
                    }
                }
                Poll::Ready(false)
            })
            .await;
            self.apply(found);
            if is_over {
                return;
            }
        }
    }

    /// Takes over another configuration; what is known of the backends stays.
    pub fn configure(&self, config: PoolConfig) {
        self.change(|known| known.config = config);
    }

    /// A balancer over the services that these backends were given.
    pub fn balance(&self) -> Balance<Table<S>> {
        Balance::new(self, self.table.clone())
    }

    fn change(&self, change: impl FnOnce(&mut Members<S>)) {
        self.table.change(&self.driver, change);
    }
}

impl Backends {
    /// As [`Self::set`], for members that one service reaches.
    pub fn set_members(&self, members: impl IntoIterator<Item = Member>) {
        self.set(members.into_iter().map(|member| (member, ())));
    }
}

impl<S> Backends<S> {
    /// What people want of a backend. It stays with the key, also while the backend is gone.
    ///
    /// # Errors
    /// [`UnknownBackend`] if there is no such member.
    pub fn set_admin(&self, key: &str, admin: Admin) -> Result<(), UnknownBackend> {
        self.driver.set_admin(key, admin)
    }

    /// What a health check of the caller's own found. Ignored unless [`PoolConfig::probed`].
    pub fn probed(&self, key: &str, result: ProbeResult) {
        self.driver.probed(key, result);
    }

    /// A backend says how much of what it can take is taken: 0 none, 1 all.
    pub fn report(&self, backend: &Backend, utilization: f64) {
        self.driver.report(backend, utilization);
    }

    /// Counts one request, no retry, for [`Self::withdraw_retry`].
    pub fn deposit_request(&self) {
        self.driver.deposit();
    }

    /// Takes one retry out of the pool's budget ([`PoolConfig::retry_budget`]); false if there is none left.
    pub fn withdraw_retry(&self) -> bool {
        self.driver.withdraw()
    }

    /// All that is known: states, shares, and the reason for each as a sentence. Does first what came due.
    pub fn status(&self) -> PoolStatus {
        self.driver.status()
    }

    pub(crate) fn driver(&self) -> &Arc<Driver> {
        &self.driver
    }
}

// By hand: a derived one would ask for `S: Clone`.
impl<S> Clone for Backends<S> {
    fn clone(&self) -> Self {
        Self {
            driver: Arc::clone(&self.driver),
            table: self.table.clone(),
        }
    }
}

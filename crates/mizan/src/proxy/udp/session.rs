//! One client's session: which backend it is at, and what became of that.
//!
//! ```text
//!            first datagram: pick             an answer comes
//!  unbound ───────────────────────▶ bound ─────────────────────▶ answered
//!     ▲                               │                              │
//!     └───────────────────────────────┴──────────────────────────────┘
//!       refused (ICMP), or the backend left, is drained or looks bad at the next datagram
//! ```

use super::socket::{self, Client};
use crate::clock;
use crate::lack::is_our_lack;
use crate::proxy::error::Reason;
use crate::proxy::forward::ABORTED;
use crate::proxy::listen::Counted;
use crate::proxy::plan;
use crate::proxy::record::{self, Record};
use crate::proxy::worker::{InForce, Worker};
use crate::snapshot::{Datagrams, HashKey, Listener, Pool, Waiters};
use crate::telemetry::metrics::{ListenerCells, OpenConnection, Place};
use mizan_core::backend::{Address, Backend};
use mizan_core::pool::{Claim, NoPick, Outcome, Pick};
use mizan_core::time::Instant;
use std::io;
use std::net::UdpSocket;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// A refusal that has not come back within this time will not come.
const REFUSAL: Duration = Duration::from_millis(200);

/// What holds for the datagrams of one turn.
pub(super) struct Turn<'t> {
    pub(super) worker: &'t Rc<Worker>,
    pub(super) in_force: &'t InForce,
    pub(super) listener: &'t Listener,
    pub(super) terms: &'t Datagrams,
    pub(super) pool: Option<&'t Arc<Pool>>,
    pub(super) cells: &'t ListenerCells,
}

/// One client's session.
#[derive(Debug)]
pub(super) struct Session {
    started: Instant,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
    bound: Option<Bound>,
    tries: u32,
    /// Why it is not bound, if something is to blame.
    reason: Option<Reason>,
    /// [`Backend::id`] of the one that failed last; 0: none did.
    avoided: u64,
    /// The last one that was picked.
    backend: Option<Arc<Backend>>,
    /// Its pool.
    pool: Option<Arc<str>>,
    /// From the first datagram to that backend to its first answer.
    upstream: Option<Duration>,
    _counted: [Counted; 2],
}

/// A session's place at a backend.
#[derive(Debug)]
struct Bound {
    socket: UdpSocket,
    claim: Claim,
    // Dropped after `claim`: fields go in their order.
    wake: Wake,
    core: Arc<mizan_core::pool::Pool>,
    /// The worker that it lives on.
    worker: usize,
    _open: OpenConnection,
    /// When the first datagram went there.
    asked: Option<Instant>,
    is_answered: bool,
    /// It had refused, and was picked to see whether it still does.
    is_doubted: bool,
}

/// Calls who waits for a place in the pool: listeners of HTTP or TCP may share it.
#[derive(Debug)]
struct Wake(Arc<Waiters>);

impl Drop for Wake {
    fn drop(&mut self) {
        self.0.wake();
    }
}

impl Session {
    /// One of a client that nothing has been done for.
    pub(super) fn new(counted: [Counted; 2]) -> Self {
        Self {
            started: clock::now(),
            bytes_in: 0,
            bytes_out: 0,
            bound: None,
            tries: 0,
            reason: None,
            avoided: 0,
            backend: None,
            pool: None,
            upstream: None,
            _counted: counted,
        }
    }

    /// Whether a backend was ever connected to.
    pub(super) fn is_placed(&self) -> bool {
        self.bound.is_some() || self.upstream.is_some() || self.bytes_in > 0
    }

    /// The socket of the backend that it may go on with.
    pub(super) fn socket(&self) -> Option<&UdpSocket> {
        self.bound.as_ref().map(|bound| &bound.socket)
    }

    /// Gives up a backend that may get nothing more, or is of a pool that the listener no longer names.
    pub(super) fn look(&mut self, turn: &Turn<'_>) {
        let Some(bound) = &mut self.bound else {
            return;
        };
        bound.prove();
        let is_of_pool = |pool: &Arc<Pool>| Arc::ptr_eq(&pool.waiters, &bound.wake.0);
        let stays = turn.pool.is_some_and(is_of_pool)
            && (bound.is_doubted || bound.claim.backend().is_usable());
        if !stays {
            self.release();
        }
    }

    /// Picks a backend and connects to it.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn bind(&mut self, client: &Client, turn: &Turn<'_>) -> Result<(), Reason> {
        let Some(pool) = turn.pool else {
            return Err(Reason::NoBackend);
        };
        let avoided = [self.avoided];
        let picked = pool.core.pick(&Pick {
            now: clock::now(),
            random: clock::random(),
            hash: (pool.hash_key == Some(HashKey::ClientAddress))
                .then(|| plan::hash_of_address(client.peer.ip().to_canonical())),
            tried: if self.avoided == 0 { &[] } else { &avoided },
            worker: turn.worker.index,
        });
        self.pool = Some(Arc::clone(&pool.name));
        let claim = picked.map_err(|error| match error {
            NoPick::Saturated => Reason::QueueFull,
            NoPick::Empty | NoPick::NoneUsable => Reason::NoBackend,
        })?;
        let backend = Arc::clone(claim.backend());
        self.tries += 1;
        self.backend = Some(Arc::clone(&backend));
        turn.worker.upstreams.begin(pool, &backend);
        let connected = match backend.address() {
            Address::Ip(address) => socket::connected(*address),
            Address::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
        };
        match connected {
            Ok(socket) => {
                self.reason = None;
                self.bound = Some(Bound {
                    socket,
                    // A trial is taken while the mark still stands.
                    is_doubted: pool.core.is_last_resort() || !backend.is_usable(),
                    worker: turn.worker.index,
                    claim,
                    wake: Wake(Arc::clone(&pool.waiters)),
                    core: Arc::clone(&pool.core),
                    _open: turn.in_force.series.connection_opened(self.place(turn)),
                    asked: None,
                    is_answered: false,
                });
                Ok(())
            }
            Err(error) => {
                let reason = if is_no_room(&error) {
                    Reason::NoResources
                } else {
                    self.avoided = backend.id();
                    Reason::ConnectError
                };
                blame(&pool.core, turn.worker, pool, &backend, reason);
                Err(reason)
            }
        }
    }

    /// A datagram was sent to the backend.
    pub(super) fn sent(&mut self, length: usize) {
        self.bytes_in += length as u64;
        if let Some(bound) = &mut self.bound
            && bound.asked.is_none()
        {
            bound.asked = Some(clock::now());
        }
    }

    /// A datagram came from the backend.
    pub(super) fn answered(&mut self, turn: &Turn<'_>) {
        let Some(bound) = self.bound.as_mut().filter(|bound| !bound.is_answered) else {
            return;
        };
        let now = clock::now();
        bound.is_answered = true;
        bound.is_doubted = false;
        let latency = now.saturating_since(bound.asked.unwrap_or(now));
        let outcome = Outcome::Success { latency };
        bound
            .core
            .observe(now, bound.worker, bound.claim.backend(), outcome);
        self.avoided = 0;
        self.upstream = Some(latency);
        let place = self.place(turn);
        turn.in_force.series.pool(place).latency.record(latency);
    }

    /// The backend is not there: the next datagram finds another.
    pub(super) fn failed(&mut self, reason: Reason, turn: &Turn<'_>) {
        let Some(bound) = self.bound.take() else {
            return;
        };
        let backend = bound.claim.backend();
        self.avoided = backend.id();
        let pools = &turn.in_force.snapshot.pools;
        if let Some(pool) = self.pool.as_ref().and_then(|name| pools.get(name)) {
            blame(&bound.core, turn.worker, pool, backend, reason);
        }
        if bound.is_answered || bound.asked.is_none() {
            self.reason = Some(reason);
        } else {
            self.unreached(reason, turn);
        }
    }

    /// It has ended, for `reason` if it was not by itself.
    pub(super) fn end(mut self, client: &Client, turn: &Turn<'_>) {
        self.release();
        let place = self.place(turn);
        let pools = &turn.in_force.snapshot.pools;
        let pool = self.pool.as_ref().and_then(|name| pools.get(name));
        let mut outcome = Record::new(self.started, self.bytes_in);
        outcome.bytes_out = self.bytes_out;
        outcome.reason = self.reason;
        outcome.tries = self.tries;
        outcome.upstream = self.upstream;
        outcome.backend = self.backend.take();
        outcome.pool = pool.map(|pool| &**pool);
        outcome.place = place;
        let whose = (&*turn.listener.name, client.peer);
        record::session_ended(whose, turn.worker, turn.in_force, &outcome);
    }

    /// Gives the backend back: it is not to blame.
    fn release(&mut self) {
        if let Some(mut bound) = self.bound.take() {
            bound.prove();
            if !bound.is_answered && !bound.is_doubted {
                let backend = bound.claim.backend();
                bound
                    .core
                    .observe(clock::now(), bound.worker, backend, ABORTED);
            }
        }
    }

    /// Notes that a datagram reached nothing, and is bound to none.
    pub(super) fn unreached(&mut self, reason: Reason, turn: &Turn<'_>) {
        self.bound = None;
        self.reason = Some(reason);
        if let Some(cause) = reason.unreached() {
            turn.in_force.series.pool(self.place(turn)).unreached(cause);
        }
    }

    /// Where it is counted.
    fn place(&self, turn: &Turn<'_>) -> Place {
        let pools = &turn.in_force.snapshot.pools;
        let version = self
            .backend
            .as_ref()
            .map_or("", |backend| backend.version());
        match self.pool.as_ref().and_then(|name| pools.get(name)) {
            Some(pool) => turn.in_force.series.pool_place(pool, version),
            None => Place::NOWHERE,
        }
    }
}

impl Bound {
    /// A backend that refused and was sent a datagram has proved itself if that did not come back: where answers are
    /// not usual, nothing else would.
    fn prove(&mut self) {
        let Some(asked) = self.asked.filter(|_| self.is_doubted) else {
            return;
        };
        let now = clock::now();
        let latency = now.saturating_since(asked);
        if latency >= REFUSAL {
            self.is_doubted = false;
            let outcome = Outcome::Success { latency };
            self.core
                .observe(now, self.worker, self.claim.backend(), outcome);
        }
    }
}

/// What core and the backend's counters are told of `reason`.
fn blame(
    core: &mizan_core::pool::Pool,
    worker: &Worker,
    pool: &Pool,
    backend: &Backend,
    reason: Reason,
) {
    let outcome = reason.failure().map_or(ABORTED, Outcome::Failure);
    if let Outcome::Failure(_) = outcome {
        worker.upstreams.failed(pool, backend);
    }
    core.observe(clock::now(), worker.index, backend, outcome);
}

/// Whether this machine lacks something for one more socket. Linux says EAGAIN when no port is free.
pub(super) fn is_no_room(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock || is_our_lack(error)
}

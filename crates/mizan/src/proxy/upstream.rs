//! Connections to backends: a pool of idle ones for each worker, and new ones.

use super::error::Reason;
use super::timer::Timer;
use super::transport::Transport;
use crate::lack::is_our_lack;
use crate::snapshot::Pool;
use crate::telemetry::metrics::{BackendCounter, Metrics, OpenConnection};
use mizan_core::backend::{Address, Backend};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::io;
use std::sync::Arc;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UnixStream};

/// Between two looks through the idle connections, in ms.
const SWEEP_MS: u64 = 1000;

/// A connection to a backend.
#[derive(Debug)]
pub(super) struct Upstream<'c> {
    pub(super) transport: Transport,
    pub(super) open: OpenConnection,
    pub(super) backend: &'c Backend,
    /// How it ended, if it did.
    pub(super) end: End,
    /// It has served a request before: a close without an answer may be the backend's idle time-out.
    pub(super) reused: bool,
}

#[derive(Debug)]
struct Idle {
    transport: Transport,
    open: OpenConnection,
    /// When it is closed, in ms of the wheel.
    until_ms: u64,
}

/// By [`Backend::id`].
type Backends = HashMap<u64, Known, BuildHasherDefault<IdHasher>>;

/// What one worker knows of a backend.
#[derive(Debug)]
struct Known {
    idle: Vec<Idle>,
    counted: BackendCounter,
}

/// The idle connections of one worker.
#[derive(Debug)]
pub(super) struct Upstreams {
    backends: RefCell<Backends>,
    metrics: Arc<Metrics>,
    worker: usize,
    count: Cell<usize>,
    count_max: usize,
    swept_ms: Cell<u64>,
}

impl Upstreams {
    /// Those of the worker with this index: `count_max` at most.
    pub(super) fn new(metrics: Arc<Metrics>, worker: usize, count_max: usize) -> Self {
        Self {
            backends: RefCell::default(),
            metrics,
            worker,
            count: Cell::new(0),
            count_max,
            swept_ms: Cell::new(0),
        }
    }

    /// Begins a try at `backend`: an idle connection that is not known to be closed, if there is one.
    pub(super) fn take<'c>(&self, pool: &Pool, backend: &'c Backend) -> Option<Upstream<'c>> {
        let mut backends = self.backends.borrow_mut();
        let known = self.known(&mut backends, pool, backend);
        known.counted.requests.add(1);
        while let Some(mut entry) = known.idle.pop() {
            self.count.set(self.count.get() - 1);
            if entry.transport.is_quiet() {
                entry.open.reuse();
                return Some(Upstream {
                    transport: entry.transport,
                    open: entry.open,
                    backend,
                    end: End::default(),
                    reused: true,
                });
            }
        }
        None
    }

    /// Begins a try at `backend` on a connection of its own.
    pub(super) fn begin(&self, pool: &Pool, backend: &Backend) {
        let mut backends = self.backends.borrow_mut();
        let known = self.known(&mut backends, pool, backend);
        known.counted.requests.add(1);
    }

    /// A try at `backend` has failed, or was answered with a status of 500 or more.
    pub(super) fn failed(&self, pool: &Pool, backend: &Backend) {
        let mut backends = self.backends.borrow_mut();
        self.known(&mut backends, pool, backend)
            .counted
            .failures
            .add(1);
    }

    /// Keeps a connection whose last exchange has ended cleanly, if there is room for it.
    pub(super) fn put(&self, mut up: Upstream<'_>, pool: &Pool, now_ms: u64) {
        // A PROXY header holds for the whole connection: it can serve no other client.
        let is_one_clients = pool.proxy_protocol.is_some();
        let is_full = self.count.get() >= self.count_max;
        if is_one_clients || is_full || pool.keepalive.idle_timeout.is_zero() {
            return;
        }
        let mut backends = self.backends.borrow_mut();
        let known = self.known(&mut backends, pool, up.backend);
        if known.idle.len() >= pool.keepalive.idle_max {
            return;
        }
        up.open.rest();
        known.idle.push(Idle {
            transport: up.transport,
            open: up.open,
            until_ms: now_ms + pool.keepalive.idle_timeout.as_millis() as u64,
        });
        self.count.set(self.count.get() + 1);
    }

    /// The entry of a backend. A sweep removes those with no idle connection, so that backends that left
    /// the pool are forgotten; the counts are not in it but in the metrics.
    fn known<'b>(
        &self,
        backends: &'b mut Backends,
        pool: &Pool,
        backend: &Backend,
    ) -> &'b mut Known {
        backends.entry(backend.id()).or_insert_with(|| Known {
            idle: Vec::new(),
            counted: self.metrics.backend(self.worker, &pool.name, backend.key()),
        })
    }

    /// Once a second: closes what has been idle for too long or was closed by its backend.
    pub(super) fn sweep(&self, now_ms: u64) {
        if now_ms < self.swept_ms.get() + SWEEP_MS {
            return;
        }
        self.swept_ms.set(now_ms);
        let mut count = 0;
        self.backends.borrow_mut().retain(|_, known| {
            let idle = &mut known.idle;
            idle.retain_mut(|entry| entry.until_ms > now_ms && entry.transport.is_quiet());
            count += idle.len();
            !idle.is_empty()
        });
        self.count.set(count);
    }
}

/// How a connection to a backend ended.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct End {
    /// The backend had sent FIN before it refused anything.
    pub(super) finished: bool,
    /// Its kernel answered with a reset.
    pub(super) reset: bool,
}

impl End {
    /// Notes an error of a read or a write. Linux says EPIPE for a reset behind a FIN, ECONNRESET for a bare one.
    pub(super) fn note(&mut self, error: io::ErrorKind) {
        self.reset = true;
        self.finished |= error == io::ErrorKind::BrokenPipe;
    }
}

impl Upstream<'_> {
    /// The exchange ends before its time. A request of which a part has not arrived is called back: behind a full
    /// window a FIN would wait for the backend to read what nobody wants any more.
    pub(super) fn abandon(&mut self) {
        if self.transport.unacknowledged().is_some_and(|left| left > 0) {
            self.transport.reset_on_close();
        }
    }
}

/// Connects to `backend` and sends `first`, which goes before anything else; `timer` bounds it.
///
/// # Errors
/// [`Reason::ConnectRefused`], [`Reason::ConnectTimeout`], [`Reason::NoResources`] or [`Reason::ConnectError`].
pub(super) async fn connect(
    backend: &Backend,
    timer: &Timer,
    first: &[u8],
) -> Result<Transport, Reason> {
    let connecting = async {
        match backend.address() {
            Address::Ip(address) => {
                let mut stream = TcpStream::connect(address).await?;
                let _ = stream.set_nodelay(true);
                stream.write_all(first).await?;
                Ok(Transport::from(stream))
            }
            Address::Unix(path) => {
                let mut stream = UnixStream::connect(path).await?;
                stream.write_all(first).await?;
                Ok(Transport::from(stream))
            }
        }
    };
    let result = tokio::select! {
        biased;
        result = connecting => result,
        () = timer.expired() => return Err(Reason::ConnectTimeout),
    };
    result.map_err(|error: io::Error| match error.kind() {
        // A Unix socket's path that is gone is a backend that does not listen.
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => Reason::ConnectRefused,
        io::ErrorKind::TimedOut => Reason::ConnectTimeout,
        _ if is_our_lack(&error) => Reason::NoResources,
        _ => Reason::ConnectError,
    })
}

/// Backend identifiers are already spread: a multiplication is hash enough.
#[derive(Debug, Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }

    fn write_u64(&mut self, id: u64) {
        self.0 = id.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

//! Connections to backends: a pool of idle ones for each worker, and new ones.

use super::error::Reason;
use super::timer::Timer;
use super::transport::Transport;
use super::worker::InForce;
use crate::snapshot::Pool;
use mizan_core::backend::{Address, Backend};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::io;
use std::task::{Context, Poll, Waker};
use tokio::net::{TcpStream, UnixStream};

/// Between two looks through the idle connections, in ms.
const SWEEP_MS: u64 = 1000;

/// A connection to a backend.
#[derive(Debug)]
pub(super) struct Upstream<'c> {
    pub(super) transport: Transport,
    pub(super) backend: &'c Backend,
    /// The backend's kernel refused it with a reset.
    pub(super) reset: bool,
    /// It has served a request before: a close without an answer may be the backend's idle time-out.
    pub(super) reused: bool,
}

#[derive(Debug)]
struct Idle {
    transport: Transport,
    /// When it is closed, in ms of the wheel.
    until_ms: u64,
}

/// The idle connections of one worker.
#[derive(Debug)]
pub(super) struct Upstreams {
    idle: RefCell<HashMap<u64, Vec<Idle>, BuildHasherDefault<IdHasher>>>,
    count: Cell<usize>,
    count_max: usize,
    swept_ms: Cell<u64>,
}

impl Upstreams {
    pub(super) fn new(count_max: usize) -> Self {
        Self {
            idle: RefCell::default(),
            count: Cell::new(0),
            count_max,
            swept_ms: Cell::new(0),
        }
    }

    /// An idle connection to `backend` that is not known to be closed.
    pub(super) fn take<'c>(&self, backend: &'c Backend) -> Option<Upstream<'c>> {
        let mut idle = self.idle.borrow_mut();
        let stack = idle.get_mut(&backend.id())?;
        while let Some(entry) = stack.pop() {
            self.count.set(self.count.get() - 1);
            if is_quiet(&entry.transport) {
                return Some(Upstream {
                    transport: entry.transport,
                    backend,
                    reset: false,
                    reused: true,
                });
            }
        }
        None
    }

    /// Keeps a connection whose last exchange has ended cleanly.
    pub(super) fn put(
        &self,
        backend: &Backend,
        pool: &Pool,
        transport: Transport,
        now_ms: u64,
    ) -> bool {
        if self.count.get() >= self.count_max || pool.keepalive.idle_timeout.is_zero() {
            return false;
        }
        let mut idle = self.idle.borrow_mut();
        let stack = idle.entry(backend.id()).or_default();
        if stack.len() >= pool.keepalive.idle_max {
            return false;
        }
        stack.push(Idle {
            transport,
            until_ms: now_ms + pool.keepalive.idle_timeout.as_millis() as u64,
        });
        self.count.set(self.count.get() + 1);
        true
    }

    /// Once a second: closes what has been idle for too long or was closed by its backend.
    pub(super) fn sweep(&self, now_ms: u64, in_force: &InForce) {
        if now_ms < self.swept_ms.get() + SWEEP_MS {
            return;
        }
        self.swept_ms.set(now_ms);
        let _ = in_force;
        let mut count = 0;
        self.idle.borrow_mut().retain(|_, stack| {
            stack.retain(|entry| entry.until_ms > now_ms && is_quiet(&entry.transport));
            count += stack.len();
            !stack.is_empty()
        });
        self.count.set(count);
    }
}

/// Whether an idle connection is open and has nothing to say. Readiness answers without a system call when
/// nothing happened; a stale readiness costs one read.
fn is_quiet(transport: &Transport) -> bool {
    match transport.poll_read_ready(&mut Context::from_waker(Waker::noop())) {
        Poll::Pending => true,
        Poll::Ready(Err(_)) => false,
        // An end, an error, or bytes that nobody asked for.
        Poll::Ready(Ok(())) => {
            matches!(transport.try_read(&mut [0; 1]), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
        }
    }
}

/// Connects to `backend`; `timer` bounds it.
///
/// # Errors
/// [`Reason::ConnectRefused`], [`Reason::ConnectTimeout`] or [`Reason::ConnectError`].
pub(super) async fn connect<'c>(
    backend: &'c Backend,
    timer: &Timer,
) -> Result<Upstream<'c>, Reason> {
    let connecting = async {
        match backend.address() {
            Address::Ip(address) => TcpStream::connect(address).await.map(|stream| {
                let _ = stream.set_nodelay(true);
                Transport::Tcp(stream)
            }),
            Address::Unix(path) => UnixStream::connect(path).await.map(Transport::Unix),
        }
    };
    let result = tokio::select! {
        biased;
        result = connecting => result,
        () = timer.expired() => return Err(Reason::ConnectTimeout),
    };
    result
        .map(|transport| Upstream {
            transport,
            backend,
            reset: false,
            reused: false,
        })
        .map_err(|error| match error.kind() {
            // A Unix socket's path that is gone is a backend that does not listen.
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => Reason::ConnectRefused,
            io::ErrorKind::TimedOut => Reason::ConnectTimeout,
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

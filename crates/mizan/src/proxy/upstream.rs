//! Connections to backends: a pool of idle ones for each worker, and new ones.

use super::buffer::BufferPool;
use super::error::Reason;
use super::http2::client::{ClientStream, Shared};
use super::socket::Socket;
use super::timer::Timer;
use super::tls::{Session, Tls};
use super::transport::Transport;
use crate::lack::is_our_lack;
use crate::snapshot::{ClientTls, Pool};
use crate::telemetry::logging::OncePerSecond;
use crate::telemetry::metrics::{BackendCounter, Metrics, OpenConnection};
use mizan_core::backend::{Address, Backend};
use rustls::client::UnbufferedClientConnection;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Notify;

/// Between two looks through the idle connections, in ms.
const SWEEP_MS: u64 = 1000;

/// A connection to a backend.
#[derive(Debug)]
pub(super) struct Upstream<'c> {
    pub(super) transport: Transport,
    /// Counts the connection as open; `None` for a stream of one that others share.
    pub(super) open: Option<OpenConnection>,
    pub(super) backend: &'c Backend,
    /// How it ended, if it did.
    pub(super) end: End,
    /// [`Transport::sent`] when this try began.
    pub(super) sent_before: usize,
    /// It has served a request before: a close without an answer may be the backend's idle time-out.
    pub(super) reused: bool,
    /// How long this try waited for it, in µs: that says little of how the backend serves.
    pub(super) connecting_us: u32,
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
    /// Connections of HTTP/2.
    shared: Vec<Shared>,
    /// Somebody opens one: who else wants one waits for it.
    opening: Option<Rc<Notify>>,
    /// It speaks HTTP/1.1 where it could have chosen.
    is_private: bool,
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

    /// A try at `backend` has begun.
    pub(super) fn begin(&self, pool: &Pool, backend: &Backend) {
        let mut backends = self.backends.borrow_mut();
        let known = self.known(&mut backends, pool, backend);
        known.counted.requests.add(1);
    }

    /// An idle connection that is not known to be closed, or a stream of one that is shared, if there is one.
    pub(super) fn take<'c>(&self, pool: &Pool, backend: &'c Backend) -> Option<Upstream<'c>> {
        let mut backends = self.backends.borrow_mut();
        let known = self.known(&mut backends, pool, backend);
        if let Some(stream) = known.shared.iter().find_map(Shared::stream) {
            return Some(Upstream::of_stream(stream, backend, true));
        }
        while let Some(mut entry) = known.idle.pop() {
            self.count.set(self.count.get() - 1);
            if entry.transport.is_quiet() {
                entry.open.reuse();
                return Some(Upstream {
                    sent_before: entry.transport.sent(),
                    transport: entry.transport,
                    open: Some(entry.open),
                    backend,
                    end: End::default(),
                    reused: true,
                    connecting_us: 0,
                });
            }
        }
        None
    }

    /// The right to open a shared connection to `backend`, or who to wait for.
    pub(super) fn opening(
        &self,
        pool: &Pool,
        backend: &Backend,
    ) -> Result<Opening<'_>, Rc<Notify>> {
        let mut backends = self.backends.borrow_mut();
        let known = self.known(&mut backends, pool, backend);
        if let Some(opening) = &known.opening {
            return Err(Rc::clone(opening));
        }
        let done = Rc::new(Notify::new());
        known.opening = Some(Rc::clone(&done));
        Ok(Opening {
            upstreams: self,
            backend: backend.id(),
            done,
        })
    }

    /// Whether the backend's last connection was one that cannot be shared, by the backend's own choice.
    pub(super) fn is_private(&self, pool: &Pool, backend: &Backend) -> bool {
        let mut backends = self.backends.borrow_mut();
        self.known(&mut backends, pool, backend).is_private
    }

    /// Notes what the backend has chosen.
    pub(super) fn note_private(&self, pool: &Pool, backend: &Backend, is_private: bool) {
        let mut backends = self.backends.borrow_mut();
        self.known(&mut backends, pool, backend).is_private = is_private;
    }

    /// Keeps a connection that requests share.
    pub(super) fn share(&self, shared: Shared, pool: &Pool, backend: &Backend) {
        let mut backends = self.backends.borrow_mut();
        self.known(&mut backends, pool, backend).shared.push(shared);
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
        let Some(mut open) = up.open.take() else {
            // A stream has served its one exchange.
            return;
        };
        if is_one_clients || is_full || pool.keepalive.idle_timeout.is_zero() {
            return;
        }
        let mut backends = self.backends.borrow_mut();
        let known = self.known(&mut backends, pool, up.backend);
        if known.idle.len() >= pool.keepalive.idle_max {
            return;
        }
        open.rest();
        known.idle.push(Idle {
            transport: up.transport,
            open,
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
            shared: Vec::new(),
            opening: None,
            is_private: false,
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
            known.shared.retain(|shared| shared.is_alive(now_ms));
            !idle.is_empty() || !known.shared.is_empty() || known.opening.is_some()
        });
        self.count.set(count);
    }
}

/// The right to open a connection that requests share; whoever waits looks again when it is given up.
#[derive(Debug)]
pub(super) struct Opening<'u> {
    upstreams: &'u Upstreams,
    backend: u64,
    done: Rc<Notify>,
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        if let Some(known) = self.upstreams.backends.borrow_mut().get_mut(&self.backend) {
            known.opening = None;
        }
        self.done.notify_waiters();
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
        // TLS calls a FIN without `close_notify` an unexpected end.
        let is_end = error == io::ErrorKind::UnexpectedEof;
        self.reset |= !is_end;
        self.finished |= is_end || error == io::ErrorKind::BrokenPipe;
    }
}

impl<'c> Upstream<'c> {
    /// One stream of a connection that others share.
    pub(super) fn of_stream(stream: ClientStream, backend: &'c Backend, reused: bool) -> Self {
        Self {
            transport: Transport::ToBackend(Box::new(stream)),
            open: None,
            backend,
            end: End::default(),
            sent_before: 0,
            reused,
            connecting_us: 0,
        }
    }

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
) -> Result<Socket, Reason> {
    let connecting = async {
        match backend.address() {
            Address::Ip(address) => {
                let mut stream = TcpStream::connect(address).await?;
                let _ = stream.set_nodelay(true);
                stream.write_all(first).await?;
                Ok(Socket::Tcp(stream))
            }
            Address::Unix(path) => {
                let mut stream = UnixStream::connect(path).await?;
                stream.write_all(first).await?;
                Ok(Socket::Unix(stream))
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

/// What is spoken over TLS with a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// HTTP, of a version that ALPN settles.
    Http,
    /// What the client speaks, whatever that is.
    Tcp,
}

/// Agrees on TLS with `backend` over a new connection; `timer` bounds it.
///
/// # Errors
/// [`Reason::TlsFailed`]: nothing of a request was sent.
pub(super) async fn secure(
    socket: Socket,
    (tls, over, backend): (&ClientTls, Over, &Backend),
    buffers: &Rc<BufferPool>,
    timer: &Timer,
) -> Result<Box<Tls>, Reason> {
    let name = tls.name_of(backend.key(), backend.address());
    let name = name.ok_or(Reason::TlsFailed)?;
    let config = match over {
        Over::Http => &tls.config,
        Over::Tcp => &tls.tcp_config,
    };
    let session = UnbufferedClientConnection::new(Arc::clone(config), name);
    let session = session.map_err(|_| Reason::TlsFailed)?;
    let mut tls = Box::new(Tls::new(socket, Session::Client(session), buffers));
    let result = std::future::poll_fn(|cx| match tls.poll_handshake(cx) {
        Poll::Pending if timer.poll_expired(cx) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
        result => result,
    })
    .await;
    match result {
        Ok(()) => Ok(tls),
        Err(error) => {
            say_tls_failed(backend, &error);
            Err(Reason::TlsFailed)
        }
    }
}

/// A backend that is to speak HTTP/2 did not agree to it.
pub(super) fn say_no_http2(backend: &Backend) {
    let error =
        io::Error::other("it did not choose `h2` by ALPN, and the pool's `protocol` is \"http2\"");
    say_tls_failed(backend, &error);
}

/// A backend speaks another protocol than its pool.
pub(super) fn say_wrong_protocol(backend: &Backend, spoken: &str) {
    static SAID: OncePerSecond = OncePerSecond::new();
    if let Some(silent) = SAID.allow(crate::clock::now()) {
        tracing::warn!(
            backend = &**backend.key(),
            spoken,
            silent,
            "a backend speaks another protocol than its pool: see `protocol`"
        );
    }
}

fn say_tls_failed(backend: &Backend, error: &io::Error) {
    static SAID: OncePerSecond = OncePerSecond::new();
    if let Some(silent) = SAID.allow(crate::clock::now()) {
        tracing::warn!(
            backend = &**backend.key(),
            %error,
            silent,
            "the TLS handshake with a backend failed"
        );
    }
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

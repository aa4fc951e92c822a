//! Accepting: sockets with `SO_REUSEPORT` for each worker, evened out by handing connections over.

use super::udp;
use super::worker::{Message, Worker};
use crate::lack::is_our_lack;
use crate::snapshot::{Bind, Listener};
use crate::telemetry::cause::ConnectionRefusal;
use crate::telemetry::logging::OncePerSecond;
use crate::telemetry::metrics::ListenerCells;
use rustix::io::Errno;
use rustix::net::SocketFlags;
use socket2::{Domain, Protocol, SockAddr, SockFilter, SockRef, Socket, Type};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// How long an accept loop rests when descriptors have run out and none comes free.
const REST: Duration = Duration::from_millis(500);

/// How long a handshake may be under way when a listener closes.
const HANDSHAKE: Duration = Duration::from_millis(20);

/// The same when `connections_max` is reached.
const FULL_REST: Duration = Duration::from_millis(50);

/// The client connections (over UDP: sessions) of one listener that are open, over all workers.
#[derive(Clone, Debug, Default)]
pub struct OpenCount(Arc<Open>);

#[derive(Debug, Default)]
struct Open {
    all: AtomicUsize,
    /// By address, where the listener has a limit on that.
    shares: Mutex<HashMap<IpAddr, usize>>,
}

impl OpenCount {
    pub(super) fn get(&self) -> usize {
        self.0.all.load(Ordering::Relaxed)
    }

    pub(super) fn count_one(&self) -> Counted {
        self.0.all.fetch_add(1, Ordering::Relaxed);
        Counted(self.clone())
    }

    fn shares(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.0.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of the connections that an address may have, until it is dropped.
#[derive(Debug)]
pub(super) struct Share {
    open: OpenCount,
    address: IpAddr,
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut shares = self.open.shares();
        if let Entry::Occupied(mut share) = shares.entry(self.address) {
            *share.get_mut() -= 1;
            if *share.get() == 0 {
                share.remove();
            }
        }
    }
}

/// Whom an address stands for: a network of 64 bits is one subscriber's (RFC 6177).
fn subscriber(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::from([a, b, c, d, 0, 0, 0, 0])
        }
        address => address,
    }
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(super) struct Counted(OpenCount);

impl Counted {
    /// One more connection of `address`; `None` if it has `most` already.
    pub(super) fn share(&self, address: IpAddr, most: usize) -> Option<Box<Share>> {
        let address = subscriber(address);
        let mut shares = self.0.shares();
        let share = shares.entry(address).or_default();
        if *share >= most {
            return None;
        }
        *share += 1;
        let open = self.0.clone();
        Some(Box::new(Share { open, address }))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.all.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An accepted client connection, not yet tied to a runtime.
#[derive(Debug)]
pub struct Accepted {
    pub(super) socket: OwnedFd,
    /// `None`: a Unix socket.
    pub(super) peer: Option<SocketAddr>,
    pub(super) listener: Arc<Listener>,
    pub(super) counted: Counted,
}

/// Whether another process listens where `listener` is to. With `SO_REUSEPORT` both would get connections, which
/// nobody means who starts a second instance by mistake.
///
/// # Errors
/// [`io::ErrorKind::AddrInUse`], or what else forbids to bind there.
pub fn expect_free(listener: &Listener) -> io::Result<()> {
    let address = match &listener.bind {
        Bind::Tcp(address) => address,
        Bind::Udp(address) => return udp::expect_free(*address),
        // A path is looked at when it is opened.
        Bind::Unix(_) => return Ok(()),
    };
    let socket = Socket::new(
        Domain::for_address(*address),
        Type::STREAM.cloexec(),
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    socket.bind(&SockAddr::from(*address))
}

/// Opens one worker's socket for `listener`. All workers bind to one address; the kernel spreads connections.
///
/// # Errors
/// Of the system calls; the caller names the address.
pub fn open(listener: &Listener) -> io::Result<OwnedFd> {
    let (domain, address) = match &listener.bind {
        Bind::Tcp(address) => (Domain::for_address(*address), SockAddr::from(*address)),
        Bind::Udp(address) => return udp::open(*address),
        Bind::Unix(path) => (Domain::UNIX, SockAddr::unix(path)?),
    };
    let protocol = if domain == Domain::UNIX {
        None
    } else {
        Some(Protocol::TCP)
    };
    let socket = Socket::new(domain, Type::STREAM.nonblocking().cloexec(), protocol)?;
    match &listener.bind {
        Bind::Tcp(address) => {
            socket.set_reuse_address(true)?;
            socket.set_reuse_port(true)?;
            if address.is_ipv6() {
                // Dual stack on the unspecified address only, as everyone expects of `[::]:80`.
                socket.set_only_v6(!address.ip().is_unspecified())?;
            }
        }
        Bind::Unix(path) => remove_stale(path)?,
        Bind::Udp(_) => {}
    }
    socket.bind(&address)?;
    if let (Bind::Unix(path), Some(mode)) = (&listener.bind, listener.mode) {
        // Before `listen`: until then nobody can connect, whatever the umask has left.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    }
    socket.listen(i32::try_from(listener.backlog).unwrap_or(i32::MAX))?;
    Ok(socket.into())
}

/// Removes a socket file that nobody listens on any more.
fn remove_stale(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::FileTypeExt;
    let Ok(metadata) = std::fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !metadata.file_type().is_socket() {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "the path exists and is not a socket",
        ));
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            "another process listens on this socket",
        )),
        Err(_) => std::fs::remove_file(path),
    }
}

/// Accepts until told to stop; then empties the queue, so that no connection is lost, and closes.
pub(super) async fn accept_loop(
    worker: Rc<Worker>,
    bind: Bind,
    socket: OwnedFd,
    open: OpenCount,
    mut stopped: watch::Receiver<bool>,
) {
    let Ok(socket) = super::sys::watch_readable(socket) else {
        tracing::error!(%bind, "cannot watch the listening socket");
        return;
    };
    let mut acceptor = Acceptor {
        worker,
        bind,
        open,
        is_stopping: false,
        is_full: false,
    };
    loop {
        let ready = tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => break,
            ready = socket.readable() => ready,
        };
        let Ok(mut ready) = ready else { break };
        match acceptor.accept_some(socket.get_ref()) {
            Drained::Empty => ready.clear_ready(),
            Drained::More => {}
            Drained::Full(cause) => acceptor.rest(cause, &mut stopped).await,
        }
        // The connections just accepted get their turn before the next.
        tokio::task::yield_now().await;
    }
    acceptor.is_stopping = true;
    // A close resets what is in the queue, and what would still come there after a last look. So first nobody new is
    // let in, then those whose handshake is under way are waited for.
    if let Bind::Tcp(_) = acceptor.bind {
        drop_new(socket.get_ref());
    }
    while let Drained::More = acceptor.accept_some(socket.get_ref()) {}
    tokio::time::sleep(HANDSHAKE).await;
    while let Drained::More = acceptor.accept_some(socket.get_ref()) {}
}

/// Has the kernel drop what asks for a new connection; who asks tries again in a second, and finds the listener gone
/// or another in its place. (A Unix path was taken away before.)
fn drop_new(socket: &OwnedFd) {
    const FLAGS: u32 = 13;
    const SYN: u32 = 0x02;
    const ACK: u32 = 0x10;
    // The classic filter sees a segment from its TCP header on: drop it if SYN is set and ACK is not.
    let filter = [
        SockFilter::new(0x30, 0, 0, FLAGS),
        SockFilter::new(0x54, 0, 0, SYN | ACK),
        SockFilter::new(0x15, 0, 1, SYN),
        SockFilter::new(0x06, 0, 0, 0),
        SockFilter::new(0x06, 0, 0, u32::MAX),
    ];
    let _ = SockRef::from(socket).attach_filter(&filter);
}

/// One worker's acceptor at one listener.
struct Acceptor {
    worker: Rc<Worker>,
    bind: Bind,
    open: OpenCount,
    /// Who is still in the queue has a connection already: no limit turns it away.
    is_stopping: bool,
    /// It has begun to leave connections in the queue.
    is_full: bool,
}

enum Drained {
    /// The queue is empty.
    Empty,
    /// There may be more.
    More,
    /// The rest waits in the queue, because the listener's limit is reached, or for want of descriptors or memory.
    Full(ConnectionRefusal),
}

impl Acceptor {
    /// Accepts a bounded number, so that a flood of connections does not starve those being served.
    fn accept_some(&mut self, socket: &OwnedFd) -> Drained {
        let in_force = self.worker.in_force();
        let Some(listener) = Worker::listener(&in_force.snapshot, &self.bind) else {
            // It is closed before a snapshot without it comes into force.
            return Drained::Empty;
        };
        let cells = in_force.series.listener(listener.index);
        for _ in 0..16 {
            if let Some(cause) = self.is_at_limit(&listener) {
                return self.full(cause, cells);
            }
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            match rustix::net::acceptfrom_with(socket.as_fd(), flags) {
                Ok((client, address)) => {
                    self.is_full = false;
                    let peer = address.and_then(|address| SocketAddr::try_from(address).ok());
                    if !permits(&listener, peer) {
                        cells.refused(ConnectionRefusal::Network);
                        continue;
                    }
                    let accepted = Accepted {
                        socket: client,
                        peer,
                        listener: Arc::clone(&listener),
                        counted: self.open.count_one(),
                    };
                    admit(&self.worker, accepted);
                }
                Err(Errno::AGAIN) => return Drained::Empty,
                Err(error) if is_our_lack(&error.into()) => {
                    return self.full(ConnectionRefusal::Resources, cells);
                }
                // A client that went away while it waited, or a network error of that connection alone (accept(2)).
                Err(_) => {}
            }
        }
        Drained::More
    }

    fn is_at_limit(&self, listener: &Listener) -> Option<ConnectionRefusal> {
        let shared = &self.worker.shared;
        match () {
            () if self.is_stopping => None,
            () if self.open.get() >= listener.connections_max => Some(ConnectionRefusal::Limit),
            () if shared.clients() >= shared.clients_max => Some(ConnectionRefusal::Resources),
            () => None,
        }
    }

    /// Counted and said when it begins, not each time that it is found to go on.
    fn full(&mut self, cause: ConnectionRefusal, cells: &ListenerCells) -> Drained {
        if !std::mem::replace(&mut self.is_full, true) {
            cells.refused(cause);
            if matches!(cause, ConnectionRefusal::Resources) {
                self.say_no_descriptors();
            }
        }
        Drained::Full(cause)
    }

    /// Accepts nothing until a connection of this worker closes, or for a while: another worker's may have closed.
    async fn rest(&self, cause: ConnectionRefusal, stopped: &mut watch::Receiver<bool>) {
        let time = match cause {
            ConnectionRefusal::Resources => REST,
            _ => FULL_REST,
        };
        tokio::select! {
            () = self.worker.descriptors_freed.notified() => {}
            () = tokio::time::sleep(time) => {}
            _ = stopped.wait_for(|stopped| *stopped) => {}
        }
    }

    fn say_no_descriptors(&self) {
        static SAID: OncePerSecond = OncePerSecond::new();
        if let Some(silent) = SAID.allow(crate::clock::now()) {
            tracing::error!(
                bind = %self.bind,
                silent,
                "descriptors have run out: not accepting until a connection closes; raise LimitNOFILE (ulimit -n)"
            );
        }
    }
}

/// Whether a peer at `address` may connect. One that speaks for others in a PROXY header need not be allowed itself:
/// the address that it names must be, which is asked when that is read.
fn permits(listener: &Listener, address: Option<SocketAddr>) -> bool {
    let address = address.map(|address| address.ip());
    let networks = &listener.networks;
    if listener.wants_proxy_header(address) {
        !networks.denies(address)
    } else {
        networks.permits(address)
    }
}

/// Gives the connection to the worker with the fewest.
fn admit(worker: &Rc<Worker>, accepted: Accepted) {
    let chosen = worker.shared.assign(worker.index);
    if chosen == worker.index {
        worker.serve(accepted);
    } else if worker.shared.mailboxes[chosen]
        .send(Message::Serve(accepted))
        .is_err()
    {
        // A worker that is gone takes nothing more; its connection ends with it.
        worker.shared.connections[chosen]
            .0
            .fetch_sub(1, Ordering::Relaxed);
    }
}

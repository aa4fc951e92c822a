//! Accepting: sockets with `SO_REUSEPORT` for each worker, evened out by handing connections over.

use super::worker::{Message, Worker};
use crate::lack::is_our_lack;
use crate::snapshot::{Bind, Listener};
use crate::telemetry::cause::ConnectionRefusal;
use crate::telemetry::logging::OncePerSecond;
use rustix::net::SocketFlags;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// How long an accept loop rests when descriptors have run out and none comes free.
const REST: Duration = Duration::from_millis(500);

/// The same when `connections_max` is reached.
const FULL_REST: Duration = Duration::from_millis(50);

/// The client connections of one listener that are open, over all workers.
#[derive(Clone, Debug, Default)]
pub struct OpenCount(Arc<AtomicUsize>);

impl OpenCount {
    fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn count_one(&self) -> Counted {
        self.0.fetch_add(1, Ordering::Relaxed);
        Counted(self.clone())
    }
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(super) struct Counted(OpenCount);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
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

/// Opens one worker's socket for `listener`. All workers bind to one address; the kernel spreads connections.
///
/// # Errors
/// Of the system calls; the caller names the address.
pub fn open(listener: &Listener) -> io::Result<OwnedFd> {
    let (domain, address) = match &listener.bind {
        Bind::Tcp(address) => (Domain::for_address(*address), SockAddr::from(*address)),
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
    let Ok(socket) = super::sys::watch_listening(socket) else {
        tracing::error!(%bind, "cannot watch the listening socket");
        return;
    };
    loop {
        let ready = tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => break,
            ready = socket.readable() => ready,
        };
        let Ok(mut ready) = ready else { break };
        match accept_some(&worker, &bind, socket.get_ref(), &open) {
            Drained::Empty => ready.clear_ready(),
            Drained::More => {}
            Drained::Full => rest(&worker, FULL_REST, &mut stopped).await,
            Drained::NoDescriptors => {
                say_no_descriptors(&bind);
                rest(&worker, REST, &mut stopped).await;
            }
        }
        // The connections just accepted get their turn before the next.
        tokio::task::yield_now().await;
    }
    while let Drained::More = accept_some(&worker, &bind, socket.get_ref(), &open) {}
}

fn say_no_descriptors(bind: &Bind) {
    static SAID: OncePerSecond = OncePerSecond::new();
    if SAID.allow(crate::clock::now()).is_some() {
        tracing::error!(
            %bind,
            "descriptors have run out: not accepting until a connection closes; raise LimitNOFILE (ulimit -n)"
        );
    }
}

/// Accepts nothing until a connection of this worker closes, or for `time`: another worker's may have closed.
async fn rest(worker: &Rc<Worker>, time: Duration, stopped: &mut watch::Receiver<bool>) {
    tokio::select! {
        () = worker.descriptors_freed.notified() => {}
        () = tokio::time::sleep(time) => {}
        _ = stopped.wait_for(|stopped| *stopped) => {}
    }
}

enum Drained {
    /// The queue is empty.
    Empty,
    /// There may be more.
    More,
    /// `connections_max` are open: the rest waits in the queue.
    Full,
    /// The process or the machine is out of descriptors or memory.
    NoDescriptors,
}

/// Accepts a bounded number, so that a flood of connections does not starve those being served.
fn accept_some(worker: &Rc<Worker>, bind: &Bind, socket: &OwnedFd, open: &OpenCount) -> Drained {
    let in_force = worker.in_force();
    let Some(listener) = Worker::listener(&in_force.snapshot, bind) else {
        return drop_all(socket);
    };
    for _ in 0..16 {
        if open.get() >= listener.connections_max {
            in_force
                .series
                .listener(listener.index)
                .refused(ConnectionRefusal::Limit);
            return Drained::Full;
        }
        match rustix::net::acceptfrom_with(
            socket.as_fd(),
            SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
        ) {
            Ok((client, address)) => {
                let peer = address.and_then(|address| SocketAddr::try_from(address).ok());
                if listener.networks.permits(peer.map(|peer| peer.ip())) {
                    admit(
                        worker,
                        Accepted {
                            socket: client,
                            peer,
                            listener: Arc::clone(&listener),
                            counted: open.count_one(),
                        },
                    );
                } else {
                    in_force
                        .series
                        .listener(listener.index)
                        .refused(ConnectionRefusal::Network);
                }
            }
            Err(rustix::io::Errno::AGAIN) => return Drained::Empty,
            Err(error) if is_our_lack(&error.into()) => {
                in_force
                    .series
                    .listener(listener.index)
                    .refused(ConnectionRefusal::Resources);
                return Drained::NoDescriptors;
            }
            // A client that went away while it waited, or a network error of that connection alone (accept(2)).
            Err(_) => {}
        }
    }
    Drained::More
}

/// The listener is in no configuration any more: what is in its queue cannot be served by any rule.
fn drop_all(socket: &OwnedFd) -> Drained {
    while rustix::net::accept_with(socket.as_fd(), SocketFlags::CLOEXEC).is_ok() {}
    Drained::Empty
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

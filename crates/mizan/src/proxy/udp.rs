//! Datagrams handed through: who sent it → its session → its backend's socket, and the answers back.
//!
//! A client (address and port) has one session, and a session one backend, until it has been silent for long enough or
//! the backend is gone. The kernel keeps a client with one worker's socket, so a worker's sessions are its own. One task
//! owns them all: what comes from backends is told by an epoll of the task's own, which costs a session no more than its
//! entry and its socket.
//!
//! A datagram is sent on once or dropped and counted. It is never kept, tried again or cut.

mod session;
mod socket;
mod table;

use super::error::Reason;
use super::listen::OpenCount;
use super::sys;
use super::timer::{TICK_MS, Timer};
use super::worker::{InForce, Worker};
use crate::snapshot::{Bind, Listener, ListenerKind};
use crate::telemetry::cause::DatagramDrop;
use crate::telemetry::logging::OncePerSecond;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use session::{Session, Turn, is_no_room};
use socket::Client;
pub(super) use socket::{expect_free, open};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::task::{Context, Poll};
use table::{Slot, Table};
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};
use tokio::sync::watch;

/// Datagrams each way, and sessions that end, before others on this worker get their turn.
const BATCH: usize = 64;

/// Batches that are still sent on when the listener closes.
const LAST_BATCHES: usize = 64;

/// One more than the longest datagram over IPv4 or IPv6 (RFC 768, RFC 8200; without jumbograms).
const ROOM: usize = 65_536;

/// Backends that one datagram may find gone before it is dropped.
const TRIES_MAX: usize = 4;

/// Hands datagrams through until told to stop, then ends the sessions and closes.
pub(super) async fn serve(
    worker: Rc<Worker>,
    (address, socket): (SocketAddr, OwnedFd),
    open: OpenCount,
    mut stopped: watch::Receiver<bool>,
) {
    let ends = match Ends::new(socket) {
        Ok(ends) => ends,
        Err(error) => {
            tracing::error!(%address, %error, "cannot watch a UDP socket");
            return;
        }
    };
    let mut sessions = Sessions::new(worker, address, &ends, open);
    loop {
        let woken = tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => break,
            woken = ends.woken(&sessions.timer) => woken,
        };
        sessions.turn(woken);
        // Who else is served here gets its turn.
        tokio::task::yield_now().await;
    }
    // What came before the end still goes on; a flood does not hold it up.
    for _ in 0..LAST_BATCHES {
        let mut is_all = true;
        sessions.in_turn(|sessions, turn| is_all = sessions.read_clients(turn));
        if is_all {
            break;
        }
    }
    sessions.end_all().await;
}

/// What is read from.
struct Ends {
    clients: AsyncFd<OwnedFd>,
    /// An epoll over the sessions' sockets.
    backends: AsyncFd<OwnedFd>,
}

/// Which of them has something.
struct Woken<'e> {
    clients: Option<AsyncFdReadyGuard<'e, OwnedFd>>,
    backends: Option<AsyncFdReadyGuard<'e, OwnedFd>>,
}

impl Ends {
    fn new(socket: OwnedFd) -> io::Result<Self> {
        let backends = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self {
            clients: sys::watch_readable(socket)?,
            backends: sys::watch_readable(backends)?,
        })
    }

    /// Ready when there is something to read, or a session's time is up.
    async fn woken(&self, timer: &Timer) -> Woken<'_> {
        std::future::poll_fn(|cx| {
            let woken = Woken {
                clients: ready(&self.clients, cx),
                backends: ready(&self.backends, cx),
            };
            let has_work = woken.clients.is_some() || woken.backends.is_some();
            if timer.poll_expired(cx) || has_work {
                Poll::Ready(woken)
            } else {
                Poll::Pending
            }
        })
        .await
    }
}

fn ready<'e>(
    end: &'e AsyncFd<OwnedFd>,
    cx: &mut Context<'_>,
) -> Option<AsyncFdReadyGuard<'e, OwnedFd>> {
    match end.poll_read_ready(cx) {
        Poll::Ready(guard) => guard.ok(),
        Poll::Pending => None,
    }
}

/// The sessions of one listener on one worker.
struct Sessions<'e> {
    worker: Rc<Worker>,
    bind: Bind,
    ends: &'e Ends,
    open: OpenCount,
    table: Table<Session>,
    /// Runs out with the session that is silent longest.
    timer: Timer,
    buffer: Box<[u8]>,
    control: Vec<u8>,
    events: Vec<epoll::Event>,
}

impl<'e> Sessions<'e> {
    fn new(worker: Rc<Worker>, address: SocketAddr, ends: &'e Ends, open: OpenCount) -> Self {
        let control = if address.ip().is_unspecified() {
            socket::control_room()
        } else {
            Vec::new()
        };
        Self {
            timer: Timer::new(&worker.wheel),
            worker,
            bind: Bind::Udp(address),
            ends,
            open,
            table: Table::new(),
            buffer: vec![0; ROOM].into(),
            control,
            events: Vec::with_capacity(BATCH),
        }
    }

    /// Does a bounded part of what there is to do. Answers come first: whoever floods is behind those who are served.
    fn turn(&mut self, woken: Woken<'_>) {
        self.in_turn(|sessions, turn| {
            if let Some(mut guard) = woken.backends
                && sessions.read_backends(turn)
            {
                guard.clear_ready();
            }
            if let Some(mut guard) = woken.clients
                && sessions.read_clients(turn)
            {
                guard.clear_ready();
            }
            sessions.expire(turn);
        });
    }

    /// Calls `work` with what is in force.
    fn in_turn(&mut self, work: impl FnOnce(&mut Self, &Turn<'_>)) {
        let worker = Rc::clone(&self.worker);
        let in_force: Rc<InForce> = worker.in_force();
        let Some(listener) = Worker::listener(&in_force.snapshot, &self.bind) else {
            // It is closed before a snapshot without it comes into force.
            return;
        };
        let listener: &Listener = &listener;
        let ListenerKind::Udp(terms) = &listener.kind else {
            return;
        };
        let turn = Turn {
            worker: &worker,
            in_force: &in_force,
            listener,
            terms,
            pool: in_force.snapshot.pools.get(&terms.pool),
            cells: in_force.series.listener(listener.index),
        };
        work(self, &turn);
    }

    /// Sends on what clients sent; whether that was all.
    fn read_clients(&mut self, turn: &Turn<'_>) -> bool {
        for _ in 0..BATCH {
            let socket = self.ends.clients.get_ref().as_fd();
            let received = socket::receive(socket, &mut self.buffer, &mut self.control);
            let received = match received {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(_) => continue,
            };
            turn.cells.datagram_in(received.length);
            let peer = received.client.peer.ip();
            let sent = if !turn.listener.networks.permits(Some(peer)) {
                Err(DatagramDrop::Network)
            } else if received.is_cut {
                Err(DatagramDrop::TooLarge)
            } else {
                self.send_on(&received.client, received.length, turn)
            };
            if let Err(why) = sent {
                turn.cells.datagram_dropped(why);
            }
        }
        false
    }

    /// Sends the datagram in the buffer to its session's backend.
    fn send_on(
        &mut self,
        client: &Client,
        length: usize,
        turn: &Turn<'_>,
    ) -> Result<(), DatagramDrop> {
        let now_ms = self.worker.wheel.now_ms();
        let slot = match self.table.find(client) {
            Some(slot) => {
                self.table.touch(slot, now_ms);
                slot
            }
            None => {
                let session = self.admit(turn)?;
                self.table.insert(*client, session, now_ms)
            }
        };
        let sent = self.send_from(slot, length, turn);
        if sent.is_err()
            && let Some((_, session)) = self.table.at(slot)
            && !session.is_placed()
        {
            // Whom no backend has taken costs nothing from here on.
            self.end(slot, turn);
        }
        sent
    }

    fn send_from(
        &mut self,
        slot: Slot,
        length: usize,
        turn: &Turn<'_>,
    ) -> Result<(), DatagramDrop> {
        let Some((client, session)) = self.table.at(slot) else {
            return Err(DatagramDrop::NoBackend);
        };
        session.look(turn);
        for _ in 0..TRIES_MAX {
            if session.socket().is_none() {
                match session.bind(&client, turn) {
                    Ok(()) if watch(&self.ends.backends, session, slot) => {}
                    // Nothing has left: another may be reached.
                    Err(Reason::ConnectError) => continue,
                    Ok(()) | Err(Reason::NoResources) => {
                        session.unreached(Reason::NoResources, turn);
                        return Err(lacking(turn));
                    }
                    Err(reason) => {
                        session.unreached(reason, turn);
                        return Err(DatagramDrop::NoBackend);
                    }
                }
            }
            let Some(socket) = session.socket() else {
                break;
            };
            let Err(error) = socket.send(&self.buffer[..length]) else {
                session.sent(length);
                return Ok(());
            };
            match why_unsent(&error) {
                // Of a datagram before: this one has not left.
                _ if error.kind() == io::ErrorKind::ConnectionRefused => {
                    session.failed(Reason::ConnectRefused, turn);
                }
                DatagramDrop::Unsendable => session.failed(Reason::ConnectError, turn),
                why => return Err(why),
            }
        }
        session.unreached(Reason::ConnectError, turn);
        Err(DatagramDrop::NoBackend)
    }

    /// A session for a new client, if there is room for it. At a limit new ones are turned away, not old ones ended: a
    /// flood from made-up addresses must not push out those who are served.
    fn admit(&self, turn: &Turn<'_>) -> Result<Session, DatagramDrop> {
        let shared = &self.worker.shared;
        if self.open.get() >= turn.terms.sessions_max {
            return Err(DatagramDrop::Limit);
        }
        // Half of the descriptors for clients stay for connections.
        let is_full = shared.sessions.get() >= shared.clients_max / 2;
        if is_full || shared.clients() >= shared.clients_max {
            return Err(lacking(turn));
        }
        turn.cells.connections_accepted.add(1);
        turn.cells.started();
        let counted = [self.open.count_one(), shared.sessions.count_one()];
        Ok(Session::new(counted))
    }

    /// Sends on what backends sent; whether that was all.
    fn read_backends(&mut self, turn: &Turn<'_>) -> bool {
        let mut events = std::mem::take(&mut self.events);
        let at_once = Timespec::default();
        let room = spare_capacity(&mut events);
        let waited = epoll::wait(self.ends.backends.get_ref(), room, Some(&at_once));
        let is_all = waited.is_ok() && events.is_empty();
        let each = BATCH / events.len().max(1);
        for event in events.drain(..) {
            let slot = event.data.u64() as Slot;
            self.send_back(slot, each.max(1), turn);
        }
        self.events = events;
        is_all
    }

    /// Sends `most` datagrams of a session's backend to its client.
    fn send_back(&mut self, slot: Slot, most: usize, turn: &Turn<'_>) {
        let now_ms = self.worker.wheel.now_ms();
        for _ in 0..most {
            // A session that ended with an event before leaves its place empty, or to one that has nothing to read.
            let Some((client, session)) = self.table.at(slot) else {
                return;
            };
            let Some(socket) = session.socket() else {
                return;
            };
            let length = match socket.recv(&mut self.buffer) {
                Ok(length) => length,
                Err(error) => {
                    return match error.kind() {
                        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => {}
                        io::ErrorKind::ConnectionRefused => {
                            session.failed(Reason::ConnectRefused, turn);
                        }
                        _ => session.failed(Reason::ConnectError, turn),
                    };
                }
            };
            session.answered(turn);
            let sent = if length == ROOM {
                Err(DatagramDrop::TooLarge)
            } else {
                let clients = self.ends.clients.get_ref().as_fd();
                socket::send(clients, &self.buffer[..length], &client)
                    .map_err(|error| why_unsent(&error))
            };
            match sent {
                Ok(()) => {
                    session.bytes_out += length as u64;
                    turn.cells.datagram_out(length);
                }
                Err(why) => turn.cells.datagram_dropped(why),
            }
            self.table.touch(slot, now_ms);
        }
    }

    /// Ends sessions that were silent for too long, and sees to it that the next is looked at in time.
    fn expire(&mut self, turn: &Turn<'_>) {
        let now_ms = self.worker.wheel.now_ms();
        // Touched at a coarse now, which may have been almost a tick behind.
        let idle_ms = turn.terms.session_idle.as_millis() as u64 + TICK_MS;
        let mut next = u64::MAX;
        for _ in 0..BATCH {
            let Some((slot, touched_ms)) = self.table.oldest() else {
                next = u64::MAX;
                break;
            };
            next = touched_ms + idle_ms;
            if next > now_ms {
                break;
            }
            self.end(slot, turn);
        }
        self.timer.set_at(next);
    }

    fn end(&mut self, slot: Slot, turn: &Turn<'_>) {
        if let Some((client, session)) = self.table.remove(slot) {
            turn.cells.connections_closed.add(1);
            session.end(&client, turn);
            // Who waits to accept, for want of descriptors, may.
            self.worker.descriptors_freed.notify_waiters();
        }
    }

    async fn end_all(&mut self) {
        while self.table.oldest().is_some() {
            let before = self.table.oldest();
            self.in_turn(|sessions, turn| {
                for _ in 0..BATCH {
                    if let Some((slot, _)) = sessions.table.oldest() {
                        sessions.end(slot, turn);
                    }
                }
            });
            if self.table.oldest() == before {
                // Without a listener in force there is nobody to tell of them.
                return;
            }
            tokio::task::yield_now().await;
        }
    }
}

/// Has the epoll tell of what comes from the session's backend. A socket that is closed leaves it by itself.
fn watch(backends: &AsyncFd<OwnedFd>, session: &Session, slot: Slot) -> bool {
    session.socket().is_some_and(|socket| {
        let data = epoll::EventData::new_u64(u64::from(slot));
        epoll::add(backends.get_ref(), socket, data, epoll::EventFlags::IN).is_ok()
    })
}

fn why_unsent(error: &io::Error) -> DatagramDrop {
    match rustix::io::Errno::from_io_error(error) {
        Some(rustix::io::Errno::MSGSIZE) => DatagramDrop::TooLarge,
        _ if is_no_room(error) => DatagramDrop::Full,
        _ => DatagramDrop::Unsendable,
    }
}

fn lacking(turn: &Turn<'_>) -> DatagramDrop {
    static SAID: OncePerSecond = OncePerSecond::new();
    if let Some(silent) = SAID.allow(crate::clock::now()) {
        tracing::error!(
            listener = &*turn.listener.name,
            silent,
            "no descriptor or port is left for another session: datagrams of new clients are dropped; raise LimitNOFILE (ulimit -n), or net.ipv4.ip_local_port_range"
        );
    }
    DatagramDrop::Resources
}

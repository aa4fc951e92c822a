//! A client's connection: idle, or in a burst of requests.
//!
//! An idle connection is this small future, a timer and a socket. The future that serves requests is boxed when
//! bytes arrive and dropped when none have come for a tenth of a second, and takes its buffers with it.

use super::buffer::Buffer;
use super::exchange;
use super::http2;
use super::http2::server::ServerStream;
use super::listen::{Accepted, Counted, Share};
use super::proxy_header;
use super::socket::Socket;
use super::tcp;
use super::timer::Timer;
use super::tls::{Session, Tls};
use super::transport::Transport;
use super::trust::Shown;
use super::upgrade::{self, Upgraded};
use super::worker::Worker;
use crate::proxy_protocol::Peers;
use crate::snapshot::{Listener, ListenerKind};
use crate::telemetry::cause::{ConnectionRefusal, Handshake};
use crate::telemetry::logging::OncePerSecond;
use rustls::HandshakeKind;
use rustls::server::UnbufferedServerConnection;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::net::{TcpStream, UnixStream};

/// How long a burst waits for its next request before the connection counts as idle. Short, so that ten thousand
/// clients that each come once do not hold ten thousand of the larger futures at a time.
pub(super) const BURST: Duration = Duration::from_millis(100);
/// How long a client that was cut off may still send, so that it can read its answer (RFC 9112 §9.6).
const LINGER: Duration = Duration::from_secs(2);
/// What is read and thrown away in that time.
const LINGER_BYTES_MAX: u64 = 16 << 20;

/// The client's side.
#[derive(Debug)]
pub(super) struct Downstream {
    pub(super) transport: Transport,
    /// Unread bytes; `None` while there are none.
    pub(super) input: Option<Buffer>,
    pub(super) timer: Timer,
    pub(super) listener: Arc<Listener>,
    pub(super) requests: u64,
    /// Bytes are protected on their way from the client.
    pub(super) secure: bool,
    /// It is a stream of HTTP/2.
    pub(super) http2: bool,
    /// The certificate of the client, if there is one.
    pub(super) shown: Option<Rc<Shown>>,
    peer: Option<SocketAddr>,
    /// What the client connected to, where a PROXY header says so.
    destination: Option<Rc<SocketAddr>>,
    /// Made for a burst, gone with it.
    peer_text: Option<Rc<PeerText>>,
    /// When an idle connection is closed.
    pub(super) idle_until_ms: u64,
}

/// The peer's address as text, made once.
#[derive(Clone, Copy, Debug)]
struct PeerText {
    bytes: [u8; 46],
    length: u8,
}

impl PeerText {
    fn new(peer: Option<SocketAddr>) -> Self {
        use std::io::Write;
        let mut bytes = [0; 46];
        let mut rest = &mut bytes[..];
        let written = match peer {
            Some(peer) => write!(rest, "{}", peer.ip().to_canonical()),
            None => write!(rest, "unknown"),
        };
        // 46 bytes hold any address (INET6_ADDRSTRLEN).
        debug_assert!(written.is_ok(), "an address longer than INET6_ADDRSTRLEN");
        let length = 46 - rest.len();
        Self {
            bytes,
            length: length as u8,
        }
    }
}

impl PeerText {
    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.length)]).unwrap_or_default()
    }
}

impl Downstream {
    /// Ties an accepted socket to this worker's runtime.
    fn new(
        worker: &Worker,
        socket: OwnedFd,
        peer: Option<SocketAddr>,
        listener: Arc<Listener>,
    ) -> std::io::Result<Self> {
        let socket = adopt(socket, peer.is_none())?;
        let transport = match &listener.tls {
            None => Transport::Plain(socket),
            Some(tls) => {
                let session = UnbufferedServerConnection::new(Arc::clone(&tls.config));
                let session = Session::Server(session.map_err(std::io::Error::other)?);
                Transport::Tls(Box::new(Tls::new(socket, session, &worker.buffers)))
            }
        };
        Ok(Self {
            secure: listener.tls.is_some(),
            http2: false,
            shown: None,
            transport,
            input: None,
            timer: Timer::new(&worker.wheel),
            listener,
            requests: 0,
            peer,
            destination: None,
            peer_text: None,
            idle_until_ms: 0,
        })
    }

    /// The bytes on one hand, who sends them on the other: of one connection of HTTP/2 come many exchanges.
    pub(super) fn split(self) -> (Transport, Option<Buffer>, Client) {
        let client = Client {
            destination: self.destination().map(Rc::new),
            timer: self.timer,
            listener: self.listener,
            secure: self.secure,
            shown: self.shown,
            peer: self.peer,
            peer_text: self.peer_text,
        };
        (self.transport, self.input, client)
    }

    pub(super) fn peer_text(&self) -> &[u8] {
        let text = self.peer_text.as_ref();
        text.map_or(b"unknown", |text| &text.bytes[..usize::from(text.length)])
    }

    pub(super) fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// What the client connected to; `None`: a Unix socket.
    pub(super) fn destination(&self) -> Option<SocketAddr> {
        let told = self.destination.as_deref().copied();
        told.or_else(|| self.transport.local_address())
    }

    /// The peer speaks for another: that one is the client from here on.
    pub(super) fn speaks_for(&mut self, peers: Peers) {
        if let Peers::Known {
            source,
            destination,
        } = peers
        {
            self.peer = Some(source);
            self.destination = Some(Rc::new(destination));
        }
    }

    pub(super) fn peer_address(&self) -> Option<IpAddr> {
        self.peer.map(|peer| peer.ip().to_canonical())
    }

    /// Whether HTTP/2 was agreed on.
    fn speaks_http2(&self) -> bool {
        matches!(&self.transport, Transport::Tls(tls) if tls.is_http2())
    }
}

/// Who is at the other end of a connection whose streams are served one by one.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) timer: Timer,
    pub(super) listener: Arc<Listener>,
    secure: bool,
    pub(super) shown: Option<Rc<Shown>>,
    peer: Option<SocketAddr>,
    destination: Option<Rc<SocketAddr>>,
    peer_text: Option<Rc<PeerText>>,
}

impl Client {
    /// A stream, whose request's head lies in `head`; `requests` began before it.
    pub(super) fn stream(
        &self,
        worker: &Worker,
        stream: ServerStream,
        (head, requests): (Buffer, u64),
    ) -> Downstream {
        Downstream {
            transport: Transport::FromClient(Box::new(stream)),
            input: Some(head),
            timer: Timer::new(&worker.wheel),
            listener: Arc::clone(&self.listener),
            requests,
            secure: self.secure,
            http2: true,
            shown: self.shown.clone(),
            peer: self.peer,
            destination: self.destination.clone(),
            peer_text: self.peer_text.clone(),
            idle_until_ms: 0,
        }
    }

    pub(super) fn peer_text(&self) -> &str {
        self.peer_text
            .as_ref()
            .map_or("unknown", |text| text.as_str())
    }
}

fn adopt(socket: OwnedFd, is_unix: bool) -> std::io::Result<Socket> {
    if is_unix {
        return UnixStream::from_std(socket.into()).map(Socket::Unix);
    }
    let stream = TcpStream::from_std(socket.into())?;
    stream.set_nodelay(true)?;
    Ok(Socket::Tcp(stream))
}

/// What happens after a burst.
pub(super) enum Next {
    /// The connection is idle.
    Idle,
    /// It is closed.
    Close,
    /// It is closed once the client has stopped sending.
    Linger,
    /// It speaks HTTP/2.
    Http2,
    /// It goes on as this tunnel.
    Tunnel(Box<Upgraded>),
}

/// The future that serves one client to the end of its connection; `None` if the socket cannot be watched.
///
/// Not an `async fn`: what such a one takes and moves on has a place in its future for as long as that lives.
pub(super) fn serve(worker: Rc<Worker>, accepted: Accepted) -> Option<impl Future<Output = ()>> {
    let Accepted {
        socket,
        peer,
        listener,
        counted,
    } = accepted;
    let open = Open::new(&worker, &listener, counted);
    let mut down = Downstream::new(&worker, socket, peer, listener).ok()?;
    // The first head is due within its time-out of the connection, not within the idle time.
    down.idle_until_ms = down.timer.deadline_after(down.listener.timeouts.header);
    Some(async move {
        // Counted until the end, however that comes.
        let _open = &open;
        // Before anything else, also before a handshake: what stands in front may not speak TLS.
        if down.listener.wants_proxy_header(down.peer_address()) {
            if !Box::pin(proxy_header::read(&mut down, &worker)).await {
                return;
            }
            down.idle_until_ms = down.timer.deadline_after(down.listener.timeouts.header);
        }
        let Ok(_share) = open.share(&mut down) else {
            return;
        };
        if down.secure && !Box::pin(handshake(&mut down, &worker)).await {
            return;
        }
        if let ListenerKind::Tcp(_) = down.listener.kind {
            return Box::pin(tcp::serve(&mut down, &worker)).await;
        }
        loop {
            down.timer.set_at(down.idle_until_ms);
            if !wait_readable(&mut down).await {
                return;
            }
            down.peer_text = Some(Rc::new(PeerText::new(down.peer)));
            if !down.speaks_http2() {
                let next = Box::pin(exchange::burst(&mut down, &worker)).await;
                match next {
                    Next::Idle => {
                        down.peer_text = None;
                        continue;
                    }
                    Next::Close => return,
                    Next::Linger | Next::Tunnel(_) => return rest(next, &mut down, &worker).await,
                    Next::Http2 => {}
                }
            }
            return Box::pin(http2::server::serve(down, worker)).await;
        }
    })
}

/// What a connection still does that serves no more requests. Not matched where it is awaited: `next` would have a place
/// in the future of every idle connection.
fn rest<'c>(
    next: Next,
    down: &'c mut Downstream,
    worker: &'c Rc<Worker>,
) -> Pin<Box<dyn Future<Output = ()> + 'c>> {
    down.peer_text = None;
    match next {
        Next::Tunnel(upgraded) => Box::pin(upgrade::serve(down, worker, upgraded)),
        _ => Box::pin(linger(down, worker)),
    }
}

/// Agrees on TLS; false if that comes to nothing.
async fn handshake(down: &mut Downstream, worker: &Rc<Worker>) -> bool {
    let Some(tls_settings) = down.listener.tls.clone() else {
        return true;
    };
    down.timer.set(tls_settings.handshake);
    let result = std::future::poll_fn(|cx| match &mut down.transport {
        Transport::Tls(tls) => match tls.poll_handshake(cx) {
            Poll::Pending if down.timer.poll_expired(cx) => {
                Poll::Ready(Err(std::io::ErrorKind::TimedOut.into()))
            }
            result => result,
        },
        _ => Poll::Ready(Ok(())),
    })
    .await;
    let how = match (&result, &down.transport) {
        (Ok(()), Transport::Tls(tls)) => match tls.settled().handshake_kind() {
            Some(HandshakeKind::Resumed) => Handshake::Resumed,
            _ => Handshake::Full,
        },
        _ => Handshake::Failed,
    };
    let series = &worker.in_force().series;
    let index = series.listener_index(&down.listener.name);
    series.listener(index).handshake(how);
    if let Err(error) = &result {
        say_failed(down, error);
    }
    if tls_settings.client_auth.is_some()
        && let Transport::Tls(tls) = &down.transport
    {
        down.shown = Shown::of(tls.settled().peer_certificates()).map(Rc::new);
    }
    // The first head is due within its time-out of the handshake.
    down.idle_until_ms = down.timer.deadline_after(down.listener.timeouts.header);
    result.is_ok()
}

/// Why a client did not get in. One that just goes away, as what looks whether a port is open does, is worth a line for
/// whoever looks for it alone.
fn say_failed(down: &Downstream, error: &std::io::Error) {
    use std::io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    let listener = &*down.listener.name;
    let text = PeerText::new(down.peer);
    let client = text.as_str();
    if matches!(error.kind(), UnexpectedEof | ConnectionReset | BrokenPipe) {
        tracing::debug!(listener, client, %error, "a client left in its TLS handshake");
        return;
    }
    static SAID: OncePerSecond = OncePerSecond::new();
    if let Some(silent) = SAID.allow(crate::clock::now()) {
        tracing::info!(listener, client, %error, silent, "a TLS handshake failed");
    }
}

/// Counts the connection as open while it lives, however its future ends.
struct Open {
    worker: Rc<Worker>,
    listener: Arc<Listener>,
    counted: Counted,
}

impl Open {
    fn new(worker: &Rc<Worker>, listener: &Arc<Listener>, counted: Counted) -> Self {
        let series = &worker.in_force().series;
        let index = series.listener_index(&listener.name);
        series.listener(index).connections_accepted.add(1);
        Self {
            worker: Rc::clone(worker),
            listener: Arc::clone(listener),
            counted,
        }
    }
}

/// Its address has as many connections as it may.
struct TooMany;

impl Open {
    /// The client's part of what its address may have, if the listener limits that.
    fn share(&self, down: &mut Downstream) -> Result<Option<Box<Share>>, TooMany> {
        let most = self.listener.connections_per_address_max;
        let (Some(most), Some(address)) = (most, down.peer_address()) else {
            return Ok(None);
        };
        if let Some(share) = self.counted.share(address, most) {
            return Ok(Some(share));
        }
        let in_force = self.worker.in_force();
        let index = in_force.series.listener_index(&self.listener.name);
        let cells = in_force.series.listener(index);
        cells.refused(ConnectionRefusal::Address);
        down.transport.reset_on_close();
        static SAID: OncePerSecond = OncePerSecond::new();
        if let Some(silent) = SAID.allow(crate::clock::now()) {
            tracing::warn!(
                listener = &*self.listener.name,
                client = %address,
                limit = most,
                silent,
                "a client has as many connections as `connections_per_address_max` allows: refused"
            );
        }
        Err(TooMany)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let series = &self.worker.in_force().series;
        let index = series.listener_index(&self.listener.name);
        series.listener(index).connections_closed.add(1);
        self.worker.closed();
    }
}

/// Whether bytes (or an end) came before the timer ran out.
async fn wait_readable(down: &mut Downstream) -> bool {
    std::future::poll_fn(|cx| match down.transport.poll_read_ready(cx) {
        Poll::Ready(ready) => Poll::Ready(ready.is_ok()),
        Poll::Pending if down.timer.poll_expired(cx) => Poll::Ready(false),
        Poll::Pending => Poll::Pending,
    })
    .await
}

/// Sends FIN, then reads and drops what the client still sends: a close with unread bytes would be a reset,
/// which can destroy the answer on its way.
pub(super) async fn linger(down: &mut Downstream, worker: &Rc<Worker>) {
    down.transport.shut_write();
    down.timer.set(LINGER);
    let mut buffer = down.input.take().unwrap_or_else(|| worker.buffers.small());
    buffer.consume(buffer.len());
    let mut dropped = 0;
    while dropped < LINGER_BYTES_MAX {
        let read = std::future::poll_fn(|cx| match down.transport.poll_read(cx, buffer.room()) {
            Poll::Ready(Ok(count)) => Poll::Ready(count),
            Poll::Ready(Err(_)) => Poll::Ready(0),
            Poll::Pending if down.timer.poll_expired(cx) => Poll::Ready(0),
            Poll::Pending => Poll::Pending,
        })
        .await;
        if read == 0 {
            return;
        }
        dropped += read as u64;
        tokio::task::coop::consume_budget().await;
        if down.timer.is_expired() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size_of_future<A, B, F: Future>(_: impl Fn(A, B) -> Option<F>) -> usize {
        size_of::<F>()
    }

    /// Ten thousand idle clients are ten thousand of these: what serves requests must stay behind its box. The runtime
    /// puts a little more than a hundred bytes around it and makes the sum a multiple of 128: one byte more than this
    /// costs each of them 128.
    #[test]
    fn the_future_of_an_idle_connection_is_small() {
        let size = size_of_future(serve);
        assert!(size <= 280, "{size} bytes");
    }
}

//! TLS over a socket. The session keeps no buffers: records lie in lent ones while there are any, so an idle connection
//! holds its keys and nothing else.

mod alert;

use super::buffer::{Buffer, BufferPool, LARGE, SMALL};
use super::socket::Socket;
use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, InsufficientSizeError, UnbufferedStatus,
    WriteTraffic,
};
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// Plaintext that one write encrypts at most: its records fit in a large buffer with what each of them adds.
const WRITE_MAX: usize = LARGE - 256;

/// Longest handshake message that is held.
const HANDSHAKE_MAX: usize = 128 << 10;

/// A session of either side.
pub(super) enum Session {
    Server(UnbufferedServerConnection),
    Client(UnbufferedClientConnection),
}

impl Session {
    fn common(&self) -> &rustls::CommonState {
        match self {
            Self::Server(session) => session,
            Self::Client(session) => session,
        }
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Server(_) => "Server",
            Self::Client(_) => "Client",
        })
    }
}

/// A TLS connection.
#[derive(Debug)]
pub(super) struct Tls {
    socket: Socket,
    session: Session,
    buffers: Rc<BufferPool>,
    /// Received records that the session has not read.
    incoming: Option<Buffer>,
    /// The last receive filled its buffer: the next one gets a large one.
    is_bulk: bool,
    plain: Plain,
    /// Records that the socket has not taken.
    outgoing: Option<Buffer>,
    /// Bytes of a write whose records lie in `outgoing`: the write is done when they are gone.
    accepted: usize,
    /// Record bytes sent since the connection was made.
    sent: usize,
    end: End,
    /// Why a record was refused: its session is not asked again, and the alert was the last that it has said.
    refused: Option<Box<rustls::Error>>,
    /// `close_notify` is said: nothing more is, but the peer may go on.
    has_closed: bool,
}

/// How far the peer's side has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Open,
    /// With `close_notify`: what was read is all there is.
    Closed,
    /// A record was refused, or the connection is to be cut: nothing more is said.
    Broken,
}

/// Decrypted bytes that nobody has read.
#[derive(Debug, Default)]
struct Plain {
    bytes: Vec<u8>,
    read: usize,
}

impl Plain {
    fn is_empty(&self) -> bool {
        self.read == self.bytes.len()
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn take(&mut self, room: &mut [u8]) -> usize {
        let left = &self.bytes[self.read..];
        let count = left.len().min(room.len());
        room[..count].copy_from_slice(&left[..count]);
        self.read += count;
        if self.is_empty() {
            *self = Self::default();
        }
        count
    }
}

/// What the session is driven for.
enum Goal<'a> {
    /// To read into this room, and more into what is kept.
    Read(&'a mut [u8]),
    /// To send these, one behind the other.
    Write(&'a [u8], &'a [u8]),
    /// To say that nothing more is sent.
    Close,
    /// To say what was wrong, and nothing else.
    Alert,
}

/// What one step came to.
enum Step {
    /// There may be more to do.
    Again,
    /// This many bytes of plaintext were read into the room.
    Read(usize),
    /// It waits for the peer.
    Wait,
    /// What was to be sent lies in `outgoing`.
    Done,
    /// The peer sends no more.
    Closed,
}

impl Tls {
    pub(super) fn new(socket: Socket, session: Session, buffers: &Rc<BufferPool>) -> Self {
        Self {
            socket,
            session,
            buffers: Rc::clone(buffers),
            incoming: None,
            is_bulk: false,
            plain: Plain::default(),
            outgoing: None,
            accepted: 0,
            sent: 0,
            end: End::Open,
            refused: None,
            has_closed: false,
        }
    }

    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// What the handshake has settled.
    pub(super) fn settled(&self) -> &rustls::CommonState {
        self.session.common()
    }

    /// Whether HTTP/2 was agreed on.
    pub(super) fn is_http2(&self) -> bool {
        self.settled().alpn_protocol() == Some(b"h2")
    }

    /// Record bytes sent since the connection was made.
    pub(super) fn sent(&self) -> usize {
        self.sent
    }

    /// Ready when the handshake is over and all that it had to send is sent.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] with the broken rule, or the socket's own.
    pub(super) fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let step = match self.refusal() {
                Some(error) => Err(error),
                None => self.run(Goal::Read(&mut [])),
            };
            // Also what says why it failed.
            ready!(self.poll_flush(cx))?;
            match step? {
                _ if !self.settled().is_handshaking() => return Poll::Ready(Ok(())),
                Step::Closed => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                _ => ready!(self.poll_receive(cx))?,
            }
        }
    }

    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        room: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            if !self.plain.is_empty() {
                return Poll::Ready(Ok(self.plain.take(room)));
            }
            match self.end {
                End::Open => {}
                End::Closed => return Poll::Ready(Ok(0)),
                End::Broken => {
                    let error = self.refusal();
                    let error = error.unwrap_or_else(|| io::ErrorKind::InvalidData.into());
                    return Poll::Ready(Err(error));
                }
            }
            let step = self.run(Goal::Read(room));
            // An answer to a message of the handshake's kind. Reading does not wait until it is sent.
            if self.outgoing.is_some()
                && let Poll::Ready(Err(error)) = self.poll_flush(cx)
            {
                return Poll::Ready(Err(error));
            }
            match step? {
                Step::Read(count) => return Poll::Ready(Ok(count)),
                Step::Closed => return Poll::Ready(Ok(0)),
                _ => ready!(self.poll_receive(cx))?,
            }
        }
    }

    /// As `Transport::poll_write`: done when the records are with the kernel, so that what was "written" is never held
    /// back here.
    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        first: &[u8],
        second: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.accepted == 0 {
            if self.refused.is_some() {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
            let first = &first[..first.len().min(WRITE_MAX)];
            let second = &second[..second.len().min(WRITE_MAX - first.len())];
            self.run(Goal::Write(first, second))?;
            self.accepted = first.len() + second.len();
        }
        ready!(self.poll_flush(cx))?;
        Poll::Ready(Ok(std::mem::take(&mut self.accepted)))
    }

    pub(super) fn poll_read_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.plain.is_empty() && self.end == End::Open && !self.may_hold_record() {
            return self.socket.poll_read_ready(cx);
        }
        Poll::Ready(Ok(()))
    }

    /// An idle connection says nothing; what is received is only looked at (a ticket, say).
    pub(super) fn is_quiet(&mut self) -> bool {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        self.poll_read(&mut cx, &mut [0; 1]).is_pending()
    }

    /// Says `close_notify`, if the socket takes it at once, and ends the sending side.
    pub(super) fn shut_write(&mut self) {
        self.say_close();
        self.socket.shut_write();
    }

    /// The same, ready when `close_notify` is with the kernel: without it the peer takes its stream for cut.
    pub(super) fn poll_shut_write(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.queue_close();
        // Where it cannot be sent, nobody is there to hear it.
        let _ = ready!(self.poll_flush(cx));
        self.socket.shut_write();
        Poll::Ready(())
    }

    pub(super) fn reset_on_close(&mut self) {
        self.end = End::Broken;
        self.socket.reset_on_close();
    }

    fn say_close(&mut self) {
        if self.queue_close() {
            let mut cx = Context::from_waker(std::task::Waker::noop());
            let _ = self.poll_flush(&mut cx);
        }
    }

    /// Whether `close_notify` now lies in `outgoing`; it does so once.
    fn queue_close(&mut self) -> bool {
        if self.has_closed || self.end == End::Broken || self.settled().is_handshaking() {
            return false;
        }
        self.has_closed = true;
        self.run(Goal::Close).is_ok()
    }

    /// Whether a whole record may lie in `incoming`: reading stopped for want of room.
    fn may_hold_record(&self) -> bool {
        let Some(incoming) = &self.incoming else {
            return false;
        };
        let bytes = incoming.unread();
        bytes.len() >= 5 && bytes.len() >= 5 + usize::from(u16::from_be_bytes([bytes[3], bytes[4]]))
    }

    fn refusal(&self) -> Option<io::Error> {
        let error = self.refused.as_deref()?.clone();
        Some(io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// Receives once.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.incoming.is_none() {
            // No buffer while nothing is there.
            ready!(self.socket.poll_read_ready(cx))?;
        }
        // Records may be empty: who sends them without end gets its turn as everybody else does.
        let turn = ready!(tokio::task::coop::poll_proceed(cx));
        let is_bulk = self.is_bulk;
        let is_handshaking = self.settled().is_handshaking();
        let incoming = self.incoming.get_or_insert_with(|| {
            if is_bulk {
                self.buffers.large()
            } else {
                self.buffers.small()
            }
        });
        if incoming.is_full() {
            // The largest record (RFC 8446 §5.2) fits in a large buffer; a chain of certificates may need more.
            incoming.grow(if is_handshaking { HANDSHAKE_MAX } else { LARGE });
        }
        let room = incoming.room();
        if room.is_empty() {
            self.end = End::Broken;
            let error = rustls::Error::General("a handshake message is too long".to_owned());
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
        }
        let size = room.len();
        let count = ready!(self.socket.poll_read(cx, room))?;
        if count == 0 {
            self.end = End::Broken;
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        incoming.filled(count);
        turn.made_progress();
        self.is_bulk = count == size;
        Poll::Ready(Ok(()))
    }

    /// Sends what lies in `outgoing`.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(outgoing) = &mut self.outgoing {
            if outgoing.is_empty() {
                self.outgoing = None;
                break;
            }
            let count = ready!(self.socket.poll_write(cx, outgoing.unread()))?;
            self.sent += count;
            outgoing.consume(count);
        }
        Poll::Ready(Ok(()))
    }

    /// Steps until the goal is reached or the peer is waited for.
    fn run(&mut self, mut goal: Goal<'_>) -> io::Result<Step> {
        let mut read = 0;
        loop {
            let step = self.advance(&mut goal, read);
            if let Ok(Step::Closed) = step {
                self.end = End::Closed;
            }
            match step {
                Ok(Step::Again) => {}
                // That the peer sends no more is noted; it may be sent to.
                Ok(Step::Closed) if !matches!(goal, Goal::Read(_)) => {}
                Ok(Step::Read(count)) => read += count,
                Ok(Step::Wait | Step::Closed) if read > 0 => return Ok(Step::Read(read)),
                Ok(step) => return Ok(step),
                Err(error) => {
                    self.end = End::Broken;
                    self.alert(&error);
                    self.refused = Some(Box::new(error.clone()));
                    return Err(io::Error::new(io::ErrorKind::InvalidData, error));
                }
            }
            if let Goal::Read(room) = &goal
                && read == room.len()
                && read > 0
            {
                return Ok(Step::Read(read));
            }
        }
    }

    /// One state of the session.
    fn advance(&mut self, goal: &mut Goal<'_>, read: usize) -> Result<Step, rustls::Error> {
        let outgoing = match &mut self.outgoing {
            Some(outgoing) => outgoing,
            None => self.outgoing.insert(match goal {
                Goal::Write(first, second) if first.len() + second.len() > SMALL - 256 => {
                    self.buffers.large()
                }
                _ => self.buffers.small(),
            }),
        };
        let bytes = match &mut self.incoming {
            Some(incoming) => incoming.unread_mut(),
            None => &mut [],
        };
        let mut work = Work {
            goal,
            read,
            outgoing,
            plain: &mut self.plain,
        };
        let (discard, step) = match &mut self.session {
            Session::Server(session) => {
                let UnbufferedStatus { discard, state } = session.process_tls_records(bytes);
                (discard, state.and_then(|state| work.on(state)))
            }
            Session::Client(session) => {
                let UnbufferedStatus { discard, state } = session.process_tls_records(bytes);
                (discard, state.and_then(|state| work.on(state)))
            }
        };
        if let Some(incoming) = &mut self.incoming {
            incoming.consume(discard);
            if incoming.is_empty() {
                self.incoming = None;
            }
        }
        if self.outgoing.as_ref().is_some_and(Buffer::is_empty) {
            self.outgoing = None;
        }
        step
    }
}

impl Drop for Tls {
    fn drop(&mut self) {
        if self.accepted == 0 {
            self.say_close();
        }
    }
}

/// Where a step reads from and writes to.
struct Work<'w, 'g> {
    goal: &'w mut Goal<'g>,
    /// Bytes of the goal's room that are filled.
    read: usize,
    outgoing: &'w mut Buffer,
    plain: &'w mut Plain,
}

impl Work<'_, '_> {
    fn on<Data>(&mut self, state: ConnectionState<'_, '_, Data>) -> Result<Step, rustls::Error> {
        if matches!(self.goal, Goal::Alert) && !matches!(state, ConnectionState::EncodeTlsData(_)) {
            return Ok(Step::Wait);
        }
        match state {
            ConnectionState::ReadTraffic(mut traffic) => {
                let mut count = 0;
                while let Some(record) = traffic.next_record() {
                    count += self.take(record?.payload, count);
                }
                Ok(Step::Read(count))
            }
            ConnectionState::EncodeTlsData(mut data) => loop {
                match data.encode(self.outgoing.room()) {
                    Ok(count) => {
                        self.outgoing.filled(count);
                        return Ok(Step::Again);
                    }
                    Err(EncodeError::InsufficientSize(size)) => make_room(self.outgoing, size),
                    Err(EncodeError::AlreadyEncoded) => return Ok(Step::Again),
                }
            },
            // They lie in `outgoing`, in their order: that they will be sent is all that the session has to know.
            ConnectionState::TransmitTlsData(data) => {
                data.done();
                Ok(Step::Again)
            }
            ConnectionState::WriteTraffic(traffic) => self.send(traffic),
            ConnectionState::BlockedHandshake => Ok(Step::Wait),
            ConnectionState::PeerClosed => Ok(Step::Closed),
            ConnectionState::Closed => match self.goal {
                Goal::Read(_) => Ok(Step::Closed),
                Goal::Write(..) => {
                    Err(rustls::Error::General("written after the close".to_owned()))
                }
                Goal::Close | Goal::Alert => Ok(Step::Done),
            },
            // Early data is not offered; further states are not known.
            _ => Err(rustls::Error::HandshakeNotComplete),
        }
    }

    /// As much of `payload` as there is room for goes there, the rest is kept; gives how much went there.
    fn take(&mut self, payload: &[u8], taken: usize) -> usize {
        let room = match self.goal {
            Goal::Read(room) => &mut room[self.read + taken..],
            _ => &mut [][..],
        };
        let count = if self.plain.is_empty() {
            payload.len().min(room.len())
        } else {
            0
        };
        room[..count].copy_from_slice(&payload[..count]);
        self.plain.keep(&payload[count..]);
        count
    }

    fn send<Data>(&mut self, mut traffic: WriteTraffic<'_, Data>) -> Result<Step, rustls::Error> {
        match self.goal {
            Goal::Read(_) | Goal::Alert => Ok(Step::Wait),
            Goal::Write(first, second) => {
                for part in [*first, *second] {
                    encrypt(self.outgoing, |room| traffic.encrypt(part, room))?;
                }
                Ok(Step::Done)
            }
            Goal::Close => {
                encrypt(self.outgoing, |room| traffic.queue_close_notify(room))?;
                Ok(Step::Done)
            }
        }
    }
}

/// Writes records to `out`, which grows if they do not fit.
fn encrypt(
    out: &mut Buffer,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, EncryptError>,
) -> Result<(), rustls::Error> {
    loop {
        match write(out.room()) {
            Ok(count) => {
                out.filled(count);
                return Ok(());
            }
            Err(EncryptError::InsufficientSize(size)) => make_room(out, size),
            Err(EncryptError::EncryptExhausted) => return Err(rustls::Error::EncryptError),
        }
    }
}

fn make_room(out: &mut Buffer, size: InsufficientSizeError) {
    out.grow((out.len() + size.required_size).max(LARGE));
}

#[cfg(test)]
mod tests;

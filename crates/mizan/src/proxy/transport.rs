//! A byte stream to a client or a backend, whatever lies beneath.

use super::grpc::Account;
use super::http2::client::ClientStream;
use super::http2::grpc_web::Spelling;
use super::http2::server::ServerStream;
use super::plan::Upgrade;
use super::socket::{HangUp, Socket};
use super::tls::Tls;
use crate::orca::{Malformed, Report};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::task::{Context, Poll, ready};

/// What carries the bytes of HTTP/1.1.
#[derive(Debug)]
pub(super) enum Transport {
    /// The socket itself.
    Plain(Socket),
    /// TLS over it.
    Tls(Box<Tls>),
    /// One stream of a client that speaks HTTP/2.
    FromClient(Box<ServerStream>),
    /// One stream to a backend that does.
    ToBackend(Box<ClientStream>),
}

impl Transport {
    /// Reads into `buffer`, which must not be empty; 0 is the end.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(socket) => socket.poll_read(cx, buffer),
            Self::Tls(tls) => tls.poll_read(cx, buffer),
            Self::FromClient(stream) => stream.poll_read(cx, buffer),
            Self::ToBackend(stream) => stream.poll_read(cx, buffer),
        }
    }

    /// Writes some of `bytes`. After `Pending` the next call must begin with the same bytes: a part of them may be on
    /// its way already.
    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(socket) => socket.poll_write(cx, bytes),
            Self::Tls(tls) => tls.poll_write(cx, bytes, b""),
            Self::FromClient(stream) => stream.poll_write(cx, bytes),
            Self::ToBackend(stream) => stream.poll_write(cx, bytes),
        }
    }

    /// As [`Transport::poll_write`], of two parts one behind the other.
    pub(super) fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        first: &[u8],
        second: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(socket) => {
                socket.poll_write_vectored(cx, &[IoSlice::new(first), IoSlice::new(second)])
            }
            Self::Tls(tls) => tls.poll_write(cx, first, second),
            Self::FromClient(stream) => stream.poll_write(cx, first),
            Self::ToBackend(stream) => stream.poll_write(cx, first),
        }
    }

    /// Ready when bytes, an end or an error may be there.
    pub(super) fn poll_read_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(socket) => socket.poll_read_ready(cx),
            Self::Tls(tls) => tls.poll_read_ready(cx),
            Self::FromClient(stream) => stream.poll_read_ready(cx),
            Self::ToBackend(stream) => stream.poll_read_ready(cx),
        }
    }

    /// Whether an idle connection is open and has nothing to say: no end, no error, no bytes that nobody asked for.
    /// Where readiness says that nothing happened, this costs no system call.
    pub(super) fn is_quiet(&mut self) -> bool {
        match self {
            Self::Plain(socket) => socket.is_quiet(),
            Self::Tls(tls) => tls.is_quiet(),
            Self::FromClient(_) | Self::ToBackend(_) => false,
        }
    }

    /// The TCP socket, if bytes go over it as they are: then a pipe can carry them.
    pub(super) fn plain_tcp(&self) -> Option<&Socket> {
        match self {
            Self::Plain(socket @ Socket::Tcp(_)) => Some(socket),
            _ => None,
        }
    }

    /// The TCP socket at the bottom, whatever is spoken over it.
    pub(super) fn tcp_below(&self) -> Option<&Socket> {
        let socket = match self {
            Self::Plain(socket) => socket,
            Self::Tls(tls) => tls.socket(),
            Self::FromClient(_) | Self::ToBackend(_) => return None,
        };
        matches!(socket, Socket::Tcp(_)).then_some(socket)
    }

    /// The socket's own address; `None`: a Unix socket, or a stream among others.
    pub(super) fn local_address(&self) -> Option<SocketAddr> {
        self.tcp_below()?.local_address()
    }

    /// Ends the sending side.
    pub(super) fn shut_write(&mut self) {
        match self {
            Self::Plain(socket) => socket.shut_write(),
            Self::Tls(tls) => tls.shut_write(),
            Self::FromClient(stream) => stream.shut_write(),
            Self::ToBackend(stream) => stream.shut_write(),
        }
    }

    /// Ends the sending side; ready when all that belongs to that is with the kernel.
    pub(super) fn poll_shut_write(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Self::Tls(tls) = self {
            return tls.poll_shut_write(cx);
        }
        self.shut_write();
        Poll::Ready(())
    }

    /// Bytes written that the peer's kernel has not acknowledged (TCP) or taken (Unix).
    pub(super) fn unacknowledged(&self) -> Option<usize> {
        match self {
            Self::Plain(socket) => socket.unacknowledged(),
            Self::Tls(tls) => tls.socket().unacknowledged(),
            Self::FromClient(_) | Self::ToBackend(_) => None,
        }
    }

    /// Whether an error waits on the socket: the peer's reset, where no read or write has shown it yet.
    pub(super) fn was_reset(&self) -> bool {
        match self {
            Self::Plain(socket) => socket.was_reset(),
            Self::Tls(tls) => tls.socket().was_reset(),
            Self::FromClient(_) | Self::ToBackend(_) => false,
        }
    }

    /// Whether the peer has ended, seen past bytes that lie unread.
    pub(super) fn hang_up(&self) -> HangUp {
        match self {
            Self::Plain(socket) => socket.hang_up(),
            Self::Tls(tls) => tls.socket().hang_up(),
            Self::FromClient(_) | Self::ToBackend(_) => HangUp::None,
        }
    }

    /// Whether the client takes a status of success for a WebSocket, which only a backend can give it.
    pub(super) fn awaits_websocket(&self) -> bool {
        matches!(self, Self::FromClient(stream) if stream.awaits_websocket())
    }

    /// Whether all that comes on a client's stream was read.
    pub(super) fn is_read(&self) -> bool {
        matches!(self, Self::FromClient(stream) if stream.is_read())
    }

    /// Ready when a client is known to be gone whose body lies unread. A socket's end is found by reading it alone.
    pub(super) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::FromClient(stream) => stream.poll_gone(cx),
            Self::Plain(_) | Self::Tls(_) | Self::ToBackend(_) => Poll::Pending,
        }
    }

    /// Makes the coming close a reset: what is not yet delivered is dropped, and the peer sees that it was cut.
    pub(super) fn reset_on_close(&mut self) {
        match self {
            Self::Plain(socket) => socket.reset_on_close(),
            Self::Tls(tls) => tls.reset_on_close(),
            Self::FromClient(stream) => stream.reset(),
            Self::ToBackend(_) => {}
        }
    }

    /// Of `written` bytes, how many the peer's kernel was sent, where `before` of [`Transport::sent`] came before them:
    /// a record is longer than what it carries.
    pub(super) fn sent_of(&self, written: usize, before: usize) -> usize {
        match self {
            Self::Tls(tls) => tls.sent() - before,
            _ => written,
        }
    }

    /// Bytes sent so far, where they are counted here.
    pub(super) fn sent(&self) -> usize {
        match self {
            Self::Tls(tls) => tls.sent(),
            _ => 0,
        }
    }

    /// Whether an upgrade to `protocol` can go over it.
    pub(super) fn takes(&self, upgrade: Upgrade) -> bool {
        match self {
            Self::ToBackend(stream) => upgrade == Upgrade::WebSocket && stream.takes_websocket(),
            _ => true,
        }
    }

    /// The call is one of gRPC-Web, and is to reach the backend as one of gRPC.
    pub(super) fn translate(&mut self, web: Spelling) {
        if let Self::ToBackend(stream) = self {
            stream.translate(web);
        }
    }

    /// Whether the backend has said that it did nothing with the request of this stream.
    pub(super) fn is_refused(&self) -> bool {
        matches!(self, Self::ToBackend(stream) if stream.is_refused())
    }

    /// Whether trailers may come behind an answer of known length, and can be passed on: only HTTP/2 has a place for
    /// them. The client's stream then waits for [`Transport::poll_end`].
    pub(super) fn hold_open(&mut self, up: &Self) -> bool {
        match (self, up) {
            (Self::FromClient(down), Self::ToBackend(_)) => {
                down.await_trailers();
                true
            }
            _ => false,
        }
    }

    /// Ends the client's stream as the backend's ends, with its trailers.
    pub(super) fn poll_end(&mut self, cx: &mut Context<'_>, up: &mut Self) -> Poll<io::Result<()>> {
        if let (Self::FromClient(down), Self::ToBackend(up)) = (self, up) {
            let trailers = ready!(up.poll_trailers(cx))?;
            down.end_with(trailers);
        }
        Poll::Ready(Ok(()))
    }

    /// What the backend has said of its load behind its answer.
    pub(super) fn load_report(&self) -> Option<Result<Report, Malformed>> {
        match self {
            Self::ToBackend(stream) => stream.load_report(),
            _ => None,
        }
    }

    /// How a call of gRPC has ended, by the backend's account. HTTP/1.1 has no place for one.
    pub(super) fn grpc_account(&self) -> Option<Account> {
        match self {
            Self::ToBackend(stream) => stream.grpc_account(),
            _ => None,
        }
    }

    /// Whether it is TCP below.
    pub(super) fn is_tcp(&self) -> bool {
        self.tcp_below().is_some()
    }
}

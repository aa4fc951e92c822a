//! A byte stream to a client or a backend, whatever lies beneath.

use super::socket::{HangUp, Socket};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::task::{Context, Poll};
use tokio::net::{TcpStream, UnixStream};

/// What carries the bytes of HTTP/1.1.
#[derive(Debug)]
pub(super) enum Transport {
    /// The socket itself.
    Plain(Socket),
}

impl From<TcpStream> for Transport {
    fn from(stream: TcpStream) -> Self {
        Self::Plain(Socket::Tcp(stream))
    }
}

impl From<UnixStream> for Transport {
    fn from(stream: UnixStream) -> Self {
        Self::Plain(Socket::Unix(stream))
    }
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
        }
    }

    /// Ready when bytes, an end or an error may be there.
    pub(super) fn poll_read_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(socket) => socket.poll_read_ready(cx),
        }
    }

    /// Whether an idle connection is open and has nothing to say: no end, no error, no bytes that nobody asked for.
    /// Where readiness says that nothing happened, this costs no system call.
    pub(super) fn is_quiet(&mut self) -> bool {
        match self {
            Self::Plain(socket) => socket.is_quiet(),
        }
    }

    /// The TCP socket, if bytes go over it as they are: then a pipe can carry them.
    pub(super) fn plain_tcp(&self) -> Option<&Socket> {
        match self {
            Self::Plain(socket @ Socket::Tcp(_)) => Some(socket),
            Self::Plain(Socket::Unix(_)) => None,
        }
    }

    /// The socket's own address; `None`: a Unix socket.
    pub(super) fn local_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Plain(socket) => socket.local_address(),
        }
    }

    /// Ends the sending side.
    pub(super) fn shut_write(&mut self) {
        match self {
            Self::Plain(socket) => socket.shut_write(),
        }
    }

    /// Bytes written that the peer's kernel has not acknowledged (TCP) or taken (Unix).
    pub(super) fn unacknowledged(&self) -> Option<usize> {
        match self {
            Self::Plain(socket) => socket.unacknowledged(),
        }
    }

    /// Whether an error waits on the socket: the peer's reset, where no read or write has shown it yet.
    pub(super) fn was_reset(&self) -> bool {
        match self {
            Self::Plain(socket) => socket.was_reset(),
        }
    }

    /// Whether the peer has ended, seen past bytes that lie unread.
    pub(super) fn hang_up(&self) -> HangUp {
        match self {
            Self::Plain(socket) => socket.hang_up(),
        }
    }

    /// Makes the coming close a reset: what is not yet delivered is dropped, and the peer sees that it was cut.
    pub(super) fn reset_on_close(&mut self) {
        match self {
            Self::Plain(socket) => socket.reset_on_close(),
        }
    }
}

//! A byte stream to a client or a backend.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// A plain stream. TLS joins here as one more kind.
#[derive(Debug)]
pub(super) enum Transport {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Transport {
    /// Reads into `buffer`. `poll_read`, not `try_read`: only the former clears readiness after a short read,
    /// which saves a system call that says "nothing there".
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut read = ReadBuf::new(buffer);
        let result = match self {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, &mut read),
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, &mut read),
        };
        result.map_ok(|()| read.filled().len())
    }

    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    pub(super) fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, parts),
            Self::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, parts),
        }
    }

    /// Ready when bytes, an end or an error may be there. No system call.
    pub(super) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => stream.poll_read_ready(cx),
            Self::Unix(stream) => stream.poll_read_ready(cx),
        }
    }

    pub(super) fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => stream.poll_write_ready(cx),
            Self::Unix(stream) => stream.poll_write_ready(cx),
        }
    }

    pub(super) fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_read(buffer),
            Self::Unix(stream) => stream.try_read(buffer),
        }
    }

    /// Runs `operation` on the descriptor; `WouldBlock` clears the readiness of `interest`.
    pub(super) fn try_io<T>(
        &self,
        interest: Interest,
        operation: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        match self {
            Self::Tcp(stream) => stream.try_io(interest, operation),
            Self::Unix(stream) => stream.try_io(interest, operation),
        }
    }

    /// Sends FIN.
    pub(super) fn shut_write(&mut self) {
        let _ = rustix::net::shutdown(self.fd(), rustix::net::Shutdown::Write);
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }

    /// Bytes written that the peer's kernel has not acknowledged (TCP) or taken (Unix).
    pub(super) fn unacknowledged(&self) -> Option<usize> {
        super::sys::output_queue(self.fd()).ok()
    }

    /// Whether an error waits on the socket: the peer's reset, where no read or write has shown it yet.
    pub(super) fn was_reset(&self) -> bool {
        let error = match self {
            Self::Tcp(stream) => socket2::SockRef::from(stream).take_error(),
            Self::Unix(stream) => socket2::SockRef::from(stream).take_error(),
        };
        matches!(error, Ok(Some(_)))
    }

    /// Makes the coming close a reset: what is not yet delivered is dropped, and the peer sees that it was cut.
    pub(super) fn reset_on_close(&self) {
        if let Self::Tcp(stream) = self {
            let _ = socket2::SockRef::from(stream).set_linger(Some(std::time::Duration::ZERO));
        }
    }
}

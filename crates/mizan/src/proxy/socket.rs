//! A plain socket: TCP or Unix.

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{RecvFlags, SendFlags};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::task::{Context, Poll, ready};
use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};

/// How far a peer has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HangUp {
    None,
    /// It sends no more.
    Half,
    /// It neither sends nor takes any more.
    Whole,
}

/// A connected stream socket.
#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// Reads into `buffer`, which must not be empty; 0 is the end. System calls are made directly: the C library's
    /// are cancellation points, which costs more than all that is done here besides.
    ///
    /// A short read says that nothing is left, so readiness is cleared with it: that saves a call that would say
    /// the same.
    pub(super) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut short = None;
            let read = self.try_io(Interest::READABLE, || {
                let (count, _) = rustix::net::recv(self.fd(), &mut *buffer, RecvFlags::empty())?;
                if (1..buffer.len()).contains(&count) {
                    short = Some(count);
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                Ok(count)
            });
            match (short, read) {
                (Some(count), _) | (None, Ok(count)) => return Poll::Ready(Ok(count)),
                (None, Err(error)) => {
                    ready!(self.retry_when(error, |this| this.poll_read_ready(cx)))?
                }
            }
        }
    }

    /// As [`Socket::poll_read`], but what is read stays there to be read again.
    pub(super) fn poll_peek(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            let seen = self.try_io(Interest::READABLE, || {
                Ok(rustix::net::recv(self.fd(), &mut *buffer, RecvFlags::PEEK)?.0)
            });
            match seen {
                Ok(count) => return Poll::Ready(Ok(count)),
                Err(error) => ready!(self.retry_when(error, |this| this.poll_read_ready(cx)))?,
            }
        }
    }

    /// Takes `count` bytes that lie in the queue out of it.
    ///
    /// # Errors
    /// If they do not lie there.
    pub(super) fn discard(&self, count: usize) -> io::Result<()> {
        let mut bytes = vec![0; count];
        let (taken, _) = rustix::net::recv(self.fd(), &mut bytes, RecvFlags::DONTWAIT)?;
        if taken == count {
            Ok(())
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }

    /// Its own address; `None`: a Unix socket.
    pub(super) fn local_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(stream) => stream.local_addr().ok(),
            Self::Unix(_) => None,
        }
    }

    pub(super) fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let written = self.try_io(Interest::WRITABLE, || {
                Ok(rustix::net::send(self.fd(), bytes, SendFlags::NOSIGNAL)?)
            });
            match written {
                Ok(count) => return Poll::Ready(Ok(count)),
                Err(error) => ready!(self.retry_when(error, |this| this.poll_write_ready(cx)))?,
            }
        }
    }

    pub(super) fn poll_write_vectored(
        &self,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            let written = self.try_io(Interest::WRITABLE, || {
                Ok(rustix::io::writev(self.fd(), parts)?)
            });
            match written {
                Ok(count) => return Poll::Ready(Ok(count)),
                Err(error) => ready!(self.retry_when(error, |this| this.poll_write_ready(cx)))?,
            }
        }
    }

    /// Ready to try again after `error`, if that is a reason to.
    fn retry_when(
        &self,
        error: io::Error,
        poll_ready: impl FnOnce(&Self) -> Poll<io::Result<()>>,
    ) -> Poll<io::Result<()>> {
        match error.kind() {
            io::ErrorKind::WouldBlock => poll_ready(self),
            io::ErrorKind::Interrupted => Poll::Ready(Ok(())),
            _ => Poll::Ready(Err(error)),
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

    /// Whether an idle connection is open and has nothing to say: no end, no error, no bytes that nobody asked for.
    /// Where readiness says that nothing happened, this costs no system call.
    pub(super) fn is_quiet(&self) -> bool {
        let read = match self {
            Self::Tcp(stream) => stream.try_read(&mut [0; 1]),
            Self::Unix(stream) => stream.try_read(&mut [0; 1]),
        };
        matches!(read, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
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
    pub(super) fn shut_write(&self) {
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

    /// Whether the peer has ended, seen past bytes that lie unread.
    pub(super) fn hang_up(&self) -> HangUp {
        let mut polled = [PollFd::from_borrowed_fd(self.fd(), PollFlags::RDHUP)];
        let polled = match rustix::event::poll(&mut polled, Some(&Timespec::default())) {
            Ok(_) => polled[0].revents(),
            Err(_) => PollFlags::empty(),
        };
        if polled.intersects(PollFlags::HUP | PollFlags::ERR) {
            HangUp::Whole
        } else if polled.contains(PollFlags::RDHUP) {
            HangUp::Half
        } else {
            HangUp::None
        }
    }

    /// Makes the coming close a reset: what is not yet delivered is dropped, and the peer sees that it was cut.
    pub(super) fn reset_on_close(&self) {
        if let Self::Tcp(stream) = self {
            let _ = socket2::SockRef::from(stream).set_linger(Some(std::time::Duration::ZERO));
        }
    }
}

//! Large bodies between two plain TCP sockets go through a pipe, never through user space.

use super::body::Body;
use super::connection::Downstream;
use super::error::Reason;
use super::forward::Request;
use super::patience::Patience;
use super::relay::Response;
use super::socket::Socket;
use super::upstream::Upstream;
use rustix::pipe::{PipeFlags, SpliceFlags};
use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll};
use tokio::io::Interest;

/// Below this a copy is cheaper than two more system calls (measured: 16–64 KiB).
pub(super) const SPLICE_MIN: u64 = 64 << 10;
/// Most that one call moves.
const PIPE_BYTES: usize = 1 << 20;
/// Free pipes kept by a worker.
const PIPES_MAX: usize = 32;

thread_local! {
    static FREE: RefCell<Vec<Pipe>> = const { RefCell::new(Vec::new()) };
}

/// A pipe; empty whenever it lies among the free ones.
#[derive(Debug)]
pub(super) struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    /// Bytes in it.
    pub(super) held: usize,
}

impl Pipe {
    pub(super) fn take() -> io::Result<Self> {
        if let Some(pipe) = FREE.with_borrow_mut(Vec::pop) {
            return Ok(pipe);
        }
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC)?;
        // Beyond the user's pipe quota it stays at 64 KiB, which only costs more calls.
        let _ = rustix::pipe::fcntl_setpipe_size(&write, PIPE_BYTES);
        Ok(Self {
            read,
            write,
            held: 0,
        })
    }

    pub(super) fn give_back(self) {
        FREE.with_borrow_mut(|free| {
            if self.held == 0 && free.len() < PIPES_MAX {
                free.push(self);
            }
        });
    }
}

/// Whether the rest of the body should go through a pipe.
pub(super) fn is_worth_it(response: &Response, down: &Downstream, up: &Upstream<'_>) -> bool {
    matches!(response.body, Body::Length(left) if left >= SPLICE_MIN)
        && !response.no_pipe
        && !response.is_recoded()
        && down.transport.plain_tcp().is_some()
        && up.transport.plain_tcp().is_some()
}

/// Moves the rest of a body of known length. On return it is done.
///
/// # Errors
/// As for any relay.
pub(super) async fn relay(
    down: &mut Downstream,
    request: &Request<'_>,
    up: &mut Upstream<'_>,
    response: &mut Response,
) -> Result<(), Reason> {
    let Body::Length(mut left) = response.body else {
        return Ok(());
    };
    let Ok(mut pipe) = Pipe::take() else {
        // Out of descriptors: the body is copied.
        response.no_pipe = true;
        return Ok(());
    };
    let mut patience = Patience::new();
    let mut read = 0;
    // The buffer is of no use while the body takes another way.
    response.input = None;
    let result = std::future::poll_fn(|cx| {
        loop {
            if pipe.held > 0 {
                match poll_out(cx, &mut pipe, down.transport.plain_tcp()) {
                    Poll::Ready(Ok(count)) => {
                        response.written += count as u64;
                        patience.moved(down);
                        continue;
                    }
                    Poll::Ready(Err(_)) => return Poll::Ready(Err(Reason::ClientGone)),
                    Poll::Pending => {
                        return patience
                            .await_client(cx, down, request, response.written)
                            .map(Err);
                    }
                }
            }
            if left == 0 {
                return Poll::Ready(Ok(()));
            }
            match poll_in(cx, &mut pipe, up.transport.plain_tcp(), left) {
                Poll::Ready(Ok(0)) | Poll::Ready(Err(_)) => {
                    return Poll::Ready(Err(Reason::ResponseCut));
                }
                Poll::Ready(Ok(count)) => {
                    left -= count as u64;
                    read += count as u64;
                }
                Poll::Pending => {
                    return patience
                        .await_backend(cx, down, request, (read, true))
                        .map(Err);
                }
            }
        }
    })
    .await;
    pipe.give_back();
    response.body = Body::Done;
    result
}

/// Fills an empty pipe with what has come, up to `left` bytes; 0 is the end.
pub(super) fn poll_in(
    cx: &mut Context<'_>,
    pipe: &mut Pipe,
    from: Option<&Socket>,
    left: u64,
) -> Poll<io::Result<usize>> {
    let Some(from) = from else {
        return Poll::Ready(Err(io::ErrorKind::Unsupported.into()));
    };
    let most = usize::try_from(left).unwrap_or(usize::MAX).min(PIPE_BYTES);
    loop {
        match from.poll_read_ready(cx) {
            Poll::Ready(Ok(())) => {}
            other => return other.map_ok(|()| 0),
        }
        let moved = from.try_io(Interest::READABLE, || splice(from.fd(), &pipe.write, most));
        match moved {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(count) => {
                pipe.held += count;
                return Poll::Ready(Ok(count));
            }
            Err(error) => return Poll::Ready(Err(error)),
        }
    }
}

/// Empties a pipe as far as the other side takes it.
pub(super) fn poll_out(
    cx: &mut Context<'_>,
    pipe: &mut Pipe,
    to: Option<&Socket>,
) -> Poll<io::Result<usize>> {
    let Some(to) = to else {
        return Poll::Ready(Err(io::ErrorKind::Unsupported.into()));
    };
    loop {
        match to.poll_write_ready(cx) {
            Poll::Ready(Ok(())) => {}
            other => return other.map_ok(|()| 0),
        }
        let moved = to.try_io(Interest::WRITABLE, || {
            splice(&pipe.read, to.fd(), pipe.held)
        });
        match moved {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(count) => {
                pipe.held -= count;
                return Poll::Ready(Ok(count));
            }
            Err(error) => return Poll::Ready(Err(error)),
        }
    }
}

fn splice(
    from: impl std::os::fd::AsFd,
    to: impl std::os::fd::AsFd,
    most: usize,
) -> io::Result<usize> {
    Ok(rustix::pipe::splice(
        from,
        None,
        to,
        None,
        most,
        SpliceFlags::NONBLOCK | SpliceFlags::MOVE,
    )?)
}

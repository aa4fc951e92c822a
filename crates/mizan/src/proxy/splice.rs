//! Large bodies between two plain TCP sockets go through a pipe, never through user space.

use super::body::Body;
use super::connection::Downstream;
use super::error::Reason;
use super::forward::Request;
use super::relay::Response;
use super::transport::Transport;
use super::upstream::Upstream;
use super::watch::Watch;
use rustix::pipe::{PipeFlags, SpliceFlags};
use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll};
use tokio::io::Interest;

/// Below this a copy is cheaper than two more system calls (measured: 16–64 KiB).
const SPLICE_MIN: u64 = 64 << 10;
/// Most that one call moves.
const PIPE_BYTES: usize = 1 << 20;
/// Free pipes kept by a worker.
const PIPES_MAX: usize = 32;

thread_local! {
    static FREE: RefCell<Vec<Pipe>> = const { RefCell::new(Vec::new()) };
}

/// A pipe; empty whenever it lies among the free ones.
#[derive(Debug)]
struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    /// Bytes in it.
    held: usize,
}

impl Pipe {
    fn take() -> io::Result<Self> {
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

    fn give_back(self) {
        FREE.with_borrow_mut(|free| {
            if self.held == 0 && free.len() < PIPES_MAX {
                free.push(self);
            }
        });
    }
}

/// Whether the rest of the body should go through a pipe.
pub(super) fn is_worth_it(body: &Body, recode: bool, down: &Downstream, up: &Upstream<'_>) -> bool {
    matches!(body, Body::Length(left) if *left >= SPLICE_MIN)
        && !recode
        && matches!(
            (&down.transport, &up.transport),
            (Transport::Tcp(_), Transport::Tcp(_))
        )
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
    let mut pipe = Pipe::take().map_err(|_| Reason::ResponseCut)?;
    let mut wait = SpliceWait::default();
    // The buffer is of no use while the body takes another way.
    response.input = None;
    let result = std::future::poll_fn(|cx| {
        loop {
            if pipe.held > 0 {
                match poll_out(cx, &mut pipe, down) {
                    Poll::Ready(Ok(count)) => {
                        response.written += count as u64;
                        wait.moved(down, request, response.written);
                        continue;
                    }
                    Poll::Ready(Err(_)) => return Poll::Ready(Err(Reason::ClientGone)),
                    Poll::Pending => return wait.client(cx, down, request, response.written),
                }
            }
            if left == 0 {
                return Poll::Ready(Ok(()));
            }
            match poll_in(cx, &mut pipe, up, left) {
                Poll::Ready(Ok(0)) | Poll::Ready(Err(_)) => {
                    return Poll::Ready(Err(Reason::ResponseCut));
                }
                Poll::Ready(Ok(count)) => left -= count as u64,
                Poll::Pending => return wait.backend(cx, down, request),
            }
        }
    })
    .await;
    pipe.give_back();
    response.body = Body::Done;
    result
}

fn poll_in(
    cx: &mut Context<'_>,
    pipe: &mut Pipe,
    up: &Upstream<'_>,
    left: u64,
) -> Poll<io::Result<usize>> {
    let most = usize::try_from(left).unwrap_or(usize::MAX).min(PIPE_BYTES);
    loop {
        match up.transport.poll_read_ready(cx) {
            Poll::Ready(Ok(())) => {}
            other => return other.map_ok(|()| 0),
        }
        let moved = up.transport.try_io(Interest::READABLE, || {
            splice(up.transport.fd(), &pipe.write, most)
        });
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

fn poll_out(cx: &mut Context<'_>, pipe: &mut Pipe, down: &Downstream) -> Poll<io::Result<usize>> {
    loop {
        match down.transport.poll_write_ready(cx) {
            Poll::Ready(Ok(())) => {}
            other => return other.map_ok(|()| 0),
        }
        let moved = down.transport.try_io(Interest::WRITABLE, || {
            splice(&pipe.read, down.transport.fd(), pipe.held)
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

/// Time-outs of a splice.
#[derive(Default)]
struct SpliceWait {
    watch: Watch,
    meter: super::meter::Meter,
    client_deadline: Option<u64>,
    taken: u64,
    backend_deadline: Option<u64>,
}

impl SpliceWait {
    fn moved(&mut self, down: &Downstream, _request: &Request<'_>, _written: u64) {
        self.meter.go_on(down.timer.now_ms());
        (self.client_deadline, self.backend_deadline) = (None, None);
    }

    fn client(
        &mut self,
        cx: &Context<'_>,
        down: &Downstream,
        request: &Request<'_>,
        written: u64,
    ) -> Poll<Result<(), Reason>> {
        let taken = written.saturating_sub(down.transport.unacknowledged().unwrap_or(0) as u64);
        let now_ms = down.timer.now_ms();
        let min_rate = &down.listener.min_rate;
        self.meter.wait(now_ms);
        if self.meter.is_too_slow(
            now_ms,
            taken,
            min_rate.download_bytes_per_second,
            min_rate.grace,
        ) {
            return Poll::Ready(Err(Reason::SendTimeout));
        }
        if taken != self.taken {
            self.taken = taken;
            self.client_deadline = None;
        }
        let fresh = down.timer.deadline_after(down.listener.timeouts.send);
        let deadline = *self.client_deadline.get_or_insert(fresh);
        if deadline <= now_ms {
            return Poll::Ready(Err(Reason::SendTimeout));
        }
        let look_again = down.timer.deadline_after(std::time::Duration::from_secs(1));
        sleep_until(cx, down, request, deadline.min(look_again), None)
    }

    fn backend(
        &mut self,
        cx: &mut Context<'_>,
        down: &mut Downstream,
        request: &Request<'_>,
    ) -> Poll<Result<(), Reason>> {
        if let Some(reason) = self.watch.poll(cx, down, request.worker) {
            return Poll::Ready(Err(reason));
        }
        let fresh = down.timer.deadline_after(request.deadlines.response_idle);
        let deadline = *self.backend_deadline.get_or_insert(fresh);
        sleep_until(
            cx,
            down,
            request,
            deadline.min(self.watch.deadline_ms()),
            Some(deadline),
        )
    }
}

/// Pending until `deadline`; past the request's own, or `fatal`, an error.
fn sleep_until(
    cx: &Context<'_>,
    down: &Downstream,
    request: &Request<'_>,
    deadline: u64,
    fatal: Option<u64>,
) -> Poll<Result<(), Reason>> {
    let now_ms = down.timer.now_ms();
    if request.deadlines.request_ms <= now_ms {
        return Poll::Ready(Err(Reason::RequestTimeout));
    }
    if fatal.is_some_and(|fatal| fatal <= now_ms) {
        return Poll::Ready(Err(Reason::ResponseIdle));
    }
    down.timer
        .set_at(deadline.min(request.deadlines.request_ms));
    if down.timer.poll_expired(cx) {
        // A deadline that passed while it was set: come round at once.
        cx.waker().wake_by_ref();
    }
    Poll::Pending
}

//! Bytes both ways between two connections, until both have said all they had to say.
//!
//! ```text
//!          bytes                          FIN                    all written
//!   open ─────────▶ open      open ─────────────▶ finishing ─────────────────▶ done: FIN is passed on
//!                                 cannot write
//!   any stage ──────────────────────────────────▶ done: a reset is passed on, when the other way has ended
//! ```
//!
//! Each direction is on its own: a FIN is passed on as one, and the other way goes on. A reset is passed on as a reset,
//! because a FIN in its place would make a cut look like an end. While nothing moves, a tunnel holds no buffer and no
//! pipe.
//!
//! Of a WebSocket the frames are followed, so that at a drain a close can be put between two of them: each side is told
//! in its own protocol, and at a time of its own, so that not all clients come back at once.
//!
//! Bytes are copied as long as they come in small pieces: a read and a write, as in the barest relay. A direction that
//! has moved much without a pause goes through a pipe, where both sides are plain TCP, and never enters user space.

use super::buffer::{Buffer, BufferPool};
use super::cut::Cut;
use super::splice::{self, Pipe, SPLICE_MIN};
use super::timer::Timer;
use super::transport::Transport;
use super::worker::Worker;
use crate::clock;
use crate::websocket::{CloseCode, Frames, close_frame};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// A piece smaller than this ends a run of large ones: what follows is likely an exchange of messages. Measured: pieces of
/// 5 KB cost a fifth more through a pipe than copied, of 16 KiB no more, of 64 KiB half.
const SMALL_PIECE: usize = 8 << 10;
/// Pieces that one direction moves before others get their turn.
const PIECES_MAX: u32 = 16;
/// How long a backend may still speak that was told of a drain, and how much of it is heard.
const LAST_WORDS: Duration = Duration::from_millis(500);
const LAST_BYTES_MAX: usize = 1 << 20;

/// One side of a tunnel.
#[derive(Debug)]
pub(super) struct Party<'t> {
    pub(super) transport: &'t mut Transport,
    /// What was read from it already, and is passed on first.
    pub(super) unread: Option<Buffer>,
}

/// What a tunnel needs and how long it may be.
#[derive(Debug)]
pub(super) struct Terms<'t> {
    /// The client's connection's.
    pub(super) timer: &'t Timer,
    pub(super) buffers: &'t Rc<BufferPool>,
    /// Silence both ways; zero: without end.
    pub(super) idle: Duration,
    /// Its end in any case, in ms of the timer; `u64::MAX`: none.
    pub(super) until_ms: u64,
    /// It carries a WebSocket, which a drain of this worker closes.
    pub(super) websocket: Option<&'t Worker>,
}

/// How a tunnel ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    /// Bytes written to the backend.
    pub(super) sent_up: u64,
    /// Bytes written to the client.
    pub(super) sent_down: u64,
    pub(super) why: Why,
}

/// Why a tunnel ended. But for the first two, what was on its way is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// Both sides have ended, the client first.
    ClosedByClient,
    /// Both sides have ended, the backend first.
    ClosedByBackend,
    /// The client's connection is broken; the backend sees a reset.
    ClientReset,
    /// The backend's connection is broken; the client sees a reset.
    BackendReset,
    /// Nothing moved for [`Terms::idle`].
    Idle,
    /// It lasted until [`Terms::until_ms`].
    TooLong,
    /// A drain has closed it, both sides by a close frame.
    Drained,
    /// The process ends.
    Cut(Cut),
}

/// Hands bytes through until the tunnel ends. `on_answer` is called when the first byte of the backend has come.
pub(super) async fn tunnel(
    mut down: Party<'_>,
    mut up: Party<'_>,
    terms: &Terms<'_>,
    mut on_answer: impl FnMut(),
) -> Ended {
    let mut upward = Direction::new(down.unread.take());
    let mut downward = Direction::new(up.unread.take());
    let mut first = None;
    let mut is_answered = false;
    let mut leave = Leave::default();
    let mut drain = std::pin::pin!(drain_begun(terms));
    if terms.websocket.is_some() {
        upward.frames = Some(Frames::default());
        downward.frames = Some(Frames::default());
    }
    terms.timer.set_at(terms.deadline_ms());
    let why = std::future::poll_fn(|cx| {
        if leave.is_due(cx, drain.as_mut(), terms) {
            let key = (clock::random() as u32).to_be_bytes();
            upward.close = Some(close_frame(CloseCode::GoingAway, Some(key)));
            downward.close = Some(close_frame(CloseCode::ServiceRestart, None));
            first = Some(Why::Drained);
            // What the timer waited for has come: that is no silence.
            terms.timer.set_at(terms.deadline_ms());
        }
        let from_client = upward.poll(cx, down.transport, up.transport, terms.buffers);
        let from_backend = downward.poll(cx, up.transport, down.transport, terms.buffers);
        if !is_answered && downward.is_begun() {
            is_answered = true;
            on_answer();
        }
        if let Some(why) = broken(&from_client, &from_backend) {
            return Poll::Ready(why);
        }
        let is_told = upward.poll_fin(cx, up.transport).is_ready()
            & downward.poll_fin(cx, down.transport).is_ready();
        if first.is_none() {
            first = match (upward.has_ended(), downward.has_ended()) {
                // Both at once: a client's goes before what it led to.
                (true, _) => Some(Why::ClosedByClient),
                (false, true) => Some(Why::ClosedByBackend),
                (false, false) => None,
            };
        }
        if from_client.is_ready() && from_backend.is_ready() && is_told {
            return Poll::Ready(first.unwrap_or(Why::ClosedByClient));
        }
        if upward.take_active() | downward.take_active() {
            terms.timer.set_at(terms.deadline_ms().min(leave.at_ms()));
        }
        if let Some(cut) = terms.timer.is_cut() {
            return Poll::Ready(Why::Cut(cut));
        }
        if !terms.timer.poll_expired(cx) {
            return Poll::Pending;
        }
        let is_over = terms.until_ms <= terms.timer.now_ms();
        Poll::Ready(if is_over { Why::TooLong } else { Why::Idle })
    })
    .await;
    upward.let_go();
    downward.let_go();
    if why == Why::Drained {
        hear_out(up.transport, terms).await;
    }
    pass_on(why, down.transport, up.transport);
    Ended {
        sent_up: upward.sent,
        sent_down: downward.sent,
        why,
    }
}

impl Terms<'_> {
    fn deadline_ms(&self) -> u64 {
        self.timer.deadline_after(self.idle).min(self.until_ms)
    }
}

/// Makes a cut one to the other side as well.
fn pass_on(why: Why, down: &mut Transport, up: &mut Transport) {
    match why {
        Why::ClientReset => up.reset_on_close(),
        Why::BackendReset => down.reset_on_close(),
        Why::TooLong | Why::Cut(_) => {
            up.reset_on_close();
            down.reset_on_close();
        }
        Why::ClosedByClient | Why::ClosedByBackend | Why::Idle | Why::Drained => {}
    }
}

/// Reads and drops what the backend still says to its close: to close with bytes unread would be a reset, by which
/// it can lose the close.
async fn hear_out(up: &mut Transport, terms: &Terms<'_>) {
    terms.timer.set(LAST_WORDS);
    let mut left = LAST_BYTES_MAX;
    let mut buffer = terms.buffers.small();
    std::future::poll_fn(|cx| {
        while left > 0 && !terms.timer.poll_expired(cx) {
            match ready!(up.poll_read(cx, buffer.room())) {
                Ok(count @ 1..) => left = left.saturating_sub(count),
                Ok(_) | Err(_) => break,
            }
        }
        Poll::Ready(())
    })
    .await;
}

/// Ready when a drain begins that the tunnel has a part in.
async fn drain_begun(terms: &Terms<'_>) {
    match terms.websocket {
        Some(worker) => worker.drain_begun().await,
        None => std::future::pending().await,
    }
}

/// When a tunnel leaves in a drain.
#[derive(Debug, Default)]
struct Leave {
    at_ms: Option<u64>,
    is_done: bool,
}

impl Leave {
    /// Whether it is time to; true once.
    fn is_due<F: Future<Output = ()>>(
        &mut self,
        cx: &mut Context<'_>,
        drain: Pin<&mut F>,
        terms: &Terms<'_>,
    ) -> bool {
        if self.is_done {
            return false;
        }
        let at_ms = match (self.at_ms, terms.websocket) {
            (Some(at_ms), _) => at_ms,
            (None, Some(worker)) if drain.poll(cx).is_ready() => {
                let at_ms = worker.leave_at_ms();
                self.at_ms = Some(at_ms);
                terms.timer.set_at(terms.deadline_ms().min(at_ms));
                at_ms
            }
            (None, _) => return false,
        };
        self.is_done = at_ms <= terms.timer.now_ms();
        self.is_done
    }

    fn at_ms(&self) -> u64 {
        self.at_ms.filter(|_| !self.is_done).unwrap_or(u64::MAX)
    }
}

/// Whose connection is broken, once what the other way could still bring has been passed on: a backend may answer,
/// close and then reset what it is sent further; its answer is read to its end all the same.
fn broken(
    from_client: &Poll<Result<(), Side>>,
    from_backend: &Poll<Result<(), Side>>,
) -> Option<Why> {
    match (from_client, from_backend) {
        (Poll::Ready(Err(Side::From)), _) => Some(Why::ClientReset),
        (_, Poll::Ready(Err(Side::From))) => Some(Why::BackendReset),
        (Poll::Ready(Err(Side::To)), Poll::Ready(_)) => Some(Why::BackendReset),
        (Poll::Ready(_), Poll::Ready(Err(Side::To))) => Some(Why::ClientReset),
        _ => None,
    }
}

/// An end of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    From,
    To,
}

/// One way of a tunnel.
#[derive(Debug)]
struct Direction {
    stage: Stage,
    carried: Carried,
    /// Bytes written.
    sent: u64,
    /// Bytes read.
    read: u64,
    /// Of these, in the present run of large pieces.
    run: u64,
    /// Something moved since it was last asked.
    is_active: bool,
    /// All is written, and the other side is to be told: unless its own way turns out to be cut.
    fin_due: bool,
    /// No pipe was to be had.
    no_pipe: bool,
    /// Where the frames end that were written, of a WebSocket whose frames make sense.
    frames: Option<Frames>,
    /// To be put between two frames; nothing follows it.
    close: Option<Vec<u8>>,
    /// Bytes that a write was given and has not taken: the next one begins with all of them.
    offered: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Open,
    /// The end was read; what is carried is still to be written.
    Finishing,
    Done(Result<(), Side>),
}

/// What was read and is not yet written.
#[derive(Debug)]
enum Carried {
    Nothing,
    Buffer(Buffer),
    Pipe(Pipe),
}

impl Direction {
    fn new(unread: Option<Buffer>) -> Self {
        let unread = unread.filter(|buffer| !buffer.is_empty());
        Self {
            stage: Stage::Open,
            read: unread.as_ref().map_or(0, |buffer| buffer.len() as u64),
            carried: unread.map_or(Carried::Nothing, Carried::Buffer),
            sent: 0,
            run: 0,
            is_active: false,
            fin_due: false,
            no_pipe: false,
            frames: None,
            close: None,
            offered: 0,
        }
    }

    fn is_begun(&self) -> bool {
        self.read > 0
    }

    /// Nothing more will be read.
    fn has_ended(&self) -> bool {
        self.stage != Stage::Open
    }

    /// Passes the end on, if that is due.
    fn poll_fin(&mut self, cx: &mut Context<'_>, to: &mut Transport) -> Poll<()> {
        if self.fin_due {
            ready!(to.poll_shut_write(cx));
            self.fin_due = false;
        }
        Poll::Ready(())
    }

    fn take_active(&mut self) -> bool {
        std::mem::take(&mut self.is_active)
    }

    /// Moves what there is. Ready when the direction is done, again each time.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut Transport,
        to: &mut Transport,
        buffers: &Rc<BufferPool>,
    ) -> Poll<Result<(), Side>> {
        for _ in 0..PIECES_MAX {
            if let Stage::Done(result) = self.stage {
                return Poll::Ready(result);
            }
            self.put_close(buffers);
            let moved = match ready!(self.poll_write(cx, to)) {
                Err(side) => Err(side),
                Ok(()) if self.stage == Stage::Finishing => {
                    self.let_go();
                    self.fin_due = true;
                    self.stage = Stage::Done(Ok(()));
                    continue;
                }
                // A frame has just ended.
                Ok(()) if self.close.is_some() && at_boundary(&self.frames) => continue,
                Ok(()) => ready!(self.poll_read(cx, (from, to), buffers)),
            };
            if let Err(side) = moved {
                self.carried = Carried::Nothing;
                self.stage = Stage::Done(Err(side));
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Has the close go next, if it is due and a frame has just ended: what is carried behind it is dropped.
    fn put_close(&mut self, buffers: &Rc<BufferPool>) {
        if self.offered > 0 || !at_boundary(&self.frames) {
            return;
        }
        let Some(close) = self.close.take() else {
            return;
        };
        // A side that has closed already wants no second one.
        let is_closed = self.frames.take().is_some_and(|frames| frames.is_closed());
        let mut buffer = buffers.small();
        if !is_closed {
            buffer.write(|bytes| bytes.extend_from_slice(&close));
        }
        self.let_go();
        self.carried = Carried::Buffer(buffer);
        self.stage = Stage::Finishing;
    }

    /// Writes all that is carried.
    fn poll_write(&mut self, cx: &mut Context<'_>, to: &mut Transport) -> Poll<Result<(), Side>> {
        loop {
            let written = match &mut self.carried {
                Carried::Buffer(buffer) if !buffer.is_empty() => {
                    if self.close.is_some() && self.offered == 0 && at_boundary(&self.frames) {
                        return Poll::Ready(Ok(()));
                    }
                    let bytes = buffer.unread();
                    let length = match (self.offered, &self.frames, &self.close) {
                        (0, Some(frames), Some(_)) => frame_end(frames, bytes),
                        (0, _, _) => bytes.len(),
                        (offered, _, _) => offered,
                    };
                    self.offered = length;
                    let written = ready!(to.poll_write(cx, &bytes[..length]));
                    self.offered = 0;
                    if let (Ok(count), Some(frames)) = (&written, &mut self.frames)
                        && frames.advance(&bytes[..*count]).is_err()
                    {
                        // Whatever it is, it is handed through.
                        self.frames = None;
                    }
                    written.inspect(|count| buffer.consume(*count))
                }
                Carried::Pipe(pipe) if pipe.held > 0 => {
                    ready!(splice::poll_out(cx, pipe, to.plain_tcp()))
                }
                _ => return Poll::Ready(Ok(())),
            };
            match written {
                Ok(count) => {
                    self.sent += count as u64;
                    self.is_active = true;
                }
                Err(_) => return Poll::Ready(Err(Side::To)),
            }
        }
    }

    /// Reads a piece; nothing is carried now.
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        (from, to): (&mut Transport, &Transport),
        buffers: &Rc<BufferPool>,
    ) -> Poll<Result<(), Side>> {
        let Poll::Ready(ready) = from.poll_read_ready(cx) else {
            self.let_go();
            return Poll::Pending;
        };
        let read = match ready {
            Ok(()) if self.takes_pipe(from, to) => self.poll_read_to_pipe(cx, from),
            Ok(()) => self.poll_read_to_buffer(cx, from, buffers),
            Err(error) => Poll::Ready(Err(error)),
        };
        match read {
            Poll::Pending => {
                self.let_go();
                return Poll::Pending;
            }
            Poll::Ready(Ok(0)) => self.stage = Stage::Finishing,
            Poll::Ready(Ok(count)) => {
                self.read += count as u64;
                self.is_active = true;
                self.run = if count < SMALL_PIECE {
                    0
                } else {
                    self.run + count as u64
                };
            }
            Poll::Ready(Err(_)) => return Poll::Ready(Err(Side::From)),
        }
        Poll::Ready(Ok(()))
    }

    fn takes_pipe(&self, from: &Transport, to: &Transport) -> bool {
        self.run >= SPLICE_MIN
            && self.frames.is_none()
            && !self.no_pipe
            && from.plain_tcp().is_some()
            && to.plain_tcp().is_some()
    }

    fn poll_read_to_pipe(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut Transport,
    ) -> Poll<std::io::Result<usize>> {
        if !matches!(self.carried, Carried::Pipe(_)) {
            match Pipe::take() {
                Ok(pipe) => self.carried = Carried::Pipe(pipe),
                Err(_) => self.no_pipe = true,
            }
        }
        match &mut self.carried {
            Carried::Pipe(pipe) => splice::poll_in(cx, pipe, from.plain_tcp(), u64::MAX),
            // Out of descriptors: the next piece is copied. Nothing was read, so nothing is lost.
            _ => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }

    fn poll_read_to_buffer(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut Transport,
        buffers: &Rc<BufferPool>,
    ) -> Poll<std::io::Result<usize>> {
        if !matches!(self.carried, Carried::Buffer(_)) {
            self.let_go();
            self.carried = Carried::Buffer(buffers.large());
        }
        let Carried::Buffer(buffer) = &mut self.carried else {
            return Poll::Pending;
        };
        let read = from.poll_read(cx, buffer.room());
        if let Poll::Ready(Ok(count)) = read {
            buffer.filled(count);
        }
        read
    }

    /// Gives back what is empty: others need it, and this direction is quiet.
    fn let_go(&mut self) {
        if let Carried::Pipe(pipe) = std::mem::replace(&mut self.carried, Carried::Nothing) {
            pipe.give_back();
        }
    }
}

fn at_boundary(frames: &Option<Frames>) -> bool {
    frames.as_ref().is_some_and(Frames::is_at_boundary)
}

/// How many of `bytes` belong to the frame that is under way.
fn frame_end(frames: &Frames, bytes: &[u8]) -> usize {
    frames.clone().next(bytes).unwrap_or(bytes.len())
}

#[cfg(test)]
mod tests;

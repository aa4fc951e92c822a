//! One way of a tunnel.
//!
//! Bytes are copied as long as they come in small pieces: a read and a write, as in the barest relay. A direction that
//! has moved much without a pause goes through a pipe, where both sides are plain TCP, and never enters user space.

use super::super::buffer::{Buffer, BufferPool};
use super::super::splice::{self, Pipe, SPLICE_MIN};
use super::super::transport::Transport;
use crate::clock;
use crate::websocket::{CloseCode, Frames, close_frame};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// A piece smaller than this ends a run of large ones: what follows is likely an exchange of messages. Measured: pieces of
/// 5 KB cost a fifth more through a pipe than copied, of 16 KiB no more, of 64 KiB half.
const SMALL_PIECE: usize = 8 << 10;
/// Pieces that one direction moves before others get their turn.
const PIECES_MAX: u32 = 16;

/// Both ways of a tunnel. What they hold is as long as the tunnel is idle: see that it stays little.
#[derive(Debug)]
pub(in super::super) struct Directions {
    pub(super) upward: Direction,
    pub(super) downward: Direction,
}

impl Directions {
    /// What was read already of the client's bytes and of the backend's is passed on first.
    pub(in super::super) fn new(from_client: Option<Buffer>, from_backend: Option<Buffer>) -> Self {
        Self {
            upward: Direction::new(from_client),
            downward: Direction::new(from_backend),
        }
    }
}

/// One way of a tunnel.
#[derive(Debug)]
pub(super) struct Direction {
    stage: Stage,
    carried: Carried,
    /// Bytes written.
    pub(super) sent: u64,
    /// Bytes read in the present run of large pieces.
    run: u64,
    /// Something was read.
    pub(super) is_begun: bool,
    /// Something moved since it was last asked.
    is_active: bool,
    /// All is written, and the other side is to be told: unless its own way turns out to be cut.
    fin_due: bool,
    /// No pipe was to be had.
    no_pipe: bool,
    /// Where the frames end that were written, of a WebSocket whose frames make sense.
    pub(super) frames: Option<Frames>,
    /// To be put between two frames; nothing follows it.
    pub(super) close: Option<Close>,
    /// Bytes that a write was given and has not taken: the next one begins with all of them.
    offered: usize,
}

/// Whom a close frame of Mizan's goes to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Close {
    ToBackend,
    ToClient,
}

impl Close {
    fn frame(self) -> Vec<u8> {
        match self {
            Self::ToBackend => {
                let key = (clock::random() as u32).to_be_bytes();
                close_frame(CloseCode::GoingAway, Some(key))
            }
            Self::ToClient => close_frame(CloseCode::ServiceRestart, None),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Open,
    /// The end was read; what is carried is still to be written.
    Finishing,
    Done(Result<(), Side>),
}

/// An end of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    From,
    To,
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
            is_begun: unread.is_some(),
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

    /// Nothing more will be read.
    pub(super) fn has_ended(&self) -> bool {
        self.stage != Stage::Open
    }

    /// Passes the end on, if that is due.
    pub(super) fn poll_fin(&mut self, cx: &mut Context<'_>, to: &mut Transport) -> Poll<()> {
        if self.fin_due {
            ready!(to.poll_shut_write(cx));
            self.fin_due = false;
        }
        Poll::Ready(())
    }

    pub(super) fn take_active(&mut self) -> bool {
        std::mem::take(&mut self.is_active)
    }

    /// Moves what there is. Ready when the direction is done, again each time.
    pub(super) fn poll(
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
            buffer.write(|bytes| bytes.extend_from_slice(&close.frame()));
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
                self.is_begun = true;
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
    pub(super) fn let_go(&mut self) {
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

//! A transport as the library wants it.

use super::super::buffer::Buffer;
use super::super::transport::Transport;
use super::strain::{Follower, Strain};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::coop;

/// A transport, and what was read from it before it was known to speak HTTP/2.
#[derive(Debug)]
pub(super) struct Io {
    transport: Transport,
    before: Option<Buffer>,
    /// Held against a client what it sends.
    watched: Option<(Rc<Strain>, Follower)>,
}

/// So many frames that move no stream are worth a turn of their own: who sends nothing else has shorter ones.
const FRAMES_A_TURN: u32 = 16;

impl Io {
    pub(super) fn new(transport: Transport, before: Option<Buffer>) -> Self {
        Self {
            transport,
            before,
            watched: None,
        }
    }

    /// Has what comes counted there.
    pub(super) fn watched(mut self, strain: Rc<Strain>) -> Self {
        self.watched = Some((strain, Follower::default()));
        self
    }

    /// Looks through what has come; pending if it is one frame too many.
    fn poll_watched(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<()> {
        let Some((strain, follower)) = &mut self.watched else {
            return Poll::Ready(());
        };
        let seen = follower.follow(bytes);
        for _ in 0..(seen.control + seen.updates) / FRAMES_A_TURN {
            if let Poll::Ready(turn) = coop::poll_proceed(cx) {
                turn.made_progress();
            }
        }
        match strain.seen(&seen) {
            true => Poll::Pending,
            false => Poll::Ready(()),
        }
    }

    fn count_sent(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let (Some((strain, _)), Poll::Ready(Ok(count))) = (&self.watched, &written) {
            strain.sent(*count);
        }
        written
    }
}

impl AsyncRead for Io {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(before) = &mut self.before {
            let count = before.len().min(room.remaining());
            let start = room.filled().len();
            room.put_slice(&before.unread()[..count]);
            before.consume(count);
            if before.is_empty() {
                self.before = None;
            }
            return self
                .poll_watched(cx, &room.filled()[start..])
                .map(|()| Ok(()));
        }
        // Who sends without end gets its turn as everybody else does: not all frames lead to a stream.
        let turn = ready!(coop::poll_proceed(cx));
        let count = ready!(self.transport.poll_read(cx, room.initialize_unfilled()))?;
        turn.made_progress();
        let start = room.filled().len();
        room.advance(count);
        self.poll_watched(cx, &room.filled()[start..])
            .map(|()| Ok(()))
    }
}

impl AsyncWrite for Io {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = self.transport.poll_write(cx, bytes);
        self.count_sent(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = match parts {
            [] => Poll::Ready(Ok(0)),
            [only] => self.transport.poll_write(cx, only),
            [first, second, ..] => self.transport.poll_write_vectored(cx, first, second),
        };
        self.count_sent(written)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// What was written is with the kernel.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.transport.poll_shut_write(cx).map(Ok)
    }
}

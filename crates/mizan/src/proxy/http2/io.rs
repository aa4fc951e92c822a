//! A transport as the library wants it.

use super::super::buffer::Buffer;
use super::super::transport::Transport;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::coop;

/// A transport, and what was read from it before it was known to speak HTTP/2.
#[derive(Debug)]
pub(super) struct Io {
    transport: Transport,
    before: Option<Buffer>,
}

impl Io {
    pub(super) fn new(transport: Transport, before: Option<Buffer>) -> Self {
        Self { transport, before }
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
            room.put_slice(&before.unread()[..count]);
            before.consume(count);
            if before.is_empty() {
                self.before = None;
            }
            return Poll::Ready(Ok(()));
        }
        // Who sends without end gets its turn as everybody else does: not all frames lead to a stream.
        let turn = ready!(coop::poll_proceed(cx));
        let count = ready!(self.transport.poll_read(cx, room.initialize_unfilled()))?;
        turn.made_progress();
        room.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Io {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.transport.poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match parts {
            [] => Poll::Ready(Ok(0)),
            [only] => self.transport.poll_write(cx, only),
            [first, second, ..] => self.transport.poll_write_vectored(cx, first, second),
        }
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

//! A body that comes as frames, read as HTTP/1.1 has it: plain where its length was said, else in chunks.

use super::convert;
use super::grpc_web::Spelling;
use crate::orca::{Malformed, Report};
use bytes::{Buf, Bytes};
use h2::RecvStream;
use std::io::{self, Write};
use std::task::{Context, Poll, ready};

/// What the peer sends on one stream.
#[derive(Debug)]
pub(super) struct Inflow {
    /// `None`: the body has ended.
    frames: Option<RecvStream>,
    is_chunked: bool,
    /// Bytes of ours before `data`: a chunk's size line, the last chunk, trailers; at first, a head.
    framing: Vec<u8>,
    framing_read: usize,
    /// Content that was not read yet.
    data: Bytes,
    /// The chunk that `data` ends wants its line end.
    in_chunk: bool,
    /// After it the body ends.
    is_last: bool,
    /// What of the peer's window `data` stands for, in another form.
    owed: usize,
    /// The client is one of gRPC-Web.
    web: Option<Spelling>,
    /// Trailers as they came: a body of known length has no place for them, and HTTP/1.1 not for all.
    trailers: Option<http::HeaderMap>,
    /// What the trailers say of the backend's load, taken out of them.
    pub(super) load: Option<Result<Report, Malformed>>,
    /// `grpc-status` in the trailers.
    pub(super) grpc_status: Option<u32>,
}

impl Inflow {
    /// `before` is read before the body. No `frames`: there is no body.
    pub(super) fn new(before: Vec<u8>, frames: Option<RecvStream>, is_chunked: bool) -> Self {
        Self {
            frames,
            is_chunked,
            framing: before,
            framing_read: 0,
            data: Bytes::new(),
            in_chunk: false,
            is_last: false,
            owed: 0,
            web: None,
            trailers: None,
            load: None,
            grpc_status: None,
        }
    }

    /// Has what comes read as gRPC-Web.
    pub(super) fn spelt(mut self, web: Option<Spelling>) -> Self {
        self.is_chunked |= web.is_some() && self.frames.is_some();
        self.web = web;
        self
    }

    /// Whether the peer has said all it had to say, and nothing of its content is left.
    pub(super) fn is_finished(&self) -> bool {
        let is_over = |frames: &RecvStream| frames.is_end_stream();
        self.frames.as_ref().is_none_or(is_over) && self.data.is_empty()
    }

    /// Whether everything was read.
    pub(super) fn is_ended(&self) -> bool {
        self.frames.is_none() && !self.holds_bytes()
    }

    fn holds_bytes(&self) -> bool {
        self.framing_read < self.framing.len() || !self.data.is_empty() || self.in_chunk
    }

    /// Ready when there are bytes to read, the end, or an error.
    pub(super) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        if self.holds_bytes() {
            return Poll::Ready(Ok(()));
        }
        let Some(frames) = &mut self.frames else {
            return Poll::Ready(Ok(()));
        };
        loop {
            match ready!(frames.poll_data(cx)) {
                Some(Ok(data)) if data.is_empty() => {}
                Some(Ok(data)) => {
                    // What another form needs more is ours to hold, not the peer's window.
                    self.owed = data.len();
                    self.begin(match self.web {
                        Some(web) => web.encode(data),
                        None => data,
                    });
                    return Poll::Ready(Ok(()));
                }
                Some(Err(error)) => return Poll::Ready(Err(error)),
                None => break,
            }
        }
        let trailers = ready!(frames.poll_trailers(cx))?;
        self.frames = None;
        self.end(trailers);
        Poll::Ready(Ok(()))
    }

    fn begin(&mut self, data: Bytes) {
        self.framing.clear();
        self.framing_read = 0;
        if self.is_chunked {
            // Writing to a vector cannot fail.
            let _ = write!(self.framing, "{:x}\r\n", data.len());
            self.in_chunk = true;
        }
        self.data = data;
    }

    fn end(&mut self, trailers: Option<http::HeaderMap>) {
        self.framing.clear();
        self.framing_read = 0;
        let mut trailers = trailers.unwrap_or_default();
        self.load = convert::take_load_report(&mut trailers);
        self.grpc_status = convert::grpc_status(&trailers).or(self.grpc_status);
        match self.web {
            _ if !self.is_chunked => {}
            Some(web) => {
                self.begin(web.trailers(&trailers));
                self.is_last = true;
                // A client of HTTP/2 would get them a second time, behind the body that has them.
                return;
            }
            None => {
                self.framing.extend_from_slice(b"0\r\n");
                convert::write_trailers(&mut self.framing, &trailers);
                self.framing.extend_from_slice(b"\r\n");
            }
        }
        self.trailers = (!trailers.is_empty()).then_some(trailers);
    }

    /// What comes behind a body of known length that was read whole.
    pub(super) fn poll_trailers(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<http::HeaderMap>, h2::Error>> {
        ready!(self.poll_ready(cx))?;
        Poll::Ready(Ok(self.trailers.take()))
    }

    /// Reads into `room`, which is not empty; 0 is the end. What was read is given back to the peer's window. Frames
    /// that have come already are read as one piece: whoever sends a message a byte at a time must not have it passed
    /// on so, as many small frames make some backends close a connection that others share.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        room: &mut [u8],
    ) -> Poll<Result<usize, h2::Error>> {
        ready!(self.poll_ready(cx))?;
        let mut read = 0;
        loop {
            while read < room.len() && self.holds_bytes() {
                read += self.copy(&mut room[read..]);
            }
            // What is broken is said the next time, too.
            let is_all = read == room.len()
                || self.frames.is_none()
                || !matches!(self.poll_ready(cx), Poll::Ready(Ok(())));
            if is_all {
                return Poll::Ready(Ok(read));
            }
        }
    }

    /// Copies from the first of framing, content and line end that is there.
    fn copy(&mut self, room: &mut [u8]) -> usize {
        let framing = &self.framing[self.framing_read..];
        if !framing.is_empty() {
            let count = framing.len().min(room.len());
            room[..count].copy_from_slice(&framing[..count]);
            self.framing_read += count;
            return count;
        }
        if !self.data.is_empty() {
            let count = self.data.len().min(room.len());
            self.data.copy_to_slice(&mut room[..count]);
            let released = match self.web {
                None => count,
                Some(_) if self.data.is_empty() => self.owed,
                Some(_) => 0,
            };
            if let Some(frames) = &mut self.frames {
                // It fails only for more than was received.
                let _ = frames.flow_control().release_capacity(released);
            }
            return count;
        }
        self.in_chunk = false;
        self.framing.clear();
        self.framing.extend_from_slice(b"\r\n");
        if std::mem::take(&mut self.is_last) {
            self.framing.extend_from_slice(b"0\r\n\r\n");
        }
        self.framing_read = 0;
        0
    }
}

/// The error of a stream as the error of a connection.
pub(super) fn broken(error: h2::Error) -> io::Error {
    match error.into_io() {
        Some(error) => error,
        None => io::ErrorKind::ConnectionReset.into(),
    }
}

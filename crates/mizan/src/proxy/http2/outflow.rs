//! A body that is written as HTTP/1.1 has it, sent as frames.

use super::super::body::Body;
use super::convert;
use super::grpc_web::{Decoder, Spelling};
use super::unfit::Unfit;
use crate::h1::Framing;
use crate::h1::chunked::{ChunkError, Piece};
use bytes::Bytes;
use h2::SendStream;
use std::io;
use std::task::{Context, Poll, ready};

/// What is sent on one stream.
#[derive(Debug)]
pub(super) struct Outflow {
    frames: SendStream<Bytes>,
    body: Body,
    /// Framing bytes since the last content, of a chunked body: its trailers are among them when it ends.
    framing: Vec<u8>,
    /// Content came before `framing`.
    has_content: bool,
    /// The peer's trailers are passed on as they are: it is [`Outflow::end_with`] that ends the stream.
    is_held_open: bool,
    /// The content is in base64, and the peer wants it plain.
    decoder: Option<Decoder>,
}

impl Outflow {
    /// A body that has not ended with its head.
    pub(super) fn new(frames: SendStream<Bytes>, framing: Framing) -> Self {
        Self {
            frames,
            body: Body::new(framing),
            framing: Vec::new(),
            has_content: false,
            is_held_open: false,
            decoder: None,
        }
    }

    /// Has what is written decoded, if it is the text form of gRPC-Web.
    pub(super) fn spelt(mut self, web: Option<Spelling>) -> Self {
        self.decoder = (web == Some(Spelling::Text)).then(Decoder::default);
        self
    }

    /// Has the stream stay open when its body is sent.
    pub(super) fn hold_open(&mut self) {
        self.is_held_open = !self.body.is_done();
    }

    /// Ends a stream that was held open.
    pub(super) fn end_with(&mut self, trailers: Option<http::HeaderMap>) {
        if !std::mem::take(&mut self.is_held_open) {
            return;
        }
        // What is broken has ended already.
        let _ = match trailers {
            Some(trailers) => self
                .frames
                .send_trailers(trailers)
                .map_err(super::inflow::broken),
            None => self.send(Bytes::new(), true),
        };
    }

    pub(super) fn is_ended(&self) -> bool {
        self.body.is_done()
    }

    /// Only its end delimits it, which no body between HTTP/2 and HTTP/1.1 leaves at that.
    pub(super) fn is_tunnel(&self) -> bool {
        matches!(self.body, Body::UntilClose)
    }

    /// The peer has ended the stream before its time.
    pub(super) fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.frames.poll_reset(cx).map(|_| ())
    }

    pub(super) fn reset(&mut self, reason: h2::Reason) {
        self.frames.send_reset(reason);
    }

    /// The end of a body that only its end delimits.
    pub(super) fn finish(&mut self) {
        if matches!(self.body, Body::UntilClose) {
            self.body = Body::Done;
            // What is broken has ended already.
            let _ = self.send(Bytes::new(), true);
        }
    }

    /// Sends some of `bytes`, as far as the peer's window allows.
    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.body {
            Body::Done => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            Body::Length(left) => {
                let most = bytes
                    .len()
                    .min(usize::try_from(*left).unwrap_or(usize::MAX));
                let count = ready!(poll_window(cx, &mut self.frames, most))?;
                *left -= count as u64;
                let is_whole = *left == 0;
                if is_whole {
                    self.body = Body::Done;
                }
                self.send(
                    Bytes::copy_from_slice(&bytes[..count]),
                    is_whole && !self.is_held_open,
                )
                .map(|()| count)
                .into()
            }
            Body::UntilClose => {
                let count = ready!(poll_window(cx, &mut self.frames, bytes.len()))?;
                self.send(Bytes::copy_from_slice(&bytes[..count]), false)
                    .map(|()| count)
                    .into()
            }
            Body::Chunked(_) => self.poll_write_chunked(cx, bytes),
        }
    }

    /// Chunks that lie in `bytes` leave as one frame: see [`super::inflow::Inflow::poll_read`].
    fn poll_write_chunked(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut taken = 0;
        let mut content = Vec::new();
        while taken < bytes.len() {
            let Body::Chunked(chunked) = &mut self.body else {
                break;
            };
            // Where the window is closed, the decoder must not go on.
            let before = chunked.clone();
            match chunked.next(&bytes[taken..]).map_err(Unfit::Body)? {
                Piece::Framing(length) => {
                    self.framing
                        .extend_from_slice(&bytes[taken..taken + length]);
                    taken += length;
                    if chunked.is_ended() {
                        self.body = Body::Done;
                        self.send_content(&mut content)?;
                        self.end()?;
                    }
                }
                Piece::Data(length) => {
                    let wanted = content.len() + length;
                    let window = match poll_window(cx, &mut self.frames, wanted) {
                        Poll::Ready(count) => count?.saturating_sub(content.len()),
                        Poll::Pending => 0,
                    };
                    if window < length {
                        *chunked = before;
                    }
                    if window == 0 {
                        break;
                    }
                    if window < length {
                        let _ = chunked.next(&bytes[taken..taken + window]);
                    }
                    self.framing.clear();
                    self.has_content = true;
                    content.extend_from_slice(&bytes[taken..taken + window.min(length)]);
                    taken += window.min(length);
                }
                Piece::End => break,
            }
        }
        self.send_content(&mut content)?;
        match taken {
            0 if !bytes.is_empty() && !self.body.is_done() => Poll::Pending,
            taken => Poll::Ready(Ok(taken)),
        }
    }

    fn send_content(&mut self, content: &mut Vec<u8>) -> io::Result<()> {
        match content.is_empty() {
            true => Ok(()),
            false => self.send(Bytes::from(std::mem::take(content)), false),
        }
    }

    /// The last chunk and the trailers lie in `framing`.
    fn end(&mut self) -> io::Result<()> {
        let framing = std::mem::take(&mut self.framing);
        if self.is_held_open {
            return Ok(());
        }
        let framing = match self.has_content {
            // The line end of the last content.
            true => framing.get(2..).unwrap_or_default(),
            false => &framing[..],
        };
        let size_line = memchr::memchr(b'\n', framing).map_or(framing.len(), |at| at + 1);
        let trailers = &framing[size_line..];
        if trailers == b"\r\n" {
            return self.send(Bytes::new(), true);
        }
        if self
            .decoder
            .as_ref()
            .is_some_and(|decoder| !decoder.is_whole())
        {
            return Err(Unfit::Body(ChunkError::Base64).into());
        }
        let trailers = convert::trailers(trailers).map_err(Unfit::Body)?;
        self.frames
            .send_trailers(trailers)
            .map_err(super::inflow::broken)
    }

    fn send(&mut self, bytes: Bytes, ends: bool) -> io::Result<()> {
        let bytes = match &mut self.decoder {
            None => bytes,
            Some(decoder) => {
                let unfit = Unfit::Body(ChunkError::Base64);
                let bytes = decoder.decode(&bytes).ok_or(unfit)?;
                if ends && !decoder.is_whole() {
                    return Err(unfit.into());
                }
                bytes.into()
            }
        };
        self.frames
            .send_data(bytes, ends)
            .map_err(super::inflow::broken)
    }
}

/// How many of `most` bytes, which are not none, the peer's window takes now.
fn poll_window(
    cx: &mut Context<'_>,
    frames: &mut SendStream<Bytes>,
    most: usize,
) -> Poll<io::Result<usize>> {
    frames.reserve_capacity(most);
    loop {
        let capacity = frames.capacity();
        if capacity > 0 {
            return Poll::Ready(Ok(capacity.min(most)));
        }
        match ready!(frames.poll_capacity(cx)) {
            Some(Ok(_)) => {}
            Some(Err(error)) => return Poll::Ready(Err(super::inflow::broken(error))),
            None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }
}

//! The response on its way to the client: by its framing, without being re-assembled.

use super::body::Body;
use super::buffer::Buffer;
use super::connection::Downstream;
use super::error::Reason;
use super::forward::Request;
use super::http2::unfit::Unfit;
use super::patience::Patience;
use super::splice;
use super::upload::{Progress, Upload};
use super::upstream::Upstream;
use crate::h1::Framing;
use crate::h1::chunked::Piece;
use mizan_core::pool::Failure;
use mizan_core::time::Instant;
use std::io::Write;
use std::task::{Context, Poll};
use std::time::Duration;

/// Body bytes up to this many are copied behind the head, so that both leave in one plain write; above, a
/// gathering write is cheaper than the copy.
const COPY_MAX: usize = 4 << 10;

/// What of a response head outlives its parsing.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) status: u16,
    /// Framing of the backend's body.
    pub(super) framing: Framing,
    pub(super) keep_upstream: bool,
    pub(super) keep_downstream: bool,
    /// Framing towards the client.
    pub(super) framing_out: Framing,
    /// It is a 101: what follows is another protocol, the one that was asked for.
    pub(super) is_upgrade: bool,
    /// How long the backend asks to be left alone, by a 429 or a 503.
    pub(super) retry_after: Option<Duration>,
}

/// A response whose head is written to `out` and whose body flows.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) head: Head,
    /// When the request was sent whole, if that was not at once.
    pub(super) sent_late: Option<Instant>,
    /// What is left of the backend's body.
    pub(super) body: Body,
    /// No pipe was to be had: the body is copied.
    pub(super) no_pipe: bool,
    pub(super) input: Option<Buffer>,
    /// Bytes to write before those of `input`: the head, and recoded pieces.
    out: Vec<u8>,
    out_sent: usize,
    /// Bytes at the front of `input` that belong to the body and may be written.
    checked: usize,
    /// Bytes written to the client.
    pub(super) written: u64,
}

/// Relays `response` to its end.
///
/// # Errors
/// The client got a part; its connection must not end as if that were all.
pub(super) async fn relay(
    down: &mut Downstream,
    request: &Request<'_>,
    upload: &mut Upload,
    up: &mut Upstream<'_>,
    response: &mut Response,
) -> Result<(), Reason> {
    let head = &request.plan.head;
    if response.checked > 0 && response.checked <= COPY_MAX {
        response.copy_checked();
    }
    let mut flow = Flow::new(upload.is_sent(head));
    let result = loop {
        let step = std::future::poll_fn(|cx| {
            if !flow.upload_over {
                let progress = upload.poll(cx, head, down, &mut up.transport, request.worker);
                flow.upload_over = matches!(
                    progress,
                    Progress::Sent | Progress::Refused(_) | Progress::Faulty(_)
                );
                match progress {
                    // What the backend was sent is no request's body any more.
                    Progress::Faulty(reason @ Reason::Chunk(_)) => return Poll::Ready(Err(reason)),
                    Progress::Faulty(reason) => flow.fault = Some(reason),
                    _ => {}
                }
            }
            flow.poll(cx, down, request, up, response)
        })
        .await;
        match step {
            Ok(Step::Done) => break Ok(()),
            Ok(Step::Splice) => match splice::relay(down, request, up, response).await {
                Ok(()) => {}
                Err(reason) => break Err(reason),
            },
            Err(reason) => break Err(reason),
        }
    };
    request
        .worker
        .put_scratch(std::mem::take(&mut response.out));
    // A backend that waits for the rest of a body which does not come is not to blame for its silence.
    result.map_err(|reason| match (reason.failure(), flow.fault) {
        (Some(Failure::Timeout), Some(fault)) => fault,
        _ => reason,
    })
}

enum Step {
    /// Everything is written.
    Done,
    /// Everything read so far is written, and enough is left to be worth a splice.
    Splice,
}

/// The poll state of a relay.
struct Flow {
    upload_over: bool,
    /// Why the client's body is not whole, while its answer goes on.
    fault: Option<Reason>,
    patience: Patience,
    /// Body bytes read from the backend.
    read: u64,
}

impl Flow {
    fn new(upload_over: bool) -> Self {
        Self {
            upload_over,
            fault: None,
            patience: Patience::new(),
            read: 0,
        }
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        down: &mut Downstream,
        request: &Request<'_>,
        up: &mut Upstream<'_>,
        response: &mut Response,
    ) -> Poll<Result<Step, Reason>> {
        loop {
            match response.poll_write(cx, down) {
                Poll::Ready(Ok(())) => self.patience.moved(down),
                Poll::Ready(Err(reason)) => return Poll::Ready(Err(reason)),
                Poll::Pending => {
                    return self
                        .patience
                        .await_client(cx, down, request, response.written)
                        .map(Err);
                }
            }
            if response.body.is_done() {
                return Poll::Ready(Ok(Step::Done));
            }
            if self.upload_over && splice::is_worth_it(response, down, up) {
                return Poll::Ready(Ok(Step::Splice));
            }
            match response.poll_read(cx, request, up) {
                Poll::Ready(Ok(count)) => self.read += count as u64,
                Poll::Ready(Err(reason)) => return Poll::Ready(Err(reason)),
                Poll::Pending => {
                    let progress = (self.read, self.upload_over);
                    return self
                        .patience
                        .await_backend(cx, down, request, progress)
                        .map(Err);
                }
            }
        }
    }
}

impl Response {
    /// A response of which nothing is passed on yet; `out` holds its head as the client gets it.
    pub(super) fn new(
        head: Head,
        input: Option<Buffer>,
        out: Vec<u8>,
        sent_late: Option<Instant>,
    ) -> Self {
        Self {
            body: Body::new(head.framing),
            head,
            sent_late,
            no_pipe: false,
            input,
            out,
            out_sent: 0,
            checked: 0,
            written: 0,
        }
    }

    /// Whether the client's framing is another than the backend's.
    pub(super) fn is_recoded(&self) -> bool {
        self.head.framing != self.head.framing_out
    }

    /// Whether the client sees the end of its answer only by the end of the connection.
    pub(super) fn is_close_delimited(&self) -> bool {
        self.head.framing_out == Framing::UntilClose
    }

    /// Whether bytes came behind the body: such a connection is not used again.
    pub(super) fn has_rest(&self) -> bool {
        self.input.as_ref().is_some_and(|input| !input.is_empty())
    }

    /// Writes `out`, then what was checked; ready when nothing of them is left.
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        down: &mut Downstream,
    ) -> Poll<Result<(), Reason>> {
        loop {
            let first = &self.out[self.out_sent..];
            let second = self
                .input
                .as_ref()
                .map_or(&b""[..], |input| &input.unread()[..self.checked]);
            let written = match (first, second) {
                ([], []) => {
                    self.out.clear();
                    self.out_sent = 0;
                    return Poll::Ready(Ok(()));
                }
                (bytes, []) | ([], bytes) => down.transport.poll_write(cx, bytes),
                (first, second) => down.transport.poll_write_vectored(cx, first, second),
            };
            match written {
                Poll::Ready(Ok(count)) if count > 0 => {
                    let of_out = count.min(first.len());
                    self.out_sent += of_out;
                    self.written += count as u64;
                    self.checked -= count - of_out;
                    if let Some(input) = &mut self.input {
                        input.consume(count - of_out);
                    }
                }
                // What the client's protocol has no form for is the backend's fault, not the client's.
                Poll::Ready(Err(error)) => {
                    return Poll::Ready(Err(match Unfit::of(&error) {
                        Some(Unfit::Head(error)) => Reason::BadResponse(error),
                        Some(Unfit::Body(error)) => Reason::BadResponseChunk(error),
                        Some(Unfit::Upgrade) => Reason::UpgradeUnsupported,
                        None => Reason::ClientGone,
                    }));
                }
                Poll::Ready(Ok(_)) => return Poll::Ready(Err(Reason::ClientGone)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Reads once; the buffer is taken when bytes are there and given back when they are gone.
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        request: &Request<'_>,
        up: &mut Upstream<'_>,
    ) -> Poll<Result<usize, Reason>> {
        loop {
            match up.transport.poll_read_ready(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(Err(Reason::ResponseCut)),
                Poll::Pending => {
                    if self.input.as_ref().is_some_and(Buffer::is_empty) {
                        self.input = None;
                    }
                    return Poll::Pending;
                }
            }
            let input = self
                .input
                .get_or_insert_with(|| request.worker.buffers.large());
            match up.transport.poll_read(cx, input.room()) {
                Poll::Ready(Ok(0)) => return Poll::Ready(self.end()),
                Poll::Ready(Err(_)) => return Poll::Ready(Err(Reason::ResponseCut)),
                Poll::Ready(Ok(count)) => {
                    input.filled(count);
                    return Poll::Ready(self.take_input().map(|()| count));
                }
                Poll::Pending => {}
            }
        }
    }

    /// The backend has closed: the end of a body that is delimited so, a cut of any other.
    fn end(&mut self) -> Result<usize, Reason> {
        if !matches!(self.body, Body::UntilClose) {
            return Err(Reason::ResponseCut);
        }
        self.body = Body::Done;
        if self.head.framing_out == Framing::Chunked {
            self.out.extend_from_slice(b"0\r\n\r\n");
        }
        Ok(0)
    }

    /// Checks what was read, and recodes it where the framings differ.
    pub(super) fn take_input(&mut self) -> Result<(), Reason> {
        let is_recoded = self.is_recoded();
        let Some(input) = &mut self.input else {
            return Ok(());
        };
        if !is_recoded {
            let (taken, _) = self
                .body
                .take(&input.unread()[self.checked..])
                .map_err(Reason::BadResponseChunk)?;
            self.checked += taken;
            return Ok(());
        }
        while !input.is_empty() {
            match &mut self.body {
                Body::Chunked(chunked) => match chunked
                    .next(input.unread())
                    .map_err(Reason::BadResponseChunk)?
                {
                    Piece::End => {
                        self.body = Body::Done;
                        break;
                    }
                    Piece::Framing(length) => input.consume(length),
                    Piece::Data(length) => {
                        self.out.extend_from_slice(&input.unread()[..length]);
                        input.consume(length);
                    }
                },
                Body::UntilClose => {
                    // Writing to a vector cannot fail.
                    let _ = write!(self.out, "{:x}\r\n", input.len());
                    self.out.extend_from_slice(input.unread());
                    self.out.extend_from_slice(b"\r\n");
                    input.consume(input.len());
                }
                Body::Done | Body::Length(_) => break,
            }
        }
        if matches!(&self.body, Body::Chunked(chunked) if chunked.is_ended()) {
            self.body = Body::Done;
        }
        Ok(())
    }

    fn copy_checked(&mut self) {
        if let Some(input) = &mut self.input {
            self.out.extend_from_slice(&input.unread()[..self.checked]);
            input.consume(self.checked);
            self.checked = 0;
        }
    }
}

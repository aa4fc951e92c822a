//! The request on its way to a backend: head, then body, checked before it is passed on.
//!
//! What was read stays in the client's input buffer while that has room, so that a small body can be sent again
//! to another backend at no cost; beyond, sent bytes are dropped and the request can no longer be replayed,
//! unless the pool's retry rule gives it a larger buffer.

use super::body::Body;
use super::buffer::{LARGE, SMALL};
use super::connection::Downstream;
use super::error::Reason;
use super::http2::unfit::Unfit;
use super::meter::Meter;
use super::plan::Plan;
use super::transport::Transport;
use super::worker::Worker;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

/// The state of one request's body over all its tries.
#[derive(Debug)]
pub(super) struct Upload {
    body: Body,
    /// Bytes at the front of the input that belong to the body and passed its checks.
    checked: usize,
    /// Of those, sent to the backend of this try.
    sent: usize,
    /// Of the head.
    head_sent: usize,
    /// Nothing of the body was dropped yet.
    replayable: bool,
    keep_max: usize,
    content: u64,
    content_max: Option<u64>,
    /// Body bytes read from the client.
    pub(super) read: u64,
    /// Bytes sent in this try.
    pub(super) sent_in_try: usize,
    meter: Meter,
    /// The client waits for 100 before it sends: its silence is the backend's.
    awaits_continue: bool,
}

/// Where an upload stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Everything is sent.
    Sent,
    /// It waits for the client to send.
    AwaitsClient,
    /// The client waits for 100 and the backend for the body: it is for either to move.
    AwaitsContinue,
    /// It waits for the backend to take.
    AwaitsBackend,
    /// The backend takes no more, for this error; it may have answered.
    Refused(io::ErrorKind),
    /// The client is to blame.
    Faulty(Reason),
}

impl Upload {
    pub(super) fn new(
        plan: &Plan,
        down: &Downstream,
        keep_max: usize,
        content_max: Option<u64>,
    ) -> Self {
        Self {
            body: Body::new(plan.framing).refusing(&down.listener.reserved_headers),
            checked: 0,
            sent: 0,
            head_sent: 0,
            replayable: true,
            keep_max,
            content: 0,
            content_max,
            read: 0,
            sent_in_try: 0,
            meter: Meter::default(),
            awaits_continue: plan.expects_continue,
        }
    }

    /// Checks the body bytes that came with the head.
    ///
    /// # Errors
    /// The client's fault.
    pub(super) fn begin(&mut self, down: &Downstream) -> Result<(), Reason> {
        self.check(down)?;
        self.read = self.checked as u64;
        Ok(())
    }

    /// Another try starts from the first byte.
    pub(super) fn rewind(&mut self) {
        (self.sent, self.head_sent, self.sent_in_try) = (0, 0, 0);
        self.meter = Meter::from(self.read);
    }

    /// A 100 was passed on: the body is the client's to send.
    pub(super) fn client_may_send(&mut self) {
        self.awaits_continue = false;
    }

    /// Whether a further try could send everything again.
    pub(super) fn is_replayable(&self) -> bool {
        self.replayable
    }

    /// Whether the whole body was read and checked, if not sent.
    pub(super) fn is_read(&self) -> bool {
        self.body.is_done()
    }

    /// Whether head and body have gone to the backend.
    pub(super) fn is_sent(&self, head: &[u8]) -> bool {
        self.body.is_done() && self.sent == self.checked && self.head_sent == head.len()
    }

    /// The body is done with: the input is left with what follows it.
    pub(super) fn finish(&mut self, down: &mut Downstream) {
        if let Some(input) = &mut down.input {
            input.consume(self.checked);
        }
        (self.checked, self.sent) = (0, 0);
    }

    fn check(&mut self, down: &Downstream) -> Result<(), Reason> {
        let Some(input) = &down.input else {
            return Ok(());
        };
        let (taken, content) = self
            .body
            .take(&input.unread()[self.checked..])
            .map_err(Reason::Chunk)?;
        self.checked += taken;
        self.content += content;
        if self.content_max.is_some_and(|most| self.content > most) {
            return Err(Reason::BodyTooLarge);
        }
        Ok(())
    }

    /// Sends and reads as far as it goes; `cx` is woken when it goes on.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        head: &[u8],
        down: &mut Downstream,
        up: &mut Transport,
        worker: &Rc<Worker>,
    ) -> Progress {
        loop {
            let unsent = down
                .input
                .as_ref()
                .map_or(&b""[..], |input| &input.unread()[self.sent..self.checked]);
            let unsent_head = &head[self.head_sent..];
            if !unsent_head.is_empty() || !unsent.is_empty() {
                let written = match (unsent_head, unsent) {
                    (bytes, []) | ([], bytes) => up.poll_write(cx, bytes),
                    (first, second) => up.poll_write_vectored(cx, first, second),
                };
                match written {
                    Poll::Ready(Ok(count)) if count > 0 => {
                        self.count_sent(count, unsent_head.len())
                    }
                    Poll::Ready(Ok(_)) => return Progress::Refused(io::ErrorKind::WriteZero),
                    // What the backend's protocol has no form for is the client's fault, not the backend's.
                    Poll::Ready(Err(error)) => {
                        return match Unfit::of(&error) {
                            Some(Unfit::Head(error)) => Progress::Faulty(Reason::Head(error)),
                            Some(Unfit::Body(error)) => Progress::Faulty(Reason::Chunk(error)),
                            Some(Unfit::Upgrade) => Progress::Faulty(Reason::UpgradeUnsupported),
                            None => Progress::Refused(error.kind()),
                        };
                    }
                    Poll::Pending => return Progress::AwaitsBackend,
                }
                continue;
            }
            if self.body.is_done() {
                return Progress::Sent;
            }
            if down
                .input
                .as_ref()
                .is_some_and(|input| input.len() > self.checked)
            {
                // Read by somebody else meanwhile.
                match self.check(down) {
                    Ok(()) => continue,
                    Err(reason) => return Progress::Faulty(reason),
                }
            }
            self.make_room(down, worker);
            match self.poll_read(cx, down, worker) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(reason)) => return Progress::Faulty(reason),
                Poll::Pending if self.awaits_continue => return Progress::AwaitsContinue,
                Poll::Pending => return Progress::AwaitsClient,
            }
        }
    }

    fn count_sent(&mut self, count: usize, head_left: usize) {
        self.sent_in_try += count;
        let of_head = count.min(head_left);
        self.head_sent += of_head;
        self.sent += count - of_head;
    }

    /// All that was checked is sent. Keeps it for a replay while it may, else drops it.
    fn make_room(&mut self, down: &mut Downstream, worker: &Rc<Worker>) {
        let Some(input) = &mut down.input else {
            self.replayable &= self.read == 0;
            return;
        };
        if self.replayable && !input.is_full() {
            return;
        }
        if self.replayable && input.len() < self.keep_max {
            input.grow((input.len() * 2).clamp(SMALL, self.keep_max));
            return;
        }
        self.replayable = false;
        input.consume(self.sent);
        (self.checked, self.sent) = (0, 0);
        if input.is_empty() && input.room().len() < LARGE {
            down.input = Some(worker.buffers.large());
        }
    }

    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        down: &mut Downstream,
        worker: &Rc<Worker>,
    ) -> Poll<Result<(), Reason>> {
        let now_ms = down.timer.now_ms();
        let min_rate = &down.listener.min_rate;
        loop {
            match down.transport.poll_read_ready(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(Err(Reason::ClientGone)),
                Poll::Pending if self.awaits_continue => return Poll::Pending,
                Poll::Pending => {
                    self.meter.wait(now_ms);
                    if self.meter.is_too_slow(
                        now_ms,
                        self.read,
                        min_rate.upload_bytes_per_second,
                        min_rate.grace,
                    ) {
                        return Poll::Ready(Err(Reason::BodyRate));
                    }
                    return Poll::Pending;
                }
            }
            let input = down.input.get_or_insert_with(|| worker.buffers.small());
            match down.transport.poll_read(cx, input.room()) {
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Err(Reason::ClientGone)),
                Poll::Ready(Ok(count)) => {
                    input.filled(count);
                    self.read += count as u64;
                    self.awaits_continue = false;
                    self.meter.go_on(now_ms);
                    if self.meter.is_too_slow(
                        now_ms,
                        self.read,
                        min_rate.upload_bytes_per_second,
                        min_rate.grace,
                    ) {
                        return Poll::Ready(Err(Reason::BodyRate));
                    }
                    return Poll::Ready(self.check(down));
                }
                Poll::Pending => {}
            }
        }
    }
}

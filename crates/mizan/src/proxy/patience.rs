//! How long a relay waits for either side before it gives up.

use super::connection::Downstream;
use super::error::Reason;
use super::forward::Request;
use super::meter::Meter;
use super::watch::Watch;
use std::task::{Context, Poll};
use std::time::Duration;

/// What a client takes out of the kernel's buffer wakes nobody: it is looked at this often.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The time-outs of one response body.
#[derive(Debug)]
pub(super) struct Patience {
    watch: Watch,
    meter: Meter,
    /// Deadline of what is being waited for, and what its passing means.
    phase: (u64, Reason),
    /// Bytes that had moved when the phase began.
    mark: u64,
}

impl Patience {
    pub(super) fn new() -> Self {
        Self {
            watch: Watch::default(),
            meter: Meter::default(),
            phase: (u64::MAX, Reason::ResponseIdle),
            mark: u64::MAX,
        }
    }

    /// Nothing is waited for.
    pub(super) fn moved(&mut self, down: &Downstream) {
        self.meter.go_on(down.timer.now_ms());
    }

    /// The backend, having sent `read` bytes, is silent. `Ready` when that is no longer borne, or the client
    /// has gone; the latter is looked at once the upload no longer reads from it.
    pub(super) fn await_backend(
        &mut self,
        cx: &mut Context<'_>,
        down: &mut Downstream,
        request: &Request<'_>,
        (read, upload_over): (u64, bool),
    ) -> Poll<Reason> {
        if upload_over && let Some(reason) = self.watch.poll(cx, down, request.worker) {
            return Poll::Ready(reason);
        }
        if !upload_over && down.transport.poll_gone(cx).is_ready() {
            return Poll::Ready(Reason::ClientGone);
        }
        self.enter(
            Reason::ResponseIdle,
            read,
            request.deadlines.response_idle,
            down,
        );
        self.poll_time(cx, down, request, self.watch.look_again_ms())
    }

    /// The client leaves bytes unread; `written` were written to it. `Ready` when it took none for too long, or
    /// fewer than the minimum rate.
    pub(super) fn await_client(
        &mut self,
        cx: &Context<'_>,
        down: &Downstream,
        request: &Request<'_>,
        written: u64,
    ) -> Poll<Reason> {
        let unread = down.transport.unacknowledged().unwrap_or(0) as u64;
        let taken = written.saturating_sub(unread);
        let now_ms = down.timer.now_ms();
        let min_rate = &down.listener.min_rate;
        self.meter.wait(now_ms);
        if self.meter.is_too_slow(
            now_ms,
            taken,
            min_rate.download_bytes_per_second,
            min_rate.grace,
        ) {
            return Poll::Ready(Reason::SendTimeout);
        }
        self.enter(
            Reason::SendTimeout,
            taken,
            down.listener.timeouts.send,
            down,
        );
        self.poll_time(cx, down, request, down.timer.deadline_after(LOOK_AGAIN))
    }

    /// A new wait, or one in which something moved, has its whole time before it.
    fn enter(&mut self, reason: Reason, moved: u64, time: Duration, down: &Downstream) {
        if self.phase.1 != reason || self.mark != moved {
            self.mark = moved;
            self.phase = (down.timer.deadline_after(time), reason);
        }
    }

    fn poll_time(
        &self,
        cx: &Context<'_>,
        down: &Downstream,
        request: &Request<'_>,
        look_again_ms: u64,
    ) -> Poll<Reason> {
        if let Some(cut) = down.timer.is_cut() {
            return Poll::Ready(cut.reason());
        }
        let (request_ms, watch_ms) = (request.deadlines.request_ms, self.watch.deadline_ms());
        let fatal_ms = self.phase.0.min(request_ms).min(watch_ms);
        down.timer.set_at(fatal_ms.min(look_again_ms));
        // Registers the waker; a deadline that is only for looking again lies in the future.
        if !down.timer.poll_expired(cx) || fatal_ms > down.timer.now_ms() {
            return Poll::Pending;
        }
        let now_ms = down.timer.now_ms();
        Poll::Ready(match () {
            () if watch_ms <= now_ms => Reason::ClientGone,
            () if request_ms <= now_ms && self.phase.1 == Reason::SendTimeout => {
                Reason::ClientTimeout
            }
            () if request_ms <= now_ms => request.deadlines.over(),
            () => self.phase.1,
        })
    }
}

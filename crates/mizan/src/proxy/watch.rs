//! Watching a client whose request is whole, while its answer is not there yet.

use super::buffer::SMALL;
use super::connection::Downstream;
use super::error::Reason;
use super::socket::HangUp;
use super::worker::Worker;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Between two looks at a client whose bytes lie unread.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Sees a client that goes away. Bytes that come meanwhile are its next request and are kept, up to a small
/// buffer; a FIN may be a half-close, so the answer is still worked for during `half_close`.
#[derive(Debug, Default)]
pub(super) struct Watch {
    is_full: bool,
    /// When the socket of a client whose bytes lie unread is asked again, in ms.
    look_again_ms: u64,
    /// Until when a half-closed client is served, in ms.
    half_closed_until_ms: Option<u64>,
}

impl Watch {
    /// [`Reason::ClientGone`] when the client is gone for good. Wakes `cx` when there is news.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        down: &mut Downstream,
        worker: &Rc<Worker>,
    ) -> Option<Reason> {
        if let Some(until) = self.half_closed_until_ms {
            return (down.timer.now_ms() >= until).then_some(Reason::ClientGone);
        }
        if self.is_full {
            if down.transport.poll_gone(cx).is_ready() {
                return Some(Reason::ClientGone);
            }
            return self.look_at_hang_up(down);
        }
        loop {
            match down.transport.poll_read_ready(cx) {
                Poll::Pending => return None,
                Poll::Ready(Err(_)) => return Some(Reason::ClientGone),
                Poll::Ready(Ok(())) => {}
            }
            let input = down.input.get_or_insert_with(|| worker.buffers.small());
            if input.len() >= SMALL || input.is_full() {
                self.is_full = true;
                return self.look_at_hang_up(down);
            }
            match down.transport.poll_read(cx, input.room()) {
                Poll::Pending => {}
                Poll::Ready(Err(_)) => return Some(Reason::ClientGone),
                Poll::Ready(Ok(0)) => return self.half_closed(down),
                Poll::Ready(Ok(count)) => input.filled(count),
            }
        }
    }

    fn half_closed(&mut self, down: &Downstream) -> Option<Reason> {
        let half_close = down.listener.timeouts.half_close;
        if half_close.is_zero() {
            return Some(Reason::ClientGone);
        }
        self.half_closed_until_ms = Some(down.timer.deadline_after(half_close));
        None
    }

    /// Unread bytes hide the end from readiness, so it is asked for now and then.
    fn look_at_hang_up(&mut self, down: &Downstream) -> Option<Reason> {
        if down.timer.now_ms() < self.look_again_ms {
            return None;
        }
        self.look_again_ms = down.timer.deadline_after(LOOK_AGAIN);
        match down.transport.hang_up() {
            HangUp::None => None,
            HangUp::Half => self.half_closed(down),
            HangUp::Whole => Some(Reason::ClientGone),
        }
    }

    /// When a half-closed client is served no longer, in ms.
    pub(super) fn deadline_ms(&self) -> u64 {
        self.half_closed_until_ms.unwrap_or(u64::MAX)
    }

    /// When [`Watch::poll`], called just now, has to be called again, in ms.
    pub(super) fn look_again_ms(&self) -> u64 {
        if self.is_full {
            self.look_again_ms
        } else {
            u64::MAX
        }
    }
}

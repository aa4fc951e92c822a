//! Watching a client whose request is whole, while its answer is not there yet.

use super::buffer::SMALL;
use super::connection::Downstream;
use super::error::Reason;
use super::worker::Worker;
use std::rc::Rc;
use std::task::{Context, Poll};

/// Sees a client that goes away. Bytes that come meanwhile are its next request and are kept, up to a small
/// buffer; a FIN may be a half-close, so the answer is still worked for during `half_close`.
#[derive(Debug, Default)]
pub(super) struct Watch {
    is_full: bool,
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
        while !self.is_full {
            match down.transport.poll_read_ready(cx) {
                Poll::Pending => return None,
                Poll::Ready(Err(_)) => return Some(Reason::ClientGone),
                Poll::Ready(Ok(())) => {}
            }
            let input = down.input.get_or_insert_with(|| worker.buffers.small());
            if input.len() >= SMALL || input.is_full() {
                self.is_full = true;
                return None;
            }
            match down.transport.poll_read(cx, input.room()) {
                Poll::Pending => {}
                Poll::Ready(Err(_)) => return Some(Reason::ClientGone),
                Poll::Ready(Ok(0)) => {
                    let half_close = down.listener.timeouts.half_close;
                    if half_close.is_zero() {
                        return Some(Reason::ClientGone);
                    }
                    self.half_closed_until_ms = Some(down.timer.deadline_after(half_close));
                    return None;
                }
                Poll::Ready(Ok(count)) => input.filled(count),
            }
        }
        None
    }

    /// When [`Watch::poll`] must be called again at the latest, in ms.
    pub(super) fn deadline_ms(&self) -> u64 {
        self.half_closed_until_ms.unwrap_or(u64::MAX)
    }
}

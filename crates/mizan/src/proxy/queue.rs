//! Waiting for room: the pool's bounded queue.

use super::connection::Downstream;
use super::error::Reason;
use super::forward::Request;
use super::watch::Watch;
use crate::snapshot::Waiting;
use mizan_core::pool::NoPick;
use std::task::Poll;
use std::time::Duration;

/// A place that is given back calls who waits longest. Room also comes by other ways (a backend that is back, a
/// reload), which call nobody: the first in the line looks by itself this often.
const LOOK: Duration = Duration::from_millis(100);

/// Waits until `look` finds room, the queue's time-out, or the client's end. The client is watched once its
/// request is whole: before, what it sends is the body, which is the upload's to read.
pub(super) async fn wait<T>(
    down: &mut Downstream,
    request: &Request<'_>,
    is_whole: bool,
    waiting: &Waiting<'_>,
    look: impl Fn() -> Result<T, NoPick>,
) -> Result<T, Reason> {
    let mut watch = Watch::default();
    let deadline_ms = down
        .timer
        .deadline_after(request.pool.queue.timeout)
        .min(request.deadlines.request_ms);
    loop {
        let look_again_ms = down.timer.deadline_after(LOOK);
        down.timer.set_at(deadline_ms.min(look_again_ms));
        let end = std::future::poll_fn(|cx| {
            if is_whole && let Some(reason) = watch.poll(cx, down, request.worker) {
                return Poll::Ready(Some(reason));
            }
            // The room of those that are cut is for nobody: see `cut::until`.
            if down.timer.is_cut().is_some() {
                return Poll::Pending;
            }
            if waiting.poll_called(cx).is_ready() {
                return Poll::Ready(None);
            }
            if !down.timer.poll_expired(cx) {
                return Poll::Pending;
            }
            let is_over = deadline_ms <= down.timer.now_ms();
            Poll::Ready(is_over.then_some(Reason::QueueTimeout))
        })
        .await;
        if let Some(reason) = end {
            return Err(reason);
        }
        if !waiting.is_first() {
            continue;
        }
        match look() {
            Ok(found) => return Ok(found),
            Err(no_pick) => {
                if let Some(reason) = Reason::of(no_pick) {
                    return Err(reason);
                }
            }
        }
    }
}

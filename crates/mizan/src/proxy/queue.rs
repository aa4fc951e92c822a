//! Waiting for room: the pool's bounded queue.

use super::connection::Downstream;
use super::error::Reason;
use super::forward::Request;
use super::watch::Watch;
use mizan_core::pool::{Claim, NoPick};
use std::task::Poll;
use std::time::Duration;

/// Between two looks for room. Claims are released on every worker; a look costs less than a wake-up of all
/// waiters at each release would.
const LOOK: Duration = Duration::from_millis(2);

/// Waits until `attempt` finds room, the queue's time-out, or the client's end. The client is watched once its
/// request is whole: before, what it sends is the body, which is the upload's to read.
pub(super) async fn wait(
    down: &mut Downstream,
    request: &Request<'_>,
    is_whole: bool,
    attempt: impl Fn() -> Result<Claim, NoPick>,
) -> Result<Claim, Reason> {
    let mut watch = Watch::default();
    down.timer.set_at(
        down.timer
            .deadline_after(request.pool.queue.timeout)
            .min(request.deadlines.request_ms),
    );
    loop {
        let mut look = std::pin::pin!(tokio::time::sleep(LOOK));
        let end = std::future::poll_fn(|cx| {
            if is_whole && let Some(reason) = watch.poll(cx, down, request.worker) {
                return Poll::Ready(Some(reason));
            }
            if down.timer.poll_expired(cx) {
                return Poll::Ready(Some(Reason::QueueTimeout));
            }
            look.as_mut().poll(cx).map(|()| None)
        })
        .await;
        if let Some(reason) = end {
            return Err(reason);
        }
        match attempt() {
            Ok(claim) => return Ok(claim),
            Err(NoPick::Saturated) => {}
            Err(NoPick::Empty | NoPick::NoneUsable) => return Err(Reason::NoBackend),
        }
    }
}

//! What is still in flight when the process ends: told to its client where that can be, logged and counted.
//!
//! Whoever waits in the data path has a timer, so the wheel of a worker reaches them all: it is told of the cut, and
//! wakes them. What knows how much it has moved (a body, a tunnel) ends by itself, so that its bytes are counted; of
//! the rest the future is dropped where it stands.

use super::answer;
use super::connection::Downstream;
use super::error::Reason;
use super::exchange::After;
use super::plan::Plan;
use super::record::Record;
use super::timer::Wheel;
use super::worker::{InForce, Worker};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

/// Turns that what is cut gets for its last words. Each serves a hundred requests and takes some microseconds.
const TURNS_MAX: u32 = 1_000;
/// Turns after which a connection of HTTP/2 has sent what its streams have said.
const LAST_TURNS: u32 = 8;

/// Why what is in flight is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// It was not done by the deadline of the drain.
    Deadline,
    /// The process is to stop at once.
    Shutdown,
}

impl Cut {
    pub(super) fn reason(self) -> Reason {
        match self {
            Self::Deadline => Reason::DrainCut,
            Self::Shutdown => Reason::Shutdown,
        }
    }
}

/// Runs `doing` to its end, or until the worker is cut.
pub(super) async fn until<F: Future>(
    wheel: &Wheel,
    mut doing: Pin<&mut F>,
) -> Result<F::Output, Cut> {
    std::future::poll_fn(|cx| match (doing.as_mut().poll(cx), wheel.is_cut()) {
        (Poll::Ready(done), _) => Poll::Ready(Ok(done)),
        (Poll::Pending, Some(cut)) => Poll::Ready(Err(cut)),
        (Poll::Pending, None) => Poll::Pending,
    })
    .await
}

/// Notes that a request was cut where it stood; one that waits in a queue has no place yet.
pub(super) fn note<'s>(cut: Cut, in_force: &'s InForce, outcome: &mut Record<'s>) {
    outcome.reason = Some(cut.reason());
    let (Some(route), Some(pool), 0) = (outcome.route, outcome.pool, outcome.tries) else {
        return;
    };
    let pool = in_force.snapshot.pools.get(&pool.name);
    outcome.place = in_force.series.place(Some(route.index), pool, "");
}

/// Tells the client, who has seen nothing of an answer.
pub(super) async fn answer(
    down: &mut Downstream,
    worker: &Rc<Worker>,
    plan: &Plan,
    cut: Cut,
    outcome: &mut Record<'_>,
) -> After {
    let told = answer::send(down, worker, plan, None, cut.reason(), false, outcome);
    // Who does not take it at once has no time left for it.
    until(&worker.wheel, std::pin::pin!(told))
        .await
        .unwrap_or(After::Close)
}

/// Counts a request that was cut, whatever it has reached; any other it leaves alone.
pub(super) fn count(in_force: &InForce, outcome: &Record<'_>) {
    let Some(reason @ (Reason::DrainCut | Reason::Shutdown)) = outcome.reason else {
        return;
    };
    if let Some(cause) = reason.unreached() {
        in_force.series.pool(outcome.place).unreached(cause);
    }
}

/// Ends what is in flight on `worker`.
pub(super) async fn all(worker: &Worker, cut: Cut) {
    worker.wheel.cut(cut);
    for _ in 0..TURNS_MAX {
        if !worker.has_in_flight() {
            break;
        }
        tokio::task::yield_now().await;
    }
    for _ in 0..LAST_TURNS {
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::exposition::render;
    use crate::telemetry::fixture::snapshot;
    use crate::telemetry::metrics::Metrics;
    use mizan_core::time::Instant;
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn what_is_cut_is_counted_where_it_was_also_what_still_waits_for_a_backend() {
        let snapshot = Arc::new(snapshot(
            &["web"],
            &[("api", &["v1"])],
            &[("one", &["api"])],
        ));
        let metrics = Metrics::new(1, Duration::ZERO);
        let series = metrics.register(&snapshot).worker(0);
        let in_force = InForce {
            snapshot: Arc::clone(&snapshot),
            series,
        };
        let mut record = Record::new(Instant::default(), 0);
        record.pool = snapshot.pools.get("api").map(|pool| &**pool);
        let route = &*snapshot.routes.routes()[0];
        record.route = Some(route);
        count(&in_force, &record);
        note(Cut::Deadline, &in_force, &mut record);
        count(&in_force, &record);
        let text = render(&metrics, &snapshot, Instant::default());
        let line = "mizan_unreached_total{pool=\"api\",version=\"\",cause=\"drain_cut\"} 1\n";
        assert!(text.contains(line), "{text}");
        assert!(!text.contains("cause=\"shutdown\"} 1"));
    }
}

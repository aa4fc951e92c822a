//! What became of a request, and what that says of the backend. Hot path: atomics only, but for the
//! first failure of a backend in a while.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::availability::Gate;
use crate::backend::Backend;
use crate::backend::live::{FailureKind, Live};
use crate::backend::load::penalty_step;
use crate::backend::peak::Peak;
use crate::ejection::refusal::REFUSALS;
use crate::policy::{Usual, mix};
use crate::time::Instant;

use super::shared::{Shared, work};

/// A backend is left alone for no longer than this, whatever it asks for: a slip of its must not cost a share of the
/// pool for a day.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(10);

/// So many answers of 429 with `Retry-After` in a row are heeded: fewer speak of the client that got them.
const LIMITED: u32 = 3;

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Any status below 500.
    Success {
        /// Until the response's head.
        latency: Duration,
    },
    /// 429 with `Retry-After`: answered, and not wanted so soon again.
    Limited {
        /// Until the response's head.
        latency: Duration,
        /// What the backend asks for.
        retry_after: Duration,
    },
    /// The backend's own 5xx.
    ServerError {
        /// The status.
        status: u16,
        /// Until the response's head.
        latency: Duration,
        /// How long the backend asks to be left alone, if it does.
        retry_after: Option<Duration>,
    },
    /// No usable response.
    Failure(Failure),
    /// The client went away, or had to go. Never says that the backend is fast; but that it is slow where the
    /// client had waited for longer than is usual.
    Aborted {
        /// How long the backend had had the whole request without an answer; zero if it had not.
        waited: Duration,
    },
}

/// Why there was no usable response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// Nothing listens.
    ConnectRefused,
    /// No connection in time.
    ConnectTimeout,
    /// No connection for another reason (unreachable, TLS).
    ConnectError,
    /// Closed or reset before or in the response.
    Reset,
    /// No response in time.
    Timeout,
    /// Garbage, or a response that two parsers could read differently.
    BadResponse,
}

impl Failure {
    /// Whether the backend accepted a connection before this.
    fn connected(self) -> bool {
        matches!(self, Self::Reset | Self::Timeout | Self::BadResponse)
    }
}

pub(crate) fn observe(
    shared: &Shared,
    now: Instant,
    (worker, backend): (usize, &Backend),
    outcome: Outcome,
) {
    let live = backend.live();
    match outcome {
        Outcome::Success { latency } | Outcome::Limited { latency, .. } => {
            live.cells.answered(worker, latency);
        }
        Outcome::ServerError { .. } | Outcome::Failure(_) => live.cells.failed(worker),
        Outcome::Aborted { .. } => {}
    }
    shared.note_traffic();
    match outcome {
        Outcome::Success { latency } => {
            succeeded(shared, now, backend, latency);
            live.end_limited();
        }
        Outcome::Limited {
            latency,
            retry_after,
        } => {
            succeeded(shared, now, backend, latency);
            if live.count_limited() >= LIMITED {
                pause(shared, now, backend, retry_after);
            }
        }
        Outcome::ServerError {
            status,
            latency,
            retry_after,
        } => {
            connected(shared, backend);
            live.end_limited();
            let kind = if matches!(status, 502..=504) {
                FailureKind::Failure
            } else {
                FailureKind::Error
            };
            failed(shared, now, backend, kind, Some(latency));
            if let Some(retry_after) = retry_after {
                pause(shared, now, backend, retry_after);
            }
        }
        Outcome::Failure(failure) => {
            if failure.connected() {
                connected(shared, backend);
            } else {
                unconnected(shared, backend, failure);
            }
            let kind = match failure {
                Failure::ConnectRefused => FailureKind::Refused,
                Failure::Reset => FailureKind::Reset,
                _ => FailureKind::Failure,
            };
            failed(shared, now, backend, kind, None);
        }
        Outcome::Aborted { waited } => aborted(shared, now, (worker, live), waited),
    }
    shared.refresh(backend);
}

fn succeeded(shared: &Shared, now: Instant, backend: &Backend, latency: Duration) {
    let live = backend.live();
    live.latency.sample(now, latency);
    peak(shared, live, |peak| peak.sample(now, latency));
    live.count_success();
    if live.gate.load().has(Gate::PROBATION) {
        live.gate.clear(Gate::PROBATION);
        shared.demand(work::STALE);
    }
    connected(shared, backend);
}

/// A request ended before its answer, which so took longer than `waited`: a sample of latency from one side. What
/// waited for longer than is usual raises the estimate, what did not says nothing.
fn aborted(shared: &Shared, now: Instant, (worker, live): (usize, &Live), waited: Duration) {
    // Of a backend that nothing is known of, what is usual in its pool is expected.
    let usual = || usual(shared, now, live).latency;
    let is_known = live.latency.level().is_some();
    if waited.is_zero() || (!is_known && (usual().is_zero() || waited <= usual())) {
        live.latency.hold(now);
        return peak(shared, live, |peak| peak.hold(now));
    }
    if live.latency.sample_at_least(now, waited) {
        live.cells.answered(worker, waited);
    }
    peak(shared, live, |peak| peak.sample_at_least(now, waited));
}

/// The backend asks to be left alone for `time`: until then its penalty is no less than that of one failure now.
fn pause(shared: &Shared, now: Instant, backend: &Backend, time: Duration) {
    let live = backend.live();
    let step = penalty_step(live.latency.at(now), usual(shared, now, live));
    live.penalty.last(now, time.min(RETRY_AFTER_MAX), step);
    shared.note_penalty(backend);
}

/// What is usual at the backends of the pool.
fn usual(shared: &Shared, now: Instant, live: &Live) -> Usual {
    // The place and not the id, which differs from one pool of a process to the next: a decision can be
    // repeated from what it was given.
    let place = live.slot.load(Ordering::Relaxed);
    let random = mix(now.as_nanos() ^ u64::from(place));
    shared.picker.load().usual(now, random)
}

/// The same for the figure of the policy that goes by peaks, where that is in force.
fn peak(shared: &Shared, live: &Live, note: impl FnOnce(&Peak)) {
    if shared.keeps_peaks() {
        note(&live.peak);
    }
}

/// Runs, penalty, latency, and what a run that is long enough leads to.
fn failed(
    shared: &Shared,
    now: Instant,
    backend: &Backend,
    kind: FailureKind,
    latency: Option<Duration>,
) {
    let live = backend.live();
    let usual = usual(shared, now, live);
    live.penalty
        .add(now, penalty_step(live.latency.at(now), usual));
    if kind == FailureKind::Refused || !shared.charges_latency() {
        // Has a machine of its own, and says nothing of how long a request takes.
        live.latency.hold(now);
        peak(shared, live, |peak| peak.hold(now));
    } else {
        let charged = latency.unwrap_or_default().max(usual.latency);
        live.latency.sample_failure(now, charged);
        peak(shared, live, |peak| peak.sample_failure(now, charged));
    }
    shared.note_penalty(backend);

    let runs = live.count_failure(kind);
    let gate = live.gate.load();
    if kind == FailureKind::Refused && (runs.refused >= REFUSALS || gate.has(Gate::PROBE_REFUSED)) {
        refuse(shared, backend);
    }
    if gate.has(Gate::EJECTED) {
        return;
    }
    // Where all backends answer so, as they do when there is more work than they can take, or what they
    // all need is gone, to take some of them out leaves more work for the rest.
    if latency.is_some() && shared.all_fail() {
        return;
    }
    let crossed = shared
        .limits()
        .and_then(|limits| limits.crossed(runs, gate.has(Gate::PROBATION)));
    if let Some(cause) = crossed {
        shared.eject(now, live, cause);
    }
}

/// Nothing listens: out, with the next pick.
pub(crate) fn refuse(shared: &Shared, backend: &Backend) {
    let marked = backend.live().gate.update(|gate| {
        let known = gate.has(Gate::REFUSED.or(Gate::TRIAL).or(Gate::REMOVED));
        (!known).then_some(gate.or(Gate::REFUSED))
    });
    if marked.is_ok() {
        shared.demand(work::STALE);
    }
}

/// The backend accepted a connection. That ends a refusal where this was its trial, or where
/// everything refuses and no probe will tell; otherwise it may have been an old connection of a
/// process that no longer listens.
fn connected(shared: &Shared, backend: &Backend) {
    let gate = backend.live().gate.load();
    if !gate.has(Gate::REFUSED) {
        return;
    }
    let proof = gate.has(Gate::TRYING) || (shared.is_last_resort() && !shared.is_probed());
    if proof {
        backend.live().gate.clear(Gate::REFUSED.or(Gate::TRYING));
        shared.demand(work::STALE);
    }
}

/// It did not. If this was a trial, that failed.
fn unconnected(shared: &Shared, backend: &Backend, failure: Failure) {
    debug_assert!(!failure.connected(), "the caller asked");
    let live = backend.live();
    if live.gate.load().has(Gate::TRYING) && live.gate.clear(Gate::TRYING).has(Gate::TRYING) {
        shared.demand(work::STALE);
    }
}

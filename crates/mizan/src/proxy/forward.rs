//! The life of a forwarded request: pick → connect or reuse → send → response head → retry or relay → observe.

use super::again::{Stopped, back_off, has_budget, is_lost, is_nobody_there, is_safe};
use super::answer;
use super::connect;
use super::connection::Downstream;
use super::error::Reason;
use super::exchange::After;
use super::plan::{self, Plan};
use super::queue;
use super::record::Record;
use super::relay::{self, Response};
use super::response_head::{self, Deadlines};
use super::upgrade::Upgraded;
use super::upload::Upload;
use super::upstream::Upstream;
use super::worker::{InForce, Worker};
use crate::clock;
use crate::h1::Framing;
use crate::snapshot::Pool;
use crate::snapshot::route::Route;
use mizan_core::backend::Backend;
use mizan_core::pool::{Claim, NoPick, Outcome, Pick};
use mizan_core::time::Instant;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// Most tries that any configuration may ask for.
pub(super) const TRIES_MAX: usize = 8;

/// A request and all that is asked on its way; borrowed from the snapshot in force.
pub(super) struct Request<'s> {
    pub(super) worker: &'s Rc<Worker>,
    pub(super) in_force: &'s Rc<InForce>,
    pub(super) plan: &'s Plan,
    pub(super) route: &'s Arc<Route>,
    pub(super) pool: &'s Arc<Pool>,
    pub(super) deadlines: Deadlines,
    /// What places it within its pool.
    hash: Option<u64>,
}

impl<'s> Request<'s> {
    /// The same for `pool`, which stands in for the one before. It ends when it would have ended there.
    fn fall_back(&mut self, pool: &'s Arc<Pool>, down: &Downstream) {
        let end = self.deadlines.request_ms;
        self.deadlines = Deadlines::new(down, pool, &self.route.timeouts, self.plan);
        self.deadlines.request_ms = self.deadlines.request_ms.min(end);
        if pool.hash_key != self.pool.hash_key {
            self.hash = None;
        }
        self.pool = pool;
    }
}

/// Backends that were tried.
#[derive(Default)]
pub(super) struct Tried {
    ids: [u64; TRIES_MAX],
    count: usize,
}

impl Tried {
    pub(super) fn ids(&self) -> &[u64] {
        &self.ids[..self.count]
    }

    pub(super) fn note(&mut self, backend: &Backend) {
        if self.count < TRIES_MAX {
            self.ids[self.count] = backend.id();
            self.count += 1;
        }
    }
}

/// Nothing was asked of the backend, or nobody can tell what: its silence says nothing.
pub(super) const ABORTED: Outcome = Outcome::Aborted {
    waited: Duration::ZERO,
};

/// Why a try failed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failed {
    pub(super) reason: Reason,
    /// Provably nothing reached the backend.
    pub(super) undelivered: bool,
    /// The backend had the whole request, and has not answered.
    pub(super) sent: Option<Sent>,
    /// What the answer asks for by `Retry-After`.
    pub(super) retry_after: Option<Duration>,
}

/// When a request was sent whole.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sent {
    /// As the try began.
    AtOnce,
    /// When the client had sent it.
    Late(Instant),
}

impl Failed {
    /// The backend may have acted on it.
    pub(super) fn delivered(reason: Reason) -> Self {
        Self {
            reason,
            undelivered: false,
            sent: None,
            retry_after: None,
        }
    }
}

/// Forwards a request; gives what the client's connection is good for.
pub(super) async fn forward<'s>(
    down: &mut Downstream,
    worker: &'s Rc<Worker>,
    in_force: &'s Rc<InForce>,
    plan: &'s Plan,
    (route, pool): (&'s Arc<Route>, &'s Arc<Pool>),
    outcome: &mut Record<'s>,
) -> After {
    let deadlines = Deadlines::new(down, pool, &route.timeouts, plan);
    let mut request = Request {
        worker,
        in_force,
        plan,
        route,
        pool,
        deadlines,
        hash: plan.hash,
    };
    (outcome.route, outcome.pool) = (Some(&**route), Some(&**pool));
    let content_max = plan::body_bytes_max(route, &down.listener);
    let mut upload = Upload::new(plan, down, pool.retry.buffer_bytes_max, content_max);
    let mut all_refuse = pool.core.is_last_resort();
    let begun = upload.begin(down);
    let mut standing_in = route.fallback(plan.region.into()).iter();
    let mut failed = None;
    // One place where tries are awaited: a burst's future has room for one.
    let result = loop {
        let result = match begun {
            Ok(()) => tries(down, &request, &mut upload, (outcome, failed)).await,
            Err(reason) => Err(Stopped::for_good(reason)),
        };
        failed = match &result {
            Err(stopped) if stopped.may_go_on => Some(stopped.reason),
            _ => None,
        };
        // A split's other parts may stand in for one of them.
        let mut others = standing_in.by_ref().filter(|next| !Arc::ptr_eq(next, pool));
        let Some(next) = others.next().filter(|_| failed.is_some()) else {
            break result;
        };
        request.fall_back(next, down);
        all_refuse = next.core.is_last_resort();
        outcome.pool = Some(&**next);
        upload.rewind();
    };
    let pool = request.pool;
    outcome.bytes_in += upload.read;
    match result {
        Ok(after) => {
            upload.finish(down);
            after
        }
        Err(Stopped { reason, .. }) => {
            // Every backend was known to refuse connections, and still does: that is no backend, not a bad one.
            let nobody = all_refuse && reason == Reason::ConnectRefused;
            let reason = if nobody { Reason::NoBackend } else { reason };
            if outcome.tries == 0 {
                outcome.place = in_force.series.place(Some(route.index), Some(pool), "");
            }
            if let Some(cause) = reason.unreached() {
                in_force.series.pool(outcome.place).unreached(cause);
            }
            let keep = upload.is_read() && answer::keeps_after_failure(plan, reason);
            upload.finish(down);
            answer::send(down, worker, plan, Some(route), reason, keep, outcome).await
        }
    }
}

/// Tries until one backend answers. `Ok`: the client has its answer.
async fn tries<'s>(
    down: &mut Downstream,
    request: &Request<'s>,
    upload: &mut Upload,
    (outcome, mut last): (&mut Record<'s>, Option<Reason>),
) -> Result<After, Stopped> {
    let pool = request.pool;
    let mut tried = Tried::default();
    let before = outcome.tries;
    pool.core.retry_budget().deposit(request.worker.index);
    let tries_max = (pool.retry.tries_max as usize).min(TRIES_MAX);
    loop {
        if outcome.tries > 0 && request.deadlines.request_ms <= down.timer.now_ms() {
            return Err(Stopped::for_good(request.deadlines.over()));
        }
        // The first try begins when the head was read: another look at the clock costs as much as a pick.
        let now = if outcome.tries == 0 {
            outcome.decided
        } else {
            clock::now()
        };
        let (held, started) = match pick(down, request, (tried.ids(), upload.is_read()), now).await
        {
            Ok(picked) => picked,
            Err(reason) => {
                // A status that was to be retried is gone; what stopped the retry is the answer. So is it where nothing of
                // this pool was tried: what failed in another one is no account of it.
                let is_told = |last: &Reason| {
                    outcome.tries > before && !matches!(last, Reason::RetryStatus(_))
                };
                // What was to be tried again here was safe to send again, there too.
                return Err(Stopped {
                    reason: last.filter(is_told).unwrap_or(reason),
                    may_go_on: is_nobody_there(reason),
                });
            }
        };
        let backend = held.claim.backend();
        tried.note(backend);
        outcome.tries += 1;
        if request.in_force.snapshot.settings.access_log.is_some() {
            outcome.backend = Some(Arc::clone(backend));
        }
        outcome.place =
            request
                .in_force
                .series
                .place(Some(request.route.index), Some(pool), backend.version());
        let may_retry = outcome.tries - before < tries_max as u32;
        let picked = (held, started);
        match one_try(down, request, upload, picked, (outcome, may_retry)).await {
            Ok(after) => {
                if let Some(cause) = last.and_then(Reason::unreached) {
                    request.in_force.series.pool(outcome.place).rescued(cause);
                }
                return Ok(after);
            }
            Err(failed) => {
                let is_safe = is_safe(&failed, request, upload);
                if !may_retry || !is_safe || !has_budget(&failed, pool) {
                    let reason = failed.reason;
                    // A budget keeps a pool from more load than it was given; the next pool is asked once for each.
                    let may_go_on = is_safe && (is_nobody_there(reason) || is_lost(reason));
                    return Err(Stopped { reason, may_go_on });
                }
                request
                    .in_force
                    .series
                    .pool(outcome.place)
                    .retried(failed.reason.retry_cause());
                upload.rewind();
                last = Some(failed.reason);
                back_off(pool, outcome.tries - before).await;
            }
        }
    }
}

/// One try: connect or reuse, send, wait for the head, relay. An `Err` has shown nothing to the client. The backend's
/// place is given back at the end, but to a tunnel it goes on.
async fn one_try<'s>(
    down: &mut Downstream,
    request: &Request<'s>,
    upload: &mut Upload,
    (held, started): (Held<&'s Pool>, Instant),
    (outcome, may_retry): (&mut Record<'s>, bool),
) -> Result<After, Failed> {
    let backend: &Backend = held.claim.backend();
    let mut up = match connect::connect(down, request, backend, outcome.place).await {
        Ok(up) => up,
        Err(reason) => {
            let failed = Failed {
                undelivered: true,
                ..Failed::delivered(reason)
            };
            observe_failure(request, backend, &failed, started);
            return Err(failed);
        }
    };
    let answered =
        response_head::response(down, request, upload, &mut up, (outcome, may_retry)).await;
    let mut response = match answered {
        Ok(response) => response,
        Err(failed) => {
            up.abandon();
            observe_failure(request, backend, &failed, started);
            return Err(failed);
        }
    };
    let latency = clock::now().saturating_since(response.sent_late.unwrap_or(started));
    outcome.status = response.head.status;
    outcome.upstream = Some(latency);
    request
        .in_force
        .series
        .pool(outcome.place)
        .latency
        .record(latency);
    let connecting = match response.sent_late {
        Some(_) => Duration::ZERO,
        None => Duration::from_micros(up.connecting_us.into()),
    };
    let measured = (backend, started, served(latency, connecting));
    let parties = (&mut up, &mut response);
    match conclude(down, request, upload, parties, (outcome, measured)).await {
        Concluded::Over(after) => Ok(after),
        Concluded::Unsaid(reason) => Err(Failed::delivered(reason)),
        Concluded::Clean(after) => {
            let now_ms = down.timer.now_ms();
            request.worker.upstreams.put(up, request.pool, now_ms);
            Ok(after)
        }
        Concluded::Upgraded => {
            let far = (up.transport, up.open);
            let held = held.owned(request.pool);
            let upgraded = Upgraded::new(down, request, held, far, (response, outcome));
            Ok(After::Tunnel(upgraded))
        }
    }
}

/// A backend needs so much longer to connect than to answer, and nobody wonders: two or three round trips, and the
/// cryptography.
const CONNECTING_TAKES: (u32, Duration) = (3, Duration::from_millis(50));

/// What an answer says of how its backend serves. Who is seldom asked is seldom connected to: were the handshake counted, it
/// would look slow for being asked seldom, and would go on being. A handshake that takes far longer than the answer does count:
/// so does a backend that has no more room for connections.
fn served(whole: Duration, connecting: Duration) -> Duration {
    let served = whole.saturating_sub(connecting);
    let (times, more) = CONNECTING_TAKES;
    served + connecting.saturating_sub(served * times + more)
}

/// What a try that was answered leaves.
enum Concluded {
    /// The backend's connection is not used again.
    Over(After),
    /// Nor is it here, and the client can be told: it was sent nothing.
    Unsaid(Reason),
    /// It is good for another exchange.
    Clean(After),
    /// Both connections go on with another protocol.
    Upgraded,
}

/// Passes the answer on, and says what became of the try.
async fn conclude(
    down: &mut Downstream,
    request: &Request<'_>,
    upload: &mut Upload,
    (up, response): (&mut Upstream<'_>, &mut Response),
    (outcome, (backend, started, latency)): (&mut Record<'_>, (&Backend, Instant, Duration)),
) -> Concluded {
    // Where there is no body the client's stream ends with its head.
    let has_body = !matches!(
        response.head.framing_out,
        Framing::None | Framing::Length(0)
    );
    let is_held_open = has_body && down.transport.hold_open(&up.transport);
    let mut relayed = relay::relay(down, request, upload, up, response).await;
    outcome.bytes_out += response.written;
    if is_held_open && relayed.is_ok() && !response.head.is_upgrade {
        relayed = end(down, request, up).await;
    }
    match relayed {
        Ok(()) if response.head.is_upgrade => {
            observe_answer(request, backend, (101, None), (latency, clock::now()));
            Concluded::Upgraded
        }
        Ok(()) => {
            let ended = clock::now();
            outcome.ended = Some(ended);
            if let Some(load) = up.transport.load_report() {
                response_head::report_load(load, request, backend);
            }
            let account = up.transport.grpc_account();
            let status = match account.filter(|_| request.plan.is_grpc) {
                Some(account) => {
                    let (code, status) = account.judged(response.head.status);
                    outcome.grpc_status = Some(code);
                    status
                }
                None => response.head.status,
            };
            let said = (status, response.head.retry_after);
            observe_answer(request, backend, said, (latency, ended));
            let is_clean = response.head.keep_upstream
                && upload.is_sent(&request.plan.head)
                && !response.has_rest();
            let after = match (response.head.keep_downstream, upload.is_read()) {
                (true, true) => After::Keep,
                // Where the client wanted to go on it may be sending: a close would be a reset.
                (false, true) if request.plan.wants_keep_alive => After::Linger,
                (false, true) => After::Close,
                (_, false) => After::Linger,
            };
            if is_clean {
                Concluded::Clean(after)
            } else {
                Concluded::Over(after)
            }
        }
        Err(reason) => {
            up.abandon();
            observe_failure(request, backend, &Failed::delivered(reason), started);
            let is_unfit = matches!(reason, Reason::BadResponse(_) | Reason::UpgradeUnsupported);
            if is_unfit && response.written == 0 {
                outcome.status = 0;
                return Concluded::Unsaid(reason);
            }
            outcome.reason = Some(reason);
            // The client must see that its answer is not whole. Where the framing cannot show it, a reset does.
            if response.is_close_delimited() {
                down.transport.reset_on_close();
            }
            Concluded::Over(After::Close)
        }
    }
}

/// Ends the client's stream with what the backend sends behind its body.
async fn end(
    down: &mut Downstream,
    request: &Request<'_>,
    up: &mut Upstream<'_>,
) -> Result<(), Reason> {
    down.timer.set(request.deadlines.response_idle);
    std::future::poll_fn(|cx| match down.transport.poll_end(cx, &mut up.transport) {
        Poll::Ready(result) => Poll::Ready(result.map_err(|_| Reason::ResponseCut)),
        Poll::Pending if down.transport.poll_gone(cx).is_ready() => {
            Poll::Ready(Err(Reason::ClientGone))
        }
        Poll::Pending if down.timer.poll_expired(cx) => Poll::Ready(Err(Reason::ResponseIdle)),
        Poll::Pending => Poll::Pending,
    })
    .await
}

/// A backend's place for one request; whoever waits for one is woken when it is given back.
#[derive(Debug)]
pub(super) struct Held<P: Deref<Target = Pool>> {
    pub(super) claim: Claim,
    // Dropped after `claim`: fields go in their order.
    wake: Wake<P>,
}

impl<P: Deref<Target = Pool>> Held<P> {
    pub(super) fn new(claim: Claim, pool: P) -> Self {
        let wake = Wake(pool);
        Self { claim, wake }
    }

    /// What is held is a place there.
    pub(super) fn pool(&self) -> &P {
        &self.wake.0
    }
}

impl Held<&Pool> {
    /// The same place of `pool`, for longer than the exchange.
    fn owned(self, pool: &Arc<Pool>) -> Held<Arc<Pool>> {
        // Nothing is given back, so nobody is woken.
        std::mem::forget(self.wake);
        Held::new(self.claim, Arc::clone(pool))
    }
}

#[derive(Debug)]
struct Wake<P: Deref<Target = Pool>>(P);

impl<P: Deref<Target = Pool>> Drop for Wake<P> {
    fn drop(&mut self) {
        self.0.waiters.wake();
    }
}

/// A backend and when it was picked, after a wait in the pool's queue if all are full.
async fn pick<'s>(
    down: &mut Downstream,
    request: &Request<'s>,
    (tried, is_whole): (&[u64], bool),
    now: Instant,
) -> Result<(Held<&'s Pool>, Instant), Reason> {
    let pool = request.pool;
    let look = |now| {
        let claim = pool.core.pick(&Pick {
            now,
            random: clock::random(),
            hash: request.hash,
            tried,
            worker: request.worker.index,
        })?;
        Ok((Held::new(claim, &**pool), now))
    };
    // Who came first is served first.
    let first = match pool.waiters.count() {
        0 => look(now),
        _ => Err(NoPick::Saturated),
    };
    let no_pick = match first {
        Ok(picked) => return Ok(picked),
        Err(no_pick) => no_pick,
    };
    if let Some(reason) = Reason::of(no_pick) {
        return Err(reason);
    }
    let Some(waiting) = pool.waiters.enter(pool.queue.requests_max) else {
        return Err(Reason::QueueFull);
    };
    queue::wait(down, request, is_whole, &waiting, || look(clock::now())).await
}

fn observe_failure(request: &Request<'_>, backend: &Backend, failed: &Failed, started: Instant) {
    let now = clock::now();
    let elapsed = now.saturating_since(started);
    let observed = match (failed.reason, failed.reason.failure()) {
        (Reason::RetryStatus(status), _) => answered((status, failed.retry_after), elapsed),
        (_, Some(failure)) => Outcome::Failure(failure),
        (_, None) => Outcome::Aborted {
            waited: match failed.sent {
                None => Duration::ZERO,
                Some(Sent::AtOnce) => elapsed,
                Some(Sent::Late(sent)) => now.saturating_since(sent),
            },
        },
    };
    if matches!(observed, Outcome::ServerError { .. } | Outcome::Failure(_)) {
        request.worker.upstreams.failed(request.pool, backend);
    }
    let worker = request.worker.index;
    request.pool.core.observe(now, worker, backend, observed);
}

fn observe_answer(
    request: &Request<'_>,
    backend: &Backend,
    said: (u16, Option<Duration>),
    (latency, now): (Duration, Instant),
) {
    let observed = answered(said, latency);
    if matches!(observed, Outcome::ServerError { .. }) {
        request.worker.upstreams.failed(request.pool, backend);
    }
    let worker = request.worker.index;
    request.pool.core.observe(now, worker, backend, observed);
}

/// What an answer of `status` with `Retry-After` or without says of a backend.
fn answered((status, retry_after): (u16, Option<Duration>), latency: Duration) -> Outcome {
    match retry_after {
        _ if status >= 500 => Outcome::ServerError {
            status,
            latency,
            retry_after,
        },
        Some(retry_after) => Outcome::Limited {
            latency,
            retry_after,
        },
        None => Outcome::Success { latency },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handshake_says_nothing_of_how_a_backend_serves_but_one_without_end_does() {
        let ms = Duration::from_millis;
        assert_eq!(served(ms(7), ms(0)), ms(7));
        // Eight for a handshake, one for the answer.
        assert_eq!(served(ms(9), ms(8)), ms(1));
        // Far away: each round trip takes long, and so does the answer.
        assert_eq!(served(ms(1_200), ms(900)), ms(300));
        // No room: the handshake was begun again after a second.
        assert_eq!(served(ms(1_001), ms(1_000)), ms(948));
    }
}

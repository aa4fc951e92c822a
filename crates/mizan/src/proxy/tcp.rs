//! A TCP connection handed through: which pool → pick → connect → tunnel → observe.
//!
//! Nothing that a client sends is looked at, but for the server name in a TLS client's first message where the listener
//! picks a pool by it. A connection counts as one request in flight from its start to its end; a backend that cannot be
//! connected to has got nothing, so another is tried.

use super::again;
use super::connection::Downstream;
use super::cut;
use super::error::Reason;
use super::exchange::{self, Standing};
use super::forward::{ABORTED, Held, TRIES_MAX, Tried};
use super::plan;
use super::proxy_header;
use super::record::{self, Record};
use super::socket::HangUp;
use super::transport::Transport;
use super::trust::{self, Trust};
use super::tunnel::{Directions, Ended, Terms, Why, tunnel};
use super::upstream::{self, Over};
use super::worker::{InForce, Worker};
use crate::client_hello::{self, RECORDS_BYTES_MAX};
use crate::clock;
use crate::snapshot::{HashKey, ListenerKind, Passthrough, Pool};
use crate::telemetry::metrics::OpenConnection;
use mizan_core::backend::Backend;
use mizan_core::pool::{Failure, NoPick, Outcome, Pick};
use mizan_core::time::Instant;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// How often who waits in a pool's queue looks by itself: room also comes by ways that call nobody.
const LOOK: Duration = Duration::from_millis(100);

/// The alert of a TLS server that has no such name: fatal, unrecognized_name (RFC 6066 §3).
const UNRECOGNIZED_NAME: &[u8] = &[21, 3, 3, 0, 2, 2, 112];

/// Serves the connection to its end.
pub(super) async fn serve(down: &mut Downstream, worker: &Rc<Worker>) {
    let _in_flight = worker.in_flight();
    let (in_force, standing) = exchange::settle(&mut down.listener, worker);
    let mut begun = record::started(down, &in_force);
    let mut outcome = Record::new(clock::now(), 0);
    let mut name = None;
    let served = {
        let doing = handed(down, (worker, &in_force, standing), &mut name, &mut outcome);
        cut::until(&worker.wheel, std::pin::pin!(doing)).await
    };
    let served = served.unwrap_or_else(|cut| Err(cut.reason()));
    if let Err(reason) = served {
        outcome.reason = Some(reason);
        outcome.bytes_in = down.input.as_ref().map_or(0, |input| input.len() as u64);
        refuse(down, reason).await;
    }
    let name = name.unwrap_or_default();
    record::tunnel_ended(down, worker, &in_force, &name, &outcome);
    begun.told();
}

/// Looks for the client's name where that decides, and hands its connection through.
async fn handed<'s>(
    down: &mut Downstream,
    (worker, in_force, standing): (&'s Rc<Worker>, &'s InForce, Standing),
    name: &mut Option<String>,
    outcome: &mut Record<'s>,
) -> Result<(), Reason> {
    if trust::of_client(standing, down) == Trust::Broken {
        return Err(Reason::ClientAuth);
    }
    if passthrough(down).is_some_and(|passthrough| !passthrough.names.is_empty()) {
        *name = hello(down, worker).await?;
    }
    hand_through(down, (worker, in_force), name.as_deref(), outcome).await
}

fn passthrough(down: &Downstream) -> Option<&Passthrough> {
    match &down.listener.kind {
        ListenerKind::Tcp(passthrough) => Some(passthrough),
        ListenerKind::Http | ListenerKind::Udp(_) => None,
    }
}

/// The client sees that nobody took its connection: a TLS client by an alert, any other by a reset.
async fn refuse(down: &mut Downstream, reason: Reason) {
    // Where Mizan speaks TLS itself, names are its certificates' matter.
    if reason == Reason::NoRoute && !down.secure {
        let sent = std::future::poll_fn(|cx| {
            let written = down.transport.poll_write(cx, UNRECOGNIZED_NAME);
            // A socket to which nothing was written takes seven bytes, or is broken.
            Poll::Ready(matches!(written, Poll::Ready(Ok(_))))
        })
        .await;
        if sent {
            return down.transport.shut_write();
        }
    }
    down.transport.reset_on_close();
}

/// Reads the first message of a TLS client; gives the server name that it asks for.
async fn hello(down: &mut Downstream, worker: &Rc<Worker>) -> Result<Option<String>, Reason> {
    down.timer.set_at(down.idle_until_ms);
    std::future::poll_fn(|cx| {
        loop {
            match down.transport.poll_read_ready(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(Err(Reason::ClientGone)),
                Poll::Pending if down.timer.poll_expired(cx) => {
                    return Poll::Ready(Err(Reason::HeaderTimeout));
                }
                Poll::Pending => return Poll::Pending,
            }
            let input = down.input.get_or_insert_with(|| worker.buffers.small());
            if input.is_full() {
                input.grow(RECORDS_BYTES_MAX);
            }
            match down.transport.poll_read(cx, input.room()) {
                // The readiness was stale; it is cleared now.
                Poll::Pending => continue,
                Poll::Ready(Ok(0)) | Poll::Ready(Err(_)) => {
                    return Poll::Ready(Err(Reason::ClientGone));
                }
                Poll::Ready(Ok(count)) => input.filled(count),
            }
            match client_hello::parse(input.unread()) {
                Ok(None) => {}
                Ok(Some(hello)) => return Poll::Ready(Ok(hello.server_name)),
                Err(error) => return Poll::Ready(Err(Reason::ClientHello(error))),
            }
        }
    })
    .await
}

/// A connection on its way to a pool; borrowed from the snapshot in force.
struct Connecting<'s> {
    worker: &'s Rc<Worker>,
    in_force: &'s InForce,
    pool: &'s Arc<Pool>,
    hash: Option<u64>,
}

/// A backend that took it.
struct Reached<'s> {
    transport: Transport,
    held: Held<&'s Pool>,
    connect: Duration,
    _open: OpenConnection,
}

/// Picks a pool, reaches a backend and moves bytes. An `Err`: no backend took the connection.
async fn hand_through<'s>(
    down: &mut Downstream,
    (worker, in_force): (&'s Rc<Worker>, &'s InForce),
    name: Option<&str>,
    outcome: &mut Record<'s>,
) -> Result<(), Reason> {
    let pool = passthrough(down)
        .and_then(|passthrough| passthrough.pool(name))
        .ok_or(Reason::NoRoute)?;
    // A pool that is not there went with its listener.
    let pool = in_force.snapshot.pools.get(pool).ok_or(Reason::NoBackend)?;
    let hash = match (&pool.hash_key, down.peer_address()) {
        (Some(HashKey::ClientAddress), Some(address)) => Some(plan::hash_of_address(address)),
        _ => None,
    };
    let connecting = Connecting {
        worker,
        in_force,
        pool,
        hash,
    };
    outcome.pool = Some(&**pool);
    outcome.place = in_force.series.pool_place(pool, "");
    let all_refuse = pool.core.is_last_resort();
    let reached = match reach(down, &connecting, outcome).await {
        Ok(reached) => reached,
        Err(reason) => {
            // Every backend was known to refuse connections, and still does: that is no backend, not a bad one.
            let nobody = all_refuse && reason == Reason::ConnectRefused;
            let reason = if nobody { Reason::NoBackend } else { reason };
            if let Some(cause) = reason.unreached() {
                in_force.series.pool(outcome.place).unreached(cause);
            }
            return Err(reason);
        }
    };
    move_bytes(down, &connecting, reached, outcome).await;
    Ok(())
}

/// Tries until one backend takes the connection.
async fn reach<'s>(
    down: &mut Downstream,
    connecting: &Connecting<'s>,
    outcome: &mut Record<'s>,
) -> Result<Reached<'s>, Reason> {
    let pool = connecting.pool;
    let series = &connecting.in_force.series;
    let tries_max = (pool.retry.tries_max as usize).min(TRIES_MAX) as u32;
    let mut tried = Tried::default();
    let mut last: Option<Reason> = None;
    pool.core.retry_budget().deposit(connecting.worker.index);
    loop {
        let picked = pick(down, connecting, tried.ids()).await;
        let (held, started) = match picked {
            Ok(picked) => picked,
            Err(reason) => return Err(last.unwrap_or(reason)),
        };
        let backend = Arc::clone(held.claim.backend());
        tried.note(&backend);
        outcome.tries += 1;
        outcome.place = series.pool_place(pool, backend.version());
        if connecting.in_force.snapshot.settings.access_log.is_some() {
            outcome.backend = Some(Arc::clone(&backend));
        }
        connecting.worker.upstreams.begin(pool, &backend);
        let reason = match connect(down, connecting, &backend).await {
            Ok(transport) => {
                let connect = clock::now().saturating_since(started);
                outcome.upstream = Some(connect);
                series.pool(outcome.place).latency.record(connect);
                if let Some(cause) = last.and_then(Reason::unreached) {
                    series.pool(outcome.place).rescued(cause);
                }
                return Ok(Reached {
                    transport,
                    held,
                    connect,
                    _open: series.connection_opened(outcome.place),
                });
            }
            Err(reason) => reason,
        };
        let observed = reason.failure().map_or(ABORTED, Outcome::Failure);
        if matches!(observed, Outcome::Failure(_)) {
            connecting.worker.upstreams.failed(pool, &backend);
        }
        pool.core
            .observe(clock::now(), connecting.worker.index, &backend, observed);
        // Nothing reached it: another try costs no backend anything, so it draws on no budget.
        if outcome.tries >= tries_max {
            return Err(reason);
        }
        series.pool(outcome.place).retried(reason.retry_cause());
        last = Some(reason);
        drop(held);
        again::back_off(pool, outcome.tries).await;
    }
}

/// A connection to `backend` over which the client's bytes can go.
async fn connect(
    down: &Downstream,
    connecting: &Connecting<'_>,
    backend: &Backend,
) -> Result<Transport, Reason> {
    let (pool, timer) = (connecting.pool, &down.timer);
    let first = proxy_header::written(pool.proxy_protocol, down);
    timer.set(pool.timeouts.connect);
    let socket = upstream::connect(backend, timer, &first).await?;
    let Some(tls) = &pool.tls else {
        return Ok(Transport::Plain(socket));
    };
    timer.set(tls.handshake);
    let buffers = &connecting.worker.buffers;
    let secured = (&**tls, Over::Tcp, backend);
    let tls = Box::pin(upstream::secure(socket, secured, buffers, timer)).await?;
    Ok(Transport::Tls(tls))
}

/// A backend and when it was picked, after a wait in the pool's queue if all are full.
async fn pick<'s>(
    down: &mut Downstream,
    connecting: &Connecting<'s>,
    tried: &[u64],
) -> Result<(Held<&'s Pool>, Instant), Reason> {
    let pool = connecting.pool;
    let look = || {
        let now = clock::now();
        let claim = pool.core.pick(&Pick {
            now,
            random: clock::random(),
            hash: connecting.hash,
            tried,
            worker: connecting.worker.index,
        })?;
        Ok((Held::new(claim, &**pool), now))
    };
    // Who came first is served first.
    let first = match pool.waiters.count() {
        0 => look(),
        _ => Err(NoPick::Saturated),
    };
    match first {
        Ok(picked) => Ok(picked),
        Err(NoPick::Empty | NoPick::NoneUsable) => Err(Reason::NoBackend),
        Err(NoPick::Saturated) => wait(down, pool, look).await,
    }
}

/// Waits in the pool's queue until `look` finds room. What the client sends meanwhile stays in its socket.
async fn wait<T>(
    down: &mut Downstream,
    pool: &Pool,
    look: impl Fn() -> Result<T, NoPick>,
) -> Result<T, Reason> {
    let Some(waiting) = pool.waiters.enter(pool.queue.requests_max) else {
        return Err(Reason::QueueFull);
    };
    let deadline_ms = down.timer.deadline_after(pool.queue.timeout);
    loop {
        down.timer
            .set_at(deadline_ms.min(down.timer.deadline_after(LOOK)));
        std::future::poll_fn(|cx| {
            // The room of those that are cut is for nobody: see `cut::until`.
            if down.timer.is_cut().is_some() {
                return Poll::Pending;
            }
            if waiting.poll_called(cx).is_ready() || down.timer.poll_expired(cx) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
        if down.transport.hang_up() == HangUp::Whole {
            return Err(Reason::ClientGone);
        }
        if waiting.is_first() {
            match look() {
                Ok(found) => return Ok(found),
                Err(NoPick::Saturated) => {}
                Err(NoPick::Empty | NoPick::NoneUsable) => return Err(Reason::NoBackend),
            }
        }
        if deadline_ms <= down.timer.now_ms() {
            return Err(Reason::QueueTimeout);
        }
    }
}

async fn move_bytes(
    down: &mut Downstream,
    connecting: &Connecting<'_>,
    mut reached: Reached<'_>,
    outcome: &mut Record<'_>,
) {
    let pool = connecting.pool;
    let backend = reached.held.claim.backend();
    let timeouts = &down.listener.timeouts;
    let terms = Terms {
        timer: &down.timer,
        buffers: &connecting.worker.buffers,
        idle: timeouts.tunnel_idle,
        until_ms: down.timer.deadline_after(timeouts.tunnel),
        websocket: None,
    };
    let mut directions = Directions::new(down.input.take(), None);
    let transports = (&mut down.transport, &mut reached.transport);
    let success = Outcome::Success {
        latency: reached.connect,
    };
    let mut is_answered = false;
    let ended = tunnel(&mut directions, transports, terms, || {
        is_answered = true;
        pool.core
            .observe(clock::now(), connecting.worker.index, backend, success);
    })
    .await;
    outcome.bytes_in += ended.sent_up;
    outcome.bytes_out += ended.sent_down;
    outcome.reason = reason(&ended, is_answered);
    if is_answered {
        return;
    }
    let observed = match ended.why {
        // A backend that takes connections and drops them without a word is fast, and no use to anyone.
        Why::ClosedByBackend | Why::BackendReset => Outcome::Failure(Failure::Reset),
        Why::ClosedByClient => success,
        Why::ClientReset | Why::Idle | Why::TooLong | Why::Drained | Why::Cut(_) => ABORTED,
    };
    if let Outcome::Failure(_) = observed {
        connecting.worker.upstreams.failed(pool, backend);
        if let Some(cause) = Reason::Reset.unreached() {
            let cells = connecting.in_force.series.pool(outcome.place);
            cells.unreached(cause);
        }
    }
    pool.core
        .observe(clock::now(), connecting.worker.index, backend, observed);
}

pub(super) fn reason(ended: &Ended, is_answered: bool) -> Option<Reason> {
    match ended.why {
        Why::ClosedByClient | Why::Drained => None,
        Why::ClosedByBackend if is_answered => None,
        Why::BackendReset if is_answered => Some(Reason::ResponseCut),
        Why::ClosedByBackend | Why::BackendReset => Some(Reason::Reset),
        Why::ClientReset => Some(Reason::ClientGone),
        Why::Idle => Some(Reason::TunnelIdle),
        Why::TooLong => Some(Reason::TunnelTimeout),
        Why::Cut(cut) => Some(cut.reason()),
    }
}

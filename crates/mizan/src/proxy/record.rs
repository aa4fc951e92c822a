//! What is kept of a request that has ended: counters and a line of the access log.

use super::connection::Downstream;
use super::cut;
use super::error::Reason;
use super::grpc;
use super::headers;
use super::plan::Plan;
use super::worker::{InForce, Worker};
use crate::clock;
use crate::h1::Version;
use crate::snapshot::Pool;
use crate::snapshot::route::Route;
use crate::telemetry::access_log::AccessRecord;
use crate::telemetry::metrics::{Finished, Place};
use mizan_core::backend::Backend;
use mizan_core::time::Instant;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// What became of a request.
#[derive(Debug)]
pub(super) struct Record<'s> {
    /// The head's first byte.
    pub(super) started: Instant,
    /// The head's last byte.
    pub(super) decided: Instant,
    /// When the answer was written, if that was noted.
    pub(super) ended: Option<Instant>,
    /// What the client was sent; 0 for nothing.
    pub(super) status: u16,
    /// How a call of gRPC ended, if it did by the protocol.
    pub(super) grpc_status: Option<u32>,
    /// Why, where it was not the backend's own answer whole.
    pub(super) reason: Option<Reason>,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
    pub(super) tries: u32,
    /// From the last try's pick to the end of its response head.
    pub(super) upstream: Option<Duration>,
    /// The last one tried, for the access log; not set without one.
    pub(super) backend: Option<Arc<Backend>>,
    pub(super) route: Option<&'s Route>,
    pub(super) pool: Option<&'s Pool>,
    pub(super) place: Place,
}

impl Record<'_> {
    pub(super) fn new(started: Instant, bytes_in: u64) -> Self {
        Self {
            started,
            decided: started,
            ended: None,
            status: 0,
            grpc_status: None,
            reason: None,
            bytes_in,
            bytes_out: 0,
            tries: 0,
            upstream: None,
            backend: None,
            route: None,
            pool: None,
            place: Place::NOWHERE,
        }
    }
}

/// Position of the connection's listener: it may have been accepted under an earlier snapshot.
fn listener_index(down: &Downstream, in_force: &InForce) -> usize {
    in_force.series.listener_index(&down.listener.name)
}

/// A request has begun.
pub(super) fn started(down: &Downstream, in_force: &Rc<InForce>) -> Begun {
    let begun = Begun::before(down, in_force);
    in_force.series.listener(begun.listener as usize).started();
    begun
}

/// A request that was counted as begun. If it goes before its end is told, its task unwinds: it is counted as ended all
/// the same, or the gauge would stay too high for ever.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) in_force: Rc<InForce>,
    listener: u32,
    is_told: bool,
}

impl Begun {
    /// One that was counted as begun before.
    pub(super) fn before(down: &Downstream, in_force: &Rc<InForce>) -> Self {
        Self {
            in_force: Rc::clone(in_force),
            listener: listener_index(down, in_force) as u32,
            is_told: false,
        }
    }

    /// Its end was told, or somebody else will tell it.
    pub(super) fn told(&mut self) {
        self.is_told = true;
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        if self.is_told {
            return;
        }
        self.in_force.series.finished(&Finished {
            listener: self.listener as usize,
            place: Place::NOWHERE,
            status: 0,
            reason: Some(Reason::Internal.code()),
            duration: Duration::ZERO,
            bytes_in: 0,
            bytes_out: 0,
        });
    }
}

/// What is told of a request's head.
pub(super) struct Asked<'p> {
    pub(super) is_grpc: bool,
    pub(super) version: Version,
    /// The client's address under the trust rule.
    pub(super) client: Option<IpAddr>,
    pub(super) method: &'p [u8],
    pub(super) host: &'p [u8],
    pub(super) target: &'p [u8],
    pub(super) request_id: &'p [u8],
    pub(super) traceparent: &'p [u8],
}

impl<'p> Asked<'p> {
    /// Looks through the head.
    pub(super) fn of(plan: &'p Plan) -> Self {
        Self {
            is_grpc: plan.is_grpc,
            version: plan.version,
            client: plan.client,
            method: plan.logged.method(),
            host: plan.logged.host(),
            target: plan.logged.target(),
            request_id: plan.request_id(),
            traceparent: headers::traceparent(&plan.head),
        }
    }
}

/// A request has ended.
pub(super) fn finished(
    down: &Downstream,
    worker: &Rc<Worker>,
    in_force: &InForce,
    plan: &Plan,
    outcome: &Record<'_>,
) {
    let duration = count(down, in_force, outcome);
    if plan.is_grpc {
        count_grpc(in_force, outcome);
    }
    if in_force.snapshot.settings.access_log.is_some() {
        log(
            down,
            worker,
            in_force,
            &Asked::of(plan),
            (outcome, duration),
        );
    }
}

/// A request has ended that had become a tunnel.
pub(super) fn upgraded_ended(
    down: &Downstream,
    worker: &Rc<Worker>,
    in_force: &InForce,
    asked: &Asked<'_>,
    outcome: &Record<'_>,
) {
    let duration = count(down, in_force, outcome);
    if asked.is_grpc {
        count_grpc(in_force, outcome);
    }
    log(down, worker, in_force, asked, (outcome, duration));
}

/// Counts a request that has ended; how long it took.
fn count(down: &Downstream, in_force: &InForce, outcome: &Record<'_>) -> Duration {
    cut::count(in_force, outcome);
    let ended = outcome.ended.unwrap_or_else(clock::now);
    let duration = ended.saturating_since(outcome.started);
    in_force.series.finished(&Finished {
        listener: listener_index(down, in_force),
        place: outcome.place,
        status: outcome.status,
        reason: outcome.reason.map(Reason::code),
        duration,
        bytes_in: outcome.bytes_in,
        bytes_out: outcome.bytes_out,
    });
    duration
}

fn count_grpc(in_force: &InForce, outcome: &Record<'_>) {
    if outcome.pool.is_none() {
        return;
    }
    if let Some(code) = grpc_status(true, outcome) {
        in_force.series.pool(outcome.place).grpc_ended(code);
    }
}

fn log(
    down: &Downstream,
    worker: &Worker,
    in_force: &InForce,
    asked: &Asked<'_>,
    (outcome, duration): (&Record<'_>, Duration),
) {
    let mut logger = worker.access_log.borrow_mut();
    let (Some(settings), Some(logger)) = (&in_force.snapshot.settings.access_log, logger.as_mut())
    else {
        return;
    };
    let backend = outcome.backend.as_deref();
    logger.write(
        &AccessRecord {
            wall: clock::wall(),
            listener: &down.listener.name,
            client: asked
                .client
                .map(|address| SocketAddr::new(address, down.peer().map_or(0, |peer| peer.port()))),
            method: asked.method,
            host: asked.host,
            target: asked.target,
            protocol: match asked.version {
                _ if down.http2 => "HTTP/2.0",
                Version::Http10 => "HTTP/1.0",
                Version::Http11 => "HTTP/1.1",
            },
            status: outcome.status,
            grpc_status: grpc_status(asked.is_grpc, outcome),
            reason: outcome.reason.map(Reason::code),
            detail: outcome.reason.and_then(Reason::detail),
            route: outcome.route.as_ref().map_or("", |route| &route.name),
            pool: outcome.pool.as_ref().map_or("", |pool| &pool.name),
            backend: backend.map_or("", |backend| backend.key()),
            version: backend.map_or("", |backend| backend.version()),
            tries: outcome.tries,
            bytes_in: outcome.bytes_in,
            bytes_out: outcome.bytes_out,
            duration,
            upstream: outcome.upstream,
            request_id: asked.request_id,
            traceparent: asked.traceparent,
        },
        settings,
    );
}

/// How a call of gRPC has ended: by its backend's account, else by what cut it. A backend that answered in HTTP/1.1 has
/// given none.
fn grpc_status(is_grpc: bool, outcome: &Record<'_>) -> Option<u32> {
    let cut = |reason: Reason| grpc::code_of(reason, reason.status());
    let reason = outcome.reason.filter(|_| is_grpc);
    outcome.grpc_status.or(reason.map(cut))
}

/// A connection that was handed through has ended; `name` is the server name that its client asked for.
pub(super) fn tunnel_ended(
    down: &Downstream,
    worker: &Worker,
    in_force: &InForce,
    name: &str,
    outcome: &Record<'_>,
) {
    let handed = Handed {
        listener: &down.listener.name,
        client: down.peer(),
        name,
        protocol: "tcp",
        bytes: (outcome.bytes_in, outcome.bytes_out),
    };
    cut::count(in_force, outcome);
    handed_ended(&handed, worker, in_force, outcome);
}

/// The datagrams of a client have ended. Bytes were counted as they passed: a session may last for days.
pub(super) fn session_ended(
    (listener, client): (&str, SocketAddr),
    worker: &Worker,
    in_force: &InForce,
    outcome: &Record<'_>,
) {
    let handed = Handed {
        listener,
        client: Some(SocketAddr::new(client.ip().to_canonical(), client.port())),
        name: "",
        protocol: "udp",
        bytes: (0, 0),
    };
    handed_ended(&handed, worker, in_force, outcome);
}

/// Something that was handed through unread.
struct Handed<'h> {
    listener: &'h str,
    client: Option<SocketAddr>,
    name: &'h str,
    protocol: &'static str,
    /// In and out, as far as they are not counted.
    bytes: (u64, u64),
}

fn handed_ended(handed: &Handed<'_>, worker: &Worker, in_force: &InForce, outcome: &Record<'_>) {
    let duration = clock::now().saturating_since(outcome.started);
    let reason = outcome.reason.map(Reason::code);
    in_force.series.finished(&Finished {
        listener: in_force.series.listener_index(handed.listener),
        place: outcome.place,
        status: 0,
        reason,
        duration,
        bytes_in: handed.bytes.0,
        bytes_out: handed.bytes.1,
    });
    let mut logger = worker.access_log.borrow_mut();
    let (Some(settings), Some(logger)) = (&in_force.snapshot.settings.access_log, logger.as_mut())
    else {
        return;
    };
    let backend = outcome.backend.as_deref();
    let record = AccessRecord {
        wall: clock::wall(),
        listener: handed.listener,
        client: handed.client,
        host: handed.name.as_bytes(),
        protocol: handed.protocol,
        reason,
        detail: outcome.reason.and_then(Reason::detail),
        pool: outcome.pool.map_or("", |pool| &pool.name),
        backend: backend.map_or("", |backend| backend.key()),
        version: backend.map_or("", |backend| backend.version()),
        tries: outcome.tries,
        bytes_in: outcome.bytes_in,
        bytes_out: outcome.bytes_out,
        duration,
        upstream: outcome.upstream,
        ..AccessRecord::default()
    };
    logger.write(&record, settings);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::exposition::render;
    use crate::telemetry::fixture::snapshot;
    use crate::telemetry::metrics::Metrics;

    #[test]
    fn a_request_whose_task_unwinds_is_in_flight_no_more() {
        let snapshot = Arc::new(snapshot(&["web"], &[], &[]));
        let metrics = Metrics::new(1, Duration::ZERO);
        let series = metrics.register(&snapshot).worker(0);
        let in_force = Rc::new(InForce {
            snapshot: Arc::clone(&snapshot),
            series,
        });
        let begin = || {
            in_force.series.listener(0).started();
            Begun {
                in_force: Rc::clone(&in_force),
                listener: 0,
                is_told: false,
            }
        };
        begin().told();
        let unwinding = std::panic::AssertUnwindSafe(|| {
            let _begun = begin();
            std::panic::resume_unwind(Box::new("a bug"));
        });
        std::panic::catch_unwind(unwinding).expect_err("it unwinds");
        let text = render(&metrics, &snapshot, Instant::default());
        // The first was told of elsewhere.
        assert!(
            text.contains("mizan_requests_in_flight{listener=\"web\"} 1\n"),
            "{text}"
        );
        assert!(
            text.contains("{cause=\"internal\",code=\"0\"} 1\n"),
            "{text}"
        );
    }
}

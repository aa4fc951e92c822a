//! A connection that has changed to another protocol, a WebSocket mostly, from its 101 to its end.
//!
//! It may be silent for days, and there may be many of them. So what an exchange leaves behind for it is moved out of
//! the exchange, whose future is large and goes; what stays is this value, a small future and the two connections.

use super::connection::{self, Downstream};
use super::forward::{Held, Request};
use super::plan::Upgrade;
use super::record::{self, Asked, Begun, Record};
use super::relay::Response;
use super::tcp;
use super::transport::Transport;
use super::tunnel::{Directions, Ended, Terms, Why, tunnel};
use super::worker::{InFlight, Worker};
use crate::h1::Version;
use crate::snapshot::Pool;
use crate::snapshot::route::Route;
use crate::telemetry::metrics::{OpenConnection, Place};
use mizan_core::time::Instant;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// All that a tunnel owns but the client's connection.
#[derive(Debug)]
pub(super) struct Upgraded {
    far: Far,
    directions: Directions,
    is_websocket: bool,
    so_far: SoFar,
    shown: Shown,
    route: Arc<Route>,
    begun: Begun,
    /// The request is in flight until the tunnel has ended and is recorded.
    _in_flight: InFlight,
}

/// The backend's side, given back in this order.
#[derive(Debug)]
struct Far {
    transport: Transport,
    _open: Option<OpenConnection>,
    held: Held<Arc<Pool>>,
}

/// What its record knows already.
#[derive(Debug)]
struct SoFar {
    started: Instant,
    status: u16,
    bytes_in: u64,
    bytes_out: u64,
    tries: u32,
    upstream: Option<Duration>,
    place: Place,
}

impl Upgraded {
    /// What `request` leaves behind, whose 101 has gone to the client.
    pub(super) fn new(
        down: &mut Downstream,
        request: &Request<'_>,
        held: Held<Arc<Pool>>,
        (transport, open): (Transport, Option<OpenConnection>),
        (mut response, outcome): (Response, &Record<'_>),
    ) -> Box<Self> {
        Box::new(Self {
            far: Far {
                transport,
                _open: open,
                held,
            },
            directions: Directions::new(down.input.take(), response.input.take()),
            is_websocket: request.plan.upgrade == Some(Upgrade::WebSocket),
            so_far: SoFar {
                started: outcome.started,
                status: outcome.status,
                bytes_in: outcome.bytes_in,
                bytes_out: outcome.bytes_out,
                tries: outcome.tries,
                upstream: outcome.upstream,
                place: outcome.place,
            },
            shown: Shown::new(request),
            route: Arc::clone(request.route),
            begun: Begun::before(down, request.in_force),
            _in_flight: request.worker.in_flight(),
        })
    }
}

/// Serves the connection, or stream, to the end of its tunnel.
#[expect(
    clippy::manual_async_fn,
    reason = "what an `async fn` takes has a place in its future twice"
)]
pub(super) fn serve<'t>(
    down: &'t mut Downstream,
    worker: &'t Rc<Worker>,
    mut upgraded: Box<Upgraded>,
) -> impl Future<Output = ()> + 't {
    async move {
        let timeouts = &down.listener.timeouts;
        let terms = Terms {
            timer: &down.timer,
            buffers: &worker.buffers,
            idle: timeouts.tunnel_idle,
            until_ms: down.timer.deadline_after(timeouts.tunnel),
            websocket: upgraded.is_websocket.then_some(&**worker),
        };
        let transports = (&mut down.transport, &mut upgraded.far.transport);
        let ended = tunnel(&mut upgraded.directions, transports, terms, || {}).await;
        let why = upgraded.finish(down, worker, ended);
        if why == Why::Drained {
            // What it says to its close is heard, so that it does not see a cut.
            Box::pin(connection::linger(down, worker)).await;
        }
    }
}

impl Upgraded {
    /// Gives the backend's side back, then records what became of the request.
    fn finish(mut self, down: &Downstream, worker: &Rc<Worker>, ended: Ended) -> Why {
        let backend = Arc::clone(self.far.held.claim.backend());
        let pool = Arc::clone(self.far.held.pool());
        drop(self.far);
        let so_far = self.so_far;
        let outcome = Record {
            decided: so_far.started,
            ended: None,
            grpc_status: None,
            reason: tcp::reason(&ended, true),
            started: so_far.started,
            status: so_far.status,
            bytes_in: so_far.bytes_in + ended.sent_up,
            bytes_out: so_far.bytes_out + ended.sent_down,
            tries: so_far.tries,
            upstream: so_far.upstream,
            backend: Some(backend),
            route: Some(&self.route),
            pool: Some(&pool),
            place: so_far.place,
        };
        let in_force = &self.begun.in_force;
        record::upgraded_ended(down, worker, in_force, &self.shown.asked(), &outcome);
        self.begun.told();
        ended.why
    }
}

/// What the record tells of the request's head, its texts one behind the other: none unless they are logged.
#[derive(Debug)]
struct Shown {
    is_grpc: bool,
    version: Version,
    client: Option<IpAddr>,
    texts: Box<[u8]>,
    /// Where all texts but the last end.
    ends: [u32; 4],
}

impl Shown {
    fn new(request: &Request<'_>) -> Self {
        let asked = Asked::of(request.plan);
        let mut texts = Vec::new();
        let mut ends = [0; 4];
        if request.in_force.snapshot.settings.access_log.is_some() {
            let first = [asked.method, asked.host, asked.target, asked.request_id];
            for (text, end) in first.into_iter().zip(&mut ends) {
                texts.extend_from_slice(text);
                *end = texts.len() as u32;
            }
            texts.extend_from_slice(asked.traceparent);
        }
        Self {
            is_grpc: asked.is_grpc,
            version: asked.version,
            client: asked.client,
            texts: texts.into_boxed_slice(),
            ends,
        }
    }

    fn asked(&self) -> Asked<'_> {
        let [method, host, target, request_id] = self.ends.map(|end| end as usize);
        Asked {
            is_grpc: self.is_grpc,
            version: self.version,
            client: self.client,
            method: &self.texts[..method],
            host: &self.texts[method..host],
            target: &self.texts[host..target],
            request_id: &self.texts[target..request_id],
            traceparent: &self.texts[request_id..],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size_of_future<A, B, C, F: Future>(_: impl Fn(A, B, C) -> F) -> usize {
        size_of::<F>()
    }

    /// An open WebSocket is one of each, beside the two connections.
    #[test]
    fn what_an_idle_tunnel_holds_is_small() {
        let future = size_of_future(|down: &'static mut Downstream, worker, upgraded| {
            serve(down, worker, upgraded)
        });
        assert!(future <= 224, "{future} bytes");
        let owned = size_of::<Upgraded>();
        assert!(owned <= 448, "{owned} bytes");
    }
}

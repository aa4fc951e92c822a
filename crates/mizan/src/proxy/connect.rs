//! A way to the backend that was picked.

use super::connection::Downstream;
use super::error::Reason;
use super::forward::Request;
use super::http2::client::Shared;
use super::proxy_header;
use super::timer::Timer;
use super::transport::Transport;
use super::upstream::{self, End, Over, Upstream};
use crate::clock;
use crate::snapshot::Protocol;
use crate::telemetry::metrics::Place;
use mizan_core::backend::Backend;
use std::io;
use std::time::Duration;

/// A connection to `backend`, or a stream of one: one that is there, or a new one.
///
/// # Errors
/// Nothing of the request has reached the backend.
pub(super) async fn connect<'c>(
    down: &Downstream,
    request: &Request<'_>,
    backend: &'c Backend,
    place: Place,
) -> Result<Upstream<'c>, Reason> {
    let (upstreams, pool) = (&request.worker.upstreams, request.pool);
    upstreams.begin(pool, backend);
    if let Some(mut up) = upstreams.take(pool, backend) {
        fit(&mut up, request)?;
        return Ok(up);
    }
    let begun = clock::now();
    let timer = &down.timer;
    // Who waits for another's connection waits for its handshake, too.
    let handshake = pool
        .tls
        .as_ref()
        .map_or(Duration::ZERO, |tls| tls.handshake);
    let time = match pool.protocol {
        Protocol::Http1 => pool.timeouts.connect,
        _ => pool.timeouts.connect + handshake,
    };
    let deadline_ms = timer.deadline_after(time);
    timer.set_at(deadline_ms.min(request.deadlines.request_ms));
    let connected = match pool.protocol {
        Protocol::Http1 => {
            let first = proxy_header::written(pool.proxy_protocol, down);
            open(request, (backend, place), timer, &first).await
        }
        // It has chosen HTTP/1.1: nobody can wait for another's connection.
        Protocol::Auto if upstreams.is_private(pool, backend) => {
            open(request, (backend, place), timer, b"").await
        }
        // A header would speak for one client, and the connection is many clients'.
        _ => Box::pin(share(request, (backend, place), timer)).await,
    };
    if connected.is_err() && request.deadlines.request_ms <= timer.now_ms() {
        // The request ran out of time, which says nothing of this backend.
        return Err(Reason::ClientTimeout);
    }
    let mut up = connected?;
    let took = clock::now().saturating_since(begun).as_micros();
    up.connecting_us = u32::try_from(took).unwrap_or(u32::MAX);
    fit(&mut up, request)?;
    Ok(up)
}

/// Makes a stream of HTTP/2 what this request needs.
fn fit(up: &mut Upstream<'_>, request: &Request<'_>) -> Result<(), Reason> {
    let upgrade = request.plan.upgrade;
    if upgrade.is_some_and(|upgrade| !up.transport.takes(upgrade)) {
        return Err(Reason::UpgradeUnsupported);
    }
    if let Some(web) = request.plan.web {
        up.transport.translate(web);
    }
    Ok(())
}

/// A stream of a connection that somebody else opens now, or a new connection.
async fn share<'c>(
    request: &Request<'_>,
    (backend, place): (&'c Backend, Place),
    timer: &Timer,
) -> Result<Upstream<'c>, Reason> {
    let (upstreams, pool) = (&request.worker.upstreams, request.pool);
    let opening = loop {
        match upstreams.opening(pool, backend) {
            Ok(opening) => break opening,
            Err(done) => tokio::select! {
                biased;
                () = done.notified() => {}
                () = timer.expired() => return Err(Reason::ConnectTimeout),
            },
        }
        if let Some(up) = upstreams.take(pool, backend) {
            return Ok(up);
        }
        if upstreams.is_private(pool, backend) {
            return open(request, (backend, place), timer, b"").await;
        }
    };
    let mut opened = open(request, (backend, place), timer, b"").await;
    if matches!(opened, Err(Reason::ConnectError)) {
        // One that says GOAWAY as it comes, in a rollout say, is no bad backend: the next may stay.
        opened = open(request, (backend, place), timer, b"").await;
    }
    drop(opening);
    opened
}

/// A new connection as the pool wants it, begun with `first`.
async fn open<'c>(
    request: &Request<'_>,
    (backend, place): (&'c Backend, Place),
    timer: &Timer,
    first: &[u8],
) -> Result<Upstream<'c>, Reason> {
    let pool = request.pool;
    let socket = upstream::connect(backend, timer, first).await?;
    let open = request.in_force.series.connection_opened(place);
    let (transport, is_http2) = match &pool.tls {
        None => (Transport::Plain(socket), pool.protocol == Protocol::Http2),
        Some(tls) => {
            let deadline_ms = timer.deadline_after(tls.handshake);
            timer.set_at(deadline_ms.min(request.deadlines.request_ms));
            let buffers = &request.worker.buffers;
            let secured = (&**tls, Over::Http, backend);
            let tls = Box::pin(upstream::secure(socket, secured, buffers, timer)).await?;
            let is_http2 = tls.is_http2();
            if pool.protocol == Protocol::Http2 && !is_http2 {
                upstream::say_no_http2(backend);
                return Err(Reason::TlsFailed);
            }
            request
                .worker
                .upstreams
                .note_private(pool, backend, !is_http2);
            (Transport::Tls(tls), is_http2)
        }
    };
    if is_http2 {
        // Behind a box: it is large, and most connections are not of this kind.
        let opening = Box::pin(Shared::open(
            transport,
            pool.tls.is_some(),
            pool,
            (&request.worker.wheel, open),
        ));
        let shared = tokio::select! {
            biased;
            shared = opening => shared,
            () = timer.expired() => return Err(Reason::ConnectTimeout),
        };
        let shared = shared.map_err(|error| match error.kind() {
            io::ErrorKind::Unsupported => {
                upstream::say_wrong_protocol(backend, "HTTP/1.1");
                Reason::WrongProtocol
            }
            _ => Reason::ConnectError,
        })?;
        let stream = shared.stream().ok_or(Reason::ConnectError)?;
        request.worker.upstreams.share(shared, pool, backend);
        return Ok(Upstream::of_stream(stream, backend, false));
    }
    Ok(Upstream {
        sent_before: transport.sent(),
        transport,
        open: Some(open),
        backend,
        end: End::default(),
        reused: false,
        connecting_us: 0,
    })
}

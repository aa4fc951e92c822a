//! A client's connection that speaks HTTP/2: each of its streams is served as a request of its own.

use super::super::connection::{Client, Downstream};
use super::super::error;
use super::super::exchange::{self, Standing};
use super::super::trust::{self, Trust};
use super::super::upgrade;
use super::super::worker::Worker;
use super::convert;
use super::inflow::{self, Inflow};
use super::io::Io;
use super::outflow::Outflow;
use super::ping::Pinger;
use super::strain::{Limit, Strain};
use super::unfit::Unfit;
use super::websocket;
use crate::clock;
use crate::h1::line::Lines;
use crate::h1::{Framing, HeadError, response};
use crate::snapshot::Listener;
use bytes::Bytes;
use h2::server::{Connection, SendResponse};
use h2::{PingPong, Reason, RecvStream};
use http::Request;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// What a stream may hold that its peer's window has not taken.
const SEND_BUFFER: usize = 16 << 10;

/// How often a connection is looked at that has nothing to do: idle time, age, the end of its listener.
const LOOK: Duration = Duration::from_secs(1);

/// How long the last word may take to be with the kernel.
const GOODBYE: Duration = Duration::from_secs(1);

/// How long a client that was told to go may open further streams.
const GRACE: Duration = Duration::from_secs(5);

/// Serves a client to the end of its connection.
pub(in super::super) async fn serve(down: Downstream, worker: Rc<Worker>) {
    let (transport, before, mut client) = down.split();
    let strain = Strain::new(&client.listener.http2, &worker.wheel);
    let io = Io::new(transport, before).watched(Rc::clone(&strain));
    client.timer.set(client.listener.timeouts.header);
    let handshake = builder(&client.listener).handshake(io);
    let mut handshake = std::pin::pin!(handshake);
    let connection = poll_fn(|cx| match handshake.as_mut().poll(cx) {
        Poll::Ready(result) => Poll::Ready(result.ok()),
        Poll::Pending if client.timer.poll_expired(cx) => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    });
    let Some(mut connection) = connection.await else {
        return;
    };
    let mut life = Life::new(&client, connection.ping_pong(), strain);
    client.timer.set(LOOK);
    loop {
        let next = poll_fn(|cx| {
            if let Some(limit) = life.strain.poll_passed(cx) {
                return Poll::Ready(Err(Over::Passed(limit)));
            }
            match connection.poll_accept(cx) {
                Poll::Ready(next) => Poll::Ready(Ok(next)),
                Poll::Pending => life
                    .poll_over(cx, &mut client, &worker, &mut connection)
                    .map(Err),
            }
        });
        match next.await {
            Ok(Some(Ok((request, mut respond)))) => match life.begin(&client, &mut connection) {
                true => spawn(&client, &worker, (&life, request, respond)),
                false => respond.send_reset(Reason::REFUSED_STREAM),
            },
            Ok(Some(Err(error))) => return say_broken(&client, &error),
            Err(Over::Passed(limit)) => {
                say_passed(&client, limit);
                return close(&client, connection, Reason::ENHANCE_YOUR_CALM).await;
            }
            Err(Over::Served) => return close(&client, connection, Reason::NO_ERROR).await,
            Ok(None) | Err(Over::Dead) => return,
        }
    }
}

/// Why a connection is closed that is not broken.
enum Over {
    /// It has passed a limit.
    Passed(Limit),
    /// It has served what it had to serve.
    Served,
    /// Nobody answers there.
    Dead,
}

/// Says goodbye, if the client takes that in time.
async fn close(client: &Client, mut connection: Connection<Io, Bytes>, reason: Reason) {
    connection.abrupt_shutdown(reason);
    client.timer.set(GOODBYE);
    poll_fn(|cx| match connection.poll_closed(cx) {
        Poll::Pending if !client.timer.poll_expired(cx) => Poll::Pending,
        _ => Poll::Ready(()),
    })
    .await;
}

fn builder(listener: &Listener) -> h2::server::Builder {
    let settings = &listener.http2;
    let mut builder = h2::server::Builder::new();
    builder
        .max_concurrent_streams(settings.streams_max)
        .initial_window_size(settings.window_bytes)
        .initial_connection_window_size(settings.connection_window_bytes)
        .max_frame_size(16 << 10)
        .max_header_list_size(u32::try_from(listener.limits.head_bytes_max).unwrap_or(u32::MAX))
        .max_send_buffer_size(SEND_BUFFER)
        .data_frame_budget(settings.connection_window_bytes as usize)
        .enable_connect_protocol()
        .max_pending_accept_reset_streams(settings.resets_pending_max);
    builder
}

/// How long a connection lives.
struct Life {
    requests: u64,
    /// When it is told to go for its age, in ms.
    old_at_ms: u64,
    /// When it has idled for too long, in ms.
    idle_until_ms: u64,
    /// Until when streams are served of a client that was told to go and does not, in ms.
    grace_ms: Option<u64>,
    pinger: Pinger,
    strain: Rc<Strain>,
}

impl Life {
    fn new(client: &Client, pings: Option<PingPong>, strain: Rc<Strain>) -> Self {
        // Ten per cent less or more, so that connections that came together do not all leave together.
        let jitter = 0.9 + 0.2 * ((clock::random() >> 11) as f64 / (1u64 << 53) as f64);
        let age_max = client.listener.http2.age_max.mul_f64(jitter);
        Self {
            requests: 0,
            old_at_ms: client.timer.deadline_after(age_max),
            idle_until_ms: client.timer.deadline_after(client.listener.timeouts.idle),
            grace_ms: None,
            strain,
            pinger: Pinger::new(pings, &client.listener.http2.ping, client.timer.now_ms()),
        }
    }

    /// A request has begun; whether it is served.
    fn begin(&mut self, client: &Client, connection: &mut Connection<Io, Bytes>) -> bool {
        if self.is_past_grace(client) {
            return false;
        }
        self.requests += 1;
        // A short one may never be seen by the looks.
        self.idle_until_ms = client.timer.deadline_after(client.listener.timeouts.idle);
        let most = client.listener.requests_per_connection_max;
        if most.is_some_and(|most| self.requests >= most) {
            self.end(client, connection);
        }
        true
    }

    /// Whether the client was told to go long ago. One that never answers the ping of RFC 9113 §6.8 would be served for
    /// ever: its last GOAWAY is sent when the answer comes.
    fn is_past_grace(&self, client: &Client) -> bool {
        self.grace_ms
            .is_some_and(|grace_ms| client.timer.now_ms() >= grace_ms)
    }

    /// Whether no stream is served: each shares the account with this and with what reads.
    fn is_unused(&self) -> bool {
        Rc::strong_count(&self.strain) <= 2
    }

    /// Whether the connection is over now; looks once a second. One that is to go tells its client so and serves what
    /// it has (RFC 9113 §6.8).
    fn poll_over(
        &mut self,
        cx: &mut Context<'_>,
        client: &mut Client,
        worker: &Worker,
        connection: &mut Connection<Io, Bytes>,
    ) -> Poll<Over> {
        let timer = &client.timer;
        let is_used = connection.has_streams();
        if self.pinger.poll_dead(cx, is_used, timer.now_ms()) {
            return Poll::Ready(Over::Dead);
        }
        if !timer.poll_expired(cx) {
            return Poll::Pending;
        }
        let now_ms = timer.now_ms();
        if is_used {
            self.idle_until_ms = timer.deadline_after(client.listener.timeouts.idle);
        }
        timer.set(LOOK);
        // Registers the waker.
        timer.poll_expired(cx);
        let is_idle = now_ms >= self.idle_until_ms;
        // Who does not close when told to is cut when it has nothing under way.
        if (is_idle && self.grace_ms.is_some()) || (self.is_past_grace(client) && self.is_unused())
        {
            return Poll::Ready(Over::Served);
        }
        let before = Arc::clone(&client.listener);
        let (_, standing) = exchange::settle(&mut client.listener, worker);
        let trust = trust::of(standing, client.shown.as_deref(), &client.listener);
        let is_over = standing == Standing::Gone || trust != Trust::Holds;
        if is_over {
            // Those of its streams that still come are to see what has changed.
            client.listener = before;
        }
        if is_idle || is_over || worker.is_closing() || now_ms >= self.old_at_ms {
            self.end(client, connection);
            // It is said when the connection is looked at the next time.
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    fn end(&mut self, client: &Client, connection: &mut Connection<Io, Bytes>) {
        if self.grace_ms.is_none() {
            self.grace_ms = Some(client.timer.deadline_after(GRACE));
            connection.graceful_shutdown();
        }
    }
}

fn say_broken(client: &Client, error: &h2::Error) {
    if error.is_io() || error.is_remote() {
        return;
    }
    // One line for a connection, whatever the number of frames: it ends here.
    tracing::info!(
        listener = &*client.listener.name,
        client = client.peer_text(),
        rule = %error,
        resets_pending_max = client.listener.http2.resets_pending_max,
        streams_max = client.listener.http2.streams_max,
        "a connection broke a rule or a limit of HTTP/2 and was closed"
    );
}

fn say_passed(client: &Client, limit: Limit) {
    let (rule, limit) = match limit {
        Limit::ControlFrames(most) => ("control_frames_per_second_max", most),
        Limit::Resets(most) => ("resets_per_second_max", most),
    };
    tracing::info!(
        listener = &*client.listener.name,
        client = client.peer_text(),
        rule,
        limit,
        "a connection broke a rule or a limit of HTTP/2 and was closed"
    );
}

fn spawn(
    client: &Client,
    worker: &Rc<Worker>,
    (life, request, respond): (&Life, Request<RecvStream>, SendResponse<Bytes>),
) {
    let (mut parts, frames) = request.into_parts();
    let ends = frames.is_end_stream();
    let mut head = worker.buffers.small();
    let is_websocket = websocket::is_asked_for(&parts);
    let mut websocket = None;
    let written = head.write(|out| {
        if is_websocket {
            websocket = Some(websocket::write_request(out, &mut parts)?);
            return Ok(());
        }
        convert::write_request(out, &parts, ends)
    });
    let has_length = parts.headers.contains_key(http::header::CONTENT_LENGTH);
    let is_chunked = !ends && !has_length && !is_websocket;
    let stream = ServerStream {
        inflow: Inflow::new(Vec::new(), (!ends).then_some(frames), is_chunked),
        out: Out::Head(respond),
        to_head: parts.method == http::Method::HEAD,
        websocket,
        is_tunnel: false,
        awaits_trailers: false,
        is_reset: false,
        strain: Rc::clone(&life.strain),
    };
    let mut down = client.stream(worker, stream, (head, life.requests));
    let worker = Rc::clone(worker);
    tokio::task::spawn_local(async move {
        match written {
            Ok(()) => {
                if let Some(upgraded) = exchange::one(&mut down, &worker).await {
                    // A task of its own: this one's room is an exchange's.
                    tokio::task::spawn_local(async move {
                        upgrade::serve(&mut down, &worker, upgraded).await;
                    });
                }
            }
            Err(error) => {
                exchange::refuse_one(&mut down, &worker, error::Reason::Head(error)).await
            }
        }
    });
}

/// One stream of a client, as a transport that carries one exchange of HTTP/1.1.
#[derive(Debug)]
pub(in super::super) struct ServerStream {
    inflow: Inflow,
    out: Out,
    to_head: bool,
    /// The client asks for a WebSocket: what the backend has to answer for it.
    websocket: Option<websocket::Key>,
    /// It is one, and its end was not read yet.
    is_tunnel: bool,
    /// Trailers may come behind an answer of known length.
    awaits_trailers: bool,
    /// The client has taken it back.
    is_reset: bool,
    /// Where that is counted.
    strain: Rc<Strain>,
}

#[derive(Debug)]
enum Out {
    /// No final head was written.
    Head(SendResponse<Bytes>),
    Body(Outflow),
    Ended(Option<Outflow>),
}

impl ServerStream {
    pub(in super::super) fn poll_read_ready(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.inflow.is_ended() {
            let ready = ready!(self.inflow.poll_ready(cx));
            if ready.is_err() {
                self.note_reset();
            }
            return Poll::Ready(ready.map_err(inflow::broken));
        }
        if self.is_tunnel || matches!(self.out, Out::Ended(_)) {
            return Poll::Ready(Ok(()));
        }
        // Nothing more comes but the client's going away.
        self.poll_gone(cx)
            .map(|()| Err(io::ErrorKind::ConnectionReset.into()))
    }

    /// Whether a status of success would be a WebSocket.
    pub(in super::super) fn awaits_websocket(&self) -> bool {
        self.websocket.is_some() && matches!(self.out, Out::Head(_))
    }

    pub(in super::super) fn is_read(&self) -> bool {
        self.inflow.is_ended()
    }

    /// Ready when the client has taken its request back, or is gone.
    pub(in super::super) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        ready!(match &mut self.out {
            Out::Head(respond) => respond.poll_reset(cx).map(|_| ()),
            Out::Body(outflow) => outflow.poll_reset(cx),
            Out::Ended(_) => Poll::Pending,
        });
        self.note_reset();
        Poll::Ready(())
    }

    fn note_reset(&mut self) {
        if !std::mem::replace(&mut self.is_reset, true) {
            self.strain.reset();
        }
    }

    pub(in super::super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        room: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_read_ready(cx))?;
        let count = ready!(self.inflow.poll_read(cx, room)).map_err(inflow::broken)?;
        if count == 0 {
            self.is_tunnel = false;
        }
        Poll::Ready(Ok(count))
    }

    pub(in super::super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.out {
            Out::Head(_) => Poll::Ready(self.write_head(bytes)),
            Out::Body(outflow) => {
                let count = ready!(outflow.poll_write(cx, bytes))?;
                if outflow.is_ended() {
                    self.end();
                }
                Poll::Ready(Ok(count))
            }
            Out::Ended(_) => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    /// A head is always written whole.
    fn write_head(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Out::Head(respond) = &mut self.out else {
            return Ok(0);
        };
        let mut lines = Lines::new();
        let head = response::parse(bytes, &mut lines, self.to_head).map_err(Unfit::Head)?;
        let unfit = Unfit::Head(HeadError::Field);
        let head = head.ok_or(unfit)?;
        let mut response = convert::response(&head).map_err(|_| unfit)?;
        if let Some(key) = &self.websocket
            && (200..300).contains(&head.status) | (head.status == 101)
            && !key.is_accepted(&head)
        {
            self.awaits_trailers = false;
            let unfit = match head.status {
                101 => Unfit::Head(HeadError::Field),
                _ => Unfit::Upgrade,
            };
            return Err(unfit.into());
        }
        if head.status == 101 {
            self.is_tunnel = true;
            websocket::accept(&mut response);
            let frames = respond
                .send_response(response, false)
                .map_err(inflow::broken)?;
            self.out = Out::Body(Outflow::new(frames, Framing::UntilClose));
            return Ok(head.bytes.len());
        }
        if head.status < 200 {
            respond
                .send_informational(response)
                .map_err(inflow::broken)?;
            return Ok(head.bytes.len());
        }
        let ends = matches!(head.framing, Framing::None | Framing::Length(0));
        let frames = respond
            .send_response(response, ends)
            .map_err(inflow::broken)?;
        let mut outflow = Outflow::new(frames, head.framing);
        if self.awaits_trailers {
            outflow.hold_open();
        }
        self.out = if ends {
            Out::Ended(Some(outflow))
        } else {
            Out::Body(outflow)
        };
        Ok(head.bytes.len())
    }

    fn end(&mut self) {
        if let Out::Body(outflow) = std::mem::replace(&mut self.out, Out::Ended(None)) {
            self.out = Out::Ended(Some(outflow));
        }
    }

    /// What comes behind an answer of known length is to be sent: see [`ServerStream::end_with`].
    pub(in super::super) fn await_trailers(&mut self) {
        self.awaits_trailers = true;
    }

    /// Ends an answer behind which trailers could come.
    pub(in super::super) fn end_with(&mut self, trailers: Option<http::HeaderMap>) {
        if let Out::Ended(Some(outflow)) = &mut self.out {
            outflow.end_with(trailers);
        }
    }

    /// Ends a tunnel's way to the client.
    pub(in super::super) fn shut_write(&mut self) {
        if let Out::Body(outflow) = &mut self.out {
            outflow.finish();
            self.end();
        }
    }

    /// Tells the client that its answer is not whole.
    pub(in super::super) fn reset(&mut self) {
        match &mut self.out {
            Out::Head(respond) => respond.send_reset(Reason::INTERNAL_ERROR),
            // RFC 8441 §5: what is a reset of a connection to a WebSocket.
            Out::Body(outflow) if outflow.is_tunnel() => outflow.reset(Reason::CANCEL),
            Out::Body(outflow) => outflow.reset(Reason::INTERNAL_ERROR),
            Out::Ended(_) => {}
        }
    }
}

impl Drop for ServerStream {
    fn drop(&mut self) {
        match &mut self.out {
            Out::Body(_) | Out::Head(_) => self.reset(),
            // RFC 9113 §8.1: where the rest of the request is not wanted, the library says so once the answer is out.
            Out::Ended(_) => {}
        }
    }
}

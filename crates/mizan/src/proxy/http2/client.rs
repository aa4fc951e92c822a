//! A backend's connection that speaks HTTP/2, shared by the requests that go there.

use super::super::grpc::Account;
use super::super::timer::{Timer, Wheel};
use super::super::transport::Transport;
use super::convert;
use super::grpc_web::Spelling;
use super::inflow::{self, Inflow};
use super::io::Io;
use super::outflow::Outflow;
use super::ping::Pinger;
use super::unfit::Unfit;
use super::websocket::Asked;
use crate::h1::line::Lines;
use crate::h1::{FIELDS_MAX, Framing, HeadError, request};
use crate::orca::{Malformed, Report};
use crate::snapshot::Pool;
use crate::telemetry::metrics::OpenConnection;
use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

/// Longest request head that is read back: what Mizan has let in, and what it has added.
const LIMITS: request::Limits = request::Limits {
    headers_max: FIELDS_MAX,
    target_bytes_max: 1 << 20,
};

/// What the library charges for a byte of the smallest messages, at most.
const FRAME_COST: usize = 17;
/// Streams that were taken back and whose late frames are expected.
const RESETS_REMEMBERED: usize = 4096;

/// How often a connection is looked at on which nothing happens.
const LOOK: Duration = Duration::from_secs(1);

/// A connection that requests can share.
#[derive(Debug)]
pub(in super::super) struct Shared {
    sender: SendRequest<Bytes>,
    state: Rc<State>,
    secure: bool,
    streams_max: usize,
    idle_ms: u64,
}

#[derive(Debug, Default)]
struct State {
    /// Streams that are open.
    open: Cell<usize>,
    is_closed: Cell<bool>,
    /// When it has been without a stream for too long, in ms of the wheel; 0: not known yet.
    idle_until_ms: Cell<u64>,
}

impl Shared {
    /// Says hello over `transport`, and serves the connection until nobody shares it any more. It is of use once the
    /// backend has said how many streams it takes: it would refuse those beyond, which all come at once.
    ///
    /// # Errors
    /// The transport's; [`io::ErrorKind::Unsupported`] if the backend speaks HTTP/1.1.
    pub(in super::super) async fn open(
        transport: Transport,
        secure: bool,
        pool: &Pool,
        (wheel, counted): (&Rc<Wheel>, OpenConnection),
    ) -> io::Result<Self> {
        let settings = &pool.http2;
        let (sender, mut connection) = h2::client::Builder::new()
            .enable_push(false)
            .initial_window_size(settings.window_bytes)
            .initial_connection_window_size(settings.connection_window_bytes)
            .max_send_buffer_size(16 << 10)
            // What small messages cost beside their bytes is held against the connection: as many as fill every stream's
            // window must be borne, for who does not read them is one client, and the connection is everybody's.
            .data_frame_budget(settings.connection_window_bytes as usize * FRAME_COST)
            // Late frames of streams that clients have taken back come for as long as the connection lives.
            .max_concurrent_reset_streams(RESETS_REMEMBERED)
            .max_local_error_reset_streams(None)
            .max_header_list_size(64 << 10)
            .initial_max_send_streams(0)
            .handshake(Io::new(transport, None))
            .await
            .map_err(inflow::broken)?;
        poll_fn(|cx| match Pin::new(&mut connection).poll(cx) {
            Poll::Ready(ended) => {
                let error = ended.err().map(|error| match is_http1(&error) {
                    true => io::ErrorKind::Unsupported.into(),
                    false => inflow::broken(error),
                });
                Poll::Ready(Err(
                    error.unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into())
                ))
            }
            Poll::Pending if sender.current_max_send_streams() > 0 => Poll::Ready(Ok(())),
            Poll::Pending => Poll::Pending,
        })
        .await?;
        let state = Rc::new(State::default());
        let served = Rc::clone(&state);
        let timer = Timer::new(wheel);
        let mut pinger = Pinger::new(connection.ping_pong(), &settings.ping, timer.now_ms());
        let mut is_timed = false;
        tokio::task::spawn_local(async move {
            let _counted = counted;
            // How it ended, each stream is told.
            poll_fn(|cx| {
                let is_used = served.open.get() > 0;
                if Pin::new(&mut connection).poll(cx).is_ready()
                    || pinger.poll_dead(cx, is_used, timer.now_ms())
                {
                    return Poll::Ready(());
                }
                if timer.poll_expired(cx) || !std::mem::replace(&mut is_timed, true) {
                    timer.set(LOOK);
                    timer.poll_expired(cx);
                }
                Poll::Pending
            })
            .await;
            served.is_closed.set(true);
        });
        Ok(Self {
            sender,
            state,
            secure,
            streams_max: settings.streams_max(),
            idle_ms: pool.keepalive.idle_timeout.as_millis() as u64,
        })
    }

    /// A stream, if the backend takes one more now.
    pub(in super::super) fn stream(&self) -> Option<ClientStream> {
        let mut sender = self.sender.clone();
        let mut cx = Context::from_waker(Waker::noop());
        let most = self.streams_max.min(sender.current_max_send_streams());
        if self.state.is_closed.get() || self.state.open.get() >= most {
            return None;
        }
        match sender.poll_ready(&mut cx) {
            Poll::Ready(Ok(())) => {}
            Poll::Pending => return None,
            // It has said that it goes away.
            Poll::Ready(Err(_)) => {
                self.state.is_closed.set(true);
                return None;
            }
        }
        self.state.open.set(self.state.open.get() + 1);
        Some(ClientStream {
            to: To::Head(sender),
            from: From::Nothing,
            secure: self.secure,
            to_head: false,
            web: None,
            is_grpc: false,
            asked: None,
            is_refused: false,
            _open: OpenStream(Rc::clone(&self.state)),
        })
    }

    /// Whether it is of use for further requests. Asked now and then: an idle one has its time from the first asking.
    pub(in super::super) fn is_alive(&self, now_ms: u64) -> bool {
        let state = &self.state;
        if state.open.get() > 0 || state.idle_until_ms.get() == 0 {
            state.idle_until_ms.set(now_ms + self.idle_ms);
        }
        !state.is_closed.get() && (state.open.get() > 0 || now_ms < state.idle_until_ms.get())
    }
}

/// Whether a connection has ended, before the backend said hello, because it speaks HTTP/1.1: its first three letters
/// would be the length of a frame, of more than 4 MiB.
fn is_http1(error: &h2::Error) -> bool {
    error.is_library() && error.reason() == Some(h2::Reason::FRAME_SIZE_ERROR)
}

/// Counts a stream as open.
#[derive(Debug)]
struct OpenStream(Rc<State>);

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.open.set(self.0.open.get() - 1);
        self.0.idle_until_ms.set(0);
    }
}

/// One stream to a backend, as a transport that carries one exchange of HTTP/1.1.
#[derive(Debug)]
pub(in super::super) struct ClientStream {
    to: To,
    from: From,
    secure: bool,
    to_head: bool,
    /// The client is one of gRPC-Web.
    web: Option<Spelling>,
    /// The answer is one of gRPC.
    is_grpc: bool,
    /// The client asks for a WebSocket.
    asked: Option<Asked>,
    /// The backend said that it has not looked at the request.
    is_refused: bool,
    _open: OpenStream,
}

#[derive(Debug)]
enum To {
    Head(SendRequest<Bytes>),
    Body(Outflow),
    Ended(Outflow),
    Broken,
}

#[derive(Debug)]
enum From {
    /// No request was sent.
    Nothing,
    /// Interim heads that were not read yet.
    Head(ResponseFuture, Vec<u8>),
    /// The final head, then the body.
    Body(Inflow),
}

impl ClientStream {
    /// Whether the backend takes an upgrade to a WebSocket (RFC 8441 §3).
    pub(in super::super) fn takes_websocket(&self) -> bool {
        matches!(&self.to, To::Head(sender) if sender.is_extended_connect_protocol_enabled())
    }

    /// Ends a tunnel's way to the backend.
    pub(in super::super) fn shut_write(&mut self) {
        if let To::Body(outflow) = &mut self.to {
            outflow.finish();
            self.end();
        }
    }

    /// The call is to reach the backend as one of gRPC.
    pub(in super::super) fn translate(&mut self, web: Spelling) {
        self.web = Some(web);
    }

    /// Whether the backend provably did nothing with the request: it refused the stream, or went away naming a lower
    /// one as its last (RFC 9113 §8.7, §6.8).
    pub(in super::super) fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// What comes behind an answer of known length that was read whole.
    pub(in super::super) fn poll_trailers(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Option<http::HeaderMap>>> {
        match &mut self.from {
            From::Body(inflow) => inflow.poll_trailers(cx).map_err(inflow::broken),
            _ => Poll::Ready(Ok(None)),
        }
    }

    /// What the trailers said of the backend's load.
    pub(in super::super) fn load_report(&self) -> Option<Result<Report, Malformed>> {
        match &self.from {
            From::Body(inflow) => inflow.load,
            _ => None,
        }
    }

    /// How the call ended by gRPC's account, if it was one and has ended.
    pub(in super::super) fn grpc_account(&self) -> Option<Account> {
        let From::Body(inflow) = &self.from else {
            return None;
        };
        Some(match inflow.grpc_status {
            Some(code) => Account::Said(code),
            None if self.is_grpc => Account::Missing,
            None => Account::Foreign,
        })
    }

    pub(in super::super) fn poll_read_ready(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            match &mut self.from {
                // The request could not be sent.
                From::Nothing if matches!(self.to, To::Broken) => {
                    return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
                }
                From::Nothing => return Poll::Pending,
                From::Head(_, interim) if !interim.is_empty() => return Poll::Ready(Ok(())),
                From::Head(..) => ready!(self.poll_head(cx))?,
                From::Body(inflow) => {
                    return match ready!(inflow.poll_ready(cx)) {
                        Ok(()) => Poll::Ready(Ok(())),
                        Err(error) => Poll::Ready(Err(self.broken(error))),
                    };
                }
            }
        }
    }

    pub(in super::super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        room: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_read_ready(cx))?;
        match &mut self.from {
            From::Nothing => Poll::Pending,
            From::Head(_, interim) => {
                let count = interim.len().min(room.len());
                room[..count].copy_from_slice(&interim[..count]);
                interim.drain(..count);
                Poll::Ready(Ok(count))
            }
            From::Body(inflow) => inflow.poll_read(cx, room).map_err(inflow::broken),
        }
    }

    /// The next interim head, or the final one.
    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let From::Head(future, interim) = &mut self.from else {
            return Poll::Ready(Ok(()));
        };
        match future.poll_informational(cx) {
            Poll::Ready(Some(Ok(response))) => {
                let (parts, ()) = response.into_parts();
                convert::write_response(interim, &parts, true, true).map_err(io::Error::other)?;
                return Poll::Ready(Ok(()));
            }
            Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(self.broken(error))),
            Poll::Ready(None) | Poll::Pending => {}
        }
        let (mut parts, frames) = match ready!(Pin::new(future).poll(cx)) {
            Ok(response) => response.into_parts(),
            Err(error) => return Poll::Ready(Err(self.broken(error))),
        };
        let mut head = Vec::with_capacity(512);
        if let Some(asked) = &self.asked
            && parts.status.is_success()
        {
            asked
                .write_accepted(&mut head, &mut parts)
                .map_err(io::Error::other)?;
            self.from = From::Body(Inflow::new(head, Some(frames), false));
            return Poll::Ready(Ok(()));
        }
        let ends = frames.is_end_stream();
        let content_type = parts.headers.get(http::header::CONTENT_TYPE);
        self.is_grpc =
            content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"));
        if !self.is_grpc {
            // An answer that is no call's: it passes as it is.
            self.web = None;
        }
        if let Some(web) = self.web {
            web.to_web(&mut parts.headers);
        }
        convert::write_response(&mut head, &parts, ends, self.to_head).map_err(io::Error::other)?;
        let has_length = parts.headers.contains_key(http::header::CONTENT_LENGTH);
        let has_body = !ends && !self.to_head;
        let inflow = Inflow::new(head, (!ends).then_some(frames), has_body && !has_length);
        let mut inflow = inflow.spelt(self.web);
        inflow.grpc_status = convert::grpc_status(&parts.headers);
        self.from = From::Body(inflow);
        Poll::Ready(Ok(()))
    }

    pub(in super::super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.to {
            To::Head(_) => Poll::Ready(self.write_head(bytes)),
            To::Body(outflow) => {
                let count = ready!(outflow.poll_write(cx, bytes))?;
                if outflow.is_ended() {
                    self.end();
                }
                Poll::Ready(Ok(count))
            }
            To::Ended(_) | To::Broken => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    /// A head is always written whole. HTTP/2 has no bytes for some targets that HTTP/1.1 lets pass: [`Unfit`].
    fn write_head(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let To::Head(sender) = &mut self.to else {
            return Ok(0);
        };
        let mut lines = Lines::new();
        let head = request::parse(bytes, &mut lines, LIMITS).map_err(Unfit::Head)?;
        let unfit = Unfit::Head(HeadError::Target);
        let head = head.ok_or(unfit)?;
        let mut request = convert::request(&head, self.secure).map_err(|_| unfit)?;
        if let Some(web) = self.web {
            web.to_grpc(request.headers_mut());
        }
        self.asked = Asked::of(&head, &mut request);
        let is_tunnel = self.asked.is_some();
        let ends = matches!(head.framing, Framing::None | Framing::Length(0)) && !is_tunnel;
        let sent = sender.send_request(request, ends);
        let (response, frames) = match sent {
            Ok(sent) => sent,
            Err(error) => {
                // It was never put on its way.
                self.is_refused = true;
                self.to = To::Broken;
                return Err(inflow::broken(error));
            }
        };
        self.to_head = head.method == b"HEAD";
        self.from = From::Head(response, Vec::new());
        let framing = if is_tunnel {
            Framing::UntilClose
        } else {
            head.framing
        };
        let outflow = Outflow::new(frames, framing).spelt(self.web);
        self.to = if ends {
            To::Ended(outflow)
        } else {
            To::Body(outflow)
        };
        Ok(head.bytes.len())
    }

    fn end(&mut self) {
        if let To::Body(outflow) = std::mem::replace(&mut self.to, To::Broken) {
            self.to = To::Ended(outflow);
        }
    }

    fn broken(&mut self, error: h2::Error) -> io::Error {
        self.is_refused |= (error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM))
            || (error.is_go_away() && error.is_remote());
        inflow::broken(error)
    }
}

impl Drop for ClientStream {
    fn drop(&mut self) {
        let is_answered = matches!(&self.from, From::Body(inflow) if inflow.is_finished());
        if let To::Body(outflow) | To::Ended(outflow) = &mut self.to
            && !is_answered
        {
            outflow.reset(h2::Reason::CANCEL);
        }
    }
}

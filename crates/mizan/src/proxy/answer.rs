//! Answers that Mizan makes itself.

use super::connection::Downstream;
use super::error::{self, Reason};
use super::exchange::After;
use super::grpc;
use super::headers;
use super::plan::Plan;
use super::record::Record;
use super::worker::Worker;
use crate::clock;
use crate::h1::Framing;
use crate::snapshot::route::{Action, Route};
use crate::telemetry::json::push_number;
use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::UNIX_EPOCH;

/// Seconds after which a client may come back to a pool that has no room or no backend.
const RETRY_AFTER_SECONDS: &[u8] = b"1";

/// Whether the connection can go on after this answer: only if there is no body on its way that nobody reads.
pub(super) fn keeps(plan: &Plan, reason: Reason) -> bool {
    let framed = matches!(plan.framing, Framing::None | Framing::Length(0));
    plan.keep_alive
        && framed
        && !matches!(reason, Reason::Head(_) | Reason::Chunk(_) | Reason::Path)
}

/// Whether the connection can go on after a request failed whose whole body was read.
pub(super) fn keeps_after_failure(plan: &Plan, reason: Reason) -> bool {
    plan.keep_alive
        && !matches!(
            reason,
            Reason::Chunk(_) | Reason::BodyTooLarge | Reason::BodyTimeout | Reason::BodyRate
        )
}

/// Sends the answer for `reason`; `outcome` gets its status and size.
pub(super) async fn send(
    down: &mut Downstream,
    worker: &Rc<Worker>,
    plan: &Plan,
    route: Option<&Arc<Route>>,
    reason: Reason,
    keep: bool,
    outcome: &mut Record<'_>,
) -> After {
    outcome.reason = Some(reason);
    if reason == Reason::ClientGone || reason == Reason::SendTimeout {
        outcome.status = 499;
        return After::Close;
    }
    let mut out = worker.scratch();
    let mut content = content(route, reason);
    if plan.is_grpc {
        content = content.for_grpc(plan, reason);
    }
    if (200..300).contains(&content.status) && down.transport.awaits_websocket() {
        content = Content::no_websocket();
    }
    outcome.status = content.status;
    outcome.grpc_status = content.grpc;
    write(&mut out, plan, &content, reason, keep);
    // A route's own words come last: they may be about an answer like this one.
    if let Some(hsts) = headers::hsts(down) {
        headers::line(&mut out, headers::HSTS, hsts.as_bytes());
    }
    if let Some(route) = route {
        headers::add_edits(&mut out, &route.response_headers);
    }
    out.extend_from_slice(b"\r\n");
    if content.has_body() && !plan.is_head {
        out.extend_from_slice(&content.body);
    }
    let sent = write_all(down, &out).await;
    outcome.bytes_out += out.len() as u64;
    worker.put_scratch(out);
    match (sent, keep) {
        (true, true) => After::Keep,
        (true, false) => After::Linger,
        (false, _) => After::Close,
    }
}

/// The status of the answer for `reason`.
pub(super) fn status(plan: &Plan, route: Option<&Arc<Route>>, reason: Reason) -> u16 {
    let content = content(route, reason);
    match plan.is_grpc {
        true => content.for_grpc(plan, reason).status,
        false => content.status,
    }
}

/// What an answer says.
struct Content<'a> {
    status: u16,
    /// Empty: none.
    content_type: &'a str,
    body: Cow<'a, [u8]>,
    /// To a call of gRPC: its status code.
    grpc: Option<u32>,
}

impl Content<'_> {
    /// In place of what would be taken for a WebSocket.
    fn no_websocket() -> Self {
        Content {
            status: 502,
            content_type: "",
            body: Cow::Borrowed(b""),
            grpc: None,
        }
    }

    /// The same to a call of gRPC: trailers alone, which hold all that its client reads.
    fn for_grpc(self, plan: &Plan, reason: Reason) -> Self {
        Content {
            status: 200,
            content_type: grpc::content_type(plan.web),
            body: Cow::Borrowed(b""),
            grpc: Some(grpc::code_of(reason, self.status)),
        }
    }

    fn has_body(&self) -> bool {
        self.status != 204 && self.status != 304
    }
}

/// What `reason` says to the client: the route's own words where it has some.
fn content<'a>(route: Option<&'a Arc<Route>>, reason: Reason) -> Content<'a> {
    match (reason, route.map(|route| &route.action)) {
        (Reason::Redirect, Some(Action::Redirect { status, .. })) => {
            return Content {
                status: *status,
                content_type: "",
                body: Cow::Borrowed(b""),
                grpc: None,
            };
        }
        (
            Reason::Respond,
            Some(Action::Respond {
                status,
                content_type,
                body,
            }),
        ) => {
            return Content {
                status: *status,
                content_type,
                body: Cow::Borrowed(body),
                grpc: None,
            };
        }
        _ => {}
    }
    let status = reason.status();
    let page = route.and_then(|route| route.error_pages.iter().find(|(at, _)| *at == status));
    match page {
        Some((_, page)) => Content {
            status,
            content_type: &page.content_type,
            body: Cow::Borrowed(&page.body),
            grpc: None,
        },
        None => {
            let text = format!("{status} {}: {}\n", error::phrase(status), reason.code());
            let body = Cow::Owned(text.into_bytes());
            Content {
                status,
                content_type: "text/plain; charset=utf-8",
                body,
                grpc: None,
            }
        }
    }
}

/// Writes the answer's head to `out`, but for what a listener and a route add, and the empty line.
fn write(out: &mut Vec<u8>, plan: &Plan, content: &Content<'_>, reason: Reason, keep: bool) {
    out.extend_from_slice(b"HTTP/1.1 ");
    push_number(out, u64::from(content.status));
    out.push(b' ');
    out.extend_from_slice(error::phrase(content.status).as_bytes());
    out.extend_from_slice(b"\r\n");
    if !content.content_type.is_empty() && content.has_body() {
        headers::line(out, b"Content-Type", content.content_type.as_bytes());
    }
    if content.has_body() {
        out.extend_from_slice(b"Content-Length: ");
        push_number(out, content.body.len() as u64);
        out.extend_from_slice(b"\r\n");
    }
    if let Some(code) = content.grpc {
        out.extend_from_slice(b"grpc-status: ");
        push_number(out, u64::from(code));
        out.extend_from_slice(b"\r\n");
        headers::line(out, b"grpc-message", reason.code().as_bytes());
    }
    // RFC 9110 §6.6.1: whoever has a clock dates what it makes.
    let date = httpdate::fmt_http_date(UNIX_EPOCH + clock::wall());
    headers::line(out, b"Date", date.as_bytes());
    if !plan.request_id().is_empty() {
        headers::line(out, b"X-Request-Id", plan.request_id());
    }
    if matches!(reason, Reason::Redirect | Reason::RedirectToHttps) {
        headers::line(out, b"Location", &plan.location);
    }
    if matches!(
        reason,
        Reason::NoBackend | Reason::QueueFull | Reason::QueueTimeout | Reason::NoResources
    ) {
        headers::line(out, b"Retry-After", RETRY_AFTER_SECONDS);
    }
    headers::connection_line(out, plan.version, !keep);
}

/// Writes all of `bytes` to the client; false if it went away or takes nothing for the send time-out.
pub(super) async fn write_all(down: &mut Downstream, bytes: &[u8]) -> bool {
    let mut sent = 0;
    down.timer.set(down.listener.timeouts.send);
    std::future::poll_fn(|cx| {
        while sent < bytes.len() {
            match down.transport.poll_write(cx, &bytes[sent..]) {
                Poll::Ready(Ok(count)) if count > 0 => {
                    sent += count;
                    down.timer.set(down.listener.timeouts.send);
                }
                Poll::Ready(_) => return Poll::Ready(false),
                Poll::Pending if down.timer.poll_expired(cx) => return Poll::Ready(false),
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(true)
    })
    .await
}

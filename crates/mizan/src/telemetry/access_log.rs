//! The access log: one JSON line for each request, and never a worker that waits for it.
//!
//! A worker formats into its own buffer and hands it over when it is full, or on its tick. One thread
//! writes. When that thread is behind by [`BUFFERS_MAX`] buffers, lines are dropped and counted: the
//! traffic matters more than its record. Authorization and cookies have no field here, so they cannot be
//! logged; a query string is shown as `?-` unless the configuration asks for it.

mod syslog;
mod writer;

use super::json::{TimeText, push_escaped, push_ms, push_number, push_string};
use crate::snapshot;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::Duration;
use writer::Message;
pub use writer::{AccessLog, BUFFERS_MAX};

/// A buffer is handed over when it holds this much.
const BUFFER_BYTES: usize = 16 * 1024;

/// What is logged of a request. Bytes are as the client sent them; an empty text is left out.
#[derive(Clone, Copy, Debug, Default)]
pub struct AccessRecord<'a> {
    /// When the request ended, since the Unix epoch.
    pub wall: Duration,
    /// Listener's name.
    pub listener: &'a str,
    /// The client's address under the trust rule; `None` on a Unix socket.
    pub client: Option<SocketAddr>,
    /// Method.
    pub method: &'a [u8],
    /// `Host`, or the target's authority.
    pub host: &'a [u8],
    /// Request target.
    pub target: &'a [u8],
    /// Protocol: `HTTP/1.1`; `tcp` for a connection that was handed through.
    pub protocol: &'a str,
    /// What the client was sent; 0 if it was sent nothing.
    pub status: u16,
    /// How a call of gRPC ended.
    pub grpc_status: Option<u32>,
    /// The reason code when Mizan made the answer itself, or cut it.
    pub reason: Option<&'static str>,
    /// The broken rule, where the reason's code stands for many.
    pub detail: Option<&'static str>,
    /// Route's name.
    pub route: &'a str,
    /// Pool's name.
    pub pool: &'a str,
    /// The last backend tried.
    pub backend: &'a str,
    /// Its version.
    pub version: &'a str,
    /// How many backends were tried.
    pub tries: u32,
    /// Bytes read from the client, head and body.
    pub bytes_in: u64,
    /// Bytes written to the client, head and body.
    pub bytes_out: u64,
    /// From the request's first byte to the answer's last.
    pub duration: Duration,
    /// From the last try's pick to the end of its response head.
    pub upstream: Option<Duration>,
    /// `X-Request-Id`.
    pub request_id: &'a [u8],
    /// `traceparent`.
    pub traceparent: &'a [u8],
}

/// A worker's end of the access log.
#[derive(Debug)]
pub struct AccessLogger {
    buffer: Vec<u8>,
    lines: u64,
    time: TimeText,
    sender: SyncSender<Message>,
    dropped: Arc<AtomicU64>,
}

impl AccessLogger {
    /// Logs a request.
    pub fn write(&mut self, record: &AccessRecord<'_>, settings: &snapshot::AccessLog) {
        record.format(&mut self.buffer, &mut self.time, settings);
        self.lines += 1;
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush();
        }
    }

    /// Hands over what is there. A worker calls it on its tick, so that a quiet log is not late.
    pub fn flush(&mut self) {
        if self.lines == 0 {
            return;
        }
        let lines = std::mem::take(&mut self.lines);
        let fresh = Vec::with_capacity(BUFFER_BYTES + 1024);
        let text = std::mem::replace(&mut self.buffer, fresh);
        match self.sender.try_send(Message::Lines { text, lines }) {
            Ok(()) => {}
            Err(TrySendError::Full(message) | TrySendError::Disconnected(message)) => {
                self.dropped.fetch_add(lines, Ordering::Relaxed);
                if let Message::Lines { mut text, .. } = message {
                    text.clear();
                    self.buffer = text;
                }
            }
        }
    }
}

impl Drop for AccessLogger {
    fn drop(&mut self) {
        self.flush();
    }
}

impl AccessRecord<'_> {
    fn format(&self, out: &mut Vec<u8>, time: &mut TimeText, settings: &snapshot::AccessLog) {
        out.extend_from_slice(b"{\"time\":\"");
        time.push(out, self.wall);
        out.push(b'"');
        text(out, ",\"listener\":", self.listener.as_bytes());
        if let Some(client) = self.client {
            out.extend_from_slice(b",\"client\":\"");
            push_address(out, client);
            out.push(b'"');
        }
        text(out, ",\"method\":", self.method);
        text(out, ",\"host\":", self.host);
        if !self.target.is_empty() {
            out.extend_from_slice(b",\"target\":\"");
            push_target(out, self.target, settings);
            out.push(b'"');
        }
        text(out, ",\"protocol\":", self.protocol.as_bytes());
        number(out, ",\"status\":", u64::from(self.status));
        if let Some(code) = self.grpc_status {
            number(out, ",\"grpc_status\":", u64::from(code));
        }
        text(
            out,
            ",\"reason\":",
            self.reason.unwrap_or_default().as_bytes(),
        );
        text(
            out,
            ",\"detail\":",
            self.detail.unwrap_or_default().as_bytes(),
        );
        text(out, ",\"route\":", self.route.as_bytes());
        text(out, ",\"pool\":", self.pool.as_bytes());
        text(out, ",\"backend\":", self.backend.as_bytes());
        text(out, ",\"version\":", self.version.as_bytes());
        number(out, ",\"tries\":", u64::from(self.tries));
        number(out, ",\"bytes_in\":", self.bytes_in);
        number(out, ",\"bytes_out\":", self.bytes_out);
        milliseconds(out, ",\"duration_ms\":", self.duration);
        if let Some(upstream) = self.upstream {
            milliseconds(out, ",\"upstream_ms\":", upstream);
        }
        text(out, ",\"request_id\":", self.request_id);
        text(out, ",\"traceparent\":", self.traceparent);
        out.extend_from_slice(b"}\n");
    }
}

// `key` comes with its comma, quotes and colon: inlined, each is a constant of known length.
#[inline]
fn text(out: &mut Vec<u8>, key: &str, value: &[u8]) {
    if !value.is_empty() {
        out.extend_from_slice(key.as_bytes());
        push_string(out, value);
    }
}

#[inline]
fn number(out: &mut Vec<u8>, key: &str, value: u64) {
    out.extend_from_slice(key.as_bytes());
    push_number(out, value);
}

#[inline]
fn milliseconds(out: &mut Vec<u8>, key: &str, value: Duration) {
    out.extend_from_slice(key.as_bytes());
    push_ms(out, value);
}

/// IPv4 without the formatting machinery: it is on each line.
fn push_address(out: &mut Vec<u8>, address: SocketAddr) {
    match address {
        SocketAddr::V4(address) => {
            for (at, octet) in address.ip().octets().into_iter().enumerate() {
                if at > 0 {
                    out.push(b'.');
                }
                push_number(out, u64::from(octet));
            }
            out.push(b':');
            push_number(out, u64::from(address.port()));
        }
        SocketAddr::V6(address) => out.extend_from_slice(address.to_string().as_bytes()),
    }
}

/// The target without what may hold a secret: its query, and a user in its authority (RFC 9110 §4.2.4).
fn push_target(out: &mut Vec<u8>, target: &[u8], settings: &snapshot::AccessLog) {
    let (mut path, query) = match target.iter().position(|byte| *byte == b'?') {
        Some(at) => (&target[..at], Some(&target[at..])),
        None => (target, None),
    };
    if !path.starts_with(b"/") {
        path = without_user(out, path);
    }
    push_escaped(out, path);
    match query {
        Some(query) if settings.query => push_escaped(out, query),
        Some(_) => out.extend_from_slice(b"?-"),
        None => {}
    }
}

/// Writes `http://` of an absolute target and gives what follows its user.
fn without_user<'a>(out: &mut Vec<u8>, target: &'a [u8]) -> &'a [u8] {
    let scheme = target
        .windows(3)
        .position(|window| window == b"://")
        .map_or(0, |at| at + 3);
    let authority = target[scheme..]
        .split(|byte| *byte == b'/')
        .next()
        .unwrap_or_default();
    match authority.iter().rposition(|byte| *byte == b'@') {
        None => target,
        Some(at) => {
            push_escaped(out, &target[..scheme]);
            &target[scheme + at + 1..]
        }
    }
}

#[cfg(test)]
mod tests;

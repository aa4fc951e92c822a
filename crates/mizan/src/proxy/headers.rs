//! Outgoing heads: hop-by-hop fields taken away, forwarding fields set under the trust rule.

use super::h1::field::{self, Field};
use super::h1::request::RequestHead;
use super::h1::response::ResponseHead;
use super::h1::{Framing, Version};
use crate::snapshot::route::HeaderEdits;
use crate::telemetry::json::push_number;
use std::net::IpAddr;

/// Longest `X-Request-Id` that is taken over.
const REQUEST_ID_MAX: usize = 128;
/// The name under which Mizan appears in `Via` (RFC 9110 §7.6.3).
const VIA: &[u8] = b"1.1 mizan";

/// What the forwarding fields say of the client.
#[derive(Clone, Copy, Debug)]
pub struct Forwarding<'a> {
    /// The peer's address as text; `unknown` on a Unix socket.
    pub peer: &'a [u8],
    /// The peer is a proxy whose forwarding fields are believed.
    pub trusted: bool,
    /// Random bits for an identifier and a trace.
    pub random: (u64, u64),
}

/// Writes the head for a backend to `out`. Gives the request's identifier as a range of `out`.
pub fn write_request(
    out: &mut Vec<u8>,
    head: &RequestHead<'_, '_>,
    target: &[u8],
    edits: &HeaderEdits,
    forwarding: &Forwarding<'_>,
) -> std::ops::Range<usize> {
    for part in [head.method.as_bytes(), b" ", target, b" HTTP/1.1\r\n"] {
        out.extend_from_slice(part);
    }
    let mut kept = Kept::default();
    for header in head.headers {
        let name = header.name.as_bytes();
        match field::classify(name) {
            Field::Host => line(out, name, head.authority),
            Field::Connection | Field::HopByHop | Field::Upgrade | Field::IdentityLookalike => {}
            Field::ContentLength | Field::TransferEncoding => line(out, name, header.value),
            // What the route removes or sets is not passed, whatever Mizan would make of it.
            _ if is_edited(edits, header.name) => {}
            Field::Expect if !head.expect_continue => {}
            Field::XForwardedFor => kept.forwarded_for.note(forwarding.trusted, header.value),
            Field::Forwarded => kept.forwarded.note(forwarding.trusted, header.value),
            Field::XForwardedProto if !forwarding.trusted => {}
            Field::XForwardedProto => kept.proto = pass_once(out, name, header.value, kept.proto),
            Field::XForwardedHost if !forwarding.trusted => {}
            Field::XForwardedHost => kept.host = pass_once(out, name, header.value, kept.host),
            Field::XRequestId => {
                if kept.request_id.is_none() && is_request_id(header.value) {
                    kept.request_id = Some(value_range(out, name, header.value));
                }
            }
            Field::Traceparent if !is_traceparent(header.value) => {}
            Field::Traceparent => kept.trace = pass_once(out, name, header.value, kept.trace),
            _ if head.options.lists(header.name) => {}
            _ => line(out, name, header.value),
        }
    }
    kept.leave_out(edits);
    add_forwarding(out, head, forwarding, &kept);
    let request_id = kept.request_id.unwrap_or_else(|| {
        out.extend_from_slice(b"X-Request-Id: ");
        let start = out.len();
        hex(out, forwarding.random.0);
        hex(out, forwarding.random.1);
        let end = out.len();
        out.extend_from_slice(b"\r\n");
        start..end
    });
    add_edits(out, edits);
    out.extend_from_slice(b"\r\n");
    request_id
}

/// Forwarding fields that came with the request.
#[derive(Default)]
struct Kept<'b> {
    forwarded_for: Chain<'b>,
    forwarded: Chain<'b>,
    proto: bool,
    host: bool,
    trace: bool,
    no_forwarded_for: bool,
    no_forwarded: bool,
    no_via: bool,
    request_id: Option<std::ops::Range<usize>>,
}

impl Kept<'_> {
    /// Fields that the route removes or sets are not made either.
    fn leave_out(&mut self, edits: &HeaderEdits) {
        if edits.is_empty() {
            return;
        }
        self.no_forwarded_for = is_edited(edits, "x-forwarded-for");
        self.no_forwarded = is_edited(edits, "forwarded");
        self.proto |= is_edited(edits, "x-forwarded-proto");
        self.host |= is_edited(edits, "x-forwarded-host");
        self.trace |= is_edited(edits, "traceparent");
        self.no_via = is_edited(edits, "via");
        if is_edited(edits, "x-request-id") {
            self.request_id = Some(0..0);
        }
    }
}

/// Values of a list field that is joined with ours: its last eight lines.
#[derive(Default)]
struct Chain<'b> {
    values: [&'b [u8]; 8],
    count: usize,
}

impl<'b> Chain<'b> {
    fn note(&mut self, trusted: bool, value: &'b [u8]) {
        if !trusted {
            return;
        }
        if self.count == self.values.len() {
            // The last lines are those of the nearest proxies: the ones to be believed.
            self.values.rotate_left(1);
            self.count -= 1;
        }
        self.values[self.count] = value;
        self.count += 1;
    }

    fn write(&self, out: &mut Vec<u8>) {
        for value in &self.values[..self.count] {
            out.extend_from_slice(value);
            out.extend_from_slice(b", ");
        }
    }
}

fn add_forwarding(
    out: &mut Vec<u8>,
    head: &RequestHead<'_, '_>,
    forwarding: &Forwarding<'_>,
    kept: &Kept<'_>,
) {
    if !head
        .headers
        .iter()
        .any(|header| header.name.eq_ignore_ascii_case("host"))
    {
        line(out, b"Host", head.authority);
    }
    if !kept.no_forwarded_for {
        out.extend_from_slice(b"X-Forwarded-For: ");
        kept.forwarded_for.write(out);
        out.extend_from_slice(forwarding.peer);
        out.extend_from_slice(b"\r\n");
    }
    if !kept.proto {
        out.extend_from_slice(b"X-Forwarded-Proto: http\r\n");
    }
    if !kept.host {
        line(out, b"X-Forwarded-Host", head.authority);
    }
    if !kept.no_forwarded {
        out.extend_from_slice(b"Forwarded: ");
        kept.forwarded.write(out);
        let quoted = forwarding.peer.contains(&b':');
        out.extend_from_slice(if quoted { b"for=\"[" } else { b"for=" });
        out.extend_from_slice(forwarding.peer);
        out.extend_from_slice(if quoted { b"]\";host=\"" } else { b";host=\"" });
        out.extend_from_slice(head.authority);
        out.extend_from_slice(b"\";proto=http\r\n");
    }
    if !kept.no_via {
        line(out, b"Via", VIA);
    }
    if !kept.trace {
        // W3C Trace Context §3.2: version 00, not sampled: whether to sample is the application's decision.
        out.extend_from_slice(b"traceparent: 00-");
        hex(out, forwarding.random.1);
        hex(out, forwarding.random.0 | 1);
        out.extend_from_slice(b"-");
        hex(
            out,
            forwarding.random.0.rotate_left(17) ^ forwarding.random.1 | 1,
        );
        out.extend_from_slice(b"-00\r\n");
    }
}

/// What a response's head is changed by.
#[derive(Clone, Copy, Debug)]
pub struct ResponseChange<'a> {
    /// The client's version.
    pub version: Version,
    /// The connection to the client ends with this response.
    pub close: bool,
    /// Framing towards the client.
    pub framing: Framing,
    /// `X-Upstream`, where that is on.
    pub upstream: Option<&'a [u8]>,
    /// The route's edits.
    pub edits: &'a HeaderEdits,
}

/// Writes the head for the client to `out`.
pub fn write_response(out: &mut Vec<u8>, head: &ResponseHead<'_, '_>, change: &ResponseChange<'_>) {
    out.extend_from_slice(b"HTTP/1.1 ");
    push_number(out, u64::from(head.status));
    out.push(b' ');
    out.extend_from_slice(head.reason.as_bytes());
    out.extend_from_slice(b"\r\n");
    for header in head.headers {
        let name = header.name.as_bytes();
        match field::classify(name) {
            Field::Connection | Field::HopByHop | Field::Upgrade | Field::TransferEncoding => {}
            // RFC 9110 §8.6: no Content-Length in 1xx and 204.
            Field::ContentLength if head.status < 200 || head.status == 204 => {}
            Field::ContentLength => line(out, name, header.value),
            Field::XUpstream if change.upstream.is_some() => {}
            _ if head.options.lists(header.name) || is_edited(change.edits, header.name) => {}
            _ => line(out, name, header.value),
        }
    }
    if change.framing == Framing::Chunked {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    if let Some(upstream) = change.upstream {
        line(out, b"X-Upstream", upstream);
    }
    connection_line(out, change.version, change.close);
    add_edits(out, change.edits);
    out.extend_from_slice(b"\r\n");
}

/// `Connection`, where the version's default does not say it already.
pub(super) fn connection_line(out: &mut Vec<u8>, version: Version, close: bool) {
    match (version, close) {
        (_, true) => out.extend_from_slice(b"Connection: close\r\n"),
        (Version::Http10, false) => out.extend_from_slice(b"Connection: keep-alive\r\n"),
        (Version::Http11, false) => {}
    }
}

/// The client's address where the peer is trusted: the rightmost entry of `X-Forwarded-For` that is not itself
/// a trusted proxy.
pub(super) fn client_behind(
    head: &RequestHead<'_, '_>,
    trusted: &[ipnet::IpNet],
    peer: IpAddr,
) -> IpAddr {
    let mut client = peer;
    let lines = head
        .headers
        .iter()
        .rev()
        .filter(|header| header.name.eq_ignore_ascii_case("x-forwarded-for"));
    for header in lines {
        for entry in header.value.rsplit(|byte| *byte == b',') {
            if !trusted.iter().any(|network| network.contains(&client)) {
                return client;
            }
            let Some(address) = std::str::from_utf8(field::trim(entry))
                .ok()
                .and_then(|text| text.parse::<IpAddr>().ok())
            else {
                return client;
            };
            client = address.to_canonical();
        }
    }
    client
}

/// One field line.
pub(super) fn line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

fn value_range(out: &mut Vec<u8>, name: &[u8], value: &[u8]) -> std::ops::Range<usize> {
    let start = out.len() + name.len() + 2;
    line(out, name, value);
    start..start + value.len()
}

fn pass_once(out: &mut Vec<u8>, name: &[u8], value: &[u8], seen: bool) -> bool {
    if !seen {
        line(out, name, value);
    }
    true
}

/// Whether the route removes or sets this field, in any spelling that a backend might fold together.
fn is_edited(edits: &HeaderEdits, name: &str) -> bool {
    let same = |edited: &str| {
        edited.len() == name.len()
            && edited
                .bytes()
                .zip(name.bytes())
                .all(|(one, other)| fold(one) == fold(other))
    };
    !edits.is_empty()
        && (edits.remove.iter().any(|removed| same(removed))
            || edits.set.iter().any(|(set, _)| same(set)))
}

/// Case, and `_` for `-`, make no difference to CGI and WSGI.
fn fold(byte: u8) -> u8 {
    if byte == b'_' {
        b'-'
    } else {
        byte.to_ascii_lowercase()
    }
}

/// The fields that a route sets and adds.
pub(super) fn add_edits(out: &mut Vec<u8>, edits: &HeaderEdits) {
    for (name, value) in edits.set.iter().chain(&edits.add) {
        line(out, name.as_bytes(), value.as_bytes());
    }
}

fn is_request_id(value: &[u8]) -> bool {
    !value.is_empty()
        && value.len() <= REQUEST_ID_MAX
        && value
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.+/=:@".contains(byte))
}

/// W3C Trace Context §3.2.2: `00-<32 hex>-<16 hex>-<2 hex>`, neither identifier all zero.
fn is_traceparent(value: &[u8]) -> bool {
    let parts: [&[u8]; 4] = match value.len() {
        55 => [&value[..2], &value[3..35], &value[36..52], &value[53..]],
        _ => return false,
    };
    let hex = |part: &[u8]| {
        part.iter()
            .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte))
    };
    let zero = |part: &[u8]| part.iter().all(|byte| *byte == b'0');
    [2, 35, 52].iter().all(|at| value[*at] == b'-')
        && parts.iter().all(|part| hex(part))
        && !zero(parts[1])
        && !zero(parts[2])
        && parts[0] != b"ff"
}

/// 16 lower-case hex digits.
fn hex(out: &mut Vec<u8>, value: u64) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = [0; 16];
    for (at, digit) in text.iter_mut().enumerate() {
        *digit = DIGITS[(value >> (60 - 4 * at)) as usize & 15];
    }
    out.extend_from_slice(&text);
}

#[cfg(test)]
mod tests;

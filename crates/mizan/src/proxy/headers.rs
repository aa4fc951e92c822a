//! Outgoing heads: hop-by-hop fields taken away, forwarding fields set under the trust rule.

mod seen;

pub(super) use seen::seen;

use super::connection::Downstream;
use crate::certificate::Identity;
use crate::h1::field::{self, Field};
use crate::h1::line::Line;
use crate::h1::request::RequestHead;
use crate::h1::response::ResponseHead;
use crate::h1::{Framing, Version};
use crate::snapshot::route::HeaderEdits;
use crate::snapshot::{IdentityHeaders, is_reserved};
use crate::telemetry::json::push_number;
use std::net::IpAddr;

/// Longest `X-Request-Id` that is taken over.
const REQUEST_ID_MAX: usize = 128;
/// W3C Trace Context §3.2, in the case that it recommends.
const TRACEPARENT: &[u8] = b"traceparent";
/// Room for the fields that Mizan adds, but for a route's.
const ADDED_BYTES: usize = 512;
/// RFC 6797 §6.1.
pub(super) const HSTS: &[u8] = b"Strict-Transport-Security";
/// The name under which Mizan appears in `Via` (RFC 9110 §7.6.3).
const VIA: &[u8] = b"1.1 mizan";
const VIA_HTTP2: &[u8] = b"2.0 mizan";

/// What the forwarding fields say of the client.
#[derive(Clone, Copy, Debug)]
pub struct Forwarding<'a> {
    /// The peer's address as text; `unknown` on a Unix socket.
    pub peer: &'a [u8],
    /// The peer is a proxy whose forwarding fields are believed.
    pub trusted: bool,
    /// The client speaks TLS.
    pub secure: bool,
    /// The client speaks HTTP/2.
    pub http2: bool,
    /// Names that only Mizan may set, in lower case.
    pub reserved: &'a [Box<str>],
    /// What the backend is told of the client's certificate, and by which names.
    pub identity: Option<(&'a IdentityHeaders, Option<&'a Identity>)>,
    /// The protocol that the backend is asked to change to.
    pub upgrade: Option<&'a [u8]>,
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
    out.reserve(head.bytes.len() + ADDED_BYTES);
    let mut passing = Passing::new(head.bytes);
    if is_as_it_came(head, target) {
        passing.start_line(head.lines);
    } else {
        for part in [head.method, b" ", target, b" HTTP/1.1\r\n"] {
            out.extend_from_slice(part);
        }
    }
    let mut kept = Kept::default();
    for line in head.lines {
        let value = line.value;
        match line.field {
            Field::Host if value == head.authority => passing.pass(out, line),
            Field::Host => passing.write(out, line.name, head.authority),
            Field::Connection | Field::HopByHop | Field::Upgrade | Field::IdentityLookalike => {}
            Field::ContentLength | Field::TransferEncoding => passing.pass(out, line),
            // What the route removes or sets is not passed, whatever Mizan would make of it.
            _ if is_edited(edits, line.name) => {}
            Field::Expect if !head.expect_continue => {}
            // Also if `Connection` lists it: who expects 100 waits for it.
            Field::Expect => passing.pass(out, line),
            Field::XForwardedFor => kept.forwarded_for.note(forwarding.trusted, value),
            Field::Forwarded => kept.forwarded.note(forwarding.trusted, value),
            Field::XForwardedProto | Field::XForwardedHost | Field::XRealIp
                if !forwarding.trusted => {}
            Field::XForwardedProto => passing.pass_once(out, line, &mut kept.proto),
            Field::XForwardedHost => passing.pass_once(out, line, &mut kept.host),
            Field::XRequestId => {
                if kept.request_id.is_none() && is_request_id(value) {
                    passing.write(out, line.name, value);
                    let end = out.len() - 2;
                    kept.request_id = Some(end - value.len()..end);
                }
            }
            Field::MaxForwards if head.max_forwards().is_some() => {
                let left = head.max_forwards().unwrap_or_default().saturating_sub(1);
                passing.write(out, line.name, left.to_string().as_bytes());
            }
            Field::Traceparent if !is_traceparent(value) => {}
            Field::Traceparent if kept.trace => {}
            Field::Traceparent => {
                kept.trace = true;
                passing.write(out, TRACEPARENT, value);
            }
            _ if head.is_listed(line.name) => {}
            _ if is_reserved(forwarding.reserved, line.name) => {}
            _ => passing.pass(out, line),
        }
    }
    passing.flush(out);
    kept.leave_out(edits);
    if let Some((names, identity)) = forwarding.identity {
        add_identity(out, names, identity);
    }
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
    if let Some(protocol) = forwarding.upgrade {
        upgrade_lines(out, protocol);
    }
    add_edits(out, edits);
    out.extend_from_slice(b"\r\n");
    request_id
}

/// Whether the start line for the backend is the client's, byte for byte.
fn is_as_it_came(head: &RequestHead<'_, '_>, target: &[u8]) -> bool {
    const AROUND: usize = "  HTTP/1.1\r\n".len();
    head.version == Version::Http11
        && std::ptr::eq(target, head.target)
        // Not of an absolute form.
        && head.method.len() + target.len() + AROUND == start_line_length(head.bytes, head.lines)
}

fn start_line_length(bytes: &[u8], lines: &[Line<'_>]) -> usize {
    lines.first().map_or(bytes.len() - 2, |line| line.at)
}

/// Lines that pass as they came: neighbours are copied in one piece.
struct Passing<'b> {
    bytes: &'b [u8],
    /// To be copied.
    run: std::ops::Range<usize>,
}

impl<'b> Passing<'b> {
    fn new(bytes: &'b [u8]) -> Self {
        Self { bytes, run: 0..0 }
    }

    /// The start line passes.
    fn start_line(&mut self, lines: &[Line<'_>]) {
        self.run = 0..start_line_length(self.bytes, lines);
    }

    /// A field line passes, but for white space that nobody needs.
    fn pass(&mut self, out: &mut Vec<u8>, line: &Line<'_>) {
        let is_plain = line.length == line.name.len() + line.value.len() + ": \r\n".len()
            && self.bytes[line.at + line.name.len() + 1] == b' ';
        if !is_plain {
            self.write(out, line.name, line.value);
        } else if line.at == self.run.end {
            self.run.end += line.length;
        } else {
            self.flush(out);
            self.run = line.at..line.at + line.length;
        }
    }

    /// A field line passes unless one of its name has.
    fn pass_once(&mut self, out: &mut Vec<u8>, line: &Line<'_>, seen: &mut bool) {
        if !std::mem::replace(seen, true) {
            self.pass(out, line);
        }
    }

    /// Another line takes this place.
    fn write(&mut self, out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
        self.flush(out);
        line(out, name, value);
    }

    fn flush(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.bytes[std::mem::take(&mut self.run)]);
    }
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
        self.no_forwarded_for = is_edited(edits, b"x-forwarded-for");
        self.no_forwarded = is_edited(edits, b"forwarded");
        self.proto |= is_edited(edits, b"x-forwarded-proto");
        self.host |= is_edited(edits, b"x-forwarded-host");
        self.trace |= is_edited(edits, b"traceparent");
        self.no_via = is_edited(edits, b"via");
        if is_edited(edits, b"x-request-id") {
            self.request_id = Some(0..0);
        }
    }
}

/// Tells the backend who the client is by its certificate.
fn add_identity(out: &mut Vec<u8>, names: &IdentityHeaders, identity: Option<&Identity>) {
    if let Some(name) = &names.verified {
        line(out, name.as_bytes(), verified(identity).as_bytes());
    }
    let Some(identity) = identity else {
        return;
    };
    let told = [
        (&names.subject, &identity.subject),
        (&names.san, &identity.san),
        (&names.fingerprint, &identity.fingerprint),
    ];
    for (name, value) in told {
        if let Some(name) = name {
            line(out, name.as_bytes(), value.as_bytes());
        }
    }
}

/// Whether a certificate was shown; one that is not valid ends the handshake.
fn verified(identity: Option<&Identity>) -> &'static str {
    if identity.is_some() {
        "SUCCESS"
    } else {
        "NONE"
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
    if !head.has_host {
        line(out, b"Host", head.authority);
    }
    if !kept.no_forwarded_for {
        out.extend_from_slice(b"X-Forwarded-For: ");
        write_forwarded_for(out, &kept.forwarded_for, forwarding);
        out.extend_from_slice(b"\r\n");
    }
    if !kept.proto {
        line(out, b"X-Forwarded-Proto", scheme(forwarding.secure));
    }
    if !kept.host {
        line(out, b"X-Forwarded-Host", head.authority);
    }
    if !kept.no_forwarded {
        out.extend_from_slice(b"Forwarded: ");
        write_forwarded(out, &kept.forwarded, (head, forwarding));
        out.extend_from_slice(b"\r\n");
    }
    if !kept.no_via {
        let via = if forwarding.http2 { VIA_HTTP2 } else { VIA };
        line(out, b"Via", via);
    }
    if !kept.trace {
        // Version 00, not sampled: whether to sample is the application's decision.
        out.extend_from_slice(TRACEPARENT);
        out.extend_from_slice(b": 00-");
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

/// The value of `X-Forwarded-For` for the backend.
fn write_forwarded_for(out: &mut Vec<u8>, kept: &Chain<'_>, forwarding: &Forwarding<'_>) {
    kept.write(out);
    out.extend_from_slice(forwarding.peer);
}

/// The value of `Forwarded` for the backend.
fn write_forwarded(
    out: &mut Vec<u8>,
    kept: &Chain<'_>,
    (head, forwarding): (&RequestHead<'_, '_>, &Forwarding<'_>),
) {
    kept.write(out);
    let quoted = forwarding.peer.contains(&b':');
    out.extend_from_slice(if quoted { b"for=\"[" } else { b"for=" });
    out.extend_from_slice(forwarding.peer);
    out.extend_from_slice(if quoted { b"]\";host=\"" } else { b";host=\"" });
    out.extend_from_slice(head.authority);
    out.extend_from_slice(b"\";proto=");
    out.extend_from_slice(scheme(forwarding.secure));
}

/// The scheme that a client speaks.
pub(super) fn scheme(secure: bool) -> &'static [u8] {
    if secure { b"https" } else { b"http" }
}

fn upgrade_lines(out: &mut Vec<u8>, protocol: &[u8]) {
    out.extend_from_slice(b"Connection: Upgrade\r\n");
    line(out, b"Upgrade", protocol);
}

/// The value of `traceparent` in a head that [`write_request`] wrote; empty if it has none.
pub(super) fn traceparent(head: &[u8]) -> &[u8] {
    value_of(head, b"\ntraceparent: ")
}

/// The protocol that a head asks to change to that [`write_request`] wrote; empty if it asks for none.
pub(super) fn asked_protocol(head: &[u8]) -> &[u8] {
    value_of(head, b"\nUpgrade: ")
}

/// The value behind `line`, the beginning of a line as we write it.
fn value_of<'h>(head: &'h [u8], line: &[u8]) -> &'h [u8] {
    let value = memchr::memmem::find(head, line).map(|at| &head[at + line.len()..]);
    let end = value.and_then(|value| memchr::memchr(b'\r', value));
    value.zip(end).map_or(b"", |(value, end)| &value[..end])
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
    /// `Strict-Transport-Security`, where that is on.
    pub hsts: Option<&'a str>,
    /// `X-Upstream`, where that is on.
    pub upstream: Option<&'a [u8]>,
    /// The route's edits.
    pub edits: &'a HeaderEdits,
}

/// Writes the head for the client to `out`.
pub fn write_response(out: &mut Vec<u8>, head: &ResponseHead<'_, '_>, change: &ResponseChange<'_>) {
    out.reserve(head.bytes.len() + ADDED_BYTES);
    let mut passing = Passing::new(head.bytes);
    if head.version == Version::Http11 && head.bytes.get(12) == Some(&b' ') {
        passing.start_line(head.lines);
    } else {
        out.extend_from_slice(b"HTTP/1.1 ");
        push_number(out, u64::from(head.status));
        out.push(b' ');
        out.extend_from_slice(head.reason);
        out.extend_from_slice(b"\r\n");
    }
    for line in head.lines {
        match line.field {
            Field::Connection | Field::HopByHop | Field::Upgrade | Field::TransferEncoding => {}
            // RFC 9110 §8.6: no Content-Length in 1xx and 204.
            Field::ContentLength if head.status < 200 || head.status == 204 => {}
            Field::ContentLength => passing.pass(out, line),
            Field::XUpstream if change.upstream.is_some() => {}
            // Between a backend and its balancer: whoever stands in front would weight Mizan by it.
            Field::LoadReport | Field::LoadReportBinary => {}
            Field::Other if change.hsts.is_some() && line.name.eq_ignore_ascii_case(HSTS) => {}
            _ if head.is_listed(line.name) || is_edited(change.edits, line.name) => {}
            _ => passing.pass(out, line),
        }
    }
    passing.flush(out);
    if head.status == 101
        && let Some(protocol) = head.upgrade()
    {
        upgrade_lines(out, protocol);
    }
    if change.framing == Framing::Chunked {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    if let Some(hsts) = change.hsts {
        line(out, HSTS, hsts.as_bytes());
    }
    if let Some(upstream) = change.upstream {
        line(out, b"X-Upstream", upstream);
    }
    connection_line(out, change.version, change.close);
    add_edits(out, change.edits);
    out.extend_from_slice(b"\r\n");
}

/// What a listener has to say of TLS in each answer.
pub(super) fn hsts(down: &Downstream) -> Option<&str> {
    // A connection from before its listener spoke TLS goes on in the clear, where it must not be said (RFC 6797 §7.2).
    let tls = down.listener.tls.as_ref().filter(|_| down.secure);
    tls?.hsts.as_deref()
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
pub(super) fn client_behind(lines: &[Line<'_>], trusted: &[ipnet::IpNet], peer: IpAddr) -> IpAddr {
    let mut client = peer;
    let lines = lines.iter().rev();
    let lines = lines.filter(|line| line.field == Field::XForwardedFor);
    for line in lines {
        for entry in line.value.rsplit(|byte| *byte == b',') {
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

/// The client's address behind `depth` proxies, each of which adds the one it was called by: that many entries of
/// `X-Forwarded-For` from the right. With fewer entries than that, or with something else in their place, nobody says
/// who the client is, and it is `peer`.
pub(super) fn client_at(lines: &[Line<'_>], depth: u32, peer: IpAddr) -> IpAddr {
    let lines = lines.iter().rev();
    let lines = lines.filter(|line| line.field == Field::XForwardedFor);
    let mut entries = lines.flat_map(|line| line.value.rsplit(|byte| *byte == b','));
    let entry = entries.nth(depth as usize - 1);
    let text = entry.and_then(|entry| std::str::from_utf8(field::trim(entry)).ok());
    let address = text.and_then(|text| text.parse::<IpAddr>().ok());
    address.map_or(peer, |address| address.to_canonical())
}

/// One field line.
pub(super) fn line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Whether the route removes or sets this field, in any spelling that a backend might fold together.
fn is_edited(edits: &HeaderEdits, name: &[u8]) -> bool {
    let same = |edited: &str| field::is_same_folded(edited.as_bytes(), name);
    !edits.is_empty()
        && (edits.remove.iter().any(|removed| same(removed))
            || edits.set.iter().any(|(set, _)| same(set)))
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
    let mut text = [0; 16];
    text[..8].copy_from_slice(&hex_of((value >> 32) as u32));
    text[8..].copy_from_slice(&hex_of(value as u32));
    out.extend_from_slice(&text);
}

/// 8 digits at once: each nibble in a byte of its own, then `0` and, from ten up, the distance to `a` added.
fn hex_of(value: u32) -> [u8; 8] {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let mut nibbles = u64::from(value);
    nibbles = (nibbles | nibbles << 16) & 0x0000_ffff_0000_ffff;
    nibbles = (nibbles | nibbles << 8) & 0x00ff_00ff_00ff_00ff;
    nibbles = (nibbles | nibbles << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    let is_letter = (nibbles + ONES * 6) >> 4 & ONES;
    (nibbles + ONES * u64::from(b'0') + is_letter * u64::from(b'a' - b'0' - 10)).to_be_bytes()
}

#[cfg(test)]
mod tests;

//! From a request's head to what shall be done with it: checks, route, outgoing head. No I/O and no wait.

use super::connection::Downstream;
use super::error::Reason;
use super::grpc;
use super::headers::{self, Forwarding};
use super::http2::grpc_web::Spelling;
use super::worker::{InForce, Worker};
use crate::clock;
use crate::h1::line::{Line, Lines};
use crate::h1::request::{self, RequestHead};
use crate::h1::{FIELDS_MAX, Framing, HeadError, Version, field};
use crate::snapshot::route::{Action, NormalPath, RequestView, Rewrite, Route, Split};
use crate::snapshot::{HashKey, Listener, Pool};
use mizan_core::policy::stable_hash;
use std::borrow::Cow;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

/// What became of a head.
#[derive(Debug)]
pub(super) enum Decision<'s> {
    /// Goes to a backend of this pool.
    Forward(&'s Arc<Route>, &'s Arc<Pool>),
    /// Mizan answers.
    Answer(Option<&'s Arc<Route>>, Reason),
}

/// What of a request outlives the parsing of its head.
#[derive(Debug)]
pub(super) struct Plan {
    /// Length of the client's head; 0 if that was not sound.
    pub(super) head_length: usize,
    /// The head for the backend; ready for every try.
    pub(super) head: Vec<u8>,
    pub(super) version: Version,
    pub(super) framing: Framing,
    /// The connection goes on after this exchange.
    pub(super) keep_alive: bool,
    /// The client asked for that.
    pub(super) wants_keep_alive: bool,
    pub(super) is_head: bool,
    /// May be sent twice (RFC 9110 §9.2.2), or says so itself.
    pub(super) idempotent: bool,
    /// The client waits for 100 before it sends its body.
    pub(super) expects_continue: bool,
    /// The protocol that the client asks to change to.
    pub(super) upgrade: Option<Upgrade>,
    /// It is a call of gRPC.
    pub(super) is_grpc: bool,
    /// It is one of gRPC-Web, and how it is spelt.
    pub(super) web: Option<Spelling>,
    /// How long the client waits, where it says so.
    pub(super) patience: Option<std::time::Duration>,
    pub(super) hash: Option<u64>,
    /// The client's address under the trust rule.
    pub(super) client: Option<IpAddr>,
    /// `X-Request-Id` in `head`.
    pub(super) request_id: Range<usize>,
    /// For the access log; empty unless one is written.
    pub(super) logged: Logged,
    /// `Location` of a redirect.
    pub(super) location: Vec<u8>,
}

/// Pieces of the client's head that the access log shows, one behind the other in one vector that is lent for the
/// request.
#[derive(Debug, Default)]
pub(super) struct Logged {
    pub(super) bytes: Vec<u8>,
    method: usize,
    host: usize,
}

impl Logged {
    fn new(mut bytes: Vec<u8>, [method, authority, target]: [&[u8]; 3]) -> Self {
        for part in [method, authority, target] {
            bytes.extend_from_slice(part);
        }
        Self {
            bytes,
            method: method.len(),
            host: method.len() + authority.len(),
        }
    }

    pub(super) fn method(&self) -> &[u8] {
        &self.bytes[..self.method]
    }

    pub(super) fn host(&self) -> &[u8] {
        &self.bytes[self.method..self.host]
    }

    pub(super) fn target(&self) -> &[u8] {
        &self.bytes[self.host..]
    }
}

/// Another protocol for the rest of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Upgrade {
    /// A WebSocket (RFC 6455).
    WebSocket,
    /// Whose bytes mean nothing here.
    Other,
}

impl Upgrade {
    /// What `protocol` asks for. Another HTTP or TLS is not asked for on: behind it requests would pass that nobody
    /// has looked at.
    pub(super) fn of(method: &[u8], protocol: &[u8]) -> Option<Self> {
        let name = protocol
            .split(|byte| *byte == b'/')
            .next()
            .unwrap_or_default();
        let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
        if is(b"websocket") {
            return (method == b"GET").then_some(Self::WebSocket);
        }
        let is_http = is(b"h2c") || is(b"h2") || is(b"http") || is(b"https") || is(b"tls");
        (!is_http).then_some(Self::Other)
    }
}

impl Plan {
    pub(super) fn new(head: Vec<u8>) -> Self {
        Self {
            head_length: 0,
            head,
            version: Version::Http11,
            framing: Framing::None,
            keep_alive: false,
            wants_keep_alive: false,
            is_head: false,
            idempotent: false,
            expects_continue: false,
            upgrade: None,
            is_grpc: false,
            web: None,
            patience: None,
            hash: None,
            client: None,
            request_id: 0..0,
            logged: Logged::default(),
            location: Vec::new(),
        }
    }
}

impl Plan {
    /// The request's identifier; empty while it goes to no backend.
    pub(super) fn request_id(&self) -> &[u8] {
        self.head.get(self.request_id.clone()).unwrap_or_default()
    }
}

/// Decides on the head `bytes`, and fills `plan`.
pub(super) fn decide<'s>(
    bytes: &[u8],
    down: &Downstream,
    worker: &Worker,
    in_force: &'s InForce,
    plan: &mut Plan,
) -> Decision<'s> {
    let mut lines = Lines::new();
    let error = match request::parse(bytes, &mut lines, limits(down)) {
        Ok(Some(head)) if head.bytes.len() <= down.listener.limits.head_bytes_max => {
            return decide_sound(&head, down, worker, in_force, plan);
        }
        Ok(Some(_)) => HeadError::TooLarge,
        // Its end was seen.
        Ok(None) => HeadError::StartLine,
        Err(error) => error,
    };
    note_unsound(bytes, down, worker, in_force, plan);
    Decision::Answer(None, Reason::Head(error))
}

/// Notes what can be said of a head that is not whole or not sound: who has sent it, and what for.
pub(super) fn note_unsound(
    bytes: &[u8],
    down: &Downstream,
    worker: &Worker,
    in_force: &InForce,
    plan: &mut Plan,
) {
    let mut lines = Lines::new();
    let seen = request::glimpse(bytes, &mut lines, limits(down));
    if seen.is_old {
        plan.version = Version::Http10;
    }
    plan.is_head = seen.method == b"HEAD";
    plan.client = client(&lines, down, down.is_trusted());
    if in_force.snapshot.settings.access_log.is_some() {
        let parts = [seen.method, seen.authority, seen.target];
        plan.logged = Logged::new(worker.scratch(), parts);
    }
}

fn limits(down: &Downstream) -> request::Limits {
    let limits = &down.listener.limits;
    request::Limits {
        headers_max: limits.headers_max.min(FIELDS_MAX),
        target_bytes_max: limits.target_bytes_max,
    }
}

/// The client's address under the trust rule.
fn client(lines: &[Line<'_>], down: &Downstream, trusted: bool) -> Option<IpAddr> {
    let listener = &down.listener;
    let peer = down.peer_address()?;
    Some(if listener.trusted_depth > 0 {
        headers::client_at(lines, listener.trusted_depth, peer)
    } else if trusted {
        headers::client_behind(lines, &listener.trusted, peer)
    } else {
        peer
    })
}

fn decide_sound<'s>(
    head: &RequestHead<'_, '_>,
    down: &Downstream,
    worker: &Worker,
    in_force: &'s InForce,
    plan: &mut Plan,
) -> Decision<'s> {
    plan.head_length = head.bytes.len();
    plan.version = head.version;
    plan.framing = head.framing;
    plan.keep_alive = head.keep_alive;
    plan.wants_keep_alive = head.keep_alive;
    plan.is_head = head.method == b"HEAD";
    plan.expects_continue = head.expect_continue;
    plan.idempotent = matches!(
        head.method,
        b"GET" | b"HEAD" | b"OPTIONS" | b"TRACE" | b"PUT" | b"DELETE"
    ) || head.lines.iter().any(|line| line.is("idempotency-key"));
    if let Some(protocol) = head.upgrade() {
        plan.upgrade = Upgrade::of(head.method, protocol);
    }
    if down.http2 && grpc::is_call(head) {
        plan.is_grpc = true;
        plan.patience = grpc::timeout(head);
    }
    if in_force.snapshot.settings.access_log.is_some() {
        let parts = [head.method, head.authority, head.target];
        plan.logged = Logged::new(worker.scratch(), parts);
    }
    let trusted = down.is_trusted();
    plan.client = client(head.lines, down, trusted);
    route(head, &forwarding(down, trusted), (down, in_force), plan)
}

/// What the backend is told of the client, and routes see of it.
fn forwarding(down: &Downstream, trusted: bool) -> Forwarding<'_> {
    let tls = down.listener.tls.as_ref();
    let identity = down.shown.as_ref().map(|shown| &shown.identity);
    Forwarding {
        peer: down.peer_text(),
        trusted,
        secure: down.secure,
        http2: down.http2,
        reserved: &down.listener.reserved_headers,
        identity: tls
            .and_then(|tls| tls.client_auth.as_ref())
            .map(|auth| (&auth.headers, identity)),
        upgrade: None,
        random: (0, 0),
    }
}

fn route<'s>(
    head: &RequestHead<'_, '_>,
    forwarding: &Forwarding<'_>,
    (down, in_force): (&Downstream, &'s InForce),
    plan: &mut Plan,
) -> Decision<'s> {
    let (raw_path, query) = split_query(head.target);
    let (path, odd) = match NormalPath::parse(raw_path) {
        Ok(parsed) => parsed,
        Err(_) => return Decision::Answer(None, Reason::Path),
    };
    if let Some(port) = down.listener.redirect_to_https {
        location_at_https(&mut plan.location, head, port);
        return Decision::Answer(None, Reason::RedirectToHttps);
    }
    let host = field::split_port(head.authority).0;
    let mut lower = [0; 256];
    let host = lower_host(host, &mut lower);
    let view = View {
        head,
        forwarding,
        host,
        path: path.as_str(),
        query,
        client: plan.client,
    };
    let Some(route) = in_force.snapshot.routes.find(&down.listener.name, &view) else {
        return Decision::Answer(
            None,
            if odd.is_some() {
                Reason::Path
            } else {
                Reason::NoRoute
            },
        );
    };
    if odd.is_some() && !route.allow_odd_path {
        return Decision::Answer(Some(route), Reason::Path);
    }
    if !route.networks.permits(plan.client) {
        return Decision::Answer(Some(route), Reason::Forbidden);
    }
    if is_too_large(plan.framing, route, &down.listener) {
        return Decision::Answer(Some(route), Reason::BodyTooLarge);
    }
    let split = match &route.action {
        Action::Forward(split) => split,
        Action::Redirect { location, .. } => {
            let scheme = headers::scheme(down.secure);
            expand(
                &mut plan.location,
                location,
                (head, scheme),
                raw_path,
                query,
            );
            return Decision::Answer(Some(route), Reason::Redirect);
        }
        Action::Respond { .. } => return Decision::Answer(Some(route), Reason::Respond),
    };
    if route.grpc_web {
        plan.web = grpc::web(head);
        if plan.web.is_some() {
            plan.is_grpc = true;
            plan.patience = grpc::timeout(head);
        }
    }
    if head.max_forwards() == Some(0) {
        return Decision::Answer(Some(route), last_word(head));
    }
    let pool = choose(split, &view);
    plan.hash = pool.hash_key.as_ref().and_then(|key| hash_of(key, &view));
    write_head(head, (path.as_str(), query), forwarding, route, plan);
    Decision::Forward(route, pool)
}

/// What Mizan answers to a request that no further proxy may see.
fn last_word(head: &RequestHead<'_, '_>) -> Reason {
    if head.method == b"TRACE" {
        Reason::Trace
    } else {
        Reason::Options
    }
}

/// Writes the head for the backend.
fn write_head(
    head: &RequestHead<'_, '_>,
    (path, query): (&str, Option<&[u8]>),
    forwarding: &Forwarding<'_>,
    route: &Route,
    plan: &mut Plan,
) {
    let forwarding = Forwarding {
        upgrade: plan.upgrade.and_then(|_| head.upgrade()),
        random: (clock::random(), clock::random()),
        ..*forwarding
    };
    let rewritten;
    let target = match &route.rewrite {
        None => head.target,
        Some(rewrite) => {
            rewritten = rewrite_target(rewrite, route, path, query);
            rewritten.as_slice()
        }
    };
    plan.request_id = headers::write_request(
        &mut plan.head,
        head,
        target,
        &route.request_headers,
        &forwarding,
    );
}

fn split_query(target: &[u8]) -> (&[u8], Option<&[u8]>) {
    match memchr::memchr(b'?', target) {
        Some(at) => (&target[..at], Some(&target[at + 1..])),
        None => (target, None),
    }
}

/// `host` in lower case, in `room`; a longer one than any name can be matches nothing.
fn lower_host<'r>(host: &[u8], room: &'r mut [u8; 256]) -> &'r str {
    let length = host.len().min(room.len());
    room[..length].copy_from_slice(&host[..length]);
    room[..length].make_ascii_lowercase();
    std::str::from_utf8(&room[..length]).unwrap_or("")
}

fn is_too_large(framing: Framing, route: &Route, listener: &Listener) -> bool {
    let most = body_bytes_max(route, listener);
    matches!((framing, most), (Framing::Length(length), Some(most)) if length > most)
}

/// The largest body that this route takes.
pub(super) fn body_bytes_max(route: &Route, listener: &Listener) -> Option<u64> {
    route.body_bytes_max.or(listener.body_bytes_max)
}

fn choose<'s>(split: &'s Split, view: &View<'_, '_, '_>) -> &'s Arc<Pool> {
    if split.pools.len() == 1 {
        return &split.pools[0].0;
    }
    let point = split
        .key
        .as_ref()
        .and_then(|key| hash_of(key, view))
        .unwrap_or_else(clock::random);
    split.choose(point)
}

/// The hash of a request's key: the same in every instance and version. `None` if the request has no such key.
fn hash_of(key: &HashKey, view: &View<'_, '_, '_>) -> Option<u64> {
    match key {
        HashKey::ClientAddress => view.client.map(hash_of_address),
        HashKey::Header(name) => view.header(name).map(|value| stable_hash(&value)),
        HashKey::Path => Some(stable_hash(view.path.as_bytes())),
        HashKey::Query(name) => parameter(view.query?, b'&', name.as_bytes()).map(stable_hash),
        HashKey::Cookie(name) => {
            parameter(&view.header("cookie")?, b';', name.as_bytes()).map(stable_hash)
        }
    }
}

/// The hash of a client by its address.
pub(super) fn hash_of_address(address: IpAddr) -> u64 {
    match address {
        IpAddr::V4(address) => stable_hash(&address.octets()),
        IpAddr::V6(address) => stable_hash(&address.octets()),
    }
}

/// The value of the first `name=value` in `text`, parts parted by `separator`.
fn parameter<'t>(text: &'t [u8], separator: u8, name: &[u8]) -> Option<&'t [u8]> {
    text.split(|byte| *byte == separator)
        .map(field::trim)
        .find_map(|part| {
            part.strip_prefix(name)
                .and_then(|rest| rest.strip_prefix(b"="))
        })
}

/// The target for the backend after a rewrite, query included. What the rewrite yields is made a valid target.
fn rewrite_target(rewrite: &Rewrite, route: &Route, path: &str, query: Option<&[u8]>) -> Vec<u8> {
    use crate::snapshot::route::PathMatch;
    let mut target: Vec<u8> = match (rewrite, &route.path) {
        (Rewrite::Prefix(to), PathMatch::Prefix(from) | PathMatch::Exact(from)) => {
            let rest = path
                .strip_prefix(from.trim_end_matches('/'))
                .unwrap_or(path);
            format!("{}{rest}", to.trim_end_matches('/')).into_bytes()
        }
        (Rewrite::Prefix(to), PathMatch::Regex(_)) => to.clone().into_bytes(),
        (
            Rewrite::Regex {
                pattern,
                replacement,
            },
            _,
        ) => pattern
            .replace(path.as_bytes(), replacement.as_bytes())
            .into_owned(),
    };
    target.retain(|byte| request::is_target_byte(*byte));
    if target.first() != Some(&b'/') {
        target.insert(0, b'/');
    }
    if let Some(query) = query {
        target.push(b'?');
        target.extend_from_slice(query);
    }
    target
}

/// The same target over TLS.
fn location_at_https(out: &mut Vec<u8>, head: &RequestHead<'_, '_>, port: u16) {
    out.extend_from_slice(b"https://");
    out.extend_from_slice(field::split_port(head.authority).0);
    if port != 443 {
        out.extend_from_slice(format!(":{port}").as_bytes());
    }
    // `*` names no place.
    if head.target != b"*" {
        out.extend_from_slice(head.target);
    }
}

/// A redirect's `Location`; the pieces of the request are already free of control bytes.
fn expand(
    out: &mut Vec<u8>,
    template: &str,
    (head, scheme): (&RequestHead<'_, '_>, &[u8]),
    path: &[u8],
    query: Option<&[u8]>,
) {
    let mut rest = template;
    while let Some(at) = rest.find('{') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        rest = &rest[at..];
        let (host, port) = field::split_port(head.authority);
        let has_port = port.is_some_and(|port| !port.is_empty());
        let names: [(&str, &[u8]); 4] = [
            ("{scheme}", scheme),
            ("{host}", host),
            (
                "{port}",
                if has_port {
                    &head.authority[host.len()..]
                } else {
                    b""
                },
            ),
            ("{path}", path),
        ];
        if let Some((name, value)) = names.iter().find(|(name, _)| rest.starts_with(name)) {
            out.extend_from_slice(value);
            rest = &rest[name.len()..];
        } else if let Some(after) = rest.strip_prefix("{query}") {
            if let Some(query) = query {
                out.push(b'?');
                out.extend_from_slice(query);
            }
            rest = after;
        } else {
            out.push(b'{');
            rest = &rest[1..];
        }
    }
    out.extend_from_slice(rest.as_bytes());
}

struct View<'a, 'h, 'b> {
    head: &'a RequestHead<'h, 'b>,
    forwarding: &'a Forwarding<'a>,
    host: &'a str,
    path: &'a str,
    query: Option<&'a [u8]>,
    client: Option<IpAddr>,
}

impl RequestView for View<'_, '_, '_> {
    fn method(&self) -> &[u8] {
        self.head.method
    }

    fn host(&self) -> &str {
        self.host
    }

    fn path(&self) -> &str {
        self.path
    }

    fn query(&self) -> Option<&[u8]> {
        self.query
    }

    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        headers::seen(self.head, name, self.forwarding)
    }

    fn client(&self) -> Option<IpAddr> {
        self.client
    }
}

//! From a request's head to what shall be done with it: checks, route, outgoing head. No I/O and no wait.

use super::connection::Downstream;
use super::error::Reason;
use super::grpc;
use super::headers::{self, Forwarding};
use super::http2::grpc_web::Spelling;
use super::worker::{InForce, Worker};
use crate::clock;
use crate::h1::line::Lines;
use crate::h1::request::{self, RequestHead};
use crate::h1::{FIELDS_MAX, Framing, HeadError, Version, field};
use crate::snapshot::route::{Action, HeaderEdits, NormalPath, RequestView, Rewrite, Route, Split};
use crate::snapshot::{Listener, Pool, Snapshot};
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

mod view;

pub(super) use view::{Sender, View, hash_of, hash_of_address, lower_host, split_query, with_key};

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
    /// The place of its region; 0: the balancer's own.
    pub(super) region: u16,
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
            region: 0,
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
    let scratch = || worker.scratch();
    judge(bytes, &Sender::of(down), &in_force.snapshot, scratch, plan)
}

/// The same for anybody who may send it; `scratch` gives room for what the access log shows.
pub(super) fn judge<'s>(
    bytes: &[u8],
    sender: &Sender<'_>,
    snapshot: &'s Snapshot,
    scratch: impl FnOnce() -> Vec<u8>,
    plan: &mut Plan,
) -> Decision<'s> {
    let mut lines = Lines::new();
    let error = match request::parse(bytes, &mut lines, limits(sender.listener)) {
        Ok(Some(head)) if head.bytes.len() <= sender.listener.limits.head_bytes_max => {
            return decide_sound(&head, sender, snapshot, scratch, plan);
        }
        Ok(Some(_)) => HeadError::TooLarge,
        // Its end was seen.
        Ok(None) => HeadError::StartLine,
        Err(error) => error,
    };
    note(bytes, sender, snapshot, scratch, plan);
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
    let scratch = || worker.scratch();
    note(bytes, &Sender::of(down), &in_force.snapshot, scratch, plan);
}

fn note(
    bytes: &[u8],
    sender: &Sender<'_>,
    snapshot: &Snapshot,
    scratch: impl FnOnce() -> Vec<u8>,
    plan: &mut Plan,
) {
    let mut lines = Lines::new();
    let seen = request::glimpse(bytes, &mut lines, limits(sender.listener));
    if seen.is_old {
        plan.version = Version::Http10;
    }
    plan.is_head = seen.method == b"HEAD";
    plan.client = sender.client(&lines);
    if snapshot.settings.access_log.is_some() {
        let parts = [seen.method, seen.authority, seen.target];
        plan.logged = Logged::new(scratch(), parts);
    }
}

pub(super) fn limits(listener: &Listener) -> request::Limits {
    let limits = &listener.limits;
    request::Limits {
        headers_max: limits.headers_max.min(FIELDS_MAX),
        target_bytes_max: limits.target_bytes_max,
    }
}

fn decide_sound<'s>(
    head: &RequestHead<'_, '_>,
    sender: &Sender<'_>,
    snapshot: &'s Snapshot,
    scratch: impl FnOnce() -> Vec<u8>,
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
    if sender.http2 && grpc::is_call(head) {
        plan.is_grpc = true;
        plan.patience = grpc::timeout(head);
    }
    if snapshot.settings.access_log.is_some() {
        let parts = [head.method, head.authority, head.target];
        plan.logged = Logged::new(scratch(), parts);
    }
    plan.client = sender.client(head.lines);
    route(head, sender, snapshot, plan)
}

fn route<'s>(
    head: &RequestHead<'_, '_>,
    sender: &Sender<'_>,
    snapshot: &'s Snapshot,
    plan: &mut Plan,
) -> Decision<'s> {
    let forwarding = &sender.forwarding();
    let (raw_path, query) = split_query(head.target);
    let (path, odd) = match NormalPath::parse(raw_path) {
        Ok(parsed) => parsed,
        Err(_) => return Decision::Answer(None, Reason::Path),
    };
    if let Some(port) = sender.listener.redirect_to_https {
        location_at_https(&mut plan.location, head, port);
        return Decision::Answer(None, Reason::RedirectToHttps);
    }
    let mut lower = [0; 256];
    let view = View {
        head,
        forwarding,
        host: lower_host(head, &mut lower),
        path: path.as_str(),
        query,
        client: plan.client,
    };
    let Some(route) = snapshot.routes.find(&sender.listener.name, &view) else {
        let is_odd = odd.is_some();
        let reason = if is_odd {
            Reason::Path
        } else {
            Reason::NoRoute
        };
        return Decision::Answer(None, reason);
    };
    if odd.is_some() && !route.allow_odd_path {
        return Decision::Answer(Some(route), Reason::Path);
    }
    if !route.networks.permits(plan.client) {
        return Decision::Answer(Some(route), Reason::Forbidden);
    }
    if is_too_large(plan.framing, route, sender.listener) {
        return Decision::Answer(Some(route), Reason::BodyTooLarge);
    }
    match &route.action {
        Action::Forward(_) => {}
        Action::Redirect { location, .. } => {
            let asked = (head, headers::scheme(sender.secure));
            expand(&mut plan.location, location, asked, raw_path, query);
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
    plan.region = sender.region.unwrap_or_else(|| region(snapshot, &view));
    // Never another region's pools because the own has none.
    let Some(split) = route.split(plan.region.into()) else {
        return Decision::Answer(Some(route), Reason::NoBackend);
    };
    let pool = choose(split, &view, sender.chance);
    plan.hash = pool.hash_key.as_ref().and_then(|key| hash_of(key, &view));
    let edits = header_edits(route, &view);
    let target = (path.as_str(), query);
    write_head(head, target, forwarding, (route, edits), plan);
    Decision::Forward(route, pool)
}

/// The place of the request's region.
fn region(snapshot: &Snapshot, view: &View<'_, '_, '_>) -> u16 {
    let regions = &snapshot.regions;
    if regions.is_single() {
        return 0;
    }
    let named = regions.header().and_then(|name| view.header(name));
    regions.of(named.as_deref(), view.client)
}

/// What Mizan answers to a request that no further proxy may see.
fn last_word(head: &RequestHead<'_, '_>) -> Reason {
    if head.method == b"TRACE" {
        Reason::Trace
    } else {
        Reason::Options
    }
}

/// The route's edits, with the settings of the request's language where backends are offered those.
fn header_edits<'r>(route: &'r Route, view: &View<'_, '_, '_>) -> &'r HeaderEdits {
    let settings = route.varying.as_ref().and_then(|it| it.settings.as_ref());
    let Some(settings) = settings else {
        return &route.request_headers;
    };
    with_key(&settings.language, view, |said| settings.of(Some(said)))
        .unwrap_or_else(|| settings.of(None))
}

/// Writes the head for the backend.
fn write_head(
    head: &RequestHead<'_, '_>,
    (path, query): (&str, Option<&[u8]>),
    forwarding: &Forwarding<'_>,
    (route, edits): (&Route, &HeaderEdits),
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
    plan.request_id = headers::write_request(&mut plan.head, head, target, edits, &forwarding);
}

fn is_too_large(framing: Framing, route: &Route, listener: &Listener) -> bool {
    let most = body_bytes_max(route, listener);
    matches!((framing, most), (Framing::Length(length), Some(most)) if length > most)
}

/// The largest body that this route takes.
pub(super) fn body_bytes_max(route: &Route, listener: &Listener) -> Option<u64> {
    route.body_bytes_max.or(listener.body_bytes_max)
}

fn choose<'s>(split: &'s Split, view: &View<'_, '_, '_>, chance: Option<u64>) -> &'s Arc<Pool> {
    if split.pools.len() == 1 {
        return &split.pools[0].0;
    }
    let point = split
        .key
        .as_ref()
        .and_then(|key| hash_of(key, view))
        .unwrap_or_else(|| chance.unwrap_or_else(clock::random));
    split.choose(point)
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

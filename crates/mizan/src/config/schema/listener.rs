//! `[[listener]]`.

use super::http2::ListenerHttp2;
use super::tls::{ListenerTls, RedirectToHttps};
use super::{NetworkList, OneOrMany};
use crate::config::text::{Bytes, BytesOrUnlimited, FileMode, Text, Time};
use crate::snapshot::Bind;
use crate::snapshot::route::HostMatch;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// A socket that accepts clients.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["bind"]))]
pub(in super::super) struct Listener {
    /// Its name in routes, logs and metrics; unset: the address that it binds, with `udp:` before it over UDP.
    #[schemars(extend("format" = "name"))]
    pub(in super::super) name: Option<String>,
    /// Where it listens; `[::]` takes IPv4 and IPv6.
    pub(in super::super) bind: Option<Text<Bind>>,
    /// What clients speak.
    pub(in super::super) kind: ListenerKind,
    /// With `kind = "tcp"` or `"udp"`: the pool that connections or datagrams are handed to, those that `sni` takes apart.
    pub(in super::super) pool: Option<String>,
    /// With `kind = "tcp"`: pools for TLS clients, by the server name that they ask for. TLS is passed through as it
    /// is; an exact name is taken before a wildcard, and a longer wildcard before a shorter one.
    pub(in super::super) sni: Vec<Sni>,
    /// Peers that say in a PROXY header (version 1 or 2) for whom they connect; unset: nobody's is read.
    pub(in super::super) proxy_protocol: Option<ProxyHeader>,
    /// Mode of a Unix socket's file, which says who may connect; unset: what the umask leaves. Read when the socket is
    /// opened: at start, or when a reload adds the listener.
    pub(in super::super) mode: Option<Text<FileMode>>,
    /// Length of the kernel's accept queue, for each worker. Read when the socket is opened: at start, or when a reload
    /// adds the listener.
    #[schemars(range(min = 1, max = 65_535))]
    pub(in super::super) backlog: u32,
    /// Client connections at once; more wait in the accept queue.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub(in super::super) connections_max: usize,
    /// Of one address, an IPv6 one by its first 64 bits: more are closed at once. Unset: unlimited, for many clients
    /// may stand behind one address.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub(in super::super) connections_per_address_max: Option<usize>,
    /// With `kind = "udp"`: sessions at once over all workers, one for each client's address and port. Datagrams of
    /// further clients are dropped until a session ends.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub(in super::super) sessions_max: usize,
    /// Networks that may connect; empty: all.
    pub(in super::super) allow: NetworkList,
    /// Networks that may not connect; looked at before `allow`.
    pub(in super::super) deny: NetworkList,
    /// Peers whose `X-Forwarded-*` are believed, and whose `Forwarded` is passed on; empty: nobody's. The client is whom
    /// `X-Forwarded-For` names.
    pub(in super::super) trusted_proxies: NetworkList,
    /// How many proxies stand in front whose addresses are not known: the client is that many entries of
    /// `X-Forwarded-For` from the right. Every peer is believed then, so nobody else may reach the listener.
    #[schemars(range(min = 0, max = 16))]
    pub(in super::super) trusted_depth: u32,
    /// Largest request body, or `unlimited`: 413 beyond.
    pub(in super::super) body_max: Text<BytesOrUnlimited>,
    /// Largest request head: 431 beyond.
    #[schemars(extend("x-minimum" = "1KiB", "x-maximum" = "1MiB"))]
    pub(in super::super) head_max: Text<Bytes>,
    /// Most header fields in a request: 431 beyond.
    #[schemars(range(min = 1, max = 256))]
    pub(in super::super) headers_max: usize,
    /// Longest request target: 414 beyond.
    #[schemars(extend("x-minimum" = "256B", "x-maximum" = "1MiB"))]
    pub(in super::super) target_max: Text<Bytes>,
    /// Requests on one connection before it is closed; unset: unlimited.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub(in super::super) requests_per_connection_max: Option<u64>,
    /// Whether answers carry `X-Upstream: BACKEND`, which tells clients about your network.
    pub(in super::super) upstream_header: bool,
    /// TLS; unset: plain.
    pub(in super::super) tls: Option<ListenerTls>,
    /// Whether HTTP/2 is spoken: over TLS by ALPN, in the clear by prior knowledge.
    pub(in super::super) http2: bool,
    /// Limits on it.
    pub(in super::super) http2_limits: ListenerHttp2,
    /// Whether every request is answered 308 with the same target at `https://`; a number is the port of the listener
    /// with TLS, 443 otherwise. Plain listeners only.
    pub(in super::super) redirect_to_https: Option<RedirectToHttps>,
    /// Time-outs towards the client.
    pub(in super::super) timeouts: ListenerTimeouts,
    /// Minimum rates of bodies: slower clients are cut.
    pub(in super::super) min_rate: MinRate,
}

impl Default for Listener {
    fn default() -> Self {
        Self {
            name: None,
            bind: None,
            kind: ListenerKind::Http,
            pool: None,
            sni: Vec::new(),
            proxy_protocol: None,
            mode: None,
            backlog: 4096,
            connections_max: 100_000,
            connections_per_address_max: None,
            sessions_max: 10_000,
            allow: Vec::new(),
            deny: Vec::new(),
            trusted_proxies: Vec::new(),
            trusted_depth: 0,
            body_max: Text::preset("unlimited"),
            head_max: Text::preset("32KiB"),
            headers_max: 100,
            target_max: Text::preset("8KiB"),
            requests_per_connection_max: None,
            upstream_header: false,
            tls: None,
            http2: true,
            http2_limits: ListenerHttp2::default(),
            redirect_to_https: None,
            timeouts: ListenerTimeouts::default(),
            min_rate: MinRate::default(),
        }
    }
}

/// What clients speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(in super::super) enum ListenerKind {
    /// HTTP: requests are sent on by the routes.
    Http,
    /// Anything over TCP: bytes are handed through both ways, and no route is asked.
    Tcp,
    /// Anything over UDP: datagrams are handed through both ways, those of one client to one backend.
    Udp,
}

impl Listener {
    /// What routes, logs and metrics call it.
    pub(in super::super) fn known_as(&self) -> Option<Cow<'_, str>> {
        let bind = self.bind.as_ref().map(|bind| match self.kind {
            // A port has another listener over TCP.
            ListenerKind::Udp => Cow::Owned(format!("udp:{}", bind.text)),
            ListenerKind::Http | ListenerKind::Tcp => Cow::Borrowed(bind.text.as_str()),
        });
        self.name.as_deref().map(Cow::Borrowed).or(bind)
    }
}

/// A pool for the TLS clients that ask for some names.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["names", "pool"]))]
pub(in super::super) struct Sni {
    /// Names, exact or `*.example.org` (any name below it).
    pub(in super::super) names: OneOrMany<Text<HostMatch>>,
    /// Their pool.
    pub(in super::super) pool: Option<String>,
}

/// Peers that say for whom they connect.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["from"]))]
pub(in super::super) struct ProxyHeader {
    /// Networks whose connections must begin with a PROXY header, and whose word is believed. `allow` and `deny` then
    /// hold for the address that it names; `deny` for their own, too.
    pub(in super::super) from: NetworkList,
    /// From the connection's start to the header's end.
    #[schemars(extend("x-minimum" = "10ms", "x-maximum" = "1h"))]
    pub(in super::super) timeout: Text<Time>,
}

impl Default for ProxyHeader {
    fn default() -> Self {
        Self {
            from: Vec::new(),
            timeout: Text::preset("3s"),
        }
    }
}

/// Time-outs towards the client.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in super::super) struct ListenerTimeouts {
    /// From the first byte of a request (or the connection's start) to the end of its head: 408 beyond.
    #[schemars(extend("x-minimum" = "10ms", "x-maximum" = "1h", "x-zero" = "off"))]
    pub(in super::super) header: Text<Time>,
    /// Silence within a request body while Mizan waits for bytes: 408 beyond.
    #[schemars(extend("x-minimum" = "10ms", "x-maximum" = "24h", "x-zero" = "off"))]
    pub(in super::super) body: Text<Time>,
    /// How long a client may take no byte of its answer.
    #[schemars(extend("x-minimum" = "10ms", "x-maximum" = "24h", "x-zero" = "off"))]
    pub(in super::super) send: Text<Time>,
    /// How long a connection may idle between requests.
    #[schemars(extend("x-minimum" = "10ms", "x-maximum" = "24h", "x-zero" = "off"))]
    pub(in super::super) idle: Text<Time>,
    /// How long the answer to a complete request is still worked for once its client has closed its side.
    #[schemars(extend("x-maximum" = "1h"))]
    pub(in super::super) half_close: Text<Time>,
    /// How long a connection that is handed through (TCP, a WebSocket, another upgrade) may be silent, both ways.
    #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "168h", "x-zero" = "off"))]
    pub(in super::super) tunnel_idle: Text<Time>,
    /// How long such a connection may last in all.
    #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "8760h", "x-zero" = "off"))]
    pub(in super::super) tunnel: Text<Time>,
    /// With `kind = "udp"`: how long a client and its backend may be silent before its session ends.
    #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "24h"))]
    pub(in super::super) session_idle: Text<Time>,
}

impl Default for ListenerTimeouts {
    fn default() -> Self {
        Self {
            header: Text::preset("10s"),
            body: Text::preset("30s"),
            send: Text::preset("30s"),
            idle: Text::preset("75s"),
            half_close: Text::preset("1s"),
            tunnel_idle: Text::preset("1h"),
            tunnel: Text::preset("0s"),
            session_idle: Text::preset("30s"),
        }
    }
}

/// Minimum rates of bodies.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in super::super) struct MinRate {
    /// Uploads, in bytes a second; counted only while Mizan is reading.
    #[schemars(extend("x-maximum" = "1GiB", "x-zero" = "off"))]
    pub(in super::super) upload: Text<Bytes>,
    /// Downloads, in bytes a second; counted only while the client leaves bytes unread.
    #[schemars(extend("x-maximum" = "1GiB", "x-zero" = "off"))]
    pub(in super::super) download: Text<Bytes>,
    /// How long a body may be slower.
    #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "1h"))]
    pub(in super::super) grace: Text<Time>,
}

impl Default for MinRate {
    fn default() -> Self {
        Self {
            upload: Text::preset("256B"),
            download: Text::preset("256B"),
            grace: Text::preset("5s"),
        }
    }
}

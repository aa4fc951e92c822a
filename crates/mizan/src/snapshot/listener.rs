//! Listeners: sockets that accept clients, and what holds for a client on them.

use super::route::HostMatch;
use super::tls::ServerTls;
use ipnet::IpNet;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Where a listener listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Bind {
    /// An IP address and port over TCP; `[::]` is dual stack.
    Tcp(SocketAddr),
    /// The same over UDP, whose ports are others.
    Udp(SocketAddr),
    /// A Unix socket, `unix:/path`.
    Unix(PathBuf),
}

impl Bind {
    /// The port of an IP address.
    pub fn port(&self) -> Option<u16> {
        match self {
            Self::Tcp(address) | Self::Udp(address) => Some(address.port()),
            Self::Unix(_) => None,
        }
    }

    /// Whether both are of one protocol and on one port, so that their addresses may overlap.
    pub fn shares_port(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other) && self.port() == other.port()
    }
}

impl std::fmt::Display for Bind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Udp(address) => write!(f, "udp:{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A compiled listener.
#[derive(Clone, Debug, PartialEq)]
pub struct Listener {
    /// Its name: given, or the bind address.
    pub name: Arc<str>,
    /// Its position in [`super::Snapshot::listeners`].
    pub index: usize,
    /// Where it listens.
    pub bind: Bind,
    /// Mode of a Unix socket's file; `None`: what the umask leaves (default).
    pub mode: Option<u32>,
    /// Length of the kernel's accept queue for each worker (default 4,096).
    pub backlog: u32,
    /// Client connections at once; more are left in the accept queue (default 100,000).
    pub connections_max: usize,
    /// Of one address, an IPv6 one by its first 64 bits; more are closed at once. `None`: unlimited (default).
    pub connections_per_address_max: Option<usize>,
    /// Who may connect.
    pub networks: Networks,
    /// Peers whose `X-Forwarded-*` and `Forwarded` are believed; empty: nobody's.
    pub trusted: Vec<IpNet>,
    /// How many proxies stand in front whose addresses are not known; each adds an entry to `X-Forwarded-For`. Their
    /// fields are believed of every peer. 0: none (default).
    pub trusted_depth: u32,
    /// Limits on a request's head.
    pub limits: HeadLimits,
    /// Largest request body in bytes; `None` is unlimited (default).
    pub body_bytes_max: Option<u64>,
    /// Time-outs towards the client.
    pub timeouts: ClientTimeouts,
    /// Minimum body rates.
    pub min_rate: MinRate,
    /// Requests on one connection, then `Connection: close`; `None` is unlimited (default).
    pub requests_per_connection_max: Option<u64>,
    /// Whether answers carry `X-Upstream: <backend>` (off outside the laboratory).
    pub upstream_header: bool,
    /// TLS; `None`: plain.
    pub tls: Option<Arc<ServerTls>>,
    /// HTTP/2.
    pub http2: Http2,
    /// Every request is answered 308 to `https://host[:port]target`, without a port if it is 443; `None`: served here.
    pub redirect_to_https: Option<u16>,
    /// Header fields that only Mizan may set, on any listener: those by which some listener tells backends who a
    /// client's certificate is of. Lower case; taken from every request in every spelling, see [`super::is_reserved`].
    pub reserved_headers: Arc<[Box<str>]>,
    /// What its clients speak.
    pub kind: ListenerKind,
    /// From whom a PROXY header is read; `None`: from nobody.
    pub proxy_header: Option<ProxyHeader>,
}

/// HTTP/2 with clients: over TLS by ALPN, in the clear by prior knowledge (RFC 9113 §3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http2 {
    /// Whether it is spoken (default true).
    pub enabled: bool,
    /// Streams at once on a connection (default 128).
    pub streams_max: u32,
    /// What a client may send on one stream before it is read (default 256 KiB).
    pub window_bytes: u32,
    /// The same for a whole connection (default 8 MiB).
    pub connection_window_bytes: u32,
    /// Streams that the client has reset and that are still being put away; beyond, the connection is closed (default
    /// 20; CVE-2023-44487).
    pub resets_pending_max: usize,
    /// Streams that a client may take back within a second before they are answered; beyond, its connection is closed
    /// (default 100).
    pub resets_per_second_max: u32,
    /// Frames that move no stream (PING, SETTINGS, PRIORITY, unknown kinds, updates of windows that nothing was sent in),
    /// beyond two for each request; with more within a second the connection is closed (default 3000).
    pub control_frames_per_second_max: u32,
    /// Age at which a connection is told to go, ± 10 %; zero: never (default).
    pub age_max: Duration,
    /// Whether clients with open streams still live.
    pub ping: Ping,
}

/// Pings to a peer of HTTP/2 on whom streams wait (RFC 9113 §6.7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ping {
    /// Between two (default 30 s); zero: none are sent.
    pub interval: Duration,
    /// A peer that takes longer to answer is dead (default 10 s).
    pub timeout: Duration,
}

impl Default for Ping {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(30),
            timeout: Duration::from_secs(10),
        }
    }
}

impl Default for Http2 {
    fn default() -> Self {
        Self {
            enabled: true,
            streams_max: 128,
            window_bytes: 256 << 10,
            connection_window_bytes: 8 << 20,
            resets_pending_max: 20,
            resets_per_second_max: 256,
            control_frames_per_second_max: 3000,
            age_max: Duration::ZERO,
            ping: Ping::default(),
        }
    }
}

impl Listener {
    /// Whether the forwarding fields of a peer at `address` are believed.
    pub fn believes(&self, address: Option<IpAddr>) -> bool {
        self.trusted_depth > 0
            || (!self.trusted.is_empty()
                && address
                    .is_some_and(|peer| self.trusted.iter().any(|network| network.contains(&peer))))
    }

    /// Whether a peer at `address` must begin with a PROXY header.
    pub fn wants_proxy_header(&self, address: Option<IpAddr>) -> bool {
        let (Some(header), Some(address)) = (&self.proxy_header, address) else {
            return false;
        };
        let address = address.to_canonical();
        header.from.iter().any(|network| network.contains(&address))
    }
}

impl Listener {
    /// Pools that it hands connections to, by name.
    pub fn pool_names(&self) -> impl Iterator<Item = &Arc<str>> {
        let (names, pool): (&[_], _) = match &self.kind {
            ListenerKind::Http => (&[], None),
            ListenerKind::Tcp(passthrough) => (&passthrough.names, passthrough.pool.as_ref()),
            ListenerKind::Udp(datagrams) => (&[], Some(&datagrams.pool)),
        };
        names.iter().map(|(_, pool)| pool).chain(pool)
    }
}

/// What is spoken on a listener.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum ListenerKind {
    /// HTTP, by the routes (default).
    #[default]
    Http,
    /// Anything over TCP: bytes are handed through to a pool, and no route is asked.
    Tcp(Passthrough),
    /// Anything over UDP: datagrams are handed through to a pool, all of one client's to one backend.
    Udp(Datagrams),
}

/// How datagrams are handed through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagrams {
    /// The pool, by name.
    pub pool: Arc<str>,
    /// Silence both ways after which a client's session ends (default 30 s; never zero).
    pub session_idle: Duration,
    /// Sessions at once over all workers (default 10,000); datagrams of further clients are dropped.
    pub sessions_max: usize,
}

/// Which pool a TCP connection is handed to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Passthrough {
    /// Pools, by name, for the server names that TLS clients ask for. Empty: nothing that a client sends is looked at.
    pub names: Vec<(HostMatch, Arc<str>)>,
    /// The pool, by name, for everyone else; `None`: they are cut off.
    pub pool: Option<Arc<str>>,
}

impl Passthrough {
    /// The name of the pool for clients that ask for `server_name` (lower case): by that name, then by the longest
    /// wildcard, else the one for everyone.
    pub fn pool(&self, server_name: Option<&str>) -> Option<&Arc<str>> {
        let wanted = server_name.unwrap_or_default();
        // RFC 6066 §3 leaves out the dot of the root, some clients do not.
        let wanted = wanted.strip_suffix('.').unwrap_or(wanted);
        let below = |wildcard: &str| {
            let rest = wanted.strip_suffix(wildcard);
            rest.is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
        };
        let fit = |host: &HostMatch| match host {
            HostMatch::Exact(name) if name == wanted => Some(usize::MAX),
            HostMatch::Wildcard(name) if below(name) => Some(name.len()),
            _ => None,
        };
        let by_name = self
            .names
            .iter()
            .filter_map(|(host, pool)| fit(host).map(|length| (length, pool)))
            .max_by_key(|(length, _)| *length);
        by_name.map(|(_, pool)| pool).or(self.pool.as_ref())
    }
}

/// From whom a PROXY header is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyHeader {
    /// Peers that must begin with one; from others none is read.
    pub from: Vec<IpNet>,
    /// From the connection's start to the header's end (default 3 s).
    pub timeout: Duration,
}

/// Allow and deny by network: a denied address loses; with an allow list, only listed addresses pass.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Networks {
    /// Who may; empty: everyone.
    pub allow: Vec<IpNet>,
    /// Who may not; looked at first.
    pub deny: Vec<IpNet>,
}

impl Networks {
    /// Whether `address` may pass. A peer on a Unix socket (`None`) passes unless an allow list is given.
    pub fn permits(&self, address: Option<IpAddr>) -> bool {
        let Some(address) = address.map(|address| address.to_canonical()) else {
            return self.allow.is_empty();
        };
        !self.denies(Some(address))
            && (self.allow.is_empty()
                || self.allow.iter().any(|network| network.contains(&address)))
    }

    /// Whether `address` is among those who may not.
    pub fn denies(&self, address: Option<IpAddr>) -> bool {
        let address = address.map(|address| address.to_canonical());
        address.is_some_and(|address| self.deny.iter().any(|network| network.contains(&address)))
    }
}

/// Limits on a request's head; each breach has its own status (RFC 9110 §15.5, RFC 6585 §5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// Whole head in bytes (default 32 KiB): 431 beyond.
    pub head_bytes_max: usize,
    /// Header fields (default 100): 431 beyond.
    pub headers_max: usize,
    /// Request target in bytes (default 8 KiB): 414 beyond.
    pub target_bytes_max: usize,
}

/// Time-outs towards the client. A zero switches one off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientTimeouts {
    /// From the first byte of a request (or the connection's start) to the end of its head (default 10 s): 408.
    pub header: Duration,
    /// Silence within a request body while Mizan waits for bytes (default 30 s): 408.
    pub body: Duration,
    /// A client that takes no byte of its answer (default 30 s): cut.
    pub send: Duration,
    /// An idle keep-alive connection (default 75 s).
    pub idle: Duration,
    /// After a client's FIN behind a complete request, how long its answer is still worked for (default 1 s).
    pub half_close: Duration,
    /// A tunnel in which nothing moves either way (default 1 h).
    pub tunnel_idle: Duration,
    /// A tunnel in all, however busy (default off).
    pub tunnel: Duration,
}

/// Minimum body rates in bytes per second after a grace; 0 switches one off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MinRate {
    /// Uploads, counted while Mizan is reading (default 256).
    pub upload_bytes_per_second: u64,
    /// Downloads, counted while the client leaves bytes unread (default 256).
    pub download_bytes_per_second: u64,
    /// Time before either is enforced (default 5 s).
    pub grace: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_name_finds_its_pool_before_the_longest_wildcard_and_that_before_the_rest() {
        let name = |host, pool: &str| (host, Arc::from(pool));
        let exact = |host: &str| HostMatch::Exact(host.into());
        let wildcard = |host: &str| HostMatch::Wildcard(host.into());
        let mut passthrough = Passthrough {
            names: vec![
                name(wildcard("example"), "short"),
                name(wildcard("b.example"), "long"),
                name(exact("a.b.example"), "exact"),
            ],
            pool: Some(Arc::from("rest")),
        };
        for (wanted, pool) in [
            (Some("a.b.example"), "exact"),
            (Some("x.b.example"), "long"),
            (Some("x.a.b.example"), "long"),
            (Some("b.example"), "short"),
            (Some("xb.example"), "short"),
            (Some("example"), "rest"),
            (Some(".example"), "rest"),
            (Some("other.test"), "rest"),
            // With its root, as in a zone file.
            (Some("a.b.example."), "exact"),
            (Some("x.b.example."), "long"),
            (Some("b.example.."), "rest"),
            (Some("."), "rest"),
            (None, "rest"),
        ] {
            assert_eq!(
                passthrough.pool(wanted).map(|pool| &**pool),
                Some(pool),
                "{wanted:?}"
            );
        }
        passthrough.pool = None;
        assert_eq!(passthrough.pool(Some("other.test")), None);
    }
}

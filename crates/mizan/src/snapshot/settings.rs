//! Process-wide settings.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Process-wide settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Worker threads (default: one a core). Read at start only.
    pub workers: usize,
    /// Admin API.
    pub admin: Vec<AdminBind>,
    /// `/livez` and `/readyz` (default 127.0.0.1:9901); `None`: off.
    pub health_bind: Option<SocketAddr>,
    /// `/metrics` (default 127.0.0.1:9901); `None`: off.
    pub metrics_bind: Option<SocketAddr>,
    /// Access log; `None`: off.
    pub access_log: Option<AccessLog>,
    /// What happens at SIGTERM.
    pub drain: DrainSettings,
    /// Whether a file change reloads (default true).
    pub reload_watch: bool,
    /// What this balancer is called among others; `None`: by its machine's name.
    pub node: Option<Arc<str>>,
    /// The region that this balancer serves.
    pub region: Arc<str>,
    /// The store of the routing table that balancers share; `None`: there is none.
    pub store: Option<StoreSettings>,
    /// Idle connections to backends in the whole process (default 10,000).
    pub upstream_idle_max: usize,
}

/// One way to the admin API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminBind {
    /// Unix socket, mode 0600.
    Unix(PathBuf),
    /// TCP: with a bearer token only; loopback only until TLS is there.
    Tcp {
        /// Where it listens.
        address: SocketAddr,
        /// The token a caller must show.
        token: String,
    },
}

/// The access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    /// Where lines go.
    pub target: LogTarget,
    /// Whether query strings are logged (default false: `?…` is shown as `?-`).
    pub query: bool,
}

/// Where log lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// Standard output.
    Stdout,
    /// A file, opened for append; reopened at SIGUSR1.
    File(PathBuf),
    /// The log daemon's socket: datagrams as of syslog(3).
    Syslog(PathBuf),
}

/// The drain at SIGTERM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainSettings {
    /// `/readyz` says 503 and new requests are still served (default 15 s; the laboratory 0).
    pub window: Duration,
    /// Then: how long requests in flight may take (default 30 s).
    pub deadline: Duration,
}

/// Where the routing table is that balancers share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreSettings {
    /// The store.
    pub address: StoreAddress,
    /// Which of the tables in it.
    pub namespace: Arc<str>,
    /// TLS towards etcd.
    pub tls: Option<StoreTls>,
    /// Who we are to etcd, unless the client certificate says so.
    pub user: Option<String>,
    /// The file whose first line is the password.
    pub password_file: Option<PathBuf>,
    /// The folder where the last good table is kept.
    pub last_good: Option<PathBuf>,
}

impl StoreSettings {
    /// Nothing is said but the store's address.
    pub fn at(address: StoreAddress) -> Self {
        Self {
            address,
            namespace: Arc::from("default"),
            tls: None,
            user: None,
            password_file: None,
            last_good: None,
        }
    }
}

/// A store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreAddress {
    /// In a folder of this machine, which one process has.
    Embedded(PathBuf),
    /// etcd, as `etcd://HOST:PORT,…` or `etcds://…`.
    Etcd(String),
    /// That of a running instance of this machine, through the Unix socket of its admin API.
    Instance(PathBuf),
}

/// As the file has it.
impl std::fmt::Display for StoreAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Embedded(folder) => write!(f, "embedded:{}", folder.display()),
            Self::Etcd(address) => f.write_str(address),
            Self::Instance(socket) => write!(f, "instance:{}", socket.display()),
        }
    }
}

/// Files of TLS towards etcd (PEM), and the name that the members' certificates are for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreTls {
    /// The authorities that are trusted; `None`: the system's.
    pub roots: Option<PathBuf>,
    /// Our certificate, with those that lead to the authority.
    pub cert: Option<PathBuf>,
    /// Its key.
    pub key: Option<PathBuf>,
    /// `None`: each member's host.
    pub server_name: Option<String>,
}

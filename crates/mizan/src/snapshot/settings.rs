//! Process-wide settings.

use std::net::SocketAddr;
use std::path::PathBuf;
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

//! The configuration that the laboratory writes and runs.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Probes that a backend must pass to come back, and the interval between them: what the drill counts on.
pub(super) const RISE: u64 = 2;

/// Name of the pool.
pub(super) const POOL: &str = "lab";

/// What varies in it.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) proxy: SocketAddr,
    /// `/livez`, `/readyz`, `/metrics`.
    pub(super) metrics: SocketAddr,
    pub(super) admin: PathBuf,
    pub(super) policy: Policy,
    pub(super) backends: Vec<SocketAddr>,
}

/// The policies that the drill plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    RoundRobin,
    LeastConnections,
    /// By the client's address.
    ConsistentHash,
}

impl Policy {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::RoundRobin => "round_robin",
            Self::LeastConnections => "least_connections",
            Self::ConsistentHash => "consistent_hash",
        }
    }
}

impl Setup {
    /// As a file.
    pub(super) fn to_toml(&self) -> String {
        let mut backends = String::new();
        for backend in &self.backends {
            // Writing to a String cannot fail.
            let _ = write!(
                backends,
                "{}\"{backend}\"",
                if backends.is_empty() { "" } else { ", " }
            );
        }
        let hash_key = if self.policy == Policy::ConsistentHash {
            "hash_key = \"client_address\"\n"
        } else {
            ""
        };
        format!(
            r#"[[listener]]
bind = "{proxy}"
upstream_header = true

[[route]]
pool = "{POOL}"

[pool.{POOL}]
policy = "{policy}"
{hash_key}health = {{ path = "/healthz", interval = "500ms", timeout = "300ms", fall = 2, rise = {RISE} }}
backends = [{backends}]

[drain]
window = "0s"
deadline = "10s"

[health]
bind = "{metrics}"

[metrics]
bind = "{metrics}"

[admin]
socket = {admin}
"#,
            proxy = self.proxy,
            policy = self.policy.name(),
            metrics = self.metrics,
            admin = toml::Value::String(self.admin.to_string_lossy().into_owned()),
        )
    }
}

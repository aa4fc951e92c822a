//! TLS towards clients and backends, compiled: keys read, chains checked, ready for a handshake.

use rustls::pki_types::ServerName;
use std::sync::Arc;
use std::time::Duration;

/// TLS towards clients, on one listener.
#[derive(Clone, Debug)]
pub struct ServerTls {
    /// Certificates by SNI, versions, groups, ALPN, client authentication, tickets.
    pub config: Arc<rustls::ServerConfig>,
    /// From the connection's start to the end of the handshake (default 10 s).
    pub handshake: Duration,
}

/// TLS towards the backends of one pool.
#[derive(Clone, Debug)]
pub struct ClientTls {
    /// Roots, client certificate, versions, ALPN, session cache.
    pub config: Arc<rustls::ClientConfig>,
    /// The name that is sent as SNI and that the certificate must hold; `None`: the backend's host name as written, or
    /// its address.
    pub server_name: Option<ServerName<'static>>,
    /// From the connection to the end of the handshake (default 5 s).
    pub handshake: Duration,
}

impl PartialEq for ServerTls {
    /// Two that were compiled apart are not equal, whatever they hold: keys are not compared.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.config, &other.config) && self.handshake == other.handshake
    }
}

impl PartialEq for ClientTls {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.config, &other.config)
            && self.server_name == other.server_name
            && self.handshake == other.handshake
    }
}

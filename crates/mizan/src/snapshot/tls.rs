//! TLS towards clients and backends, compiled: keys read, chains checked, ready for a handshake.

mod certificates;

pub use certificates::{Certificate, CertificateChoice, KeyChoice};

use mizan_core::backend::Address;
use rustls::pki_types::ServerName;
use rustls::server::ProducesTickets;
use rustls::server::danger::ClientCertVerifier;
use std::sync::Arc;
use std::time::Duration;

/// SHA-256 of what something was made of, settings and contents of files.
pub type MadeOf = [u8; 32];

/// TLS towards clients, on one listener.
#[derive(Clone, Debug)]
pub struct ServerTls {
    /// Certificates by SNI, versions, groups, ALPN, client authentication, tickets.
    pub config: Arc<rustls::ServerConfig>,
    /// From the connection's start to the end of the handshake (default 10 s).
    pub handshake: Duration,
    /// What is shown to clients, in the order of the file.
    pub certificates: Vec<Certificate>,
    /// Whether a client that asks for a name that no certificate holds is refused (default: it gets the first one).
    /// The alert is `unrecognized_name` (RFC 6066 §3).
    pub strict_sni: bool,
    /// Whether clients show certificates; `None`: they are not asked.
    pub client_auth: Option<ClientAuth>,
    /// Whom they are believed by; there where they are asked.
    pub client_trust: Option<ClientTrust>,
    /// The value of `Strict-Transport-Security` (RFC 6797 §6.1) in every answer; `None`: none is added.
    pub hsts: Option<String>,
    /// What encrypts session tickets; `None`: no resumption.
    pub tickets: Option<Tickets>,
    /// Of all this. A reload that makes the same keeps what is there.
    pub made_of: MadeOf,
}

/// What encrypts session tickets. A reload keeps it as long as its settings, and those of client authentication, stay:
/// a session of a client that was not asked for its certificate must not pass where it would be.
#[derive(Clone, Debug)]
pub struct Tickets {
    /// Encrypts and decrypts.
    pub producer: Arc<dyn ProducesTickets>,
    /// Of the settings of tickets and of client authentication, and their files.
    pub made_of: MadeOf,
    /// Whether keys for it come from the store.
    pub is_shared_by_store: bool,
}

/// Which certificates of clients are believed.
#[derive(Clone, Debug)]
pub struct ClientTrust {
    /// Checks one against roots and revocation lists: at the handshake, and anew for a connection whose handshake was
    /// made before a reload that changed them.
    pub verifier: Arc<dyn ClientCertVerifier>,
    /// Of the settings of client authentication and their files.
    pub made_of: MadeOf,
}

/// Clients show certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAuth {
    /// What becomes of a client without one. One that is not valid ends the handshake in either case.
    pub mode: ClientAuthMode,
    /// How backends are told who it is.
    pub headers: IdentityHeaders,
}

/// What becomes of a client that shows no certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAuthMode {
    /// The handshake fails.
    Required,
    /// It is served, and backends are told that it showed none.
    Optional,
}

/// The request headers that tell a backend who the client is; names in lower case. `None`: not told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityHeaders {
    /// `SUCCESS`, or `NONE` if the client showed no certificate.
    pub verified: Option<String>,
    /// The subject as of RFC 4514.
    pub subject: Option<String>,
    /// The alternative names.
    pub san: Option<String>,
    /// SHA-256 of the certificate in hex.
    pub fingerprint: Option<String>,
}

impl IdentityHeaders {
    /// The names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        [&self.verified, &self.subject, &self.san, &self.fingerprint]
            .into_iter()
            .filter_map(|name| name.as_deref())
    }
}

/// Whether `name` is one of `reserved` (lower case) however it is spelt: backends that speak CGI or WSGI read
/// `X_Client_Cert` as `X-Client-Cert`.
pub fn is_reserved(reserved: &[Box<str>], name: &[u8]) -> bool {
    let plain = |byte: u8| match byte {
        b'_' => b'-',
        other => other.to_ascii_lowercase(),
    };
    let same = |known: &str| {
        known.len() == name.len() && known.bytes().zip(name).all(|(a, b)| plain(a) == plain(*b))
    };
    reserved.iter().any(|known| same(known))
}

/// TLS towards the backends of one pool.
#[derive(Clone, Debug)]
pub struct ClientTls {
    /// Roots, client certificate, versions, ALPN, session cache.
    pub config: Arc<rustls::ClientConfig>,
    /// The same for TCP that is handed through: without ALPN, for it may speak anything.
    pub tcp_config: Arc<rustls::ClientConfig>,
    /// The same for probes, which speak HTTP/2 where the pool speaks nothing else, and keep no sessions.
    pub probe_config: Arc<rustls::ClientConfig>,
    /// The name that is sent as SNI and that the certificate must hold; `None`: the backend's host name as written, or
    /// its address: see [`ClientTls::name_of`].
    pub server_name: Option<ServerName<'static>>,
    /// From the connection to the end of the handshake (default 5 s).
    pub handshake: Duration,
    /// Of all this. A reload that makes the same keeps what is there, sessions too.
    pub made_of: MadeOf,
}

impl ClientTls {
    /// The name that the certificate of a backend must hold; `key` is its key in the pool. `None` for a Unix socket
    /// without `server_name`, which no configuration has.
    pub fn name_of(&self, key: &str, address: &Address) -> Option<ServerName<'static>> {
        if let Some(name) = &self.server_name {
            return Some(name.clone());
        }
        let Address::Ip(address) = address else {
            return None;
        };
        // The key of a host name's member is `host:port/address`.
        let host = key
            .split_once('/')
            .and_then(|(name, _)| name.rsplit_once(':'))
            .and_then(|(host, _)| ServerName::try_from(host.to_owned()).ok());
        Some(host.unwrap_or_else(|| ServerName::from(address.ip())))
    }
}

impl PartialEq for ServerTls {
    /// Two that were compiled apart are not equal, whatever they hold: keys are not compared.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.config, &other.config) && self.made_of == other.made_of
    }
}

impl PartialEq for ClientTls {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.config, &other.config) && self.made_of == other.made_of
    }
}

#[cfg(test)]
mod tests;

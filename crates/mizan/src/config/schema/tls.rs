//! `[listener.tls]` and `[pool.NAME.tls]`.

use crate::config::text::{HeaderOrOff, Pin, Text, Time, TlsName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// TLS towards clients. Files are relative to the one that names them; a change of one of them reloads.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["certificates"]))]
pub(in super::super) struct ListenerTls {
    /// Certificates, chosen by the name that a client asks for (SNI): the one that holds that name, else one with a
    /// wildcard for its first label, else the first. An ECDSA and an RSA one may hold the same name.
    pub(in super::super) certificates: Vec<CertificateFiles>,
    /// Whether a client that asks for a name that no certificate holds is refused; otherwise it gets the first one.
    pub(in super::super) strict_sni: bool,
    /// Oldest version of TLS.
    pub(in super::super) min_version: TlsVersion,
    /// Newest version of TLS.
    pub(in super::super) max_version: TlsVersion,
    /// Key exchanges, the preferred one first.
    pub(in super::super) groups: Vec<Group>,
    /// From the connection's start to the end of the handshake: closed beyond.
    #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "10m"))]
    pub(in super::super) handshake_timeout: Text<Time>,
    /// Clients show certificates; unset: they are not asked.
    pub(in super::super) client_auth: Option<ClientAuth>,
    /// Session tickets, with which a client that comes again saves half of the handshake: `false` for none, or a table;
    /// unset: with keys of this process alone.
    pub(in super::super) tickets: Option<TicketChoice>,
    /// Answers tell browsers to come over TLS only (`Strict-Transport-Security`); unset: they do not.
    pub(in super::super) hsts: Option<Hsts>,
}

impl Default for ListenerTls {
    fn default() -> Self {
        Self {
            certificates: Vec::new(),
            strict_sni: false,
            min_version: TlsVersion::V12,
            max_version: TlsVersion::V13,
            groups: vec![
                Group::X25519MlKem768,
                Group::X25519,
                Group::Secp256r1,
                Group::Secp384r1,
            ],
            handshake_timeout: Text::preset("10s"),
            client_auth: None,
            tickets: None,
            hsts: None,
        }
    }
}

/// A certificate and its key.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["cert", "key"]))]
pub(in super::super) struct CertificateFiles {
    /// PEM file of the certificate and, behind it, those that lead to a root.
    pub(in super::super) cert: Option<String>,
    /// PEM file of its private key: PKCS#8, PKCS#1 or SEC1, not encrypted.
    pub(in super::super) key: Option<String>,
    /// DER file of an OCSP response, which is sent along unless it has expired when it is read.
    pub(in super::super) ocsp: Option<String>,
}

/// A version of TLS.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[schemars(inline)]
pub(in super::super) enum TlsVersion {
    /// TLS 1.2.
    #[serde(rename = "1.2")]
    V12,
    /// TLS 1.3.
    #[serde(rename = "1.3")]
    V13,
}

/// A key exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(in super::super) enum Group {
    /// X25519 with ML-KEM-768: what is recorded today stays closed to tomorrow's quantum computers.
    X25519MlKem768,
    /// X25519.
    X25519,
    /// NIST P-256.
    Secp256r1,
    /// NIST P-384.
    Secp384r1,
}

/// Clients show certificates.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["roots"]))]
pub(in super::super) struct ClientAuth {
    /// PEM file of the roots that sign clients' certificates.
    pub(in super::super) roots: Option<String>,
    /// What becomes of a client without a certificate. One whose certificate is not valid is refused in any case.
    pub(in super::super) mode: ClientAuthMode,
    /// PEM file of revocation lists, one for each issuer of clients' certificates.
    pub(in super::super) crl: Option<String>,
    /// The headers that tell backends who the client is.
    pub(in super::super) headers: IdentityHeaders,
}

/// What becomes of a client without a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(in super::super) enum ClientAuthMode {
    /// It is refused.
    #[default]
    Required,
    /// It is served, and backends are told.
    Optional,
}

/// The headers that tell backends who the client is. They are taken from requests on every listener, however they are
/// spelt, so that no client can set them itself. `off`: not told.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in super::super) struct IdentityHeaders {
    /// `SUCCESS`, or `NONE` if the client showed no certificate.
    pub(in super::super) verified: Text<HeaderOrOff>,
    /// The certificate's subject, as `CN=alice,O=Example` (RFC 4514).
    pub(in super::super) subject: Text<HeaderOrOff>,
    /// Its alternative names, as `DNS:a.example, URI:spiffe://example/a`.
    pub(in super::super) san: Text<HeaderOrOff>,
    /// Its SHA-256 in hex.
    pub(in super::super) fingerprint: Text<HeaderOrOff>,
}

impl Default for IdentityHeaders {
    fn default() -> Self {
        Self {
            verified: Text::preset("X-Client-Cert-Verified"),
            subject: Text::preset("X-Client-Cert-Subject"),
            san: Text::preset("X-Client-Cert-San"),
            fingerprint: Text::preset("X-Client-Cert-Fingerprint"),
        }
    }
}

/// Session tickets: off, or how.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(in super::super) enum TicketChoice {
    Switch(bool),
    Full(Tickets),
}

/// Session tickets.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in super::super) struct Tickets {
    /// File of ticket keys that several instances share: one a line, 32 random bytes or more in base64 or hex. The first
    /// encrypts, all decrypt. To rotate, put a new one in front. Nobody but its owner may read it. Unset: this process
    /// alone has keys, and changes them every 6 hours.
    pub(in super::super) file: Option<String>,
    /// Name of ticket keys in the store, in place of a file: what stands under `/mizan/NAMESPACE/v1/secrets/tickets/NAME`, in
    /// the form of such a file. While the store has none, this process alone has keys.
    pub(in super::super) store: Option<String>,
}

/// `Strict-Transport-Security`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in super::super) struct Hsts {
    /// How long browsers remember; 0: they forget.
    #[schemars(extend("x-maximum" = "3650d"))]
    pub(in super::super) max_age: Text<Time>,
    /// Whether it holds for all names below, too.
    pub(in super::super) include_subdomains: bool,
    /// Whether browsers may ship with it; needs a `max_age` of a year and `include_subdomains`.
    pub(in super::super) preload: bool,
}

impl Default for Hsts {
    fn default() -> Self {
        Self {
            max_age: Text::preset("365d"),
            include_subdomains: false,
            preload: false,
        }
    }
}

/// Where a plain listener sends its clients.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(in super::super) enum RedirectToHttps {
    Switch(bool),
    Port(#[schemars(range(min = 1, max = 65_535))] u16),
}

impl RedirectToHttps {
    /// The port, if it is on.
    pub(in super::super) fn port(self) -> Option<u16> {
        match self {
            Self::Switch(on) => on.then_some(443),
            Self::Port(port) => Some(port),
        }
    }
}

/// TLS towards backends. An empty table verifies them by the system's roots.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in super::super) struct PoolTls {
    /// Roots that backends' certificates must lead to: a PEM file, or `system`.
    pub(in super::super) roots: String,
    /// The name that is asked for (SNI) and that the certificate must hold; unset: the backend's host name as written,
    /// or its address.
    pub(in super::super) server_name: Option<Text<TlsName>>,
    /// What Mizan shows to backends that ask for a certificate.
    pub(in super::super) client_certificate: Option<ClientCertificate>,
    /// SHA-256 of backends' public keys (SPKI) in base64: one must fit, on top of the verification.
    pub(in super::super) pin_sha256: Vec<Text<Pin>>,
    /// Whether backends' certificates are verified. Without it, and without pins, whoever can answer at a backend's
    /// address can read and change everything.
    pub(in super::super) verify: bool,
    /// Oldest version of TLS.
    pub(in super::super) min_version: TlsVersion,
    /// From the connection to the end of the handshake.
    #[schemars(extend("x-minimum" = "10ms", "x-maximum" = "10m"))]
    pub(in super::super) handshake_timeout: Text<Time>,
}

impl Default for PoolTls {
    fn default() -> Self {
        Self {
            roots: "system".to_owned(),
            server_name: None,
            client_certificate: None,
            pin_sha256: Vec::new(),
            verify: true,
            min_version: TlsVersion::V12,
            handshake_timeout: Text::preset("5s"),
        }
    }
}

/// A certificate of Mizan's own.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["cert", "key"]))]
pub(in super::super) struct ClientCertificate {
    /// PEM file of the certificate and, behind it, those that lead to a root.
    pub(in super::super) cert: Option<String>,
    /// PEM file of its private key: PKCS#8, PKCS#1 or SEC1, not encrypted.
    pub(in super::super) key: Option<String>,
}

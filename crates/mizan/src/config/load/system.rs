//! The system's root certificates.

use super::Fnv;
use rustls::pki_types::CertificateDer;
use toml::de::{DeTable, DeValue};

/// The system's root certificates, as they were when the configuration was read.
#[derive(Debug, PartialEq, Eq)]
pub(in super::super) struct SystemRoots {
    pub(in super::super) certificates: Vec<CertificateDer<'static>>,
    /// Why there are none, or not all.
    pub(in super::super) problem: String,
}

impl SystemRoots {
    pub(in super::super) fn read() -> Self {
        let found = rustls_native_certs::load_native_certs();
        let problems: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
        let problem = match problems.is_empty() {
            true => "none was found".to_owned(),
            false => problems.join("; "),
        };
        Self {
            certificates: found.certs,
            problem,
        }
    }

    pub(in super::super) fn digest_into(&self, hash: &mut Fnv) {
        for certificate in &self.certificates {
            hash.bytes(certificate);
        }
    }
}

/// Whether a pool of that text verifies its backends by the system's roots.
pub(super) fn wants_system_roots(text: &str) -> bool {
    let (table, _) = DeTable::parse_recoverable(text);
    let Some(DeValue::Table(pools)) = table.get_ref().get("pool").map(|pools| pools.get_ref())
    else {
        return false;
    };
    pools.iter().any(|(_, pool)| {
        let tls = match pool.get_ref() {
            DeValue::Table(pool) => pool.get("tls").map(|tls| tls.get_ref()),
            _ => None,
        };
        let Some(DeValue::Table(tls)) = tls else {
            return false;
        };
        match tls.get("roots").map(|roots| roots.get_ref()) {
            Some(DeValue::String(roots)) => roots == "system",
            _ => true,
        }
    })
}

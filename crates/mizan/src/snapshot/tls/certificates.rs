//! Which certificate a client is shown.
//!
//! By the name that it asks for (SNI, RFC 6066 §3): one that holds exactly that name, else one with a wildcard for its
//! first label, else the first of the file. Of several for one name, the first that the client can check: elliptic
//! curves before RSA, because signing with them costs a tenth.

use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{CipherSuite, SignatureAlgorithm, SupportedCipherSuite};
use std::collections::HashMap;
use std::sync::Arc;

/// A certificate as `mizan check` and the metrics tell it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The names that it holds for; wildcards as they stand in it.
    pub names: Vec<String>,
    /// Until when it holds, in seconds since 1970.
    pub not_after: i64,
    /// What its key is, such as `ECDSA` or `RSA 2048`.
    pub key: String,
}

/// A certificate with its key, and what it is shown for.
#[derive(Clone, Debug)]
pub struct KeyChoice {
    /// The chain and the key.
    pub certified: Arc<CertifiedKey>,
    /// The names that it holds for, in lower case.
    pub names: Vec<String>,
    /// Whether its dates hold now: one that does not is shown only for want of a better one.
    pub is_current: bool,
}

/// All certificates of a listener.
#[derive(Debug)]
pub struct CertificateChoice {
    by_name: HashMap<String, Vec<Arc<CertifiedKey>>>,
    /// By what follows the first label: `example.org` for `*.example.org`.
    by_wildcard: HashMap<String, Vec<Arc<CertifiedKey>>>,
    /// For clients that ask for no name, or for an unknown one.
    others: Vec<Arc<CertifiedKey>>,
    is_strict: bool,
    suites: Vec<SupportedCipherSuite>,
}

impl CertificateChoice {
    /// Among `choices`, the first of which is for clients that ask for no name. If `is_strict`, one that asks for an
    /// unknown name gets none.
    pub fn new(choices: &[KeyChoice], is_strict: bool, provider: &CryptoProvider) -> Self {
        let mut order: Vec<&KeyChoice> = choices.iter().collect();
        order.sort_by_key(|choice| (!choice.is_current, rank(&choice.certified)));
        let (mut by_name, mut by_wildcard) = (HashMap::new(), HashMap::new());
        for choice in &order {
            for name in &choice.names {
                let (map, name) = match name.strip_prefix("*.") {
                    Some(rest) => (&mut by_wildcard, rest),
                    None => (&mut by_name, name.as_str()),
                };
                let list: &mut Vec<_> = map.entry(name.to_owned()).or_default();
                if !list.iter().any(|key| Arc::ptr_eq(key, &choice.certified)) {
                    list.push(Arc::clone(&choice.certified));
                }
            }
        }
        // The first entry, and what stands beside it for the same names.
        let is_beside = |choice: &&&KeyChoice| {
            choices.first().is_some_and(|first| {
                Arc::ptr_eq(&first.certified, &choice.certified)
                    || choice.names.iter().any(|name| first.names.contains(name))
            })
        };
        let others = order.iter().filter(is_beside);
        let others = others.map(|choice| Arc::clone(&choice.certified)).collect();
        Self {
            by_name,
            by_wildcard,
            others,
            is_strict,
            suites: provider.cipher_suites.clone(),
        }
    }

    /// What may be shown to a client that asks for `name`, the best first.
    pub fn for_name(&self, name: Option<&str>) -> &[Arc<CertifiedKey>] {
        let Some(name) = name else {
            return &self.others;
        };
        let name = name.to_ascii_lowercase();
        let name = name.trim_end_matches('.');
        if let Some(found) = self.by_name.get(name) {
            return found;
        }
        let wildcard = name
            .split_once('.')
            .filter(|(label, _)| !label.is_empty())
            .and_then(|(_, rest)| self.by_wildcard.get(rest));
        match wildcard {
            Some(found) => found,
            None if self.is_strict => &[],
            None => &self.others,
        }
    }

    /// Whether a client that offers these can check a signature of `key`.
    fn can_check(&self, key: &CertifiedKey, hello: &ClientHello<'_>) -> bool {
        let algorithm = key.key.algorithm();
        // In TLS 1.2 the cipher suite names the kind of key as well.
        let allows = |offered: &CipherSuite| {
            let known = self.suites.iter().find(|known| known.suite() == *offered);
            known.is_some_and(|suite| suite.usable_for_signature_algorithm(algorithm))
        };
        let schemes = hello.signature_schemes();
        key.key.choose_scheme(schemes).is_some() && hello.cipher_suites().iter().any(allows)
    }
}

impl ResolvesServerCert for CertificateChoice {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let found = self.for_name(hello.server_name());
        let checked = found.iter().find(|key| self.can_check(key, &hello));
        // Where none fits, the handshake fails on the first one with the alert that says so.
        checked.or(found.first()).cloned()
    }
}

/// Fast signatures that every client knows come first, RSA last.
fn rank(key: &CertifiedKey) -> u8 {
    match key.key.algorithm() {
        SignatureAlgorithm::ECDSA => 0,
        SignatureAlgorithm::RSA => 2,
        _ => 1,
    }
}

//! TLS towards backends: `[pool.NAME.tls]`.

use super::files::Roots;
use super::server::versions;
use super::verifier::Verifier;
use super::{Made, files, provider};
use crate::config::report::Cx;
use crate::config::schema::{Pool, PoolTls, Protocol, TlsVersion};
use crate::config::tree::At;
use crate::snapshot::ClientTls;
use rustls::client::danger::ServerCertVerifier;
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::{ClientConfig, RootCertStore};
use std::sync::Arc;

/// Sessions kept for resumption, at least and at most.
const SESSIONS: (usize, usize) = (64, 4096);

/// `None`: something is wrong, and told.
pub(super) fn compile(
    cx: &mut Cx<'_>,
    pool: &Pool,
    from: &PoolTls,
    at: &At<'_>,
) -> Option<ClientTls> {
    let provider = Arc::new(provider());
    let mut made = Made::of(&(from, pool.protocol, pool.backends.len()));
    let roots = match from.verify {
        true => roots(cx, from, at, &mut made).map(Some),
        false => Some(None),
    };
    let own = match &from.client_certificate {
        Some(_) => files::pair(cx, &at.key("client_certificate"), &provider, &mut made).map(Some),
        None => Some(None),
    };
    let (roots, own) = (roots?, own?);
    let verifier = verifier(cx, from, at, roots, &provider)?;
    let versions = versions(from.min_version, TlsVersion::V13);
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&versions);
    let builder = match builder {
        Ok(builder) => builder,
        Err(error) => {
            let message = format!("these settings leave no handshake possible: {error}");
            cx.error(at, "contradiction", message);
            return None;
        }
    };
    let builder = builder
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match own {
        Some(own) => builder.with_client_cert_resolver(Arc::new(
            rustls::sign::SingleCertAndKey::from(own.certified),
        )),
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = match pool.protocol {
        Protocol::Http1 => vec![b"http/1.1".to_vec()],
        Protocol::Http2 => vec![b"h2".to_vec()],
        Protocol::Auto => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
    };
    let mut probe_config = config.clone();
    if pool.protocol == Protocol::Auto {
        probe_config.alpn_protocols = vec![b"http/1.1".to_vec()];
    }
    probe_config.resumption = Resumption::disabled();
    let mut tcp_config = config.clone();
    tcp_config.alpn_protocols = Vec::new();
    let sessions = (2 * pool.backends.len()).clamp(SESSIONS.0, SESSIONS.1);
    config.resumption = Resumption::in_memory_sessions(sessions);
    tcp_config.resumption = Resumption::in_memory_sessions(sessions);
    Some(ClientTls {
        config: Arc::new(config),
        tcp_config: Arc::new(tcp_config),
        probe_config: Arc::new(probe_config),
        server_name: from.server_name.as_ref().map(|name| name.value.0.clone()),
        handshake: from.handshake_timeout.value.0,
        made_of: made.digest(),
    })
}

fn roots(cx: &mut Cx<'_>, from: &PoolTls, at: &At<'_>, made: &mut Made) -> Option<Roots> {
    if from.roots != "system" {
        return files::roots(cx, &at.key("roots"), made);
    }
    let system = cx.system_roots();
    let mut store = RootCertStore::empty();
    for root in system.iter().flat_map(|roots| &roots.certificates) {
        made.and(root);
        // A system may hold roots of a kind that nothing can be verified by: the others do.
        let _ = store.add(root.clone());
    }
    if store.is_empty() {
        let problem = system
            .as_ref()
            .map_or("they were not read", |roots| roots.problem.as_str());
        let message = format!("this system has no root certificates: {problem}");
        let help = "install `ca-certificates`, or set `roots` to a PEM file";
        cx.error_with(at, "unreadable", message, help);
        return None;
    }
    Some(Roots {
        store: Arc::new(store),
        given: Vec::new(),
        has_authority: true,
    })
}

fn verifier(
    cx: &mut Cx<'_>,
    from: &PoolTls,
    at: &At<'_>,
    roots: Option<Roots>,
    provider: &Arc<CryptoProvider>,
) -> Option<Arc<dyn ServerCertVerifier>> {
    let mut given = Vec::new();
    let chain = match roots {
        None => None,
        Some(roots) => {
            given = roots.given;
            let store = roots.store;
            let builder = WebPkiServerVerifier::builder_with_provider(store, Arc::clone(provider));
            match builder.build() {
                Ok(chain) => Some(chain),
                Err(error) => {
                    let message = format!("backends cannot be verified by these roots: {error}");
                    cx.error(&at.key("roots"), "bad_certificate", message);
                    return None;
                }
            }
        }
    };
    let pins: Vec<_> = from.pin_sha256.iter().map(|pin| pin.value.0).collect();
    Some(match chain {
        Some(chain) if pins.is_empty() && given.is_empty() => chain,
        chain => Arc::new(Verifier {
            chain,
            given,
            pins,
            provider: Arc::clone(provider),
        }),
    })
}

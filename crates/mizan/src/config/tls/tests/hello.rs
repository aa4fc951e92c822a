//! Handshakes in memory.

use super::pki::Pki;
use crate::snapshot::Snapshot;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, Error, HandshakeKind, ServerConfig, ServerConnection,
    SupportedProtocolVersion,
};
use std::sync::Arc;

/// What a handshake came to.
pub(super) struct Met {
    pub(super) client: ClientConnection,
    pub(super) server: ServerConnection,
}

impl Met {
    /// The certificate that the client was shown.
    pub(super) fn shown(&self) -> Vec<u8> {
        let chain = self.client.peer_certificates().expect("a certificate");
        chain[0].to_vec()
    }

    pub(super) fn is_resumed(&self) -> bool {
        self.server.handshake_kind() == Some(HandshakeKind::Resumed)
    }
}

/// Shakes hands; the error is of the side that saw it first.
pub(super) fn shake(
    client: &Arc<ClientConfig>,
    server: &Arc<ServerConfig>,
    name: &str,
) -> Result<Met, Error> {
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    let mut client = ClientConnection::new(Arc::clone(client), name)?;
    let mut server = ServerConnection::new(Arc::clone(server))?;
    // Four flights are more than any handshake has; tickets come with the last.
    for _ in 0..4 {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).expect("memory");
        }
        feed(&bytes, |bytes| server.read_tls(bytes));
        server.process_new_packets()?;
        let mut bytes = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut bytes).expect("memory");
        }
        feed(&bytes, |bytes| client.read_tls(bytes));
        client.process_new_packets()?;
    }
    assert!(!client.is_handshaking() && !server.is_handshaking());
    Ok(Met { client, server })
}

fn feed(mut bytes: &[u8], mut read: impl FnMut(&mut dyn std::io::Read) -> std::io::Result<usize>) {
    while !bytes.is_empty() {
        read(&mut bytes).expect("memory");
    }
}

pub(super) fn server(snapshot: &Snapshot) -> Arc<ServerConfig> {
    let tls = snapshot.listeners[0].tls.as_ref().expect("TLS");
    Arc::clone(&tls.config)
}

/// A client that trusts the root.
pub(super) fn client(pki: &Pki) -> Arc<ClientConfig> {
    client_with(pki, aws_lc_rs::default_provider(), rustls::ALL_VERSIONS)
}

pub(super) fn client_with(
    pki: &Pki,
    provider: CryptoProvider,
    versions: &[&'static SupportedProtocolVersion],
) -> Arc<ClientConfig> {
    let config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(versions)
        .expect("versions")
        .with_root_certificates(pki.roots())
        .with_no_client_auth();
    Arc::new(config)
}

/// A client that shows the certificate `NAME.pem`.
pub(super) fn client_as(pki: &Pki, name: &str) -> Arc<ClientConfig> {
    let pem = pki.read(&format!("{name}.pem"));
    let chain = CertificateDer::pem_slice_iter(pem.as_bytes()).map(|der| der.expect("PEM"));
    let key = pki.read(&format!("{name}.key"));
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("PEM");
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(pki.roots())
        .with_client_auth_cert(chain.take(1).collect(), key)
        .expect("a pair");
    Arc::new(config)
}

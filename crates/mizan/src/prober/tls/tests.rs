use super::super::tests::{check, core, http};
use super::super::{ProbeResult, probe};
use crate::snapshot::{ClientTls, HealthCheck, ProbeKind};
use mizan_core::backend::Address;
use rcgen::{CertificateParams, KeyPair};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// A certificate for that name, its key, and TLS that trusts it.
fn certificate(
    name: &str,
) -> (
    CertificateDer<'static>,
    PrivateKeyDer<'static>,
    Arc<ClientTls>,
) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new([name.to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap().der().clone();
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let config = Arc::new(config);
    let tls = ClientTls {
        config: Arc::clone(&config),
        tcp_config: Arc::clone(&config),
        probe_config: config,
        server_name: None,
        handshake: Duration::from_secs(5),
        made_of: [0; 32],
    };
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    (certificate, key, Arc::new(tls))
}

/// Answers each connection once, over TLS with that certificate; gives its address.
async fn backend(certificate: CertificateDer<'static>, key: PrivateKeyDer<'static>) -> Address {
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // A client that does not trust us ends the handshake.
            let Ok(mut stream) = acceptor.accept(stream).await else {
                continue;
            };
            let mut head = [0; 1024];
            if let Ok(1..) = stream.read(&mut head).await {
                let _ = stream
                    .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                    .await;
                let _ = stream.shutdown().await;
            }
        }
    });
    Address::Ip(address)
}

async fn probed(kind: ProbeKind, address: &Address, tls: Option<Arc<ClientTls>>) -> ProbeResult {
    let check = HealthCheck { tls, ..check(kind) };
    let backend = core(std::slice::from_ref(address)).backends()[0].clone();
    probe(Arc::new(check), backend).await.unwrap()
}

fn reason(result: ProbeResult) -> String {
    match result {
        ProbeResult::Failed { reason, .. } => reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_backend_with_tls_is_probed_by_tls() {
    let (certificate, key, tls) = certificate("127.0.0.1");
    let address = backend(certificate, key).await;
    let passed = probed(http("/"), &address, Some(Arc::clone(&tls))).await;
    assert_eq!(passed, ProbeResult::Passed);
    let connected = probed(ProbeKind::Tcp, &address, Some(tls)).await;
    assert_eq!(connected, ProbeResult::Passed);
    let plain = probed(http("/"), &address, None).await;
    assert!(matches!(plain, ProbeResult::Failed { .. }), "{plain:?}");
}

#[tokio::test]
async fn a_backend_whose_certificate_is_not_valid_is_down() {
    let (certificate_of_backend, key, _) = certificate("127.0.0.1");
    let (_, _, other) = certificate("127.0.0.1");
    let address = backend(certificate_of_backend, key).await;
    for kind in [http("/"), ProbeKind::Tcp] {
        let reason = reason(probed(kind, &address, Some(Arc::clone(&other))).await);
        assert!(reason.starts_with("TLS handshake failed: "), "{reason}");
    }
}

#[tokio::test]
async fn a_backend_of_another_name_is_down() {
    let (certificate, key, tls) = certificate("b.example");
    let address = backend(certificate, key).await;
    let reason = reason(probed(http("/"), &address, Some(Arc::clone(&tls))).await);
    assert!(reason.contains("certificate"), "{reason}");
    let named = ClientTls {
        server_name: Some("b.example".try_into().unwrap()),
        ..(*tls).clone()
    };
    let passed = probed(http("/"), &address, Some(Arc::new(named))).await;
    assert_eq!(passed, ProbeResult::Passed);
}

#[tokio::test]
async fn a_proxy_header_goes_before_the_handshake() {
    use crate::snapshot::ProxyVersion;
    const LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";
    let (_, _, tls) = certificate("127.0.0.1");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = Address::Ip(listener.local_addr().unwrap());
    for kind in [http("/"), ProbeKind::Tcp] {
        let check = HealthCheck {
            tls: Some(Arc::clone(&tls)),
            proxy_protocol: Some(ProxyVersion::V2),
            ..check(kind)
        };
        let backend = core(std::slice::from_ref(&address)).backends()[0].clone();
        let heard = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut heard = vec![0; LOCAL.len() + 1];
            stream.read_exact(&mut heard).await.unwrap();
            heard
        };
        let (heard, _) = tokio::join!(heard, probe(Arc::new(check), backend));
        // Then a record of a handshake.
        assert_eq!(heard, [LOCAL, &[22]].concat());
    }
}

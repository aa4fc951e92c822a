//! What says of certificates that they hold may itself be out of date.

use super::hello::{server, shake};
use super::pki::{Pki, Wish, staple};
use super::{compiled, found, listener};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use std::sync::{Arc, Mutex};

/// Notes what is stapled to a certificate.
#[derive(Debug)]
struct Notes {
    inner: Arc<WebPkiServerVerifier>,
    stapled: Mutex<Vec<u8>>,
}

impl ServerCertVerifier for Notes {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        ocsp_response: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        *self.stapled.lock().expect("one at a time") = ocsp_response.to_vec();
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

/// What a client of `text` is sent along with the certificate.
fn stapled(pki: &Pki, text: &str) -> Vec<u8> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let inner = WebPkiServerVerifier::builder_with_provider(pki.roots(), Arc::clone(&provider));
    let notes = Arc::new(Notes {
        inner: inner.build().expect("it has a root"),
        stapled: Mutex::default(),
    });
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::clone(&notes) as _)
        .with_no_client_auth();
    let (snapshot, _) = compiled(pki, text, None).expect("it compiles");
    shake(&Arc::new(client), &server(&snapshot), "a.example").expect("a handshake");
    notes.stapled.lock().expect("one at a time").clone()
}

fn with_one() -> Pki {
    let pki = Pki::new();
    pki.issue("a", Wish::of(&["a.example"]));
    pki
}

#[test]
fn an_expired_response_is_told_and_not_sent() {
    let pki = with_one();
    let text =
        listener("certificates = [{ cert = \"a.pem\", key = \"a.key\", ocsp = \"a.ocsp\" }]");
    let at = "warning listener[0].tls.certificates[0].ocsp";
    let (fresh, stale) = (staple("20300102000000Z"), staple("20291231000000Z"));
    pki.write("a.ocsp", &fresh);
    assert_eq!(found(&pki, &text), [""; 0]);
    assert_eq!(stapled(&pki, &text), fresh);
    let expired = "this OCSP response has expired on 2029-12-31: it is not sent";
    let refused =
        "the responder gave no account of the certificate in this OCSP response: it is not sent";
    // `tryLater`
    let busy = vec![0x30, 3, 0x0a, 1, 3];
    for (response, told) in [(stale, expired), (busy, refused)] {
        pki.write("a.ocsp", response);
        assert_eq!(found(&pki, &text), [format!("{at}: {told}")]);
        assert_eq!(stapled(&pki, &text), [0; 0]);
    }
}

#[test]
fn a_list_that_is_overdue_is_told() {
    let pki = with_one();
    let text = listener(
        "certificates = [{ cert = \"a.pem\", key = \"a.key\" }]\nclient_auth = { roots = \"ca.pem\", crl = \"crl.pem\" }",
    );
    pki.revoke_until(&[66], 2031);
    assert_eq!(found(&pki, &text), [""; 0]);
    pki.revoke_until(&[66], 2029);
    let told = "warning listener[0].tls.client_auth.crl: revocation list 1 of this file was to be replaced on 2029-01-01: certificates that were revoked since are believed";
    assert_eq!(found(&pki, &text), [told]);
}

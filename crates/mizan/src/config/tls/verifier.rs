//! Whom Mizan takes for a backend.

use crate::certificate::{Digest, Facts};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};
use std::sync::Arc;

/// Asks for what the chain does not say, or does without the chain.
#[derive(Debug)]
pub(super) struct Verifier {
    /// Verifies chain, dates and name; `None`: they are not verified.
    pub(super) chain: Option<Arc<WebPkiServerVerifier>>,
    /// Certificates that are believed as they are: a backend that shows one of them needs nobody to vouch for it.
    pub(super) given: Vec<CertificateDer<'static>>,
    /// SHA-256 of public keys, of which the backend's must be one; empty: any.
    pub(super) pins: Vec<Digest>,
    pub(super) provider: Arc<CryptoProvider>,
}

/// Name and dates of a certificate that is believed: what a self-signed one is often made with (`CA:TRUE`) would forbid
/// its use by a server, if a chain were to be built.
fn stands_for_itself(
    certificate: &CertificateDer<'_>,
    name: &ServerName<'_>,
    now: UnixTime,
) -> Result<(), Error> {
    verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
    let facts = Facts::read(certificate).map_err(|_| CertificateError::BadEncoding)?;
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    if now < facts.not_before {
        return Err(CertificateError::NotValidYet.into());
    }
    if now > facts.not_after {
        return Err(CertificateError::Expired.into());
    }
    Ok(())
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.given.iter().any(|given| given == end_entity) {
            stands_for_itself(end_entity, server_name, now)?;
        } else if let Some(chain) = &self.chain {
            chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)?;
        }
        if !self.pins.is_empty() {
            let facts = Facts::read(end_entity).map_err(|_| CertificateError::BadEncoding)?;
            if !self.pins.contains(&facts.key_pin) {
                return Err(CertificateError::ApplicationVerificationFailure.into());
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    // That the backend has the key of the certificate that it shows is checked in any case: a pin says nothing without.
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}

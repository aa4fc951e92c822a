//! TLS: what is trusted, what is shown, and what its errors mean to people.

use super::options::{ClientCertificate, InvalidOptions, Tls};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore};
use std::sync::Arc;
use tokio_rustls::TlsConnector;

/// What connects as `tls` says.
pub(super) fn connector(tls: &Tls) -> Result<TlsConnector, InvalidOptions> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| InvalidOptions::Tls(error.to_string()))?
        .with_root_certificates(roots(tls)?);
    let mut config = match &tls.client {
        None => builder.with_no_client_auth(),
        Some(client) => {
            let (chain, key) = read_client(client)?;
            builder.with_client_auth_cert(chain, key).map_err(|error| {
                InvalidOptions::Tls(format!("the client certificate and its key: {error}"))
            })?
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

fn roots(tls: &Tls) -> Result<RootCertStore, InvalidOptions> {
    let mut store = RootCertStore::empty();
    let Some(pem) = &tls.roots else {
        let found = rustls_native_certs::load_native_certs();
        store.add_parsable_certificates(found.certs);
        if store.is_empty() {
            return Err(InvalidOptions::Tls(
                "this system has no root certificates (install `ca-certificates`), and none are given".to_owned(),
            ));
        }
        return Ok(store);
    };
    for certificate in certificates(pem, "the root certificates")? {
        store
            .add(certificate)
            .map_err(|error| InvalidOptions::Tls(format!("a root certificate: {error}")))?;
    }
    Ok(store)
}

fn read_client(
    client: &ClientCertificate,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), InvalidOptions> {
    let chain = certificates(&client.chain, "the client certificate")?;
    let key = PrivateKeyDer::from_pem_slice(&client.key).map_err(|error| {
        InvalidOptions::Tls(format!(
            "the client certificate's key is no PEM key: {error}"
        ))
    })?;
    Ok((chain, key))
}

fn certificates(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>, InvalidOptions> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(InvalidOptions::Tls(format!(
            "{what}: there is no `BEGIN CERTIFICATE` in it"
        ))),
        Err(error) => Err(InvalidOptions::Tls(format!("{what}: {error}"))),
    }
}

/// What `error` means, if TLS is what it is about.
pub(super) fn explain(error: &std::io::Error) -> Option<String> {
    let error = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    let text = match error {
        rustls::Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        ) => "its certificate is from an authority that is not trusted here".to_owned(),
        rustls::Error::InvalidCertificate(why) => format!("its certificate is refused: {why}"),
        rustls::Error::InvalidMessage(_) => {
            "it does not speak TLS: then its address begins with `etcd://`, not with `etcds://`"
                .to_owned()
        }
        rustls::Error::AlertReceived(alert) => explain_alert(*alert),
        other => other.to_string(),
    };
    Some(text)
}

fn explain_alert(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::CertificateRequired => {
            "it wants a client certificate, and none is given".to_owned()
        }
        // Go says so where no certificate came over TLS 1.2, and where one is not signed by whom it trusts.
        AlertDescription::BadCertificate => {
            "it wants another client certificate than it got, if it got one".to_owned()
        }
        AlertDescription::UnknownCA
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateExpired => {
            format!("it refuses our client certificate ({alert:?})")
        }
        other => format!("it ended the handshake ({other:?})"),
    }
}

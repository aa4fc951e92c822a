//! TLS of a probe: as the pool speaks it, but with sessions of no use to anybody else.

use super::Fault;
use crate::snapshot::ClientTls;
use mizan_core::backend::Backend;
use rustls::pki_types::ServerName;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// How a backend is spoken to, and whose certificate it must show.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tls<'a> {
    pub(super) settings: &'a ClientTls,
    pub(super) backend: &'a Backend,
}

impl Tls<'_> {
    /// Shakes hands on `stream`.
    pub(super) async fn handshake<S>(&self, stream: S) -> Result<TlsStream<S>, Fault>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let connector = TlsConnector::from(Arc::clone(&self.settings.probe_config));
        let shaken = connector.connect(self.name()?, stream).await;
        shaken.map_err(|error| Fault::io("TLS handshake", &error))
    }

    fn name(&self) -> Result<ServerName<'static>, Fault> {
        let name = self
            .settings
            .name_of(self.backend.key(), self.backend.address());
        name.ok_or_else(|| Fault::Connection("no name for its certificate".to_owned()))
    }
}

#[cfg(test)]
mod tests;

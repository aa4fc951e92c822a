//! Certificates in a folder, and clients that speak TLS.

use super::PATIENCE;
use rcgen::{BasicConstraints, Certificate, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

/// A root in `ca.pem`, and what it signs beside it.
pub(crate) struct Pki {
    folder: tempfile::TempDir,
    issuer: Issuer<'static, KeyPair>,
    root: Certificate,
}

/// An answer over TLS.
pub(crate) struct Secured {
    /// Head and body.
    pub(crate) text: String,
    /// The session went on from an earlier connection.
    pub(crate) is_resumed: bool,
    /// What the other side has shown; a resumed session has it from before.
    pub(crate) certificate: Vec<u8>,
}

impl Pki {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name.push(DnType::CommonName, "root");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = params.self_signed(&key).expect("signed");
        let pki = Self {
            folder: tempfile::tempdir().expect("a folder"),
            issuer: Issuer::new(params, key),
            root,
        };
        pki.replace("ca.pem", &pki.root.pem());
        pki
    }

    /// Writes `NAME.pem`, with the root behind, and `NAME.key`; the certificate holds for `NAME.example`.
    pub(crate) fn issue(&self, name: &str) -> Certificate {
        self.issue_until(name, 2100)
    }

    /// The same with its last year.
    pub(crate) fn issue_until(&self, name: &str, year: i32) -> Certificate {
        let key = KeyPair::generate().expect("a key");
        let names = [format!("{name}.example")];
        let mut params = CertificateParams::new(names).expect("a name");
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let certificate = params.signed_by(&key, &self.issuer).expect("signed");
        self.replace(&format!("{name}.key"), &key.serialize_pem());
        let chain = certificate.pem() + &self.root.pem();
        self.replace(&format!("{name}.pem"), &chain);
        certificate
    }

    /// Puts a file in its place as tools that renew certificates do.
    pub(crate) fn replace(&self, name: &str, text: &str) {
        let new = self.folder().join("new");
        std::fs::write(&new, text).expect("written");
        std::fs::rename(&new, self.folder().join(name)).expect("moved");
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// `{ cert = "…", key = "…" }` of what was issued as `name`.
    pub(crate) fn pair(&self, name: &str) -> String {
        let path = self.folder().join(name);
        let path = path.display();
        format!("{{ cert = \"{path}.pem\", key = \"{path}.key\" }}")
    }

    /// A path for a configuration.
    pub(crate) fn path(&self, name: &str) -> String {
        self.folder().join(name).display().to_string()
    }

    /// A client that trusts the root, and shows the certificate of that name.
    pub(crate) fn client(&self, name: Option<&str>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.root.der().clone()).expect("a root");
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots);
        Arc::new(match name {
            None => config.with_no_client_auth(),
            Some(name) => {
                let chain = CertificateDer::pem_file_iter(self.path(&format!("{name}.pem")));
                let chain = chain.expect("readable").map(|one| one.expect("PEM"));
                let key = PrivateKeyDer::from_pem_file(self.path(&format!("{name}.key")));
                config
                    .with_client_auth_cert(chain.collect(), key.expect("PEM"))
                    .expect("a pair")
            }
        })
    }
}

/// Sends a GET for `path` with these header lines over TLS, as to `name`, and reads to the end.
pub(crate) fn ask_secured(
    config: &Arc<ClientConfig>,
    address: SocketAddr,
    name: &str,
    (path, lines): (&str, &str),
) -> io::Result<Secured> {
    let socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let server = ServerName::try_from(name.to_owned()).expect("a name");
    let session = ClientConnection::new(Arc::clone(config), server).map_err(io::Error::other)?;
    let mut stream = StreamOwned::new(session, socket);
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n{lines}\r\n");
    stream.write_all(request.as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let certificate = stream
        .conn
        .peer_certificates()
        .map(|chain| chain[0].to_vec());
    Ok(Secured {
        text,
        is_resumed: stream.conn.handshake_kind() == Some(HandshakeKind::Resumed),
        certificate: certificate.unwrap_or_default(),
    })
}

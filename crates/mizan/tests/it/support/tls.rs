//! Certificates, and relays that put TLS around what speaks in the clear.

use super::h2_client::{H2Client, RUNTIME, run, windows};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair,
};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme,
    SupportedProtocolVersion,
};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;
use tokio::io::{AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

/// Who signs, with a folder for what it signs.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

/// A certificate with its key.
pub(crate) struct Issued {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    /// Its files.
    pub(crate) cert: PathBuf,
    pub(crate) key_file: PathBuf,
    /// SHA-256 of its public key, in base64.
    pub(crate) pin: String,
}

impl Issued {
    pub(crate) fn key(&self) -> PrivateKeyDer<'static> {
        self.key.clone_key()
    }

    /// As an item of `certificates`.
    pub(crate) fn entry(&self) -> String {
        format!("{{ cert = {:?}, key = {:?} }}", self.cert, self.key_file)
    }

    /// What a side shows that asks for nothing, with these protocols by ALPN.
    pub(crate) fn acceptor(&self, protocols: &[&str]) -> ServerConfig {
        let mut config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(self.chain.clone(), self.key())
            .expect("they match");
        config.alpn_protocols = protocols
            .iter()
            .map(|name| name.as_bytes().into())
            .collect();
        config
    }
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let name = &mut params.distinguished_name;
        name.push(DnType::CommonName, "a root of the tests");
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("signed");
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("roots.pem"), issuer.pem()).expect("written");
        Self { issuer, folder }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The file of the root.
    pub(crate) fn roots_file(&self) -> PathBuf {
        self.folder().join("roots.pem")
    }

    /// The root for a verifier.
    pub(crate) fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).expect("a root");
        roots
    }

    /// Issues a certificate for `names`, into files that are called after the first one.
    pub(crate) fn issue(&self, names: &[&str]) -> Issued {
        use data_encoding::BASE64;
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names.clone()).expect("names");
        params
            .distinguished_name
            .push(DnType::CommonName, names[0].clone());
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("signed");
        let file = |extension: &str| self.folder().join(format!("{}.{extension}", names[0]));
        let (cert, key_file) = (file("pem"), file("key"));
        replace(&key_file, &key.serialize_pem());
        replace(&cert, &certificate.pem());
        let spki = rcgen::PublicKeyData::subject_public_key_info(&key);
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &spki);
        Issued {
            chain: vec![certificate.der().clone()],
            key: PrivateKeyDer::try_from(key.serialize_der()).expect("PKCS #8"),
            cert,
            key_file,
            pin: BASE64.encode(digest.as_ref()),
        }
    }

    /// A client that trusts this root, with these protocols by ALPN.
    pub(crate) fn client(&self, protocols: &[&str]) -> ClientConfig {
        let mut config = ClientConfig::builder()
            .with_root_certificates(self.roots())
            .with_no_client_auth();
        config.alpn_protocols = protocols
            .iter()
            .map(|name| name.as_bytes().into())
            .collect();
        config
    }

    /// A client that trusts this root and speaks these versions.
    pub(crate) fn client_of(&self, versions: &[&'static SupportedProtocolVersion]) -> ClientConfig {
        ClientConfig::builder_with_protocol_versions(versions)
            .with_root_certificates(self.roots())
            .with_no_client_auth()
    }

    /// A client that looks at the signer of a certificate, and not at its names.
    pub(crate) fn client_of_anybody(&self) -> ClientConfig {
        let mut config = self.client(&[]);
        let inner = WebPkiServerVerifier::builder(Arc::new(self.roots())).build();
        let inner = inner.expect("it has a root");
        config
            .dangerous()
            .set_certificate_verifier(Arc::new(Nameless(inner)));
        config
    }

    /// A client that shows a certificate.
    pub(crate) fn client_as(&self, who: &Issued, protocols: &[&str]) -> ClientConfig {
        let mut config = ClientConfig::builder()
            .with_root_certificates(self.roots())
            .with_client_auth_cert(who.chain.clone(), who.key())
            .expect("they match");
        config.alpn_protocols = protocols
            .iter()
            .map(|name| name.as_bytes().into())
            .collect();
        config
    }
}

/// Takes a certificate for another name as well.
#[derive(Debug)]
struct Nameless(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for Nameless {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        use rustls::CertificateError::{NotValidForName, NotValidForNameContext};
        let verified =
            self.0
                .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            Err(rustls::Error::InvalidCertificate(
                NotValidForName | NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, cert, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, cert, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// As tools that renew certificates do it.
fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).expect("written");
    std::fs::rename(&new, path).expect("moved");
}

/// A handshake with whoever listens at `address`.
pub(crate) async fn secure(
    address: SocketAddr,
    name: &str,
    config: &Arc<ClientConfig>,
) -> std::io::Result<client::TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    let connector = TlsConnector::from(Arc::clone(config));
    connector.connect(name, stream).await
}

/// A client of HTTP/2 over TLS.
#[track_caller]
pub(crate) fn h2_client(address: SocketAddr, name: &str, config: ClientConfig) -> H2Client {
    run(async {
        let stream = secure(address, name, &Arc::new(config)).await;
        let stream = stream.expect("a handshake");
        let alpn = stream.get_ref().1.alpn_protocol();
        assert_eq!(alpn, Some(&b"h2"[..]), "no HTTP/2 by ALPN");
        H2Client::over(stream, "https", &windows()).await
    })
    .expect("a connection")
}

/// What a [`Front`] has seen.
#[derive(Debug, Default)]
pub(crate) struct Met {
    pub(crate) handshakes: AtomicUsize,
    pub(crate) failed: AtomicUsize,
    pub(crate) names: Mutex<Vec<String>>,
    /// How many clients showed a certificate.
    pub(crate) shown: AtomicUsize,
}

/// How a relay ends its connections.
#[derive(Clone, Copy, Debug)]
enum End {
    Cut,
    /// With `close_notify`.
    Close,
}

/// A relay between TLS and the clear.
#[derive(Debug)]
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    pub(crate) met: Arc<Met>,
    acceptor: JoinHandle<()>,
    cut: Arc<watch::Sender<End>>,
}

impl Relay {
    /// TLS in, the clear out to `backend`.
    pub(crate) fn front(config: ServerConfig, backend: SocketAddr) -> Self {
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Self::start(move |stream, met, cut| {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                match acceptor.accept(stream).await {
                    Ok(tls) => {
                        met.note(&tls);
                        relay(tls, TcpStream::connect(backend).await, cut).await;
                    }
                    Err(_) => _ = met.failed.fetch_add(1, Ordering::SeqCst),
                }
            });
        })
    }

    /// The clear in, TLS out to `address`: for clients that know no TLS.
    pub(crate) fn back(config: ClientConfig, address: SocketAddr, name: &str) -> Self {
        let (config, name) = (Arc::new(config), name.to_owned());
        Self::start(move |stream, _, cut| {
            let (config, name) = (Arc::clone(&config), name.clone());
            tokio::spawn(async move {
                if let Ok(tls) = secure(address, &name, &config).await {
                    relay(tls, Ok(stream), cut).await;
                }
            });
        })
    }

    fn start(
        serve: impl Fn(TcpStream, Arc<Met>, watch::Receiver<End>) + Send + Sync + 'static,
    ) -> Self {
        let listener = run(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let (met, cut) = (
            Arc::new(Met::default()),
            Arc::new(watch::Sender::new(End::Cut)),
        );
        let (met_there, cut_there) = (Arc::clone(&met), Arc::clone(&cut));
        let acceptor = RUNTIME.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let _ = stream.set_nodelay(true);
                serve(stream, Arc::clone(&met_there), cut_there.subscribe());
            }
        });
        Self {
            address,
            met,
            acceptor,
            cut,
        }
    }

    /// Closes all connections that are open, without a word.
    pub(crate) fn cut(&self) {
        self.cut.send_replace(End::Cut);
    }

    /// Closes all connections that are open, as TLS has it.
    pub(crate) fn close(&self) {
        self.cut.send_replace(End::Close);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.acceptor.abort();
        self.cut();
    }
}

impl Met {
    fn note(&self, tls: &server::TlsStream<TcpStream>) {
        let session = tls.get_ref().1;
        let name = session.server_name().unwrap_or_default().to_owned();
        super::locked(&self.names).push(name);
        let has_shown = session.peer_certificates().is_some();
        self.shown
            .fetch_add(usize::from(has_shown), Ordering::SeqCst);
        self.handshakes.fetch_add(1, Ordering::SeqCst);
    }
}

async fn relay(
    mut tls: impl tokio::io::AsyncRead + AsyncWriteExt + Unpin,
    clear: std::io::Result<TcpStream>,
    mut cut: watch::Receiver<End>,
) {
    let Ok(mut clear) = clear else {
        return;
    };
    tokio::select! {
        _ = copy_bidirectional(&mut tls, &mut clear) => {}
        _ = cut.changed() => {
            let end = *cut.borrow();
            if let End::Close = end {
                // Gone already is as good.
                let _ = tls.shutdown().await;
            }
        }
    }
    // Whoever sees the end of the clear side may count on the other's.
    drop(tls);
    drop(clear);
}

//! Two ends of one connection, over a real socket.

use super::*;
use rustls::crypto::CryptoProvider;
use rustls::crypto::cipher::{
    AeadKey, Iv, MessageDecrypter, MessageEncrypter, OutboundOpaqueMessage, OutboundPlainMessage,
    Tls13AeadAlgorithm, UnsupportedOperationError,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ConnectionTrafficSecrets, ContentType};
use std::future::poll_fn;
use std::sync::Arc;
use tokio::net::UnixStream;

/// Configurations of both sides that trust each other.
fn configs() -> (Arc<rustls::ServerConfig>, Arc<rustls::ClientConfig>) {
    configs_with(rustls::crypto::aws_lc_rs::default_provider())
}

/// The same, the client's made of `provider`.
fn configs_with(
    provider: CryptoProvider,
) -> (Arc<rustls::ServerConfig>, Arc<rustls::ClientConfig>) {
    let made = rcgen::generate_simple_self_signed(["backend.test".to_owned()]).expect("a key");
    let certificate = CertificateDer::from(made.cert.der().to_vec());
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("PKCS #8");
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.clone()).expect("a root");
    let server = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("they match");
    let client = rustls::ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    (Arc::new(server), Arc::new(client))
}

struct Pair {
    server: Tls,
    client: Tls,
    buffers: Rc<BufferPool>,
}

/// Both ends, shaken hands.
async fn pair() -> Pair {
    pair_of(configs()).await
}

async fn pair_of(configs: (Arc<rustls::ServerConfig>, Arc<rustls::ClientConfig>)) -> Pair {
    let (mut pair, result) = meet(configs).await;
    result.expect("they trust each other");
    // The client's last flight lies in the server's socket already.
    poll_fn(|cx| pair.server.poll_handshake(cx))
        .await
        .expect("both are done");
    pair
}

async fn meet(
    (server, client): (Arc<rustls::ServerConfig>, Arc<rustls::ClientConfig>),
) -> (Pair, io::Result<()>) {
    let (one, other) = UnixStream::pair().expect("a pair of sockets");
    let buffers = Rc::default();
    let server = Session::Server(UnbufferedServerConnection::new(server).expect("a session"));
    let name = ServerName::try_from("backend.test").expect("a name");
    let client = Session::Client(UnbufferedClientConnection::new(client, name).expect("a session"));
    let mut server = Tls::new(Socket::Unix(one), server, &buffers);
    let mut client = Tls::new(Socket::Unix(other), client, &buffers);
    let result = poll_fn(|cx| {
        let (served, met) = (server.poll_handshake(cx), client.poll_handshake(cx));
        match (served, met) {
            (Poll::Ready(Err(error)), _) => Poll::Ready(Err(error)),
            (_, met) => met,
        }
    })
    .await;
    let pair = Pair {
        server,
        client,
        buffers,
    };
    (pair, result)
}

/// Moves `bytes` from one end to the other, which reads into `room` bytes at a time.
async fn carry(from: &mut Tls, to: &mut Tls, bytes: &[u8], room: usize) -> Vec<u8> {
    let (mut sent, mut got, mut buffer) = (0, Vec::new(), vec![0; room]);
    poll_fn(|cx| {
        while sent < bytes.len() {
            match from.poll_write(cx, &bytes[sent..], b"") {
                Poll::Ready(count) => sent += count.expect("it is open"),
                Poll::Pending => break,
            }
        }
        while got.len() < bytes.len() {
            match to.poll_read(cx, &mut buffer) {
                Poll::Ready(count) => got.extend_from_slice(&buffer[..count.expect("it is open")]),
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(())
    })
    .await;
    got
}

#[tokio::test]
async fn what_one_end_writes_the_other_reads_in_order() {
    let mut pair = pair().await;
    let bytes: Vec<u8> = (0..3_000_000u32).map(|at| (at % 251) as u8).collect();
    assert!(carry(&mut pair.client, &mut pair.server, &bytes, 32 << 10).await == bytes);
    assert!(carry(&mut pair.server, &mut pair.client, &bytes, 1000).await == bytes);
    assert_eq!(
        carry(&mut pair.client, &mut pair.server, b"x", 1).await,
        b"x"
    );
}

#[tokio::test]
async fn two_parts_of_a_write_arrive_one_behind_the_other() {
    let mut pair = pair().await;
    let (head, body) = (vec![b'h'; 700], vec![b'b'; 20_000]);
    let count = poll_fn(|cx| pair.server.poll_write(cx, &head, &body)).await;
    assert_eq!(count.expect("it is open"), 20_700);
    let mut got = vec![0; 20_700];
    let mut read = 0;
    while read < got.len() {
        let count = poll_fn(|cx| pair.client.poll_read(cx, &mut got[read..])).await;
        read += count.expect("it is open");
    }
    assert!(got[..700] == head[..] && got[700..] == body[..]);
}

#[tokio::test]
async fn an_idle_connection_holds_no_buffer() {
    let mut pair = pair().await;
    carry(&mut pair.client, &mut pair.server, &[7; 100_000], 4096).await;
    for end in [&pair.client, &pair.server] {
        assert!(end.incoming.is_none() && end.outgoing.is_none());
        assert_eq!(end.plain.bytes.capacity(), 0);
    }
    // They are back where they came from.
    let free = pair.buffers.free();
    assert!(free > 0, "{free}");
}

#[tokio::test]
async fn a_close_is_told_from_a_cut() {
    let mut closed = pair().await;
    drop(closed.client);
    let read = poll_fn(|cx| closed.server.poll_read(cx, &mut [0; 8])).await;
    assert_eq!(read.expect("close_notify"), 0);
    let mut cut = pair().await;
    cut.client.reset_on_close();
    drop(cut.client);
    let read = poll_fn(|cx| cut.server.poll_read(cx, &mut [0; 8])).await;
    // The end, or a reset if it had left our tickets unread: an error in either case.
    read.expect_err("no close_notify");
}

#[tokio::test]
async fn a_stranger_s_certificate_is_refused_and_the_server_is_told_why() {
    let (server, _) = configs();
    let (_, client) = configs();
    let (mut pair, result) = meet((server, client)).await;
    // Whichever end noticed first.
    result.expect_err("not trusted");
    let refused = poll_fn(|cx| pair.client.poll_handshake(cx)).await;
    let text = refused.expect_err("not trusted").to_string();
    assert!(text.contains("invalid peer certificate"), "{text}");
    let told = poll_fn(|cx| pair.server.poll_handshake(cx)).await;
    let text = told.expect_err("an alert").to_string();
    assert!(text.contains("received fatal alert"), "{text}");
}

/// Has no certificate for anybody.
#[derive(Debug)]
struct Nobody;

impl rustls::server::ResolvesServerCert for Nobody {
    fn resolve(
        &self,
        _: rustls::server::ClientHello<'_>,
    ) -> Option<Arc<rustls::sign::CertifiedKey>> {
        None
    }
}

#[tokio::test]
async fn a_name_without_a_certificate_is_called_unrecognized() {
    let (_, client) = configs();
    let server = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(Nobody));
    let (mut pair, result) = meet((Arc::new(server), client)).await;
    result.expect_err("no certificate");
    let told = poll_fn(|cx| pair.client.poll_handshake(cx)).await;
    let text = told.expect_err("an alert").to_string();
    assert!(
        text.contains("UnrecognizedName") || text.contains("UnrecognisedName"),
        "{text}"
    );
}

#[tokio::test]
async fn a_session_between_requests_is_quiet_until_the_peer_says_something() {
    let mut pair = pair().await;
    // The server's tickets have come meanwhile: they are no bytes that nobody asked for.
    assert!(pair.client.is_quiet() && pair.server.is_quiet());
    carry(&mut pair.client, &mut pair.server, b"request", 64).await;
    assert!(pair.client.is_quiet() && pair.server.is_quiet());
    let written = poll_fn(|cx| pair.server.poll_write(cx, b"?", b"")).await;
    assert_eq!(written.expect("it is open"), 1);
    poll_fn(|cx| pair.client.socket.poll_read_ready(cx))
        .await
        .expect("it is open");
    assert!(!pair.client.is_quiet());
}

#[tokio::test]
async fn who_has_said_that_it_sends_no_more_still_reads() {
    let mut pair = pair().await;
    poll_fn(|cx| pair.client.poll_shut_write(cx)).await;
    let read = poll_fn(|cx| pair.server.poll_read(cx, &mut [0; 8])).await;
    assert_eq!(read.expect("close_notify"), 0);
    let answer = vec![b'a'; 100_000];
    assert!(carry(&mut pair.server, &mut pair.client, &answer, 4096).await == answer);
    drop(pair.server);
    let read = poll_fn(|cx| pair.client.poll_read(cx, &mut [0; 8])).await;
    assert_eq!(read.expect("close_notify"), 0);
}

/// A handshake message that says it is of 16 MB: the session remembers where its beginning lies.
const TOO_LONG: &[u8] = &[22, 3, 3, 0, 4, 1, 0xff, 0xff, 0xff];

/// What stands at the other end of `socket` when it has been sent `bytes`.
async fn told(bytes: &[u8], socket: UnixStream) -> Vec<u8> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut socket = socket;
    socket.write_all(bytes).await.expect("it is open");
    let mut told = [0; 64];
    let count = socket.read(&mut told).await.expect("it is open");
    told[..count].to_vec()
}

#[tokio::test]
async fn a_handshake_message_that_is_too_long_is_refused_with_an_alert() {
    let (config, _) = configs();
    // The header in pieces, and what comes behind it, too.
    let more = [TOO_LONG, &[21, 3, 3, 0, 2, 2, 0]].concat();
    for bytes in [TOO_LONG, &more, &[TOO_LONG, TOO_LONG].concat()] {
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        let session = UnbufferedServerConnection::new(Arc::clone(&config)).expect("a session");
        let mut tls = Tls::new(Socket::Unix(ours), Session::Server(session), &Rc::default());
        let (told, refused) =
            tokio::join!(told(bytes, theirs), poll_fn(|cx| tls.poll_handshake(cx)));
        let text = refused.expect_err("too long").to_string();
        assert!(text.contains("HandshakePayloadTooLarge"), "{text}");
        assert_eq!(told, [21, 3, 3, 0, 2, 2, 50]);
        // Nothing more comes of it, and nothing more is said.
        poll_fn(|cx| tls.poll_handshake(cx))
            .await
            .expect_err("refused");
    }
}

/// Has whatever its client writes go as a message of the handshake.
struct AsHandshake(&'static dyn Tls13AeadAlgorithm);

impl Tls13AeadAlgorithm for AsHandshake {
    fn encrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageEncrypter> {
        Box::new(Renamed(self.0.encrypter(key, iv)))
    }

    fn decrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageDecrypter> {
        self.0.decrypter(key, iv)
    }

    fn key_len(&self) -> usize {
        self.0.key_len()
    }

    fn extract_keys(
        &self,
        key: AeadKey,
        iv: Iv,
    ) -> Result<ConnectionTrafficSecrets, UnsupportedOperationError> {
        self.0.extract_keys(key, iv)
    }
}

struct Renamed(Box<dyn MessageEncrypter>);

impl MessageEncrypter for Renamed {
    fn encrypt(
        &mut self,
        mut message: OutboundPlainMessage<'_>,
        sequence: u64,
    ) -> Result<OutboundOpaqueMessage, rustls::Error> {
        if message.typ == ContentType::ApplicationData {
            message.typ = ContentType::Handshake;
        }
        self.0.encrypt(message, sequence)
    }

    fn encrypted_payload_len(&self, length: usize) -> usize {
        self.0.encrypted_payload_len(length)
    }
}

/// Its sessions break the rules once they have shaken hands.
fn lying() -> CryptoProvider {
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    let suites = &provider.cipher_suites;
    let suite = suites.iter().find_map(|suite| suite.tls13());
    let suite = suite.expect("a suite of TLS 1.3");
    let renaming = rustls::Tls13CipherSuite {
        common: rustls::CipherSuiteCommon {
            suite: suite.common.suite,
            hash_provider: suite.common.hash_provider,
            confidentiality_limit: suite.common.confidentiality_limit,
        },
        hkdf_provider: suite.hkdf_provider,
        aead_alg: Box::leak(Box::new(AsHandshake(suite.aead_alg))),
        quic: None,
    };
    provider.cipher_suites = vec![(&*Box::leak(Box::new(renaming))).into()];
    provider
}

#[tokio::test]
async fn a_message_that_is_too_long_ends_an_open_session() {
    let mut pair = pair_of(configs_with(lying())).await;
    let claim = [1, 0xff, 0xff, 0xff];
    let written = poll_fn(|cx| pair.client.poll_write(cx, &claim, b"")).await;
    assert_eq!(written.expect("it is open"), 4);
    poll_fn(|cx| pair.server.poll_read(cx, &mut [0; 8]))
        .await
        .expect_err("too long");
    poll_fn(|cx| pair.server.poll_write(cx, b"?", b""))
        .await
        .expect_err("refused");
    assert!(!pair.server.queue_close());
}

//! TLS: who is trusted, and who is shown to be whom.

use super::node::{Node, Plan, all, binaries, newest, next_words, options_of, put, value};
use mizan_store::etcd::{ClientCertificate, Etcd, Tls};
use mizan_store::{Denial, Error, Store};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use std::path::Path;

/// An authority.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name.push(DnType::CommonName, "root");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).expect("signed").pem();
        Self {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    /// A certificate for `name`, with its key.
    fn issue(&self, name: &str) -> ClientCertificate {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new([name.to_owned()]).expect("a name");
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let certificate = params.signed_by(&key, &self.issuer).expect("signed");
        ClientCertificate {
            chain: certificate.pem().into(),
            key: key.serialize_pem().into(),
        }
    }
}

/// A node whose certificate is for `127.0.0.1`, and that wants one of each client; its files are in `folder`.
fn secured(binary: &super::node::Binary, folder: &Path, authority: &Authority) -> Node {
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        std::fs::write(&path, bytes).expect("written");
        path.display().to_string()
    };
    let own = authority.issue("127.0.0.1");
    let mut plan = Plan::alone();
    plan.scheme = "https";
    plan.flags = vec![
        format!("--cert-file={}", write("own.pem", &own.chain)),
        format!("--key-file={}", write("own.key", &own.key)),
        format!(
            "--trusted-ca-file={}",
            write("root.pem", authority.pem.as_bytes())
        ),
        "--client-cert-auth=true".to_owned(),
    ];
    Node::start(binary, plan)
}

fn store(node: &Node, tls: Tls) -> Etcd {
    let mut options = options_of([node.address()]);
    options.tls = Some(tls);
    Etcd::new(&options).expect("good options")
}

/// What is told of TLS to each who asks.
async fn told(store: &Etcd) -> String {
    let asked = [
        put(store, "a", "1").await.map(drop),
        value(store, "a").await.map(drop),
        store.watch(all(), 1).await.map(drop),
    ];
    let mut told = Vec::new();
    for outcome in asked {
        let Err(Error::Denied(Denial::Tls(why))) = outcome else {
            panic!("{outcome:?}");
        };
        told.push(why);
    }
    told.dedup();
    assert_eq!(told.len(), 1, "{told:?}");
    told.remove(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_certificate_opens_everything() {
    for binary in binaries() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let authority = Authority::new();
        let node = secured(&binary, folder.path(), &authority);
        let tls = Tls {
            roots: Some(authority.pem.clone().into()),
            client: Some(authority.issue("mizan")),
            server_name: None,
        };
        let store = store(&node, tls);
        node.up(&store).await;
        let revision = put(&store, "a", "1").await.expect("trusted");
        let mut watch = store.watch(all(), revision).await.expect("trusted");
        assert_eq!(next_words(watch.as_mut()).await.expect("said"), "a=1");
        let lease = store.grant(std::time::Duration::from_secs(9)).await;
        store
            .revoke(lease.expect("trusted").id)
            .await
            .expect("alive");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_way_not_to_be_trusted_is_told() {
    for binary in binaries() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let (authority, other) = (Authority::new(), Authority::new());
        let node = secured(&binary, folder.path(), &authority);
        let good = Tls {
            roots: Some(authority.pem.clone().into()),
            client: Some(authority.issue("mizan")),
            server_name: None,
        };
        node.up(&store(&node, good.clone())).await;
        let cases = [
            (
                Tls {
                    roots: Some(other.pem.clone().into()),
                    ..good.clone()
                },
                "not trusted here",
            ),
            (
                Tls {
                    client: None,
                    ..good.clone()
                },
                "wants",
            ),
            (
                Tls {
                    client: Some(other.issue("mizan")),
                    ..good.clone()
                },
                "client certificate",
            ),
            (
                Tls {
                    server_name: Some("etcd.example".to_owned()),
                    ..good.clone()
                },
                "etcd.example",
            ),
        ];
        for (tls, expected) in cases {
            let why = told(&store(&node, tls)).await;
            assert!(why.contains(expected), "{expected}: {why}");
            assert!(why.contains(&node.address()), "{why}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_where_there_is_none_and_none_where_there_is_are_told() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let authority = Authority::new();
    let tls = Tls {
        roots: Some(authority.pem.clone().into()),
        client: Some(authority.issue("mizan")),
        server_name: None,
    };
    let open = Node::alone(&newest()).await;
    let refused = put(&store(&open, tls.clone()), "a", "1").await;
    let Err(Error::Unavailable(why)) = refused else {
        panic!("{refused:?}");
    };
    assert!(
        why.contains("speaks no TLS") && why.contains("`etcd://`"),
        "{why}"
    );
    let node = secured(&newest(), folder.path(), &authority);
    node.up(&store(&node, tls)).await;
    let without = Etcd::new(&options_of([node.address()])).expect("good options");
    let refused = put(&without, "a", "1").await;
    let Err(Error::Unavailable(why) | Error::Unknown(why)) = refused else {
        panic!("{refused:?}");
    };
    assert!(why.contains("etcds://"), "{why}");
}

#[test]
fn certificates_that_cannot_be_read_are_told_before_anything_is_asked() {
    let authority = Authority::new();
    let one = authority.issue("one");
    let mixed = ClientCertificate {
        chain: authority.issue("two").chain,
        ..one.clone()
    };
    let swapped = ClientCertificate {
        chain: one.key.clone(),
        key: one.chain.clone(),
    };
    let cases = [
        (Some("no PEM"), None, "root certificates"),
        (None, Some(mixed), "the client certificate and its key"),
        (None, Some(swapped), "no `BEGIN CERTIFICATE`"),
    ];
    for (roots, client, expected) in cases {
        let mut options = options_of(["127.0.0.1:2379".to_owned()]);
        options.tls = Some(Tls {
            roots: Some(roots.unwrap_or(&authority.pem).to_owned().into()),
            client,
            server_name: None,
        });
        let error = Etcd::new(&options).expect_err("refused").to_string();
        assert!(error.contains(expected), "{expected}: {error}");
    }
}

//! What clients get.

use super::hello::{client, client_as, client_with, server, shake};
use super::pki::{Pki, Wish};
use super::{clean, listener};
use crate::snapshot::ClientAuthMode;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::{CipherSuite, NamedGroup, ProtocolVersion, SignatureAlgorithm};

const ONE: &str = "certificates = [{ cert = \"a.pem\", key = \"a.key\" }]";

fn with_one() -> Pki {
    let pki = Pki::new();
    pki.issue("a", Wish::of(&["a.example"]));
    pki
}

#[test]
fn a_client_gets_the_certificate_of_the_name_that_it_asks_for() {
    let pki = Pki::new();
    let (first, _) = pki.issue("a", Wish::of(&["a.example"]));
    let (wild, _) = pki.issue("w", Wish::of(&["*.b.example"]));
    let (exact, _) = pki.issue("x", Wish::of(&["x.b.example"]));
    let text = listener(
        "certificates = [{ cert = \"a.pem\", key = \"a.key\" }, { cert = \"w.pem\", key = \"w.key\" }, { cert = \"x.pem\", key = \"x.key\" }]",
    );
    let (server, client) = (server(&clean(&pki, &text)), client(&pki));
    for (name, expected) in [
        ("a.example", &first),
        ("y.b.example", &wild),
        ("x.b.example", &exact),
        ("X.B.Example", &exact),
    ] {
        let met = shake(&client, &server, name).expect(name);
        assert_eq!(met.shown(), expected.der().to_vec(), "{name}");
    }
    // What no certificate holds gets the first, which the client refuses.
    for name in ["z.y.b.example", "b.example", "other.example"] {
        let error = shake(&client, &server, name).err().expect(name);
        assert!(
            matches!(error, rustls::Error::InvalidCertificate(_)),
            "{name}: {error}"
        );
    }
}

#[test]
fn with_strict_sni_an_unknown_name_gets_no_certificate() {
    let pki = with_one();
    let text = listener(&format!("{ONE}\nstrict_sni = true"));
    let server = server(&clean(&pki, &text));
    let error = shake(&client(&pki), &server, "b.example").err();
    let error = error.expect("refused").to_string();
    assert!(error.contains("no server certificate chain"), "{error}");
    shake(&client(&pki), &server, "a.example").expect("known");
}

#[test]
fn ecdsa_comes_first_and_rsa_stands_beside_it_for_those_who_know_only_that() {
    let pki = Pki::new();
    pki.issue("rsa", Wish::of(&["a.example"]).rsa());
    pki.issue("ec", Wish::of(&["a.example"]));
    let text = listener(
        "certificates = [{ cert = \"rsa.pem\", key = \"rsa.key\" }, { cert = \"ec.pem\", key = \"ec.key\" }]",
    );
    let server = server(&clean(&pki, &text));
    let algorithm = |client| {
        let met = shake(&client, &server, "a.example").expect("a handshake");
        let facts = crate::certificate::Facts::read(&met.shown()).expect("a certificate");
        match facts.key {
            crate::certificate::KeyKind::Ecdsa => SignatureAlgorithm::ECDSA,
            _ => SignatureAlgorithm::RSA,
        }
    };
    assert_eq!(algorithm(client(&pki)), SignatureAlgorithm::ECDSA);
    // By its signature schemes: TLS 1.3 has no other way to say so.
    let only_rsa = |provider: &mut CryptoProvider| {
        let mut known = provider.signature_verification_algorithms;
        let mapping: Vec<_> = known
            .mapping
            .iter()
            .filter(|(scheme, _)| format!("{scheme:?}").starts_with("RSA"))
            .copied()
            .collect();
        known.mapping = Box::leak(mapping.into_boxed_slice());
        provider.signature_verification_algorithms = known;
    };
    // The root signs with ECDSA, so the client cannot verify the chain; what it was shown is what counts.
    let mut provider = aws_lc_rs::default_provider();
    only_rsa(&mut provider);
    let shown = shown_to(&pki, provider, &server);
    assert!(matches!(shown, crate::certificate::KeyKind::Rsa { .. }));
    // By its cipher suites: TLS 1.2.
    let mut provider = aws_lc_rs::default_provider();
    provider
        .cipher_suites
        .retain(|suite| suite.suite() == CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256);
    let old = client_with(&pki, provider, &[&rustls::version::TLS12]);
    assert_eq!(algorithm(old), SignatureAlgorithm::RSA);
}

/// What kind of key a client with that provider is shown; it verifies nothing.
fn shown_to(
    pki: &Pki,
    provider: CryptoProvider,
    server: &std::sync::Arc<rustls::ServerConfig>,
) -> crate::certificate::KeyKind {
    let provider = std::sync::Arc::new(provider);
    let mut config = (*client(pki)).clone();
    let verifier = super::super::verifier::Verifier {
        given: Vec::new(),
        chain: None,
        pins: Vec::new(),
        provider,
    };
    config
        .dangerous()
        .set_certificate_verifier(std::sync::Arc::new(verifier));
    let met = shake(&std::sync::Arc::new(config), server, "a.example").expect("a handshake");
    let facts = crate::certificate::Facts::read(&met.shown()).expect("a certificate");
    facts.key
}

#[test]
fn the_key_exchange_is_the_first_of_ours_that_the_client_has_unless_told_otherwise() {
    let pki = with_one();
    let met = shake(
        &client(&pki),
        &server(&clean(&pki, &listener(ONE))),
        "a.example",
    );
    let group = |met: super::hello::Met| {
        met.server
            .negotiated_key_exchange_group()
            .map(|group| group.name())
    };
    assert_eq!(
        group(met.expect("a handshake")),
        Some(NamedGroup::X25519MLKEM768)
    );
    let text = listener(&format!("{ONE}\ngroups = [\"secp384r1\"]"));
    let met = shake(&client(&pki), &server(&clean(&pki, &text)), "a.example");
    assert_eq!(
        group(met.expect("a handshake")),
        Some(NamedGroup::secp384r1)
    );
}

#[test]
fn versions_are_those_of_the_file() {
    let pki = with_one();
    let provider = aws_lc_rs::default_provider;
    let old = client_with(&pki, provider(), &[&rustls::version::TLS12]);
    let both = server(&clean(&pki, &listener(ONE)));
    let met = shake(&old, &both, "a.example").expect("1.2 by default");
    let version = met.server.protocol_version();
    assert_eq!(version, Some(ProtocolVersion::TLSv1_2));
    let text = listener(&format!("{ONE}\nmin_version = \"1.3\""));
    let new = server(&clean(&pki, &text));
    shake(&old, &new, "a.example").err().expect("refused");
    shake(&client(&pki), &new, "a.example").expect("1.3");
    let text = listener(&format!("{ONE}\nmax_version = \"1.2\""));
    let met = shake(&client(&pki), &server(&clean(&pki, &text)), "a.example");
    let version = met.expect("1.2").server.protocol_version();
    assert_eq!(version, Some(ProtocolVersion::TLSv1_2));
}

#[test]
fn http2_is_offered_unless_it_is_switched_off() {
    let pki = with_one();
    let offered = |text: &str| {
        let snapshot = clean(&pki, text);
        let protocols = server(&snapshot).alpn_protocols.clone();
        (snapshot.listeners[0].http2.enabled, protocols)
    };
    let text = listener(ONE);
    let both = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    assert_eq!(offered(&text), (true, both));
    let off = text.replace("[listener.tls]", "http2 = false\n[listener.tls]");
    assert_eq!(offered(&off), (false, vec![b"http/1.1".to_vec()]));
}

#[test]
fn nothing_is_offered_where_tcp_is_handed_through() {
    let pki = with_one();
    let tcp = "[listener.tls]";
    let tcp = listener(ONE).replace(tcp, &format!("kind = \"tcp\"\npool = \"p\"\n{tcp}"));
    let tcp = tcp.replace("[[route]]\npool = \"p\"\n", "");
    let offered = server(&clean(&pki, &tcp)).alpn_protocols.clone();
    assert!(offered.is_empty(), "{offered:?}");
}

#[test]
fn a_required_certificate_must_be_of_the_root_and_not_revoked() {
    let pki = with_one();
    pki.issue("alice", Wish::of(&["alice.example"]));
    let mallory = Wish {
        serial: 66,
        ..Wish::of(&["mallory.example"])
    };
    pki.issue("mallory", mallory);
    pki.revoke(&[66]);
    let auth = "client_auth = { roots = \"ca.pem\", crl = \"crl.pem\" }";
    let snapshot = clean(&pki, &listener(&format!("{ONE}\n{auth}")));
    let server = server(&snapshot);
    let met = shake(&client_as(&pki, "alice"), &server, "a.example").expect("alice");
    let shown = met.server.peer_certificates().expect("hers")[0].clone();
    let identity = crate::certificate::Identity::read(&shown).expect("a certificate");
    assert_eq!(identity.san, "DNS:alice.example");
    let refused = |client| shake(&client, &server, "a.example").err().expect("refused");
    let revoked = refused(client_as(&pki, "mallory")).to_string();
    assert!(revoked.contains("Revoked"), "{revoked}");
    assert_eq!(
        refused(client(&pki)),
        rustls::Error::NoCertificatesPresented
    );
    let tls = snapshot.listeners[0].tls.as_ref().expect("TLS");
    let auth = tls.client_auth.as_ref().expect("client authentication");
    assert_eq!(auth.mode, ClientAuthMode::Required);
}

#[test]
fn an_optional_certificate_may_be_missing_but_not_wrong() {
    let pki = with_one();
    let other = with_one();
    let auth = "client_auth = { roots = \"ca.pem\", mode = \"optional\" }";
    let server = server(&clean(&pki, &listener(&format!("{ONE}\n{auth}"))));
    shake(&client(&pki), &server, "a.example").expect("none is fine");
    let mut stranger = (*client_as(&other, "a")).clone();
    let verifier = super::super::verifier::Verifier {
        given: Vec::new(),
        chain: None,
        pins: Vec::new(),
        provider: std::sync::Arc::new(aws_lc_rs::default_provider()),
    };
    stranger
        .dangerous()
        .set_certificate_verifier(std::sync::Arc::new(verifier));
    let error = shake(&std::sync::Arc::new(stranger), &server, "a.example").err();
    assert!(error.is_some(), "of another root");
}

#[test]
fn the_headers_that_name_a_client_are_reserved_on_every_listener() {
    let pki = with_one();
    let headers = "headers = { subject = \"X-Who\", san = \"off\" }";
    let auth = format!("client_auth = {{ roots = \"ca.pem\", {headers} }}");
    let text = listener(&format!("{ONE}\n{auth}")) + "[[listener]]\nbind = \"127.0.0.1:8000\"\n";
    let snapshot = clean(&pki, &text);
    for listener in &snapshot.listeners {
        let names: Vec<&str> = listener
            .reserved_headers
            .iter()
            .map(|name| &**name)
            .collect();
        assert_eq!(
            names,
            [
                "x-client-cert-fingerprint",
                "x-client-cert-verified",
                "x-who"
            ]
        );
    }
}

#[test]
fn hsts_is_the_value_of_the_header() {
    let pki = with_one();
    let hsts = |hsts: &str| {
        let snapshot = clean(&pki, &listener(&format!("{ONE}\n{hsts}")));
        let tls = snapshot.listeners[0].tls.as_ref().expect("TLS");
        tls.hsts.clone()
    };
    assert_eq!(hsts(""), None);
    assert_eq!(hsts("hsts = {}").as_deref(), Some("max-age=31536000"));
    let all = "hsts = { max_age = \"730d\", include_subdomains = true, preload = true }";
    let value = "max-age=63072000; includeSubDomains; preload";
    assert_eq!(hsts(all).as_deref(), Some(value));
}

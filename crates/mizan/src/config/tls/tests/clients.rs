//! Whom Mizan takes for a backend.

use super::hello::{server, shake};
use super::pki::{Pki, Wish};
use super::{clean, compiled, found, listener, pool};
use crate::certificate::Facts;
use crate::snapshot::{ClientTls, Protocol};
use data_encoding::BASE64;
use mizan_core::backend::Address;
use std::sync::Arc;

const ONE: &str = "certificates = [{ cert = \"a.pem\", key = \"a.key\" }]";

fn tls(pki: &Pki, text: &str) -> Arc<ClientTls> {
    let snapshot = clean(pki, &pool(text));
    snapshot.pools["p"].tls.clone().expect("TLS")
}

#[test]
fn a_backend_is_verified_by_the_roots_of_the_pool_and_its_name() {
    let (pki, other) = (Pki::new(), Pki::new());
    pki.issue("a", Wish::of(&["a.example"]));
    other.issue("a", Wish::of(&["a.example"]));
    let config = &tls(&pki, "roots = \"ca.pem\"").config;
    let (right, wrong) = (
        server(&clean(&pki, &listener(ONE))),
        server(&clean(&other, &listener(ONE))),
    );
    shake(config, &right, "a.example").expect("the right one");
    shake(config, &right, "b.example")
        .err()
        .expect("another name");
    shake(config, &wrong, "a.example")
        .err()
        .expect("another root");
}

#[test]
fn a_certificate_that_is_given_stands_for_itself_though_it_calls_itself_an_authority() {
    let (pki, other) = (Pki::new(), Pki::new());
    pki.issue_authority("a", "a.example");
    other.issue_authority("a", "a.example");
    let config = &tls(&pki, "roots = \"a.pem\"").config;
    let (right, wrong) = (
        server(&clean(&pki, &listener(ONE))),
        server(&clean(&other, &listener(ONE))),
    );
    shake(config, &right, "a.example").expect("it is the one");
    shake(config, &right, "b.example")
        .err()
        .expect("another name");
    shake(config, &wrong, "a.example")
        .err()
        .expect("another of that name");
}

#[test]
fn a_pin_is_asked_for_on_top_and_is_enough_without_verification() {
    let pki = Pki::new();
    let (certificate, _) = pki.issue("a", Wish::of(&["a.example"]));
    let pin = BASE64.encode(&Facts::read(certificate.der()).expect("read").key_pin);
    let wrong = BASE64.encode(&[7; 32]);
    let server = server(&clean(&pki, &listener(ONE)));
    let met = |text: String| shake(&tls(&pki, &text).config, &server, "a.example").map(|_| ());
    let roots = "roots = \"ca.pem\"";
    met(format!("{roots}\npin_sha256 = [\"{wrong}\", \"{pin}\"]")).expect("one of them fits");
    met(format!("{roots}\npin_sha256 = [\"{wrong}\"]")).expect_err("none fits");
    met(format!("verify = false\npin_sha256 = [\"{pin}\"]")).expect("the pin says who it is");
    met(format!("verify = false\npin_sha256 = [\"{wrong}\"]")).expect_err("another key");
}

#[test]
fn without_verification_anybody_passes_and_that_is_said() {
    let pki = Pki::new();
    let other = Pki::new();
    other.issue("a", Wish::of(&["other.example"]));
    assert_eq!(
        found(&pki, &pool("verify = false")),
        [
            "warning pool.p.tls.verify: whoever can answer at a backend's address can read and change everything"
        ]
    );
    let (snapshot, _) = super::compiled(&pki, &pool("verify = false"), None).expect("compiles");
    let config = &snapshot.pools["p"].tls.as_ref().expect("TLS").config;
    let server = server(&clean(&other, &listener(ONE)));
    shake(config, &server, "a.example").expect("nothing is asked");
}

#[test]
fn a_client_certificate_is_shown_to_backends_that_ask() {
    let pki = Pki::new();
    pki.issue("a", Wish::of(&["a.example"]));
    pki.issue("own", Wish::of(&["own.example"]));
    let auth = format!("{ONE}\nclient_auth = {{ roots = \"ca.pem\" }}");
    let server = server(&clean(&pki, &listener(&auth)));
    let own = "roots = \"ca.pem\"\nclient_certificate = { cert = \"own.pem\", key = \"own.key\" }";
    let met = shake(&tls(&pki, own).config, &server, "a.example").expect("a handshake");
    assert!(met.server.peer_certificates().is_some());
    shake(
        &tls(&pki, "roots = \"ca.pem\"").config,
        &server,
        "a.example",
    )
    .err()
    .expect("refused");
}

#[test]
fn it_is_backends_that_miss_the_issuer_of_a_client_certificate() {
    let pki = Pki::new();
    pki.issue("own", Wish::of(&["own.example"]));
    let pem = pki.read("own.pem");
    let end = "-----END CERTIFICATE-----\n";
    pki.write(
        "own.pem",
        pem.split_inclusive(end).next().expect("the first"),
    );
    let own = "roots = \"ca.pem\"\nclient_certificate = { cert = \"own.pem\", key = \"own.key\" }";
    let (_, warnings) = compiled(&pki, &pool(own), None).expect("it is accepted");
    let help = warnings[0].help.as_deref().unwrap_or_default();
    assert!(help.starts_with("backends that lack it refuse"), "{help}");
}

#[test]
fn the_protocol_is_what_alpn_offers() {
    let pki = Pki::new();
    for (key, protocol, offered, probe) in [
        ("http1", Protocol::Http1, vec!["http/1.1"], "http/1.1"),
        ("http2", Protocol::Http2, vec!["h2"], "h2"),
        ("auto", Protocol::Auto, vec!["h2", "http/1.1"], "http/1.1"),
    ] {
        let text = pool("roots = \"ca.pem\"").replace(
            "[pool.p.tls]",
            &format!("protocol = \"{key}\"\nhealth = {{ path = \"/\" }}\n[pool.p.tls]"),
        );
        let pool = clean(&pki, &text).pools["p"].clone();
        assert_eq!(pool.protocol, protocol);
        let tls = pool.tls.as_ref().expect("TLS");
        let texts = |config: &rustls::ClientConfig| -> Vec<String> {
            let text = |name: &Vec<u8>| String::from_utf8_lossy(name).into_owned();
            config.alpn_protocols.iter().map(text).collect()
        };
        assert_eq!(texts(&tls.config), offered);
        assert_eq!(texts(&tls.probe_config), [probe]);
        let check = pool.health.as_ref().expect("a check");
        assert_eq!(check.http2, probe == "h2");
        let any: [&str; 0] = [];
        assert_eq!(texts(&tls.tcp_config), any, "TCP may carry anything");
    }
}

#[test]
fn the_name_is_the_one_of_the_file_else_the_hosts_else_the_address() {
    let pki = Pki::new();
    let plain = tls(&pki, "roots = \"ca.pem\"");
    let name = |tls: &ClientTls, key: &str| {
        let address = Address::Ip("192.0.2.7:443".parse().expect("an address"));
        tls.name_of(key, &address)
            .map(|name| name.to_str().into_owned())
    };
    assert_eq!(name(&plain, "192.0.2.7:443").as_deref(), Some("192.0.2.7"));
    let host = "api.internal:443/192.0.2.7";
    assert_eq!(name(&plain, host).as_deref(), Some("api.internal"));
    let named = tls(&pki, "roots = \"ca.pem\"\nserver_name = \"b.example\"");
    assert_eq!(name(&named, host).as_deref(), Some("b.example"));
    let socket = Address::Unix("/run/b.sock".into());
    assert!(plain.name_of("unix:/run/b.sock", &socket).is_none());
    assert!(named.name_of("unix:/run/b.sock", &socket).is_some());
}

#[test]
fn probes_speak_tls_as_the_pool_does_unless_told_otherwise() {
    let pki = Pki::new();
    let probe = |health: &str| {
        let text = pool("roots = \"ca.pem\"");
        let text = format!("{text}[pool.p.health]\ntcp = true\n{health}\n");
        let pool = clean(&pki, &text).pools["p"].clone();
        let check = pool.health.as_ref().expect("a check");
        check.tls.is_some()
    };
    assert!(probe(""));
    assert!(!probe("tls = false"));
}

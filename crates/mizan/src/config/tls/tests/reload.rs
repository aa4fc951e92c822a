//! What a reload keeps, and what it must not keep.

use super::hello::{client, server, shake};
use super::pki::{Pki, Wish, staple};
use super::{TODAY, clean, compiled, listener, pool, read};
use crate::config::Watch;
use crate::snapshot::Snapshot;
use std::sync::Arc;

const ONE: &str = "certificates = [{ cert = \"a.pem\", key = \"a.key\" }]";

fn with_one() -> Pki {
    let pki = Pki::new();
    pki.issue("a", Wish::of(&["a.example"]));
    pki
}

fn reloaded(pki: &Pki, text: &str, previous: &Snapshot) -> Snapshot {
    compiled(pki, text, Some(previous)).expect("it compiles").0
}

#[test]
fn a_client_resumes_after_a_reload_that_brings_a_new_certificate() {
    let pki = with_one();
    let text = listener(ONE);
    let first = clean(&pki, &text);
    let client = client(&pki);
    let met = shake(&client, &server(&first), "a.example").expect("a handshake");
    assert!(!met.is_resumed());
    pki.issue("a", Wish::of(&["a.example"]));
    let second = reloaded(&pki, &text, &first);
    assert!(!Arc::ptr_eq(&server(&first), &server(&second)));
    assert_ne!(
        first.digest, second.digest,
        "else nothing would come into force"
    );
    let met = shake(&client, &server(&second), "a.example").expect("a handshake");
    assert!(met.is_resumed());
}

#[test]
fn what_has_not_changed_is_kept_as_it_is() {
    let pki = with_one();
    let text = listener(ONE);
    let first = clean(&pki, &text);
    let second = reloaded(&pki, &text.replace("127.0.0.1:1", "127.0.0.1:2"), &first);
    assert!(Arc::ptr_eq(&server(&first), &server(&second)));
    let text = pool("roots = \"ca.pem\"");
    let first = clean(&pki, &text);
    let second = reloaded(&pki, &text.replace("8000", "8001"), &first);
    let tls = |snapshot: &Snapshot| snapshot.pools["p"].tls.clone().expect("TLS");
    assert!(Arc::ptr_eq(&tls(&first), &tls(&second)));
}

#[test]
fn a_session_from_before_client_authentication_does_not_resume_after_it() {
    for tickets in ["", "tickets = { file = \"tickets.key\" }"] {
        let pki = with_one();
        pki.write("tickets.key", "11".repeat(32));
        let open = listener(&format!("{ONE}\n{tickets}"));
        let auth = "client_auth = { roots = \"ca.pem\" }";
        let closed = listener(&format!("{ONE}\n{tickets}\n{auth}"));
        let first = clean(&pki, &open);
        let client = client(&pki);
        shake(&client, &server(&first), "a.example").expect("a handshake");
        let second = reloaded(&pki, &closed, &first);
        let error = shake(&client, &server(&second), "a.example").err();
        assert_eq!(error, Some(rustls::Error::NoCertificatesPresented));
    }
}

#[test]
fn a_session_resumes_with_another_instance_that_has_the_same_ticket_keys() {
    let pki = with_one();
    pki.write("tickets.key", "11".repeat(32));
    let text = listener(&format!("{ONE}\ntickets = {{ file = \"tickets.key\" }}"));
    let client = client(&pki);
    let (one, other) = (clean(&pki, &text), clean(&pki, &text));
    shake(&client, &server(&one), "a.example").expect("a handshake");
    let met = shake(&client, &server(&other), "a.example").expect("a handshake");
    assert!(met.is_resumed());
    // Rotated: a new one in front, the old one still decrypts.
    pki.write(
        "tickets.key",
        format!("{}\n{}", "22".repeat(32), "11".repeat(32)),
    );
    let rotated = clean(&pki, &text);
    let met = shake(&client, &server(&rotated), "a.example").expect("a handshake");
    assert!(met.is_resumed());
    // And gone.
    pki.write("tickets.key", "33".repeat(32));
    let met = shake(&client, &server(&clean(&pki, &text)), "a.example").expect("a handshake");
    assert!(!met.is_resumed());
}

#[test]
fn without_tickets_nobody_resumes() {
    let pki = with_one();
    let first = clean(&pki, &listener(&format!("{ONE}\ntickets = false")));
    let client = client(&pki);
    for _ in 0..2 {
        let met = shake(&client, &server(&first), "a.example").expect("a handshake");
        assert!(!met.is_resumed());
    }
}

#[test]
fn a_bad_new_certificate_refuses_the_configuration() {
    let pki = with_one();
    let text = listener(ONE);
    let first = clean(&pki, &text);
    pki.write("a.pem", "nothing");
    compiled(&pki, &text, Some(&first)).expect_err("refused");
}

#[test]
fn the_watcher_sees_a_change_of_each_file() {
    let pki = with_one();
    pki.write("tickets.key", "11".repeat(32));
    pki.write("a.ocsp", staple("20400101000000Z"));
    pki.revoke(&[]);
    let files = "certificates = [{ cert = \"a.pem\", key = \"a.key\", ocsp = \"a.ocsp\" }]\ntickets = { file = \"tickets.key\" }\nclient_auth = { roots = \"ca.pem\", crl = \"crl.pem\" }";
    pki.issue("own", Wish::of(&["own.example"]));
    pki.write("backends.pem", pki.read("ca.pem"));
    let pool = "[pool.p.tls]\nroots = \"backends.pem\"\nclient_certificate = { cert = \"own.pem\", key = \"own.key\" }\n";
    let text = listener(files) + pool;
    clean(&pki, &text);
    let mut watch = Watch::new(&pki.write("lb.toml", &text));
    assert!(!watch.changed());
    for name in [
        "a.pem",
        "a.key",
        "a.ocsp",
        "tickets.key",
        "ca.pem",
        "crl.pem",
        "backends.pem",
        "own.pem",
        "own.key",
    ] {
        pki.write(name, "changed, and of another length");
        assert!(watch.changed(), "{name}");
        assert!(!watch.changed(), "{name}");
    }
}

#[test]
fn a_key_is_never_part_of_what_a_source_shows() {
    let pki = with_one();
    let sources = read(&pki, &listener(ONE));
    assert_eq!(sources[0].read_at, TODAY);
    let shown = format!("{sources:?}");
    let key = pki.read("a.key");
    let line = key.lines().nth(1).expect("a line of the key");
    assert!(shown.contains("a.key") && !shown.contains(line));
    assert!(!shown.contains("45, 45, 45, 45, 45"), "no bytes either");
}

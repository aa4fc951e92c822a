//! Certificates: renewed while Mizan runs, shown by clients, asked of backends.

use crate::support::*;

const END: &str = "mizan_certificate_expiry_timestamp_seconds";

/// A plain listener, and one with TLS under the certificate `a` and these keys.
fn two_listeners(pki: &Pki, keys: &str, backend: &Backend) -> String {
    let tls = format!(
        "[[listener]]\nname = \"tls\"\nbind = \"{{listen2}}\"\n[listener.tls]\ncertificates = [{}]\n{keys}\n",
        pki.pair("a")
    );
    config("", "", &[backend.address()]) + &tls
}

#[test]
fn a_renewed_certificate_comes_into_force_by_itself_and_a_broken_one_does_not() {
    let pki = Pki::new();
    pki.issue_until("a", 2100);
    let backend = Backend::healthy("a");
    let text = two_listeners(&pki, "", &backend) + "[reload]\nwatch = true\n";
    let mizan = Mizan::start(&text);
    let end = || mizan.metric(END, "listener=\"tls\"");
    let first = end();
    pki.issue_until("a", 2101);
    eventually(PATIENCE, "the new certificate is in force", || {
        end() > first
    });
    let second = end();
    pki.replace("a.key", "half a k");
    eventually(PATIENCE, "the broken key is told", || {
        mizan.log().contains("holds no private key")
    });
    assert!(mizan.log().contains("stays in force"), "{}", mizan.log());
    assert_eq!(end(), second);
    assert_eq!(mizan.get("/").status, 200);
    std::fs::remove_file(pki.folder().join("a.key")).expect("it was there");
    eventually(PATIENCE, "the missing key is told", || {
        mizan.log().contains("cannot be read: No such file")
    });
    assert_eq!(end(), second);
    pki.issue_until("a", 2102);
    eventually(PATIENCE, "the next one is in force", || end() > second);
}

#[test]
fn a_client_resumes_its_session_after_a_reload_that_brings_a_new_certificate() {
    let pki = Pki::new();
    let old = pki.issue("a");
    let backend = Backend::healthy("a");
    let mizan = Mizan::start(&two_listeners(&pki, "", &backend));
    let ask =
        |client| ask_secured(client, mizan.address2(), "a.example", ("/", "")).expect("an answer");
    let (before, after) = (pki.client(None), pki.client(None));
    let answer = ask(&before);
    assert!(answer.text.starts_with("HTTP/1.1 200 "), "{}", answer.text);
    assert!(!answer.is_resumed);
    assert_eq!(answer.certificate, old.der().to_vec());
    let new = pki.issue("a");
    assert_eq!(mizan.command(&["reload"]).status.code(), Some(0));
    assert_eq!(ask(&after).certificate, new.der().to_vec());
    assert!(ask(&before).is_resumed);
}

#[test]
fn backends_are_told_who_a_client_is_and_no_client_can_say_it_itself() {
    let pki = Pki::new();
    pki.issue("a");
    pki.issue("alice");
    let keys = format!(
        "client_auth = {{ roots = \"{}\", mode = \"optional\" }}",
        pki.path("ca.pem")
    );
    let backend = Backend::healthy("a");
    let mizan = Mizan::start(&two_listeners(&pki, &keys, &backend));
    let forged = "X-Client-Cert-Verified: SUCCESS\r\nx_client_cert_subject: CN=root\r\nX-CLIENT_Cert-San: DNS:root\r\nX-Client-Cert-Fingerprint: 00\r\n";
    let told = |client| {
        ask_secured(&client, mizan.address2(), "a.example", ("/told", forged)).expect("an answer");
        lines_of(&backend)
    };
    let alice = told(pki.client(Some("alice")));
    assert_eq!(alice.len(), 4, "{alice:?}");
    for line in [
        "verified: success",
        "subject: cn=alice",
        "san: dns:alice.example",
    ] {
        let line = format!("x-client-cert-{line}");
        assert!(alice.contains(&line), "{line} in {alice:?}");
    }
    let nobody = told(pki.client(None));
    assert_eq!(nobody, ["x-client-cert-verified: none"]);
    // On the listener that asks nobody for a certificate.
    let mut client = mizan.client();
    client.exchange(format!("GET /told HTTP/1.1\r\nHost: a\r\n{forged}\r\n"));
    assert!(lines_of(&backend).is_empty(), "{:?}", lines_of(&backend));
}

/// The route for members alone, by what Mizan tells of a client's certificate, and a pool for everybody else.
fn members_route(members: &Backend) -> String {
    format!(
        r#"
[[route]]
prefix = "/members"
header = {{ "X-Client-Cert-Verified" = "SUCCESS", "X-User" = {{ regex = ".*CN=alice.*" }} }}
pool = "members"
[pool.members]
backends = ["{}"]
"#,
        members.address()
    )
}

#[test]
fn a_route_for_those_with_a_certificate_is_had_by_nobody_who_only_says_so() {
    let pki = Pki::new();
    pki.issue("a");
    pki.issue("alice");
    let keys = format!(
        "client_auth = {{ roots = \"{}\", mode = \"optional\", headers = {{ subject = \"X-User\" }} }}",
        pki.path("ca.pem")
    );
    let (backend, members) = (Backend::healthy("a"), Backend::healthy("members"));
    let mizan = Mizan::start(&(two_listeners(&pki, &keys, &backend) + &members_route(&members)));
    let forged = "X-Client-Cert-Verified: SUCCESS\r\nX-User: CN=alice\r\n";
    let asked = |client| {
        let before = members.recorded().len();
        ask_secured(&client, mizan.address2(), "a.example", ("/members", forged))
            .expect("an answer");
        members.recorded().len() > before
    };
    assert!(!asked(pki.client(None)), "a forged one has got the route");
    assert!(asked(pki.client(Some("alice"))), "alice has not got it");
    // On the listener that asks nobody for a certificate.
    let mut client = mizan.client();
    client.exchange(format!("GET /members HTTP/1.1\r\nHost: a\r\n{forged}\r\n"));
    assert_eq!(members.recorded().len(), 1);
}

/// The lines of the backend's last request that say who the client is, however they are spelt, in lower case.
fn lines_of(backend: &Backend) -> Vec<String> {
    let last = backend.recorded().pop().expect("a request").to_lowercase();
    last.lines()
        .filter(|line| line.replace('_', "-").starts_with("x-client-cert"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn a_backend_with_tls_is_probed_and_served_under_its_name_and_ours() {
    let (pki, other) = (Pki::new(), Pki::new());
    pki.issue("a");
    pki.issue("mizan");
    let backend = Backend::healthy("a");
    let keys = format!("client_auth = {{ roots = \"{}\" }}", pki.path("ca.pem"));
    let behind = Mizan::start(&two_listeners(&pki, &keys, &backend));
    let before = |roots: &Pki| {
        let tls = format!(
            "health = {{ path = \"/healthz\", interval = \"2s\", timeout = \"1s\", fall = 1, rise = 1 }}\ntls = {{ roots = \"{}\", server_name = \"a.example\", client_certificate = {} }}",
            roots.path("ca.pem"),
            pki.pair("mizan")
        );
        Mizan::start(&config("", &tls, &[behind.address2()]))
    };
    let right = before(&pki);
    assert_eq!(right.get("/").status, 200);
    let lines = lines_of(&backend);
    let subject = "x-client-cert-subject: cn=mizan".to_owned();
    assert!(lines.contains(&subject), "{lines:?}");
    let usable = |mizan: &Mizan| mizan.metric("mizan_backend_usable", "pool=\"api\"");
    assert_eq!(usable(&right), 1.0);
    let wrong = before(&other);
    assert_eq!(wrong.get("/").status, 502);
    eventually(PATIENCE, "its probes find it down", || {
        let status = wrong.command(&["status"]);
        String::from_utf8_lossy(&status.stdout).contains("TLS handshake failed")
    });
}

//! TLS with backends: who is believed, what is asked and shown, and what becomes of a request when it fails.

use crate::support::locked;
use crate::support::tls::Issued;
use crate::support::*;
use rustls::server::WebPkiClientVerifier;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A backend behind TLS, with the authority that signed it.
struct Scene {
    authority: Authority,
    backend: Backend,
    issued: Issued,
    front: Relay,
}

impl Scene {
    /// With a certificate for these names.
    fn start(names: &[&str]) -> Self {
        let authority = Authority::new();
        let issued = authority.issue(names);
        let backend = Backend::healthy("a");
        let front = Relay::front(issued.acceptor(&[]), backend.address());
        Self {
            authority,
            backend,
            issued,
            front,
        }
    }

    /// Mizan before it, with these lines in `[pool.api.tls]`.
    fn mizan(&self, tls: &str) -> Mizan {
        let roots = format!("roots = {:?}", self.authority.roots_file());
        self.mizan_with(&format!("{roots}\n{tls}"))
    }

    /// The same with no word on roots.
    fn mizan_with(&self, tls: &str) -> Mizan {
        let text = config("", "", &[self.front.address]);
        Mizan::start(&(text + &format!("[pool.api.tls]\n{tls}\n")))
    }
}

#[track_caller]
fn expect_failed(mizan: &Mizan) {
    let answer = mizan.get("/");
    assert_eq!(
        (answer.status, answer.text()),
        (502, "502 Bad Gateway: tls_failed\n".to_owned())
    );
    let unreached = mizan.metric("mizan_unreached_total", "cause=\"tls_failed\"");
    assert_eq!(unreached, 1.0);
}

#[test]
fn a_backend_is_believed_by_its_roots_and_its_name() {
    let scene = Scene::start(&["127.0.0.1"]);
    let mizan = scene.mizan("");
    assert_eq!(mizan.get("/").status, 200);
    // An address is no name: it is not asked for.
    assert_eq!(locked(&scene.front.met.names)[..], [""]);
    let named = Scene::start(&["api.internal"]);
    let mizan = named.mizan("server_name = \"api.internal\"");
    assert_eq!(mizan.get("/").status, 200);
    assert_eq!(locked(&named.front.met.names)[..], ["api.internal"]);
}

#[test]
fn a_backend_that_is_not_who_it_should_be_gets_no_request() {
    let scene = Scene::start(&["b.internal"]);
    expect_failed(&scene.mizan("server_name = \"a.internal\""));
    expect_failed(&scene.mizan(""));
    let stranger = Authority::new();
    expect_failed(&scene.mizan_with(&format!(
        "roots = {:?}\nserver_name = \"b.internal\"",
        stranger.roots_file()
    )));
    assert_eq!(scene.backend.requests(), 0);
    let plain = Backend::healthy("plain");
    let text = config("", "", &[plain.address()]);
    let roots = scene.authority.roots_file();
    let tls = format!("[pool.api.tls]\nroots = {roots:?}\nhandshake_timeout = \"1s\"\n");
    expect_failed(&Mizan::start(&(text + &tls)));
}

#[test]
fn what_failed_for_want_of_tls_is_tried_elsewhere_whatever_its_method() {
    let scene = Scene::start(&["127.0.0.1"]);
    let stranger = Authority::new();
    let wrong = stranger.issue(&["127.0.0.1"]);
    let other = Relay::front(wrong.acceptor(&[]), scene.backend.address());
    let text = config(
        "",
        "policy = \"round_robin\"",
        &[other.address, scene.front.address],
    );
    let roots = scene.authority.roots_file();
    let mizan = Mizan::start(&(text + &format!("[pool.api.tls]\nroots = {roots:?}\n")));
    for _ in 0..6 {
        assert_eq!(mizan.client().post("/", b"hello").status, 200);
    }
    assert!(other.met.failed.load(Ordering::SeqCst) > 0, "never tried");
    assert_eq!(other.met.handshakes.load(Ordering::SeqCst), 0);
    assert!(mizan.metric("mizan_rescued_total", "cause=\"tls_failed\"") > 0.0);
    assert!(
        mizan
            .log()
            .contains("the TLS handshake with a backend failed")
    );
}

#[test]
fn a_pin_asks_for_a_key_on_top() {
    let scene = Scene::start(&["127.0.0.1"]);
    let other = scene.authority.issue(&["other.internal"]);
    let (right, wrong) = (&scene.issued.pin, &other.pin);
    let mizan = scene.mizan(&format!("pin_sha256 = [\"{wrong}\", \"{right}\"]"));
    assert_eq!(mizan.get("/").status, 200);
    expect_failed(&scene.mizan(&format!("pin_sha256 = [\"{wrong}\"]")));
    // With a pin and no verification, the key alone counts.
    let only = scene.mizan_with(&format!("verify = false\npin_sha256 = [\"{right}\"]"));
    assert_eq!(only.get("/").status, 200);
    expect_failed(&scene.mizan_with(&format!("verify = false\npin_sha256 = [\"{wrong}\"]")));
    assert_eq!(scene.mizan_with("verify = false").get("/").status, 200);
}

#[test]
fn a_backend_that_asks_is_shown_mizans_certificate() {
    let scene = Scene::start(&["127.0.0.1"]);
    let mine = scene.authority.issue(&["mizan.internal"]);
    let verifier = WebPkiClientVerifier::builder(Arc::new(scene.authority.roots())).build();
    let asking = rustls::ServerConfig::builder()
        .with_client_cert_verifier(verifier.expect("it has a root"))
        .with_single_cert(scene.issued.chain.clone(), scene.issued.key())
        .expect("they match");
    let front = Relay::front(asking, scene.backend.address());
    let text = config("", "", &[front.address]);
    let roots = format!(
        "[pool.api.tls]\nroots = {:?}\n",
        scene.authority.roots_file()
    );
    let mizan = Mizan::start(&format!(
        "{text}{roots}client_certificate = {}\n",
        mine.entry()
    ));
    assert_eq!(mizan.get("/").status, 200);
    assert_eq!(front.met.shown.load(Ordering::SeqCst), 1);
    let nameless = Mizan::start(&format!("{text}{roots}"));
    let answer = nameless.get("/");
    // In TLS 1.3 the refusal comes behind the handshake.
    assert_eq!(answer.status, 502, "{answer:?}");
}

#[test]
fn a_pooled_connection_that_has_gone_stale_fails_no_request() {
    let scene = Scene::start(&["127.0.0.1"]);
    let mizan = scene.mizan("");
    let mut client = mizan.client();
    for round in 0..20 {
        // A POST is repeated only if nothing of it can have arrived.
        let answer = client.post("/", b"hello");
        assert_eq!(answer.status, 200, "round {round}: {}", answer.text());
        if round % 2 == 0 {
            scene.front.close();
        } else {
            scene.front.cut();
        }
        eventually(PATIENCE, "it is closed", || scene.backend.open() == 0);
    }
    assert_eq!(scene.backend.requests(), 20);
    let handshakes = scene.front.met.handshakes.load(Ordering::SeqCst);
    assert!(
        handshakes >= 20,
        "{handshakes} handshakes: what was stale was never met"
    );
}

#[test]
fn connections_over_tls_are_pooled() {
    let scene = Scene::start(&["127.0.0.1"]);
    let mizan = scene.mizan("");
    let mut client = mizan.client();
    for _ in 0..50 {
        assert_eq!(
            client.post("/bytes/100000", &[b'x'; 50_000]).body.len(),
            100_000
        );
    }
    assert_eq!(scene.front.met.handshakes.load(Ordering::SeqCst), 1);
}

#[test]
fn an_answer_that_ends_without_a_close_of_tls_is_cut_and_not_whole() {
    let authority = Authority::new();
    let issued = authority.issue(&["127.0.0.1"]);
    let backend = Backend::start(|exchange| {
        exchange.send("HTTP/1.1 200 OK\r\n\r\nhalf")?;
        exchange.hang()
    });
    let front = Relay::front(issued.acceptor(&[]), backend.address());
    let text = config("", "", &[front.address]);
    let roots = format!("[pool.api.tls]\nroots = {:?}\n", authority.roots_file());
    let mizan = Mizan::start(&(text + &roots));
    let mut client = mizan.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.read_head().word(1), "200");
    assert_eq!(client.read_exactly(9), b"4\r\nhalf\r\n");
    // A body that ends with its connection, and somebody on the way who ends that.
    front.cut();
    let (rest, _) = client.read_to_end();
    assert_eq!(
        String::from_utf8_lossy(&rest),
        "",
        "the end of a whole answer"
    );
}

#[test]
fn a_handshake_that_stalls_is_given_up_and_tried_elsewhere() {
    let scene = Scene::start(&["127.0.0.1"]);
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = silent.local_addr().expect("it is bound");
    let text = config(
        "",
        "policy = \"round_robin\"",
        &[address, scene.front.address],
    );
    let roots = scene.authority.roots_file();
    let tls = format!("[pool.api.tls]\nroots = {roots:?}\nhandshake_timeout = \"1s\"\n");
    let mizan = Mizan::start(&(text + &tls));
    for _ in 0..4 {
        assert_eq!(mizan.client().post("/", b"hello").status, 200);
    }
}

#[test]
fn each_backend_chooses_its_protocol_where_it_may() {
    let authority = Authority::new();
    let issued = authority.issue(&["127.0.0.1"]);
    let (one, two) = (Backend::healthy("one"), H2Backend::healthy("two"));
    let fronts = [
        Relay::front(issued.acceptor(&["http/1.1"]), one.address()),
        Relay::front(issued.acceptor(&["h2", "http/1.1"]), two.address()),
        Relay::front(issued.acceptor(&[]), one.address()),
    ];
    let addresses = fronts.each_ref().map(|front| front.address);
    let pool = "protocol = \"auto\"\npolicy = \"round_robin\"";
    let roots = format!("[pool.api.tls]\nroots = {:?}\n", authority.roots_file());
    let mizan = Mizan::start(&(config("", pool, &addresses) + &roots));
    let client = H2Client::connect(mizan.address());
    for _ in 0..30 {
        assert_eq!(client.exchange(Ask::post("/", "hello")).status, 200);
    }
    assert_eq!((one.requests(), two.requests()), (20, 10));
    let handshakes: Vec<_> = fronts
        .iter()
        .map(|front| front.met.handshakes.load(Ordering::SeqCst))
        .collect();
    assert!(handshakes.iter().all(|count| *count <= 2), "{handshakes:?}");
    // Where HTTP/2 is asked for, who does not speak it is no backend.
    let pool = "protocol = \"http2\"";
    let mizan = Mizan::start(&(config("", pool, &addresses[..1]) + &roots));
    assert_eq!(mizan.get("/").status, 502);
}

#[test]
fn a_backend_that_lies_about_the_length_of_a_message_has_failed_and_another_is_tried() {
    use std::io::Write;
    let scene = Scene::start(&["127.0.0.1"]);
    let liar = RawBackend::start(|connection| {
        let _ = connection
            .stream
            .write_all(&[22, 3, 3, 0, 4, 2, 0xff, 0xff, 0xff]);
        connection.read_to_end();
    });
    let addresses = [liar.address(), scene.front.address];
    let text = config("", "policy = \"round_robin\"", &addresses);
    let roots = scene.authority.roots_file();
    let mizan = Mizan::start(&(text + &format!("[pool.api.tls]\nroots = {roots:?}\n")));
    for _ in 0..4 {
        assert_eq!(mizan.client().post("/", b"hello").status, 200);
    }
    assert!(liar.connections() > 0, "never tried");
    assert!(mizan.metric("mizan_rescued_total", "cause=\"tls_failed\"") > 0.0);
    assert_eq!(mizan.metric("mizan_requests_in_flight", ""), 0.0);
    let alone = config("", "", &[liar.address()]);
    expect_failed(&Mizan::start(
        &(alone + &format!("[pool.api.tls]\nroots = {roots:?}\n")),
    ));
}

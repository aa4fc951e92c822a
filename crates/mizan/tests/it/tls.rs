//! TLS with clients: who is shown which certificate, what is agreed on, and who clients are told to be.

use crate::support::tls::{h2_client, secure};
use crate::support::*;
use rustls::ClientConfig;
use rustls::version::{TLS12, TLS13};
use std::sync::Arc;
use std::time::Duration;

/// A listener with TLS beside the plain one.
fn listener(certificates: &[String], more: &str) -> String {
    format!(
        "[[listener]]\nname = \"tls\"\nbind = \"{{listen2}}\"\n[listener.tls]\ncertificates = [{}]\n{more}\n",
        certificates.join(", ")
    )
}

struct Scene {
    authority: Authority,
    backend: Backend,
    mizan: Mizan,
}

/// One certificate, for `a.example`.
fn started(more: &str) -> Scene {
    let authority = Authority::new();
    let issued = authority.issue(&["a.example"]);
    let more = more.replace("{roots}", &authority.roots_file().display().to_string());
    let backend = Backend::healthy("a");
    let text = config("", "", &[backend.address()]) + &listener(&[issued.entry()], &more);
    let mizan = Mizan::start(&text);
    Scene {
        authority,
        backend,
        mizan,
    }
}

impl Scene {
    /// A client of HTTP/1.1 over TLS, with the relay that it goes through.
    fn one(&self, config: ClientConfig) -> (Relay, Client) {
        let relay = Relay::back(config, self.mizan.address2(), "a.example");
        let client = Client::connect(relay.address);
        (relay, client)
    }

    fn handshakes(&self, code: &str) -> f64 {
        let label = format!("code=\"{code}\"");
        self.mizan.metric("mizan_tls_handshakes_total", &label)
    }
}

#[test]
fn a_client_gets_the_certificate_for_the_name_that_it_asks_for() {
    let authority = Authority::new();
    let issued = [
        authority.issue(&["a.example", "alias.example"]),
        authority.issue(&["b.example"]),
        authority.issue(&["*.c.example"]),
    ];
    let backend = Backend::healthy("a");
    let entries = issued.each_ref().map(tls::Issued::entry);
    let mizan = Mizan::start(&(config("", "", &[backend.address()]) + &listener(&entries, "")));
    let shown = |name: &str| {
        let client = Arc::new(authority.client_of_anybody());
        let stream = run(secure(mizan.address2(), name, &client)).expect("a handshake");
        let chain = stream
            .get_ref()
            .1
            .peer_certificates()
            .expect("shown")
            .to_vec();
        issued.iter().position(|issued| issued.chain[0] == chain[0])
    };
    for (name, which) in [
        ("a.example", 0),
        ("alias.example", 0),
        ("b.example", 1),
        ("B.EXAMPLE", 1),
        ("x.c.example", 2),
        ("x.y.c.example", 0),
        ("unknown.example", 0),
        ("127.0.0.1", 0),
    ] {
        assert_eq!(shown(name), Some(which), "{name}");
    }
}

#[test]
fn with_strict_sni_an_unknown_name_is_refused() {
    let scene = started("strict_sni = true");
    let client = Arc::new(scene.authority.client_of_anybody());
    let address = scene.mizan.address2();
    assert!(run(secure(address, "b.example", &client)).is_err());
    assert!(run(secure(address, "a.example", &client)).is_ok());
    assert_eq!(scene.handshakes("failed"), 1.0);
}

#[test]
fn the_protocol_is_what_both_know() {
    let scene = started("");
    for (offered, agreed) in [
        (&["h2", "http/1.1"][..], Some(&b"h2"[..])),
        (&["http/1.1", "h2"], Some(b"h2")),
        (&["http/1.1"], Some(b"http/1.1")),
        (&[], None),
    ] {
        let client = Arc::new(scene.authority.client(offered));
        let stream = run(secure(scene.mizan.address2(), "a.example", &client));
        let stream = stream.expect("a handshake");
        assert_eq!(stream.get_ref().1.alpn_protocol(), agreed, "{offered:?}");
    }
    let (_relay, mut one) = scene.one(scene.authority.client(&["http/1.1"]));
    assert_eq!(one.get("/").status, 200);
    let two = h2_client(
        scene.mizan.address2(),
        "a.example",
        scene.authority.client(&["h2"]),
    );
    assert_eq!(two.get("/").status, 200);
    for request in scene.backend.recorded() {
        assert!(
            request.contains("\r\nX-Forwarded-Proto: https\r\n"),
            "{request}"
        );
    }
}

#[test]
fn where_http2_is_off_it_is_neither_offered_nor_spoken() {
    let authority = Authority::new();
    let issued = authority.issue(&["a.example"]);
    let backend = Backend::healthy("a");
    let tls =
        listener(&[issued.entry()], "").replace("[listener.tls]", "http2 = false\n[listener.tls]");
    let mizan = Mizan::start(&(config("http2 = false", "", &[backend.address()]) + &tls));
    let client = Arc::new(authority.client(&["h2", "http/1.1"]));
    let stream = run(secure(mizan.address2(), "a.example", &client)).expect("a handshake");
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    let mut plain = mizan.client();
    plain.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    let answer = plain.read();
    assert!(matches!(answer.status, 400 | 505), "{answer:?}");
}

#[test]
fn tls_1_2_and_1_3_are_spoken_within_the_bounds() {
    let scene = started("");
    let modern = started("min_version = \"1.3\"");
    let with = |scene: &Scene, version| {
        let client = scene.authority.client_of(&[version]);
        run(secure(
            scene.mizan.address2(),
            "a.example",
            &Arc::new(client),
        ))
    };
    for version in [&TLS12, &TLS13] {
        let stream = with(&scene, version).expect("a handshake");
        assert_eq!(stream.get_ref().1.protocol_version(), Some(version.version));
    }
    assert!(with(&modern, &TLS13).is_ok());
    assert!(with(&modern, &TLS12).is_err());
}

#[test]
fn a_client_that_comes_again_resumes_its_session() {
    for version in [&TLS12, &TLS13] {
        let scene = started("");
        let config = scene.authority.client_of(&[version]);
        let relay = Relay::back(config, scene.mizan.address2(), "a.example");
        for _ in 0..4 {
            // The tickets of TLS 1.3 come behind the handshake: the answer shows that they were read.
            let mut client = Client::connect(relay.address);
            assert_eq!(client.get("/").status, 200);
        }
        assert_eq!(
            (scene.handshakes("full"), scene.handshakes("resumed")),
            (1.0, 3.0),
            "{version:?}"
        );
        // Over a reload, too.
        assert!(scene.mizan.command(&["reload"]).status.success());
        assert_eq!(Client::connect(relay.address).get("/").status, 200);
        assert_eq!(scene.handshakes("resumed"), 4.0, "{version:?}");
    }
    let scene = started("tickets = false");
    let relay = Relay::back(
        scene.authority.client(&[]),
        scene.mizan.address2(),
        "a.example",
    );
    for _ in 0..3 {
        assert_eq!(Client::connect(relay.address).get("/").status, 200);
    }
    assert_eq!(
        (scene.handshakes("full"), scene.handshakes("resumed")),
        (3.0, 0.0)
    );
}

#[test]
fn certificates_are_renewed_under_load_and_no_request_fails() {
    let _alone = alone();
    let scene = started("");
    let relay = Relay::back(
        scene.authority.client(&[]),
        scene.mizan.address2(),
        "a.example",
    );
    let plan = Plan {
        clients: 4,
        ..Plan::default()
    };
    let lasting = Load::start(relay.address, plan);
    let fresh = relay.address;
    // In release mode, as `make test-long` has it, five times as many.
    let rounds = if cfg!(debug_assertions) { 20 } else { 100 };
    let mut last = None;
    for round in 0..rounds {
        let issued = scene.authority.issue(&["a.example"]);
        assert!(scene.mizan.command(&["reload"]).status.success());
        assert_eq!(Client::connect(fresh).get("/").status, 200, "round {round}");
        lasting.wait_for(10);
        last = Some(issued);
    }
    lasting.stop().expect_no_failure();
    let client = Arc::new(scene.authority.client(&[]));
    let stream = run(secure(scene.mizan.address2(), "a.example", &client)).expect("a handshake");
    let chain = stream.get_ref().1.peer_certificates().expect("shown");
    assert_eq!(
        Some(&chain[0]),
        last.as_ref().map(|issued| &issued.chain[0]),
        "the old one is shown"
    );
}

const IDENTITY: [&str; 4] = ["verified", "subject", "san", "fingerprint"];

/// What a backend was told of the client, in the last request.
fn told(backend: &Backend) -> Vec<String> {
    let requests = backend.recorded();
    let last = requests.last().expect("a request");
    let lines = last.lines().filter(|line| {
        let name = line.split(':').next().unwrap_or_default().to_lowercase();
        name.replace('_', "-").starts_with("x-client-cert")
    });
    lines.map(str::to_owned).collect()
}

/// Identity fields as a client would forge them, in spellings that some backends fold together.
fn forged() -> Vec<(String, &'static str)> {
    let names = IDENTITY.iter().flat_map(|name| {
        let name = format!("x-client-cert-{name}");
        [
            name.clone(),
            name.replace('-', "_"),
            name.replacen('-', "_", 1),
        ]
    });
    names.map(|name| (name, "mallory")).collect()
}

fn forge(mut ask: Ask) -> Ask {
    for (name, value) in forged() {
        ask = ask.field(&name, value);
    }
    ask
}

#[test]
fn a_client_without_a_certificate_is_refused_where_one_is_required() {
    let scene = started("client_auth = { roots = \"{roots}\" }");
    let (_relay, mut one) = scene.one(scene.authority.client(&[]));
    one.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
    assert!(one.try_read("GET").is_err(), "served");
    let stranger = Authority::new();
    let wrong = stranger.issue(&["mallory"]);
    let (_relay, mut other) = scene.one(scene.authority.client_as(&wrong, &[]));
    other.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
    assert!(other.try_read("GET").is_err(), "served");
    assert_eq!(scene.backend.requests(), 0);
    eventually(PATIENCE, "they are counted", || {
        scene.handshakes("failed") == 2.0
    });
    // At most one line a second.
    let log = scene.mizan.log();
    let line = log
        .lines()
        .find(|line| line.contains("TLS handshake failed"));
    let line = line.expect("a line");
    for known in [
        "INFO",
        "127.0.0.1",
        "\"listener\":\"",
        "peer sent no certificates",
    ] {
        assert!(line.contains(known), "{known} in {line}");
    }
}

#[test]
fn backends_are_told_who_a_client_is_and_nobody_can_forge_it() {
    let scene = started("client_auth = { roots = \"{roots}\" }");
    let alice = scene.authority.issue(&["alice.example"]);
    let request = forged().iter().fold(String::new(), |lines, (name, value)| {
        lines + &format!("{name}: {value}\r\n")
    });
    let (_relay, mut one) = scene.one(scene.authority.client_as(&alice, &[]));
    let head = format!("GET / HTTP/1.1\r\nHost: a.example\r\n{request}\r\n");
    assert_eq!(one.exchange(head).status, 200);
    let by_one = told(&scene.backend);
    let config = scene.authority.client_as(&alice, &["h2"]);
    let two = h2_client(scene.mizan.address2(), "a.example", config);
    assert_eq!(two.exchange(forge(Ask::get("/"))).status, 200);
    let by_two = told(&scene.backend);
    for told in [by_one, by_two] {
        let text = told.join("\n");
        assert_eq!(told.len(), 4, "{text}");
        assert!(
            text.contains("SUCCESS") && text.contains("CN=alice.example"),
            "{text}"
        );
        assert!(
            text.contains("DNS:alice.example") && !text.contains("mallory"),
            "{text}"
        );
    }
    // On the plain listener beside it nobody is anybody.
    let plain = H2Client::connect(scene.mizan.address());
    assert_eq!(plain.exchange(forge(Ask::get("/"))).status, 200);
    assert_eq!(told(&scene.backend), [""; 0]);
}

#[test]
fn a_client_without_a_certificate_is_nobody_where_one_is_optional() {
    let scene = started("client_auth = { roots = \"{roots}\", mode = \"optional\" }");
    let two = h2_client(
        scene.mizan.address2(),
        "a.example",
        scene.authority.client(&["h2"]),
    );
    assert_eq!(two.exchange(forge(Ask::get("/"))).status, 200);
    let told_of = told(&scene.backend).join("\n");
    assert!(
        told_of.ends_with("NONE") && !told_of.contains("mallory"),
        "{told_of}"
    );
    let alice = scene.authority.issue(&["alice.example"]);
    let (_relay, mut one) = scene.one(scene.authority.client_as(&alice, &[]));
    assert_eq!(one.get("/").status, 200);
    assert!(told(&scene.backend).join("\n").contains("SUCCESS"));
    // A session that began without a certificate resumes without one.
    let stranger = Authority::new();
    let wrong = stranger.issue(&["mallory"]);
    let (_relay, mut other) = scene.one(scene.authority.client_as(&wrong, &[]));
    other.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
    assert!(
        other.try_read("GET").is_err(),
        "a certificate that is not valid was let pass"
    );
}

#[test]
fn a_resumed_session_is_still_who_it_was() {
    let scene = started("client_auth = { roots = \"{roots}\" }");
    let alice = scene.authority.issue(&["alice.example"]);
    let config = scene.authority.client_as(&alice, &[]);
    let relay = Relay::back(config, scene.mizan.address2(), "a.example");
    for _ in 0..3 {
        assert_eq!(Client::connect(relay.address).get("/").status, 200);
        assert!(told(&scene.backend).join("\n").contains("CN=alice.example"));
    }
    assert_eq!(scene.handshakes("resumed"), 2.0);
}

#[test]
fn answers_over_tls_say_that_tls_is_to_be_used() {
    let scene = started("hsts = { max_age = \"30d\", include_subdomains = true }");
    let field = "strict-transport-security";
    let value = Some("max-age=2592000; includeSubDomains");
    let (_relay, mut one) = scene.one(scene.authority.client(&[]));
    assert_eq!(one.get("/").field(field), value);
    let two = h2_client(
        scene.mizan.address2(),
        "a.example",
        scene.authority.client(&["h2"]),
    );
    assert_eq!(two.get("/").field(field), value);
    // What Mizan answers itself, too; over the clear nobody is told.
    assert_eq!(two.get("/%2f").field(field), value);
    assert_eq!(scene.mizan.get("/").field(field), None);
}

#[test]
fn a_plain_listener_sends_its_clients_to_the_one_with_tls() {
    let backend = Backend::healthy("a");
    let text = config("redirect_to_https = 8443", "", &[backend.address()]);
    let mizan = Mizan::start(&text);
    let answer = mizan.get("/a?b=c");
    let to = |answer: Option<&str>| assert_eq!(answer, Some("https://a.example:8443/a?b=c"));
    assert_eq!(answer.status, 308);
    to(answer.field("location"));
    let two = H2Client::connect(mizan.address());
    let answer = two.exchange(Ask::post("/a?b=c", "hello"));
    assert_eq!(answer.status, 308);
    to(answer.field("location"));
    assert_eq!(backend.requests(), 0);
}

#[test]
fn half_a_handshake_is_cut_in_time_and_hinders_nobody() {
    let scene = started("handshake_timeout = \"800ms\"");
    let address = scene.mizan.address2();
    let before = scene.mizan.resident_bytes();
    // The beginning of a record of 512 bytes, and no more; some say nothing at all.
    let mut stalled: Vec<_> = (0..500).map(|_| Client::connect(address)).collect();
    for client in stalled.iter_mut().skip(100) {
        client.send([22, 3, 1, 2, 0, 1, 0]);
    }
    let started = now();
    let (_relay, mut one) = scene.one(scene.authority.client(&[]));
    assert_eq!(one.get("/").status, 200);
    assert!(
        now() - started < Duration::from_secs(2),
        "after {:?}",
        now() - started
    );
    let grown = scene.mizan.resident_bytes().saturating_sub(before);
    assert!(grown < 16 << 20, "{} KiB for 500 of them", grown >> 10);
    for client in &mut stalled {
        let (_, end) = client.read_to_end();
        assert!(matches!(end, Ok(()) | Err(How::Reset)), "{end:?}");
    }
    eventually(PATIENCE, "they are counted", || {
        scene.handshakes("failed") == 500.0
    });
    assert_eq!(one.get("/").status, 200);
}

#[test]
fn what_is_no_tls_is_refused_and_costs_nothing() {
    let scene = started("");
    let address = scene.mizan.address2();
    for garbage in [
        &b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"[..],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        &[0xff; 4_096],
        &[22, 3, 1, 0xff, 0xff, 1, 0, 0, 0],
        &[21, 3, 3, 0, 2, 2, 40],
        &[23, 3, 3, 0, 5, 1, 2, 3, 4, 5],
    ] {
        let mut client = Client::connect(address);
        client.send(garbage);
        client.finish_sending();
        let (said, end) = client.read_to_end();
        assert!(matches!(end, Ok(()) | Err(How::Reset)), "{end:?}");
        assert!(said.is_empty() || said[0] == 21, "no alert but {said:?}");
    }
    eventually(PATIENCE, "they are counted", || {
        scene.handshakes("failed") == 6.0
    });
    assert_eq!(scene.backend.requests(), 0);
    let (_relay, mut one) = scene.one(scene.authority.client(&[]));
    assert_eq!(one.get("/").status, 200);
}

#[test]
fn an_idle_connection_of_tls_costs_little() {
    let _alone = alone();
    let scene = started("");
    let config = Arc::new(scene.authority.client(&[]));
    let request = |_| {
        let (config, address) = (Arc::clone(&config), scene.mizan.address2());
        run(async move {
            use tokio::io::{AsyncReadExt, AsyncWriteExt};
            let mut stream = secure(address, "a.example", &config)
                .await
                .expect("a handshake");
            let head = b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";
            stream.write_all(head).await.expect("sent");
            let count = stream.read(&mut [0; 512]).await.expect("an answer");
            assert!(count > 0);
            stream
        })
    };
    let _warm: Vec<_> = (0..20).map(request).collect();
    let before = scene.mizan.resident_bytes();
    let idle: Vec<_> = (0..200).map(request).collect();
    eventually(PATIENCE, "they are idle", || {
        scene.mizan.resident_bytes().saturating_sub(before) < 200 * (24 << 10)
    });
    drop(idle);
}

/// A handshake message of 16 MB, by its own account: the library keeps in mind where its beginning lies.
#[test]
fn a_handshake_message_that_is_too_long_is_refused_and_counted_on_every_listener() {
    let scene = started("client_auth = { roots = \"{roots}\", mode = \"required\" }");
    let issued = scene.authority.issue(&["a.example"]);
    let backends = [scene.backend.address()];
    let handed = config("", "", &backends)
        + &listener(&[issued.entry()], "").replace(
            "[listener.tls]",
            "kind = \"tcp\"\npool = \"api\"\n[listener.tls]",
        );
    let plain = config("", "", &backends) + &listener(&[issued.entry()], "");
    for mizan in [scene.mizan, Mizan::start(&handed), Mizan::start(&plain)] {
        let mut client = Client::connect(mizan.address2());
        client.send([22, 3, 1, 0, 4, 1, 0xff, 0xff, 0xff]);
        assert_eq!(client.read_exactly(7), [21, 3, 3, 0, 2, 2, 50]);
        let failed = || mizan.metric("mizan_tls_handshakes_total", "code=\"failed\"");
        eventually(PATIENCE, "it is counted", || failed() == 1.0);
        assert!(!mizan.log().contains("panicked"), "{}", mizan.log());
    }
}

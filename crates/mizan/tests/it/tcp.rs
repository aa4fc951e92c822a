//! TCP handed through: what passes, how it ends, and where it goes.

use crate::support::*;
use crate::support::{mizan, wire};
use rustix::process::Signal;
use rustls::pki_types::ServerName;
use serde_json::Value;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A listener that hands everything to the pool `api`.
fn config(listener: &str, pool: &str, backends: &[SocketAddr]) -> String {
    format!(
        "[[listener]]\nbind = \"{{listen}}\"\nkind = \"tcp\"\npool = \"api\"\n{listener}\n{}\n[log]\naccess = \"{{dir}}/access.log\"\n",
        pool_of(pool, backends)
    )
}

fn start(listener: &str, pool: &str, backends: &[SocketAddr]) -> Mizan {
    Mizan::start(&config(listener, pool, backends))
}

/// A client to which the backend has said its name, `length` bytes.
#[track_caller]
fn greeted(mizan: &Mizan, length: usize) -> (Client, String) {
    let mut client = mizan.client();
    let name = client.read_exactly(length);
    (client, String::from_utf8(name).expect("a name"))
}

/// The lines of the access log, once there are `count`.
#[track_caller]
fn lines(mizan: &Mizan, count: usize) -> Vec<Value> {
    let path = mizan.directory().join("access.log");
    let mut lines = Vec::new();
    eventually(PATIENCE, "the lines are in the access log", || {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let parsed = text.lines().map(serde_json::from_str);
        lines = parsed.map_while(Result::ok).collect();
        lines.len() >= count
    });
    lines
}

/// Bytes that differ all along.
fn pattern(length: usize, seed: u32) -> Vec<u8> {
    let mut state = seed;
    let mut bytes = Vec::with_capacity(length + 4);
    while bytes.len() < length {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

#[test]
fn a_fin_is_passed_on_and_the_other_way_goes_on() {
    let backend = RawBackend::start(|connection| {
        // Answers only when the whole question is there.
        let question = connection.read_to_end();
        let answer: Vec<u8> = question.into_iter().rev().collect();
        let _ = connection.stream.write_all(&answer);
    });
    let mizan = start("", "", &[backend.address()]);
    let mut client = mizan.client();
    client.send("olleh");
    client.finish_sending();
    assert_eq!(client.read_to_end(), (b"hello".to_vec(), Ok(())));
    let line = &lines(&mizan, 1)[0];
    assert_eq!(
        (&line["protocol"], &line["pool"], &line["backend"]),
        (
            &"tcp".into(),
            &"api".into(),
            &backend.address().to_string().into()
        )
    );
    assert_eq!(
        (&line["bytes_in"], &line["bytes_out"]),
        (&5.into(), &5.into())
    );
    assert_eq!((&line["status"], &line["tries"]), (&0.into(), &1.into()));
    assert!(line.get("reason").is_none(), "{line}");
    assert_eq!(mizan.metric("mizan_requests_total", "pool=\"api\""), 1.0);
}

#[test]
fn who_speaks_first_does_not_matter() {
    let backend = RawBackend::echo("smtp");
    let mizan = start("", "", &[backend.address()]);
    let (mut client, _) = greeted(&mizan, 4);
    for piece in ["a", "bc", "def"] {
        client.send(piece);
        assert_eq!(client.read_exactly(piece.len()), piece.as_bytes());
    }
}

#[test]
fn a_reset_of_the_backend_is_a_reset_for_the_client() {
    let backend = RawBackend::start(|connection| {
        let _ = connection.stream.write_all(b"some");
        connection.read_exactly(1);
        connection.reset();
    });
    let mizan = start("", "", &[backend.address()]);
    let (mut client, _) = greeted(&mizan, 4);
    client.send("x");
    assert_eq!(client.read_to_end(), (Vec::new(), Err(wire::How::Reset)));
    assert_eq!(lines(&mizan, 1)[0]["reason"], "response_cut");
}

#[test]
fn a_reset_of_the_client_is_a_reset_for_the_backend() {
    let backend = RawBackend::start(|connection| {
        let _ = connection.stream.write_all(b"some");
        let mut bytes = Vec::new();
        let end = std::io::Read::read_to_end(&mut connection.stream, &mut bytes);
        connection.hear(format!("{:?}", end.map_err(|error| error.kind())).into_bytes());
    });
    let mizan = start("", "", &[backend.address()]);
    let (client, _) = greeted(&mizan, 4);
    socket2::SockRef::from(client.stream())
        .set_linger(Some(Duration::ZERO))
        .expect("a live socket");
    drop(client);
    eventually(PATIENCE, "the backend's connection ends", || {
        !backend.heard().is_empty()
    });
    assert_eq!(backend.heard(), [b"Err(ConnectionReset)".to_vec()]);
    assert_eq!(lines(&mizan, 1)[0]["reason"], "client_gone");
}

#[test]
fn megabytes_pass_both_ways_at_once_as_they_are() {
    const LENGTH: usize = 24 << 20;
    let backend = RawBackend::start(|connection| {
        let mut writer = connection.stream.try_clone().expect("a handle");
        let sent = std::thread::spawn(move || {
            let _ = writer.write_all(&pattern(LENGTH, 1));
            let _ = writer.shutdown(std::net::Shutdown::Write);
        });
        let read = connection.read_to_end();
        let _ = sent.join();
        connection.hear(vec![u8::from(read == pattern(LENGTH, 2))]);
    });
    let mizan = start("", "", &[backend.address()]);
    let mut client = mizan.client();
    let mut writer = client.stream().try_clone().expect("a handle");
    let sent = std::thread::spawn(move || {
        writer.write_all(&pattern(LENGTH, 2)).expect("it is taken");
        writer
            .shutdown(std::net::Shutdown::Write)
            .expect("it is live");
    });
    let (read, end) = client.read_to_end();
    sent.join().expect("it sends");
    assert_eq!(end, Ok(()));
    assert!(
        read == pattern(LENGTH, 1),
        "{} bytes, not as sent",
        read.len()
    );
    eventually(PATIENCE, "the backend has read all", || {
        !backend.heard().is_empty()
    });
    assert_eq!(backend.heard(), [vec![1]], "not as the client sent it");
    let line = &lines(&mizan, 1)[0];
    assert_eq!(
        (&line["bytes_in"], &line["bytes_out"]),
        (&LENGTH.into(), &LENGTH.into())
    );
}

#[test]
fn a_killed_backend_gets_no_further_connection_and_no_client_sees_it() {
    let mut killed = ProcessBackend::start("killed");
    let other = ProcessBackend::start("other");
    let mizan = start(
        "",
        "policy = \"round_robin\"",
        &[killed.address(), other.address()],
    );
    let names: Vec<_> = (0..4).map(|_| mizan.get("/").text()).collect();
    assert!(names.contains(&"killed:0".to_owned()), "{names:?}");
    killed.kill();
    for _ in 0..50 {
        assert_eq!(mizan.get("/").text(), "other:0");
    }
    let rescued = mizan.metric("mizan_rescued_total", "cause=\"connect_refused\"");
    assert!(rescued >= 1.0, "{rescued}");
    assert_eq!(mizan.metric("mizan_unreached_total", "pool=\"api\""), 0.0);
}

#[test]
fn where_nobody_listens_the_client_is_reset_and_the_log_says_why() {
    let gone = mizan::free_address();
    let mizan = start("", "", &[gone]);
    let mut client = mizan.client();
    assert_eq!(client.read_to_end(), (Vec::new(), Err(wire::How::Reset)));
    let line = &lines(&mizan, 1)[0];
    assert_eq!(
        (&line["reason"], &line["tries"]),
        (&"connect_refused".into(), &3.into())
    );
    let unreached = mizan.metric("mizan_unreached_total", "cause=\"connect_refused\"");
    assert_eq!(unreached, 1.0);
}

#[test]
fn open_connections_count_as_load() {
    let backends = [RawBackend::echo("a"), RawBackend::echo("b")];
    let addresses = backends.each_ref().map(RawBackend::address);
    let mizan = start("", "policy = \"least_connections\"", &addresses);
    let open: Vec<_> = (0..10).map(|_| greeted(&mizan, 1)).collect();
    assert_eq!(backends.each_ref().map(RawBackend::connections), [5, 5]);
    // Each is told for the process, for its pool and for its backend.
    assert_eq!(mizan.in_flight(), 3 * 10);
    // All of one backend go: it gets the next ones.
    let (a, b): (Vec<_>, Vec<_>) = open.into_iter().partition(|(_, name)| name == "a");
    drop(a);
    eventually(PATIENCE, "closed connections are given back", || {
        mizan.in_flight() == 3 * 5
    });
    let next: Vec<_> = (0..5).map(|_| greeted(&mizan, 1)).collect();
    assert!(
        next.iter().all(|(_, name)| name == "a"),
        "to the busier one"
    );
    drop(b);
}

#[test]
fn a_full_backend_s_next_connection_waits_its_turn() {
    let backend = RawBackend::echo("a");
    let pool = format!(
        "backends = [{{ address = \"{}\", in_flight_max = 1 }}]\nqueue = {{ timeout = \"30s\", requests_max = 1 }}",
        backend.address()
    );
    let mizan = Mizan::start(&format!(
        "[[listener]]\nbind = \"{{listen}}\"\nkind = \"tcp\"\npool = \"api\"\n[pool.api]\n{pool}\n"
    ));
    let (first, _) = greeted(&mizan, 1);
    let mut second = mizan.client();
    second.send("x");
    eventually(PATIENCE, "the second waits", || {
        mizan.metric("mizan_pool_queued", "pool=\"api\"") == 1.0
    });
    assert_eq!(backend.connections(), 1);
    drop(first);
    assert_eq!(second.read_exactly(2), b"ax");
}

#[test]
fn silence_ends_a_tunnel_and_bytes_keep_it() {
    let backend = RawBackend::echo("a");
    let mizan = start(
        "timeouts = { tunnel_idle = \"1s\" }",
        "",
        &[backend.address()],
    );
    let (mut client, _) = greeted(&mizan, 1);
    let begin = now();
    // Longer in all than the time of silence.
    for _ in 0..8 {
        pass(Duration::from_millis(200));
        client.send("x");
        assert_eq!(client.read_exactly(1), b"x");
    }
    assert!(now() > begin + Duration::from_millis(1_500));
    assert_eq!(client.read_to_end(), (Vec::new(), Ok(())));
    assert_eq!(lines(&mizan, 1)[0]["reason"], "tunnel_idle");
}

#[test]
fn a_tunnel_lasts_no_longer_than_it_may_however_busy() {
    let backend = RawBackend::echo("a");
    let mizan = start(
        "timeouts = { tunnel = \"300ms\" }",
        "",
        &[backend.address()],
    );
    let (mut client, _) = greeted(&mizan, 1);
    eventually(PATIENCE, "it is cut", || {
        client.send("x");
        !client.try_read_some()
    });
    assert_eq!(lines(&mizan, 1)[0]["reason"], "tunnel_timeout");
}

#[test]
fn a_backend_that_takes_connections_and_drops_them_is_ejected() {
    let bad = RawBackend::start(|_| {});
    let good = RawBackend::echo("a");
    let pool = "policy = \"least_connections\"\nejection = { failures = 3 }";
    let mizan = start("", pool, &[bad.address(), good.address()]);
    eventually(PATIENCE, "only the good one gets connections", || {
        let before = bad.connections();
        let ends = (0..10).map(|_| mizan.client().try_read_some());
        ends.filter(|served| *served).count() == 10 && bad.connections() == before
    });
    assert!(bad.connections() <= 20, "{}", bad.connections());
}

#[test]
fn a_drain_waits_for_tunnels_and_cuts_them_at_its_deadline() {
    let backend = RawBackend::echo("a");
    let drain = "[drain]\nwindow = \"0s\"\ndeadline = \"2s\"\n";
    let config = format!("{}{drain}", config("", "", &[backend.address()]));
    let mut mizan = Mizan::start(&config);
    let (mut stays, _) = greeted(&mizan, 1);
    let (mut goes, _) = greeted(&mizan, 1);
    mizan.signal(Signal::TERM);
    eventually(PATIENCE, "the drain begins", || {
        mizan.readiness() == Some(503)
    });
    goes.send("still");
    assert_eq!(goes.read_exactly(5), b"still");
    drop(goes);
    stays.send("here");
    assert_eq!(stays.read_exactly(4), b"here");
    assert_eq!(mizan.exited(), None, "it waits for the other");
    stays.expect_closed();
    assert_eq!(mizan.wait(PATIENCE).code(), Some(0));
    assert!(mizan.log().contains("cut"), "{}", mizan.log());
}

#[test]
fn a_drain_is_over_with_the_last_tunnel() {
    let backend = RawBackend::echo("a");
    let drain = "[drain]\nwindow = \"0s\"\ndeadline = \"60s\"\n";
    let mut mizan = Mizan::start(&format!("{}{drain}", config("", "", &[backend.address()])));
    let (client, _) = greeted(&mizan, 1);
    mizan.signal(Signal::TERM);
    eventually(PATIENCE, "the drain begins", || {
        mizan.readiness() == Some(503)
    });
    assert_eq!(mizan.exited(), None);
    drop(client);
    assert_eq!(mizan.wait(PATIENCE).code(), Some(0));
}

#[test]
fn a_reload_moves_new_connections_and_leaves_the_others() {
    let backends = [RawBackend::echo("a"), RawBackend::echo("b")];
    let mizan = start("", "", &[backends[0].address()]);
    let (mut old, name) = greeted(&mizan, 1);
    assert_eq!(name, "a");
    mizan.write_config(&config("", "", &[backends[1].address()]));
    assert!(mizan.command(&["reload"]).status.success());
    assert_eq!(greeted(&mizan, 1).1, "b");
    old.send("still");
    assert_eq!(old.read_exactly(5), b"still");
}

/// The first bytes of a TLS client that asks for `name`.
fn hello(name: &str) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions that the provider has")
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    let mut client = rustls::ClientConnection::new(Arc::new(config), name).expect("a client");
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).expect("a vector takes all");
    bytes
}

/// Three pools by name, and a fourth for everyone else if there is `rest`.
fn by_name(backends: &[RawBackend], rest: bool) -> Mizan {
    let pool = |name: &str, at: usize| {
        let address = backends[at].address();
        format!("[pool.{name}]\nbackends = [\"{address}\"]\n")
    };
    let everyone = if rest { "pool = \"rest\"" } else { "" };
    // One worker, so that the lines of the log are in order.
    Mizan::start(&format!(
        "workers = 1\n[[listener]]\nbind = \"{{listen}}\"\nkind = \"tcp\"\n{everyone}\ntimeouts = {{ header = \"500ms\" }}\nsni = [{{ names = [\"a.example\", \"*.a.example\"], pool = \"one\" }}, {{ names = \"b.a.example\", pool = \"two\" }}]\n{}{}{}[log]\naccess = \"{{dir}}/access.log\"\n",
        pool("one", 0),
        pool("two", 1),
        if rest { pool("rest", 2) } else { String::new() },
    ))
}

#[test]
fn tls_goes_to_the_pool_of_its_server_name_to_the_byte() {
    let backends = [(); 3].map(|()| RawBackend::listening());
    let mizan = by_name(&backends, true);
    for (name, at) in [
        ("a.example", 0),
        ("B.a.example", 1),
        ("c.a.example", 0),
        ("other.test", 2),
        ("192.0.2.1", 2),
    ] {
        let (bytes, before) = (hello(name), backends[at].heard().len());
        let mut client = mizan.client();
        // In two pieces, the first of which is no whole record.
        client.send(&bytes[..3]);
        client.send(&bytes[3..]);
        client.send("and more");
        client.finish_sending();
        assert_eq!(client.read_to_end(), (Vec::new(), Ok(())), "{name}");
        eventually(PATIENCE, "the backend has it", || {
            backends[at].heard().len() > before
        });
        let expected = [bytes.as_slice(), b"and more"].concat();
        assert!(backends[at].heard()[before] == expected, "{name}");
    }
    assert_eq!(lines(&mizan, 5)[1]["host"], "b.a.example");
}

#[test]
fn a_name_that_nobody_has_gets_an_alert_and_what_is_not_tls_a_reset() {
    let backends = [(); 2].map(|()| RawBackend::listening());
    let mizan = by_name(&backends, false);
    let mut client = mizan.client();
    client.send(hello("other.test"));
    assert_eq!(client.read_to_end(), (vec![21, 3, 3, 0, 2, 2, 112], Ok(())));
    let mut client = mizan.client();
    client.send("GET / HTTP/1.1\r\n\r\n");
    assert_eq!(client.read_to_end(), (Vec::new(), Err(wire::How::Reset)));
    let mut client = mizan.client();
    client.send(&hello("a.example")[..40]);
    assert_eq!(client.read_to_end(), (Vec::new(), Err(wire::How::Reset)));
    let lines = lines(&mizan, 3);
    let reasons: Vec<_> = lines.iter().map(|line| &line["reason"]).collect();
    assert_eq!(reasons, ["no_route", "client_hello", "header_timeout"]);
    assert_eq!(lines[1]["detail"], "not_tls");
    let read: Vec<_> = lines.iter().map(|line| &line["bytes_in"]).collect();
    assert_eq!(read, [hello("other.test").len(), 18, 40]);
    assert_eq!(backends.map(|backend| backend.connections()), [0, 0]);
}

/// One Mizan where TLS ends, and one in front of it where it begins, which believes the certificate of that folder.
fn over_tls(own: &Path, believed: &Path, backend: SocketAddr) -> (Mizan, Mizan) {
    let file = |folder: &Path, name| folder.join(name).display().to_string();
    let (cert, key) = (file(own, "a.pem"), file(own, "a.key"));
    let tls = format!("[listener.tls]\ncertificates = [{{ cert = \"{cert}\", key = \"{key}\" }}]");
    let ends = start(&tls, "", &[backend]);
    let root = file(believed, "ca.pem");
    let tls = format!("[pool.api.tls]\nroots = \"{root}\"\nserver_name = \"a.example\"");
    let begins = start("", &tls, &[ends.address()]);
    (ends, begins)
}

/// A folder with a certificate of its own.
fn issued() -> Pki {
    let pki = Pki::new();
    pki.issue("a");
    pki
}

#[test]
fn tls_may_end_here_and_begin_again_towards_the_backend() {
    let backend = RawBackend::start(|connection| {
        let mut bytes = connection.read_to_end();
        connection.hear(bytes.clone());
        bytes.reverse();
        let _ = connection.stream.write_all(&bytes);
    });
    let folder = issued();
    let (ends, begins) = over_tls(folder.folder(), folder.folder(), backend.address());
    let mut bytes = pattern(3 << 20, 7);
    let mut client = begins.client();
    client.send(&bytes);
    client.finish_sending();
    let (read, end) = client.read_to_end();
    assert_eq!(end, Ok(()));
    assert!(backend.heard()[0] == bytes, "what was sent");
    bytes.reverse();
    assert!(read == bytes, "what came back after the client's end");
    let count = Value::from(3 << 20);
    for line in [&lines(&ends, 1)[0], &lines(&begins, 1)[0]] {
        assert_eq!(line["reason"], Value::Null, "{line}");
        assert_eq!((&line["bytes_in"], &line["bytes_out"]), (&count, &count));
    }
}

#[test]
fn a_backend_whose_certificate_is_wrong_gets_nothing() {
    let backend = RawBackend::listening();
    let (own, other) = (issued(), issued());
    let (_ends, begins) = over_tls(own.folder(), other.folder(), backend.address());
    let mut client = begins.client();
    client.send("secret");
    assert_eq!(client.read_to_end(), (Vec::new(), Err(wire::How::Reset)));
    let unreached = || begins.metric("mizan_unreached_total", "cause=\"tls_failed\"");
    eventually(PATIENCE, "it is counted", || unreached() > 0.0);
    assert_eq!(backend.connections(), 0);
}

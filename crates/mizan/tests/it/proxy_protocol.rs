//! The PROXY protocol, from what stands in front and towards backends.

use crate::support::*;
use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;

const GET: &str = "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";
const V1: &str = "PROXY TCP4 203.0.113.7 198.51.100.1 40000 443\r\n";
/// The same addresses and ports in version 2.
const V2: &[u8] =
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xcb\0\x71\x07\xc6\x33\x64\x01\x9c\x40\x01\xbb";
const LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";

/// Believes the loopback, and logs.
fn start(listener: &str, backend: SocketAddr) -> Mizan {
    let header = "proxy_protocol = { from = [\"127.0.0.0/8\"], timeout = \"500ms\" }";
    let listener = format!("{header}\n{listener}");
    Mizan::start(&format!(
        "{}[log]\naccess = \"{{dir}}/access.log\"\n",
        config(&listener, "", &[backend])
    ))
}

fn refused(mizan: &Mizan, cause: &str) -> f64 {
    let cause = format!("cause=\"{cause}\"");
    mizan.metric("mizan_connections_refused_total", &cause)
}

#[test]
fn the_address_in_a_header_is_the_client_s() {
    let backend = Backend::healthy("a");
    let mizan = start("", backend.address());
    for header in [V1.as_bytes(), V2] {
        let mut client = mizan.client();
        client.send([header, GET.as_bytes()].concat());
        assert_eq!(client.read().status, 200);
        let head = backend.recorded().pop().expect("it was sent on");
        assert!(
            head.to_lowercase()
                .contains("x-forwarded-for: 203.0.113.7\r\n"),
            "{head}"
        );
    }
    let path = mizan.directory().join("access.log");
    eventually(PATIENCE, "the lines are in the access log", || {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        text.matches("\"client\":\"203.0.113.7:40000\"").count() == 2
    });
}

#[test]
fn a_header_may_come_byte_by_byte_and_later_requests_have_none() {
    let backend = Backend::healthy("a");
    let mizan = start("", backend.address());
    for header in [V1.as_bytes(), V2] {
        let mut client = mizan.client();
        for byte in header {
            client.send([*byte]);
        }
        for _ in 0..2 {
            assert_eq!(client.get("/").status, 200);
        }
    }
}

#[test]
fn without_its_header_a_connection_is_closed_and_counted() {
    let backend = Backend::healthy("a");
    let mizan = start("", backend.address());
    for (count, wrong) in [GET, "PROXY TCP4 1.2.3.4\r\n", "PROXY TCP4 1.2.3.4"]
        .into_iter()
        .enumerate()
    {
        let mut client = mizan.client();
        client.send(wrong);
        client.expect_closed();
        eventually(PATIENCE, "it is counted", || {
            refused(&mizan, "proxy_protocol") == (count + 1) as f64
        });
    }
    assert_eq!(backend.requests(), 0);
    assert!(mizan.log().contains("no PROXY header"), "{}", mizan.log());
}

#[test]
fn a_connection_that_says_nothing_is_closed_after_the_header_s_time_out() {
    let backend = Backend::healthy("a");
    let mizan = start("", backend.address());
    mizan.client().expect_closed();
    assert_eq!(refused(&mizan, "proxy_protocol"), 1.0);
    // A port check that connects and goes is not.
    drop(mizan.client());
    let mut client = mizan.client();
    client.send([V2, GET.as_bytes()].concat());
    assert_eq!(client.read().status, 200);
    assert_eq!(refused(&mizan, "proxy_protocol"), 1.0);
}

#[test]
fn nobody_else_s_header_is_read() {
    let backend = Backend::healthy("a");
    let listener = "proxy_protocol = { from = [\"10.0.0.0/8\"] }";
    let mizan = Mizan::start(&config(listener, "", &[backend.address()]));
    for header in [V1.as_bytes(), V2] {
        let mut client = mizan.client();
        client.send([header, GET.as_bytes()].concat());
        assert_eq!(client.read().status, 400);
    }
    assert_eq!(mizan.get("/").status, 200);
    assert_eq!(backend.requests(), 1);
}

#[test]
fn networks_hold_for_the_address_in_the_header() {
    let backend = Backend::healthy("a");
    let listener = "allow = [\"203.0.113.0/24\"]\ndeny = [\"203.0.113.9\"]";
    let mizan = start(listener, backend.address());
    let status = |header: &str| {
        let mut client = mizan.client();
        client.send(format!("{header}{GET}"));
        client.try_read("GET").map(|response| response.status).ok()
    };
    assert_eq!(status(V1), Some(200));
    assert_eq!(status(&V1.replace("113.7", "113.9")), None);
    assert_eq!(status(&V1.replace("203.0.113.7", "192.0.2.1")), None);
    assert_eq!(refused(&mizan, "network"), 2.0);
    assert_eq!(backend.requests(), 1);
}

#[test]
fn who_speaks_for_itself_keeps_its_address() {
    let backend = Backend::healthy("a");
    let mizan = start("", backend.address());
    let mut client = mizan.client();
    client.send([LOCAL, GET.as_bytes()].concat());
    assert_eq!(client.read().status, 200);
    let head = backend.recorded().pop().expect("it was sent on");
    assert!(
        head.to_lowercase()
            .contains("x-forwarded-for: 127.0.0.1\r\n"),
        "{head}"
    );
}

/// Tells all that each connection brings up to the end of a request's head, and answers it.
fn reads_headers() -> RawBackend {
    RawBackend::start(|connection| {
        let mut heard = Vec::new();
        while !heard.ends_with(b"\r\n\r\n") || heard.len() < 16 {
            heard.extend(connection.read_exactly(1));
        }
        connection.hear(heard);
        let _ = connection
            .stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        // Open for as long as the other side wants it.
        connection.read_to_end();
    })
}

fn v1_line(client: SocketAddr, listener: SocketAddr) -> String {
    format!(
        "PROXY TCP4 {} {} {} {}\r\n",
        client.ip(),
        listener.ip(),
        client.port(),
        listener.port()
    )
}

#[test]
fn a_backend_s_connection_begins_with_the_header_of_the_one_client_that_it_serves() {
    let backend = reads_headers();
    let mizan = Mizan::start(&config("", "proxy_protocol = \"v1\"", &[backend.address()]));
    for number in 0..3 {
        let mut client = mizan.client();
        let own = client.stream().local_addr().expect("a live socket");
        assert_eq!(client.get("/").text(), "ok");
        let heard = String::from_utf8(backend.heard()[number].clone()).expect("text");
        let line = v1_line(own, mizan.address());
        assert!(heard.starts_with(&format!("{line}GET / ")), "{heard}");
    }
    assert_eq!(backend.connections(), 3, "a connection served two clients");
}

#[test]
fn a_tcp_pool_s_connection_begins_with_a_header_and_the_client_s_own_is_passed_on() {
    let backend = RawBackend::listening();
    let listener = "kind = \"tcp\"\npool = \"api\"\nproxy_protocol = { from = [\"127.0.0.1\"] }";
    let pool = pool_of("proxy_protocol = \"v2\"", &[backend.address()]);
    let mizan = Mizan::start(&format!(
        "[[listener]]\nbind = \"{{listen}}\"\n{listener}\n{pool}"
    ));
    let mut client = mizan.client();
    client.send(format!("{V1}hello"));
    client.finish_sending();
    assert_eq!(client.read_to_end(), (Vec::new(), Ok(())));
    assert_eq!(backend.heard(), [[V2, b"hello"].concat()]);
}

#[test]
fn probes_speak_for_mizan_itself() {
    let backend = reads_headers();
    let pool = "proxy_protocol = \"v2\"\nhealth = { path = \"/healthz\", interval = \"100ms\", timeout = \"90ms\" }";
    let _mizan = Mizan::start(&config("", pool, &[backend.address()]));
    eventually(Duration::from_secs(15), "a probe comes", || {
        !backend.heard().is_empty()
    });
    let expected = [LOCAL, b"GET /healthz "].concat();
    assert!(backend.heard()[0].starts_with(&expected));
}

#[test]
fn a_header_goes_before_the_tls_handshake_on_both_sides() {
    let backend = Backend::healthy("a");
    let pki = Pki::new();
    pki.issue("a");
    let file = |name: &str| pki.folder().join(name).display().to_string();
    let (cert, key, root) = (file("a.pem"), file("a.key"), file("ca.pem"));
    let believes = "proxy_protocol = { from = [\"127.0.0.1\"] }";
    let ends = format!(
        "{believes}\n[listener.tls]\ncertificates = [{{ cert = \"{cert}\", key = \"{key}\" }}]"
    );
    let ends = Mizan::start(&config(&ends, "", &[backend.address()]));
    let begins = format!(
        "proxy_protocol = \"v2\"\n[pool.api.tls]\nroots = \"{root}\"\nserver_name = \"a.example\""
    );
    let mizan = Mizan::start(&config(believes, &begins, &[ends.address()]));
    for _ in 0..2 {
        let mut client = mizan.client();
        client.send(format!("{V1}{GET}"));
        assert_eq!(client.read().status, 200);
        let head = backend.recorded().pop().expect("it was sent on");
        let head = head.to_lowercase();
        assert!(head.contains("x-forwarded-for: 203.0.113.7\r\n"), "{head}");
        assert!(head.contains("x-forwarded-proto: https\r\n"), "{head}");
    }
}

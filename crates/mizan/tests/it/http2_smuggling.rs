//! What two readers could read differently once it is HTTP/1.1 is refused as HTTP/2 (RFC 9113 §8, §10.3).

use crate::support::frames::{self, DATA, END_STREAM, Fate, Frames};
use crate::support::*;

/// Sends a head, and a body if there is one, on a connection of its own; gives what comes of it.
fn fate(mizan: &Mizan, lines: &[(&str, &str)], body: Option<&str>) -> Fate {
    let mut client = Frames::open(mizan.address(), &[]);
    let flags = if body.is_some() { 0 } else { END_STREAM };
    client.head(1, flags, lines);
    if let Some(body) = body {
        client.send(DATA, END_STREAM, 1, body.as_bytes());
    }
    client.fate(1)
}

/// A request whose pseudo fields are sound, and one more line.
fn with<'a>(method: &'a str, line: (&'a str, &'a str)) -> Vec<(&'a str, &'a str)> {
    let mut lines = frames::request(method, "/").to_vec();
    lines.push(line);
    lines
}

fn is_refused(fate: Fate) -> bool {
    matches!(
        fate,
        Fate::Status(400 | 431) | Fate::Reset(1) | Fate::GoAway(1)
    )
}

/// Mizan before a backend that counts; nothing of the requests that are refused must reach it.
fn started() -> (Backend, Mizan) {
    let backend = Backend::healthy("a");
    let mizan = Mizan::start(&config("", "", &[backend.address()]));
    let sound = fate(&mizan, &frames::request("GET", "/"), None);
    assert_eq!((sound, backend.requests()), (Fate::Status(200), 1));
    (backend, mizan)
}

#[test]
fn a_field_that_could_end_a_line_is_refused() {
    let (backend, mizan) = started();
    for (name, value) in [
        ("x-a", "a\r\nx-b: c"),
        ("x-a", "a\nb"),
        ("x-a", "a\rb"),
        ("x-a", "a\0b"),
        ("x-a", " a"),
        ("x-a", "a "),
        ("x-a", "\ta"),
        ("x-a\r\nx-b", "c"),
        ("x a", "c"),
        ("x:a", "c"),
        ("", "c"),
        ("X-Upper", "c"),
        ("x-uPper", "c"),
    ] {
        let fate = fate(&mizan, &with("GET", (name, value)), None);
        assert!(is_refused(fate), "{name:?}: {value:?} came to {fate:?}");
    }
    assert_eq!(backend.requests(), 1);
    assert_eq!(mizan.get("/").status, 200);
}

#[test]
fn a_field_that_belongs_to_a_connection_is_refused() {
    let (backend, mizan) = started();
    for line in [
        ("connection", "close"),
        ("connection", "x-a"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "keep-alive"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "websocket"),
        ("te", "chunked"),
        ("te", "trailers, chunked"),
    ] {
        let fate = fate(&mizan, &with("POST", line), Some("0\r\n\r\n"));
        assert!(is_refused(fate), "{line:?} came to {fate:?}");
    }
    assert_eq!(backend.requests(), 1);
}

#[test]
fn a_length_that_is_not_the_bodys_is_refused_before_a_backend_sees_a_whole_request() {
    let (backend, mizan) = started();
    for (length, body) in [
        ("3", "hello"),
        ("7", "hello"),
        ("0", "hello"),
        ("-1", "hello"),
        ("+5", "hello"),
        ("5, 5", "hello"),
        ("five", "hello"),
        ("99999999999999999999999", "hello"),
    ] {
        let fate = fate(
            &mizan,
            &with("POST", ("content-length", length)),
            Some(body),
        );
        assert!(
            is_refused(fate) || fate == Fate::Reset(8),
            "{length} came to {fate:?}"
        );
    }
    let mut twice = with("POST", ("content-length", "5"));
    twice.push(("content-length", "6"));
    assert!(is_refused(fate(&mizan, &twice, Some("hello"))));
    let none = fate(&mizan, &with("GET", ("content-length", "5")), None);
    assert!(is_refused(none), "{none:?}");
    for request in backend.recorded() {
        assert!(!request.ends_with("hello"), "a whole request: {request}");
    }
    assert_eq!(mizan.get("/").status, 200);
}

#[test]
fn an_authority_that_is_not_one_is_refused() {
    let (backend, mizan) = started();
    let scheme = (":scheme", "http");
    let (get, path) = ((":method", "GET"), (":path", "/"));
    let here = (":authority", "a.example");
    for lines in [
        vec![get, scheme, here, path, ("host", "b.example")],
        vec![
            get,
            scheme,
            here,
            path,
            ("host", "a.example"),
            ("host", "b.example"),
        ],
        vec![
            get,
            scheme,
            path,
            ("host", "a.example"),
            ("host", "b.example"),
        ],
        vec![get, scheme, path],
        vec![get, scheme, (":authority", ""), path],
        vec![get, scheme, (":authority", "a.example b"), path],
        vec![get, scheme, (":authority", "user@a.example"), path],
        vec![get, scheme, (":authority", "a.example/x"), path],
        vec![get, scheme, (":authority", "a.example\r\nx: y"), path],
        vec![get, scheme, here, here, path],
    ] {
        let fate = fate(&mizan, &lines, None);
        assert!(is_refused(fate), "{lines:?} came to {fate:?}");
    }
    assert_eq!(backend.requests(), 1);
    let same = vec![get, scheme, here, path, ("host", "A.example")];
    assert_eq!(fate(&mizan, &same, None), Fate::Status(200));
    let host = vec![get, scheme, path, ("host", "c.example")];
    assert_eq!(fate(&mizan, &host, None), Fate::Status(200));
    assert!(backend.recorded()[2].contains("\r\nHost: c.example\r\n"));
}

#[test]
fn a_path_that_is_not_one_is_refused() {
    let (backend, mizan) = started();
    for path in [
        "",
        "a",
        "/a b",
        "/a\tb",
        "/a\r\nx: y",
        "/a\0",
        "/a\u{7f}",
        "/a%2fb",
        "/a\\b",
        "/%zz",
        "*",
        "http://b.example/",
        "//b.example:80@c/ d",
    ] {
        let fate = fate(&mizan, &frames::request("GET", path), None);
        assert!(is_refused(fate), "{path:?} came to {fate:?}");
    }
    assert_eq!(backend.requests(), 1);
}

/// HTTP/1.1 refuses it; the library of HTTP/2 has cut it off before anybody here can see it.
#[test]
fn a_fragment_reaches_no_backend() {
    let (backend, mizan) = started();
    for (path, line) in [("/a#b", "GET /a HTTP/1.1"), ("/a?b#c", "GET /a?b HTTP/1.1")] {
        let fate = fate(&mizan, &frames::request("GET", path), None);
        let last = backend.recorded().pop().unwrap_or_default();
        let is_whole = fate == Fate::Status(200) && last.starts_with(line);
        assert!(
            is_refused(fate) || is_whole,
            "{path:?} came to {fate:?}: {last}"
        );
    }
}

#[test]
fn pseudo_fields_that_are_missing_unknown_or_late_are_refused() {
    let (backend, mizan) = started();
    let (get, scheme) = ((":method", "GET"), (":scheme", "http"));
    let (here, path) = ((":authority", "a.example"), (":path", "/"));
    for lines in [
        vec![scheme, here, path],
        vec![get, here, path],
        vec![get, scheme, here],
        vec![get, get, scheme, here, path],
        vec![get, scheme, here, path, path],
        vec![get, scheme, here, path, (":status", "200")],
        vec![get, scheme, here, path, (":other", "x")],
        vec![get, scheme, here, ("x-a", "b"), path],
        vec![(":method", "GET /x HTTP/1.1\r\nx:"), scheme, here, path],
        vec![(":method", "GE T"), scheme, here, path],
        vec![(":method", ""), scheme, here, path],
        vec![(":method", "CONNECT"), (":authority", "a.example:80")],
        vec![
            (":method", "CONNECT"),
            scheme,
            here,
            path,
            (":protocol", "connect-udp"),
        ],
        vec![get, scheme, here, path, (":protocol", "websocket")],
    ] {
        let fate = fate(&mizan, &lines, None);
        let is_refused = is_refused(fate) || matches!(fate, Fate::Status(501 | 405 | 404));
        assert!(is_refused, "{lines:?} came to {fate:?}");
    }
    assert_eq!(backend.requests(), 1);
}

#[test]
fn trailers_cannot_say_what_only_a_head_may() {
    let backend = Backend::start(Exchange::serve);
    let mizan = Mizan::start(&config("", "", &[backend.address()]));
    for line in [
        (":path", "/other"),
        ("transfer-encoding", "chunked"),
        ("content-length", "7"),
        ("host", "b.example"),
        ("connection", "close"),
    ] {
        let mut client = Frames::open(mizan.address(), &[]);
        client.head(1, 0, &frames::request("POST", "/"));
        client.send(DATA, 0, 1, b"hello");
        client.head(1, END_STREAM, &[("x-sum", "1"), line]);
        let fate = client.fate(1);
        for request in backend.recorded() {
            let after = request.split("\r\n\r\n").nth(1).unwrap_or_default();
            assert!(
                !after.contains(line.1),
                "{line:?} came to {fate:?} as {request}"
            );
        }
    }
}

#[test]
fn what_http2_cannot_carry_is_the_clients_fault_and_not_the_backends() {
    let backends = [H2Backend::healthy("a"), H2Backend::healthy("b")];
    let addresses = backends.each_ref().map(H2Backend::address);
    let mizan = Mizan::start(&config("", "protocol = \"http2\"", &addresses));
    for _ in 0..5 {
        for (target, host) in [
            ("/a<b>", "a"),
            ("/a`b", "a"),
            ("/?\"a\"", "a"),
            ("/", "a%20b"),
        ] {
            let mut client = mizan.client();
            let answer = client.exchange(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            let said = (answer.status, answer.text());
            assert_eq!(
                said,
                (400, "400 Bad Request: target\n".to_owned()),
                "{target}"
            );
        }
    }
    assert_eq!(mizan.metric("mizan_backend_failures_total", ""), 0.0);
    assert_eq!(mizan.metric("mizan_pool_backends_usable", ""), 2.0);
    let odd = "GET / HTTP/1.1\r\nHost: a\r\nTE: gzip;q=0.5, trailers\r\nConnection: TE, Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\nProxy-Connection: close\r\n\r\n";
    assert_eq!(mizan.client().exchange(odd).status, 200);
}

/// Pairs of targets and what becomes of them, the same over either protocol.
#[test]
fn a_target_is_refused_or_passed_whatever_it_comes_by() {
    let backend = Backend::healthy("a");
    let mizan = Mizan::start(&config("", "", &[backend.address()]));
    let seen = |target: &str| {
        let line = format!("GET {target} ");
        let recorded = backend.recorded();
        recorded
            .iter()
            .filter(|head| head.starts_with(&line))
            .count()
    };
    for target in ["/a<b", "/a>b", "/a`b", "/?a<b", "/?a>b", "/?a`b"] {
        assert_eq!(mizan.get(target).status, 400, "{target}");
        let mut client = Frames::open(mizan.address(), &[]);
        client.get(1, target);
        let fate = client.fate(1);
        assert!(
            matches!(fate, Fate::Status(400) | Fate::Reset(1)),
            "{target}: {fate:?}"
        );
        assert_eq!(seen(target), 0, "{target}");
    }
    for target in ["/a{b}|c^d\"", "/?a{b}|c^d'"] {
        assert_eq!(mizan.get(target).status, 200, "{target}");
        let mut client = Frames::open(mizan.address(), &[]);
        client.get(1, target);
        assert_eq!(client.fate(1), Fate::Status(200), "{target}");
    }
}

#[test]
fn what_a_backend_of_http2_must_not_say_reaches_no_client() {
    use http::Response;
    let backend = H2Backend::start(|call| async move {
        let name = call.head.uri.path().trim_start_matches('/').to_owned();
        let head = Response::builder()
            .header(name.as_str(), "x-a")
            .header("x-a", "1")
            .header("content-length", "2");
        call.respond_with(head, Some(b"ok"), &http::HeaderMap::new())
            .await
    });
    let mizan = Mizan::start(&config("", "protocol = \"http2\"", &[backend.address()]));
    for name in ["connection", "keep-alive", "transfer-encoding", "upgrade"] {
        let answer = mizan.get(&format!("/{name}"));
        let said = answer.field(name).unwrap_or_default();
        assert!(answer.status == 502 || said != "x-a", "{name}: {answer:?}");
    }
}

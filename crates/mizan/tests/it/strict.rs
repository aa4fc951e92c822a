//! Requests that two parsers could read differently: refused with a status and closed, never passed on.

use crate::support::*;

struct Strict {
    backend: Backend,
    mizan: Mizan,
}

impl Strict {
    fn start() -> Self {
        let backend = Backend::healthy("a");
        let mizan = Mizan::start(&config("", "", &[backend.address()]));
        Self { backend, mizan }
    }

    /// Sends `request` with another request behind it: only a refusal may come back, then a close.
    #[track_caller]
    fn expect_refused(&self, status: u16, request: impl AsRef<[u8]>) {
        let before = self.backend.requests();
        let shown = String::from_utf8_lossy(request.as_ref()).into_owned();
        let mut client = self.mizan.client();
        client.send(&request);
        client.send("GET /smuggled HTTP/1.1\r\nHost: a.example\r\n\r\n");
        client.finish_sending();
        let response = client
            .try_read("GET")
            .unwrap_or_else(|cut| panic!("{shown:?}: {cut:?}"));
        assert_eq!(response.status, status, "{shown:?}");
        assert!(
            response.head.connection_has("close"),
            "{shown:?}: {:?}",
            response.head
        );
        let (rest, _) = client.read_to_end();
        assert_eq!(String::from_utf8_lossy(&rest), "", "{shown:?}");
        assert_eq!(self.backend.requests(), before, "{shown:?} was passed on");
    }

    /// Sends the fields of a POST with a body behind them.
    #[track_caller]
    fn expect_fields_refused(&self, status: u16, fields: &str) {
        self.expect_refused(
            status,
            format!("POST / HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n\r\n0\r\n\r\n"),
        );
    }
}

#[test]
fn a_length_that_can_be_read_two_ways_is_refused() {
    let strict = Strict::start();
    for fields in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: 5, 6",
        "Content-Length: +5",
        "Content-Length: -5",
        "Content-Length: 0x5",
        "Content-Length: 5 5",
        "Content-Length:",
        "Content-Length: 99999999999999999999999",
        "Content-Length : 5",
        " Content-Length: 5",
        "Content-Length: 5\r\n Transfer-Encoding: chunked",
    ] {
        strict.expect_fields_refused(400, fields);
    }
}

#[test]
fn a_transfer_coding_that_does_not_end_in_chunked_once_is_refused() {
    let strict = Strict::start();
    for (status, fields) in [
        (400, "Transfer-Encoding: chunked, identity"),
        (400, "Transfer-Encoding: chunked, chunked"),
        (
            400,
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        ),
        (400, "Transfer-Encoding: xchunked"),
        (400, "Transfer-Encoding: identity"),
        (400, "Transfer-Encoding: \x0bchunked"),
        (400, "Transfer-Encoding : chunked"),
        (400, "Transfer-Encoding:"),
        (501, "Transfer-Encoding: gzip, chunked"),
    ] {
        let request = format!("POST / HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n\r\n0\r\n\r\n");
        let response = strict.mizan.client().exchange(&request);
        assert!(
            [status, 400, 501].contains(&response.status),
            "{fields:?}: {}",
            response.status
        );
        strict.expect_fields_refused(response.status, fields);
    }
    strict.expect_refused(
        400,
        "POST / HTTP/1.0\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    );
}

#[test]
fn line_ends_spaces_and_control_bytes_that_are_read_in_many_ways_are_refused() {
    let strict = Strict::start();
    for request in [
        "GET / HTTP/1.1\nHost: a.example\n\n",
        "GET / HTTP/1.1\r\nHost: a.example\nX: y\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example\r\nX: a\rb\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example\r\nX: a\r\n b\r\n\r\n",
        "GET / HTTP/1.1\r\n Host: a.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example\r\nX : y\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example\r\nX\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example\r\n: y\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example\r\nX(y): z\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example\r\nX: a\0b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example\r\nX: a\x01b\r\n\r\n",
        "GET /\0 HTTP/1.1\r\nHost: a.example\r\n\r\n",
    ] {
        strict.expect_refused(400, request);
    }
}

#[test]
fn a_bad_request_line_is_refused() {
    let strict = Strict::start();
    for request in [
        "GET  / HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET /  HTTP/1.1\r\nHost: a.example\r\n\r\n",
        " GET / HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET\t/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET / a HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "G(T / HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET a HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET /#x HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET / HTTP/1.1.1\r\nHost: a.example\r\n\r\n",
        "GET / http/1.1\r\nHost: a.example\r\n\r\n",
        "GET /\r\nHost: a.example\r\n\r\n",
        "GET * HTTP/1.1\r\nHost: a.example\r\n\r\n",
    ] {
        strict.expect_refused(400, request);
    }
}

#[test]
fn a_missing_doubled_or_malformed_host_is_refused() {
    let strict = Strict::start();
    for fields in [
        "X: y",
        "Host: a.example\r\nHost: b.example",
        "Host: a.example\r\nHost: a.example",
        "Host: a.example, b.example",
        "Host: a b",
        "Host: user@a.example",
        "Host: a.example/x",
        "Host: a.example:port",
        "Host: a.example:99999999",
        "Host: [::1",
    ] {
        strict.expect_refused(400, format!("GET / HTTP/1.1\r\n{fields}\r\n\r\n"));
    }
}

#[test]
fn a_path_that_backends_read_differently_is_refused_unless_its_route_allows_it() {
    let strict = Strict::start();
    for path in ["/a%2fb", "/a%5Cb", "/a\\b", "/a%00", "/a%", "/a%g1"] {
        let response = strict.mizan.get(path);
        assert_eq!(response.status, 400, "{path}");
    }
    assert_eq!(strict.backend.requests(), 0);
    let address = strict.backend.address();
    let allowing = format!(
        "[[listener]]\nbind = \"{{listen}}\"\n[[route]]\nallow_odd_path = true\npool = \"api\"\n{}",
        pool_of("", &[address])
    );
    let allowing = Mizan::start(&allowing);
    assert_eq!(allowing.get("/a%2fb").status, 200);
    assert!(
        strict.backend.recorded()[0].starts_with("GET /a%2fb HTTP/1.1\r\n"),
        "{:?}",
        strict.backend.recorded()
    );
}

/// A bad chunk comes after the head has been passed on: the client gets 400 if there was no answer yet,
/// the backend never gets a complete body.
#[test]
fn a_bad_chunk_ends_the_exchange_and_never_completes_the_body_for_the_backend() {
    let strict = Strict::start();
    for body in [
        "x\r\nhello\r\n0\r\n\r\n",
        "5 \r\nhello\r\n0\r\n\r\n",
        " 5\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        "5\nhello\r\n0\r\n\r\n",
        "5\r\nhelloX\r\n0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "fffffffffffffffff\r\nhello\r\n0\r\n\r\n",
        "5;a=\x01\r\nhello\r\n0\r\n\r\n",
        "5;a\rb\r\nhello\r\n0\r\n\r\n",
    ] {
        let mut client = strict.mizan.client();
        client.send(format!(
            "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n{body}"
        ));
        client.send("GET /smuggled HTTP/1.1\r\nHost: a.example\r\n\r\n");
        client.finish_sending();
        let answer = client.try_read("POST").map(|response| response.status);
        assert!(matches!(answer, Ok(400) | Err(_)), "{body:?}: {answer:?}");
        let (rest, _) = client.read_to_end();
        assert_eq!(String::from_utf8_lossy(&rest), "", "{body:?}");
        eventually(PATIENCE, "the backend's half request is given up", || {
            strict.backend.busy() == 0
        });
    }
    let long = format!("5;{}\r\nhello\r\n0\r\n\r\n", "a".repeat(100_000));
    let mut client = strict.mizan.client();
    client.send(format!(
        "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n{long}"
    ));
    let answer = client.try_read("POST").map(|response| response.status);
    assert!(
        matches!(answer, Ok(400) | Err(_)),
        "a chunk extension over the limit: {answer:?}"
    );
    let smuggled = strict
        .backend
        .recorded()
        .into_iter()
        .find(|raw| raw.contains("/smuggled"));
    assert_eq!(smuggled, None);
}

#[test]
fn what_was_refused_and_why_is_in_the_log() {
    let backend = Backend::healthy("a");
    let log = format!(
        "[log]\naccess = \"stdout\"\n{}",
        config("", "", &[backend.address()])
    );
    let mizan = Mizan::start(&log);
    let request = "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(mizan.client().exchange(request).status, 400);
    eventually(PATIENCE, "the log has a line with a reason", || {
        mizan
            .log()
            .lines()
            .any(|line| line.contains("\"status\":400") && line.contains("\"reason\":\""))
    });
}

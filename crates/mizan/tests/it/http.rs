//! HTTP/1.1 between a client and a backend that both behave.

use crate::support::*;
use std::time::Duration;

fn start(backend: &Backend) -> Mizan {
    Mizan::start(&config("", "", &[backend.address()]))
}

fn with_healthy() -> (Backend, Mizan) {
    let backend = Backend::healthy("a");
    let mizan = start(&backend);
    (backend, mizan)
}

/// A backend that answers each request with the same bytes.
fn fixed(answer: &'static str) -> (Backend, Mizan) {
    let backend = Backend::start(move |exchange| {
        exchange.body()?;
        exchange.send(answer)?;
        Ok(Next::Keep)
    });
    let mizan = start(&backend);
    (backend, mizan)
}

#[test]
fn many_requests_share_a_client_connection_and_a_backend_connection() {
    let (backend, mizan) = with_healthy();
    let mut client = mizan.client();
    for _ in 0..50 {
        assert_eq!(client.get("/").text(), "a:0");
        assert_eq!(client.post("/", b"hello").text(), "a:5");
    }
    assert_eq!((backend.requests(), backend.connections()), (100, 1));
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let backend = Backend::start(|exchange| {
        let target = exchange.target().to_owned();
        exchange.answer(target.as_bytes())
    });
    let mizan = start(&backend);
    let mut client = mizan.client();
    let request = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n\r\n");
    let post = "POST /2 HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\n\r\nabc";
    client.send([&request("/1"), post, &request("/3"), &request("/4")].concat());
    let answers: Vec<_> = (0..4).map(|_| client.read().text()).collect();
    assert_eq!(answers, ["/1", "/2", "/3", "/4"]);
}

#[test]
fn a_request_in_pieces_of_one_byte_is_one_request() {
    let (_backend, mizan) = with_healthy();
    let mut client = mizan.client();
    for byte in b"POST /x HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" {
        client.send([*byte]);
    }
    assert_eq!(client.read().text(), "a:3");
}

#[test]
fn a_chunked_request_with_trailers_reaches_the_backend_whole() {
    let (backend, mizan) = with_healthy();
    let request = "POST /x HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n\
                   5;note=x\r\nhello\r\n6\r\n world\r\n0\r\nX-Sum: 42\r\n\r\n";
    assert_eq!(mizan.client().exchange(request).text(), "a:11");
    let recorded = backend.recorded().remove(0);
    assert!(recorded.contains("hello world"), "{recorded}");
    assert!(
        recorded.contains("X-Sum: 42"),
        "the trailer was lost: {recorded}"
    );
}

#[test]
fn a_chunked_response_with_trailers_reaches_the_client_whole() {
    let (_backend, mizan) = fixed(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n5\r\nhello\r\n1\r\n!\r\n0\r\nX-Sum: 42\r\n\r\n",
    );
    let mut client = mizan.client();
    for _ in 0..2 {
        let response = client.get("/");
        assert_eq!(response.text(), "hello!");
        assert_eq!(response.trailers, [("X-Sum".to_owned(), "42".to_owned())]);
    }
}

#[test]
fn a_body_up_to_the_close_is_framed_for_the_client_or_closed_for_it() {
    let backend = Backend::start(|exchange| {
        exchange.send("HTTP/1.1 200 OK\r\n\r\nuntil the end")?;
        Ok(Next::Close)
    });
    let mizan = start(&backend);
    let response = mizan.get("/");
    assert_eq!(response.text(), "until the end");
}

#[test]
fn head_204_and_304_have_no_body_and_the_connection_goes_on() {
    let backend = Backend::start(|exchange| {
        exchange.send(match exchange.target() {
            "/204" => "HTTP/1.1 204 No Content\r\n\r\n",
            "/304" => "HTTP/1.1 304 Not Modified\r\nContent-Length: 500\r\nETag: \"x\"\r\n\r\n",
            _ => "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n",
        })?;
        Ok(Next::Keep)
    });
    let mizan = start(&backend);
    let mut client = mizan.client();
    for (method, path, status) in [
        ("HEAD", "/", 200),
        ("GET", "/204", 204),
        ("GET", "/304", 304),
        ("HEAD", "/", 200),
    ] {
        client.send(format!(
            "{method} {path} HTTP/1.1\r\nHost: a.example\r\n\r\n"
        ));
        let response = client.try_read(method).expect("a whole response");
        assert_eq!(response.status, status);
        if method == "HEAD" {
            assert_eq!(response.field("content-length"), Some("500"));
        }
    }
    assert_eq!(
        backend.connections(),
        1,
        "a bodiless answer cost the backend's connection"
    );
}

#[test]
fn expect_100_continue_is_answered_before_the_body_is_sent() {
    let backend = Backend::start(|exchange| {
        if exchange.head.field("expect").is_some() {
            exchange.send("HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        exchange.serve()
    });
    let mizan = start(&backend);
    let mut client = mizan.client();
    client.send(
        "POST /x HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n",
    );
    assert_eq!(client.read_head().word(1), "100");
    client.send("hello");
    assert_eq!(client.read().text(), "backend:5");
}

#[test]
fn a_final_answer_to_expect_100_continue_saves_the_upload() {
    let backend = Backend::start(|exchange| {
        exchange.send("HTTP/1.1 417 No\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")?;
        Ok(Next::Close)
    });
    let mizan = start(&backend);
    let mut client = mizan.client();
    client.send(
        "POST /x HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n",
    );
    let response = client.read();
    assert_eq!((response.status, response.interim.len()), (417, 0));
}

#[test]
fn interim_responses_are_passed_on() {
    let (_backend, mizan) = fixed(
        "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    );
    let response = mizan.get("/");
    assert_eq!((response.status, response.text().as_str()), (200, "ok"));
    assert_eq!(response.interim.len(), 1);
    assert_eq!(
        response.interim[0].field("link"),
        Some("</a.css>; rel=preload")
    );
}

#[test]
fn an_http_1_0_client_gets_no_chunks_no_interim_and_a_close() {
    let (_backend, mizan) = fixed(
        "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    );
    let mut client = mizan.client();
    client.send("GET / HTTP/1.0\r\nHost: a.example\r\n\r\n");
    let response = client.read();
    assert!(response.interim.is_empty(), "{response:?}");
    assert!(!response.head.is_chunked(), "{response:?}");
    assert_eq!(response.text(), "hello");
    client.expect_closed();
}

#[test]
fn an_http_1_0_client_may_ask_to_keep_its_connection() {
    let (_backend, mizan) = with_healthy();
    let mut client = mizan.client();
    for _ in 0..2 {
        let response =
            client.exchange("GET / HTTP/1.0\r\nHost: a.example\r\nConnection: keep-alive\r\n\r\n");
        assert!(response.head.connection_has("keep-alive"), "{response:?}");
    }
}

#[test]
fn an_absolute_form_target_is_forwarded_in_origin_form_with_its_host() {
    let (backend, mizan) = with_healthy();
    mizan
        .client()
        .exchange("GET http://b.example/x?y=1 HTTP/1.1\r\nHost: a.example\r\n\r\n");
    let recorded = backend.recorded().remove(0);
    assert!(
        recorded.starts_with("GET /x?y=1 HTTP/1.1\r\n"),
        "{recorded}"
    );
    assert!(
        recorded.to_lowercase().contains("\r\nhost: b.example\r\n"),
        "{recorded}"
    );
    assert!(!recorded.contains("a.example\r\n"), "two hosts: {recorded}");
}

#[test]
fn the_original_path_is_forwarded_as_it_came() {
    let (backend, mizan) = with_healthy();
    mizan
        .client()
        .exchange("GET /a/%7euser/./x/..//?q=%zz HTTP/1.1\r\nHost: a.example\r\n\r\n");
    let recorded = backend.recorded().remove(0);
    assert!(
        recorded.starts_with("GET /a/%7euser/./x/..//?q=%zz HTTP/1.1\r\n"),
        "{recorded}"
    );
}

#[test]
fn hop_by_hop_fields_stay_on_their_hop_and_the_others_pass_unchanged() {
    let backend = Backend::start(|exchange| {
        exchange.send(
            "HTTP/1.1 200 OK\r\nX-Kept: Yes\r\nConnection: x-back\r\nX-Back: 1\r\nKeep-Alive: timeout=5\r\nContent-Length: 0\r\n\r\n",
        )?;
        Ok(Next::Keep)
    });
    let mizan = start(&backend);
    let response = mizan.client().exchange(
        "GET / HTTP/1.1\r\nHost: a.example\r\nX-mIxEd: Case Kept\r\nConnection: X-Mine, keep-alive\r\nX-Mine: 1\r\n\
         Keep-Alive: timeout=9\r\nProxy-Connection: keep-alive\r\nTE: trailers\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n",
    );
    let sent = backend.recorded().remove(0);
    assert!(sent.contains("X-mIxEd: Case Kept\r\n"), "{sent}");
    for gone in [
        "x-mine",
        "keep-alive:",
        "proxy-connection",
        "upgrade:",
        "http2-settings",
    ] {
        assert!(
            !sent.to_lowercase().contains(gone),
            "{gone} was passed on: {sent}"
        );
    }
    assert_eq!(response.field("x-kept"), Some("Yes"));
    assert_eq!(
        (response.field("x-back"), response.field("keep-alive")),
        (None, None)
    );
}

#[test]
fn forwarding_fields_say_where_a_request_came_from_and_a_client_cannot_forge_them() {
    let (backend, mizan) = with_healthy();
    mizan.client().exchange(
        "GET / HTTP/1.1\r\nHost: a.example\r\nX-Forwarded-For: 6.6.6.6\r\nX_Forwarded_For: 6.6.6.6\r\n\
         X-Forwarded-Proto: https\r\nX-Forwarded-Host: evil.example\r\nForwarded: for=6.6.6.6\r\n\r\n",
    );
    let sent = backend.recorded().remove(0).to_lowercase();
    assert!(
        !sent.contains("6.6.6.6") && !sent.contains("evil.example"),
        "a forged field was believed: {sent}"
    );
    assert!(sent.contains("x-forwarded-for: 127.0.0.1\r\n"), "{sent}");
    assert!(sent.contains("x-forwarded-proto: http\r\n"), "{sent}");
    assert!(sent.contains("x-forwarded-host: a.example\r\n"), "{sent}");
    assert!(sent.contains("via: 1.1 "), "{sent}");
    assert!(sent.contains("x-request-id: "), "{sent}");
}

#[test]
fn a_trusted_peer_s_forwarding_fields_are_extended() {
    let backend = Backend::healthy("a");
    let mizan = Mizan::start(&config(
        "trusted_proxies = [\"127.0.0.0/8\"]",
        "",
        &[backend.address()],
    ));
    mizan.client().exchange(
        "GET / HTTP/1.1\r\nHost: a.example\r\nX-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: https\r\nX-Request-Id: abc-123\r\n\r\n",
    );
    let sent = backend.recorded().remove(0).to_lowercase();
    assert!(
        sent.contains("x-forwarded-for: 192.0.2.7, 127.0.0.1\r\n"),
        "{sent}"
    );
    assert!(sent.contains("x-forwarded-proto: https\r\n"), "{sent}");
    assert!(sent.contains("x-request-id: abc-123\r\n"), "{sent}");
}

#[test]
fn an_early_answer_reaches_the_client_while_it_still_uploads() {
    let backend = Backend::start(|exchange| {
        exchange
            .send("HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")?;
        exchange.hang()
    });
    let mizan = start(&backend);
    let mut client = mizan.client();
    client.send("POST /x HTTP/1.1\r\nHost: a.example\r\nContent-Length: 50000000\r\n\r\n");
    client.send(vec![b'u'; 16 * 1024]);
    let response = client.read();
    assert_eq!((response.status, response.text().as_str()), (413, "no"));
    assert!(
        response.head.connection_has("close"),
        "the rest of the upload would be read as a request: {response:?}"
    );
    eventually(
        PATIENCE,
        "the backend's connection is not kept in mid-upload",
        || backend.open() == 0,
    );
}

#[test]
fn a_client_that_closed_its_sending_half_gets_its_answer() {
    let (_backend, mizan) = with_healthy();
    let mut client = mizan.client();
    client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
    client.finish_sending();
    assert_eq!(client.read().text(), "a:0");
}

#[test]
fn a_client_that_goes_away_cancels_its_exchange_with_the_backend() {
    let backend = Backend::start(Exchange::hang);
    let mizan = Mizan::start(&config(
        "",
        "timeouts = { response_header = \"60s\" }",
        &[backend.address()],
    ));
    let mut client = mizan.client();
    client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
    eventually(PATIENCE, "the backend has the request", || {
        backend.busy() == 1
    });
    drop(client);
    eventually(PATIENCE, "the exchange is cancelled", || {
        backend.open() == 0
    });
    eventually(PATIENCE, "its count is freed", || mizan.in_flight() == 0);
}

#[test]
fn an_event_stream_is_passed_on_event_by_event() {
    let backend = Backend::start(|exchange| {
        exchange.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        for number in 0..3 {
            exchange.send(format!("9\r\ndata: {number}\n\n\r\n"))?;
            // The next event comes only when the client has told that it has this one.
            exchange.some_of_body(1)?;
        }
        exchange.send("0\r\n\r\n")?;
        Ok(Next::Close)
    });
    let mizan = start(&backend);
    let mut client = mizan.client();
    client.send("POST /events HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\n\r\n");
    assert_eq!(
        client.read_head().field("content-type"),
        Some("text/event-stream")
    );
    for number in 0..3 {
        let event = client.read_exactly(14);
        assert!(
            String::from_utf8_lossy(&event).contains(&format!("data: {number}")),
            "{event:?}"
        );
        client.send(".");
    }
}

#[test]
fn a_kept_backend_connection_that_was_closed_costs_no_request() {
    let backend = Backend::healthy("a");
    let relay = FaultProxy::start(backend.address());
    let mizan = Mizan::start(&config(
        "",
        "keepalive = { idle_timeout = \"60s\" }",
        &[relay.address()],
    ));
    let mut client = mizan.client();
    for round in 0..6 {
        assert_eq!(client.get("/").status, 200);
        let before = backend.connections();
        eventually(PATIENCE, "the connection is idle", || backend.busy() == 0);
        backend.close_idle();
        eventually(PATIENCE, "the close is out", || backend.open() == 0);
        let response = if round % 2 == 0 {
            client.get("/")
        } else {
            client.post("/", b"hello")
        };
        assert_eq!(response.status, 200, "round {round}");
        assert!(backend.connections() > before);
    }
}

#[test]
fn options_star_and_an_unknown_method_pass() {
    let (backend, mizan) = with_healthy();
    let mut client = mizan.client();
    assert_eq!(
        client
            .exchange("OPTIONS * HTTP/1.1\r\nHost: a.example\r\n\r\n")
            .status,
        200
    );
    assert_eq!(
        client
            .exchange("BREW /pot HTTP/1.1\r\nHost: a.example\r\n\r\n")
            .status,
        200
    );
    let recorded = backend.recorded();
    assert!(
        recorded[0].starts_with("OPTIONS * HTTP/1.1\r\n"),
        "{recorded:?}"
    );
    assert!(
        recorded[1].starts_with("BREW /pot HTTP/1.1\r\n"),
        "{recorded:?}"
    );
}

#[test]
fn x_upstream_is_off_unless_asked_for() {
    let (backend, mizan) = with_healthy();
    assert_eq!(mizan.get("/").field("x-upstream"), None);
    let asked = Mizan::start(&config("upstream_header = true", "", &[backend.address()]));
    let address = backend.address().to_string();
    assert_eq!(asked.get("/").field("x-upstream"), Some(address.as_str()));
}

#[test]
fn a_slow_answer_is_waited_for_while_its_time_out_is_not_reached() {
    let backend = Backend::start(|exchange| {
        exchange.pause(Duration::from_millis(300))?;
        exchange.serve()
    });
    let mizan = Mizan::start(&config(
        "",
        "timeouts = { response_header = \"5s\" }",
        &[backend.address()],
    ));
    assert_eq!(mizan.get("/").status, 200);
}

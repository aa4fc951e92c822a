//! Upgrades: which are passed on, which answers are believed, and how what comes of them ends.

use crate::support::websocket::{
    BINARY, Frame, Heard, PING, TEXT, WebSocket, accepted, echo, upgrade,
};
use crate::support::*;
use crate::support::{websocket, wire};
use serde_json::Value;
use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;

fn start(listener: &str, pool: &str, backends: &[SocketAddr]) -> Mizan {
    Mizan::start(&format!(
        "{}[log]\naccess = \"{{dir}}/access.log\"\n",
        config(listener, pool, backends)
    ))
}

/// The last line of the access log, once there are `count`.
#[track_caller]
fn line(mizan: &Mizan, count: usize) -> Value {
    let mut last = Value::Null;
    eventually(PATIENCE, "the line is in the access log", || {
        let path = mizan.directory().join("access.log");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        last = text
            .lines()
            .nth(count - 1)
            .and_then(|line| serde_json::from_str(line).ok())
            .unwrap_or_default();
        !last.is_null()
    });
    last
}

/// A backend that changes to `protocol` whatever it is asked, then sends back what comes, reversed, when all has come.
fn changing(protocol: &'static str) -> RawBackend {
    RawBackend::start(move |connection| {
        let mut wire = wire::Wire::new(connection.stream.try_clone().expect("a socket"));
        let Ok((_, raw)) = wire.head() else {
            return;
        };
        connection.hear(raw);
        let head = format!("HTTP/1.1 101 Changed\r\nConnection: Upgrade\r\n{protocol}\r\nearly");
        let mut bytes = Vec::new();
        if wire.send(head.as_bytes()).is_ok() && wire.rest(&mut bytes).is_ok() {
            bytes.reverse();
            let _ = wire.send(&bytes);
        }
    })
}

fn asking(protocol: &str) -> String {
    format!(
        "GET /up HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\r\n"
    )
}

#[test]
fn another_protocol_is_handed_through_both_ways_and_its_half_close_too() {
    let backend = changing("Upgrade: X-Raw/2\r\n");
    let mizan = start("", "", &[backend.address()]);
    let mut client = mizan.client();
    client.send(format!("{}olleh", asking("x-raw/2")));
    let head = client.read_head();
    assert_eq!(head.word(1), "101", "{head:?}");
    assert_eq!(head.field("upgrade"), Some("X-Raw/2"));
    assert!(head.connection_has("upgrade"), "{head:?}");
    assert_eq!(client.read_exactly(5), b"early");
    client.send(" ");
    client.finish_sending();
    assert_eq!(client.read_to_end(), (b" hello".to_vec(), Ok(())));
    let line = line(&mizan, 1);
    assert_eq!(
        (&line["status"], &line["reason"]),
        (&101.into(), &Value::Null)
    );
    let head = String::from_utf8(backend.heard()[0].clone()).expect("text");
    assert!(
        head.contains("Connection: Upgrade\r\nUpgrade: x-raw/2\r\n"),
        "{head}"
    );
}

#[test]
fn a_change_to_what_was_not_asked_for_is_a_502() {
    for (asked, changed) in [
        (None, "Upgrade: x-raw\r\n"),
        (None, "Upgrade: websocket\r\n"),
        (Some("websocket"), "Upgrade: x-raw\r\n"),
        (Some("websocket"), "Upgrade: h2c\r\n"),
        (Some("websocket"), ""),
        (Some("x-raw"), ""),
        (Some("x-raw"), "Upgrade: websocket\r\n"),
        (Some("x-raw"), "Upgrade: x-other\r\n"),
        (Some("x-raw/1"), "Upgrade: x-raw/2\r\n"),
        (Some("x-raw"), "Upgrade: x-raw, x-other\r\n"),
        (Some("h2c"), "Upgrade: h2c\r\n"),
    ] {
        let backend = changing(changed);
        let mizan = start("", "retry = { tries_max = 1 }", &[backend.address()]);
        let mut client = mizan.client();
        match asked {
            None => client.send("GET /up HTTP/1.1\r\nHost: a.example\r\n\r\n"),
            Some(protocol) => client.send(asking(protocol)),
        };
        let answer = client.read();
        assert_eq!(answer.status, 502, "{asked:?}, {changed:?}");
        assert_eq!(
            line(&mizan, 1)["reason"],
            "bad_interim_response",
            "{asked:?}, {changed:?}"
        );
    }
}

#[test]
fn another_http_and_tls_are_never_asked_for_on() {
    let backend = Backend::healthy("a");
    let mizan = start("", "", &[backend.address()]);
    let mut client = mizan.client();
    for protocol in [
        "h2c",
        "H2C",
        "h2",
        "HTTP/2.0",
        "http/3",
        "TLS/1.0",
        "tls",
        "websocket, h2c",
        "h2c, websocket",
    ] {
        let settings = "HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n";
        let request = asking(protocol).replace("Upgrade\r\n", "Upgrade, HTTP2-Settings\r\n");
        client.send(request.replace("\r\n\r\n", &format!("\r\n{settings}")));
        assert_eq!(client.read().status, 200, "{protocol}");
        let seen = backend
            .recorded()
            .pop()
            .expect("a request")
            .to_ascii_lowercase();
        for name in ["\nupgrade:", "\nconnection: upgrade", "\nhttp2-settings:"] {
            assert!(!seen.contains(name), "{protocol}: {seen}");
        }
    }
    // A request with a body, or of another method, does not become a WebSocket.
    let websocket = upgrade("a.example", "/up");
    for request in [
        websocket.replace("GET", "POST"),
        websocket.replace("\r\n\r\n", "\r\nContent-Length: 2\r\n\r\nok"),
        websocket.replace("HTTP/1.1", "HTTP/1.0"),
        websocket.replace("Connection: keep-alive, Upgrade\r\n", ""),
    ] {
        let mut client = mizan.client();
        client.send(&request);
        assert_eq!(client.read().status, 200, "{request}");
        let seen = backend
            .recorded()
            .pop()
            .expect("a request")
            .to_ascii_lowercase();
        assert!(!seen.contains("\nupgrade:"), "{seen}");
    }
}

#[test]
fn a_refused_upgrade_is_an_answer_as_any_other() {
    let backend = Backend::start(|exchange| {
        let status = match exchange.target() {
            "/403" => "403 Forbidden",
            "/426" => "426 Upgrade Required",
            _ => return exchange.serve(),
        };
        exchange.send(format!(
            "HTTP/1.1 {status}\r\nContent-Length: 4\r\n\r\nno!\n"
        ))?;
        Ok(Next::Keep)
    });
    let mizan = start("", "", &[backend.address()]);
    let mut client = mizan.client();
    for status in [403, 426] {
        let answer = client.exchange(upgrade("a.example", &format!("/{status}")));
        assert_eq!((answer.status, answer.text().as_str()), (status, "no!\n"));
        assert_eq!(client.get("/next").status, 200);
    }
    assert_eq!(
        backend.connections(),
        1,
        "its connection is used again, too"
    );
    // What a client sent in the belief that it would be a WebSocket is a request like any other: none.
    let frame = Frame::plain(TEXT, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").bytes();
    let mut client = mizan.client();
    client.send([upgrade("a.example", "/403").as_bytes(), &frame].concat());
    assert_eq!(client.read().status, 403);
    assert_eq!(client.read().status, 400);
    client.expect_closed();
}

#[test]
fn over_http2_a_refused_websocket_is_an_answer_and_the_connection_goes_on() {
    let backend = Backend::start(|exchange| {
        exchange.send("HTTP/1.1 403 Forbidden\r\nContent-Length: 4\r\n\r\nno!\n")?;
        Ok(Next::Keep)
    });
    let mizan = start("", "", &[backend.address()]);
    let client = H2Client::connect(mizan.address());
    for _ in 0..3 {
        assert_eq!(client.get("/").status, 403);
        let (answer, socket) = run(WebSocket::ask(&client, "a.example", "/up")).expect("an answer");
        assert!(answer.status() == 403 && socket.is_none());
    }
}

#[test]
fn a_backend_of_http2_that_knows_no_websockets_is_not_asked_for_one() {
    let backend = H2Backend::healthy("a");
    let mizan = start("", "protocol = \"http2\"", &[backend.address()]);
    let mut client = mizan.client();
    for request in [upgrade("a.example", "/up"), asking("x-raw")] {
        let before = backend.requests();
        let answer = client.exchange(&request);
        assert_eq!(answer.status, 502);
        assert_eq!(backend.requests(), before);
    }
    assert_eq!(line(&mizan, 2)["reason"], "upgrade_unsupported");
    assert_eq!(client.get("/").status, 200, "no fault of the backend's");
    let client = H2Client::connect(mizan.address());
    assert_eq!(client.get("/").status, 200);
    let (answer, _) = run(WebSocket::ask(&client, "a.example", "/up")).expect("an answer");
    assert_eq!(answer.status(), 502);
    assert_eq!(client.get("/").status, 200);
}

#[test]
fn silence_ends_a_websocket_and_frames_keep_it() {
    let heard = Heard::default();
    let backend = echo(&heard);
    let mizan = start(
        "timeouts = { tunnel_idle = \"1s\" }",
        "",
        &[backend.address()],
    );
    let mut socket = WebSocket::open(mizan.address(), "a.example", "/echo", b"");
    let begin = now();
    for _ in 0..8 {
        pass(Duration::from_millis(200));
        socket.send(&Frame::masked(PING, "x").bytes());
        assert_eq!(socket.read().expect("a pong").payload, b"x");
    }
    assert!(now() > begin + Duration::from_millis(1_500));
    assert_eq!(socket.read(), Err(How::Closed));
    assert_eq!(line(&mizan, 1)["reason"], "tunnel_idle");
}

#[test]
fn a_websocket_lasts_no_longer_than_it_may_however_busy() {
    let heard = Heard::default();
    let backend = echo(&heard);
    let mizan = start(
        "timeouts = { tunnel = \"500ms\" }",
        "",
        &[backend.address()],
    );
    let mut socket = WebSocket::open(mizan.address(), "a.example", "/echo", b"");
    let mut end = Ok(());
    eventually(PATIENCE, "it is cut", || {
        socket.send(&Frame::masked(PING, "x").bytes());
        end = socket.read().map(drop);
        end.is_err()
    });
    // Which of the two it is depends on whether the reset is met by the write or by the read.
    assert!(matches!(end, Err(How::Reset | How::Closed)), "{end:?}");
    assert_eq!(line(&mizan, 1)["reason"], "tunnel_timeout");
}

#[test]
fn websockets_count_as_in_flight() {
    let heard = Heard::default();
    let backends = [echo(&heard), echo(&heard)];
    let pool = "policy = \"least_connections\"";
    let mizan = start("", pool, &backends.each_ref().map(RawBackend::address));
    let open = || WebSocket::open(mizan.address(), "a.example", "/echo", b"");
    let sockets: Vec<_> = (0..8).map(|_| open()).collect();
    // In all, for its pool and for its backend.
    assert_eq!(mizan.in_flight(), 3 * 8);
    let counts = backends.each_ref().map(RawBackend::connections);
    assert_eq!(counts, [4, 4]);
    drop(sockets);
    eventually(PATIENCE, "they are given back", || mizan.in_flight() == 0);
}

#[test]
fn the_line_of_an_upgrade_is_whole_though_its_route_and_pool_are_gone() {
    let backend = changing("Upgrade: x-raw\r\n");
    let log = "[log]\naccess = \"{dir}/access.log\"\n";
    let pool = pool_of("", &[backend.address()]);
    let mizan = Mizan::start(&format!(
        "[[listener]]\nbind = \"{{listen}}\"\n[[route]]\nname = \"chat\"\npool = \"api\"\n{pool}{log}"
    ));
    let traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let asked = asking("x-raw").replace("/up", "/up?of=it");
    let asked = asked.replace(
        "\r\n\r\n",
        &format!("\r\ntraceparent: {traceparent}\r\n\r\n"),
    );
    let mut client = mizan.client();
    client.send(format!("{asked}ab"));
    assert_eq!(client.read_head().word(1), "101");
    assert_eq!(client.read_exactly(5), b"early");
    mizan.write_config(&format!(
        "[[listener]]\nbind = \"{{listen}}\"\n[[route]]\nrespond = {{ status = 200, body = \"new\" }}\n{log}"
    ));
    let reloaded = mizan.command(&["reload"]);
    assert!(reloaded.status.success(), "{reloaded:?}");
    assert_eq!(mizan.get("/").text(), "new");
    client.send("c");
    client.finish_sending();
    assert_eq!(client.read_to_end(), (b"cba".to_vec(), Ok(())));
    // Of two workers either writes first.
    let mut lines = [line(&mizan, 1), line(&mizan, 2)].into_iter();
    let line = lines.find(|line| line["route"] == "chat").expect("a line");
    let head = String::from_utf8(backend.heard()[0].clone()).expect("text");
    let id = line["request_id"].as_str().expect("an identifier");
    assert!(id.len() == 32 && head.contains(id), "{id}, {head}");
    for (key, expected) in [
        ("method", "GET"),
        ("host", "a.example"),
        ("target", "/up?-"),
        ("protocol", "HTTP/1.1"),
        ("route", "chat"),
        ("pool", "api"),
        ("backend", &backend.address().to_string()),
        ("traceparent", traceparent),
    ] {
        assert_eq!(line[key], expected, "{line}");
    }
    let client = line["client"].as_str().expect("an address");
    assert!(client.starts_with("127.0.0.1:") && !client.ends_with(":0"));
    assert_eq!((&line["status"], &line["tries"]), (&101.into(), &1.into()));
    assert_eq!(line["bytes_in"], asked.len() + 3);
    let bytes_out = line["bytes_out"].as_u64().expect("a number");
    assert!(bytes_out > 8 + 50, "{bytes_out}: its head, too");
    assert!(line["upstream_ms"].as_f64() <= line["duration_ms"].as_f64());
}

#[test]
fn who_waits_for_a_websocket_s_place_gets_it_when_that_ends() {
    let heard = Heard::default();
    let backend = echo(&heard);
    let address = backend.address();
    let mizan = Mizan::start(&format!(
        "[[listener]]\nbind = \"{{listen}}\"\n[[route]]\npool = \"api\"\n[pool.api]\n\
         backends = [{{ address = \"{address}\", in_flight_max = 1 }}]\nqueue = {{ timeout = \"30s\", requests_max = 1 }}\n"
    ));
    let first = WebSocket::open(mizan.address(), "a.example", "/echo", b"");
    let mut second = mizan.client();
    second.send(upgrade("a.example", "/echo"));
    eventually(PATIENCE, "the second waits", || {
        mizan.metric("mizan_pool_queued", "pool=\"api\"") == 1.0
    });
    assert_eq!(backend.connections(), 1);
    drop(first);
    assert_eq!(second.read_head().word(1), "101");
}

#[test]
fn an_operator_s_drain_waits_for_websockets_and_cuts_none() {
    let heard = Heard::default();
    let backends = [echo(&heard), echo(&heard)];
    let [first, second] = backends.each_ref().map(RawBackend::address);
    let mizan = start("", "policy = \"round_robin\"", &[first, second]);
    let open = || WebSocket::open(mizan.address(), "a.example", "/echo", b"");
    let mut sockets: Vec<_> = (0..4).map(|_| open()).collect();
    let name = format!("api/{first}");
    let waits = mizan.command(&["drain", &name, "--wait", "--timeout", "300ms"]);
    assert!(!waits.status.success(), "it is not drained yet: {waits:?}");
    // New ones go to the other, those that are open go on.
    let _more: Vec<_> = (0..4).map(|_| open()).collect();
    assert_eq!(backends[0].connections(), 2);
    pass(Duration::from_millis(300));
    for socket in &mut sockets {
        socket.send(&Frame::masked(TEXT, "still here").bytes());
        assert_eq!(socket.read().expect("it is open").payload, b"still here");
    }
    let drained = std::thread::scope(|scope| {
        let waits = scope.spawn(|| mizan.command(&["drain", &name, "--wait", "--timeout", "20s"]));
        for mut socket in sockets {
            socket.send(&Frame::close(1000, "").bytes());
            assert_eq!(socket.read().expect("a close").code(), Some(1000));
        }
        waits.join().expect("no panic")
    });
    assert!(drained.status.success(), "{drained:?}");
}

#[test]
fn a_backend_that_is_killed_resets_its_clients() {
    let backend = RawBackend::start(|connection| {
        let mut wire = wire::Wire::new(connection.stream.try_clone().expect("a socket"));
        let Ok((head, _)) = wire.head() else {
            return;
        };
        let half = &Frame::plain(BINARY, [0; 100]).bytes()[..50];
        let _ = connection
            .stream
            .write_all(&[accepted(&head).as_bytes(), half].concat());
        let _ = wire.exactly(1, &mut Vec::new());
        connection.reset();
    });
    let mizan = start("", "", &[backend.address()]);
    let mut socket = WebSocket::open(mizan.address(), "a.example", "/", b"");
    socket.send(b"x");
    assert_eq!(socket.read(), Err(How::Reset));
    assert_eq!(line(&mizan, 1)["reason"], "response_cut");
    // RFC 8441 §5: a reset of a stream, with CANCEL.
    let client = H2Client::connect(mizan.address());
    assert_eq!(client.get("/").status, 502);
    let WebSocket::Stream(mut sending, mut frames) = WebSocket::over(&client, "a.example", "/")
    else {
        panic!("no stream");
    };
    let error = run(async {
        websocket::send_piece(&mut sending, b"x")
            .await
            .expect("it is open");
        loop {
            match frames.data().await {
                Some(Ok(_)) => {}
                end => return end.expect("no end without an error").expect_err("matched"),
            }
        }
    });
    assert_eq!(error.reason(), Some(h2::Reason::CANCEL));
}

#[test]
fn the_end_of_a_client_s_side_reaches_the_backend_over_http2_too() {
    // Answers when the client has ended its side, and not before.
    let backend = RawBackend::start(|connection| {
        let mut wire = wire::Wire::new(connection.stream.try_clone().expect("a socket"));
        let Ok((head, _)) = wire.head() else {
            return;
        };
        let mut heard = Vec::new();
        if wire.send(accepted(&head).as_bytes()).is_ok() && wire.rest(&mut heard).is_ok() {
            let _ = wire.send(&Frame::plain(TEXT, heard.len().to_string()).bytes());
        }
    });
    let mizan = start("", "", &[backend.address()]);
    let client = H2Client::connect(mizan.address());
    let message = Frame::masked(TEXT, "five!").bytes();
    let expected = Frame::plain(TEXT, message.len().to_string());
    let mut socket = WebSocket::open(mizan.address(), "a.example", "/", b"");
    socket.send(&message);
    socket.finish();
    assert_eq!(socket.read().expect("an answer"), expected);
    let mut socket = WebSocket::over(&client, "a.example", "/");
    socket.send(&message);
    socket.finish();
    let WebSocket::Stream(_sending, mut frames) = socket else {
        panic!("a stream");
    };
    let answer = run(async { frames.data().await }).expect("an answer");
    assert_eq!(answer.expect("whole"), expected.bytes());
    eventually(PATIENCE, "nothing is in flight", || mizan.in_flight() == 0);
}

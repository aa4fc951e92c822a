//! Whose fault it is: what a client sends wrongly costs no backend its good name, and the other way round.

use crate::support::*;
use std::net::SocketAddr;
use std::time::Duration;

/// Three failures would eject a backend, and that would be seen.
fn configured(pool: &str, backends: &[SocketAddr]) -> String {
    let pool = format!("{pool}\nejection = {{ failures = 3, time = \"300s\" }}");
    config("", &pool, backends)
}

fn start(pool: &str, backends: &[SocketAddr]) -> Mizan {
    Mizan::start(&configured(pool, backends))
}

#[track_caller]
fn expect_no_blame(mizan: &Mizan) {
    assert_eq!(mizan.metric("mizan_backend_failures_total", ""), 0.0);
    assert_eq!(mizan.metric("mizan_pool_backends_usable", ""), 2.0);
}

/// Two backends whose calls wait for their ends, as those that read a body do.
fn waiting() -> [H2Backend; 2] {
    [(); 2].map(|()| H2Backend::start(Call::hang))
}

#[test]
fn text_of_grpc_web_that_is_no_base64_is_its_client_s_fault() {
    let backends = waiting();
    let addresses = [backends[0].address(), backends[1].address()];
    let text = configured("protocol = \"http2\"", &addresses);
    let text = text.replace("[[route]]", "[[route]]\ngrpc_web = true");
    let mizan = Mizan::start(&text);
    let client = H2Client::connect(mizan.address());
    for body in ["!!!!", "AAAAA", "AAAA!"] {
        for ask in [Ask::streamed("/", body), Ask::post("/", body)] {
            let ask = ask.field("content-type", "application/grpc-web-text");
            let answer = client.exchange(ask.clone());
            assert_eq!(answer.field("grpc-status"), Some("3"), "{body} {answer:?}");
            assert_eq!(answer.field("grpc-message"), Some("bad_chunk"));
            let answer = client.exchange(ask.trailer("x", "1"));
            assert_eq!(answer.field("grpc-status"), Some("3"), "{body} {answer:?}");
        }
    }
    expect_no_blame(&mizan);
    eventually(PATIENCE, "the backends hear of the end", || {
        let resets: Vec<_> = backends.iter().flat_map(H2Backend::resets).collect();
        resets.len() == 12 && resets.iter().all(|reason| *reason == h2::Reason::CANCEL)
    });
}

#[test]
fn more_trailers_than_a_backend_is_sent_are_the_client_s_fault() {
    let backends = waiting();
    let addresses = [backends[0].address(), backends[1].address()];
    let mizan = start("protocol = \"http2\"", &addresses);
    let client = H2Client::connect(mizan.address());
    let mut ask = Ask::streamed("/", "hi");
    for number in 0..300 {
        ask = ask.trailer(&format!("x{number}"), "1");
    }
    let lines: String = (0..300).map(|number| format!("x{number}:1\r\n")).collect();
    for _ in 0..4 {
        let answer = client.exchange(ask.clone());
        assert_eq!(
            (answer.status, &*answer.text()),
            (400, "400 Bad Request: bad_chunk\n")
        );
        let mut client = mizan.client();
        client.send("POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n");
        client.send(format!("2\r\nhi\r\n0\r\n{lines}\r\n"));
        let answer = client.read();
        assert_eq!(
            (answer.status, &*answer.text()),
            (400, "400 Bad Request: bad_chunk\n")
        );
    }
    expect_no_blame(&mizan);
}

/// A stream that both sides keep open: the backend waits for what the client has spoiled.
#[test]
fn a_body_that_breaks_off_behind_an_early_answer_is_not_waited_for() {
    let answering = || {
        H2Backend::start(|mut call| async move {
            let mut sending = call.respond.send_response(http::Response::new(()), false)?;
            let reason = std::future::poll_fn(|cx| sending.poll_reset(cx)).await?;
            call.note(reason);
            Ok(())
        })
    };
    let backends = [answering(), answering()];
    let addresses = [backends[0].address(), backends[1].address()];
    let timeouts = "protocol = \"http2\"\ntimeouts = { response_idle = \"1h\" }";
    let mizan = start(timeouts, &addresses);
    for _ in 0..4 {
        let mut client = mizan.client();
        client.send("POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n");
        client.send("2\r\nhi\r\n");
        assert_eq!(client.read_head().word(1), "200");
        client.send("ZZ\r\n");
        client.expect_closed();
    }
    eventually(PATIENCE, "the backends hear of the end", || {
        backends
            .iter()
            .map(|backend| backend.resets().len())
            .sum::<usize>()
            == 4
    });
    expect_no_blame(&mizan);
}

/// The answer's trailers are more than HTTP/2 is sent: no client has gone away.
#[test]
fn what_a_client_cannot_be_sent_is_the_backend_s_fault() {
    let lines: String = (0..300).map(|number| format!("x{number}:1\r\n")).collect();
    let backend = RawBackend::start(move |connection| {
        use std::io::Write;
        connection.read_exactly(20);
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n";
        let _ = write!(connection.stream, "{head}0\r\n{lines}\r\n");
        connection.read_to_end();
    });
    let mizan = Mizan::start(&config("", "", &[backend.address()]));
    let client = H2Client::connect(mizan.address());
    run(client.ask(Ask::get("/"))).expect_err("its answer is not whole");
    eventually(Duration::from_secs(5), "it is counted", || {
        mizan.metric("mizan_own_answers_total", "cause=\"bad_response_chunk\"") == 1.0
    });
    assert_eq!(mizan.metric("mizan_backend_failures_total", ""), 1.0);
}

/// Answers to a WebSocket over HTTP/2 that are none: what the client is told is what is logged and counted.
#[test]
fn an_answer_that_is_no_websocket_is_told_as_it_was() {
    let backend = Backend::start(|exchange| match exchange.target() {
        "/wrong" => {
            let head =
                "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n";
            exchange.send(format!("{head}Sec-WebSocket-Accept: no\r\n\r\n"))?;
            Ok(Next::Close)
        }
        _ => exchange.serve(),
    });
    let log = "[log]\naccess = \"{dir}/access.log\"\n";
    let own = "[[route]]\npath = \"/own\"\nrespond = { status = 200 }\n";
    let retry = "retry = { tries_max = 1 }";
    let mizan = Mizan::start(&(config("", retry, &[backend.address()]) + own + log));
    let client = H2Client::connect(mizan.address());
    for (path, reason, failures) in [
        ("/wrong", "bad_response", 1.0),
        // Anybody can ask what is no WebSocket for one.
        ("/plain", "upgrade_unsupported", 1.0),
        ("/own", "respond", 1.0),
    ] {
        let (answer, _) = run(WebSocket::ask(&client, "a.example", path)).expect("an answer");
        assert_eq!(answer.status(), 502, "{path}");
        let label = format!("cause=\"{reason}\",code=\"502\"");
        eventually(PATIENCE, "it is counted", || {
            mizan.metric("mizan_own_answers_total", &label) == 1.0
        });
        eventually(PATIENCE, "it is logged", || {
            let file = mizan.directory().join("access.log");
            let text = std::fs::read_to_string(file).unwrap_or_default();
            let line = text.lines().find(|line| line.contains(path));
            line.is_some_and(|line| line.contains("\"status\":502") && line.contains(reason))
        });
        assert_eq!(mizan.metric("mizan_backend_failures_total", ""), failures);
    }
}

//! Responses of a single backend that cannot be passed on as they are: what the client sees.

use crate::support::*;
use std::time::Duration;

const POOL: &str = r#"
timeouts = { connect = "500ms", response_header = "1s", response_idle = "1s" }
ejection = { enabled = false }
"#;

fn behind(
    script: impl Fn(&mut Exchange) -> std::io::Result<Next> + Send + Sync + 'static,
) -> (Backend, Mizan) {
    let backend = Backend::start(script);
    let mizan = Mizan::start(&config("", POOL, &[backend.address()]));
    (backend, mizan)
}

/// Each request is answered with the bytes that a test puts in.
fn answering(backend: &Backend, bytes: impl Into<Vec<u8>>, next: Next) {
    let bytes = bytes.into();
    backend.set_script(move |exchange| {
        exchange.send(&bytes)?;
        Ok(next)
    });
}

#[test]
fn an_ambiguous_or_broken_head_is_a_502_with_a_reason() {
    let (backend, mizan) = behind(Exchange::serve);
    for head in [
        "\0\x01garbage\r\n\r\n",
        "HTTP/3.7 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 2x0 OK\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 99 X\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 2000 X\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        "HTTP/1.1 200 OK\r\nContent-Length: 5, 6\r\n\r\nhello!",
        "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nX: a\rb\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nX : b\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n X: folded\r\n\r\nhello",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\njunk",
    ] {
        answering(&backend, head, Next::Close);
        let response = mizan.get("/");
        assert_eq!(response.status, 502, "{head:?}");
        assert!(!response.text().trim().is_empty(), "{head:?}: no reason");
    }
    answering(
        &backend,
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        Next::Keep,
    );
    assert_eq!(mizan.get("/").text(), "ok");
}

#[test]
fn a_head_without_end_is_a_502_and_takes_no_memory() {
    let backend = Backend::start(|exchange| {
        exchange.send("HTTP/1.1 200 OK\r\n")?;
        for number in 0..100_000 {
            exchange.send(format!("X-{number}: {}\r\n", "a".repeat(1_000)))?;
        }
        Ok(Next::Close)
    });
    let config = config("", POOL, &[backend.address()]);
    let mizan = Mizan::start(&format!("workers = 1\n{config}"));
    // What a worker's first request takes once, stacks and the like, is not what is asked.
    assert_eq!(mizan.get("/").status, 502);
    let before = mizan.resident_bytes();
    for _ in 0..10 {
        assert_eq!(mizan.get("/").status, 502);
    }
    let grown = mizan.resident_bytes().saturating_sub(before);
    assert!(grown < 4 << 20, "{grown} bytes");
}

#[test]
fn a_response_that_ends_early_is_seen_by_the_client_to_have() {
    let (backend, mizan) = behind(Exchange::serve);
    for (bytes, next) in [
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nhello",
            Next::Close,
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nhello",
            Next::Reset,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
            Next::Close,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
            Next::Close,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nz\r\nhello\r\n0\r\n\r\n",
            Next::Keep,
        ),
    ] {
        answering(&backend, bytes, next);
        let mut client = mizan.client();
        client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
        match client.try_read("GET") {
            Ok(response) => assert_eq!(
                response.status,
                502,
                "{bytes:?} looked complete: {:?}",
                response.text()
            ),
            Err(cut) => assert_ne!(cut.how, How::TimedOut, "{bytes:?}"),
        }
    }
}

#[test]
fn a_body_up_to_the_close_that_ends_in_a_reset_does_not_look_complete() {
    let backend = Backend::start(|exchange| {
        exchange.send("HTTP/1.1 200 OK\r\n\r\nhello")?;
        exchange.pause(Duration::from_millis(100))?;
        Ok(Next::Reset)
    });
    let mizan = Mizan::start(&config("", POOL, &[backend.address()]));
    let mut client = mizan.client();
    client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
    let answer = client.try_read("GET");
    assert!(answer.is_err(), "{answer:?}");
}

#[test]
fn a_silent_backend_is_a_504_before_the_head_and_a_cut_within_the_body() {
    let (backend, mizan) = behind(Exchange::hang);
    let started = now();
    assert_eq!(mizan.get("/").status, 504);
    let took = now() - started;
    assert!(
        (900..3_000).contains(&took.as_millis()),
        "{took:?} with a time-out of 1 s"
    );

    backend.set_script(|exchange| {
        exchange.send("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello")?;
        exchange.hang()
    });
    let started = now();
    let mut client = mizan.client();
    client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
    let cut = client.try_read("GET").expect_err("it never came whole");
    assert!(matches!(cut.how, How::Closed | How::Reset), "{cut:?}");
    let took = now() - started;
    assert!(
        (900..3_000).contains(&took.as_millis()),
        "{took:?} with a time-out of 1 s"
    );
    eventually(PATIENCE, "the stuck connections are given up", || {
        backend.open() == 0
    });
}

#[test]
fn what_follows_a_response_unasked_is_never_given_to_the_next_request() {
    let (backend, mizan) = behind(Exchange::serve);
    let evil = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nEVIL";
    for first in [
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.1 304 Not Modified\r\n\r\n",
    ] {
        answering(&backend, format!("{first}{evil}"), Next::Keep);
        let mut client = mizan.client();
        for _ in 0..5 {
            let response = client.get("/");
            assert!(!response.text().contains("EVIL"), "{first:?}");
        }
    }
}

#[test]
fn an_unasked_response_on_an_idle_connection_is_never_given_to_the_next_request() {
    let (backend, mizan) = behind(|exchange| {
        exchange.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")?;
        exchange.pause(Duration::from_millis(50))?;
        exchange.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nEVIL")?;
        Ok(Next::Keep)
    });
    let mut client = mizan.client();
    for round in 0..5 {
        assert_eq!(client.get("/").text(), "ok", "round {round}");
        eventually(PATIENCE, "the unasked response is out", || {
            backend.busy() == 0
        });
    }
}

#[test]
fn a_refused_connect_is_a_502_with_its_reason() {
    let mut backend = Backend::healthy("a");
    let mizan = Mizan::start(&config("", POOL, &[backend.address()]));
    backend.stop();
    let response = mizan.get("/");
    assert_eq!(response.status, 502);
    assert!(
        response.text().contains("connect_refused"),
        "{:?}",
        response.text()
    );
}

/// A relay before one backend, and faults of the way between.
#[test]
fn faults_of_the_way_to_a_backend_end_in_an_answer_and_heal_with_it() {
    let backend = Backend::healthy("a");
    let relay = FaultProxy::start(backend.address());
    let mizan = Mizan::start(&config("", POOL, &[relay.address()]));
    assert_eq!(mizan.get("/").status, 200);
    for (fault, expected) in [
        (Fault::Stall, &[504][..]),
        (Fault::Cut, &[502]),
        (Fault::Reset, &[502]),
        (Fault::HalfOpen, &[504]),
        (Fault::CutAfter(20), &[502]),
        (Fault::Drip(Duration::from_millis(100)), &[504]),
        (Fault::Delay(Duration::from_millis(100)), &[200]),
        (Fault::Drip(Duration::from_millis(1)), &[200]),
    ] {
        relay.set(fault);
        let started = now();
        let status = mizan.get("/").status;
        assert!(expected.contains(&status), "{fault:?}: {status}");
        assert!(
            now() - started < Duration::from_secs(5),
            "{fault:?} took {:?}",
            now() - started
        );
        relay.set(Fault::None);
        assert_eq!(mizan.get("/").status, 200, "after {fault:?}");
    }
}

#[test]
fn a_relay_that_cuts_in_mid_body_is_seen_by_the_client_to_have() {
    let backend = Backend::healthy("a");
    let relay = FaultProxy::start(backend.address());
    let mizan = Mizan::start(&config("", POOL, &[relay.address()]));
    relay.set(Fault::CutAfter(100_000));
    let mut client = mizan.client();
    client.send("GET /bytes/1000000 HTTP/1.1\r\nHost: a.example\r\n\r\n");
    let cut = client.try_read("GET").expect_err("a tenth is not whole");
    assert!(
        cut.head.is_some() && cut.body.len() < 100_000,
        "{:?} after {}",
        cut.how,
        cut.body.len()
    );
    assert!(
        cut.body.len() > 50_000,
        "what had come was kept back: {}",
        cut.body.len()
    );
}

//! The tools tell what they are meant to tell: without this, a test that counts no failure means little.

use crate::support::*;
use std::time::Duration;

fn run(address: std::net::SocketAddr, plan: Plan, until: impl Fn() -> bool) -> load::Report {
    let load = Load::start(address, plan);
    eventually(PATIENCE, "the load does something", until);
    load.stop()
}

#[test]
fn a_load_on_a_sound_backend_has_no_failure_and_names_who_answered() {
    let backend = Backend::healthy("a");
    let start = now();
    let report = run(backend.address(), Plan::default(), || {
        backend.requests() > 100
    });
    report.expect_no_failure();
    assert_eq!(report.shots.len(), backend.requests());
    assert_eq!(
        report.shares(start, now()).get("a"),
        Some(&report.shots.len())
    );
    assert!(report.shots.iter().any(|shot| shot.is_post));
}

#[test]
fn a_load_tells_each_fate_apart() {
    for (answer, next, fate) in [
        (
            "HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n",
            Next::Keep,
            Fate::Answered(500),
        ),
        ("", Next::Close, Fate::Unanswered),
        ("", Next::Reset, Fate::Unanswered),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel",
            Next::Close,
            Fate::CutShort,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n",
            Next::Close,
            Fate::CutShort,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nhello\r\n0\r\n\r\n",
            Next::Close,
            Fate::CutShort,
        ),
    ] {
        let backend = Backend::start(move |exchange| {
            exchange.send(answer)?;
            Ok(next)
        });
        let plan = Plan {
            clients: 2,
            post_every: 0,
            ..Plan::default()
        };
        let report = run(backend.address(), plan, || backend.requests() > 5);
        assert_eq!(
            report.count(&fate),
            report.shots.len(),
            "{answer:?} {next:?}: {:#?}",
            report.shots[0]
        );
        assert_eq!(report.failed().len(), report.shots.len());
    }
}

#[test]
fn a_load_tells_silence_and_refusal_apart() {
    let mut backend = Backend::start(Exchange::hang);
    let plan = Plan {
        clients: 2,
        patience: Duration::from_millis(200),
        ..Plan::default()
    };
    let report = run(backend.address(), plan, || backend.requests() > 3);
    assert!(report.count(&Fate::TimedOut) > 1, "{report:#?}");
    backend.stop();
    let load = Load::start(backend.address(), plan);
    load.run_for(Duration::from_millis(200));
    let report = load.stop();
    assert_eq!(report.count(&Fate::Refused), report.shots.len());
    assert!(!report.shots.is_empty() && report.failed().is_empty());
}

#[test]
fn a_backend_comes_back_on_its_address_and_drains_without_cutting() {
    let mut backend = Backend::healthy("a");
    let mut client = Client::connect(backend.address());
    assert_eq!(client.post("/", b"abc").text(), "a:3");
    backend.drain();
    assert!(client.is_closed());
    assert!(Client::try_connect(backend.address()).is_err());
    backend.restart();
    assert_eq!(
        Client::connect(backend.address()).get("/bytes/10").text(),
        "xxxxxxxxxx"
    );
    assert_eq!(backend.probes(), 0);
    assert_eq!(
        Client::connect(backend.address()).get("/healthz").status,
        200
    );
    assert_eq!((backend.probes(), backend.requests()), (1, 2));
}

#[test]
fn a_fault_proxy_passes_and_each_fault_is_seen_as_what_it_is() {
    let backend = Backend::healthy("a");
    let relay = FaultProxy::start(backend.address());
    for (fault, expected) in [
        (Fault::Cut, How::Closed),
        (Fault::Reset, How::Reset),
        (Fault::Stall, How::TimedOut),
        (Fault::HalfOpen, How::TimedOut),
        (Fault::CutAfter(10), How::Closed),
    ] {
        relay.set(Fault::None);
        let mut client = Client::connect(relay.address());
        assert_eq!(client.get("/").text(), "a:0");
        relay.set(fault);
        client.set_patience(Duration::from_millis(300));
        client.send("GET /bytes/100000 HTTP/1.1\r\nHost: a.example\r\n\r\n");
        let cut = client.try_read("GET").expect_err("a fault is on");
        assert_eq!(cut.how, expected, "{fault:?}");
    }
    relay.set(Fault::Delay(Duration::from_millis(200)));
    let started = now();
    assert_eq!(Client::connect(relay.address()).get("/").text(), "a:0");
    assert!(now() - started >= Duration::from_millis(200));
    relay.set(Fault::Drip(Duration::from_millis(5)));
    let started = now();
    assert_eq!(Client::connect(relay.address()).get("/").text(), "a:0");
    assert!(
        now() - started >= Duration::from_millis(200),
        "more than forty bytes came in {:?}",
        now() - started
    );
}

#[test]
fn a_wait_that_is_not_met_fails() {
    let waited =
        std::panic::catch_unwind(|| eventually(Duration::from_millis(20), "never", || false));
    assert!(waited.is_err());
}

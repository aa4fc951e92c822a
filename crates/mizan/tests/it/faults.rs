//! Faults of backends beside sound ones, under load. What is counted is requests that a client saw fail.

use crate::support::*;
use rustix::process::Signal;
use std::net::SocketAddr;
use std::time::Duration;

const HEALTH: &str =
    r#"health = { path = "/healthz", interval = "200ms", timeout = "150ms", fall = 3, rise = 2 }"#;

/// Within this a backend that does not answer is out by its probes: interval × fall + timeout, and as
/// much again for a machine that is busy with the load.
const PROBES_NOTICE: Duration = Duration::from_millis(2 * (200 * 3 + 150));

fn processes() -> [ProcessBackend; 3] {
    ["a", "b", "c"].map(ProcessBackend::start)
}

fn wait_for_answer_of(mizan: &Mizan, name: &str) {
    eventually(PATIENCE, "the backend gets traffic again", || {
        mizan.get("/").field("x-backend") == Some(name)
    });
}

#[test]
fn killing_a_backend_under_load_fails_no_get_and_no_post_that_was_not_sent() {
    let _alone = alone();
    let mut backends = processes();
    let addresses = backends.each_ref().map(ProcessBackend::address);
    let mizan = Mizan::start(&config("", HEALTH, &addresses));
    let plan = Plan::default();
    let load = Load::start(mizan.address(), plan);
    load.wait_for(500);
    let killed = now();
    backends[1].kill();
    load.wait_for(2_000);
    backends[1].restart();
    wait_for_answer_of(&mizan, backends[1].name());
    load.wait_for(500);
    let report = load.stop();

    let cut_short = report.count(&Fate::CutShort);
    assert!(
        cut_short <= plan.clients,
        "{cut_short} cut in mid-response, of {} at work",
        plan.clients
    );
    let failed: Vec<_> = report
        .failed()
        .into_iter()
        .filter(|shot| shot.fate != Fate::CutShort)
        .collect();
    let was_sent = |shot: &&&load::Shot| {
        shot.is_post
            && shot.fate == Fate::Answered(502)
            && shot.note.contains("reset_before_response")
    };
    let unsent: Vec<_> = failed.iter().filter(|shot| !was_sent(shot)).collect();
    assert!(
        unsent.is_empty(),
        "{} failed that should not have: {:#?}",
        unsent.len(),
        unsent.first()
    );
    assert!(
        failed.len() <= plan.clients,
        "{} POSTs failed: more than were at work",
        failed.len()
    );
    let late = failed
        .iter()
        .find(|shot| shot.started > killed + Duration::from_secs(1));
    assert!(
        late.is_none(),
        "sent to a backend that was long dead: {late:#?}"
    );
}

#[test]
fn a_stopped_backend_costs_only_what_is_in_flight_there_until_its_probes_notice() {
    let _alone = alone();
    let backends = processes();
    let addresses = backends.each_ref().map(ProcessBackend::address);
    // A short ejection, so that it is over by the time the backend is looked for again.
    let timeouts = "timeouts = { connect = \"500ms\", response_header = \"1s\" }\nejection = { time = \"1s\" }";
    let mizan = Mizan::start(&config("", &format!("{HEALTH}\n{timeouts}"), &addresses));
    let plan = Plan::default();
    let load = Load::start(mizan.address(), plan);
    load.wait_for(500);
    let stopped = now();
    backends[2].signal(Signal::STOP);
    load.run_for(PROBES_NOTICE + Duration::from_secs(2));
    backends[2].signal(Signal::CONT);
    wait_for_answer_of(&mizan, backends[2].name());
    load.wait_for(200);
    let report = load.stop();

    let failed = report.failed();
    let other = failed.iter().find(|shot| shot.fate != Fate::Answered(504));
    assert!(other.is_none(), "not answered by the time-out: {other:#?}");
    let late = failed
        .iter()
        .find(|shot| shot.started > stopped + PROBES_NOTICE);
    assert!(
        late.is_none(),
        "sent there after its probes had noticed: {late:#?}"
    );
    assert!(failed.len() <= 2 * plan.clients, "{} failed", failed.len());
}

/// Two sound backends and one with a fault, behind one `mizan` without probes: only traffic tells.
struct Trio {
    mizan: Mizan,
    bad: Backend,
    _sound: [Backend; 2],
}

impl Trio {
    fn start(
        script: impl Fn(&mut Exchange) -> std::io::Result<Next> + Send + Sync + 'static,
    ) -> Self {
        Self::start_with("timeouts = { response_header = \"1s\" }", script)
    }

    fn start_with(
        pool: &str,
        script: impl Fn(&mut Exchange) -> std::io::Result<Next> + Send + Sync + 'static,
    ) -> Self {
        let bad = Backend::start(script);
        let sound = ["a", "b"].map(Backend::healthy);
        let addresses: Vec<SocketAddr> = sound.iter().chain([&bad]).map(Backend::address).collect();
        let mizan = Mizan::start(&config("", pool, &addresses));
        Self {
            mizan,
            bad,
            _sound: sound,
        }
    }

    /// Runs `plan` until the bad backend has had its share and for a while after it was ejected.
    fn run(&self, plan: Plan) -> load::Report {
        let load = Load::start(self.mizan.address(), plan);
        eventually(PATIENCE, "the bad backend gets requests", || {
            self.bad.requests() >= 5
        });
        load.wait_for(200);
        let before = self.bad.requests();
        load.wait_for(300);
        let report = load.stop();
        let during = self.bad.requests() - before;
        assert!(
            during <= plan.clients,
            "{during} of 300 requests went to a backend that should be ejected"
        );
        report
    }
}

const GETS: Plan = Plan {
    clients: 8,
    post_every: 0,
    path: "/",
    pause: Duration::from_millis(1),
    patience: Duration::from_secs(10),
};

/// A backend is ejected after five failures in a row; as many requests as there are clients may be on
/// their way to it by then, and again when it is tried.
const FAILURES_MAX: usize = 5 + 2 * GETS.clients;

#[test]
fn a_backend_that_answers_500_at_once_is_no_black_hole() {
    let _alone = alone();
    let trio = Trio::start(|exchange| {
        exchange.body()?;
        exchange.send("HTTP/1.1 500 Broken\r\nX-Backend: bad\r\nContent-Length: 0\r\n\r\n")?;
        Ok(Next::Keep)
    });
    let load = Load::start(trio.mizan.address(), GETS);
    let start = now();
    load.run_for(Duration::from_secs(3));
    let report = load.stop();

    let second = report.shares(
        start + Duration::from_secs(1),
        start + Duration::from_secs(2),
    );
    let third = report.shares(
        start + Duration::from_secs(2),
        start + Duration::from_secs(3),
    );
    let (in_second, all_second) = (
        second.get("bad").copied().unwrap_or(0),
        second.values().sum::<usize>(),
    );
    assert!(all_second > 30, "too little traffic to tell: {second:?}");
    assert!(
        in_second * 3 < all_second,
        "an even share or more: {second:?}"
    );
    assert_eq!(third.get("bad"), None, "not ejected: {third:?}");
    let other = report
        .failed()
        .into_iter()
        .find(|shot| shot.fate != Fate::Answered(500))
        .cloned();
    assert!(
        other.is_none(),
        "the backend's own error is what the client sees: {other:#?}"
    );
    assert!(
        report.failed().len() <= FAILURES_MAX,
        "{} failed",
        report.failed().len()
    );
}

#[test]
fn a_backend_that_resets_after_the_request_head_fails_no_get() {
    let _alone = alone();
    Trio::start(|_| Ok(Next::Reset))
        .run(GETS)
        .expect_no_failure();
}

#[test]
fn a_request_that_a_retry_saved_is_counted_as_rescued_and_one_that_reached_nothing_as_unreached() {
    let mut backends = ["a", "b"].map(Backend::healthy);
    let mizan = Mizan::start(&config("", "", &backends.each_ref().map(Backend::address)));
    backends[0].stop();
    (0..50).for_each(|_| assert_eq!(mizan.get("/").status, 200));
    (0..50).for_each(|_| assert_eq!(mizan.client().post("/", b"unsent").status, 200));
    assert!(mizan.metric("mizan_rescued_total", "connect_refused") >= 1.0);
    assert_eq!(mizan.metric("mizan_unreached_total", ""), 0.0);
    backends[1].stop();
    let failed = (0..20).filter(|_| mizan.get("/").status != 200).count();
    assert_eq!(failed, 20);
    assert_eq!(mizan.metric("mizan_unreached_total", ""), 20.0);
}

#[test]
fn a_backend_that_sends_a_garbage_head_fails_no_get() {
    let _alone = alone();
    let trio = Trio::start(|exchange| {
        exchange.send(b"\x16\x03\x01 nothing that HTTP knows\r\n\r\n")?;
        Ok(Next::Close)
    });
    trio.run(GETS).expect_no_failure();
}

/// Failures that are nothing but answers cut short, and no more than until the ejection.
fn expect_only_cut_short(report: &load::Report) {
    let failed = report.failed();
    let other = failed.iter().find(|shot| shot.fate != Fate::CutShort);
    assert!(other.is_none(), "{other:#?}");
    assert!(
        (1..=FAILURES_MAX).contains(&failed.len()),
        "{} cut short",
        failed.len()
    );
}

#[test]
fn a_backend_that_closes_in_mid_body_is_seen_to_have_cut_and_is_ejected() {
    let _alone = alone();
    let trio = Trio::start(|exchange| {
        exchange.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")?;
        Ok(Next::Close)
    });
    expect_only_cut_short(&trio.run(GETS));
}

#[test]
fn a_backend_that_sends_less_than_it_declared_is_seen_to_have_cut_and_is_ejected() {
    let _alone = alone();
    let trio = Trio::start(|exchange| {
        exchange.send("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello")?;
        Ok(Next::Close)
    });
    expect_only_cut_short(&trio.run(GETS));
}

#[test]
fn a_backend_that_drips_its_head_is_answered_for_by_the_time_out_and_ejected() {
    let _alone = alone();
    let trio = Trio::start(|exchange| {
        exchange.drip(
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            Duration::from_secs(1),
        )?;
        Ok(Next::Keep)
    });
    let load = Load::start(trio.mizan.address(), GETS);
    load.run_for(Duration::from_secs(4));
    let report = load.stop();
    let failed = report.failed();
    let other = failed
        .iter()
        .find(|shot| shot.fate != Fate::Answered(504) || shot.took > Duration::from_secs(3));
    assert!(other.is_none(), "{other:#?}");
    assert!(
        (1..=FAILURES_MAX).contains(&failed.len()),
        "{} failed",
        failed.len()
    );
}

#[test]
fn a_backend_that_drips_its_body_holds_up_nobody_else() {
    let _alone = alone();
    let trio = Trio::start(|exchange| {
        exchange.send("HTTP/1.1 200 OK\r\nX-Backend: bad\r\nContent-Length: 3\r\n\r\n")?;
        exchange.drip("abc", Duration::from_secs(1))?;
        Ok(Next::Keep)
    });
    let start = now();
    let load = Load::start(trio.mizan.address(), GETS);
    load.run_for(Duration::from_secs(2));
    let report = load.stop();
    report.expect_no_failure();
    let sound = report.shots.iter().filter(|shot| shot.backend != "bad");
    let slowest = sound.map(|shot| shot.took).max();
    assert!(slowest < Some(Duration::from_secs(1)), "{slowest:?}");
    assert!(report.latency(0.5, start, now()) < Duration::from_millis(100));
}

#[test]
fn what_a_backend_sends_beyond_its_declared_length_reaches_nobody() {
    let _alone = alone();
    let trio = Trio::start(|exchange| {
        exchange.send(
            "HTTP/1.1 200 OK\r\nX-Backend: bad\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 203 Evil\r\nContent-Length: 0\r\n\r\n",
        )?;
        Ok(Next::Keep)
    });
    let load = Load::start(trio.mizan.address(), GETS);
    eventually(PATIENCE, "the bad backend gets requests", || {
        trio.bad.requests() >= 20
    });
    load.wait_for(200);
    load.stop().expect_no_failure();
}

#[test]
fn a_backend_that_never_reads_an_upload_is_answered_for_by_a_time_out() {
    let _alone = alone();
    // In turn, so that two of six uploads go there.
    let pool = "policy = \"round_robin\"\ntimeouts = { response_header = \"1s\" }";
    let trio = Trio::start_with(pool, Exchange::hang);
    let body = vec![b'u'; 8 << 20];
    let started = now();
    let statuses: Vec<_> = (0..6).map(|_| mizan_post(&trio.mizan, &body)).collect();
    assert!(
        now() - started < Duration::from_secs(12),
        "uploads hung for {:?}",
        now() - started
    );
    assert!(
        statuses.iter().all(|status| [200, 504].contains(status)),
        "{statuses:?}"
    );
    assert!(
        statuses.contains(&504),
        "none went to the backend that does not read: {statuses:?}"
    );
    eventually(PATIENCE, "the stuck requests are given up", || {
        trio.mizan.in_flight() == 0
    });
}

fn mizan_post(mizan: &Mizan, body: &[u8]) -> u16 {
    let mut client = mizan.client();
    let length = body.len();
    client.send(format!(
        "POST /upload HTTP/1.1\r\nHost: a.example\r\nContent-Length: {length}\r\n\r\n"
    ));
    client.send(body);
    client
        .try_read("POST")
        .map(|response| response.status)
        .unwrap_or_else(|cut| panic!("{cut:?}"))
}

#[test]
fn with_all_backends_down_the_answer_is_503_with_a_reason_until_one_is_back() {
    let mut backends = ["a", "b"].map(Backend::healthy);
    let addresses = backends.each_ref().map(Backend::address);
    let mizan = Mizan::start(&config("", HEALTH, &addresses));
    assert_eq!(mizan.get("/").status, 200);
    backends.iter_mut().for_each(Backend::stop);
    let mut last = None;
    eventually(PATIENCE, "503 when all are down", || {
        let response = mizan.get("/");
        assert!([502, 503].contains(&response.status), "{response:?}");
        let is_503 = response.status == 503;
        last = Some(response);
        is_503
    });
    let response = last.expect("one came");
    assert!(
        response.text().contains("no_backend"),
        "no reason in {:?}",
        response.text()
    );
    assert_eq!(
        mizan.readiness(),
        Some(200),
        "readiness must not hang on backends"
    );
    backends[0].restart();
    eventually(PATIENCE, "traffic is back by itself", || {
        mizan.get("/").status == 200
    });
}

#[test]
fn a_rolling_restart_of_all_backends_under_mixed_load_fails_nothing() {
    let _alone = alone();
    let mut backends = ["a", "b", "c"].map(Backend::healthy);
    let addresses = backends.each_ref().map(Backend::address);
    let mizan = Mizan::start(&config("", HEALTH, &addresses));
    let load = Load::start(mizan.address(), Plan::default());
    load.wait_for(300);
    for backend in &mut backends {
        backend.drain();
        load.wait_for(100);
        backend.restart();
        let before = backend.requests();
        eventually(PATIENCE, "a restarted backend gets traffic", || {
            backend.requests() > before + 10
        });
    }
    load.stop().expect_no_failure();
}

/// A client holds its request at 100-continue for ever, twelve times over: that says nothing of the backend.
#[test]
fn a_client_that_never_sends_the_body_it_announced_has_no_backend_ejected() {
    let backend = Backend::start(|exchange| {
        if exchange.head.word(0) == "POST" {
            exchange.body()?;
        }
        exchange.serve()
    });
    let pool = "timeouts = { response_header = \"300ms\" }\nejection = { failures = 1 }";
    let mizan = Mizan::start(&config("", pool, &[backend.address()]));
    for connection in ["", "Connection: expect\r\n"] {
        let mut clients: Vec<_> = (0..6).map(|_| mizan.client()).collect();
        for client in &mut clients {
            client.send(format!("POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\nExpect: 100-continue\r\n{connection}\r\n"));
        }
        for client in &mut clients {
            assert_eq!(client.read().status, 408);
        }
    }
    assert_eq!(mizan.metric("mizan_backend_failures_total", ""), 0.0);
    assert_eq!(mizan.get("/").status, 200);
}

#[test]
fn a_client_that_left_behind_many_pipelined_bytes_gives_its_place_back() {
    let backend = Backend::start(Exchange::hang);
    let mizan = Mizan::start(&config("", "", &[backend.address()]));
    let mut client = mizan.client();
    client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
    eventually(PATIENCE, "the request is in flight", || backend.busy() == 1);
    client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n".repeat(1_000));
    drop(client);
    eventually(
        std::time::Duration::from_secs(4),
        "its place is free",
        || mizan.in_flight() == 0,
    );
}

#[test]
fn a_first_chunk_that_is_broken_is_a_502_or_a_retry_and_no_cut() {
    let broken = Backend::start(|exchange| {
        exchange.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n")?;
        Ok(Next::Close)
    });
    let mizan = Mizan::start(&config(
        "",
        "ejection = { enabled = false }",
        &[broken.address()],
    ));
    assert_eq!(mizan.get("/").status, 502);
    let sound = Backend::healthy("sound");
    let pool = "policy = \"round_robin\"\nejection = { enabled = false }";
    let mizan = Mizan::start(&config("", pool, &[broken.address(), sound.address()]));
    for _ in 0..6 {
        assert_eq!(mizan.get("/").status, 200);
    }
}

/// A trickled upload to a fast backend, which then is still the fastest.
#[test]
fn a_slow_upload_is_no_latency_of_the_backend() {
    let backend = Backend::healthy("a");
    let mizan = Mizan::start(&format!(
        "{}\n[log]\naccess = \"{{dir}}/access.log\"\n",
        config("", "", &[backend.address()])
    ));
    let mut client = mizan.client();
    client.send("POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\n");
    for byte in ["h", "e", "l", "l", "o"] {
        pass(std::time::Duration::from_millis(100));
        client.send(byte);
    }
    assert_eq!(client.read().status, 200);
    let log = mizan.directory().join("access.log");
    let upstream_ms = || {
        let text = std::fs::read_to_string(&log).ok()?;
        let line: serde_json::Value = serde_json::from_str(text.lines().next()?).ok()?;
        line["upstream_ms"].as_f64()
    };
    eventually(PATIENCE, "the request is logged", || {
        upstream_ms().is_some()
    });
    assert!(upstream_ms() < Some(300.0), "{:?} ms", upstream_ms());
}

//! The end of a connection of HTTP/2: told by GOAWAY, and no request lost over it.

use crate::support::frames::{self, Fate, Frames, GOAWAY};
use crate::support::h2_client::RUNTIME;
use crate::support::*;
use rustix::process::Signal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// A backend whose `/held` answers when it is told to.
fn holding() -> (H2Backend, Arc<Semaphore>) {
    let held = Arc::new(Semaphore::new(0));
    let gate = Arc::clone(&held);
    let backend = H2Backend::start(move |call| {
        let gate = Arc::clone(&gate);
        async move {
            if call.head.uri.path() == "/held" {
                gate.acquire().await.expect("it is open").forget();
            }
            call.serve().await
        }
    });
    (backend, held)
}

const POOL: &str = "protocol = \"http2\"";

#[test]
fn a_drain_says_goaway_and_serves_what_was_begun() {
    let (backend, held) = holding();
    let mut mizan = Mizan::start(&config("", POOL, &[backend.address()]));
    let mut client = Frames::open(mizan.address(), &[]);
    client.get(1, "/held");
    eventually(PATIENCE, "it is on its way", || backend.requests() == 1);
    let started = now();
    mizan.signal(Signal::TERM);
    let goaway = client.until(|frame| frame.kind == GOAWAY).expect("GOAWAY");
    assert_eq!(goaway.code(), Some(0));
    assert!(
        now() - started < Duration::from_millis(1_700),
        "told after {:?}",
        now() - started
    );
    let ping = client
        .until(|frame| frame.kind == frames::PING)
        .expect("PING");
    // It may not have known: a request that crosses the GOAWAY is served.
    client.get(3, "/");
    assert_eq!(client.fate(3), Fate::Status(200));
    client.send(frames::PING, frames::ACK, 0, &ping.payload);
    let last = client
        .until(|frame| frame.kind == GOAWAY)
        .expect("the last GOAWAY");
    assert_eq!(last.payload[..4], 3u32.to_be_bytes());
    held.add_permits(1);
    assert_eq!(client.fate(1), Fate::Status(200));
    assert_eq!(client.until(|_| false), None, "still open");
    assert!(mizan.wait(PATIENCE).success());
}

#[test]
fn a_drain_ends_as_soon_as_all_streams_have() {
    let (backend, held) = holding();
    let mut mizan = Mizan::start(&config("", POOL, &[backend.address()]));
    let client = H2Client::connect(mizan.address());
    let asked = run(async { client.begin(&Ask::get("/held")).await }).expect("it is sent");
    eventually(PATIENCE, "it is on its way", || backend.requests() == 1);
    mizan.signal(Signal::TERM);
    eventually(PATIENCE, "the listener is closed", || {
        Client::try_connect(mizan.address()).is_err()
    });
    held.add_permits(1);
    assert_eq!(run(asked.0).expect("an answer").status(), 200);
    let started = now();
    assert!(mizan.wait(PATIENCE).success());
    assert!(
        now() - started < Duration::from_secs(4),
        "{:?}",
        now() - started
    );
    assert!(client.is_over());
}

#[test]
fn a_reload_that_takes_the_listener_away_says_goaway() {
    let (backend, held) = holding();
    let both = format!(
        "[[listener]]\nbind = \"{{listen2}}\"\n{}",
        config("", POOL, &[backend.address()])
    );
    let mizan = Mizan::start(&both);
    let mut client = Frames::open(mizan.address2(), &[]);
    client.get(1, "/held");
    eventually(PATIENCE, "it is on its way", || backend.requests() == 1);
    mizan.write_config(&config("", POOL, &[backend.address()]));
    assert!(mizan.command(&["reload"]).status.success());
    let goaway = client.until(|frame| frame.kind == GOAWAY).expect("GOAWAY");
    assert_eq!(goaway.code(), Some(0));
    let ping = client
        .until(|frame| frame.kind == frames::PING)
        .expect("PING");
    client.send(frames::PING, frames::ACK, 0, &ping.payload);
    held.add_permits(1);
    assert_eq!(client.fate(1), Fate::Status(200));
    assert_eq!(client.until(|_| false), None, "still open");
    assert_eq!(mizan.get("/").status, 200);
}

/// Clients that each ask without a pause, several at a time on a connection, until told to stop.
struct Crowd {
    is_over: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    opened: Arc<AtomicUsize>,
    clients: Vec<JoinHandle<Vec<String>>>,
}

impl Crowd {
    fn start(mizan: &Mizan, clients: usize) -> Self {
        let mut crowd = Self {
            is_over: Arc::default(),
            answered: Arc::default(),
            opened: Arc::default(),
            clients: Vec::new(),
        };
        for _ in 0..clients {
            let address = mizan.address();
            let (is_over, answered) = (Arc::clone(&crowd.is_over), Arc::clone(&crowd.answered));
            let opened = Arc::clone(&crowd.opened);
            crowd.clients.push(RUNTIME.spawn(async move {
                let mut failed = Vec::new();
                while !is_over.load(Ordering::SeqCst) {
                    let client = match H2Client::open(address).await {
                        Ok(client) => client,
                        Err(error) => {
                            failed.push(format!("connect: {error:?}"));
                            break;
                        }
                    };
                    opened.fetch_add(1, Ordering::SeqCst);
                    let wave = || ask_on(&client, &is_over, &answered);
                    let (one, two, three) = tokio::join!(wave(), wave(), wave());
                    failed.extend([one, two, three].into_iter().flatten());
                }
                failed
            }));
        }
        crowd
    }

    fn wait_for(&self, more: usize) {
        let goal = self.answered.load(Ordering::SeqCst) + more;
        eventually(4 * PATIENCE, "the crowd gets answers", || {
            self.answered.load(Ordering::SeqCst) >= goal
        });
    }

    /// All that failed.
    fn stop(self) -> Vec<String> {
        self.is_over.store(true, Ordering::SeqCst);
        let ended = run(async {
            let mut failed = Vec::new();
            for client in self.clients {
                failed.extend(client.await.expect("a client does not panic"));
            }
            failed
        });
        assert!(self.answered.load(Ordering::SeqCst) > 0);
        ended
    }
}

/// Asks on one connection until it is told to go; a request that it refuses unseen is no failure.
async fn ask_on(client: &H2Client, is_over: &AtomicBool, answered: &AtomicUsize) -> Vec<String> {
    let mut failed = Vec::new();
    let mut number = 0;
    while !is_over.load(Ordering::SeqCst) {
        number += 1;
        let ask = match number % 3 {
            0 => Ask::post("/", "hello"),
            _ => Ask::get("/"),
        };
        match client.ask(ask).await {
            Ok(answer) if answer.status == 200 => _ = answered.fetch_add(1, Ordering::SeqCst),
            Ok(answer) => failed.push(format!("{} {}", answer.status, answer.text())),
            // Told to go before it was sent.
            Err(error) if error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR) => {
                break;
            }
            Err(error) => {
                failed.push(format!("{error:?}"));
                break;
            }
        }
    }
    failed
}

/// A hundred times the work in release mode, as `make test-long` has it.
fn rounds() -> usize {
    if cfg!(debug_assertions) { 20 } else { 100 }
}

#[test]
fn no_request_fails_over_reloads_under_load() {
    let _alone = alone();
    let backends = [H2Backend::healthy("a"), H2Backend::healthy("b")];
    let addresses = backends.each_ref().map(H2Backend::address);
    let mizan = Mizan::start(&config("", POOL, &addresses));
    let crowd = Crowd::start(&mizan, 4);
    for round in 0..rounds() {
        let count = 1 + round % 2;
        let listener = format!("headers_max = {}", 50 + round);
        mizan.write_config(&config(&listener, POOL, &addresses[..count]));
        assert!(mizan.command(&["reload"]).status.success());
        crowd.wait_for(20);
    }
    assert_eq!(crowd.stop(), [""; 0]);
}

#[test]
fn a_connection_has_its_number_of_requests_and_none_fails() {
    let backend = H2Backend::healthy("a");
    let listener = "requests_per_connection_max = 25";
    let mizan = Mizan::start(&config(listener, POOL, &[backend.address()]));
    let crowd = Crowd::start(&mizan, 3);
    crowd.wait_for(1_000);
    let opened = crowd.opened.load(Ordering::SeqCst);
    assert_eq!(crowd.stop(), [""; 0]);
    assert!(opened > 20, "{opened} connections for 1000 requests");
}

#[test]
fn an_old_connection_is_told_to_go_and_no_request_fails() {
    let backend = H2Backend::healthy("a");
    let listener = "http2_limits = { age_max = \"1s\" }";
    let mizan = Mizan::start(&config(listener, POOL, &[backend.address()]));
    let crowd = Crowd::start(&mizan, 3);
    eventually(PATIENCE, "the first connections are replaced", || {
        crowd.opened.load(Ordering::SeqCst) >= 6
    });
    assert_eq!(crowd.stop(), [""; 0]);
}

#[test]
fn a_request_whose_last_frame_comes_after_its_answer_is_not_reset() {
    let backend = Backend::healthy("a");
    let mizan = Mizan::start(&config("", "", &[backend.address()]));
    let mut client = Frames::open(mizan.address(), &[]);
    for (stream, body) in [(1, ""), (3, "hello")] {
        let length = body.len().to_string();
        let mut lines = frames::request("POST", "/").to_vec();
        lines.push(("content-length", &length));
        client.head(stream, 0, &lines);
        client.send(frames::DATA, 0, stream, body.as_bytes());
        let answer = client.until(|frame| {
            frame.stream == stream && frame.kind == frames::DATA && frame.flags & 1 == 1
        });
        assert!(answer.is_some(), "no answer");
        client.send(frames::DATA, frames::END_STREAM, stream, b"");
        client.send(frames::PING, 0, 0, b"12345678");
        let next = client
            .until(|frame| frame.kind == frames::PING || frame.kind == frames::RST_STREAM)
            .expect("an open connection");
        assert_eq!(next.kind, frames::PING, "{next:?}");
    }
}

#[test]
fn an_idle_connection_is_closed_after_its_time_and_told_so() {
    let backend = H2Backend::healthy("a");
    let listener = "timeouts = { idle = \"300ms\" }";
    let mizan = Mizan::start(&config(listener, POOL, &[backend.address()]));
    let mut client = Frames::open(mizan.address(), &[]);
    client.get(1, "/");
    assert_eq!(client.fate(1), Fate::Status(200));
    let goaway = client.until(|frame| frame.kind == GOAWAY).expect("GOAWAY");
    assert_eq!(goaway.code(), Some(0));
    // It answers no ping: it is closed all the same.
    assert_eq!(client.until(|_| false), None, "still open");
}

#[test]
fn a_connection_with_short_requests_now_and_then_is_not_idle() {
    let backend = H2Backend::healthy("a");
    let listener = "timeouts = { idle = \"1s\" }";
    let mizan = Mizan::start(&config(listener, POOL, &[backend.address()]));
    let client = H2Client::connect(mizan.address());
    for _ in 0..25 {
        assert_eq!(client.get("/").status, 200);
        pass(Duration::from_millis(100));
    }
    assert!(!client.is_over(), "closed as idle");
}

#[test]
fn a_client_that_answers_no_ping_while_it_waits_is_cut() {
    let (backend, _held) = holding();
    let listener = "http2_limits = { ping_interval = \"1s\", ping_timeout = \"1s\" }";
    let mizan = Mizan::start(&config(listener, POOL, &[backend.address()]));
    let mut client = Frames::open(mizan.address(), &[]);
    client.get(1, "/held");
    eventually(PATIENCE, "it is on its way", || mizan.in_flight() > 0);
    assert!(client.until(|frame| frame.kind == frames::PING).is_some());
    assert_eq!(client.until(|_| false), None, "still open");
    eventually(PATIENCE, "its place is given back", || {
        mizan.in_flight() == 0
    });
}

#[test]
fn no_request_fails_when_mizan_drains_under_load() {
    let backends = [H2Backend::healthy("a"), H2Backend::healthy("b")];
    let addresses = backends.each_ref().map(H2Backend::address);
    let mut mizan = Mizan::start(&config("", POOL, &addresses));
    let crowd = Crowd::start(&mizan, 4);
    crowd.wait_for(200);
    mizan.signal(Signal::TERM);
    assert!(mizan.wait(PATIENCE).success());
    let failed: Vec<_> = crowd.stop();
    let failed: Vec<_> = failed
        .iter()
        .filter(|failed| !failed.starts_with("connect"))
        .collect();
    assert!(failed.is_empty(), "{failed:#?}");
}

/// The library sends the last GOAWAY when the client answers the ping that came with the first: one that does not would
/// be served for ever.
#[test]
fn a_client_that_does_not_answer_when_it_is_told_to_go_has_a_few_seconds() {
    let (backend, held) = holding();
    let listener = "requests_per_connection_max = 2";
    let mizan = Mizan::start(&config(listener, POOL, &[backend.address()]));
    let mut client = Frames::open(mizan.address(), &[]);
    // Room for what some seconds bring: answers that lie unsent count as open, and too many of those are refused.
    client.send(frames::WINDOW_UPDATE, 0, 0, &(1u32 << 30).to_be_bytes());
    client.get(1, "/held");
    let started = now();
    let refused = (1..).map(|number| 2 * number + 1).find_map(|stream| {
        assert!(now() - started < PATIENCE, "it is served for ever");
        client.get(stream, "/");
        match client.fate(stream) {
            Fate::Status(200) => None,
            fate => Some(fate),
        }
    });
    assert_eq!(refused, Some(Fate::Reset(7)));
    assert!(now() - started > Duration::from_secs(4));
    held.add_permits(1);
    assert_eq!(client.fate(1), Fate::Status(200));
    let is_last = |frame: &frames::Frame| {
        frame.kind == GOAWAY && frame.payload[..4] != 0x7fff_ffffu32.to_be_bytes()
    };
    let last = client.until(is_last).expect("the last GOAWAY");
    assert_eq!(last.code(), Some(0));
    assert_eq!(client.until(|_| false), None, "still open");
}

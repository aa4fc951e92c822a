//! SIGTERM: in which order Mizan leaves, and what it costs whom.

use crate::support::*;
use rustix::process::Signal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A backend whose answers wait until they are released.
pub(super) fn held_backend() -> (Backend, Arc<AtomicBool>) {
    let released = Arc::new(AtomicBool::new(false));
    let gate = Arc::clone(&released);
    let backend = Backend::start(move |exchange| {
        while !gate.load(Ordering::SeqCst) {
            exchange.pause(Duration::from_millis(5))?;
        }
        exchange.serve()
    });
    (backend, released)
}

fn start(drain: &str, backend: &Backend) -> Mizan {
    Mizan::start(&format!(
        "{}[drain]\n{drain}\n",
        config("", "", &[backend.address()])
    ))
}

/// Sends a GET and waits until the backend has it.
pub(super) fn send_into(mizan: &Mizan, backend: &Backend) -> Client {
    let mut client = mizan.client();
    let before = backend.requests();
    client.send("GET /held HTTP/1.1\r\nHost: a.example\r\n\r\n");
    eventually(PATIENCE, "the backend has the request", || {
        backend.requests() > before
    });
    client
}

fn is_refused(mizan: &Mizan) -> bool {
    Client::try_connect(mizan.address()).is_err()
}

/// The number in the line that says how many requests were cut.
#[track_caller]
fn cut(log: &str) -> u64 {
    let line = log
        .lines()
        .rfind(|line| line.contains("cut"))
        .unwrap_or_else(|| panic!("no line says how many were cut:\n{log}"));
    let word_before = line.split("cut").next().unwrap_or_default();
    let word_behind = line.split("cut").nth(1).unwrap_or_default();
    let digits = |text: &str| {
        text.split(|c: char| !c.is_ascii_digit())
            .filter(|part| !part.is_empty())
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let number = digits(word_behind)
        .first()
        .cloned()
        .or_else(|| digits(word_before).last().cloned());
    number
        .and_then(|number| number.parse().ok())
        .unwrap_or_else(|| panic!("no number in {line:?}"))
}

#[test]
fn sigterm_under_load_fails_nothing_and_exits_0() {
    let _alone = alone();
    let backends = ["a", "b"].map(Backend::healthy);
    let base = config("", "", &backends.each_ref().map(Backend::address));
    let mut mizan = Mizan::start(&format!(
        "{base}[drain]\nwindow = \"1s\"\ndeadline = \"10s\"\n"
    ));
    let load = Load::start(mizan.address(), Plan::default());
    load.wait_for(300);
    mizan.signal(Signal::TERM);
    eventually(PATIENCE, "/readyz says 503", || {
        mizan.readiness() == Some(503)
    });
    let mut fresh = mizan.client();
    assert_eq!(
        fresh.get("/").status,
        200,
        "new requests are served in the window"
    );
    let status = mizan.wait(PATIENCE);
    let report = load.stop();
    report.expect_no_failure();
    assert!(
        report.count(&Fate::Refused) > 0,
        "the listener never closed"
    );
    assert_eq!(status.code(), Some(0));
    eventually(PATIENCE, "the log says how many were cut", || {
        mizan.log().contains("cut")
    });
    assert_eq!(cut(&mizan.log()), 0);
}

#[test]
fn a_request_in_flight_is_answered_after_the_listener_has_closed() {
    let (backend, released) = held_backend();
    let mut mizan = start("window = \"0s\"\ndeadline = \"20s\"", &backend);
    let mut client = send_into(&mizan, &backend);
    mizan.signal(Signal::TERM);
    eventually(PATIENCE, "the listener closes", || is_refused(&mizan));
    assert_eq!(mizan.exited(), None, "it did not wait for the request");
    released.store(true, Ordering::SeqCst);
    let response = client.read();
    assert_eq!(response.status, 200);
    assert!(response.head.connection_has("close"), "{:?}", response.head);
    client.expect_closed();
    assert_eq!(mizan.wait(PATIENCE).code(), Some(0));
}

#[test]
fn connections_in_the_accept_queue_at_the_signal_are_served() {
    let backend = Backend::healthy("a");
    let mut mizan = start("window = \"0s\"\ndeadline = \"20s\"", &backend);
    let mut queued = mizan.queue_requests(mizan.address(), 50);
    mizan.signal(Signal::TERM);
    mizan.signal(Signal::CONT);
    for client in &mut queued {
        assert_eq!(client.read().status, 200);
    }
    assert_eq!(mizan.wait(PATIENCE).code(), Some(0));
}

#[test]
fn an_upload_in_flight_is_finished() {
    let backend = Backend::healthy("a");
    let mut mizan = start("window = \"0s\"\ndeadline = \"20s\"", &backend);
    let mut client = mizan.client();
    client.send("POST /up HTTP/1.1\r\nHost: a.example\r\nContent-Length: 10\r\n\r\nhello");
    eventually(PATIENCE, "the backend has the head", || {
        backend.requests() == 1
    });
    mizan.signal(Signal::TERM);
    eventually(PATIENCE, "the listener closes", || is_refused(&mizan));
    client.send("world");
    assert_eq!(client.read().text(), "backend:10".replace("backend", "a"));
    assert_eq!(mizan.wait(PATIENCE).code(), Some(0));
}

#[test]
fn what_is_not_done_by_the_deadline_is_cut_counted_and_the_exit_code_is_still_0() {
    let (backend, _released) = held_backend();
    let mut mizan = start("window = \"0s\"\ndeadline = \"500ms\"", &backend);
    let mut clients = [send_into(&mizan, &backend), send_into(&mizan, &backend)];
    let signalled = now();
    mizan.signal(Signal::TERM);
    let status = mizan.wait(Duration::from_secs(5));
    assert!(
        now() - signalled >= Duration::from_millis(500),
        "the deadline was not waited for"
    );
    assert_eq!(status.code(), Some(0));
    for client in &mut clients {
        let answered = client.try_read("GET").map(|response| response.status);
        assert!(
            answered.is_err() || matches!(answered, Ok(502..=504)),
            "{answered:?}"
        );
    }
    eventually(PATIENCE, "the log says how many were cut", || {
        mizan.log().contains("cut")
    });
    assert_eq!(cut(&mizan.log()), 2);
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let (backend, _released) = held_backend();
    let mut mizan = start("window = \"30s\"\ndeadline = \"30s\"", &backend);
    let _client = send_into(&mizan, &backend);
    mizan.signal(Signal::TERM);
    eventually(PATIENCE, "/readyz says 503", || {
        mizan.readiness() == Some(503)
    });
    mizan.signal(Signal::TERM);
    assert_eq!(mizan.wait(Duration::from_secs(3)).code(), Some(0));
    eventually(PATIENCE, "the log says how many were cut", || {
        mizan.log().contains("cut")
    });
    assert_eq!(cut(&mizan.log()), 1);
}

#[test]
fn requests_that_were_cut_are_a_warning_and_counted_in_the_right_plural() {
    for (held, level, words) in [
        (0, "INFO", "0 requests were cut"),
        (1, "WARN", "1 request was cut"),
        (2, "WARN", "2 requests were cut"),
    ] {
        let (backend, _released) = held_backend();
        let mut mizan = start("window = \"30s\"\ndeadline = \"30s\"", &backend);
        let _clients: Vec<_> = (0..held).map(|_| send_into(&mizan, &backend)).collect();
        mizan.signal(Signal::TERM);
        eventually(PATIENCE, "/readyz says 503", || {
            mizan.readiness() == Some(503)
        });
        mizan.signal(Signal::TERM);
        mizan.wait(PATIENCE);
        eventually(PATIENCE, &format!("{level}: {words}"), || {
            let told = |line: &str| line.contains(words) && line.contains(level);
            mizan.log().lines().any(told)
        });
    }
}

#[test]
fn sigint_drains_as_sigterm_does() {
    let backend = Backend::healthy("a");
    let mut mizan = start("window = \"300ms\"\ndeadline = \"5s\"", &backend);
    mizan.signal(Signal::INT);
    eventually(PATIENCE, "/readyz says 503", || {
        mizan.readiness() == Some(503) || mizan.readiness().is_none()
    });
    assert_eq!(mizan.wait(PATIENCE).code(), Some(0));
}

#[test]
fn an_idle_connection_gets_close_with_its_next_answer() {
    let (backend, released) = held_backend();
    let mut mizan = start("window = \"0s\"\ndeadline = \"20s\"", &backend);
    let mut idle = mizan.client();
    released.store(true, Ordering::SeqCst);
    assert!(!idle.get("/").head.connection_has("close"));
    released.store(false, Ordering::SeqCst);
    // Another request keeps the drain going while the idle connection is tried.
    let mut busy = send_into(&mizan, &backend);
    mizan.signal(Signal::TERM);
    eventually(PATIENCE, "the listener closes", || is_refused(&mizan));
    released.store(true, Ordering::SeqCst);
    let response = idle.get("/");
    assert_eq!(response.status, 200);
    assert!(response.head.connection_has("close"), "{:?}", response.head);
    assert_eq!(busy.read().status, 200);
    assert_eq!(mizan.wait(PATIENCE).code(), Some(0));
}

#[test]
fn in_the_window_answers_do_not_close_connections_that_will_be_used_again() {
    let backend = Backend::healthy("a");
    let mizan = start("window = \"30s\"\ndeadline = \"5s\"", &backend);
    let mut client = mizan.client();
    client.get("/");
    mizan.signal(Signal::TERM);
    eventually(PATIENCE, "/readyz says 503", || {
        mizan.readiness() == Some(503)
    });
    assert_eq!(client.get("/").status, 200);
    assert_eq!(mizan.get("/").status, 200);
}

#[test]
fn a_reload_while_the_process_drains_opens_no_listener_again() {
    let (backend, released) = held_backend();
    let mut mizan = start("window = \"0s\"\ndeadline = \"30s\"", &backend);
    let mut client = send_into(&mizan, &backend);
    mizan.signal(Signal::TERM);
    eventually(PATIENCE, "the listener is closed", || is_refused(&mizan));
    mizan.write_config(&format!(
        "{}[drain]\nwindow = \"0s\"\ndeadline = \"20s\"\n",
        config("", "", &[backend.address()])
    ));
    let reload = mizan.command(&["reload"]);
    let said = String::from_utf8_lossy(&reload.stdout).into_owned();
    assert_eq!(reload.status.code(), Some(2), "{said}");
    assert!(said.contains("stopping"), "{said}");
    assert!(is_refused(&mizan), "the listener was opened again");
    released.store(true, Ordering::SeqCst);
    assert_eq!(client.read().status, 200);
    assert_eq!(mizan.wait(PATIENCE).code(), Some(0));
}

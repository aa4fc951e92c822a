//! Commands that talk to a running instance, as a shell runs them.

use super::drain::{held_backend, send_into};
use crate::support::*;
use std::process::Output;
use std::sync::atomic::Ordering;
use std::thread;

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Whether some backend is drained, as `mizan status` shows it.
fn is_drained(mizan: &Mizan) -> bool {
    let output = mizan.command(&["status"]);
    String::from_utf8_lossy(&output.stdout).contains(" drain ")
}

#[test]
fn a_waiting_drain_does_not_panic_and_ends_with_the_request_in_flight() {
    let (backend, released) = held_backend();
    let mizan = Mizan::start(&config("", "", &[backend.address()]));
    let mut client = send_into(&mizan, &backend);
    let name = format!("api/{}", backend.address());
    thread::scope(|scope| {
        let waiting = scope.spawn(|| mizan.command(&["drain", &name, "--wait"]));
        eventually(PATIENCE, "the backend is drained", || is_drained(&mizan));
        assert!(!waiting.is_finished(), "a request is in flight");
        released.store(true, Ordering::SeqCst);
        assert_eq!(client.read().status, 200);
        let output = waiting.join().expect("no panic");
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    });
}

#[test]
fn a_waiting_drain_gives_up_at_its_timeout_with_5() {
    let (backend, _released) = held_backend();
    let mizan = Mizan::start(&config("", "", &[backend.address()]));
    let _client = send_into(&mizan, &backend);
    let name = format!("api/{}", backend.address());
    let output = mizan.command(&["drain", &name, "--wait", "--timeout", "300ms"]);
    assert_eq!(output.status.code(), Some(5), "{}", err(&output));
    assert!(
        err(&output).contains("still holds 1 request"),
        "{}",
        err(&output)
    );
    assert!(is_drained(&mizan), "it stays out");
}

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
        err(&output).contains("still holds 1 request;"),
        "{}",
        err(&output)
    );
    assert!(is_drained(&mizan), "it stays out");
}

#[test]
fn a_backend_by_its_configured_host_name_is_told_its_keys() {
    let backend = Backend::healthy("a");
    let name = format!("localhost:{}", backend.address().port());
    let mizan = Mizan::start(&format!(
        "[[listener]]\nbind = \"{{listen}}\"\n[[route]]\npool = \"api\"\n[pool.api]\nbackends = [\"{name}\"]\n"
    ));
    let output = mizan.command(&["drain", &format!("api/{name}")]);
    assert_eq!(output.status.code(), Some(2), "{}", err(&output));
    let key = format!("{name}/127.0.0.1");
    assert!(
        err(&output).contains("this name stands for") && err(&output).contains(&format!("`{key}`")),
        "{}",
        err(&output)
    );
    let output = mizan.command(&["drain", &format!("api/{key}")]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let output = mizan.command(&["drain", &format!("apj/{key}")]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        err(&output).contains("did you mean `api`?"),
        "{}",
        err(&output)
    );
}

#[test]
fn draining_the_last_usable_backend_warns_and_still_does_it() {
    let backends = ["a", "b"].map(Backend::healthy);
    let addresses = backends.each_ref().map(Backend::address);
    let mizan = Mizan::start(&config("", "", &addresses));
    let drain = |at: usize| mizan.command(&["drain", &format!("api/{}", addresses[at])]);
    let first = drain(0);
    assert_eq!((first.status.code(), err(&first)), (Some(0), String::new()));
    let last = drain(1);
    assert_eq!(last.status.code(), Some(0));
    assert!(
        err(&last).contains("no usable backend left"),
        "{}",
        err(&last)
    );
}

#[test]
fn a_status_that_cannot_be_written_is_no_success() {
    let mizan = Mizan::start(&config("", "", &[Backend::healthy("a").address()]));
    let full = std::fs::File::create("/dev/full").expect("Linux has it");
    let output = mizan.command_to(&["status"], full.into());
    assert_eq!(output.status.code(), Some(2), "{}", err(&output));
}

#[test]
fn a_reload_that_cannot_open_a_listener_says_why_once() {
    let backend = Backend::healthy("a");
    let one = config("", "", &[backend.address()]);
    let mizan = Mizan::start(&one);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().expect("bound");
    mizan.write_config(&format!("[[listener]]\nbind = \"{taken}\"\n{one}"));
    let output = mizan.command(&["reload"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains(&format!("cannot listen on {taken}")),
        "{said}"
    );
    assert_eq!(said.matches("in use").count(), 1, "{said}");
}

//! What backends ask for by `Retry-After`, and what clients that give up show, over real sockets.

use crate::support::*;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A backend that answers everything so.
fn says(status: &'static str, field: &'static str) -> Backend {
    Backend::start(move |exchange| {
        exchange.send(format!(
            "HTTP/1.1 {status}\r\n{field}Content-Length: 2\r\n\r\nno"
        ))?;
        Ok(Next::Keep)
    })
}

/// How many of 60 requests one after the other `backend` gets beside one that is well.
fn share(backend: &Backend, field: Option<&str>) -> usize {
    let well = Backend::healthy("well");
    // One that does not look at latency, which on a busy machine may differ by chance.
    let policy = "policy = \"least_connections\"";
    let mizan = Mizan::start(&config("", policy, &[backend.address(), well.address()]));
    let mut client = mizan.client();
    let mut count = 0;
    for _ in 0..60 {
        let answer = client.get("/");
        if answer.status == 429 {
            assert_eq!(answer.field("retry-after"), field, "it is passed on");
            count += 1;
        }
    }
    count
}

#[test]
fn a_backend_that_limits_everybody_is_left_alone_for_as_long_as_it_asks() {
    let limited = says("429 Too Many Requests", "Retry-After: 60\r\n");
    let count = share(&limited, Some("60"));
    assert!(count <= 3, "{count} of 60 requests");
    let dated = "Retry-After: Fri, 31 Dec 9999 23:59:59 GMT\r\n";
    let limited = says("429 Too Many Requests", dated);
    let count = share(&limited, Some("Fri, 31 Dec 9999 23:59:59 GMT"));
    assert!(count <= 3, "{count} of 60 requests");
}

#[test]
fn a_retry_after_that_cannot_be_read_is_passed_on_and_changes_nothing() {
    let limited = says("429 Too Many Requests", "Retry-After: soon\r\n");
    let count = share(&limited, Some("soon"));
    assert!(count > 10, "{count} of 60 requests");
}

#[test]
fn a_503_says_when_to_come_back_to_the_client_too() {
    let busy = says("503 Service Unavailable", "Retry-After: 7\r\n");
    let mizan = Mizan::start(&config("", "", &[busy.address()]));
    let answer = mizan.get("/");
    assert_eq!(answer.status, 503);
    assert_eq!(answer.field("retry-after"), Some("7"));
}

#[test]
fn a_client_that_gave_up_after_long_shows_that_the_backend_is_slow() {
    let has_waited = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&has_waited);
    let backend = Backend::start(move |exchange| {
        if exchange.target() == "/slow" {
            exchange.pause(Duration::from_millis(300))?;
            seen.store(true, Ordering::SeqCst);
            exchange.pause(PATIENCE)?;
        }
        exchange.serve()
    });
    let mizan = Mizan::start(&config("", "", &[backend.address()]));
    let latency = || {
        let output = mizan.command(&["status", "--json"]);
        let status: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        status["pools"][0]["backends"][0]["latency_ms"].as_f64()
    };
    assert_eq!(mizan.get("/").status, 200);
    let before = latency().expect("it has answered");
    let mut client = mizan.client();
    client.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually(PATIENCE, "the client has waited", || {
        has_waited.load(Ordering::SeqCst)
    });
    drop(client);
    eventually(PATIENCE, "the wait counts", || {
        latency().is_some_and(|now| now > before + 1.0)
    });
}

//! The policy `prequal` over real sockets: backends that are asked for their load, and that tell it unasked.

use crate::support::*;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const ASKING: &str = "policy = \"prequal\"\nprequal = { path = \"/load\" }";

/// The idle one takes so long all the same, so that who goes by what is measured here prefers the busy one.
const SLOW: Duration = Duration::from_millis(20);

/// A backend that answers `/load` with this field, and counts how often.
fn telling(name: &str, field: &'static str) -> (Backend, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let is_slow = name == "idle";
    let backend = Backend::start_at("127.0.0.1:0", name, move |exchange| {
        if exchange.target() != "/load" {
            if is_slow {
                exchange.pause(SLOW)?;
            }
            return exchange.serve();
        }
        count.fetch_add(1, Ordering::SeqCst);
        exchange.send(format!(
            "HTTP/1.1 200 OK\r\n{field}Content-Length: 3\r\n\r\nok\n"
        ))?;
        Ok(Next::Keep)
    });
    (backend.expect("a free port"), asked)
}

/// How many of the next 20 requests go to `name`.
fn served_by(client: &mut Client, name: &str) -> usize {
    let answers = (0..20).map(|_| client.get("/"));
    answers
        .filter(|answer| answer.field("x-backend") == Some(name))
        .count()
}

#[test]
fn a_backend_that_says_it_is_busy_gets_nothing_while_another_is_not() {
    let busy = "Endpoint-Load-Metrics: TEXT named_metrics.rif=50,named_metrics.latency_ms=200\r\n";
    let idle =
        "endpoint-load-metrics: JSON {\"named_metrics\": {\"rif\": 0, \"latency_ms\": 2}}\r\n";
    let (busy, asked) = telling("busy", busy);
    let (idle, _) = telling("idle", idle);
    let mizan = Mizan::start(&config("", ASKING, &[busy.address(), idle.address()]));
    let mut client = mizan.client();
    eventually(PATIENCE, "all go to the idle one", || {
        served_by(&mut client, "idle") == 20
    });
    eventually(PATIENCE, "it is asked again and again", || {
        client.get("/");
        asked.load(Ordering::SeqCst) > 20
    });
    // Requests of two workers or so, and the one that questions share.
    let connections = busy.connections();
    assert!(connections <= 8, "{connections} connections");
    let output = mizan.command(&["status", "--json"]);
    let status: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(status["pools"][0]["policy"], "prequal");
    let text = mizan.command(&["status"]).stdout;
    let text = String::from_utf8(text).expect("text");
    assert!(text.contains("50 in flight, 200.0 ms, "), "{text}");
    let output = mizan.command(&["explain", "http://localhost/"]).stdout;
    let text = String::from_utf8(output).expect("text");
    assert!(text.contains("50 in flight, 200.0 ms, "), "{text}");
    assert!(mizan.metric("mizan_load_reports_total", "api") > 20.0);
}

#[test]
fn a_path_that_is_not_there_is_told_with_what_to_mend() {
    let not_found = |name: &str| {
        Backend::start_at("127.0.0.1:0", name, |exchange| {
            if exchange.target() != "/load" {
                return exchange.serve();
            }
            exchange.send("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")?;
            Ok(Next::Keep)
        })
        .expect("a free port")
    };
    let (a, b) = (not_found("a"), not_found("b"));
    let mizan = Mizan::start(&config("", ASKING, &[a.address(), b.address()]));
    let mut client = mizan.client();
    let told = |mizan: &Mizan| mizan.log().matches("have never said how much").count();
    eventually(PATIENCE, "it is told", || {
        client.get("/");
        told(&mizan) > 0
    });
    let log = mizan.log();
    assert!(
        log.contains("of 2 backends that serve have never said"),
        "{log}"
    );
    assert!(log.contains("is answered with status 404"), "{log}");
    assert!(log.contains("set `prequal.path` to where it does"), "{log}");
}

#[test]
fn backends_that_are_not_asked_and_say_nothing_are_told_of() {
    let a = Backend::healthy("a");
    let mizan = Mizan::start(&config("", "policy = \"prequal\"", &[a.address()]));
    let mut client = mizan.client();
    eventually(PATIENCE, "it is told", || {
        client.get("/");
        mizan
            .log()
            .contains("set `prequal.path` to where backends can be asked")
    });
}

#[test]
fn what_answers_to_requests_say_is_gone_by_and_kept_from_clients() {
    let saying = |name: &'static str, field: &'static str| {
        let backend = Backend::start_at("127.0.0.1:0", name, move |exchange| {
            if name == "idle" {
                exchange.pause(SLOW)?;
            }
            exchange.send(format!(
                "HTTP/1.1 200 OK\r\nX-Backend: {name}\r\n{field}Content-Length: 2\r\n\r\nok"
            ))?;
            Ok(Next::Keep)
        });
        backend.expect("a free port")
    };
    let busy = "endpoint-load-metrics: TEXT named_metrics.rif=50,named_metrics.latency_ms=200\r\n";
    let idle = "endpoint-load-metrics: TEXT named_metrics.rif=0,named_metrics.latency_ms=2\r\n";
    let (busy, idle) = (saying("busy", busy), saying("idle", idle));
    let pool = "policy = \"prequal\"";
    let mizan = Mizan::start(&config("", pool, &[busy.address(), idle.address()]));
    let mut client = mizan.client();
    eventually(PATIENCE, "all go to the idle one", || {
        served_by(&mut client, "idle") == 20
    });
    let answer = client.get("/");
    assert!(answer.field("endpoint-load-metrics").is_none());
}

#[test]
fn an_answer_that_cannot_be_read_is_counted_and_the_backend_is_used_all_the_same() {
    let broken = "endpoint-load-metrics: TEXT named_metrics.rif=many\r\n";
    let (a, _) = telling("a", broken);
    let (b, _) = telling("b", broken);
    let mizan = Mizan::start(&config("", ASKING, &[a.address(), b.address()]));
    let mut client = mizan.client();
    eventually(PATIENCE, "it is counted", || {
        assert_eq!(client.get("/").status, 200);
        mizan.metric("mizan_load_reports_malformed_total", "api") > 0.0
    });
}

#[test]
fn where_backends_do_not_say_anything_two_choices_decide() {
    let (a, b) = (Backend::healthy("a"), Backend::healthy("b"));
    let mizan = Mizan::start(&config("", ASKING, &[a.address(), b.address()]));
    let mut client = mizan.client();
    // The first answers of one may have come late, and so be held against it for a while.
    for name in ["a", "b"] {
        eventually(PATIENCE, "each gets requests", || {
            served_by(&mut client, name) > 0
        });
    }
}

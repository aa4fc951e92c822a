//! What Mizan says of what it did: access log, metrics, and answers of its own.

use crate::support::frames;
use crate::support::*;
use rustix::process::Signal;
use serde_json::Value;
use std::io;
use std::process::{Command, Stdio};

const GET: &str = "GET /one HTTP/1.1\r\nHost: a.example\r\n\r\n";

/// Mizan with an access log in its folder.
fn start(rest: &str) -> Mizan {
    Mizan::start(&format!("{rest}\n[log]\naccess = \"{{dir}}/access.log\"\n"))
}

/// The line of the access log that is the `count`-th, once it is written.
#[track_caller]
fn line(mizan: &Mizan, count: usize) -> Value {
    let path = mizan.directory().join("access.log");
    let mut lines = Vec::new();
    eventually(PATIENCE, "the line is in the access log", || {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        lines = text.lines().map(str::to_owned).collect();
        lines.len() >= count
    });
    serde_json::from_str(&lines[count - 1]).expect("a line of JSON")
}

fn garbage(exchange: &mut Exchange) -> io::Result<Next> {
    exchange.send("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n")?;
    Ok(Next::Close)
}

#[test]
fn the_access_log_names_the_backend_that_failed_and_the_rule_that_it_broke() {
    let backend = Backend::start(garbage);
    let mizan = start(&config("", "", &[backend.address()]));
    assert_eq!(mizan.get("/").status, 502);
    let line = line(&mizan, 1);
    assert_eq!(line["reason"], "bad_response");
    assert_eq!(line["detail"], "length_repeated");
    assert_eq!(line["backend"], backend.address().to_string().as_str());
}

#[test]
fn an_answer_of_mizan_s_own_is_logged_and_counted_under_its_route() {
    let backend = Backend::healthy("a");
    let mizan = start(&format!(
        "{}\n[[route]]\nname = \"moved\"\npath = \"/old\"\nredirect = {{ location = \"/new\" }}\n",
        config("", "", &[backend.address()])
    ));
    assert_eq!(mizan.get("/old").status, 308);
    let line = line(&mizan, 1);
    assert_eq!(
        (&line["route"], &line["reason"]),
        (&"moved".into(), &"redirect".into())
    );
    assert_eq!(mizan.metric("mizan_requests_total", "route=\"moved\""), 1.0);
}

#[test]
fn a_refused_head_is_logged_with_all_that_is_known_of_it() {
    let backend = Backend::healthy("a");
    let listener = "timeouts = { header = \"500ms\" }\nheaders_max = 3";
    let mizan = start(&format!(
        "workers = 1\n{}",
        config(listener, "", &[backend.address()])
    ));
    let told = [
        (
            "POST /two?a=1 HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            ["length_and_encoding", "POST", "/two?-", "a.example"],
        ),
        (
            "GET /lf HTTP/1.1\nHost: a.example\r\n\r\n",
            ["bare_lf", "GET", "/lf", "a.example"],
        ),
        (
            "GET http://b.example/ HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
            ["host_repeated", "GET", "/", "b.example"],
        ),
        (
            "GET /many HTTP/1.1\r\nHost: a.example\r\nA: 1\r\nB: 2\r\nC: 3\r\n\r\n",
            ["too_many_headers", "GET", "/many", "a.example"],
        ),
        (
            "GET /slow HTTP/1.1\r\nHost: a.example\r\nA",
            ["header_timeout", "GET", "/slow", "a.example"],
        ),
        ("\u{16}\u{3}\u{1}\r\n\r\n", ["start_line", "", "", ""]),
    ];
    let mut sent = 0;
    for (at, (text, [reason, method, target, host])) in told.into_iter().enumerate() {
        let mut client = mizan.client();
        client.send(text);
        let _ = client.read_to_end();
        sent += text.len();
        let line = line(&mizan, at + 1);
        let text_of = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
        let known = ["reason", "method", "target", "host"].map(text_of);
        assert_eq!(known, [reason, method, target, host], "{text:?}");
        assert!(text_of("client").starts_with("127.0.0.1:"), "{line}");
        assert_eq!(line["bytes_in"], text.len(), "{text:?}");
        let took = line["duration_ms"].as_f64().expect("a number");
        assert_eq!(
            took > 300.0,
            reason == "header_timeout",
            "{text:?}: {took} ms"
        );
    }
    let received = mizan.metric("mizan_received_bytes_total", "listener=");
    assert_eq!(received, sent as f64);
}

#[test]
fn a_refused_head_of_http2_is_logged_with_its_client_and_its_target() {
    let backend = Backend::healthy("a");
    let mizan = start(&config("", "", &[backend.address()]));
    let mut client = frames::Frames::open(mizan.address(), &[]);
    let mut head = frames::request("GET", "/there").to_vec();
    head.push(("host", "another.example"));
    client.head(1, frames::END_STREAM, &head);
    client.fate(1);
    let line = line(&mizan, 1);
    assert_eq!(
        (&line["method"], &line["target"]),
        (&"GET".into(), &"/there".into())
    );
    assert!(
        line["client"].is_string() && line["bytes_in"] != 0,
        "{line}"
    );
}

#[test]
fn an_answer_without_a_body_has_no_type_and_a_redirect_keeps_the_port_if_asked_to() {
    let backend = Backend::healthy("a");
    let mizan = Mizan::start(&format!(
        "{}\n[[route]]\npath = \"/no\"\nrespond = {{ status = 204 }}\n[[route]]\nprefix = \"/old\"\nredirect = {{ location = \"{{scheme}}://{{host}}{{port}}/new\" }}\n",
        config("", "", &[backend.address()])
    ));
    let answer = mizan.get("/no");
    assert_eq!((answer.status, answer.field("content-type")), (204, None));
    for (host, location) in [
        ("a.example:8000", "http://a.example:8000/new"),
        ("a.example", "http://a.example/new"),
        ("[::1]:8000", "http://[::1]:8000/new"),
    ] {
        let ask = format!("GET /old HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let answer = mizan.client().exchange(ask);
        assert_eq!(answer.field("location"), Some(location));
    }
}

#[test]
fn an_answer_of_mizan_s_own_has_a_date_and_the_identifier_that_is_in_the_log() {
    let backend = Backend::start(garbage);
    let mizan = start(&config("", "", &[backend.address()]));
    let response = mizan.get("/");
    let date = response.field("date").expect("a date");
    assert!(date.len() == 29 && date.ends_with(" GMT"), "{date}");
    let line = line(&mizan, 1);
    assert_eq!(response.field("x-request-id"), line["request_id"].as_str());
    assert_eq!(line["traceparent"].as_str().map(str::len), Some(55));
}

#[test]
fn time_in_the_queue_is_not_held_against_the_backend() {
    let backend = Backend::start(|exchange| {
        exchange.pause(std::time::Duration::from_millis(300))?;
        exchange.serve()
    });
    let address = backend.address();
    let mizan = start(&format!(
        "[[listener]]\nbind = \"{{listen}}\"\n[[route]]\npool = \"api\"\n[pool.api]\nbackends = [{{ address = \"{address}\", in_flight_max = 1 }}]\n"
    ));
    let mut clients = [mizan.client(), mizan.client(), mizan.client()];
    for client in &mut clients {
        client.send(GET);
    }
    for client in &mut clients {
        assert_eq!(client.read().status, 200);
    }
    let last = line(&mizan, 3);
    let [duration, upstream] =
        ["duration_ms", "upstream_ms"].map(|key| last[key].as_f64().expect("a number"));
    assert!(
        duration > 850.0 && upstream < 500.0,
        "{duration} ms, {upstream} ms of them at the backend"
    );
}

#[test]
fn a_request_waits_in_the_queue_behind_those_that_came_before_it() {
    let backend = Backend::start(|exchange| {
        exchange.pause(std::time::Duration::from_millis(20))?;
        exchange.serve()
    });
    let address = backend.address();
    let mizan = Mizan::start(&format!(
        "[[listener]]\nbind = \"{{listen}}\"\n[[route]]\npool = \"api\"\n[pool.api]\nbackends = [{{ address = \"{address}\", in_flight_max = 1 }}]\n"
    ));
    let mut clients = Vec::new();
    for number in 0..20 {
        let mut client = mizan.client();
        client.send(format!("GET /{number} HTTP/1.1\r\nHost: a.example\r\n\r\n"));
        clients.push(client);
        let behind = f64::from(number);
        eventually(PATIENCE, "it is with the backend or in the queue", || {
            backend.requests() as f64 + mizan.metric("mizan_pool_queued", "") > behind
        });
    }
    for client in &mut clients {
        assert_eq!(client.read().status, 200);
    }
    let order: Vec<_> = backend.recorded();
    let numbers: Vec<usize> = order
        .iter()
        .filter_map(|raw| raw.strip_prefix("GET /")?.split(' ').next()?.parse().ok())
        .collect();
    assert_eq!(numbers, (0..20).collect::<Vec<_>>());
}

#[test]
fn connections_to_one_listener_take_no_room_from_another() {
    let backend = Backend::healthy("a");
    let mizan = Mizan::start(&format!(
        "[[listener]]\nbind = \"{{listen2}}\"\n{}",
        config("connections_max = 1", "", &[backend.address()])
    ));
    let mut others: Vec<_> = (0..5).map(|_| Client::connect(mizan.address2())).collect();
    for other in &mut others {
        assert_eq!(other.get("/").status, 200);
    }
    assert_eq!(
        mizan.get("/").status,
        200,
        "refused for want of room that others took"
    );
}

#[test]
fn a_standard_error_that_nobody_reads_holds_neither_operators_nor_requests_nor_the_end() {
    let backend = Backend::healthy("a");
    let (reader, full) = full_pipe();
    let mut mizan = Mizan::start_to(&config("", "", &[backend.address()]), full.into());
    let name = format!("api/{}", backend.address());
    for _ in 0..5 {
        for command in [&["drain", &name][..], &["undrain", &name], &["status"]] {
            let output = mizan.command(command);
            assert_eq!(output.status.code(), Some(0), "{command:?}: {output:?}");
        }
    }
    assert_eq!(mizan.get("/").status, 200);
    mizan.signal(Signal::TERM);
    assert_eq!(mizan.wait(PATIENCE).code(), Some(0));
    drop(reader);
}

#[test]
fn an_error_at_the_start_is_told_whole_and_does_not_wait_for_a_reader() {
    let start = |standard_error: Stdio| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mizan"));
        command.args(["serve", "--config", "/nowhere/mizan.toml"]);
        command.stdout(Stdio::null()).stderr(standard_error).spawn()
    };
    let read = start(Stdio::piped()).expect("mizan runs");
    let output = read.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.ends_with("nothing was served\n"), "{text}");
    let (reader, full) = full_pipe();
    let mut unread = start(full.into()).expect("mizan runs");
    let mut status = None;
    eventually(PATIENCE, "it ends", || {
        status = unread.try_wait().expect("it is a child");
        status.is_some()
    });
    assert_eq!(status.and_then(|status| status.code()), Some(2));
    drop(reader);
}

//! Shares that follow what traffic says, over real sockets: slow and broken backends, load reports.

use crate::support::*;
use serde_json::Value;
use std::time::Duration;

/// What `mizan status --json` says of the backend at `index`.
fn backend(mizan: &Mizan, index: usize) -> Value {
    let output = mizan.command(&["status", "--json"]);
    let status: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    status["pools"][0]["backends"][index].clone()
}

fn requests(mizan: &Mizan, index: usize) -> u64 {
    backend(mizan, index)["requests"]
        .as_u64()
        .expect("a number")
}

#[test]
fn a_load_report_is_read_and_kept_from_the_client() {
    let says = |report: &'static str| {
        Backend::start(move |exchange| {
            exchange.send(format!(
                "HTTP/1.1 200 OK\r\n{report}Content-Length: 2\r\n\r\nok"
            ))?;
            Ok(Next::Keep)
        })
    };
    let full = says("Endpoint-Load-Metrics: TEXT cpu_utilization=0.97\r\n");
    let idle = says("endpoint-load-metrics: JSON {\"cpu_utilization\": 0.2}\r\n");
    let broken = says("endpoint-load-metrics-bin: !!!\r\n");
    let backends = [full.address(), idle.address(), broken.address()];
    let mizan = Mizan::start(&config("", "", &backends));
    let mut client = mizan.client();
    eventually(PATIENCE, "the full one is degraded", || {
        for _ in 0..20 {
            let answer = client.get("/");
            assert_eq!(answer.text(), "ok");
            let told = |name: &str| answer.field(name).is_some();
            assert!(!told("endpoint-load-metrics") && !told("endpoint-load-metrics-bin"));
        }
        backend(&mizan, 0)["traffic"] == "degraded"
    });
    let reason = backend(&mizan, 0)["reason"].to_string();
    assert!(reason.contains("97 % of what it can take"), "{reason}");
    assert_eq!(backend(&mizan, 1)["traffic"], "healthy");
    let malformed = mizan.metric("mizan_load_reports_malformed_total", "api");
    assert!(malformed > 0.0);
}

#[test]
fn a_call_s_load_report_comes_in_its_trailers_and_stays_here() {
    let backend_of = || {
        H2Backend::start(|call| async move {
            let mut respond = call.respond;
            let head = http::Response::builder().header("content-type", "application/grpc");
            let mut frames = respond.send_response(head.body(()).expect("sound"), false)?;
            let mut trailers = http::HeaderMap::new();
            trailers.insert("grpc-status", "0".parse().expect("a value"));
            let report = "TEXT application_utilization=0.95"
                .parse()
                .expect("a value");
            trailers.insert("endpoint-load-metrics", report);
            frames.send_trailers(trailers)
        })
    };
    let one = backend_of();
    let mizan = Mizan::start(&config("", "protocol = \"http2\"", &[one.address()]));
    let client = H2Client::connect(mizan.address());
    eventually(PATIENCE, "it is degraded by its own account", || {
        let ask = Ask::post("/a.B/C", "").field("content-type", "application/grpc");
        let answer = client.exchange(ask);
        assert_eq!(answer.trailers["grpc-status"], "0");
        assert!(!answer.trailers.contains_key("endpoint-load-metrics"));
        backend(&mizan, 0)["traffic"] == "degraded"
    });
}

#[test]
fn a_slow_backend_loses_its_share_within_a_second_or_two_and_nobody_fails() {
    let slow = Backend::healthy("slow");
    let good = [
        Backend::healthy("b"),
        Backend::healthy("c"),
        Backend::healthy("d"),
    ];
    let mut backends = vec![slow.address()];
    backends.extend(good.iter().map(Backend::address));
    let mizan = Mizan::start(&config("", "", &backends));
    let load = Load::start(
        mizan.address(),
        Plan {
            clients: 4,
            ..Plan::default()
        },
    );
    load.wait_for(400);
    slow.set_script(|exchange| {
        exchange.pause(Duration::from_millis(100))?;
        exchange.serve()
    });
    let all = |mizan: &Mizan| (0..4).map(|index| requests(mizan, index)).sum::<u64>();
    // What of each next thousand requests it gets.
    let mut before = (requests(&mizan, 0), all(&mizan));
    eventually(
        PATIENCE,
        "its share is below a tenth of an even one",
        || {
            let now = (requests(&mizan, 0), all(&mizan));
            if now.1 - before.1 < 1_000 {
                return false;
            }
            let share = (now.0 - before.0) as f64 / (now.1 - before.1) as f64;
            before = now;
            share < 0.025
        },
    );
    let report = load.stop();
    report.expect_no_failure();
}

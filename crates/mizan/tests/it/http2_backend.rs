//! Backends of HTTP/2 that refuse, go away, die, freeze or take few streams; and clients that leave them.

use crate::support::frames::{self, Frames};
use crate::support::h2_client::RUNTIME;
use crate::support::*;
use h2::Reason;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

const POOL: &str = "protocol = \"http2\"\npolicy = \"round_robin\"";

/// Asks `count` times, `width` at a time over one connection; gives all that is no 200.
fn ask_many(mizan: &Mizan, count: usize, width: usize, ask: &Ask) -> Vec<String> {
    let client = Arc::new(H2Client::connect(mizan.address()));
    let left = Arc::new(AtomicUsize::new(count));
    let asking: Vec<JoinHandle<Vec<String>>> = (0..width)
        .map(|_| {
            let (client, left, ask) = (Arc::clone(&client), Arc::clone(&left), ask.clone());
            RUNTIME.spawn(async move {
                let mut failed = Vec::new();
                let next = || {
                    left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                        left.checked_sub(1)
                    })
                };
                while next().is_ok() {
                    match client.ask(ask.clone()).await {
                        Ok(answer) if answer.status == 200 => {}
                        Ok(answer) => failed.push(format!("{} {}", answer.status, answer.text())),
                        Err(error) => failed.push(format!("{error:?}")),
                    }
                }
                failed
            })
        })
        .collect();
    run(async {
        let mut failed = Vec::new();
        for asking in asking {
            failed.extend(asking.await.expect("it does not panic"));
        }
        failed
    })
}

#[test]
fn a_refused_stream_is_tried_elsewhere_whatever_its_method() {
    let refusing = H2Backend::start(|mut call| async move {
        call.respond.send_reset(Reason::REFUSED_STREAM);
        Ok(())
    });
    let sound = H2Backend::healthy("sound");
    let mizan = Mizan::start(&config("", POOL, &[refusing.address(), sound.address()]));
    let client = H2Client::connect(mizan.address());
    for ask in [
        Ask::get("/"),
        Ask::post("/", "hello"),
        Ask::streamed("/", "hello"),
    ] {
        for _ in 0..4 {
            let answer = client.exchange(ask.clone());
            assert_eq!(
                (answer.status, answer.field("x-backend")),
                (200, Some("sound"))
            );
        }
    }
    assert!(refusing.requests() > 0, "never asked");
    assert_eq!(mizan.in_flight(), 0);
}

#[test]
fn no_request_fails_when_backends_go_away_under_load() {
    let backends = [H2Backend::healthy("a"), H2Backend::healthy("b")];
    let addresses = backends.each_ref().map(H2Backend::address);
    let mizan = Mizan::start(&config("", POOL, &addresses));
    let failed = std::thread::scope(|scope| {
        let asking = scope.spawn(|| ask_many(&mizan, 2_000, 8, &Ask::post("/", "hello")));
        for backend in backends.iter().cycle() {
            let seen = backend.requests();
            eventually(PATIENCE, "the load gets on", || {
                backend.requests() > seen + 10 || asking.is_finished()
            });
            if asking.is_finished() {
                break;
            }
            backend.go_away();
        }
        asking.join().expect("it does not panic")
    });
    assert_eq!(failed, [""; 0]);
    let opened: usize = backends.iter().map(H2Backend::connections).sum();
    assert!(opened > 10, "only {opened} connections: nobody went away");
}

/// A backend that says GOAWAY to each request it sees and closes, naming this stream as the last that it served;
/// and how many requests it has seen.
fn leaving(last: u32) -> (std::net::SocketAddr, Arc<AtomicUsize>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let seen = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&seen);
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let Ok(mut frames) = Frames::accept(stream) else {
                continue;
            };
            let is_end = |frame: &frames::Frame| frame.kind == frames::DATA && frame.flags & 1 == 1;
            if frames.until(is_end).is_some() {
                count.fetch_add(1, Ordering::SeqCst);
                let goaway = [last.to_be_bytes(), 0u32.to_be_bytes()].concat();
                frames.send(frames::GOAWAY, 0, 0, &goaway);
            }
        }
    });
    (address, seen)
}

#[test]
fn a_request_that_a_backend_had_begun_when_it_went_away_is_not_repeated() {
    let sound = H2Backend::healthy("sound");
    for (last, statuses) in [(0, [200; 4]), (1, [502, 200, 502, 200])] {
        let (address, seen) = leaving(last);
        let mizan = Mizan::start(&config("", POOL, &[address, sound.address()]));
        let client = H2Client::connect(mizan.address());
        let mut got = [0; 4].map(|_: u16| client.exchange(Ask::post("/", "hello")).status);
        got.sort_unstable();
        let mut statuses = statuses;
        statuses.sort_unstable();
        assert_eq!(got, statuses, "last stream {last}");
        let seen = seen.load(Ordering::SeqCst);
        assert!(seen == 2 || (last == 0 && seen > 0), "{seen} seen");
    }
}

#[test]
fn no_get_fails_when_a_backend_drops_its_connections_under_load() {
    let backends = [
        H2Backend::healthy("a"),
        H2Backend::healthy("b"),
        H2Backend::healthy("c"),
    ];
    let addresses = backends.each_ref().map(H2Backend::address);
    let mizan = Mizan::start(&config("", POOL, &addresses));
    let failed = std::thread::scope(|scope| {
        let asking = scope.spawn(|| ask_many(&mizan, 1_500, 8, &Ask::get("/")));
        for number in 0..5 {
            let seen = backends[0].requests();
            eventually(PATIENCE, "the load gets on", || {
                backends[0].requests() > seen + 20 || asking.is_finished()
            });
            backends[number % 2].drop_connections();
        }
        asking.join().expect("it does not panic")
    });
    assert_eq!(failed, [""; 0]);
}

#[test]
fn a_stale_shared_connection_fails_no_request() {
    let backend = H2Backend::healthy("a");
    let mizan = Mizan::start(&config("", POOL, &[backend.address()]));
    let client = H2Client::connect(mizan.address());
    for _ in 0..20 {
        assert_eq!(client.exchange(Ask::post("/", "hello")).status, 200);
        backend.drop_connections();
        eventually(PATIENCE, "it is gone", || backend.open() == 0);
    }
}

#[test]
fn a_backend_that_takes_few_streams_is_asked_no_more_at_once() {
    let most = Arc::new(AtomicUsize::new(0));
    let (now_there, most_there) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&most));
    let mut builder = h2::server::Builder::new();
    builder.max_concurrent_streams(2);
    let backend = H2Backend::with("few", &builder, move |call| {
        let (now_there, most) = (Arc::clone(&now_there), Arc::clone(&most_there));
        async move {
            let count = now_there.fetch_add(1, Ordering::SeqCst) + 1;
            most.fetch_max(count, Ordering::SeqCst);
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            now_there.fetch_sub(1, Ordering::SeqCst);
            call.serve().await
        }
    });
    let mizan = Mizan::start(&config("", POOL, &[backend.address()]));
    let failed = ask_many(&mizan, 500, 40, &Ask::get("/"));
    assert_eq!(failed, [""; 0]);
    let (most, connections) = (most.load(Ordering::SeqCst), backend.connections());
    assert!(
        most <= 2 * connections,
        "{most} at once on {connections} connections"
    );
}

#[test]
fn the_first_wave_to_a_backend_that_takes_one_stream_fails_nothing() {
    let mut builder = h2::server::Builder::new();
    builder.max_concurrent_streams(1);
    let backend = H2Backend::with("one", &builder, Call::serve);
    let mizan = Mizan::start(&config("", POOL, &[backend.address()]));
    assert_eq!(
        ask_many(&mizan, 100, 100, &Ask::post("/", "hello")),
        [""; 0]
    );
}

#[test]
fn a_client_that_goes_away_takes_its_stream_back_from_the_backend() {
    let backend = H2Backend::start(Call::hang);
    let mizan = Mizan::start(&config("", POOL, &[backend.address()]));
    // By a reset of one stream, by the end of a connection, by HTTP/1.1.
    let client = H2Client::connect(mizan.address());
    let (response, sending) = run(client.begin(&Ask::get("/"))).expect("it is sent");
    eventually(PATIENCE, "it is on its way", || backend.requests() == 1);
    assert!(mizan.in_flight() > 0);
    drop((response, sending));
    eventually(PATIENCE, "the backend hears of it", || {
        backend.resets() == [Reason::CANCEL]
    });
    eventually(PATIENCE, "its place is given back", || {
        mizan.in_flight() == 0
    });
    let asked = run(client.begin(&Ask::streamed("/", ""))).expect("it is sent");
    eventually(PATIENCE, "it is on its way", || backend.requests() == 2);
    client.cut();
    drop(asked);
    eventually(PATIENCE, "the backend hears of it", || {
        backend.resets().len() == 2
    });
    let mut old = mizan.client();
    old.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually(PATIENCE, "it is on its way", || backend.requests() == 3);
    drop(old);
    eventually(PATIENCE, "the backend hears of it", || {
        backend.resets() == [Reason::CANCEL; 3]
    });
    eventually(PATIENCE, "its place is given back", || {
        mizan.in_flight() == 0
    });
    assert_eq!(
        backend.open(),
        backend.connections(),
        "a connection was closed over it"
    );
}

#[test]
fn a_frozen_connection_is_given_up_after_a_ping() {
    let backend = H2Backend::start(Call::hang);
    let pool =
        format!("{POOL}\nhttp2_limits = {{ ping_interval = \"1s\", ping_timeout = \"1s\" }}");
    let mizan = Mizan::start(&config("", &pool, &[backend.address()]));
    let client = H2Client::connect(mizan.address());
    let asked = run(client.begin(&Ask::post("/", ""))).expect("it is sent");
    drop(asked.1);
    let (response, _sending) = run(client.begin(&Ask::get("/"))).expect("it is sent");
    eventually(PATIENCE, "it is on its way", || backend.requests() >= 1);
    let started = now();
    backend.set_script(Call::serve);
    backend.freeze();
    // Given up, then tried again on a connection that lives.
    let answer = run(response).expect("an answer");
    assert_eq!(answer.status(), 200);
    let took = now() - started;
    assert!(took < Duration::from_secs(6), "given up after {took:?}");
    assert_eq!(client.get("/").status, 200);
}

#[test]
fn an_answer_that_is_cut_is_a_reset_for_the_client_and_no_more() {
    let gate = Arc::new(Semaphore::new(0));
    let closed = Arc::clone(&gate);
    let backend = H2Backend::start(move |mut call| {
        let gate = Arc::clone(&closed);
        async move {
            let head = http::Response::new(());
            let mut sending = call.respond.send_response(head, false)?;
            sending.send_data("half".into(), false)?;
            gate.acquire().await.expect("it is open").forget();
            sending.send_reset(Reason::INTERNAL_ERROR);
            Ok(())
        }
    });
    let mizan = Mizan::start(&config("", POOL, &[backend.address()]));
    let client = H2Client::connect(mizan.address());
    let (response, _) = run(client.begin(&Ask::get("/"))).expect("it is sent");
    let mut frames = run(response).expect("a head").into_body();
    let half = run(frames.data()).expect("a part").expect("of the body");
    assert_eq!(half, "half");
    gate.add_permits(1);
    let error = run(frames.data()).expect("an end").expect_err("it was cut");
    assert!(error.is_reset(), "{error:?}");
    // In HTTP/1.1 the end is missing.
    let mut old = mizan.client();
    old.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(old.read_head().word(1), "200");
    assert_eq!(old.read_exactly(9), b"4\r\nhalf\r\n");
    gate.add_permits(1);
    assert_eq!(old.read_to_end().0, b"", "a cut answer looks whole");
    backend.set_script(Call::serve);
    assert_eq!(client.get("/").status, 200);
}

#[test]
fn an_early_answer_ends_an_upload_and_the_connection_lives() {
    let backend = H2Backend::start(|call| async move {
        let head = http::Response::builder().status(413);
        call.respond_with(head, Some(b"too much"), &http::HeaderMap::new())
            .await
    });
    let mizan = Mizan::start(&config("", POOL, &[backend.address()]));
    let client = H2Client::connect(mizan.address());
    let body = vec![b'x'; 4 << 20];
    for _ in 0..3 {
        let answer = client.exchange(Ask::post("/", body.clone()));
        assert_eq!((answer.status, answer.text()), (413, "too much".to_owned()));
    }
    backend.set_script(Call::serve);
    assert_eq!(client.get("/").status, 200);
}

#[test]
fn a_shared_connection_is_closed_after_its_idle_time() {
    let backend = H2Backend::healthy("a");
    let pool = format!("{POOL}\nkeepalive = {{ idle_timeout = \"500ms\" }}");
    let mizan = Mizan::start(&config("", &pool, &[backend.address()]));
    let client = H2Client::connect(mizan.address());
    assert_eq!(client.get("/").status, 200);
    eventually(PATIENCE, "it is closed", || backend.open() == 0);
    assert_eq!(client.get("/").status, 200);
}

#[test]
fn a_slow_backend_of_http2_is_a_504_and_its_stream_is_cancelled() {
    let backend = H2Backend::start(Call::hang);
    let pool = format!(
        "{POOL}\ntimeouts = {{ response_header = \"200ms\" }}\nretry = {{ tries_max = 1 }}"
    );
    let mizan = Mizan::start(&config("", &pool, &[backend.address()]));
    let client = H2Client::connect(mizan.address());
    let answer = client.get("/");
    assert_eq!(
        (answer.status, answer.text()),
        (504, "504 Gateway Timeout: response_timeout\n".to_owned())
    );
    eventually(PATIENCE, "the backend hears of it", || {
        backend.resets() == [Reason::CANCEL]
    });
    backend.set_script(Call::serve);
    assert_eq!(client.get("/").status, 200);
    assert_eq!(
        backend.connections(),
        1,
        "the connection was closed over one slow stream"
    );
}

#[test]
fn a_backend_that_answers_in_http1_is_a_502() {
    let backend = Backend::healthy("one");
    let mizan = Mizan::start(&config("", POOL, &[backend.address()]));
    let answer = mizan.get("/");
    assert_eq!(answer.status, 502, "{}", answer.text());
}

#[test]
fn a_backend_that_speaks_the_other_protocol_is_told_as_such_in_traffic_and_probes() {
    let health =
        "health = { path = \"/healthz\", interval = \"2s\", timeout = \"1s\", fall = 1, rise = 1 }";
    let (old, new) = (Backend::healthy("a"), H2Backend::healthy("b"));
    for (pool, address, spoken) in [
        ("protocol = \"http2\"", old.address(), "HTTP/1.1"),
        ("protocol = \"http1\"", new.address(), "HTTP/2"),
    ] {
        let mizan = Mizan::start(&config("", &format!("{pool}\n{health}"), &[address]));
        let answer = mizan.get("/");
        assert_eq!(
            (answer.status, answer.text().as_str()),
            (502, "502 Bad Gateway: wrong_protocol\n")
        );
        let said = format!("the backend speaks {spoken}: see `protocol`");
        eventually(PATIENCE, "the probes say so, too", || {
            let status = mizan.command(&["status"]);
            String::from_utf8_lossy(&status.stdout).contains(&said)
        });
    }
}

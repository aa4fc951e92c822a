//! Limits: what is over one is answered or cut, and nobody else is harmed.

use crate::support::*;
use std::os::unix::net::UnixStream;
use std::time::Duration;

fn start(listener: &str, pool: &str, backend: &Backend) -> Mizan {
    Mizan::start(&config(listener, pool, &[backend.address()]))
}

#[test]
fn what_is_too_large_has_a_status_of_its_own_and_reaches_no_backend() {
    let backend = Backend::healthy("a");
    let listener =
        "head_max = \"8KiB\"\nheaders_max = 20\ntarget_max = \"1KiB\"\nbody_max = \"1KiB\"";
    let mizan = start(listener, "", &backend);
    let get = |target: &str, fields: &str| {
        format!("GET {target} HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n")
    };
    let long = "a".repeat(2_000);
    for (status, request) in [
        (414, get(&format!("/{long}"), "")),
        (431, get("/", &format!("X: {}\r\n", "a".repeat(9_000)))),
        (431, get("/", &"X: y\r\n".repeat(30))),
        (
            413,
            format!("POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 2000\r\n\r\n{long}"),
        ),
    ] {
        let mut client = mizan.client();
        let response = client.exchange(&request);
        assert_eq!(response.status, status, "{}", &request[..60]);
        assert!(response.head.connection_has("close"), "{:?}", response.head);
    }
    assert_eq!(backend.requests(), 0);
    let mut client = mizan.client();
    client.send("POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send(format!("7d0\r\n{long}\r\n0\r\n\r\n"));
    assert_eq!(
        client.read().status,
        413,
        "a chunked body is counted as it comes"
    );
    assert_eq!(mizan.get("/").status, 200);
    assert_eq!(
        mizan.client().post("/", &[b'a'; 1_024]).status,
        200,
        "the limit itself is allowed"
    );
}

#[test]
fn a_client_that_is_slow_with_its_head_or_body_gets_408_and_one_that_is_idle_is_closed() {
    let backend = Backend::healthy("a");
    let listener = "timeouts = { header = \"500ms\", body = \"500ms\", idle = \"500ms\" }";
    let mizan = start(listener, "", &backend);
    for begun in [
        "GET / HT",
        "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\nhel",
    ] {
        let started = now();
        let mut client = mizan.client();
        client.send(begun);
        assert_eq!(client.read().status, 408, "{begun:?}");
        client.expect_closed();
        let took = now() - started;
        assert!(
            (400..3_000).contains(&took.as_millis()),
            "{took:?} with a time-out of 500 ms"
        );
    }
    let mut idle = mizan.client();
    assert_eq!(idle.get("/").status, 200);
    idle.expect_closed();
    let mut silent = mizan.client();
    silent.expect_closed();
}

#[test]
fn a_head_that_drips_is_cut_by_its_time_out_however_often_a_byte_comes() {
    let backend = Backend::healthy("a");
    let mizan = start("timeouts = { header = \"1s\" }", "", &backend);
    let mut client = mizan.client();
    client.send("GET / HTTP/1.1\r\nHost: a.example\r\nX: ");
    let started = now();
    eventually(Duration::from_secs(4), "the dripping head is cut", || {
        pass(Duration::from_millis(100));
        client.send("a");
        client.is_answered()
    });
    assert!(now() - started > Duration::from_millis(700));
    assert_eq!(client.read().status, 408);
}

#[test]
fn an_upload_below_the_minimum_rate_is_cut_and_one_above_it_is_not() {
    let backend = Backend::healthy("a");
    let rate = "min_rate = { upload = \"256B\", grace = \"1s\" }";
    let mizan = start(rate, "", &backend);
    let begin = "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3000\r\n\r\n";
    let (mut slow, mut steady) = (mizan.client(), mizan.client());
    slow.send(begin);
    steady.send(begin);
    let started = now();
    let mut sent = 0;
    while sent < 3_000 {
        pass(Duration::from_millis(100));
        slow.send("a");
        steady.send([b'a'; 100]);
        sent += 100;
    }
    assert_eq!(
        steady.read().text(),
        "a:3000",
        "1,000 bytes a second are enough"
    );
    assert!(
        slow.is_answered() || slow.is_closed(),
        "10 bytes a second held on for {:?}",
        now() - started
    );
    let answer = slow.try_read("POST").map(|response| response.status);
    assert!(matches!(answer, Ok(408) | Err(_)), "{answer:?}");
}

#[test]
fn a_download_that_its_client_does_not_read_is_cut() {
    let backend = Backend::healthy("a");
    let rate = "min_rate = { download = \"1KiB\", grace = \"1s\" }\ntimeouts = { send = \"60s\" }";
    let mizan = start(rate, "", &backend);
    let mut client = mizan.client();
    client.send("GET /bytes/50000000 HTTP/1.1\r\nHost: a.example\r\n\r\n");
    eventually(PATIENCE, "the backend has the request", || {
        backend.busy() == 1
    });
    eventually(Duration::from_secs(8), "the unread download is cut", || {
        mizan.in_flight() == 0
    });
    let cut = client.try_read("GET").expect_err("it did not come whole");
    assert_ne!(cut.how, How::TimedOut);
}

#[test]
fn a_client_that_takes_nothing_is_cut_by_the_send_time_out() {
    let backend = Backend::healthy("a");
    let mizan = start(
        "timeouts = { send = \"1s\" }\nmin_rate = { download = \"0B\" }",
        "",
        &backend,
    );
    let mut client = mizan.client();
    client.send("GET /bytes/50000000 HTTP/1.1\r\nHost: a.example\r\n\r\n");
    eventually(PATIENCE, "the backend has the request", || {
        backend.busy() == 1
    });
    eventually(Duration::from_secs(8), "the unread download is cut", || {
        mizan.in_flight() == 0
    });
    assert!(client.try_read("GET").is_err());
}

#[test]
fn a_request_beyond_all_in_flight_limits_waits_and_then_gets_503_with_retry_after() {
    let backend = Backend::start(Exchange::hang);
    let pool = "queue = { requests_max = 1, timeout = \"500ms\" }\ntimeouts = { response_header = \"60s\" }";
    let member = format!(
        "backends = [{{ address = \"{}\", in_flight_max = 1 }}]",
        backend.address()
    );
    let mizan = Mizan::start(&format!(
        "[[listener]]\nbind = \"{{listen}}\"\n[[route]]\npool = \"api\"\n[pool.api]\n{member}\n{pool}\n"
    ));
    let mut first = mizan.client();
    first.send("GET /first HTTP/1.1\r\nHost: a.example\r\n\r\n");
    eventually(PATIENCE, "the backend is full", || backend.busy() == 1);
    // Which of two waits and which finds the queue full is not said; that it is one each is.
    let started = now();
    let mut clients = [mizan.client(), mizan.client()];
    for client in &mut clients {
        client.send("GET /more HTTP/1.1\r\nHost: a.example\r\n\r\n");
    }
    let answers = clients.map(|mut client| client.read());
    assert!(
        now() - started >= Duration::from_millis(400),
        "nobody waited"
    );
    for answer in &answers {
        assert_eq!(answer.status, 503);
        assert!(answer.field("retry-after").is_some(), "{answer:?}");
    }
    let beyond = answers
        .iter()
        .filter(|answer| answer.text().contains("queue_full"));
    assert_eq!(beyond.count(), 1, "{answers:?}");
    assert_eq!(backend.requests(), 1);
}

/// A pool whose only backend takes one request at a time, for `pause` each; the others queue.
fn with_one_place(pause: Duration) -> (Backend, Mizan) {
    let backend = Backend::start(move |exchange| {
        exchange.pause(pause)?;
        exchange.serve()
    });
    let member = format!(
        "backends = [{{ address = \"{}\", in_flight_max = 1 }}]",
        backend.address()
    );
    let mizan = Mizan::start(&format!(
        "[[listener]]\nbind = \"{{listen}}\"\n[[route]]\npool = \"api\"\n[pool.api]\n{member}\nqueue = {{ timeout = \"10s\" }}\n"
    ));
    (backend, mizan)
}

#[test]
fn a_queued_request_goes_on_when_a_place_is_free() {
    let (_backend, mizan) = with_one_place(Duration::from_millis(200));
    let mut clients: Vec<_> = (0..4).map(|_| mizan.client()).collect();
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
    }
    for client in &mut clients {
        assert_eq!(client.read().status, 200);
    }
}

/// What comes for a request in the queue is its body, and must reach the backend, whatever its size.
#[test]
fn a_body_that_comes_while_its_request_is_queued_is_not_lost() {
    let (backend, mizan) = with_one_place(Duration::from_millis(300));
    for length in [5, 8_192, 20_000] {
        let mut first = mizan.client();
        let before = backend.requests();
        first.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
        eventually(PATIENCE, "the first one holds the place", || {
            backend.requests() > before
        });
        let mut queued = mizan.client();
        queued.send(format!(
            "POST /up HTTP/1.1\r\nHost: a.example\r\nContent-Length: {length}\r\n\r\n"
        ));
        queued.send(vec![b'a'; length]);
        assert_eq!(first.read().status, 200);
        let response = queued.read();
        assert_eq!(response.status, 200, "{length} bytes");
        assert!(
            response.text().ends_with(&format!(":{length}")),
            "{length} bytes: {:?}",
            response.text()
        );
    }
}

#[test]
fn eight_thousand_idle_connections_and_slow_senders_do_not_harm_normal_traffic() {
    let _alone = alone();
    raise_descriptor_limit();
    let backends = ["a", "b"].map(Backend::healthy);
    let listener = "timeouts = { header = \"3s\", idle = \"60s\" }\nmin_rate = { upload = \"256B\", grace = \"2s\" }";
    let mizan = Mizan::start(&config(
        listener,
        "",
        &backends.each_ref().map(Backend::address),
    ));
    let quiet = Plan {
        clients: 4,
        pause: Duration::from_millis(2),
        ..Plan::default()
    };
    // An idle keep-alive connection is one that has had an answer.
    let answered = |_| {
        let mut client = mizan.client();
        assert_eq!(client.get("/").status, 200);
        client
    };
    let mut idle: Vec<_> = (0..8_000).map(answered).collect();
    let mut heads: Vec<_> = (0..200).map(|_| mizan.client()).collect();
    let mut bodies: Vec<_> = (0..200).map(|_| mizan.client()).collect();
    heads
        .iter_mut()
        .for_each(|client| assert!(client.send("GET / HTTP/1.1\r\nHost: a.example\r\nX: ")));
    let begin = "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3000\r\n\r\n";
    bodies
        .iter_mut()
        .for_each(|client| assert!(client.send(begin)));

    let start = now();
    let load = Load::start(mizan.address(), quiet);
    eventually(PATIENCE, "all slow senders are cut", || {
        load.run_for(Duration::from_millis(200));
        heads
            .iter_mut()
            .chain(&mut bodies)
            .filter(|client| !client.is_answered())
            .fold(0, |left, client| {
                client.send("a");
                left + 1
            })
            == 0
    });
    let end = now();
    let report = load.stop();
    report.expect_no_failure();
    let slow = report.latency(0.99, start, end);
    assert!(
        slow < Duration::from_millis(250),
        "p99 of normal traffic: {slow:?}"
    );
    for client in heads.iter_mut().chain(&mut bodies) {
        let answer = client.try_read("GET").map(|response| response.status);
        assert!(matches!(answer, Ok(408) | Err(_)), "{answer:?}");
    }
    let closed = idle.iter().filter(|client| client.is_closed()).count();
    assert_eq!(
        closed, 0,
        "idle connections were closed before their time-out"
    );
    assert_eq!(idle[7_999].get("/").status, 200);
}

/// As many descriptors as the machine lets this process have.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    )
    .expect("up to the maximum");
    assert!(
        limit.maximum.is_none_or(|maximum| maximum >= 9_500),
        "too few descriptors for this test: {limit:?}"
    );
}

#[test]
fn without_descriptors_it_stops_accepting_keeps_serving_says_so_once_and_does_not_spin() {
    let _alone = alone();
    let backend = Backend::healthy("a");
    let mizan = Mizan::start_limited(&config("", "", &[backend.address()]), Some(150));
    let mut served = mizan.client();
    assert_eq!(served.get("/").status, 200);
    let many: Vec<_> = (0..300)
        .filter_map(|_| Client::try_connect(mizan.address()).ok())
        .collect();
    eventually(PATIENCE, "it says that descriptors ran out", || {
        mizan.log().contains("descriptor")
    });
    for _ in 0..20 {
        assert_eq!(
            served.get("/").status,
            200,
            "a connection that is there is served on"
        );
    }
    let before = mizan.cpu_time();
    pass(Duration::from_secs(1));
    let used = mizan.cpu_time() - before;
    assert!(
        used < Duration::from_millis(300),
        "it spins: {used:?} in a second of nothing to do"
    );
    let said = mizan
        .log()
        .lines()
        .filter(|line| line.contains("descriptor"))
        .count();
    assert!(said <= 2, "said {said} times");
    drop(many);
    eventually(PATIENCE, "it accepts again", || {
        let Ok(mut client) = Client::try_connect(mizan.address()) else {
            return false;
        };
        client.set_patience(Duration::from_millis(500));
        client.send("GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n");
        client
            .try_read("GET")
            .is_ok_and(|response| response.status == 200)
    });
}

#[test]
fn connections_beyond_the_limit_wait_until_one_is_closed() {
    let backend = Backend::healthy("a");
    let mizan = Mizan::start(&format!(
        "workers = 1\n{}",
        config("connections_max = 2", "", &[backend.address()])
    ));
    let (mut first, mut second) = (mizan.client(), mizan.client());
    assert_eq!((first.get("/").status, second.get("/").status), (200, 200));
    let mut third = mizan.client();
    third.set_patience(Duration::from_millis(300));
    third.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
    assert_eq!(
        third.try_read("GET").map_err(|cut| cut.how).err(),
        Some(How::TimedOut)
    );
    drop(first);
    third.set_patience(PATIENCE);
    assert_eq!(third.read().status, 200);
}

const LARGE: usize = 192 << 20;

#[test]
fn a_large_download_and_upload_leave_memory_flat() {
    let _alone = alone();
    let backend = Backend::start(|exchange| {
        if exchange.head.word(0) == "GET" {
            exchange.send(format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {LARGE}\r\n\r\n"
            ))?;
            let piece = vec![b'd'; 1 << 20];
            (0..LARGE / piece.len()).try_for_each(|_| exchange.send(&piece))?;
            return Ok(Next::Keep);
        }
        for _ in 0..LARGE >> 20 {
            exchange.some_of_body(1 << 20)?;
        }
        exchange.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")?;
        Ok(Next::Keep)
    });
    let mizan = start("", "", &backend);
    let mut client = mizan.client();
    client.exchange("GET /warm HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n");
    let before = mizan.resident_bytes();
    let mut peak = before;

    let mut client = mizan.client();
    client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
    client.read_head();
    for _ in 0..LARGE >> 20 {
        client.read_exactly(1 << 20);
        peak = peak.max(mizan.resident_bytes());
    }
    client.send(format!(
        "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: {LARGE}\r\n\r\n"
    ));
    let piece = vec![b'u'; 1 << 20];
    for _ in 0..LARGE >> 20 {
        assert!(client.send(&piece));
        peak = peak.max(mizan.resident_bytes());
    }
    assert_eq!(client.read().text(), "ok");
    assert!(
        peak - before <= 8 << 20,
        "grew by {} KiB",
        (peak - before) >> 10
    );
}

#[test]
fn a_client_outside_the_allowed_networks_is_turned_away() {
    let backend = Backend::healthy("a");
    let mizan = start("deny = [\"127.0.0.0/8\"]", "", &backend);
    let mut client = mizan.client();
    client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
    let answer = client.try_read("GET").map(|response| response.status);
    assert!(matches!(answer, Ok(403) | Err(_)), "{answer:?}");
    let route = format!(
        "[[listener]]\nbind = \"{{listen}}\"\n[[route]]\npool = \"api\"\ndeny = [\"127.0.0.0/8\"]\n{}",
        pool_of("", &[backend.address()])
    );
    assert_eq!(Mizan::start(&route).get("/").status, 403);
    assert_eq!(backend.requests(), 0);
}

#[test]
fn a_client_that_is_too_slow_for_the_request_time_out_is_not_held_against_the_backend() {
    let backend = Backend::healthy("a");
    let pool = "timeouts = { request = \"500ms\" }\nejection = { failures = 1 }";
    let mizan = start("", pool, &backend);
    for _ in 0..3 {
        let mut client = mizan.client();
        client.send("POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\nhel");
        assert_eq!(client.read().status, 504);
    }
    assert_eq!(mizan.metric("mizan_backend_failures_total", ""), 0.0);
    assert_eq!(mizan.get("/").status, 200);
}

#[test]
fn a_client_that_waits_for_100_continue_is_not_too_slow() {
    let backend = Backend::start(|exchange| {
        exchange.pause(Duration::from_millis(1_500))?;
        exchange.send("HTTP/1.1 100 Continue\r\n\r\n")?;
        exchange.serve()
    });
    let listener =
        "timeouts = { body = \"700ms\" }\nmin_rate = { upload = \"1KiB\", grace = \"500ms\" }";
    let mizan = start(listener, "", &backend);
    let mut client = mizan.client();
    client.send(
        "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n",
    );
    assert_eq!(client.read_head().word(1), "100");
    client.send("hello");
    assert_eq!(client.read().text(), "backend:5");
}

#[test]
fn a_head_that_begins_behind_another_request_has_its_own_time_out() {
    let backend = Backend::healthy("a");
    let listener = "timeouts = { header = \"500ms\", idle = \"60s\" }";
    let mizan = start(listener, "", &backend);
    let mut client = mizan.client();
    let started = now();
    client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\nGET / HT");
    assert_eq!(client.read().status, 200);
    assert_eq!(client.read().status, 408);
    assert!(now() - started < Duration::from_secs(5));
}

#[test]
fn the_last_answer_of_a_connection_reaches_a_client_that_goes_on_sending() {
    const LENGTH: usize = 300_000;
    let backend = Backend::healthy("a");
    let mizan = start("requests_per_connection_max = 1", "", &backend);
    for _ in 0..20 {
        let mut client = mizan.client();
        client.send(format!(
            "GET /bytes/{LENGTH} HTTP/1.1\r\nHost: a.example\r\n\r\n"
        ));
        // More than the socket's buffers hold unread: a close would be a reset that destroys the answer.
        client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n".repeat(500));
        let response = client.read();
        assert_eq!((response.status, response.body.len()), (200, LENGTH));
        assert!(response.head.connection_has("close"));
        client.finish_sending();
        let (rest, ended) = client.read_to_end();
        assert_eq!((rest.len(), ended), (0, Ok(())));
    }
    assert_eq!(backend.requests(), 20);
}

#[test]
fn when_descriptors_have_run_out_the_admin_socket_says_so_once_a_second() {
    let backend = Backend::healthy("a");
    let mizan = Mizan::start_limited(&config("", "", &[backend.address()]), Some(100));
    // More than it can accept; the kernel keeps the rest.
    let connect = |_| UnixStream::connect(mizan.directory().join("admin.sock"));
    let callers: Result<Vec<_>, _> = (0..150).map(connect).collect();
    let said = || {
        let log = mizan.log();
        log.matches("an admin connection was not accepted").count()
    };
    eventually(PATIENCE, "it says so", || said() > 0);
    pass(Duration::from_secs(2));
    assert!(said() <= 4, "said {} times", said());
    drop(callers.expect("connected"));
    eventually(PATIENCE, "it accepts again", || {
        mizan.command(&["status"]).status.success()
    });
}

#[test]
fn a_client_has_its_whole_body_time_out_from_the_100_on() {
    let backend = Backend::start(|exchange| {
        exchange.pause(Duration::from_millis(700))?;
        exchange.send("HTTP/1.1 100 Continue\r\n\r\n")?;
        exchange.serve()
    });
    let pool = "timeouts = { response_header = \"1s\" }";
    let mizan = start("timeouts = { body = \"5s\" }", pool, &backend);
    let mut client = mizan.client();
    client.send(
        "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n",
    );
    assert_eq!(client.read_head().word(1), "100");
    pass(Duration::from_millis(800));
    client.send("hello");
    assert_eq!(client.read().text(), "backend:5");
}

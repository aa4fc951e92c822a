//! UDP handed through: who gets a client's datagrams, what comes back, and how a session ends.

use crate::support::mizan::free_address;
use crate::support::*;
use rustix::process::Signal;
use serde_json::Value;
use std::net::{Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A listener that hands all datagrams to the pool `api`. One worker, so that turns and lines are in order.
fn config(listener: &str, pool: &str, backends: &[SocketAddr]) -> String {
    format!(
        "workers = 1\n[[listener]]\nname = \"dns\"\nbind = \"{{listen}}\"\nkind = \"udp\"\npool = \"api\"\n{listener}\n{}\n[log]\naccess = \"{{dir}}/access.log\"\n",
        pool_of(pool, backends)
    )
}

fn start(listener: &str, pool: &str, backends: &[SocketAddr]) -> Mizan {
    Mizan::start(&config(listener, pool, backends))
}

#[track_caller]
fn reload(mizan: &Mizan, config: &str) {
    mizan.write_config(config);
    let output = mizan.command(&["reload"]);
    assert!(output.status.success(), "{output:?}");
}

fn client(mizan: &Mizan) -> UdpClient {
    UdpClient::new(mizan.address())
}

fn two() -> ([UdpBackend; 2], [SocketAddr; 2]) {
    let backends = [UdpBackend::named("a"), UdpBackend::named("b")];
    let addresses = backends.each_ref().map(UdpBackend::address);
    (backends, addresses)
}

/// An address where nobody listens.
fn gone() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    socket.local_addr().expect("it is bound")
}

fn sessions(mizan: &Mizan) -> f64 {
    mizan.metric("mizan_connections", "dns")
}

fn dropped(mizan: &Mizan, cause: &str) -> f64 {
    mizan.metric("mizan_datagrams_dropped_total", &format!("\"{cause}\""))
}

/// The lines of the access log, once there are `count`.
#[track_caller]
fn lines(mizan: &Mizan, count: usize) -> Vec<Value> {
    let path = mizan.directory().join("access.log");
    let mut lines = Vec::new();
    eventually(PATIENCE, "the lines are in the access log", || {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let parsed = text.lines().map(serde_json::from_str);
        lines = parsed.map_while(Result::ok).collect();
        lines.len() >= count
    });
    lines
}

#[test]
fn answers_find_their_clients_and_a_client_stays_at_its_backend() {
    let (_backends, addresses) = two();
    let config = config("", "policy = \"round_robin\"", &addresses);
    // On all workers: the kernel keeps a client with one.
    let mizan = Mizan::start(&config.replace("workers = 1", "workers = 2"));
    let clients: Vec<_> = (0..16).map(|_| client(&mizan)).collect();
    let first: Vec<_> = clients.iter().map(|client| client.ask("0")).collect();
    for text in ["1", "2", "3"] {
        // All at once, so that an answer could go astray.
        for (at, client) in clients.iter().enumerate() {
            client.send(format!("{at} {text}"));
        }
        for (at, client) in clients.iter().enumerate() {
            let answer = String::from_utf8(client.receive()).expect("text");
            assert_eq!(answer, format!("{}:{at} {text}", &first[at][..1]));
        }
    }
    assert!(first.contains(&"a:0".to_owned()) && first.contains(&"b:0".to_owned()));
}

#[test]
fn a_name_is_asked_over_udp_and_over_tcp_at_one_port() {
    // The header and question of RFC 1035: an identifier, flags, one question for a.example.
    let question =
        b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x07example\x00\x00\x01\x00\x01";
    let answer = |question: &[u8]| {
        let mut answer = question.to_vec();
        answer[2] |= 0x80;
        answer[7] = 1;
        answer.extend(b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\xc0\x00\x02\x01");
        answer
    };
    let udp = UdpBackend::start(move |question| Some(answer(question)));
    let tcp = RawBackend::echo("dns");
    let mizan = Mizan::start(&format!(
        "[[listener]]\nbind = \"{{listen}}\"\nkind = \"udp\"\npool = \"api\"\n[[listener]]\nbind = \"{{listen}}\"\nkind = \"tcp\"\npool = \"tcp\"\n[pool.tcp]\nbackends = [\"{}\"]\n{}",
        tcp.address(),
        pool_of("", &[udp.address()])
    ));
    let resolver = client(&mizan);
    resolver.send(question);
    assert_eq!(resolver.receive(), answer(question));
    assert_eq!(mizan.client().read_exactly(3), b"dns");
}

#[test]
fn a_datagram_passes_whole_be_it_empty_or_the_longest() {
    let backend = UdpBackend::start(|bytes| Some(bytes.to_vec()));
    let mizan = start("", "", &[backend.address()]);
    let client = client(&mizan);
    let bytes: Vec<u8> = (0..LONGEST).map(|at| (at % 251) as u8).collect();
    for length in [0, 1, 1472, 1473, LONGEST, 0] {
        client.send(&bytes[..length]);
        assert!(client.receive() == bytes[..length], "{length} bytes");
    }
    assert_eq!(backend.received(), 6);
}

#[test]
fn what_is_longer_than_the_way_on_takes_is_dropped_and_counted() {
    let backend = UdpBackend::named("a");
    let port = free_address().port();
    let config = config("", "", &[backend.address()]);
    let mizan = Mizan::start(&config.replace("{listen}", &format!("[::1]:{port}")));
    let client = UdpClient::new((Ipv6Addr::LOCALHOST, port).into());
    // IPv6 takes twenty bytes more than IPv4.
    client.send(vec![0; LONGEST + 20]);
    assert_eq!(client.ask("next"), "a:next");
    assert_eq!(dropped(&mizan, "too_large"), 1.0);
    assert_eq!(backend.received(), 1);
}

#[test]
fn an_answer_comes_from_the_address_that_was_asked() {
    let backend = UdpBackend::named("a");
    for (bind, asked) in [
        ("0.0.0.0", "127.0.0.2"),
        ("0.0.0.0", "127.0.0.1"),
        ("[::]", "127.0.0.3"),
        ("[::]", "[::1]"),
    ] {
        let port = free_address().port();
        let config = config("", "", &[backend.address()]);
        let mizan = Mizan::start(&config.replace("{listen}", &format!("{bind}:{port}")));
        let asked = format!("{asked}:{port}").parse().expect("an address");
        // The socket is connected: it hears no other address.
        assert_eq!(UdpClient::new(asked).ask("x"), "a:x", "{bind} {asked}");
        drop(mizan);
    }
}

#[test]
fn silence_ends_a_session_and_the_next_datagram_picks_anew() {
    let (backends, addresses) = two();
    let timeouts = "timeouts = { session_idle = \"400ms\" }";
    let mizan = start(timeouts, "policy = \"round_robin\"", &addresses);
    let client = client(&mizan);
    let first = client.ask("1");
    // Longer in all than the time of silence.
    for _ in 0..6 {
        pass(Duration::from_millis(100));
        assert_eq!(client.ask("1"), first);
    }
    assert_eq!(sessions(&mizan), 1.0);
    let line = &lines(&mizan, 1)[0];
    assert_eq!(
        (&line["protocol"], &line["listener"], &line["pool"]),
        (&"udp".into(), &"dns".into(), &"api".into())
    );
    assert_eq!(
        (&line["bytes_in"], &line["bytes_out"]),
        (&7.into(), &21.into())
    );
    assert_eq!((&line["status"], &line["tries"]), (&0.into(), &1.into()));
    assert!(line.get("reason").is_none(), "{line}");
    assert!(
        line["client"]
            .as_str()
            .is_some_and(|from| from.starts_with("127.0.0.1:"))
    );
    assert_eq!(sessions(&mizan), 0.0);
    assert_ne!(client.ask("1"), first, "it is the other one's turn");
    assert_eq!(backends.each_ref().map(UdpBackend::peers), [1, 1]);
}

#[test]
fn who_refuses_loses_the_client_with_its_next_datagram() {
    let (gone, other) = (gone(), UdpBackend::named("b"));
    let mizan = start("", "policy = \"round_robin\"", &[gone, other.address()]);
    let clients: Vec<_> = (0..8).map(|_| client(&mizan)).collect();
    for client in &clients {
        client.send("1");
        // Refused or answered; only one that was refused has not been.
        if client.receive_soon().is_none() {
            assert_eq!(client.ask("2"), "b:2");
        }
        assert_eq!(client.ask("3"), "b:3");
    }
    let refused = mizan.metric("mizan_unreached_total", "connect_refused");
    // Two in a row, and nobody is sent there any more.
    assert!((1.0..=2.0).contains(&refused), "{refused}");
    assert_eq!(
        mizan.metric("mizan_backend_failures_total", &gone.to_string()),
        refused
    );
    // No datagram was sent twice.
    assert_eq!(other.received(), 16);
    // It is back, and proves itself by an answer.
    let _back = UdpBackend::start_at(gone, named("a"));
    eventually(PATIENCE, "it gets clients again", || {
        client(&mizan).insist("4") == "a:4"
    });
}

#[test]
fn a_backend_that_never_answers_comes_back_when_it_no_longer_refuses() {
    let gone = gone();
    let mizan = start("", "", &[gone]);
    let client = client(&mizan);
    eventually(PATIENCE, "it is known to refuse", || {
        client.send("lost");
        mizan.log().contains("refuses connections")
    });
    let back = UdpBackend::start_at(gone, |_| None);
    eventually(PATIENCE, "it gets datagrams", || {
        client.send("heard");
        back.received() > 0
    });
    eventually(PATIENCE, "it is known to listen", || {
        client.send("heard");
        mizan.log().contains("accepts connections again")
    });
}

#[test]
fn where_nobody_is_the_log_says_so() {
    let mizan = start("", "", &[]);
    client(&mizan).send("x");
    let line = &lines(&mizan, 1)[0];
    assert_eq!(
        (&line["reason"], &line["tries"], &line["protocol"]),
        (&"no_backend".into(), &0.into(), &"udp".into())
    );
    assert_eq!(mizan.metric("mizan_unreached_total", "no_backend"), 1.0);
    assert_eq!(dropped(&mizan, "no_backend"), 1.0);
    assert_eq!(sessions(&mizan), 0.0);
}

#[test]
fn at_the_limit_who_is_in_is_served_and_who_is_not_is_counted() {
    let backend = UdpBackend::named("a");
    let limit = "sessions_max = 2\ntimeouts = { session_idle = \"1s\" }";
    let mizan = start(limit, "", &[backend.address()]);
    let (first, second, third) = (client(&mizan), client(&mizan), client(&mizan));
    assert_eq!(
        (first.ask("1"), second.ask("2")),
        ("a:1".into(), "a:2".into())
    );
    third.send("lost");
    eventually(PATIENCE, "it is dropped", || {
        assert_eq!(first.ask("still"), "a:still");
        dropped(&mizan, "limit") == 1.0
    });
    assert_eq!(backend.peers(), 2);
    // The second falls silent, and there is room.
    assert_eq!(third.insist("3"), "a:3");
}

#[test]
fn who_may_not_is_dropped_and_costs_no_session() {
    let backend = UdpBackend::named("a");
    let mizan = start("deny = [\"127.0.0.0/8\"]", "", &[backend.address()]);
    client(&mizan).send("x");
    eventually(PATIENCE, "it is counted", || {
        dropped(&mizan, "network") == 1.0
    });
    assert_eq!((backend.received(), sessions(&mizan)), (0, 0.0));
    reload(
        &mizan,
        &config("allow = [\"127.0.0.1\"]", "", &[backend.address()]),
    );
    let client = client(&mizan);
    assert_eq!(client.ask("x"), "a:x");
    // What a reload forbids is forbidden to those who are in, too.
    reload(
        &mizan,
        &config("allow = [\"10.0.0.0/8\"]", "", &[backend.address()]),
    );
    client.send("y");
    eventually(PATIENCE, "it is counted", || {
        dropped(&mizan, "network") == 2.0
    });
    assert_eq!(backend.received(), 1);
}

#[test]
fn a_reload_leaves_sessions_where_they_are() {
    let (backends, addresses) = two();
    let round = "policy = \"round_robin\"";
    let mizan = start("", round, &addresses);
    let clients: Vec<_> = (0..4).map(|_| client(&mizan)).collect();
    let first: Vec<_> = clients.iter().map(|client| client.ask("x")).collect();
    for limit in [100, 200] {
        reload(
            &mizan,
            &config(&format!("sessions_max = {limit}"), round, &addresses),
        );
        let again: Vec<_> = clients.iter().map(|client| client.ask("x")).collect();
        assert_eq!(again, first);
    }
    // By the same sockets.
    assert_eq!(backends.each_ref().map(UdpBackend::peers), [2, 2]);
    assert_eq!(sessions(&mizan), 4.0);
}

#[test]
fn a_backend_that_left_or_is_drained_gets_no_more() {
    let (backends, addresses) = two();
    let round = "policy = \"round_robin\"";
    let mizan = start("", round, &addresses);
    let clients: Vec<_> = (0..4).map(|_| client(&mizan)).collect();
    clients.iter().for_each(|client| drop(client.ask("x")));
    let output = mizan.command(&["drain", &format!("api/{}", addresses[0])]);
    assert!(output.status.success(), "{output:?}");
    assert!(clients.iter().all(|client| client.ask("x") == "b:x"));
    // Those that moved hold no place there any more.
    let output = mizan.command(&[
        "drain",
        &format!("api/{}", addresses[0]),
        "--wait",
        "--timeout",
        "5s",
    ]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(backends[0].received(), 2);
    let third = UdpBackend::named("c");
    reload(&mizan, &config("", round, &[third.address()]));
    assert!(clients.iter().all(|client| client.ask("x") == "c:x"));
}

#[test]
fn a_listener_that_goes_closes_its_socket_and_ends_its_sessions() {
    let backend = UdpBackend::named("a");
    let mizan = start("", "", &[backend.address()]);
    let client = client(&mizan);
    assert_eq!(client.ask("x"), "a:x");
    let other = config("", "", &[backend.address()]);
    reload(&mizan, &other.replace("{listen}", "{listen2}"));
    eventually(PATIENCE, "the port is closed", || client.is_refused());
    assert_eq!(lines(&mizan, 1)[0]["protocol"], "udp");
    assert_eq!(UdpClient::new(mizan.address2()).ask("y"), "a:y");
    reload(&mizan, &other);
    assert_eq!(client.insist("z"), "a:z");
}

#[test]
fn sessions_are_load_and_a_client_s_address_keeps_its_backend() {
    let (backends, addresses) = two();
    let mizan = start("", "policy = \"least_connections\"", &addresses);
    let clients: Vec<_> = (0..10).map(|_| client(&mizan)).collect();
    clients.iter().for_each(|client| drop(client.ask("x")));
    assert_eq!(backends.each_ref().map(UdpBackend::peers), [5, 5]);
    // Each is told for the process, for its pool and for its backend.
    assert_eq!(mizan.in_flight(), 3 * 10);
    let hashing = "policy = \"consistent_hash\"\nhash_key = \"client_address\"";
    let mizan = start("", hashing, &addresses);
    let answers: Vec<_> = (0..10).map(|_| client(&mizan).ask("x")).collect();
    assert!(
        answers.iter().all(|answer| *answer == answers[0]),
        "{answers:?}"
    );
}

#[test]
fn a_drain_serves_until_its_window_is_over_and_waits_no_longer() {
    let backend = UdpBackend::named("a");
    let drain = "[drain]\nwindow = \"1s\"\ndeadline = \"60s\"\n";
    let mut mizan = Mizan::start(&format!("{}{drain}", config("", "", &[backend.address()])));
    let (stays, begin) = (client(&mizan), now());
    assert_eq!(stays.ask("x"), "a:x");
    mizan.signal(Signal::TERM);
    eventually(PATIENCE, "the drain begins", || {
        mizan.readiness() == Some(503)
    });
    assert_eq!(stays.ask("still"), "a:still");
    assert_eq!(client(&mizan).ask("new"), "a:new");
    assert_eq!(mizan.wait(PATIENCE).code(), Some(0));
    assert!(now() > begin + Duration::from_secs(1));
    assert!(
        mizan.log().contains("0 requests were cut"),
        "{}",
        mizan.log()
    );
    assert_eq!(lines(&mizan, 2).len(), 2);
}

#[test]
fn metrics_count_datagrams_bytes_and_sessions() {
    let backend = UdpBackend::named("a");
    let mizan = start("", "", &[backend.address()]);
    let clients = [client(&mizan), client(&mizan)];
    for client in &clients {
        client.send("four");
        client.receive();
        client.ask("four");
    }
    for (name, label, value) in [
        ("mizan_connections", "dns", 2.0),
        ("mizan_connections_accepted_total", "dns", 2.0),
        ("mizan_datagrams_received_total", "dns", 4.0),
        ("mizan_datagrams_sent_total", "dns", 4.0),
        ("mizan_received_bytes_total", "dns", 16.0),
        ("mizan_sent_bytes_total", "dns", 24.0),
        ("mizan_requests_in_flight", "dns", 2.0),
        ("mizan_upstream_connections", "api", 2.0),
        ("mizan_upstream_latency_seconds_count", "api", 2.0),
        ("mizan_datagrams_dropped_total", "dns", 0.0),
    ] {
        assert_eq!(mizan.metric(name, label), value, "{name}");
    }
}

#[test]
fn a_flood_of_made_up_clients_starves_neither_sessions_nor_http() {
    let _alone = alone();
    let (datagrams, http) = (UdpBackend::named("a"), Backend::healthy("web"));
    let udp = config("sessions_max = 200", "", &[datagrams.address()]);
    let mizan = Mizan::start(&format!(
        "{udp}\n[[listener]]\nbind = \"{{listen2}}\"\n[[route]]\npool = \"web\"\n[pool.web]\nbackends = [\"{}\"]\n",
        http.address()
    ));
    let served = client(&mizan);
    assert_eq!(served.ask("before"), "a:before");
    let (over, to) = (AtomicBool::new(false), mizan.address());
    let report = std::thread::scope(|scope| {
        let flood = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                // A port of its own each time, and no ear for an answer.
                let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
                for _ in 0..20 {
                    let _ = socket.send_to(b"flood", to);
                }
            }
        });
        let load = Load::start(mizan.address2(), Plan::default());
        eventually(PATIENCE, "the flood is at the limit", || {
            dropped(&mizan, "limit") > 10_000.0
        });
        load.wait_for(2_000);
        // Datagrams may be lost where the kernel's queue is full, never the session.
        assert_eq!(served.insist("during"), "a:during");
        over.store(true, Ordering::Relaxed);
        let report = load.stop();
        flood.join().expect("it floods");
        report
    });
    report.expect_no_failure();
    assert!(sessions(&mizan) <= 200.0);
    assert_eq!(
        mizan.metric("mizan_connections_accepted_total", "dns"),
        200.0
    );
}

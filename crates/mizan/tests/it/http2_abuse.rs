//! Clients that abuse HTTP/2: each costs little, meets one line in the log, and harms nobody else (RFC 9113 §10.5).

use crate::support::frames::{
    self, ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, Fate, Frames, GOAWAY, HEADERS, PING,
    PRIORITY, RST_STREAM, SETTINGS, WINDOW_UPDATE,
};
use crate::support::*;
use std::time::Duration;

const MIB: u64 = 1 << 20;
const ENHANCE_YOUR_CALM: u32 = 11;

/// Mizan with somebody else who uses it meanwhile.
struct Scene {
    mizan: Mizan,
    backend: Backend,
    before: u64,
    others: Load,
}

impl Scene {
    fn start(listener: &str) -> Self {
        let backend = Backend::start(|exchange| match exchange.target() {
            "/never" => exchange.hang(),
            _ => exchange.serve(),
        });
        let mizan = Mizan::start(&config(listener, "", &[backend.address()]));
        let others = Load::start(
            mizan.address(),
            Plan {
                clients: 2,
                ..Plan::default()
            },
        );
        others.wait_for(50);
        let before = mizan.resident_bytes();
        Self {
            mizan,
            backend,
            before,
            others,
        }
    }

    fn client(&self) -> Frames {
        Frames::open(self.mizan.address(), &[])
    }

    /// Nobody else has noticed, and it cost little.
    #[track_caller]
    fn expect_unharmed(self) -> Mizan {
        let grown = self.mizan.resident_bytes().saturating_sub(self.before);
        assert!(grown < 24 * MIB, "{} MiB more", grown / MIB);
        self.others.wait_for(20);
        let report = self.others.stop();
        report.expect_no_failure();
        let slowest = report.latency(1.0, Duration::ZERO, Duration::MAX);
        assert!(
            slowest < Duration::from_secs(3),
            "somebody waited {slowest:?}"
        );
        eventually(PATIENCE, "all places are given back", || {
            self.mizan.in_flight() == 0
        });
        drop(self.backend);
        self.mizan
    }
}

/// Lines that name the client, and what it broke.
#[track_caller]
fn expect_one_line(mizan: &Mizan, rule: &str) {
    let is_line = |line: &&str| line.contains("broke a rule or a limit of HTTP/2");
    eventually(PATIENCE, "the breach is logged", || {
        mizan.log().lines().any(|line| is_line(&line))
    });
    let log = mizan.log();
    let lines: Vec<_> = log.lines().filter(is_line).collect();
    assert_eq!(lines.len(), 1, "{lines:#?}");
    for part in [rule, "127.0.0.1", "listener"] {
        assert!(lines[0].contains(part), "no {part} in {}", lines[0]);
    }
}

/// How a connection ended: the code of its GOAWAY, or without a word.
fn end(client: &mut Frames) -> Fate {
    match client.until(|frame| frame.kind == GOAWAY && frame.code() != Some(0)) {
        Some(frame) => Fate::GoAway(frame.code().unwrap_or_default()),
        None => Fate::Closed,
    }
}

#[test]
fn a_rapid_reset_is_ended() {
    let scene = Scene::start("");
    let mut client = scene.client();
    for number in 0..20_000 {
        let stream = 2 * number + 1;
        let head = frames::block(&frames::request("GET", "/never"));
        let mut both = frames::frame(HEADERS, END_HEADERS | END_STREAM, stream, &head);
        both.extend(frames::frame(RST_STREAM, 0, stream, &8u32.to_be_bytes()));
        if !client.raw(&both) {
            break;
        }
    }
    assert!(matches!(
        end(&mut client),
        Fate::GoAway(ENHANCE_YOUR_CALM) | Fate::Closed
    ));
    let reached = scene.backend.busy();
    assert!(
        reached < 200,
        "{reached} of its requests are at the backend"
    );
    expect_one_line(&scene.expect_unharmed(), "excessive load");
}

#[test]
fn a_flood_of_continuation_is_ended() {
    let scene = Scene::start("");
    let mut client = scene.client();
    let head = frames::block(&frames::request("GET", "/"));
    client.send(HEADERS, END_STREAM, 1, &head);
    let piece = frames::block(&[("x-a", "b")]);
    let sent = (0..100_000).find(|_| !client.send(CONTINUATION, 0, 1, &piece));
    assert!(sent.is_some(), "it takes all");
    expect_one_line(&scene.expect_unharmed(), "excessive load");
}

#[test]
fn a_flood_of_empty_data_is_ended() {
    let scene = Scene::start("");
    let mut client = scene.client();
    client.head(1, 0, &frames::request("POST", "/never"));
    let empty = frames::frame(DATA, 0, 1, b"").repeat(100);
    let sent = (0..10_000).find(|_| !client.raw(&empty));
    assert!(sent.is_some(), "it takes all");
    expect_one_line(&scene.expect_unharmed(), "excessive load");
}

/// Frames that move no stream.
fn idle_frames() -> [Vec<u8>; 7] {
    [
        frames::frame(PING, 0, 0, b"12345678"),
        frames::frame(PING, ACK, 0, b"12345678"),
        frames::frame(SETTINGS, 0, 0, &frames::setting(4, 65_535)),
        frames::frame(SETTINGS, 0, 0, b""),
        frames::frame(PRIORITY, 0, 3, &[0, 0, 0, 1, 16]),
        frames::frame(WINDOW_UPDATE, 0, 0, &1u32.to_be_bytes()),
        frames::frame(0xfa, 0, 0, b"of no known kind"),
    ]
}

#[test]
fn floods_of_frames_that_move_no_stream_are_ended() {
    for flood in idle_frames() {
        let scene = Scene::start("");
        let mut client = scene.client();
        // What is answered is read: nothing else would hold the flood up.
        let mut reading = client.stream().try_clone().expect("a socket");
        let reader = std::thread::spawn(move || std::io::copy(&mut reading, &mut std::io::sink()));
        let many = flood.repeat(1_000);
        let sent = (0..1_000).find(|_| !client.raw(&many));
        assert!(sent.is_some(), "it takes all of {flood:?}");
        let _ = reader.join();
        expect_one_line(&scene.expect_unharmed(), "control_frames_per_second_max");
    }
}

#[test]
fn who_floods_and_reads_nothing_costs_nobody_else() {
    let scene = Scene::start("");
    for flood in idle_frames() {
        let mut client = scene.client();
        client
            .stream()
            .set_write_timeout(Some(Duration::from_millis(300)))
            .expect("a time");
        let many = flood.repeat(1_000);
        let _ = (0..50).find(|_| !client.raw(&many));
    }
    let mizan = scene.expect_unharmed();
    let lines = mizan.log().lines().count();
    assert!(lines < 20, "{lines} lines in the log");
}

/// Each request with its priority and its window, more of them than the limit by far.
#[test]
fn frames_that_come_with_requests_are_no_flood() {
    let backend = Backend::healthy("a");
    let listener = "http2_limits = { control_frames_per_second_max = 100 }";
    let mizan = Mizan::start(&config(listener, "", &[backend.address()]));
    let mut client = Frames::open(mizan.address(), &[]);
    for number in 0..300 {
        let stream = 2 * number + 1;
        client.send(PRIORITY, 0, stream, &[0, 0, 0, 0, 16]);
        client.get(stream, "/");
        client.send(WINDOW_UPDATE, 0, stream, &65_535u32.to_be_bytes());
        assert_eq!(client.fate(stream), Fate::Status(200));
        client.send(WINDOW_UPDATE, 0, 0, &100u32.to_be_bytes());
    }
}

#[test]
fn who_takes_back_too_many_streams_at_once_is_ended_then_and_there() {
    let scene = Scene::start("http2_limits = { resets_per_second_max = 50 }");
    let mut client = scene.client();
    let streams = (0..100).map(|number| 2 * number + 1);
    for stream in streams.clone() {
        client.get(stream, "/never");
    }
    eventually(PATIENCE, "they are at the backend", || {
        scene.backend.busy() >= 100
    });
    let resets: Vec<u8> = streams
        .flat_map(|stream| frames::frame(RST_STREAM, 0, stream, &8u32.to_be_bytes()))
        .collect();
    client.raw(&resets);
    // No further stream has to begin.
    assert_eq!(end(&mut client), Fate::GoAway(ENHANCE_YOUR_CALM));
    expect_one_line(&scene.expect_unharmed(), "resets_per_second_max");
}

#[test]
fn a_head_that_unpacks_to_more_than_the_limit_is_refused() {
    let scene = Scene::start("");
    let mut client = scene.client();
    // Into the table once, then by its index: a byte for four thousand.
    let mut head = frames::block(&frames::request("GET", "/"));
    head.extend(b"\x40\x03x-a\x7f\x81\x1e");
    head.extend([b'v'; 4_000]);
    head.extend([0xbe; 2_000]);
    client.send(HEADERS, END_HEADERS | END_STREAM, 1, &head);
    let fate = client.fate(1);
    assert!(
        matches!(fate, Fate::Status(431) | Fate::Reset(_) | Fate::GoAway(_)),
        "{fate:?}"
    );
    scene.expect_unharmed();
}

#[test]
fn a_head_over_the_limit_is_431_and_the_connection_lives() {
    let backend = Backend::healthy("a");
    let listener = "head_max = \"8KiB\"\ntarget_max = \"1KiB\"\nheaders_max = 50";
    let mizan = Mizan::start(&config(listener, "", &[backend.address()]));
    let long = "v".repeat(9_000);
    let many: Vec<String> = (0..60).map(|number| format!("x-{number}")).collect();
    let too_long = vec![("x-a", long.as_str())];
    let too_many = many.iter().map(|name| (name.as_str(), "")).collect();
    for more in [too_long, too_many] {
        let mut client = Frames::open(mizan.address(), &[]);
        let mut lines = frames::request("GET", "/").to_vec();
        lines.extend(more);
        client.head(1, END_STREAM, &lines);
        assert_eq!(client.fate(1), Fate::Status(431));
        client.get(3, "/");
        assert_eq!(client.fate(3), Fate::Status(200));
    }
    assert_eq!(backend.requests(), 2);
}

#[test]
fn tricks_with_windows_end_what_they_are_played_on() {
    let scene = Scene::start("");
    let most = 0x7fff_ffffu32.to_be_bytes();
    // Of the connection; of a stream; by settings; by nothing.
    let mut client = scene.client();
    client.send(WINDOW_UPDATE, 0, 0, &most);
    assert_eq!(end(&mut client), Fate::GoAway(3));
    let mut client = scene.client();
    client.head(1, 0, &frames::request("POST", "/never"));
    client.send(WINDOW_UPDATE, 0, 1, &most);
    assert!(matches!(client.fate(1), Fate::Reset(3) | Fate::GoAway(3)));
    let mut client = scene.client();
    client.send(SETTINGS, 0, 0, &frames::setting(4, 0x8000_0000));
    assert!(matches!(end(&mut client), Fate::GoAway(_) | Fate::Closed));
    let mut client = scene.client();
    client.send(WINDOW_UPDATE, 0, 0, &0u32.to_be_bytes());
    assert!(matches!(end(&mut client), Fate::GoAway(_) | Fate::Closed));
    // More than the window: half as much again as Mizan lets a stream have.
    let mut client = scene.client();
    client.head(1, 0, &frames::request("POST", "/never"));
    let piece = vec![0; 16 << 10];
    let _ = (0..1_000).find(|_| !client.send(DATA, 0, 1, &piece));
    assert!(matches!(
        client.fate(1),
        Fate::Reset(3) | Fate::GoAway(3) | Fate::Closed
    ));
    scene.expect_unharmed();
}

/// What is wrong, the frame, and the code that it is answered with.
type Breach = (&'static str, u8, u8, u32, Vec<u8>, u32);

fn breaches() -> Vec<Breach> {
    let head = frames::block(&frames::request("GET", "/"));
    let whole = END_HEADERS | END_STREAM;
    let one = vec![0, 0, 0, 1];
    vec![
        ("an oversized frame", DATA, 0, 1, vec![0; (16 << 10) + 1], 6),
        ("an even stream", HEADERS, whole, 2, head.clone(), 1),
        ("stream 0", HEADERS, whole, 0, head.clone(), 1),
        ("data of an idle stream", DATA, 0, 5, vec![0], 1),
        (
            "an update of an idle stream",
            WINDOW_UPDATE,
            0,
            5,
            one.clone(),
            1,
        ),
        ("a reset of an idle stream", RST_STREAM, 0, 5, one, 1),
        (
            "a continuation of nothing",
            CONTINUATION,
            END_HEADERS,
            1,
            head,
            1,
        ),
        ("a short ping", PING, 0, 0, vec![0; 4], 6),
        ("settings of a stream", SETTINGS, 0, 1, vec![], 1),
        (
            "an acknowledgement with settings",
            SETTINGS,
            ACK,
            0,
            vec![0; 6],
            6,
        ),
        ("a promise", 5, END_HEADERS, 1, vec![0, 0, 0, 2], 1),
        ("broken HPACK", HEADERS, whole, 1, vec![0xff; 5], 9),
    ]
}

#[test]
fn frames_that_break_the_rules_end_the_connection_with_the_reason() {
    let scene = Scene::start("");
    for (what, kind, flags, stream, payload, code) in breaches() {
        let mut client = scene.client();
        client.send(kind, flags, stream, &payload);
        let end = end(&mut client);
        // The library calls some of them by the general name.
        let is_named = end == Fate::GoAway(code) || end == Fate::GoAway(1);
        assert!(is_named, "{what} came to {end:?}");
    }
    // A stream that was closed cannot be opened again, and a lower one cannot either.
    let mut client = scene.client();
    client.get(5, "/");
    assert_eq!(client.fate(5), Fate::Status(200));
    client.get(3, "/");
    let end = client.fate(3);
    assert!(!matches!(end, Fate::Status(_)), "{end:?}");
    scene.expect_unharmed();
}

#[test]
fn more_streams_than_allowed_are_refused_and_the_rest_is_served() {
    let backend = H2Backend::start(Call::hang);
    let text = config(
        "http2_limits = { streams_max = 5 }",
        "protocol = \"http2\"",
        &[backend.address()],
    );
    let mizan = Mizan::start(&text);
    let mut client = Frames::open(mizan.address(), &[]);
    for number in 0..5 {
        client.get(2 * number + 1, "/");
    }
    eventually(PATIENCE, "they are on their way", || {
        backend.requests() == 5
    });
    client.get(11, "/");
    assert_eq!(client.fate(11), Fate::Reset(7));
    backend.set_script(Call::serve);
    client.send(RST_STREAM, 0, 1, &8u32.to_be_bytes());
    eventually(PATIENCE, "it is given up", || backend.resets().len() == 1);
    client.get(13, "/");
    assert_eq!(client.fate(13), Fate::Status(200));
}

#[test]
fn a_client_that_says_half_a_hello_is_cut_in_time() {
    let backend = Backend::healthy("a");
    let listener = "timeouts = { header = \"300ms\" }";
    let mizan = Mizan::start(&config(listener, "", &[backend.address()]));
    let mut slow: Vec<_> = (0..50).map(|_| mizan.client()).collect();
    for client in &mut slow {
        client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n");
    }
    assert_eq!(H2Client::connect(mizan.address()).get("/").status, 200);
    for client in &mut slow {
        assert!(client.read_to_end().1.is_ok(), "still open");
    }
    eventually(PATIENCE, "they are closed", || {
        mizan.metric("mizan_connections", "") <= 1.0
    });
}

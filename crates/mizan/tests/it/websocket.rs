//! WebSockets, frame by frame: what passes through Mizan is what a direct connection would carry, byte by byte, each
//! way, whatever it is. The groups are those of the Autobahn suite.

use crate::support::websocket::{BINARY, CLOSE, Heard, PING, PONG, TEXT, echo, echo_h2};
use crate::support::*;
use std::net::SocketAddr;

/// A conversation that the backend ends.
struct Case {
    name: String,
    path: &'static str,
    frames: Vec<Frame>,
    /// Sent in pieces of so many bytes.
    chop: usize,
}

impl Case {
    /// These frames, then a close; at once, and `/echo`ed.
    fn new(name: impl Into<String>, mut frames: Vec<Frame>) -> Self {
        frames.push(Frame::close(1000, ""));
        Self {
            name: name.into(),
            path: "/echo",
            frames,
            chop: usize::MAX,
        }
    }

    fn chopped(self, chop: usize) -> Self {
        Self { chop, ..self }
    }

    fn to(self, path: &'static str) -> Self {
        Self { path, ..self }
    }
}

/// Mizan between backends that echo over HTTP/1.1 and over HTTP/2, and three ways to it.
struct World {
    direct: SocketAddr,
    heard: Heard,
    mizan: Mizan,
    secured: Relay,
    client: H2Client,
    _backends: (RawBackend, H2Backend),
}

impl World {
    fn start() -> Self {
        let heard = Heard::default();
        let (one, two) = (echo(&heard), echo_h2(&heard));
        let authority = Authority::new();
        let listed = authority.issue(&["a.example"]);
        let mut text = format!(
            "[[listener]]\nbind = \"{{listen}}\"\n[[listener]]\nbind = \"{{listen2}}\"\n[listener.tls]\ncertificates = [{}]\n",
            listed.entry()
        );
        for (name, address, more) in [
            ("one", one.address(), ""),
            ("two", two.address(), "protocol = \"http2\""),
        ] {
            text.push_str(&format!(
                "[[route]]\nhost = \"{name}.example\"\npool = \"{name}\"\n[pool.{name}]\nbackends = [\"{address}\"]\n{more}\n"
            ));
        }
        let mizan = Mizan::start(&text);
        let client = H2Client::connect(mizan.address());
        // By then Mizan has said that it takes extended CONNECTs.
        assert_eq!(client.get("/").status, 404);
        Self {
            direct: one.address(),
            heard,
            secured: Relay::back(authority.client(&[]), mizan.address2(), "a.example"),
            client,
            mizan,
            _backends: (one, two),
        }
    }

    /// What the client and the backend got.
    #[track_caller]
    fn play(&self, socket: WebSocket, pieces: &[&[u8]]) -> (Vec<u8>, Vec<u8>) {
        let read = socket.play(pieces);
        let heard = locked(&self.heard)
            .pop()
            .expect("the backend tells before it closes");
        (read, heard)
    }

    /// Plays each case directly, then in all ways: the same must come out.
    #[track_caller]
    fn same(&self, cases: &[Case]) {
        for case in cases {
            let bytes: Vec<u8> = case.frames.iter().flat_map(Frame::bytes).collect();
            let pieces: Vec<&[u8]> = bytes.chunks(case.chop.min(bytes.len())).collect();
            let direct = WebSocket::open(self.direct, "a.example", case.path, b"");
            let expected = self.play(direct, &pieces);
            assert!(expected.1 == bytes, "{}: the backend hears all", case.name);
            let answers = Frame::all(&expected.0);
            assert!(answers.0.last().is_some_and(|last| last.first == CLOSE));
            assert_eq!(answers.1, 0, "{}: whole frames", case.name);
            for host in ["one.example", "two.example"] {
                for (way, socket) in [
                    (
                        "plain",
                        WebSocket::open(self.mizan.address(), host, case.path, b""),
                    ),
                    (
                        "TLS",
                        WebSocket::open(self.secured.address, host, case.path, b""),
                    ),
                    ("HTTP/2", WebSocket::over(&self.client, host, case.path)),
                ] {
                    let got = self.play(socket, &pieces);
                    let what = || format!("{} over {way} to {host}", case.name);
                    assert!(got.0 == expected.0, "{}: downward", what());
                    assert!(got.1 == expected.1, "{}: upward", what());
                }
            }
        }
    }
}

/// Bytes that differ all along.
fn payload(length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| b' ' + (at * 7 / 3 % 90) as u8)
        .collect()
}

/// A message in frames of so many bytes.
fn fragments(opcode: u8, message: &[u8], size: usize) -> Vec<Frame> {
    let count = message.len().div_ceil(size);
    let parts = message.chunks(size).enumerate();
    parts
        .map(|(index, part)| {
            let opcode = if index == 0 { opcode & 0x0f } else { 0 };
            Frame::masked(opcode | u8::from(index + 1 == count) << 7, part)
        })
        .collect()
}

#[test]
fn frames_of_every_form_of_length_pass_whole_and_chopped() {
    let mut cases = Vec::new();
    for opcode in [TEXT, BINARY] {
        for length in [0, 125, 126, 127, 128, 65_535, 65_536] {
            let frame = Frame::masked(opcode, payload(length));
            let name = format!("1: {length} bytes of {opcode:#x}");
            cases.push(Case::new(&name, vec![frame.clone()]));
            let chop = if length > 1_000 { 997 } else { 1 };
            cases.push(Case::new(format!("{name} in pieces"), vec![frame]).chopped(chop));
        }
    }
    World::start().same(&cases);
}

#[test]
fn pings_and_pongs_pass() {
    let pings = |count: u8| (0..count).map(|at| Frame::masked(PING, [at; 9])).collect();
    World::start().same(&[
        Case::new("2: an empty ping", vec![Frame::masked(PING, [])]),
        Case::new("2: a long ping", vec![Frame::masked(PING, payload(125))]),
        Case::new(
            "2: a binary ping",
            vec![Frame::masked(PING, [0, 0xff, 0xfe])],
        )
        .chopped(1),
        Case::new("2: ten pings", pings(10)),
        Case::new("2: ten pings, chopped", pings(10)).chopped(1),
        Case::new(
            "2: an unasked pong",
            vec![Frame::masked(PONG, "unasked"), Frame::masked(PING, "x")],
        ),
    ]);
}

#[test]
fn reserved_bits_and_opcodes_are_for_the_backend_to_judge() {
    let hello = Frame::masked(TEXT, "hello");
    let reserved_bits = [0x40, 0x20, 0x60, 0x10, 0x50, 0x30, 0x70];
    let bits = reserved_bits.map(|bits| (3, 0x81 | bits));
    let opcodes =
        [0x83, 0x84, 0x85, 0x86, 0x87, 0x8b, 0x8c, 0x8d, 0x8e, 0x8f].map(|first| (4, first));
    let cases: Vec<_> = bits
        .into_iter()
        .chain(opcodes)
        .map(|(group, first)| {
            let odd = Frame::masked(first, payload(40));
            let frames = vec![hello.clone(), odd, hello.clone()];
            Case::new(format!("{group}: {first:#x}"), frames)
        })
        .collect();
    World::start().same(&cases);
}

#[test]
fn what_breaks_the_rules_of_frames_passes_too() {
    let long_ping = Frame::masked(PING, payload(126));
    let open_ping = Frame::masked(PING & 0x7f, "part");
    let hello = Frame::masked(TEXT, "hello");
    World::start().same(&[
        Case::new(
            "2: a ping that is too long",
            vec![hello.clone(), long_ping, hello.clone()],
        ),
        Case::new(
            "5: a fragmented ping",
            vec![hello.clone(), open_ping, hello.clone()],
        ),
        Case::new(
            "5: a continuation of nothing",
            vec![Frame::masked(0x80, "x"), hello.clone()],
        ),
        Case::new(
            "5: a message within a message",
            vec![Frame::masked(0x01, "x"), hello],
        ),
    ]);
}

#[test]
fn fragments_pass_with_control_frames_between_them() {
    let mut with_pings = Vec::new();
    for (at, fragment) in fragments(TEXT, &payload(700), 100).into_iter().enumerate() {
        with_pings.extend([fragment, Frame::masked(PING, [at as u8])]);
    }
    let empty = vec![
        Frame::masked(0x01, ""),
        Frame::masked(0x00, ""),
        Frame::masked(PONG, "pong"),
        Frame::masked(0x80, ""),
    ];
    World::start().same(&[
        Case::new("5: two fragments", fragments(BINARY, b"fragment", 4)),
        Case::new("5: pings between", with_pings.clone()),
        Case::new("5: pings between, chopped", with_pings).chopped(1),
        Case::new("5: empty fragments", empty),
    ]);
}

#[test]
fn text_that_is_no_text_passes() {
    let bad: [&[u8]; 6] = [
        b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited",
        b"\xf4\x90\x80\x80",
        b"\xc0\xaf",
        b"\xff",
        b"\xe2\x82",
        b"\0\x01\x7f",
    ];
    let mut cases: Vec<_> = bad
        .iter()
        .map(|text| {
            Case::new(
                format!("6: {}", text.escape_ascii()),
                vec![Frame::masked(TEXT, *text)],
            )
        })
        .collect();
    let greek = "κόσμε".as_bytes();
    cases.push(Case::new(
        "6: a letter at a time",
        fragments(TEXT, greek, 1),
    ));
    cases.push(Case::new("6: a byte at a time", vec![Frame::masked(TEXT, greek)]).chopped(1));
    World::start().same(&cases);
}

#[test]
fn closes_pass_both_ways_whatever_their_code() {
    let codes = [
        1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 3000, 3999, 4000, 4999, 0, 999,
        1004, 1005, 1006, 5000,
    ];
    let close = |frame| Case {
        frames: vec![frame],
        ..Case::new("7: a client's close", Vec::new())
    };
    let mut cases: Vec<_> = codes
        .iter()
        .map(|code| close(Frame::close(*code, "why")))
        .collect();
    cases.push(close(Frame::masked(CLOSE, "")));
    cases.push(close(Frame::masked(CLOSE, [3])));
    cases.push(close(Frame::close(1000, &"x".repeat(123))));
    cases.push(close(Frame::close(1000, "\u{fffd}")).chopped(1));
    for path in [
        "/close/1000",
        "/close/1001",
        "/close/1011",
        "/close/4000",
        "/close/0",
    ] {
        cases.push(Case::new(format!("7: {path}"), Vec::new()).to(path));
    }
    World::start().same(&cases);
}

#[test]
fn nothing_that_follows_a_close_is_lost_or_moved() {
    let frames = [Frame::close(1000, ""), Frame::masked(TEXT, "too late")];
    let world = World::start();
    let bytes: Vec<u8> = frames.iter().flat_map(Frame::bytes).collect();
    let expected = Frame {
        key: None,
        ..Frame::close(1000, "")
    }
    .bytes();
    for host in ["one.example", "two.example"] {
        let socket = WebSocket::open(world.mizan.address(), host, "/echo", &bytes);
        // The echo ends with the close; a reset behind it, for what it has not read, is the backend's.
        let (read, heard) = world.play(socket, &[]);
        assert!(read == expected && heard == bytes, "{host}");
    }
}

#[test]
fn messages_of_16_mib_and_many_small_ones_pass() {
    let world = World::start();
    let mut cases = vec![
        Case::new("9: 16 MiB", vec![Frame::masked(BINARY, payload(16 << 20))]),
        Case::new(
            "9: 1 MiB of text",
            vec![Frame::masked(TEXT, payload(1 << 20))],
        ),
        Case::new(
            "9: 4 MiB in fragments",
            fragments(BINARY, &payload(4 << 20), 64 << 10),
        ),
        Case::new(
            "9: 256 KiB in small fragments",
            fragments(TEXT, &payload(256 << 10), 64),
        ),
    ];
    for length in [0, 16, 125, 1_024, 4_096] {
        let many = (0..1_000).map(|_| Frame::masked(BINARY, payload(length)));
        cases.push(Case::new(
            format!("9: a thousand messages of {length}"),
            many.collect(),
        ));
    }
    let one = vec![Frame::masked(TEXT, payload(1 << 20))];
    cases.push(Case::new("9: 1 MiB in pieces of 256", one).chopped(256));
    world.same(&cases);
}

#[test]
fn messages_that_the_backend_fragments_pass() {
    let message = || vec![Frame::masked(TEXT, payload(65_536))];
    World::start().same(&[
        Case::new("10: in frames of 1,300", message()).to("/fragments/1300"),
        Case::new("10: in frames of 126", message()).to("/fragments/126"),
        Case::new(
            "10: in frames of 1",
            vec![Frame::masked(BINARY, payload(500))],
        )
        .to("/fragments/1"),
    ]);
}

#[test]
fn early_bytes_of_either_side_are_not_lost() {
    let world = World::start();
    let frames = [Frame::masked(TEXT, payload(20_000)), Frame::close(1000, "")];
    let bytes: Vec<u8> = frames.iter().flat_map(Frame::bytes).collect();
    for host in ["one.example", "two.example"] {
        for address in [world.mizan.address(), world.secured.address] {
            // All of it comes with the head of the request, and the hello with that of the answer.
            let socket = WebSocket::open(address, host, "/early", &bytes);
            let (read, heard) = world.play(socket, &[]);
            let (frames, rest) = Frame::all(&read);
            let expected = [
                Frame::plain(TEXT, "hello"),
                Frame::plain(TEXT, payload(20_000)),
                Frame::plain(CLOSE, 1000u16.to_be_bytes()),
            ];
            assert!(
                frames == expected && rest == 0,
                "{host}: {} bytes",
                read.len()
            );
            assert!(heard == bytes, "{host}: upward");
        }
    }
}

//! WebSockets and calls of gRPC when Mizan is told to stop.

use crate::support::websocket::{BINARY, CLOSE, Heard, TEXT, accepted, echo, echo_h2};
use crate::support::*;
use crate::support::{h2_client, wire};
use http::{HeaderMap, Response};
use rustix::process::Signal;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn start(deadline: &str, pool: &str, backends: &[SocketAddr]) -> Mizan {
    Mizan::start(&format!(
        "{}[drain]\nwindow = \"0s\"\ndeadline = \"{deadline}\"\n",
        config("", pool, backends)
    ))
}

#[track_caller]
fn expect_nothing_cut(mizan: &mut Mizan) {
    assert_eq!(mizan.wait(2 * PATIENCE).code(), Some(0));
    eventually(PATIENCE, "nothing was cut", || {
        mizan.log().contains("0 requests were cut")
    });
}

#[track_caller]
fn wait_for_closing(mizan: &Mizan) {
    eventually(PATIENCE, "the listener closes", || {
        Client::try_connect(mizan.address()).is_err()
    });
}

/// What came of a client by when.
struct Watched {
    socket: WebSocket,
    read: Vec<u8>,
    closed: Option<Duration>,
    ended: bool,
}

impl Watched {
    fn new(socket: WebSocket) -> Self {
        Self {
            socket,
            read: Vec::new(),
            closed: None,
            ended: false,
        }
    }

    /// Reads what is there, without waiting.
    fn look(&mut self) {
        let WebSocket::Connection(wire) = &self.socket else {
            panic!("a stream");
        };
        let mut stream = wire.stream();
        stream.set_nonblocking(true).expect("a live socket");
        let mut room = [0; 4096];
        while !self.ended {
            match stream.read(&mut room) {
                Ok(0) => self.ended = true,
                Ok(count) => self.read.extend_from_slice(&room[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}: after {:?}", self.read),
            }
        }
        if self.closed.is_none()
            && Frame::all(&self.read)
                .0
                .iter()
                .any(|frame| frame.first == CLOSE)
        {
            self.closed = Some(now());
            // As a client does: its own close is the last thing that it says.
            let mut stream = stream;
            let _ = stream.write(&Frame::close(1012, "").bytes());
        }
    }
}

/// Whether `heard` ends with a masked close of 1001, and is whole frames before it.
fn ends_going_away(heard: &[u8]) -> bool {
    let (frames, rest) = Frame::all(heard);
    let last = frames.last();
    rest == 0 && last.is_some_and(|last| last.code() == Some(1001) && last.key.is_some())
}

#[test]
fn every_websocket_gets_a_close_at_a_time_of_its_own_and_every_call_ends() {
    let _alone = alone();
    let (sockets, calls) = if cfg!(debug_assertions) {
        (60, 10)
    } else {
        (1_000, 100)
    };
    const DEADLINE: Duration = Duration::from_secs(8);
    let heard = Heard::default();
    let backend = echo(&heard);
    let released = Arc::new(AtomicBool::new(false));
    let gate = Arc::clone(&released);
    let grpc = H2Backend::start(move |call| hold(call, Arc::clone(&gate)));
    let mut mizan = Mizan::start(&format!(
        "[[listener]]\nbind = \"{{listen}}\"\n[[route]]\nhost = \"g.example\"\npool = \"grpc\"\n[pool.grpc]\n\
         backends = [\"{}\"]\nprotocol = \"http2\"\n[[route]]\npool = \"api\"\n{}[drain]\nwindow = \"0s\"\ndeadline = \"8s\"\n",
        grpc.address(),
        pool_of("", &[backend.address()])
    ));
    let client = H2Client::connect(mizan.address());
    let ask = Ask::streamed("/a.B/Hold", b"\0\0\0\0\0".to_vec())
        .to("g.example")
        .field("content-type", "application/grpc")
        .field("te", "trailers");
    let client = Arc::new(client);
    let calls: Vec<_> = (0..calls)
        .map(|_| {
            let (client, ask) = (Arc::clone(&client), ask.clone());
            h2_client::RUNTIME.spawn(async move { client.ask(ask).await })
        })
        .collect();
    let mut watched: Vec<_> = (0..sockets)
        .map(|_| Watched::new(WebSocket::open(mizan.address(), "a.example", "/echo", b"")))
        .collect();
    eventually(PATIENCE, "all calls are there", || {
        grpc.requests() == calls.len()
    });
    let begin = now();
    mizan.signal(Signal::TERM);
    let half = begin + DEADLINE / 2;
    eventually(DEADLINE, "every WebSocket is closed", || {
        watched.iter_mut().for_each(Watched::look);
        // Calls go on while WebSockets leave.
        if now() > half {
            released.store(true, Ordering::SeqCst);
        }
        watched.iter().all(|watched| watched.ended)
    });
    released.store(true, Ordering::SeqCst);
    expect_spread(&watched, begin, DEADLINE);
    for call in calls {
        let answer = run(call).expect("no panic").expect("a whole answer");
        assert_eq!(
            (answer.status, answer.field("grpc-status")),
            (200, Some("0"))
        );
    }
    eventually(PATIENCE, "the connection of the calls ends", || {
        client.is_over()
    });
    expect_nothing_cut(&mut mizan);
    eventually(PATIENCE, "every backend has heard", || {
        locked(&heard).len() == sockets
    });
    assert!(locked(&heard).iter().all(|heard| ends_going_away(heard)));
}

/// Each was sent one close, and not all at once.
#[track_caller]
fn expect_spread(watched: &[Watched], begin: Duration, deadline: Duration) {
    let mut tenths = [0; 10];
    for watched in watched {
        let (frames, rest) = Frame::all(&watched.read);
        assert!(frames.len() == 1 && rest == 0, "{:?}", watched.read);
        assert_eq!((frames[0].code(), frames[0].key), (Some(1012), None));
        let after = watched.closed.expect("it was closed") - begin;
        tenths[(after.as_millis() * 10 / deadline.as_millis()) as usize] += 1;
    }
    // Spread over the first eight tenths, by chance.
    assert!(tenths[0] < watched.len() / 3, "{tenths:?}");
    assert!(
        tenths[4..].iter().sum::<usize>() > watched.len() / 4,
        "{tenths:?}"
    );
}

/// Answers a call when it is released.
async fn hold(mut call: Call, released: Arc<AtomicBool>) -> Result<(), h2::Error> {
    call.read().await?;
    let mut step = tokio::time::interval(Duration::from_millis(5));
    while !released.load(Ordering::SeqCst) {
        step.tick().await;
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
    let head = Response::builder().header("content-type", "application/grpc");
    call.respond_with(head, Some(b"\0\0\0\0\0"), &trailers)
        .await
}

#[test]
fn a_close_waits_for_the_end_of_the_frame_that_is_under_way() {
    let _alone = alone();
    let backend = RawBackend::start(|connection| {
        let mut wire = wire::Wire::new(connection.stream.try_clone().expect("a socket"));
        let Ok((head, _)) = wire.head() else {
            return;
        };
        let frame = Frame::plain(BINARY, vec![7; 100_000]).bytes();
        let _ = wire.send(&[accepted(&head).as_bytes(), &frame[..50_000]].concat());
        // The rest when the client's own is whole, long after the time to leave.
        let mut heard = Vec::new();
        while Frame::read(&heard).is_none() {
            match wire.some() {
                Ok(bytes) => heard.extend(bytes),
                Err(_) => return,
            }
        }
        let _ = wire.send(&frame[50_000..]);
        let _ = wire.rest(&mut heard);
        connection.hear(heard);
    });
    let mut mizan = start("8s", "", &[backend.address()]);
    let frame = Frame::masked(TEXT, vec![b'x'; 70_000]);
    let sockets: Vec<_> = (0..5)
        .map(|_| {
            let mut socket = WebSocket::open(mizan.address(), "a.example", "/", b"");
            socket.send(&frame.bytes()[..30_000]);
            socket
        })
        .collect();
    eventually(PATIENCE, "they are there", || backend.connections() == 5);
    let begin = now();
    mizan.signal(Signal::TERM);
    wait_for_closing(&mizan);
    // By then each should have left.
    pass((begin + Duration::from_millis(6_500)).saturating_sub(now()));
    assert_eq!(mizan.exited(), None);
    for mut socket in sockets {
        socket.send(&frame.bytes()[30_000..]);
        let whole = socket.read().expect("the frame");
        assert!(whole.payload == vec![7; 100_000]);
        assert_eq!(socket.read().expect("a close").code(), Some(1012));
        assert_eq!(socket.read(), Err(How::Closed));
    }
    expect_nothing_cut(&mut mizan);
    eventually(PATIENCE, "the backends have heard", || {
        backend.heard().len() == 5
    });
    for heard in backend.heard() {
        let (frames, _) = Frame::all(&heard);
        assert!(frames.len() == 2 && frames[0] == frame, "{}", frames.len());
        assert!(ends_going_away(&heard));
    }
}

#[test]
fn a_slow_reader_gets_whole_frames_and_its_close() {
    let _alone = alone();
    let backend = RawBackend::start(|connection| {
        let mut wire = wire::Wire::new(connection.stream.try_clone().expect("a socket"));
        let Ok((head, _)) = wire.head() else {
            return;
        };
        let mut sent = wire.send(accepted(&head).as_bytes());
        // Without end; the reader is slower than that.
        for number in 0u32.. {
            if sent.is_err() {
                break;
            }
            let mut payload = vec![number as u8; 30_000];
            payload[..4].copy_from_slice(&number.to_be_bytes());
            sent = wire.send(&Frame::plain(BINARY, payload).bytes());
        }
        let mut heard = Vec::new();
        let _ = wire.rest(&mut heard);
        connection.hear(heard);
    });
    let mut mizan = start("6s", "", &[backend.address()]);
    let mut sockets: Vec<_> = (0..4)
        .map(|_| WebSocket::open(mizan.address(), "a.example", "/", b""))
        .collect();
    for socket in &mut sockets {
        assert_eq!(socket.read().expect("a frame").payload.len(), 30_000);
    }
    let begin = now();
    mizan.signal(Signal::TERM);
    wait_for_closing(&mizan);
    // The ways to them are full now, in the midst of a frame as a rule.
    pass((begin + Duration::from_millis(5_000)).saturating_sub(now()));
    std::thread::scope(|scope| {
        for socket in &mut sockets {
            scope.spawn(|| read_to_close(socket));
        }
    });
    drop(sockets);
    expect_nothing_cut(&mut mizan);
}

/// Reads numbered frames, then a close.
fn read_to_close(socket: &mut WebSocket) {
    for number in 1u32.. {
        let frame = socket.read();
        let frame = frame.unwrap_or_else(|how| panic!("{how:?} instead of {number}"));
        if frame.first == CLOSE {
            assert_eq!(frame.code(), Some(1012));
            return;
        }
        let begin = frame.payload.first_chunk();
        assert_eq!(begin, Some(&number.to_be_bytes()), "none is lost");
    }
}

#[test]
fn over_http2_too_each_side_is_told() {
    let heard = Heard::default();
    for backend_is_http2 in [false, true] {
        let (one, two) = (echo(&heard), echo_h2(&heard));
        let (address, pool) = match backend_is_http2 {
            false => (one.address(), ""),
            true => (two.address(), "protocol = \"http2\""),
        };
        let mut mizan = start("3s", pool, &[address]);
        let client = H2Client::connect(mizan.address());
        let first = WebSocket::open(mizan.address(), "a.example", "/echo", b"");
        run(client.ask(Ask::get("/"))).expect("an answer, so that the settings are there");
        let sockets = vec![first, WebSocket::over(&client, "a.example", "/echo")];
        mizan.signal(Signal::TERM);
        let hello = Frame::masked(TEXT, "hello").bytes();
        // Each as it comes: what is unread when Mizan has gone, the library forgets.
        std::thread::scope(|scope| {
            for socket in sockets {
                scope.spawn(|| expect_close_at_the_end(&socket.play(&[&hello])));
            }
        });
        drop(client);
        expect_nothing_cut(&mut mizan);
        eventually(PATIENCE, "the backend has heard", || {
            locked(&heard)
                .iter()
                .filter(|heard| ends_going_away(heard))
                .count()
                == 2
        });
        locked(&heard).clear();
    }
}

fn expect_close_at_the_end(read: &[u8]) {
    let (frames, rest) = Frame::all(read);
    let (last, before) = frames.split_last().expect("a close");
    assert_eq!((last.code(), rest), (Some(1012), 0));
    let hello = Frame::plain(TEXT, "hello");
    assert!(before.iter().all(|frame| *frame == hello));
}

use super::super::socket::Socket;
use super::super::timer::Wheel;
use super::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};

/// A tunnel between two connections, with what is at their other ends, under a clock that a test turns.
struct World {
    client: TcpStream,
    backend: TcpStream,
    down: Transport,
    up: Transport,
    directions: Directions,
    wheel: Rc<Wheel>,
    timer: Timer,
    buffers: Rc<BufferPool>,
}

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("it is bound");
    let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
    (near.expect("it connects"), far.expect("it accepts").0)
}

impl World {
    async fn new() -> Self {
        let ((client, down), (backend, up)) = (pair().await, pair().await);
        let wheel = Wheel::new();
        Self {
            client,
            backend,
            down: Transport::Plain(Socket::Tcp(down)),
            up: Transport::Plain(Socket::Tcp(up)),
            directions: Directions::new(None, None),
            timer: Timer::new(&wheel),
            wheel,
            buffers: Rc::default(),
        }
    }

    /// The tunnel, which is silent for at most ten seconds and lasts for a minute; both ends with it, and the clock.
    fn split(
        &mut self,
    ) -> (
        impl Future<Output = Ended>,
        &mut TcpStream,
        &mut TcpStream,
        &Wheel,
    ) {
        let terms = Terms {
            timer: &self.timer,
            buffers: &self.buffers,
            idle: Duration::from_secs(10),
            until_ms: 60_000,
            websocket: None,
        };
        let transports = (&mut self.down, &mut self.up);
        let tunnel = tunnel(&mut self.directions, transports, terms, || {});
        (tunnel, &mut self.client, &mut self.backend, &self.wheel)
    }
}

/// Runs both to their ends, which must not take long.
async fn both<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> (A, B) {
    let ends = async { tokio::join!(a, b) };
    let ended = tokio::time::timeout(Duration::from_secs(15), ends).await;
    ended.expect("both end")
}

/// Two ends between which the kernel holds little; the first has the smaller window.
async fn narrow_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("it is bound");
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    // Before it connects: a window that was offered is not taken back.
    socket.set_recv_buffer_size(4096).expect("it is new");
    let (near, far) = tokio::join!(socket.connect(address), listener.accept());
    let far = far.expect("it accepts").0;
    let sent = socket2::SockRef::from(&far).set_send_buffer_size(4096);
    sent.expect("a live socket");
    (near.expect("it connects"), far)
}

#[tokio::test]
async fn an_answer_is_passed_on_though_its_backend_takes_no_more() {
    let world = World::new().await;
    // The question lies in the tunnel; the backend answered something else, and is gone with a byte unread.
    let mut question = world.buffers.large();
    question.room()[..4].copy_from_slice(b"more");
    question.filled(4);
    let World {
        mut backend,
        mut up,
        timer,
        buffers,
        ..
    } = world;
    // More than the way to this client holds at a time.
    let (mut client, near) = narrow_pair().await;
    let mut down = Transport::Plain(Socket::Tcp(near));
    let sent: Vec<u8> = (0..48_000u32).map(|at| (at / 7) as u8).collect();
    backend.write_all(&sent).await.expect("it is taken");
    std::future::poll_fn(|cx| up.poll_write(cx, b"x"))
        .await
        .expect("it is taken");
    backend.readable().await.expect("the byte comes");
    drop(backend);
    std::future::poll_fn(|cx| up.poll_read_ready(cx))
        .await
        .expect("news");
    let terms = Terms {
        timer: &timer,
        buffers: &buffers,
        idle: Duration::ZERO,
        until_ms: u64::MAX,
        websocket: None,
    };
    let mut directions = Directions::new(Some(question), None);
    let mut answers = 0;
    let mut answer = vec![0; sent.len()];
    let (ended, read) = both(
        tunnel(&mut directions, (&mut down, &mut up), terms, || {
            answers += 1
        }),
        client.read_exact(&mut answer),
    )
    .await;
    read.expect("the whole answer");
    assert!(answer == sent, "not as sent");
    assert_eq!((ended.why, ended.sent_down), (Why::BackendReset, 48_000));
    assert_eq!(answers, 1);
    drop(down);
    let end = client.read(&mut answer).await.map_err(|error| error.kind());
    assert_eq!(end, Err(std::io::ErrorKind::ConnectionReset));
}

#[tokio::test]
async fn each_side_s_end_is_passed_on_by_itself() {
    let mut world = World::new().await;
    let (tunnel, client, backend, _) = world.split();
    let (ended, ()) = both(tunnel, async {
        client.write_all(b"question").await.expect("it is taken");
        client.shutdown().await.expect("it is live");
        let mut question = Vec::new();
        backend.read_to_end(&mut question).await.expect("an end");
        assert_eq!(question, b"question");
        // The other way goes on.
        backend.write_all(b"answer").await.expect("it is taken");
        let mut answer = [0; 6];
        client.read_exact(&mut answer).await.expect("the answer");
        backend.shutdown().await.expect("it is live");
        assert_eq!(client.read(&mut answer).await.expect("an end"), 0);
    })
    .await;
    let expected = Ended {
        sent_up: 8,
        sent_down: 6,
        why: Why::ClosedByClient,
    };
    assert_eq!(ended, expected);
}

#[tokio::test]
async fn it_ends_after_ten_silent_seconds_and_after_a_minute_in_any_case() {
    for (silent, why, at) in [(true, Why::Idle, 10_000), (false, Why::TooLong, 60_000)] {
        let mut world = World::new().await;
        let (tunnel, client, backend, wheel) = world.split();
        let clock = async {
            let mut piece = [0; 1];
            for now in (0..100_000).step_by(1_000) {
                wheel.advance(now);
                if !silent && client.write_all(b"x").await.is_ok() {
                    let _ = backend.read(&mut piece).await;
                } else {
                    tokio::task::yield_now().await;
                }
            }
        };
        tokio::pin!(tunnel);
        tokio::select! {
            biased;
            ended = &mut tunnel => assert_eq!(ended.why, why),
            () = clock => panic!("it goes on"),
        }
        let now = wheel.now_ms();
        assert!((at..=at + 1_100).contains(&now), "{why:?} at {now}");
    }
}

#[tokio::test]
async fn while_nothing_moves_no_buffer_and_no_pipe_is_held() {
    const LENGTH: usize = 1 << 20;
    let mut world = World::new().await;
    let buffers = Rc::clone(&world.buffers);
    let (tunnel, client, backend, _) = world.split();
    let moved = async {
        for piece in [1, LENGTH, 1] {
            let sent = vec![b'x'; piece];
            let mut read = vec![0; piece];
            let (written, came) =
                both(client.write_all(&sent), backend.read_exact(&mut read)).await;
            written.expect("it is taken");
            came.expect("it comes");
        }
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        // Each buffer that is lent holds its pool.
        assert_eq!(Rc::strong_count(&buffers), 2);
    };
    tokio::select! {
        _ = tunnel => panic!("it ended"),
        () = moved => {}
    }
}

#[tokio::test]
async fn what_is_no_tcp_is_copied_however_much_it_is() {
    const LENGTH: usize = 1 << 20;
    let world = World::new().await;
    let (mut near, far) = UnixStream::pair().expect("a pair");
    let (mut client, mut down, mut up) = (
        world.client,
        world.down,
        Transport::Plain(Socket::Unix(far)),
    );
    let terms = Terms {
        timer: &world.timer,
        buffers: &world.buffers,
        idle: Duration::ZERO,
        until_ms: u64::MAX,
        websocket: None,
    };
    let mut directions = Directions::new(None, None);
    let tunnel = tunnel(&mut directions, (&mut down, &mut up), terms, || {});
    let (ended, ()) = both(tunnel, async {
        let sent: Vec<u8> = (0..LENGTH).map(|at| (at * 7 / 3) as u8).collect();
        let mut read = vec![0; LENGTH];
        let (written, came) = both(client.write_all(&sent), near.read_exact(&mut read)).await;
        written.expect("it is taken");
        came.expect("it comes");
        assert!(read == sent, "not as sent");
        drop(client);
        assert_eq!(near.read(&mut read).await.expect("an end"), 0);
        drop(near);
    })
    .await;
    assert_eq!(ended.sent_up, LENGTH as u64);
}

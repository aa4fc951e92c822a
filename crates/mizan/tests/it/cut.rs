//! What is in flight when Mizan ends is told, logged and counted.

use crate::support::*;
use rustix::process::Signal;
use serde_json::Value;
use std::time::Duration;

const UPGRADE: &str = "Connection: upgrade\r\nUpgrade: echo\r\n";
const GET: &str = "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";

/// A pool whose backend never answers but for half a body at `/half` and an upgrade at `/up`, with room for four
/// requests, and TCP beside it. One worker: on another, who waits could get the room of who was cut a moment before.
struct Scene {
    mizan: Mizan,
    backend: Backend,
    echo: RawBackend,
}

impl Scene {
    fn started(drain: &str) -> Self {
        let backend = Backend::start(|exchange| {
            match exchange.target() {
                "/half" => {
                    exchange.send("HTTP/1.1 200 OK\r\nContent-Length: 9000000\r\n\r\nhalf")?
                }
                "/up" => exchange.send(format!("HTTP/1.1 101 Up\r\n{UPGRADE}\r\nhello"))?,
                _ => {}
            }
            exchange.hang()
        });
        let echo = RawBackend::echo("hello");
        let mizan = Mizan::start(&format!(
            "workers = 1\n[[listener]]\nname = \"web\"\nbind = \"{{listen}}\"\n\
             [[listener]]\nname = \"raw\"\nbind = \"{{listen2}}\"\nkind = \"tcp\"\npool = \"echo\"\n\
             timeouts = {{ tunnel_idle = \"0s\" }}\n\
             [[route]]\npool = \"api\"\n\
             [pool.api]\nqueue = {{ timeout = \"60s\" }}\n\
             backends = [{{ address = \"{}\", in_flight_max = 4 }}]\n\
             [pool.echo]\nbackends = [\"{}\"]\n\
             [log]\naccess = \"{{dir}}/access.log\"\n[drain]\n{drain}\n",
            backend.address(),
            echo.address()
        ));
        Self {
            mizan,
            backend,
            echo,
        }
    }

    /// Sends into the pool; the backend then has `count` requests.
    fn sent(&self, request: &str, count: usize) -> Client {
        let mut client = self.mizan.client();
        client.send(request);
        eventually(PATIENCE, "the backend has the request", || {
            self.backend.requests() == count
        });
        client
    }

    fn lines(&self) -> Vec<Value> {
        let path = self.mizan.directory().join("access.log");
        let text = std::fs::read_to_string(path).expect("a log");
        let lines = text.lines().map(serde_json::from_str);
        lines.collect::<Result<_, _>>().expect("lines of JSON")
    }

    /// Whether a line says all this.
    #[track_caller]
    fn expect_line(&self, says: &[(&str, Value)]) {
        let lines = self.lines();
        let fits = |line: &Value| says.iter().all(|(key, value)| line[key] == *value);
        assert!(lines.iter().any(fits), "{says:?} is not in {lines:#?}");
    }
}

fn expect_cut(mut scene: Scene, reason: &str, signals: usize) {
    let mut waiting = scene.sent(GET, 1);
    let mut half = scene.sent("GET /half HTTP/1.1\r\nHost: a.example\r\n\r\n", 2);
    assert_eq!(half.read_head().word(1), "200");
    let two = H2Client::connect(scene.mizan.address());
    let asked = run(two.begin(&Ask::get("/two"))).expect("sent");
    eventually(PATIENCE, "the backend has it", || {
        scene.backend.requests() == 3
    });
    let up = format!("GET /up HTTP/1.1\r\nHost: a.example\r\n{UPGRADE}\r\n");
    let mut up = scene.sent(&up, 4);
    assert_eq!(up.read_head().word(1), "101");
    assert_eq!(up.read_exactly(5), b"hello");
    let mut queued = scene.mizan.client();
    queued.send(GET);
    eventually(PATIENCE, "it waits for room", || {
        scene.mizan.metric("mizan_pool_queued", "pool=\"api\"") == 1.0
    });
    let mut tunnel = Client::connect(scene.mizan.address2());
    tunnel.send("1234567");
    assert_eq!(tunnel.read_exactly(12), b"hello1234567");
    for _ in 0..signals {
        scene.mizan.signal(Signal::TERM);
        eventually(PATIENCE, "it drains", || {
            scene.mizan.readiness() != Some(200)
        });
    }
    assert_eq!(scene.mizan.wait(PATIENCE).code(), Some(0));
    for client in [&mut waiting, &mut queued] {
        let answer = client.read();
        assert_eq!(answer.status, 503);
        assert!(answer.text().contains(reason), "{}", answer.text());
    }
    let answer = run(asked.0).expect("an answer");
    assert_eq!(answer.status().as_u16(), 503);
    assert!(half.try_read("GET").is_err());
    for client in [&mut tunnel, &mut up] {
        assert!(matches!(client.read_to_end(), (said, Err(How::Reset)) if said.is_empty()));
    }
    let key = scene.backend.address().to_string();
    let reason = || ("reason", reason.into());
    scene.expect_line(&[
        reason(),
        ("status", 503.into()),
        ("pool", "api".into()),
        ("backend", key.into()),
    ]);
    scene.expect_line(&[
        reason(),
        ("protocol", "HTTP/2.0".into()),
        ("status", 503.into()),
    ]);
    scene.expect_line(&[reason(), ("tries", 0.into()), ("pool", "api".into())]);
    scene.expect_line(&[
        reason(),
        ("protocol", "tcp".into()),
        ("bytes_in", 7.into()),
        ("bytes_out", 12.into()),
        ("backend", scene.echo.address().to_string().into()),
    ]);
    scene.expect_line(&[reason(), ("target", "/up".into()), ("status", 101.into())]);
    let half = scene.lines().into_iter().find(|line| line["status"] == 200);
    let half = half.expect("the half answer is logged");
    assert_eq!(half["reason"], reason().1);
    assert!(half["bytes_out"].as_u64() > Some(40), "{half}");
    assert_eq!(scene.lines().len(), 6);
    eventually(PATIENCE, "the number is told", || {
        scene.mizan.log().contains("6 requests were cut")
    });
}

#[test]
fn what_the_drain_s_deadline_cuts_is_told_and_logged_as_that() {
    let scene = Scene::started("window = \"0s\"\ndeadline = \"300ms\"");
    expect_cut(scene, "drain_cut", 1);
}

#[test]
fn what_a_second_signal_cuts_is_told_and_logged_as_that() {
    let scene = Scene::started("window = \"30s\"\ndeadline = \"30s\"");
    expect_cut(scene, "shutdown", 2);
}

#[test]
fn many_tunnels_do_not_hold_up_the_end() {
    let mut scene = Scene::started("window = \"0s\"\ndeadline = \"300ms\"");
    let tunnels: Vec<_> = (0..300)
        .map(|_| {
            let mut tunnel = Client::connect(scene.mizan.address2());
            assert_eq!(tunnel.read_exactly(5), b"hello");
            tunnel
        })
        .collect();
    scene.mizan.signal(Signal::TERM);
    assert_eq!(scene.mizan.wait(Duration::from_secs(5)).code(), Some(0));
    assert_eq!(scene.lines().len(), tunnels.len());
}

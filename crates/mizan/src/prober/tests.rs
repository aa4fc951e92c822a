//! Real sockets on port 0; waiting is for conditions, never for a time.

use super::*;
use crate::snapshot::route::RouteTable;
use crate::snapshot::{
    DrainSettings, Keepalive, Queue, Retry, RetryOn, Settings, StatusSet, UpstreamTimeouts,
};
use mizan_core::backend::Member;
use mizan_core::pool::{Health, PoolConfig};
use mizan_core::spread::{SpreadConfig, Subset};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n";
const BUSY: &str = "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n";
const WAIT_MAX: Duration = Duration::from_secs(10);

pub(super) fn check(kind: ProbeKind) -> HealthCheck {
    HealthCheck {
        kind,
        interval: Duration::from_millis(20),
        jitter: 0.1,
        timeout: Duration::from_secs(5),
        port: None,
        tls: None,
        http2: false,
        proxy_protocol: None,
    }
}

pub(super) fn http(path: &str) -> ProbeKind {
    ProbeKind::Http {
        path: path.to_owned(),
        host: None,
        expect: StatusSet(vec![(200, 399)]),
        body: None,
    }
}

fn member(address: Address) -> Member {
    let key = match &address {
        Address::Ip(address) => address.to_string(),
        Address::Unix(path) => path.display().to_string(),
    };
    Member {
        key: key.into(),
        address,
        weight: 1,
        version: "".into(),
        in_flight_max: None,
        place: Default::default(),
    }
}

pub(super) fn core(addresses: &[Address]) -> Arc<Pool> {
    let config = PoolConfig {
        probed: true,
        rise: 1,
        fall: 1,
        ..PoolConfig::default()
    };
    let members = addresses.iter().cloned().map(member).collect();
    Arc::new(Pool::new(clock::now(), config, members, 0))
}

fn snapshot(generation: u64, core: &Arc<Pool>, health: Option<HealthCheck>) -> Arc<Snapshot> {
    let zero = Duration::ZERO;
    let pool = crate::snapshot::Pool {
        name: "api".into(),
        core: core.clone(),
        config: PoolConfig::default(),
        members: Vec::new(),
        configured: Vec::new(),
        discovery: Arc::default(),
        versions: Vec::new(),
        hash_key: None,
        load_probes: None,
        health,
        protocol: crate::snapshot::Protocol::default(),
        http2: crate::snapshot::Http2Upstream::default(),
        tls: None,
        proxy_protocol: None,
        timeouts: UpstreamTimeouts {
            connect: zero,
            response_header: zero,
            response_idle: zero,
            per_try: zero,
            request: zero,
        },
        retry: Retry {
            tries_max: 1,
            on: RetryOn {
                reset: false,
                timeout: false,
                statuses: Vec::new(),
            },
            backoff: zero,
            backoff_max: zero,
            buffer_bytes_max: 0,
        },
        keepalive: Keepalive {
            idle_timeout: zero,
            idle_max: 0,
        },
        waiters: Arc::default(),
        queue: Queue {
            requests_max: 0,
            timeout: zero,
        },
    };
    Arc::new(Snapshot {
        regions: Default::default(),
        generation,
        digest: generation,
        listeners: Vec::new(),
        pools: [("api".into(), Arc::new(pool))].into(),
        routes: RouteTable::build(Vec::new()),
        settings: Settings {
            workers: 1,
            admin: Vec::new(),
            health_bind: None,
            metrics_bind: None,
            access_log: None,
            drain: DrainSettings {
                window: zero,
                deadline: zero,
            },
            reload_watch: false,
            node: None,
            region: Arc::from("default"),
            store: None,
            upstream_idle_max: 0,
        },
    })
}

/// Reads the head of a request and writes `answer`; returns the head.
async fn answer<S>(mut stream: S, answer: &str) -> String
where
    S: AsyncReadExt + AsyncWriteExt + Unpin,
{
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    stream.write_all(answer.as_bytes()).await.unwrap();
    String::from_utf8(head).unwrap()
}

async fn listener() -> (TcpListener, Address) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = Address::Ip(listener.local_addr().unwrap());
    (listener, address)
}

/// One probe of `address`.
async fn once(address: &Address, check: HealthCheck) -> ProbeResult {
    let backend = core(std::slice::from_ref(address)).backends().remove(0);
    probe(Arc::new(check), backend).await.unwrap()
}

fn failed(refused: bool, reason: &str) -> ProbeResult {
    ProbeResult::Failed {
        refused,
        reason: reason.to_owned(),
    }
}

#[tokio::test]
async fn an_http_probe_passes_on_an_expected_answer() {
    let (listener, address) = listener().await;
    let host = listener.local_addr().unwrap();
    let server = async {
        let (stream, _) = listener.accept().await.unwrap();
        answer(stream, OK).await
    };
    let (head, result) = tokio::join!(server, once(&address, check(http("/healthz"))));
    assert_eq!(result, ProbeResult::Passed);
    assert!(head.starts_with("GET /healthz HTTP/1.1\r\n"), "{head}");
    assert!(head.contains(&format!("\r\nHost: {host}\r\n")), "{head}");
}

#[tokio::test]
async fn an_http_probe_fails_on_another_status() {
    let (listener, address) = listener().await;
    let server = async {
        let (stream, _) = listener.accept().await.unwrap();
        answer(stream, BUSY).await
    };
    let (_, result) = tokio::join!(server, once(&address, check(http("/"))));
    assert_eq!(result, failed(false, "status 503, expected 200-399"));
}

#[tokio::test]
async fn a_port_where_nothing_listens_refuses() {
    let (listener, address) = listener().await;
    drop(listener);
    for kind in [http("/"), ProbeKind::Tcp] {
        let result = once(&address, check(kind)).await;
        assert_eq!(result, failed(true, "connect refused"));
    }
}

#[tokio::test]
async fn a_probe_port_that_refuses_does_not_mean_that_the_backend_does() {
    let (_backend, address) = listener().await;
    let (gone, _) = listener().await;
    let port = Some(gone.local_addr().unwrap().port());
    drop(gone);
    let check = HealthCheck {
        port,
        ..check(ProbeKind::Tcp)
    };
    assert_eq!(
        once(&address, check).await,
        failed(false, "connect refused")
    );
}

#[tokio::test]
async fn a_probe_goes_to_the_port_of_its_own() {
    let (backend, address) = listener().await;
    let (own, _) = listener().await;
    drop(backend);
    let check = HealthCheck {
        port: Some(own.local_addr().unwrap().port()),
        ..check(ProbeKind::Tcp)
    };
    assert_eq!(
        once(&address, check).await,
        ProbeResult::PassedElsewhere,
        "it says nothing of the port that takes traffic"
    );
}

#[tokio::test]
async fn a_probe_of_the_balanced_port_begins_with_a_header_that_names_nobody() {
    for (version, header) in [
        (ProxyVersion::V1, &b"PROXY UNKNOWN\r\n"[..]),
        (ProxyVersion::V2, b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"),
    ] {
        let (backend, address) = listener().await;
        let (own, _) = listener().await;
        let mut check = HealthCheck {
            proxy_protocol: Some(version),
            ..check(ProbeKind::Tcp)
        };
        assert_eq!(once(&address, check.clone()).await, ProbeResult::Passed);
        let mut read = Vec::new();
        let mut stream = backend.accept().await.expect("it came").0;
        stream.read_to_end(&mut read).await.expect("an end");
        assert_eq!(read, header);
        // What listens on a port of the probe's own expects none.
        check.port = Some(own.local_addr().expect("it is bound").port());
        assert_eq!(once(&address, check).await, ProbeResult::PassedElsewhere);
        let mut stream = own.accept().await.expect("it came").0;
        read.clear();
        // The connect was all there was, and ends with a reset.
        let _ = stream.read_to_end(&mut read).await;
        assert_eq!(read, b"");
    }
}

#[tokio::test]
async fn silence_fails_after_the_time_out() {
    let (_listener, address) = listener().await;
    let check = HealthCheck {
        timeout: Duration::from_millis(30),
        ..check(http("/"))
    };
    assert_eq!(
        once(&address, check).await,
        failed(false, "no answer within 30ms")
    );
}

#[tokio::test]
async fn unix_sockets_are_probed_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("backend.sock");
    let address = Address::Unix(path.clone());
    assert_eq!(
        once(&address, check(ProbeKind::Tcp)).await,
        failed(true, "no such socket")
    );

    let listener = UnixListener::bind(&path).unwrap();
    let server = async {
        let (stream, _) = listener.accept().await.unwrap();
        answer(stream, OK).await
    };
    let (head, result) = tokio::join!(server, once(&address, check(http("/"))));
    assert_eq!(result, ProbeResult::Passed);
    assert!(head.contains("\r\nHost: localhost\r\n"), "{head}");

    drop(listener);
    assert_eq!(
        once(&address, check(ProbeKind::Tcp)).await,
        failed(true, "connect refused")
    );
}

/// A prober at work on one pool, and backends that answer by path.
struct World {
    current: Arc<Current>,
    core: Arc<Pool>,
    _stop: watch::Sender<bool>,
}

impl World {
    fn start(core: Arc<Pool>, health: Option<HealthCheck>) -> Self {
        let current = Arc::new(Current::new(snapshot(1, &core, health)));
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(run(current.clone(), stopped));
        Self {
            current,
            core,
            _stop: stop,
        }
    }

    fn reload(&self, generation: u64, health: Option<HealthCheck>) {
        self.current
            .publish(snapshot(generation, &self.core, health));
    }

    /// Waits until the backends have this health.
    async fn wait_for(&self, wanted: &[Health]) {
        until(|| {
            self.core.tick(clock::now());
            let status = self.core.status(clock::now());
            status
                .backends
                .iter()
                .map(|backend| backend.health)
                .eq(wanted.iter().copied())
        })
        .await;
    }
}

async fn until(mut holds: impl FnMut() -> bool) {
    let waited = tokio::time::timeout(WAIT_MAX, async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    });
    waited.await.expect("it should have come by now");
}

/// A backend that answers 200, on `/busy` 503; counts the requests it has answered.
async fn backend() -> (Address, Arc<AtomicUsize>) {
    let (listener, address) = listener().await;
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut bytes = [0; 1024];
            let length = stream.read(&mut bytes).await.unwrap_or_default();
            let busy = bytes[..length].starts_with(b"GET /busy ");
            // The prober may be gone by now.
            let _ = stream
                .write_all(if busy { BUSY } else { OK }.as_bytes())
                .await;
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    (address, count)
}

#[tokio::test]
async fn results_reach_the_pool() {
    let (up, _) = backend().await;
    let (gone, down) = listener().await;
    drop(gone);
    let world = World::start(core(&[up, down]), Some(check(http("/"))));
    world.wait_for(&[Health::Up, Health::Down]).await;
    let status = world.core.status(clock::now());
    assert!(
        status.backends[1].reason.contains("connect refused"),
        "{}",
        status.backends[1].reason
    );
}

#[tokio::test]
async fn a_reload_changes_what_is_asked() {
    let (address, count) = backend().await;
    let world = World::start(core(&[address]), Some(check(http("/"))));
    world.wait_for(&[Health::Up]).await;
    world.reload(2, Some(check(http("/busy"))));
    world.wait_for(&[Health::Down]).await;
    world.reload(3, Some(check(http("/"))));
    world.wait_for(&[Health::Up]).await;
    let before = count.load(Ordering::SeqCst);
    until(|| count.load(Ordering::SeqCst) > before + 3).await;
}

#[tokio::test]
async fn a_pool_whose_check_is_gone_is_not_probed_any_more() {
    let (address, count) = backend().await;
    let (other, other_count) = backend().await;
    let world = World::start(core(&[address]), Some(check(http("/"))));
    until(|| count.load(Ordering::SeqCst) > 3).await;
    world.reload(2, None);
    // The prober is seen to have moved on by what it does for a pool of the next snapshot.
    let next = core(&[other]);
    world
        .current
        .publish(snapshot(3, &next, Some(check(http("/")))));
    until(|| other_count.load(Ordering::SeqCst) > 3).await;
    let before = count.load(Ordering::SeqCst);
    until(|| other_count.load(Ordering::SeqCst) > 20).await;
    assert_eq!(count.load(Ordering::SeqCst), before);
}

#[tokio::test]
async fn members_that_come_and_go_are_followed_within_one_snapshot() {
    let (first, first_count) = backend().await;
    let (second, second_count) = backend().await;
    let world = World::start(core(std::slice::from_ref(&first)), Some(check(http("/"))));
    world.wait_for(&[Health::Up]).await;
    let config = PoolConfig {
        probed: true,
        ..PoolConfig::default()
    };
    let now = clock::now();
    world.core.update(
        now,
        config.clone(),
        vec![member(first), member(second.clone())],
    );
    world.wait_for(&[Health::Up, Health::Up]).await;
    world.core.update(now, config, vec![member(second)]);
    let before = second_count.load(Ordering::SeqCst);
    until(|| second_count.load(Ordering::SeqCst) > before + 15).await;
    let gone = first_count.load(Ordering::SeqCst);
    until(|| second_count.load(Ordering::SeqCst) > before + 30).await;
    assert_eq!(first_count.load(Ordering::SeqCst), gone);
}

#[tokio::test]
async fn only_the_part_of_a_pool_that_gets_traffic_is_probed() {
    let (mut addresses, mut counts) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        let (address, count) = backend().await;
        addresses.push(address);
        counts.push(count);
    }
    let core = core(&addresses);
    let config = PoolConfig {
        probed: true,
        rise: 1,
        fall: 1,
        spread: SpreadConfig {
            subset: Some(Subset {
                size: 2,
                index: 0,
                of: 2,
            }),
            ..SpreadConfig::default()
        },
        ..PoolConfig::default()
    };
    let members = addresses.iter().cloned().map(member).collect();
    core.update(clock::now(), config, members);
    let inside: Vec<bool> = core
        .backends()
        .iter()
        .map(|backend| backend.is_worth_probing())
        .collect();
    assert_eq!(inside.iter().filter(|&&inside| inside).count(), 2);
    let _world = World::start(core, Some(check(http("/"))));
    let probed = |at: usize| counts[at].load(Ordering::SeqCst);
    // Three rounds of those inside: the others would have had one.
    until(|| (0..4).all(|at| !inside[at] || probed(at) >= 3)).await;
    assert!((0..4).all(|at| inside[at] || probed(at) == 0));
}

#[tokio::test]
async fn probes_of_a_backend_that_hangs_never_overlap() {
    let (listener, address) = listener().await;
    let check = HealthCheck {
        interval: Duration::from_millis(5),
        timeout: Duration::from_millis(40),
        ..check(http("/"))
    };
    let world = World::start(core(&[address]), Some(check));
    for _ in 0..5 {
        let (mut stream, _) = listener.accept().await.unwrap();
        // Held until the prober gives up: no other connection may come before that.
        let mut bytes = Vec::new();
        tokio::select! {
            biased;
            end = stream.read_to_end(&mut bytes) => drop(end),
            _ = listener.accept() => panic!("a second probe while the first one runs"),
        }
    }
    world.wait_for(&[Health::Down]).await;
}

#[tokio::test]
async fn it_ends_when_told_to() {
    let (address, _) = backend().await;
    let core = core(&[address]);
    let current = Arc::new(Current::new(snapshot(1, &core, Some(check(http("/"))))));
    let (stop, stopped) = watch::channel(false);
    let task = tokio::spawn(run(current, stopped));
    stop.send(true).unwrap();
    tokio::time::timeout(WAIT_MAX, task).await.unwrap().unwrap();
}

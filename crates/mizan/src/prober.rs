//! Active health checks.
//!
//! One task drives all pools: it follows the snapshot in force and each pool's membership, starts what the
//! `schedule` says is due, each probe as a task of its own, and hands results to the pool, which decides what
//! they mean. It runs on a thread of its own (`app` starts it), so that a storm of probes costs traffic nothing but
//! CPU and holds up no reload. No probe reports what is this process's own lack (descriptors, memory): that says nothing of
//! a backend.

mod grpc;
mod http;
mod http2;
mod load;
mod schedule;
mod tcp;
mod tls;

use crate::clock;
use crate::lack::is_our_lack;
use crate::proxy_protocol::{Peers, write_v1, write_v2};
use crate::snapshot::{Current, HealthCheck, ProbeKind, ProxyVersion, Snapshot, StatusSet};
use mizan_core::backend::{Address, Backend};
use mizan_core::pool::{Pool, ProbeResult};
use mizan_core::time::Instant;
use rustix::io::Errno;
use schedule::{Event, Plan, Schedule, TargetId, first_spread};
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tls::Tls;
use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};

/// Probes at once in the whole process. With more due than that (say, thousands of backends that hang), intervals
/// stretch; nothing is dropped.
pub const PROBES_RUNNING_MAX: usize = 256;

/// How often it is asked whether the snapshot is still the one in force, and pools for their members.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(100);
/// Pools are asked for their members no more often than this for each of them: 10,000 once a second.
const FOLLOW_COST: Duration = Duration::from_micros(100);
/// Starts that are due within this of each other share a wake-up, and so do the sockets' events that follow: with
/// thousands of backends the wake-ups would cost more than the probes.
const START_INTERVAL: Duration = Duration::from_millis(10);

/// Probes the backends of all pools that have a health check, and asks those for their load that are to be asked, until
/// `stop` holds true or its sender is gone.
pub async fn run(current: Arc<Current>, stop: watch::Receiver<bool>) {
    let load = load::run(Arc::clone(&current), stop.clone());
    tokio::join!(check(current, stop), load);
}

async fn check(current: Arc<Current>, mut stop: watch::Receiver<bool>) {
    let mut prober = Prober::new(current, clock::random());
    loop {
        let now = clock::now();
        prober.follow(now);
        prober.start_due(now);
        let sleep = prober.deadline().saturating_since(now);
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => return,
            Some(ended) = prober.probes.join_next_with_id() => {
                prober.ended(ended);
                while let Some(ended) = prober.probes.try_join_next_with_id() {
                    prober.ended(ended);
                }
            }
            () = tokio::time::sleep(sleep) => {}
        }
    }
}

/// Why a probe failed.
#[derive(Debug)]
enum Fault {
    /// Nothing listens.
    Refused(&'static str),
    /// The connection failed, in words.
    Connection(String),
    /// The answer was not what was expected, in words.
    Answer(String),
    /// This process lacked something.
    Ours(std::io::Error),
}

impl Fault {
    fn io(operation: &str, error: &std::io::Error) -> Self {
        let code = error.raw_os_error().map(Errno::from_raw_os_error);
        match code {
            Some(Errno::CONNREFUSED) if operation == "connect" => Self::Refused("connect refused"),
            Some(Errno::NOENT) if operation == "connect" => Self::Refused("no such socket"),
            Some(code) if is_our_lack(error) => Self::Ours(code.into()),
            Some(Errno::CONNRESET | Errno::PIPE) => {
                Self::Connection(format!("connection reset at {operation}"))
            }
            _ => Self::Connection(format!("{operation} failed: {error}")),
        }
    }
}

struct Prober {
    current: Arc<Current>,
    /// The snapshot that `followed` is of; none before the first look.
    snapshot: Option<Arc<Snapshot>>,
    follow_at: Instant,
    members_at: Instant,
    /// No probe is started before.
    start_at: Instant,
    followed: BTreeMap<Arc<str>, Followed>,
    targets: HashMap<TargetId, Target>,
    next_target: TargetId,
    schedule: Schedule,
    probes: JoinSet<Outcome>,
    running: HashMap<Id, TargetId>,
    /// Whether the last probe that ended told nothing for a lack of ours; so that it is logged once.
    lacking: bool,
}

/// What a probe told, or what this process lacked to make it.
type Outcome = Result<ProbeResult, std::io::Error>;

/// A pool with a health check.
struct Followed {
    core: Arc<Pool>,
    check: Arc<HealthCheck>,
    /// `Backend::id` and target of each member, in the pool's order.
    members: Vec<(u64, TargetId)>,
}

struct Target {
    pool: Arc<str>,
    backend: Arc<Backend>,
    probe: Option<tokio::task::AbortHandle>,
}

impl Prober {
    fn new(current: Arc<Current>, random: u64) -> Self {
        Self {
            current,
            snapshot: None,
            follow_at: Instant::default(),
            members_at: Instant::default(),
            start_at: Instant::default(),
            followed: BTreeMap::new(),
            targets: HashMap::new(),
            next_target: 0,
            schedule: Schedule::new(PROBES_RUNNING_MAX, random),
            probes: JoinSet::new(),
            running: HashMap::new(),
            lacking: false,
        }
    }

    fn deadline(&self) -> Instant {
        let due = self.schedule.deadline().map(|due| due.max(self.start_at));
        due.map_or(self.follow_at, |due| due.min(self.follow_at))
    }

    /// Looks for a new snapshot and for members that came or went.
    fn follow(&mut self, now: Instant) {
        if now < self.follow_at {
            return;
        }
        self.follow_at = now + FOLLOW_INTERVAL;
        if !self
            .snapshot
            .as_ref()
            .is_some_and(|snapshot| self.current.is(snapshot))
        {
            let snapshot = self.current.load();
            self.follow_pools(now, &snapshot);
            self.snapshot = Some(snapshot);
            self.members_at = now;
        }
        if now < self.members_at {
            return;
        }
        for name in self.followed.keys().cloned().collect::<Vec<_>>() {
            self.follow_members(now, &name);
        }
        let count = u32::try_from(self.targets.len()).unwrap_or(u32::MAX);
        self.members_at = now + FOLLOW_INTERVAL.max(FOLLOW_COST.saturating_mul(count));
    }

    fn follow_pools(&mut self, now: Instant, snapshot: &Snapshot) {
        let same = |name: &Arc<str>, followed: &Followed| {
            let pool = snapshot
                .pools
                .get(name)
                .filter(|pool| pool.health.is_some());
            pool.is_some_and(|pool| Arc::ptr_eq(&pool.core, &followed.core))
        };
        let gone: Vec<_> = self
            .followed
            .iter()
            .filter(|(name, followed)| !same(name, followed))
            .map(|(name, _)| name.clone())
            .collect();
        for name in gone {
            let members = self.followed.remove(&name).map(|followed| followed.members);
            for (_, target) in members.into_iter().flatten() {
                self.remove(now, target);
            }
        }
        for (name, pool) in &snapshot.pools {
            if let Some(check) = &pool.health {
                self.follow_pool(now, name, &pool.core, check);
            }
        }
    }

    fn follow_pool(
        &mut self,
        now: Instant,
        name: &Arc<str>,
        core: &Arc<Pool>,
        check: &HealthCheck,
    ) {
        let Some(followed) = self.followed.get_mut(name) else {
            let (core, check) = (core.clone(), Arc::new(check.clone()));
            self.followed.insert(
                name.clone(),
                Followed {
                    core,
                    check,
                    members: Vec::new(),
                },
            );
            return;
        };
        let (before, plan) = (plan(&followed.check), plan(check));
        if *followed.check != *check {
            followed.check = Arc::new(check.clone());
        }
        if before != plan {
            for &(_, target) in &followed.members {
                self.schedule
                    .observe(now, Event::Replanned { target, plan });
            }
        }
    }

    fn follow_members(&mut self, now: Instant, name: &Arc<str>) {
        let Some(followed) = self.followed.get_mut(name) else {
            return;
        };
        let plan = plan(&followed.check);
        let mut backends = followed.core.backends();
        backends.retain(|backend| backend.is_worth_probing());
        if backends
            .iter()
            .map(|backend| backend.id())
            .eq(followed.members.iter().map(|(id, _)| *id))
        {
            return;
        }
        let mut before: HashMap<u64, TargetId> = followed.members.drain(..).collect();
        let mut new = Vec::new();
        for backend in backends {
            let id = backend.id();
            let target = before.remove(&id).unwrap_or_else(|| {
                let target = self.next_target;
                self.next_target += 1;
                new.push(target);
                self.targets.insert(
                    target,
                    Target {
                        pool: name.clone(),
                        backend,
                        probe: None,
                    },
                );
                target
            });
            followed.members.push((id, target));
        }
        let spread = first_spread(new.len(), plan.interval);
        for target in new {
            self.schedule.observe(
                now,
                Event::Added {
                    target,
                    plan,
                    spread,
                },
            );
        }
        for target in before.into_values() {
            self.remove(now, target);
        }
    }

    fn remove(&mut self, now: Instant, target: TargetId) {
        self.schedule.observe(now, Event::Removed { target });
        if let Some(Target {
            probe: Some(probe), ..
        }) = self.targets.remove(&target)
        {
            probe.abort();
        }
    }

    fn start_due(&mut self, now: Instant) {
        if now < self.start_at {
            return;
        }
        self.start_at = now + START_INTERVAL;
        for id in self.schedule.tick(now) {
            // Both are there: the schedule names only what was added and not removed.
            let Some(target) = self.targets.get_mut(&id) else {
                continue;
            };
            let Some(followed) = self.followed.get(&target.pool) else {
                continue;
            };
            let probe = self
                .probes
                .spawn(probe(followed.check.clone(), target.backend.clone()));
            self.running.insert(probe.id(), id);
            target.probe = Some(probe);
        }
    }

    fn ended(&mut self, ended: Result<(Id, Outcome), JoinError>) {
        let now = clock::now();
        let (task, outcome) = match ended {
            Ok((task, outcome)) => (task, Some(outcome)),
            // Aborted, because its target is gone; or it panicked, which tokio has reported.
            Err(error) => (error.id(), None),
        };
        let Some(id) = self.running.remove(&task) else {
            return;
        };
        self.schedule.observe(now, Event::Finished { target: id });
        let Some(target) = self.targets.get_mut(&id) else {
            return;
        };
        target.probe = None;
        match outcome {
            Some(Ok(result)) => {
                self.lacking = false;
                if let Some(followed) = self.followed.get(&target.pool) {
                    followed.core.probed(now, target.backend.key(), result);
                }
            }
            Some(Err(error)) if !self.lacking => {
                self.lacking = true;
                tracing::warn!(pool = &*target.pool, backend = &**target.backend.key(), %error, "cannot probe");
            }
            Some(Err(_)) | None => {}
        }
    }
}

fn plan(check: &HealthCheck) -> Plan {
    Plan {
        interval: check.interval,
        jitter: check.jitter,
    }
}

async fn probe(check: Arc<HealthCheck>, backend: Arc<Backend>) -> Outcome {
    let address = probed_address(backend.address(), check.port);
    let mut connected = false;
    let is_own = address == *backend.address();
    // What listens on a port of the probe's own is likely no listener of the balanced kind.
    let first = first_bytes(check.proxy_protocol.filter(|_| is_own));
    let opening = Opening {
        first: &first,
        tls: check.tls.as_deref().map(|settings| Tls {
            settings,
            backend: &backend,
        }),
    };
    let asked = ask(&address, &check, opening, &mut connected);
    let outcome = tokio::time::timeout(check.timeout, asked).await;
    let (refused, reason) = match outcome {
        Ok(Ok(())) if is_own => return Ok(ProbeResult::Passed),
        Ok(Ok(())) => return Ok(ProbeResult::PassedElsewhere),
        // A refusal on a port of the probe's own says nothing of the port that takes traffic.
        Ok(Err(Fault::Refused(reason))) => (is_own, reason.to_owned()),
        Ok(Err(Fault::Connection(reason) | Fault::Answer(reason))) => (false, reason),
        Ok(Err(Fault::Ours(error))) => return Err(error),
        Err(_) if connected => (false, format!("no answer within {:?}", check.timeout)),
        Err(_) => (false, format!("no connection within {:?}", check.timeout)),
    };
    Ok(ProbeResult::Failed { refused, reason })
}

/// What comes before a probe's question.
#[derive(Clone, Copy, Debug)]
struct Opening<'a> {
    /// Sent as it is, before anything else.
    first: &'a [u8],
    /// The handshake behind it.
    tls: Option<Tls<'a>>,
}

async fn ask(
    address: &Address,
    check: &HealthCheck,
    opening: Opening<'_>,
    connected: &mut bool,
) -> Result<(), Fault> {
    match &check.kind {
        ProbeKind::Tcp => tcp::probe(address, opening, connected).await,
        ProbeKind::Http {
            path,
            host,
            expect,
            body,
        } => {
            let question = http::Question {
                path,
                host: host.as_deref(),
                expect,
                body: body.as_deref(),
                http2: check.http2,
                grpc_service: None,
            };
            http::probe(address, question, opening, connected).await
        }
        ProbeKind::Grpc { service, host } => {
            let question = http::Question {
                path: grpc::PATH,
                host: host.as_deref(),
                expect: &StatusSet(Vec::new()),
                body: None,
                http2: true,
                grpc_service: Some(service),
            };
            http::probe(address, question, opening, connected).await
        }
    }
}

/// The PROXY header that begins a probe: it speaks for nobody but Mizan itself.
fn first_bytes(version: Option<ProxyVersion>) -> Vec<u8> {
    let mut bytes = Vec::new();
    match version {
        None => {}
        Some(ProxyVersion::V1) => write_v1(&mut bytes, &Peers::Local),
        Some(ProxyVersion::V2) => write_v2(&mut bytes, &Peers::Local),
    }
    bytes
}

/// Where a backend is probed. A Unix socket has no port to replace.
fn probed_address(address: &Address, port: Option<u16>) -> Address {
    match (address, port) {
        (Address::Ip(address), Some(port)) => Address::Ip(SocketAddr::new(address.ip(), port)),
        _ => address.clone(),
    }
}

#[cfg(test)]
mod tests;

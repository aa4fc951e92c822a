//! A pool with a clock and a die.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::policy::mix;
use crate::pool::*;

pub(super) const POLICIES: [PolicyKind; PolicyKind::ALL.len()] = PolicyKind::ALL;

pub(super) const OK: Outcome = Outcome::Success {
    latency: Duration::from_millis(10),
};
/// The client went away at once.
pub(super) const ABORTED: Outcome = Outcome::Aborted {
    waited: Duration::ZERO,
};
pub(super) const REFUSED: Outcome = Outcome::Failure(Failure::ConnectRefused);
pub(super) const RESET: Outcome = Outcome::Failure(Failure::Reset);

pub(super) fn status(status: u16) -> Outcome {
    Outcome::ServerError {
        status,
        latency: Duration::from_millis(1),
        retry_after: None,
    }
}

pub(super) fn member(key: &str) -> Member {
    Member {
        key: Arc::from(key),
        address: Address::Ip(SocketAddr::from(([127, 0, 0, 1], 80))),
        weight: 1,
        version: Arc::from(""),
        in_flight_max: None,
        place: Default::default(),
    }
}

pub(super) fn weighted(key: &str, weight: u32) -> Member {
    Member {
        weight,
        ..member(key)
    }
}

/// `a`, `b`, `c` and so on; beyond 26, numbers.
pub(super) fn members(count: usize) -> Vec<Member> {
    (0..count).map(|n| member(&name(n, count))).collect()
}

pub(super) fn name(n: usize, count: usize) -> String {
    match u8::try_from(n) {
        Ok(n) if count <= 26 => char::from(b'a' + n).to_string(),
        _ => format!("backend-{n:05}"),
    }
}

/// Weights that do not adapt: one mechanism at a time.
pub(super) fn config(policy: PolicyKind) -> PoolConfig {
    PoolConfig {
        policy,
        adaptive: AdaptiveConfig {
            enabled: false,
            ..AdaptiveConfig::default()
        },
        ..PoolConfig::default()
    }
}

/// Everything on, as by default.
pub(super) fn adapting(policy: PolicyKind) -> PoolConfig {
    PoolConfig {
        policy,
        ..PoolConfig::default()
    }
}

pub(super) fn probed(policy: PolicyKind) -> PoolConfig {
    PoolConfig {
        probed: true,
        ..config(policy)
    }
}

pub(super) fn without_ejection(policy: PolicyKind) -> PoolConfig {
    PoolConfig {
        ejection: EjectionConfig {
            enabled: false,
            ..EjectionConfig::default()
        },
        ..config(policy)
    }
}

pub(super) fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

/// A pool, the time, and random numbers that are the same in each run.
pub(super) struct World {
    pub(super) pool: Pool,
    pub(super) now: Instant,
    /// Transitions that came up while traffic was simulated.
    pub(super) seen: Vec<Event>,
    random: u64,
}

impl World {
    pub(super) fn new(config: PoolConfig, members: Vec<Member>) -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        Self {
            pool: Pool::new(now, config, members, 0),
            now,
            seen: Vec::new(),
            random: 7,
        }
    }

    pub(super) fn random(&mut self) -> u64 {
        self.random = mix(self.random);
        self.random
    }

    pub(super) fn pick(&mut self) -> Result<Claim, NoPick> {
        self.pick_with(None, &[])
    }

    pub(super) fn pick_with(&mut self, hash: Option<u64>, tried: &[u64]) -> Result<Claim, NoPick> {
        let random = self.random();
        self.pool.pick(&Pick {
            now: self.now,
            random,
            hash,
            tried,
            worker: 0,
        })
    }

    /// One request that ends at once; gives who served it.
    pub(super) fn request(&mut self, outcome: impl Fn(&str) -> Outcome) -> String {
        let claim = self.pick().expect("somebody is usable");
        let key = claim.backend().key().to_string();
        self.pool
            .observe(self.now, 0, claim.backend(), outcome(&key));
        key
    }

    /// Who serves the next `count` requests, in order. All succeed.
    pub(super) fn served(&mut self, count: usize) -> Vec<String> {
        (0..count).map(|_| self.request(|_| OK)).collect()
    }

    /// How many of `count` picks each member gets, in configured order.
    pub(super) fn shares(&mut self, count: usize) -> Vec<usize> {
        let keys: Vec<Arc<str>> = self
            .pool
            .backends()
            .iter()
            .map(|backend| Arc::clone(backend.key()))
            .collect();
        let mut shares = vec![0; keys.len()];
        for _ in 0..count {
            let claim = self.pick().expect("somebody is usable");
            let at = keys.iter().position(|key| key == claim.backend().key());
            shares[at.expect("a member was picked")] += 1;
        }
        shares
    }

    pub(super) fn backend(&self, key: &str) -> Arc<Backend> {
        let all = self.pool.backends();
        let found = all.into_iter().find(|backend| &**backend.key() == key);
        found.expect("a member of that name")
    }

    /// What became of a request to `key`, whoever sent it there.
    pub(super) fn observe(&mut self, key: &str, outcome: Outcome) {
        let backend = self.backend(key);
        self.pool.observe(self.now, 0, &backend, outcome);
    }

    pub(super) fn probe(&mut self, key: &str, passed: bool) {
        let result = if passed {
            ProbeResult::Passed
        } else {
            ProbeResult::Failed {
                refused: false,
                reason: "status 500".to_owned(),
            }
        };
        self.pool.probed(self.now, key, result);
    }

    pub(super) fn tick(&mut self) -> Vec<Event> {
        self.pool.tick(self.now)
    }

    /// Lets time pass as a driver does: a tick at each deadline.
    pub(super) fn pass(&mut self, time: Duration) -> Vec<Event> {
        let end = self.now + time;
        let mut events = self.tick();
        while let Some(next) = self.pool.deadline().filter(|&next| next <= end) {
            self.now = next.max(self.now);
            events.extend(self.tick());
        }
        self.now = end;
        events.extend(self.tick());
        events
    }

    pub(super) fn status_of(&self, key: &str) -> BackendStatus {
        let all = self.pool.status(self.now).backends;
        let found = all.into_iter().find(|backend| &*backend.key == key);
        found.expect("a member of that name")
    }
}

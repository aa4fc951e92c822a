//! One balancer: the core's pool, driven as the product drives it. The only file that calls core.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use mizan_core::{
    AdaptiveState, Address, Backend, Claim, EjectionConfig, Event, Instant, LoadSource, Member,
    NoPick, Outcome, Pick, Place, PolicyKind, Pool, PoolConfig, PrequalConfig, ProbeResult,
};

use crate::contender::{Care, Contender};
use crate::scenario::{BackendPlan, Scenario};

use super::events::Verdict;
use super::load::Load;
use super::weigher::Weigher;

/// Backends have addresses from here on, in order, so that an address tells the number.
const FIRST_ADDRESS: u32 = u32::from_be_bytes([10, 0, 0, 1]);

/// A pool, and what its driver has to know.
#[derive(Debug)]
pub(crate) struct Balancer {
    pool: Pool,
    config: PoolConfig,
    care: Care,
    /// Sets weights from outside, if somebody does.
    pub(super) weigher: Option<Weigher>,
    /// Backends' keys, by number: made once, because probes ask for them all the time.
    keys: Vec<Arc<str>>,
    /// Whether each backend is being probed, by number.
    pub(crate) probing: Vec<bool>,
    /// Who it has been told are members, by number.
    pub(crate) members: Vec<bool>,
    /// Those that were asked for their load, by number.
    asked: BTreeMap<u32, Arc<Backend>>,
    /// How backends stood, by id: `None` unused, else whether degraded.
    standings: BTreeMap<u64, Option<bool>>,
}

impl Balancer {
    pub(crate) fn new(
        scenario: &Scenario,
        contender: Contender,
        own_number: usize,
        random: u64,
    ) -> Self {
        let mut config = config(scenario, contender);
        if scenario.zones > 1 {
            config.spread.zone = Some(zone(own_number as u32 % scenario.zones));
        }
        let keys: Vec<Arc<str>> = (0..scenario.backends.len()).map(key).collect();
        let members = scenario.backends.iter().zip(&keys).zip(0..);
        let members = members
            .map(|((plan, key), number)| member(plan, key, number))
            .collect();
        let weigher = match contender.care {
            Care::Weights(rule) => Some(Weigher::new(rule, scenario.backends.len())),
            _ => None,
        };
        Self {
            care: contender.care,
            weigher,
            keys,
            pool: Pool::new(Instant::default(), config.clone(), members, random),
            config,
            probing: vec![false; scenario.backends.len()],
            members: vec![true; scenario.backends.len()],
            asked: BTreeMap::new(),
            standings: BTreeMap::new(),
        }
    }

    /// A request comes that is no retry.
    pub(crate) fn deposit(&self) {
        self.pool.retry_budget().deposit(0);
    }

    /// Whether the retry budget has one more.
    pub(crate) fn withdraw(&self, now: u64) -> bool {
        self.pool.retry_budget().withdraw(Instant::from_nanos(now))
    }

    /// A claim, with the number of its backend.
    pub(crate) fn pick(
        &self,
        now: u64,
        random: u64,
        (hash, tried): (u64, &[u64]),
    ) -> Result<(Claim, u32), NoPick> {
        let claim = self.pool.pick(&Pick {
            now: Instant::from_nanos(now),
            random,
            hash: Some(hash),
            tried,
            worker: 0,
        })?;
        let number = number(claim.backend());
        Ok((claim, number))
    }

    pub(crate) fn observe(&mut self, now: u64, claim: &Claim, outcome: Outcome) {
        if let Some(weigher) = &mut self.weigher {
            weigher.note(number(claim.backend()), outcome);
        }
        if self.care == Care::None {
            return;
        }
        self.pool
            .observe(Instant::from_nanos(now), 0, claim.backend(), outcome);
    }

    pub(crate) fn probed(&self, now: u64, backend: u32, verdict: Verdict) {
        let result = match verdict {
            Verdict::Passed => ProbeResult::Passed,
            Verdict::Refused => ProbeResult::Failed {
                refused: true,
                reason: "connect refused".to_owned(),
            },
            Verdict::Failed => ProbeResult::Failed {
                refused: false,
                reason: "no good answer".to_owned(),
            },
        };
        self.pool.probed(
            Instant::from_nanos(now),
            &self.keys[backend as usize],
            result,
        );
    }

    /// Whether the scenario's probes are sent.
    pub(crate) fn probes(&self) -> bool {
        self.care == Care::Full
    }

    pub(crate) fn goes_by_load_reports(&self) -> bool {
        self.config.policy == PolicyKind::Prequal
    }

    /// The numbers of those to be asked for their load, each with a note for the answer.
    pub(crate) fn load_probes(&mut self, now: u64, random: u64) -> Vec<(u32, u8)> {
        let now = Instant::from_nanos(now);
        let probes = self.pool.load_probes(now, random, PrequalConfig::default());
        let probes = probes.into_iter().map(|probe| {
            let number = number(&probe.backend);
            self.asked.insert(number, probe.backend);
            (number, probe.workers)
        });
        probes.collect()
    }

    /// A backend says how much it has to do.
    pub(crate) fn told(&self, now: u64, backend: u32, (workers, load): (u8, Load)) {
        if let Some(backend) = self.asked.get(&backend) {
            let source = LoadSource::Probe(workers);
            let now = Instant::from_nanos(now);
            self.pool.note_load(now, backend, load.report(), source);
        }
    }

    /// As the product's control loop: looks, and ticks if there is work.
    pub(crate) fn tick(&self, now: u64) -> Vec<Event> {
        let now = Instant::from_nanos(now);
        let is_due = self.pool.deadline().is_some_and(|deadline| deadline <= now);
        if self.pool.is_dirty() || is_due {
            self.pool.tick(now)
        } else {
            Vec::new()
        }
    }

    /// How many backends have another standing with traffic than at the last call: unused, used, or used and
    /// degraded. What else goes on in a pool's mind is nobody's business.
    pub(crate) fn changes(&mut self, now: u64) -> u64 {
        let status = self.pool.status(Instant::from_nanos(now));
        let mut count = 0;
        for backend in &status.backends {
            let is_degraded = backend.state == AdaptiveState::Degraded;
            let standing = backend.usable.then_some(is_degraded);
            let before = self.standings.insert(backend.id, standing);
            count += u64::from(before.is_some_and(|before| before != standing));
        }
        count
    }

    /// Hears who is a member.
    pub(crate) fn update(
        &mut self,
        now: u64,
        plans: &[BackendPlan],
        members: Vec<bool>,
    ) -> Vec<Event> {
        let there = plans.iter().zip(&self.keys).zip(0..).zip(&members);
        let there = there
            .filter(|&(_, &is_member)| is_member)
            .map(|(((plan, key), number), _)| {
                let mut member = member(plan, key, number);
                if let Some(weigher) = &self.weigher {
                    member.weight = weigher.weight(number, plan.weight);
                }
                member
            })
            .collect();
        self.members = members;
        self.pool
            .update(Instant::from_nanos(now), self.config.clone(), there)
    }
}

/// The number of the backend that an event is about, if it is about one.
pub(crate) fn number_of_key(key: &str) -> Option<usize> {
    key.strip_prefix("backend-")?.parse().ok()
}

fn config(scenario: &Scenario, contender: Contender) -> PoolConfig {
    let plan = &scenario.pool;
    let mut preset = PoolConfig {
        policy: contender.policy,
        ..PoolConfig::default()
    };
    if contender.care != Care::Full {
        preset.ejection.enabled = false;
        preset.adaptive.enabled = false;
        preset.panic_threshold = 0.0;
        return preset;
    }
    let (rise, fall) = plan.probes.map_or((preset.rise, preset.fall), |probes| {
        (probes.rise, probes.fall)
    });
    PoolConfig {
        panic_threshold: plan.panic_threshold,
        rise,
        fall,
        probed: plan.probes.is_some(),
        ejection: EjectionConfig {
            enabled: plan.ejection,
            ..EjectionConfig::default()
        },
        ..preset
    }
}

fn member(plan: &BackendPlan, key: &Arc<str>, number: u32) -> Member {
    let address = Ipv4Addr::from(FIRST_ADDRESS + number);
    Member {
        key: Arc::clone(key),
        address: Address::Ip(SocketAddr::from((address, 80))),
        weight: plan.weight,
        version: Arc::from(""),
        in_flight_max: None,
        place: Place {
            tier: plan.priority,
            zone: zone(plan.zone),
        },
    }
}

fn zone(number: u32) -> Arc<str> {
    format!("zone-{number}").into()
}

fn key(number: usize) -> Arc<str> {
    format!("backend-{number:05}").into()
}

/// The inverse of `member`'s address, which is the only kind that is given out.
fn number(backend: &Backend) -> u32 {
    match backend.address() {
        Address::Ip(SocketAddr::V4(address)) => u32::from(*address.ip()) - FIRST_ADDRESS,
        Address::Ip(SocketAddr::V6(_)) | Address::Unix(_) => 0,
    }
}

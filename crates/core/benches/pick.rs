//! What a pick costs: claim and release, for each policy, with 10, 1,000 and 10,000 backends, all up
//! or half of them down. For `prequal` all have said their load a moment ago.
//!
//! `cargo bench -p mizan-core`. Each iteration is `pick` and the drop of its claim; 64 other claims
//! are held all the while, so that loads differ. `observe` and `rebuild` are measured beside it.

#![allow(missing_docs, reason = "criterion's macro makes a public function")]

use std::collections::VecDeque;
use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use mizan_core::{
    Address, Health, Instant, LoadReport, LoadSource, Member, Outcome, Pick, PolicyKind, Pool,
    PoolConfig, ProbeResult,
};

const SIZES: [usize; 3] = [10, 1_000, 10_000];
const HELD: usize = 64;

fn members(count: usize) -> Vec<Member> {
    (0..count)
        .map(|n| Member {
            key: format!("10.0.{}.{}:80", n / 250, n % 250).into(),
            address: Address::Ip(SocketAddr::from((
                [10, 0, (n / 250) as u8, (n % 250) as u8],
                80,
            ))),
            weight: 1 + n as u32 % 3,
            version: Arc::from(""),
            in_flight_max: None,
            place: Default::default(),
        })
        .collect()
}

fn config(policy: PolicyKind) -> PoolConfig {
    PoolConfig {
        policy,
        probed: true,
        fall: 1,
        ..PoolConfig::default()
    }
}

fn pool(config: &PoolConfig, count: usize, half_down: bool) -> Pool {
    let now = Instant::from_nanos(1_000_000_000);
    let pool = Pool::new(now, config.clone(), members(count), 0);
    for (n, backend) in pool.backends().iter().enumerate() {
        let result = if half_down && n % 2 == 0 {
            ProbeResult::Failed {
                refused: false,
                reason: "status 500".to_owned(),
            }
        } else {
            ProbeResult::Passed
        };
        pool.probed(now, backend.key(), result);
        let latency = Duration::from_micros(1_000 + n as u64 % 97);
        pool.observe(now, 0, backend, Outcome::Success { latency });
    }
    // Said in a day, so that it stays fresh however long is measured.
    let later = now + Duration::from_secs(86_400);
    for (n, backend) in pool.backends().iter().enumerate() {
        let report = LoadReport {
            in_flight: n as f64 % 7.0,
            latency: Some(Duration::from_micros(1_000 + n as u64 % 97)),
        };
        pool.note_load(later, backend, report, LoadSource::Probe(u8::MAX));
    }
    pool.tick(now);
    let down = pool.status(now).backends;
    let down = down
        .iter()
        .filter(|backend| backend.health == Health::Down)
        .count();
    assert_eq!(down, if half_down { count / 2 } else { 0 });
    pool
}

/// One request after the other: a new random number and hash each, and time goes on.
struct Requests {
    random: u64,
    nanos: u64,
}

impl Requests {
    fn next(&mut self) -> Pick<'static> {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.nanos += 1_000;
        let random = self.random ^ (self.random >> 32);
        Pick {
            now: Instant::from_nanos(self.nanos),
            random,
            hash: Some(random),
            tried: &[],
            worker: 0,
        }
    }
}

fn requests() -> Requests {
    Requests {
        random: 42,
        nanos: 2_000_000_000,
    }
}

/// Each policy, and those that hash with a bound on load too.
fn configs() -> Vec<(String, PoolConfig)> {
    let bounded = [PolicyKind::ConsistentHash, PolicyKind::Maglev].map(|policy| PoolConfig {
        hash_load_bound: Some(1.25),
        ..config(policy)
    });
    let all = PolicyKind::ALL.map(config).into_iter().chain(bounded);
    all.map(|config| {
        let bound = config.hash_load_bound.map_or("", |_| "_bounded");
        (format!("{}{bound}", config.policy), config)
    })
    .collect()
}

fn picks(criterion: &mut Criterion) {
    for (policy, config) in configs() {
        let mut group = criterion.benchmark_group(policy);
        for count in SIZES {
            for half_down in [false, true] {
                let pool = pool(&config, count, half_down);
                let mut requests = requests();
                let mut held: VecDeque<_> = (0..HELD)
                    .map(|_| pool.pick(&requests.next()).expect("somebody is usable"))
                    .collect();
                let name = if half_down { "half_down" } else { "all_up" };
                group.bench_function(BenchmarkId::new(name, count), |bencher| {
                    bencher.iter(|| {
                        held.push_back(pool.pick(&requests.next()).expect("somebody is usable"));
                        held.pop_front()
                    });
                });
            }
        }
    }
}

fn outcomes(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("observe_success");
    for policy in [
        PolicyKind::PowerOfTwo,
        PolicyKind::LeastResponseTime,
        PolicyKind::PeakEwma,
    ] {
        let pool = pool(&config(policy), 1_000, false);
        let mut requests = requests();
        group.bench_function(policy.name(), |bencher| {
            bencher.iter(|| {
                let pick = requests.next();
                let claim = pool.pick(&pick).expect("somebody is usable");
                let latency = Duration::from_micros(1_000 + (pick.random & 0xFF));
                pool.observe(pick.now, 0, claim.backend(), Outcome::Success { latency });
            });
        });
    }
}

/// What a `tick` costs after one backend of 10,000 went down or up, and an update without and with
/// a change.
fn rebuilds(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("rebuild_10000");
    group.sample_size(10);
    for policy in PolicyKind::ALL {
        let pool = pool(&config(policy), 10_000, false);
        let key = Arc::clone(pool.backends()[5_000].key());
        let now = Instant::from_nanos(3_000_000_000);
        let mut up = true;
        group.bench_function(
            BenchmarkId::new("one_down_or_up", policy.name()),
            |bencher| {
                bencher.iter(|| {
                    up = !up;
                    for _ in 0..2 {
                        let result = if up {
                            ProbeResult::Passed
                        } else {
                            ProbeResult::Failed {
                                refused: false,
                                reason: String::new(),
                            }
                        };
                        pool.probed(now, &key, result);
                    }
                    black_box(pool.tick(now))
                });
            },
        );
        let mut weight = 1;
        let mut members = members(10_000);
        group.bench_function(
            BenchmarkId::new("one_weight_changed", policy.name()),
            |bencher| {
                bencher.iter(|| {
                    weight = 3 - weight;
                    members[5_000].weight = weight;
                    black_box(pool.update(now, config(policy), members.clone()))
                });
            },
        );
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(30);
    targets = picks, outcomes, rebuilds
}
criterion_main!(benches);

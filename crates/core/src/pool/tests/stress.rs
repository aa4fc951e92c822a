//! Many threads at once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use super::support::*;
use crate::policy::mix;
use crate::pool::*;

const THREADS: u64 = 4;
const REQUESTS: u64 = 6_000;

/// Picks, outcomes, ticks, probes and reloads at once: afterwards all counts are zero and the tables
/// agree with their backends.
#[test]
fn counts_and_tree_are_right_after_everything_at_once() {
    let bounded = |policy| PoolConfig {
        hash_load_bound: Some(1.25),
        ..probed(policy)
    };
    let hashes = [PolicyKind::ConsistentHash, PolicyKind::Maglev].map(bounded);
    for config in POLICIES.map(probed).into_iter().chain(hashes) {
        let policy = config.policy;
        let world = World::new(config.clone(), members(100));
        let config = &config;
        let (pool, done, served) = (&world.pool, &AtomicBool::new(false), &AtomicU64::new(0));
        thread::scope(|scope| {
            let workers: Vec<_> = (0..THREADS)
                .map(|worker| scope.spawn(move || work(pool, worker, served)))
                .collect();
            scope.spawn(move || control(pool, config, done));
            for worker in workers {
                worker.join().expect("no worker panicked");
            }
            done.store(true, Ordering::SeqCst);
        });
        assert!(served.load(Ordering::SeqCst) > THREADS * REQUESTS / 2);
        for backend in pool.backends() {
            assert_eq!(backend.in_flight(), 0, "{policy}: {}", backend.key());
        }
        let picker = pool.shared.picker.load();
        assert_eq!(picker.policy.fault(&picker.membership), None, "{policy}");
    }
}

fn work(pool: &Pool, worker: u64, served: &AtomicU64) {
    let mut held = Vec::new();
    for n in 0..REQUESTS {
        let random = mix(worker << 32 | n);
        let now = Instant::from_nanos(1_000_000_000 + n * 1_000_000);
        let pick = Pick {
            now,
            random,
            hash: Some(random),
            tried: &[],
            worker: 0,
        };
        if let Ok(claim) = pool.pick(&pick) {
            served.fetch_add(1, Ordering::SeqCst);
            held.push(claim);
        }
        if held.len() > (random % 20) as usize {
            let claim = held.swap_remove((random >> 32) as usize % held.len());
            let outcome = match random >> 8 & 31 {
                0 => RESET,
                1 => REFUSED,
                2 => status(500),
                3 => ABORTED,
                _ => OK,
            };
            pool.observe(now, 0, claim.backend(), outcome);
        }
    }
}

fn control(pool: &Pool, config: &PoolConfig, done: &AtomicBool) {
    let mut round = 0u64;
    while !done.load(Ordering::SeqCst) {
        round += 1;
        let now = Instant::from_nanos(1_000_000_000 + round * 10_000_000);
        let key = name((mix(round) % 100) as usize, 100);
        let result = if round.is_multiple_of(3) {
            ProbeResult::Failed {
                refused: false,
                reason: String::new(),
            }
        } else {
            ProbeResult::Passed
        };
        pool.probed(now, &key, result);
        pool.tick(now);
        if round.is_multiple_of(50) {
            let count = 60 + (mix(round) % 40) as usize;
            let mut kept: Vec<Member> = members(100);
            kept.truncate(count);
            pool.update(now, config.clone(), kept);
        }
        thread::yield_now();
    }
}

/// A place that is limited is never taken twice, whoever asks at once.
#[test]
fn limits_of_requests_in_flight_hold_under_contention() {
    let mut limited = members(30);
    for member in &mut limited {
        member.in_flight_max = Some(2);
    }
    let world = World::new(config(PolicyKind::LeastConnections), limited);
    let pool = &world.pool;
    let claimed: usize = thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|worker| {
                scope.spawn(move || {
                    let picks = (0..100).map(|n| {
                        pool.pick(&Pick {
                            random: mix(worker << 32 | n),
                            ..Pick::default()
                        })
                    });
                    let claims: Vec<Claim> = picks.filter_map(Result::ok).collect();
                    let count = claims.len();
                    // Held until all have asked: leaking is what "never given back" means here.
                    std::mem::forget(claims);
                    count
                })
            })
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().expect("no panic"))
            .sum()
    });
    assert!(claimed <= 60, "{claimed} claims for 60 places");
    assert!(
        pool.backends()
            .iter()
            .all(|backend| backend.in_flight() <= 2)
    );
}

/// Swapping all members for others leaves no moment at which there is nobody.
#[test]
fn a_pick_while_all_members_are_replaced_gets_an_old_one_or_a_new_one() {
    for policy in POLICIES {
        // Building a table takes a while.
        let changes = if policy == PolicyKind::Maglev {
            200
        } else {
            3_000
        };
        let world = World::new(config(policy), vec![member("a")]);
        let (pool, done) = (&world.pool, &AtomicBool::new(false));
        thread::scope(|scope| {
            let workers: Vec<_> = (0..2u64)
                .map(|worker| {
                    scope.spawn(move || {
                        let mut count = 0u64;
                        while !done.load(Ordering::SeqCst) {
                            count += 1;
                            let random = mix(worker << 32 | count);
                            let picked = pool.pick(&Pick {
                                random,
                                hash: Some(random),
                                ..Pick::default()
                            });
                            assert!(picked.is_ok(), "{policy}: {:?}", picked.err());
                        }
                    })
                })
                .collect();
            for change in 0..changes {
                let now = Instant::from_nanos(1_000_000_000 + change);
                let next = if change % 2 == 0 { "b" } else { "a" };
                pool.update(now, config(policy), vec![member(next)]);
            }
            done.store(true, Ordering::SeqCst);
            for worker in workers {
                worker.join().expect("nobody was missed");
            }
        });
    }
}

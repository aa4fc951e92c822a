//! Small simulations: traffic at a rate, backends with latencies, in virtual time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use super::support::*;
use crate::policy::mix;
use crate::pool::*;

/// Policies that go by load.
const LOAD_AWARE: [PolicyKind; 4] = [
    PolicyKind::LeastConnections,
    PolicyKind::LeastResponseTime,
    PolicyKind::PowerOfTwo,
    PolicyKind::PeakEwma,
];

/// How a backend behaves.
#[derive(Clone, Copy)]
pub(super) struct Behaviour {
    pub(super) latency: Duration,
    pub(super) fails: Option<Outcome>,
}

pub(super) const fn good(ms: u64) -> Behaviour {
    Behaviour {
        latency: Duration::from_millis(ms),
        fails: None,
    }
}

/// Fails within 100 µs.
pub(super) fn black_hole(outcome: Outcome) -> Behaviour {
    Behaviour {
        latency: Duration::from_micros(100),
        fails: Some(outcome),
    }
}

/// Sends `rate` requests a second for `time`, evenly; ticks as a driver does. Gives for each whole
/// second how many each backend got.
pub(super) fn simulate(
    world: &mut World,
    behaviours: &[Behaviour],
    rate: u64,
    time: u64,
) -> Vec<Vec<usize>> {
    let ids: BTreeMap<u64, usize> = world
        .pool
        .backends()
        .iter()
        .zip(0..)
        .map(|(backend, at)| (backend.id(), at))
        .collect();
    let mut running: BTreeMap<u64, (Claim, Duration)> = BTreeMap::new();
    let mut ends = BinaryHeap::new();
    let mut counts = vec![vec![0; behaviours.len()]; time as usize];
    let start = world.now;
    for n in 0..rate * time {
        let arrival = start + Duration::from_nanos(n * 1_000_000_000 / rate);
        while let Some(&Reverse((end, id))) = ends.peek() {
            if end > arrival {
                break;
            }
            ends.pop();
            world.now = end;
            let (claim, latency) = running.remove(&id).expect("it runs");
            let behaviour = behaviours[ids[&claim.backend().id()]];
            let outcome = match behaviour.fails {
                Some(Outcome::ServerError { status, .. }) => Outcome::ServerError {
                    status,
                    latency,
                    retry_after: None,
                },
                Some(outcome) => outcome,
                None => Outcome::Success { latency },
            };
            world.pool.observe(end, 0, claim.backend(), outcome);
        }
        world.now = arrival;
        if world.pool.is_dirty() || world.pool.deadline().is_some_and(|next| next <= arrival) {
            let events = world.tick();
            world.seen.extend(events);
        }
        let claim = world.pick().expect("somebody is usable");
        let at = ids[&claim.backend().id()];
        counts[(n / rate) as usize][at] += 1;
        // ± 30 %, so that nothing goes in step.
        let spread = 0.7 + 0.6 * (mix(n) >> 40) as f64 / f64::from(1 << 24);
        let latency = behaviours[at].latency.mul_f64(spread);
        ends.push(Reverse((arrival + latency, n)));
        running.insert(n, (claim, latency));
    }
    counts
}

#[test]
fn what_fails_fast_stays_below_an_even_share_within_a_second() {
    for policy in LOAD_AWARE {
        for (count, latency, rate, failure) in [
            (4, 10, 100, RESET),
            (10, 10, 800, status(500)),
            (10, 200, 400, status(503)),
            (30, 20, 1_000, RESET),
            (5, 4_000, 50, status(500)),
            (3, 10, 6, RESET),
        ] {
            let mut world = World::new(without_ejection(policy), members(count));
            let mut behaviours = vec![good(latency); count];
            // It was well until now.
            simulate(&mut world, &behaviours, rate, 2);
            behaviours[1] = black_hole(failure);
            let even = rate as f64 / count as f64;
            for (second, counts) in simulate(&mut world, &behaviours, rate, 5)
                .iter()
                .enumerate()
            {
                let share = counts[1] as f64;
                // The second in which it begins may see a few more; each one after must not.
                let bound = if second == 0 { 1.5 * even } else { 0.9 * even };
                assert!(
                    share < bound.max(2.0),
                    "{policy}, {count} backends at {latency} ms, {rate}/s, {failure:?}: second {second} \
                     gave it {share}, even is {even}"
                );
            }
        }
    }
}

#[test]
fn what_fails_fast_from_the_start_never_gets_an_even_share() {
    for policy in LOAD_AWARE {
        for count in [10, 30] {
            let mut world = World::new(without_ejection(policy), members(count));
            let mut behaviours = vec![good(20); count];
            behaviours[0] = black_hole(status(500));
            for counts in simulate(&mut world, &behaviours, 500, 4) {
                let even = 500.0 / count as f64;
                assert!(
                    (counts[0] as f64) < even * 0.5,
                    "{policy} with {count}: {} of {even}",
                    counts[0]
                );
            }
        }
    }
}

#[test]
fn ejection_leaves_a_black_hole_nothing_but_its_probation() {
    for policy in POLICIES {
        let mut world = World::new(config(policy), members(10));
        let mut behaviours = vec![good(10); 10];
        behaviours[3] = black_hole(status(500));
        let counts = simulate(&mut world, &behaviours, 200, 100);
        for (second, counts) in counts.iter().enumerate().skip(2) {
            assert!(counts[3] <= 5, "{policy}: {} in second {second}", counts[3]);
        }
        let total: usize = counts.iter().skip(2).map(|counts| counts[3]).sum();
        assert!(total <= 15, "{policy}: {total} in all");
    }
}

#[test]
fn a_penalty_fades_once_a_backend_is_well_again() {
    for policy in LOAD_AWARE {
        for count in [8, 30] {
            let mut world = World::new(without_ejection(policy), members(count));
            let mut behaviours = vec![good(20); count];
            behaviours[2] = black_hole(RESET);
            simulate(&mut world, &behaviours, 200, 3);
            behaviours[2] = good(20);
            // Least response time has to see the charged latency fade as well.
            let counts = simulate(&mut world, &behaviours, 200, 90);
            let last: usize = counts[70..].iter().map(|counts| counts[2]).sum();
            let even = 20 * 200 / count;
            assert!(last > even / 4, "{policy} with {count}: {last} of {even}");
        }
    }
}

#[test]
fn load_aware_policies_take_less_to_a_slow_backend() {
    for policy in LOAD_AWARE {
        for count in [6, 30] {
            let mut world = World::new(config(policy), members(count));
            let mut behaviours = vec![good(20); count];
            behaviours[0] = good(200);
            let counts = simulate(&mut world, &behaviours, 100 * count as u64, 5);
            let slow: usize = counts[1..].iter().map(|counts| counts[0]).sum();
            assert!(slow < 400 / 2, "{policy} with {count}: {slow} of 400");
        }
    }
}

#[test]
fn many_balancers_that_see_the_same_do_not_herd() {
    for policy in POLICIES {
        // A hundred balancers with the same view of ten idle backends, one request each.
        let mut counts = [0; 10];
        for balancer in 0..100u64 {
            let pool = Pool::new(
                Instant::default(),
                config(policy),
                members(10),
                mix(balancer),
            );
            let claim = pool
                .pick(&Pick {
                    random: mix(balancer + 1_000),
                    ..Pick::default()
                })
                .unwrap();
            let key = claim.backend().key().as_bytes()[0];
            counts[usize::from(key - b'a')] += 1;
        }
        assert!(
            counts.iter().all(|&count| count <= 25),
            "{policy}: {counts:?}"
        );
    }
}

/// linkerd2 #5017: 489.7 requests a second to the faster of two, 0.1 to the slower.
#[test]
fn peak_ewma_leaves_the_slower_of_two_a_share() {
    for rate in [20, 490, 4_000] {
        let mut world = World::new(config(PolicyKind::PeakEwma), members(2));
        let counts = simulate(&mut world, &[good(1), good(3)], rate, 20);
        let slower: usize = counts[5..].iter().map(|counts| counts[1]).sum();
        let share = slower as f64 / (15 * rate) as f64;
        assert!((0.05..0.25).contains(&share), "{rate}/s: {share}");
        assert!(rate < 100 || counts[5..].iter().all(|counts| counts[1] > 0));
    }
}

/// The other side of it: what is far slower is no part of the 99th percentile.
#[test]
fn peak_ewma_leaves_one_of_ten_that_is_ten_times_slower_next_to_nothing() {
    let mut world = World::new(config(PolicyKind::PeakEwma), members(10));
    let mut behaviours = [good(10); 10];
    behaviours[4] = good(100);
    let counts = simulate(&mut world, &behaviours, 1_000, 20);
    let slow: usize = counts[5..].iter().map(|counts| counts[4]).sum();
    assert!((5..150).contains(&slow), "{slow} of 15000");
}

#[test]
fn peak_ewma_believes_a_stall_at_once_and_forgets_it() {
    let mut world = World::new(config(PolicyKind::PeakEwma), members(4));
    let mut behaviours = [good(10); 4];
    simulate(&mut world, &behaviours, 400, 5);
    behaviours[2] = good(500);
    let stalled = simulate(&mut world, &behaviours, 400, 2);
    assert!(stalled[1][2] < 10, "{stalled:?}");
    behaviours[2] = good(10);
    let after = simulate(&mut world, &behaviours, 400, 60);
    let last: usize = after[50..].iter().map(|counts| counts[2]).sum();
    assert!(last > 500, "{last} of 1000 that are even");
}

/// Nothing comes back from it: it must not seem the faster the longer that lasts.
#[test]
fn peak_ewma_leaves_alone_what_never_answers() {
    let mut world = World::new(config(PolicyKind::PeakEwma), members(4));
    let mut behaviours = [good(10); 4];
    simulate(&mut world, &behaviours, 200, 5);
    behaviours[1] = good(1_000_000);
    let counts = simulate(&mut world, &behaviours, 200, 60);
    let hung: usize = counts.iter().map(|counts| counts[1]).sum();
    assert!(hung < 10, "{hung} of 12000");
}

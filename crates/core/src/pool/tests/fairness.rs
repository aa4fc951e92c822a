//! Who gets a request when all are well.

use std::time::Duration;

use proptest::prelude::*;

use super::support::*;
use crate::pool::*;

/// Bound of chi-square with `degrees` of freedom that a fair die exceeds once in far more runs than
/// there will be (Wilson–Hilferty, five standard deviations). The seeds are fixed in any case.
fn chi_square_bound(degrees: f64) -> f64 {
    let part = 2.0 / (9.0 * degrees);
    degrees * (1.0 - part + 5.0 * part.sqrt()).powi(3)
}

fn chi_square(shares: &[usize], weights: &[f64]) -> f64 {
    let picks: usize = shares.iter().sum();
    let total: f64 = weights.iter().sum();
    let term = |(&share, weight): (&usize, &f64)| {
        let expected = picks as f64 * weight / total;
        (share as f64 - expected).powi(2) / expected
    };
    shares.iter().zip(weights).map(term).sum()
}

pub(super) fn assert_fair(shares: &[usize], weights: &[f64]) {
    let (found, bound) = (
        chi_square(shares, weights),
        chi_square_bound(shares.len() as f64 - 1.0),
    );
    assert!(
        found < bound,
        "chi-square {found:.1}, bound {bound:.1}: {shares:?}"
    );
}

#[test]
fn round_robin_goes_in_turn() {
    let mut world = World::new(config(PolicyKind::RoundRobin), members(3));
    assert_eq!(world.served(7).concat(), "abcabca");
}

#[test]
fn round_robin_begins_where_the_random_number_says() {
    let start = |random| {
        let pool = Pool::new(
            Instant::default(),
            config(PolicyKind::RoundRobin),
            members(4),
            random,
        );
        let claim = pool.pick(&Pick::default()).unwrap();
        claim.backend().key().to_string()
    };
    let quarter = u64::MAX / 4;
    assert_eq!(
        [0, 1, 2, 3].map(|n| start(n * quarter + 1_000_000_000_000)),
        ["a", "b", "c", "d"]
    );
}

#[test]
fn round_robin_skips_nobody_when_the_healthy_set_changes_size() {
    let mut world = World::new(probed(PolicyKind::RoundRobin), members(5));
    assert_eq!(world.served(2).concat(), "ab");
    // c goes: its successor is next, and not whoever a smaller modulus would give.
    world.probe("c", false);
    world.tick();
    assert_eq!(world.served(2).concat(), "de");
    assert_eq!(world.served(3).concat(), "abd");
    // c comes back while d was served last: e is next, c has its turn in the next round.
    world.probe("c", true);
    world.probe("c", true);
    world.tick();
    assert_eq!(world.served(5).concat(), "eabcd");
    // The one that was served last goes.
    world.probe("d", false);
    world.tick();
    assert_eq!(world.served(3).concat(), "eab");
}

#[test]
fn round_robin_goes_on_in_turn_over_a_change_of_members() {
    let mut world = World::new(config(PolicyKind::RoundRobin), members(4));
    assert_eq!(world.served(2).concat(), "ab");
    let kept = ["a", "c", "d", "x"].map(member).to_vec();
    world
        .pool
        .update(world.now, config(PolicyKind::RoundRobin), kept);
    assert_eq!(
        world.served(5).concat(),
        "cdxac",
        "b was served last, and left"
    );
    let kept = ["n", "a", "c", "d", "x"].map(member).to_vec();
    world
        .pool
        .update(world.now, config(PolicyKind::RoundRobin), kept);
    assert_eq!(world.served(5).concat(), "dxnac");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Whatever goes and comes: between two turns of one that was there all the while, each other
    /// that was there all the while has exactly one.
    #[test]
    fn round_robin_serves_everybody_who_stays_once_a_round(
        flips in prop::collection::vec((0usize..8, 1usize..12), 1..12)
    ) {
        let mut world = World::new(PoolConfig { panic_threshold: 0.0, fall: 1, rise: 1, ..probed(PolicyKind::RoundRobin) }, members(12));
        let mut served = String::new();
        let mut down = [false; 8];
        for (which, requests) in flips {
            down[which] = !down[which];
            world.probe(&name(which, 12), !down[which]);
            world.tick();
            served += &world.served(requests).concat();
        }
        // The last four never flip.
        let steady: String = served.chars().filter(|&key| key >= 'i').collect();
        let cycle = "ijkl".repeat(steady.len());
        prop_assert!(cycle.contains(&steady), "{steady} of {served}");
    }

    #[test]
    fn weighted_round_robin_shares_are_exact_over_a_cycle(weights in prop::collection::vec(1u32..20, 1..10)) {
        let pool = (0..).zip(&weights).map(|(n, &weight)| weighted(&name(n, 10), weight)).collect();
        let mut world = World::new(config(PolicyKind::WeightedRoundRobin), pool);
        let cycle: u32 = weights.iter().sum();
        for _ in 0..2 {
            let shares = world.shares(cycle as usize);
            let expected: Vec<usize> = weights.iter().map(|&weight| weight as usize).collect();
            prop_assert_eq!(shares, expected);
        }
    }
}

#[test]
fn weighted_round_robin_gives_a_a_b_a_c_a_a() {
    let pool = vec![weighted("a", 5), weighted("b", 1), weighted("c", 1)];
    let mut world = World::new(config(PolicyKind::WeightedRoundRobin), pool);
    assert_eq!(world.served(14).concat(), "aabacaaaabacaa");
}

#[test]
fn weighted_round_robin_goes_on_where_it_was_when_one_goes() {
    let mut world = World::new(probed(PolicyKind::WeightedRoundRobin), members(5));
    assert_eq!(world.served(2).concat(), "ab");
    world.probe("c", false);
    world.tick();
    assert_eq!(
        world.served(5).concat(),
        "deabd",
        "equal weights are plain turns"
    );
}

#[test]
fn power_of_two_compares_two_distinct_backends() {
    // With two backends, two distinct ones are always both: the idle one wins every time.
    let mut world = World::new(config(PolicyKind::PowerOfTwo), members(2));
    let busy = world.pick().unwrap();
    for _ in 0..20_000 {
        let claim = world.pick().unwrap();
        assert_ne!(claim.backend().key(), busy.backend().key());
    }
}

#[test]
fn power_of_two_shares_by_weight_when_idle() {
    let weights = [1.0, 2.0, 3.0, 10.0];
    let pool = (0..)
        .zip(weights)
        .map(|(n, weight)| weighted(&name(n, 4), weight as u32))
        .collect();
    let mut world = World::new(config(PolicyKind::PowerOfTwo), pool);
    assert_fair(&world.shares(20_000), &weights);
}

#[test]
fn random_shares_by_weight_with_half_of_the_backends_down_too() {
    let weight = |n: usize| 1 + (n % 3) as u32;
    let pool = (0..20).map(|n| weighted(&name(n, 20), weight(n))).collect();
    let mut world = World::new(probed(PolicyKind::Random), pool);
    let mut weights: Vec<f64> = (0..20).map(|n| f64::from(weight(n))).collect();
    assert_fair(&world.shares(20_000), &weights);
    for n in (0..20).step_by(2) {
        for _ in 0..3 {
            world.probe(&name(n, 20), false);
        }
    }
    world.tick();
    let mut up = world.shares(20_000);
    for n in (0..20).step_by(2).rev() {
        assert_eq!(up.remove(n), 0);
        weights.remove(n);
    }
    assert_fair(&up, &weights);
}

#[test]
fn random_does_not_look_at_load() {
    let mut world = World::new(config(PolicyKind::Random), members(2));
    let held: Vec<Claim> = (0..4_000).map(|_| world.pick().unwrap()).collect();
    let to_a = held
        .iter()
        .filter(|claim| &**claim.backend().key() == "a")
        .count();
    assert_fair(&[to_a, held.len() - to_a], &[1.0, 1.0]);
    let to_last = world.backend("b").in_flight().abs_diff(2_000);
    assert!(to_last > 5, "even to within {to_last}: these are no draws");
}

#[test]
fn least_connections_breaks_ties_fairly() {
    // Below and above the size from which on a tree is kept.
    for count in [3, 10, 16, 17, 100] {
        let mut world = World::new(config(PolicyKind::LeastConnections), members(count));
        assert_fair(&world.shares(count * 200), &vec![1.0; count]);
    }
}

#[test]
fn least_connections_breaks_ties_by_weight() {
    for count in [8, 40] {
        let weight = |n: usize| 1 + (n % 4) as u32;
        let pool = (0..count)
            .map(|n| weighted(&name(n, count), weight(n)))
            .collect();
        let mut world = World::new(config(PolicyKind::LeastConnections), pool);
        let weights: Vec<f64> = (0..count).map(|n| f64::from(weight(n))).collect();
        assert_fair(&world.shares(count * 300), &weights);
    }
}

#[test]
fn least_connections_takes_the_exact_minimum_of_ten_thousand() {
    let mut world = World::new(config(PolicyKind::LeastConnections), members(10_000));
    let mut held = Vec::new();
    for round in 0..2 {
        for _ in 0..10_000 {
            let claim = world.pick().unwrap();
            assert_eq!(
                claim.backend().in_flight(),
                round + 1,
                "one with {round} was there"
            );
            held.push(claim);
        }
    }
    // One is released: it is the least, and the next pick finds it.
    for at in [0, 4_321, 9_999] {
        let freed = held.swap_remove(at);
        let id = freed.backend().id();
        drop(freed);
        let claim = world.pick().unwrap();
        assert_eq!(claim.backend().id(), id);
        held.push(claim);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Against the definition, through any sequence of picks and releases.
    #[test]
    fn least_connections_is_fewest_in_flight_for_the_weight(
        weights in prop::collection::vec(1u32..5, 2..40),
        steps in prop::collection::vec(any::<Option<prop::sample::Index>>(), 1..200)
    ) {
        let pool = (0..).zip(&weights).map(|(n, &weight)| weighted(&name(n, 40), weight)).collect();
        let mut world = World::new(config(PolicyKind::LeastConnections), pool);
        let mut held = Vec::new();
        for step in steps {
            match step {
                Some(index) if !held.is_empty() => {
                    drop(held.swap_remove(index.index(held.len())));
                }
                _ => {
                    let load = |backend: &Arc<Backend>| f64::from(backend.in_flight()) / f64::from(backend.weight());
                    let least = world.pool.backends().iter().map(load).fold(f64::MAX, f64::min);
                    let claim = world.pick().unwrap();
                    let backend = claim.backend();
                    let before = f64::from(backend.in_flight() - 1) / f64::from(backend.weight());
                    prop_assert!((before - least).abs() < 1e-6, "{before} was picked, {least} was least");
                    held.push(claim);
                }
            }
        }
    }
}

#[test]
fn least_response_time_weighs_latency_and_load() {
    for count in [3, 30] {
        let mut world = World::new(config(PolicyKind::LeastResponseTime), members(count));
        // The first takes 10 ms, all others 35 ms.
        let first = name(0, count);
        for backend in world.pool.backends() {
            let latency = Duration::from_millis(if **backend.key() == *first { 10 } else { 35 });
            world
                .pool
                .observe(world.now, 0, &backend, Outcome::Success { latency });
        }
        // (n + 1) × 10 ms against 1 × 35 ms: three more in flight, then another.
        let claims: Vec<Claim> = (0..4).map(|_| world.pick().unwrap()).collect();
        let keys: Vec<&str> = claims
            .iter()
            .map(|claim| &**claim.backend().key())
            .collect();
        assert_eq!(keys[..3], [&*first; 3]);
        assert_ne!(keys[3], &*first, "4 × 10 ms is more than 35 ms");
    }
}

#[test]
fn least_response_time_tries_a_slow_backend_again_when_its_figure_has_faded() {
    for count in [3, 30] {
        let mut world = World::new(config(PolicyKind::LeastResponseTime), members(count));
        let slow = name(1, count);
        for backend in world.pool.backends() {
            let latency = if **backend.key() == *slow {
                seconds(1.0)
            } else {
                seconds(0.01)
            };
            world
                .pool
                .observe(world.now, 0, &backend, Outcome::Success { latency });
        }
        // A hundred times slower: as e^(-t/10 s) fades, that takes 10 s × ln 100 = 46 s.
        let start = world.now;
        let found = (0..10_000).find(|_| {
            world.pass(seconds(0.05));
            world.request(|_| OK) == slow
        });
        assert!(found.is_some(), "it never was");
        let waited = (world.now - start).as_secs_f64();
        assert!((40.0..55.0).contains(&waited), "after {waited} s");
    }
}

#[test]
fn a_new_backend_is_neither_flooded_nor_starved_by_least_response_time() {
    for count in [4, 40] {
        let policy = config(PolicyKind::LeastResponseTime);
        let mut world = World::new(policy.clone(), members(count));
        for backend in world.pool.backends() {
            let latency = seconds(0.2);
            world
                .pool
                .observe(world.now, 0, &backend, Outcome::Success { latency });
        }
        let mut grown = members(count);
        grown.push(member("new"));
        world.pool.update(world.now, policy, grown);
        let held: Vec<Claim> = (0..=count).map(|_| world.pick().unwrap()).collect();
        assert_eq!(world.backend("new").in_flight(), 1);
        drop(held);
    }
}

#[test]
fn a_request_avoids_what_it_tried_while_others_remain() {
    for policy in POLICIES {
        for count in [3, 40] {
            let mut world = World::new(config(policy), members(count));
            let mut tried = Vec::new();
            for _ in 0..count.min(16) {
                let claim = world.pick_with(Some(42), &tried).unwrap();
                let id = claim.backend().id();
                assert!(!tried.contains(&id), "{policy} picked a tried backend");
                tried.push(id);
            }
            let all: Vec<u64> = world
                .pool
                .backends()
                .iter()
                .map(|backend| backend.id())
                .collect();
            assert!(
                world.pick_with(Some(42), &all).is_ok(),
                "when none remains it may try again"
            );
        }
    }
}

#[test]
fn a_full_backend_is_passed_over_and_a_full_pool_says_so() {
    for policy in POLICIES {
        for count in [3, 40] {
            let mut pool = members(count);
            for (n, member) in pool.iter_mut().enumerate() {
                member.in_flight_max = Some(1 + n as u32 % 2);
            }
            let room: u32 = pool.iter().filter_map(|member| member.in_flight_max).sum();
            let mut world = World::new(config(policy), pool);
            let mut held: Vec<Claim> = (0..room)
                .map(|_| world.pick_with(Some(7), &[]).unwrap())
                .collect();
            assert_eq!(
                world.pick_with(Some(7), &[]).unwrap_err(),
                NoPick::Saturated
            );
            let freed = held.pop().unwrap();
            let id = freed.backend().id();
            drop(freed);
            assert_eq!(world.pick_with(Some(7), &[]).unwrap().backend().id(), id);
        }
    }
}

//! The policy `peak_ewma`, pick by pick. Its traffic is simulated in `simulated`.

use std::time::Duration;

use super::fairness::assert_fair;
use super::support::*;
use crate::pool::*;

fn took(ms: u64) -> Outcome {
    Outcome::Success {
        latency: Duration::from_millis(ms),
    }
}

#[test]
fn the_busy_one_of_two_is_not_picked() {
    let mut world = World::new(config(PolicyKind::PeakEwma), members(2));
    for known in [false, true] {
        let busy = world.pick().unwrap();
        for _ in 0..1_000 {
            let claim = world.pick().unwrap();
            assert_ne!(claim.backend().key(), busy.backend().key(), "{known}");
        }
        drop(busy);
        world.observe("a", OK);
        world.observe("b", OK);
    }
}

#[test]
fn idle_backends_of_one_latency_share_by_weight() {
    let weights = [1.0, 2.0, 3.0, 10.0];
    let pool = (0..)
        .zip(weights)
        .map(|(n, weight)| weighted(&name(n, 4), weight as u32))
        .collect();
    let mut world = World::new(config(PolicyKind::PeakEwma), pool);
    assert_fair(&world.shares(20_000), &weights);
    for key in ["a", "b", "c", "d"] {
        world.observe(key, OK);
    }
    assert_fair(&world.shares(20_000), &weights);
}

#[test]
fn load_counts_by_weight_at_any_scale() {
    for scale in [1, 1_000] {
        let pool = vec![weighted("a", scale), weighted("b", 3 * scale)];
        let mut world = World::new(config(PolicyKind::PeakEwma), pool);
        world.observe("a", OK);
        world.observe("b", OK);
        let held: Vec<Claim> = (0..400).map(|_| world.pick().unwrap()).collect();
        let to_a = world.backend("a").in_flight();
        assert!((95..=105).contains(&to_a), "{to_a} of {}", held.len());
    }
}

#[test]
fn shares_hold_with_half_of_the_backends_down() {
    let mut world = World::new(probed(PolicyKind::PeakEwma), members(20));
    for n in (0..20).step_by(2) {
        for _ in 0..3 {
            world.probe(&name(n, 20), false);
        }
    }
    world.tick();
    let shares = world.shares(10_000);
    let up: Vec<usize> = shares.into_iter().skip(1).step_by(2).collect();
    assert_fair(&up, &[1.0; 10]);
}

#[test]
fn one_that_was_not_picked_for_three_seconds_has_a_turn() {
    let mut world = World::new(config(PolicyKind::PeakEwma), members(2));
    world.observe("a", took(1));
    world.observe("b", took(60_000));
    let mut turns = Vec::new();
    for _ in 0..2_000 {
        world.now = world.now + seconds(0.01);
        let claim = world.pick().unwrap();
        if &**claim.backend().key() == "b" {
            turns.push(world.now);
        }
        let ms = if &**claim.backend().key() == "b" {
            60_000
        } else {
            1
        };
        world.pool.observe(world.now, 0, claim.backend(), took(ms));
    }
    for pair in turns.windows(2) {
        let between = (pair[1] - pair[0]).as_secs_f64();
        assert!((3.0..3.2).contains(&between), "{between} s");
    }
    assert!((6..8).contains(&turns.len()), "{turns:?}");
}

#[test]
fn one_that_fails_has_none_until_its_failures_have_faded() {
    let mut world = World::new(without_ejection(PolicyKind::PeakEwma), members(2));
    world.observe("a", took(1));
    world.observe("b", RESET);
    let start = world.now;
    let waited = loop {
        world.now = world.now + seconds(0.01);
        if world.request(|_| took(1)) == "b" {
            break (world.now - start).as_secs_f64();
        }
    };
    assert!((5.0..12.0).contains(&waited), "{waited} s");
}

/// Where nobody is picked often, none is overdue.
#[test]
fn a_slow_one_gets_no_even_share_where_traffic_is_thin() {
    let mut world = World::new(config(PolicyKind::PeakEwma), members(10));
    let latency = |key: &str| if key == "d" { took(5_000) } else { took(10) };
    for n in 0..10 {
        let key = name(n, 10);
        world.observe(&key, latency(&key));
    }
    // Three a second: each backend is picked every 3.3 s.
    let served = (0..3_000).filter(|_| {
        world.now = world.now + seconds(0.333);
        world.request(latency) == "d"
    });
    let slow = served.count();
    assert!((1..150).contains(&slow), "{slow} of 3000, 300 are even");
}

#[test]
fn a_new_backend_is_neither_flooded_nor_starved() {
    let policy = config(PolicyKind::PeakEwma);
    let mut world = World::new(policy.clone(), members(10));
    for backend in world.pool.backends() {
        world.pool.observe(world.now, 0, &backend, took(200));
    }
    let mut grown = members(10);
    grown.push(member("new"));
    world.pool.update(world.now, policy, grown);
    let held: Vec<Claim> = (0..220).map(|_| world.pick().unwrap()).collect();
    let new = world.backend("new").in_flight();
    assert!((15..=25).contains(&new), "{new} of {}", held.len());
}

//! Weights follow what traffic says: slow, failing, saturated and cold backends, and nobody else.

use super::simulated::{Behaviour, black_hole, good, simulate};
use super::support::*;
use crate::ejection::EjectionCause;
use crate::pool::*;

/// Policies whose picks follow weights.
const FOLLOWING: [PolicyKind; 6] = [
    PolicyKind::Random,
    PolicyKind::PeakEwma,
    PolicyKind::WeightedRoundRobin,
    PolicyKind::LeastConnections,
    PolicyKind::LeastResponseTime,
    PolicyKind::PowerOfTwo,
];

fn states(world: &World, of: &str) -> Vec<(AdaptiveState, String)> {
    let changes = world.seen.iter().filter_map(|event| match event {
        Event::StateChanged {
            backend,
            to,
            reason,
            ..
        } if &**backend == of => Some((*to, reason.clone())),
        _ => None,
    });
    changes.collect()
}

fn share(counts: &[Vec<usize>], at: usize) -> f64 {
    let all: usize = counts.iter().flatten().sum();
    let own: usize = counts.iter().map(|second| second[at]).sum();
    own as f64 / all.max(1) as f64
}

/// How often any backend changed its state.
fn changes(world: &World) -> usize {
    let is_change = |event: &&Event| matches!(event, Event::StateChanged { .. });
    world.seen.iter().filter(is_change).count()
}

#[test]
fn a_slow_backend_is_degraded_with_figures_and_recovers() {
    for policy in FOLLOWING {
        let mut world = World::new(adapting(policy), members(5));
        let mut behaviours = vec![good(20); 5];
        simulate(&mut world, &behaviours, 500, 15);
        assert_eq!(changes(&world), 0, "{policy}: {:?}", world.seen);

        behaviours[1] = good(200);
        let slow = simulate(&mut world, &behaviours, 500, 15);
        let found = states(&world, "b");
        let [(AdaptiveState::Degraded, reason)] = &found[..] else {
            panic!("{policy}: {found:?}");
        };
        assert!(
            reason.contains("× its siblings'") && reason.contains("requests"),
            "{reason}"
        );
        assert!(
            share(&slow[8..], 1) < 0.05,
            "{policy}: {}",
            share(&slow[8..], 1)
        );
        let status = world.status_of("b");
        assert_eq!(status.state, AdaptiveState::Degraded);
        assert!(
            status.weight_share < 0.3 && status.score < 0.3,
            "{status:?}"
        );
        assert!(status.reason.starts_with("degraded"), "{}", status.reason);

        behaviours[1] = good(20);
        let after = simulate(&mut world, &behaviours, 500, 50);
        assert_eq!(
            world.status_of("b").state,
            AdaptiveState::Healthy,
            "{policy}"
        );
        assert_eq!(changes(&world), 2, "{policy}: {:?}", world.seen);
        let even = share(&after[40..], 1);
        assert!((0.15..0.25).contains(&even), "{policy}: {even}");
    }
}

#[test]
fn a_slowdown_of_all_degrades_nobody() {
    for policy in FOLLOWING {
        for count in [2, 3, 10] {
            let mut world = World::new(adapting(policy), members(count));
            simulate(&mut world, &vec![good(10); count], 100 * count as u64, 15);
            simulate(&mut world, &vec![good(100); count], 100 * count as u64, 30);
            assert_eq!(world.seen, [], "{policy} with {count}");
        }
    }
}

#[test]
fn failures_of_all_degrade_nobody_and_those_of_one_do() {
    let mut world = World::new(adapting(PolicyKind::WeightedRoundRobin), members(4));
    let flaky = |n: u64, every: u64| {
        if n.is_multiple_of(every) {
            status(500)
        } else {
            OK
        }
    };
    let mut n = 0;
    let mut second = |world: &mut World, bad: &[&str], every: u64| {
        for _ in 0..200 {
            n += 1;
            let number = n / 4;
            let outcome = |key: &str| {
                if bad.contains(&key) {
                    flaky(number, every)
                } else {
                    OK
                }
            };
            world.request(outcome);
            world.now = world.now + seconds(0.005);
            let events = world.tick();
            world.seen.extend(events);
        }
    };
    for _ in 0..20 {
        second(&mut world, &["a", "b", "c", "d"], 4);
    }
    assert_eq!(world.seen, []);
    for _ in 0..30 {
        second(&mut world, &[], 4);
    }
    for _ in 0..12 {
        second(&mut world, &["c"], 4);
    }
    let found = states(&world, "c");
    assert!(
        matches!(&found[..], [(AdaptiveState::Degraded, reason)] if reason.contains("fail")),
        "{found:?}"
    );
}

#[test]
fn a_machine_that_was_always_slower_is_not_degraded_for_it() {
    let mut world = World::new(adapting(PolicyKind::LeastConnections), members(4));
    let mut behaviours = vec![good(10), good(10), good(10), good(35)];
    simulate(&mut world, &behaviours, 400, 180);
    assert_eq!(world.seen, []);
    behaviours[3] = good(350);
    simulate(&mut world, &behaviours, 400, 10);
    assert_eq!(world.status_of("d").state, AdaptiveState::Degraded);
}

#[test]
fn a_backend_that_is_slow_in_turns_changes_its_state_seldom() {
    for period in [2, 4, 8] {
        let mut world = World::new(adapting(PolicyKind::PowerOfTwo), members(5));
        simulate(&mut world, &[good(10); 5], 500, 12);
        for _ in 0..60 / period {
            for latency in [200, 10] {
                let mut behaviours = vec![good(10); 5];
                behaviours[2] = good(latency);
                simulate(&mut world, &behaviours, 500, period);
            }
        }
        assert!(
            changes(&world) <= 5,
            "{period} s, in more than two minutes: {:?}",
            world.seen
        );
    }
}

#[test]
fn with_few_requests_it_recovers_too() {
    let mut world = World::new(adapting(PolicyKind::WeightedRoundRobin), members(5));
    let mut behaviours = vec![good(20); 5];
    simulate(&mut world, &behaviours, 5, 60);
    behaviours[0] = good(2_000);
    simulate(&mut world, &behaviours, 5, 60);
    assert_eq!(world.status_of("a").state, AdaptiveState::Degraded);
    behaviours[0] = good(20);
    let after = simulate(&mut world, &behaviours, 5, 120);
    assert_eq!(world.status_of("a").state, AdaptiveState::Healthy);
    let share = share(&after[35..60], 0);
    assert!(share > 0.1, "{share} after 35 s");
}

#[test]
fn nobody_is_degraded_by_chance() {
    for (rate, count) in [(20, 3), (100, 10), (1_000, 20)] {
        let mut world = World::new(adapting(PolicyKind::PowerOfTwo), members(count));
        for n in 0..600 {
            // Long tails: one request in 25 takes ten times as long.
            let behaviours: Vec<Behaviour> = (0..count as u64)
                .map(|at| {
                    good(if (n * 7 + at * 13).is_multiple_of(25) {
                        100
                    } else {
                        10
                    })
                })
                .collect();
            simulate(&mut world, &behaviours, rate / 4, 1);
        }
        assert!(changes(&world) <= 2, "{rate}/s, {count}: {:?}", world.seen);
    }
}

#[test]
fn a_black_hole_that_passes_its_probes_gets_next_to_nothing() {
    for policy in FOLLOWING {
        let mut world = World::new(adapting(policy), members(5));
        let mut behaviours = vec![good(20); 5];
        simulate(&mut world, &behaviours, 500, 5);
        behaviours[1] = black_hole(status(500));
        let counts = simulate(&mut world, &behaviours, 500, 20);
        assert!(
            share(&counts[1..2], 1) < 0.2,
            "{policy}: {}",
            share(&counts[1..2], 1)
        );
        assert!(
            share(&counts[5..], 1) < 0.04,
            "{policy}: {}",
            share(&counts[5..], 1)
        );
    }
}

#[test]
fn a_new_backend_starts_slowly_and_a_new_pool_does_not() {
    let mut world = World::new(adapting(PolicyKind::PowerOfTwo), members(4));
    let first = simulate(&mut world, &[good(10); 4], 400, 2);
    assert!(first[0].iter().all(|&count| count > 70), "{first:?}");
    simulate(&mut world, &[good(10); 4], 400, 5);
    world
        .pool
        .update(world.now, adapting(PolicyKind::PowerOfTwo), members(5));
    let status = world.status_of("e");
    assert!(
        status.weight_share <= 0.1 && status.reason.contains("slowly"),
        "{status:?}"
    );
    let counts = simulate(&mut world, &[good(10); 5], 400, 20);
    assert!(share(&counts[..1], 4) < 0.05, "{counts:?}");
    assert!(share(&counts[..5], 4) < share(&counts[5..10], 4));
    assert!(
        (0.16..0.24).contains(&share(&counts[12..], 4)),
        "{}",
        share(&counts[12..], 4)
    );
}

#[test]
fn a_slow_start_ends_with_few_requests_and_when_all_others_are_gone() {
    let mut world = World::new(adapting(PolicyKind::PowerOfTwo), members(4));
    simulate(&mut world, &[good(10); 4], 5, 10);
    world
        .pool
        .update(world.now, adapting(PolicyKind::PowerOfTwo), members(5));
    simulate(&mut world, &[good(10); 5], 5, 25);
    assert_eq!(world.status_of("e").weight_share, 1.0);

    world
        .pool
        .update(world.now, adapting(PolicyKind::PowerOfTwo), members(6));
    for key in ["a", "b", "c", "d", "e"] {
        world
            .pool
            .set_admin(world.now, key, Admin::Drain)
            .expect("a member");
    }
    world.tick();
    let claims: Vec<Claim> = (0..100).filter_map(|_| world.pick().ok()).collect();
    assert_eq!(
        claims.len(),
        100,
        "nobody else is there: it has to take them"
    );
}

#[test]
fn one_back_from_an_ejection_gets_a_small_share_first() {
    let mut world = World::new(adapting(PolicyKind::PowerOfTwo), members(4));
    simulate(&mut world, &[good(10); 4], 400, 5);
    (0..5).for_each(|_| world.observe("a", RESET));
    let out = simulate(&mut world, &[good(10); 4], 400, 29);
    assert_eq!(share(&out[1..], 0), 0.0);
    assert_eq!(world.status_of("a").state, AdaptiveState::Unhealthy);
    let back = simulate(&mut world, &[good(10); 4], 400, 60);
    assert!(share(&back[2..5], 0) < 0.1, "{}", share(&back[2..5], 0));
    assert!(
        (0.2..0.3).contains(&share(&back[45..], 0)),
        "{}",
        share(&back[45..], 0)
    );
}

#[test]
fn a_share_of_failures_ejects_that_never_comes_in_a_row() {
    let mut world = World::new(adapting(PolicyKind::WeightedRoundRobin), members(6));
    let mut n = 0u64;
    let mut run = |world: &mut World, bad: u64, time: u64| {
        for _ in 0..time * 600 {
            n += 1;
            let fails = (n / 6) % 4 < bad;
            let outcome = |key: &str| if key == "b" && fails { status(500) } else { OK };
            world.request(outcome);
            world.now = world.now + seconds(1.0 / 600.0);
            let events = world.tick();
            world.seen.extend(events);
        }
    };
    run(&mut world, 0, 12);
    run(&mut world, 2, 12);
    let ejected = world.seen.iter().find_map(|event| match event {
        Event::Ejected {
            backend,
            cause: EjectionCause::SuccessRate,
            reason,
            ..
        } => Some((backend.to_string(), reason.clone())),
        _ => None,
    });
    let (backend, reason) = ejected.unwrap_or_else(|| panic!("{:?}", world.seen));
    assert_eq!(backend, "b");
    assert!(reason.contains("% of its requests succeed"), "{reason}");
}

#[test]
fn in_panic_those_that_were_good_lately_go_first_and_it_says_what_it_believes() {
    let policy = PoolConfig {
        probed: true,
        ..adapting(PolicyKind::PowerOfTwo)
    };
    let mut world = World::new(policy, members(9));
    for key in ["a", "b", "c", "d", "e", "f", "g", "h", "i"] {
        world.probe(key, true);
    }
    simulate(&mut world, &[good(10); 9], 900, 5);
    // Two have been down for long, the others' probes fail all at once.
    for key in ["a", "b"] {
        (0..3).for_each(|_| world.probe(key, false));
    }
    simulate(&mut world, &[good(10); 9], 900, 20);
    for key in ["c", "d", "e", "f", "g"] {
        (0..3).for_each(|_| world.probe(key, false));
    }
    // Until it has shown again that it serves.
    let counts = simulate(&mut world, &[good(10); 9], 900, 1);
    assert!(share(&counts, 0) < 0.05, "{counts:?}");
    assert!(share(&counts, 3) > 0.08, "{counts:?}");
    let belief = world.seen.iter().find_map(|event| match event {
        Event::PanicEntered { belief, .. } => Some(belief.clone()),
        _ => None,
    });
    let belief = belief.expect("it is a panic");
    assert!(
        belief.contains("7 of 9 fail their probes")
            && belief.contains("the probe is the likelier fault"),
        "{belief}"
    );
}

#[test]
fn a_backend_that_says_it_is_full_gets_less_unless_all_are() {
    let mut world = World::new(adapting(PolicyKind::PowerOfTwo), members(4));
    let report = |world: &World, loads: [f64; 4]| {
        for (key, load) in ["a", "b", "c", "d"].into_iter().zip(loads) {
            world.pool.report(world.now, &world.backend(key), load);
        }
    };
    for _ in 0..12 {
        report(&world, [0.3, 0.96, 0.3, 0.4]);
        simulate(&mut world, &[good(10); 4], 400, 1);
    }
    let found = states(&world, "b");
    assert!(
        matches!(&found[..], [(AdaptiveState::Degraded, reason)] if reason.contains("96 %")),
        "{found:?}"
    );
    assert_eq!(changes(&world), 1);
    for _ in 0..40 {
        report(&world, [0.9, 0.96, 0.92, 0.95]);
        simulate(&mut world, &[good(10); 4], 400, 1);
    }
    assert_eq!(
        changes(&world),
        2,
        "full as all are, it is as good as they: {:?}",
        world.seen
    );
    world.pool.report(world.now, &world.backend("a"), f64::NAN);
    world.pool.report(world.now, &world.backend("a"), -1.0);
}

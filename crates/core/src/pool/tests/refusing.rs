//! Backends that refuse connections.

use super::support::*;
use crate::pool::*;

fn shares_of(world: &mut World, key: &str) -> usize {
    (0..300u64)
        .filter(|&hash| {
            let claim = world.pick_with(Some(hash), &[]).unwrap();
            &**claim.backend().key() == key
        })
        .count()
}

fn refuse(world: &mut World, key: &str) {
    for _ in 0..2 {
        world.observe(key, REFUSED);
    }
}

#[test]
fn two_refusals_in_a_row_take_effect_at_once() {
    for policy in POLICIES {
        for count in [3, 40] {
            let mut world = World::new(config(policy), members(count));
            let key = name(1, count);
            world.observe(&key, REFUSED);
            world.observe(&key, OK);
            world.observe(&key, REFUSED);
            assert!(world.backend(&key).is_usable(), "one refusal is no proof");
            world.observe(&key, REFUSED);
            assert!(!world.backend(&key).is_usable());
            assert_eq!(
                shares_of(&mut world, &key),
                0,
                "{policy} with {count}, before any tick"
            );
            let events = world.tick();
            assert_eq!(
                events,
                [Event::Refused {
                    backend: key.as_str().into()
                }]
            );
        }
    }
}

#[test]
fn one_refusal_is_enough_when_the_probe_says_so_too() {
    let refused = || ProbeResult::Failed {
        refused: true,
        reason: "connection refused".to_owned(),
    };
    // Probe first, then traffic; and the other way round.
    for probe_first in [true, false] {
        let mut world = World::new(probed(PolicyKind::PowerOfTwo), members(3));
        world.probe("a", true);
        if probe_first {
            world.pool.probed(world.now, "a", refused());
            world.observe("a", REFUSED);
        } else {
            world.observe("a", REFUSED);
            world.pool.probed(world.now, "a", refused());
        }
        assert!(!world.backend("a").is_usable());
        assert!(world.status_of("a").refused);
    }
}

#[test]
fn with_probes_it_comes_back_when_one_passes_and_it_is_up() {
    let mut world = World::new(probed(PolicyKind::PowerOfTwo), members(3));
    world.probe("a", true);
    refuse(&mut world, "a");
    for _ in 0..3 {
        world.probe("a", false);
    }
    world.pass(seconds(3_600.0));
    assert!(!world.backend("a").is_usable(), "time alone proves nothing");
    assert_eq!(world.status_of("a").reason, "refuses connections");
    world.probe("a", true);
    assert!(!world.backend("a").is_usable(), "one of two");
    world.probe("a", true);
    let events = world.tick();
    assert!(
        events.contains(&Event::Answering {
            backend: "a".into()
        }),
        "{events:?}"
    );
    assert!(shares_of(&mut world, "a") > 0);
}

#[test]
fn coming_back_clears_the_run_only_if_it_was_all_refusals() {
    for (before, survives) in [(REFUSED, true), (status(500), false)] {
        let mut world = World::new(probed(PolicyKind::PowerOfTwo), members(4));
        world.probe("a", true);
        for outcome in [before, before, REFUSED, REFUSED] {
            world.observe("a", outcome);
        }
        world.probe("a", true);
        assert!(
            world.backend("a").is_usable(),
            "it accepts connections again"
        );
        world.observe("a", RESET);
        assert_eq!(
            world.backend("a").is_usable(),
            survives,
            "the fifth after {before:?}"
        );
    }
}

#[test]
fn a_late_answer_on_an_old_connection_does_not_bring_it_back() {
    let mut world = World::new(probed(PolicyKind::PowerOfTwo), members(3));
    refuse(&mut world, "a");
    world.observe("a", OK);
    assert!(!world.backend("a").is_usable());
}

#[test]
fn without_probes_one_claim_tries_it_after_a_back_off() {
    for policy in POLICIES {
        for count in [3, 40] {
            let mut world = World::new(config(policy), members(count));
            let key = name(1, count);
            refuse(&mut world, &key);
            world.tick();
            world.pass(seconds(0.9));
            assert_eq!(
                shares_of(&mut world, &key),
                0,
                "{policy}: not before the back-off is over"
            );
            world.pass(seconds(0.2));
            let held: Vec<Claim> = (0..2_000u64)
                .map(|hash| world.pick_with(Some(hash), &[]).unwrap())
                .collect();
            let on_it = |claim: &&Claim| **claim.backend().key() == *key;
            let trials = held.iter().filter(on_it).count();
            assert_eq!(
                trials, 1,
                "{policy} with {count}: one claim, and no second while it is out"
            );
            // Refused again: not for two seconds.
            drop(held);
            world.observe(&key, REFUSED);
            world.tick();
            world.pass(seconds(1.9));
            assert!(!world.backend(&key).is_usable());
            assert_eq!(world.pass(seconds(0.2)), [], "an offer is no news");
            let trial = (0..2_000u64)
                .map(|hash| world.pick_with(Some(hash), &[]).unwrap())
                .find(|claim| on_it(&claim))
                .expect("a second trial");
            world.pool.observe(world.now, 0, trial.backend(), OK);
            let events = world.tick();
            assert_eq!(
                events,
                [Event::Answering {
                    backend: key.as_str().into()
                }]
            );
            assert!(world.backend(&key).is_usable());
        }
    }
}

#[test]
fn a_trial_whose_outcome_is_lost_is_offered_again() {
    let mut world = World::new(config(PolicyKind::RoundRobin), members(3));
    refuse(&mut world, "a");
    world.tick();
    world.pass(seconds(1.0));
    assert_eq!(
        shares_of(&mut world, "a"),
        1,
        "the client went away before it connected"
    );
    assert_eq!(shares_of(&mut world, "a"), 0);
    world.pass(seconds(1.0));
    assert_eq!(shares_of(&mut world, "a"), 1);
}

#[test]
fn a_lone_backend_that_refuses_is_still_tried() {
    let mut world = World::new(config(PolicyKind::PowerOfTwo), members(1));
    for _ in 0..20 {
        assert_eq!(world.request(|_| REFUSED), "a");
    }
    assert_eq!(world.request(|_| OK), "a");
    world.tick();
    assert!(!world.status_of("a").refused);
    assert!(!world.pool.status(world.now).panic);
}

#[test]
fn when_all_refuse_a_trial_that_is_under_way_bars_nobody() {
    let mut world = World::new(config(PolicyKind::PowerOfTwo), members(2));
    refuse(&mut world, "a");
    refuse(&mut world, "b");
    // Both trials are on offer, and then taken by requests whose outcome is not known yet.
    world.pass(seconds(1.5));
    let held: Vec<Claim> = (0..10).map(|_| world.pick().unwrap()).collect();
    assert!(held.iter().any(|claim| &**claim.backend().key() == "a"));
    assert!(held.iter().any(|claim| &**claim.backend().key() == "b"));
}

#[test]
fn refusals_alone_never_eject_where_there_are_no_probes() {
    let mut world = World::new(config(PolicyKind::PowerOfTwo), members(3));
    for _ in 0..20 {
        world.observe("a", REFUSED);
    }
    world.tick();
    assert_eq!(world.status_of("a").ejection, crate::Ejection::None);
}

#[test]
fn a_probe_that_passes_on_a_port_of_its_own_brings_no_refusing_backend_back() {
    for (result, is_back) in [
        (ProbeResult::PassedElsewhere, false),
        (ProbeResult::Passed, true),
    ] {
        let mut world = World::new(probed(PolicyKind::PowerOfTwo), members(3));
        for key in ["a", "b", "c"] {
            world.probe(key, true);
        }
        refuse(&mut world, "a");
        world.tick();
        assert!(!world.backend("a").is_usable());
        for _ in 0..3 {
            world.pool.probed(world.now, "a", result.clone());
        }
        world.tick();
        assert_eq!(world.backend("a").is_usable(), is_back, "{result:?}");
    }
}

/// The probe's port says that the process lives; a request then shows whether the other port does.
#[test]
fn a_backend_whose_probe_has_a_port_of_its_own_is_tried_after_it_refused_and_comes_back() {
    let mut world = World::new(probed(PolicyKind::RoundRobin), members(3));
    let probe = |world: &mut World| {
        for key in ["a", "b", "c"] {
            world
                .pool
                .probed(world.now, key, ProbeResult::PassedElsewhere);
        }
    };
    probe(&mut world);
    refuse(&mut world, "a");
    world.tick();
    assert!(!world.backend("a").is_usable());
    let mut tried = 0;
    for _ in 0..30 {
        world.pass(seconds(1.0));
        probe(&mut world);
        for key in world.served(30) {
            tried += usize::from(key == "a");
        }
    }
    assert!(tried > 0, "it was never tried again");
    world.tick();
    assert!(
        world.backend("a").is_usable(),
        "its answer did not bring it back"
    );
}

/// All are gone for seconds under load: in the panic each is tried again and again. Who is back then has failed nobody yet.
#[test]
fn after_an_outage_of_all_nobody_is_held_out_for_what_failed_meanwhile() {
    for is_probed in [false, true] {
        let config = match is_probed {
            false => config(PolicyKind::PowerOfTwo),
            true => probed(PolicyKind::PowerOfTwo),
        };
        let mut world = World::new(config, members(5));
        let keys = ["a", "b", "c", "d", "e"];
        let second = |world: &mut World, is_there: bool| {
            let mut events = Vec::new();
            for _ in 0..10 {
                for _ in 0..8 {
                    (0..3)
                        .for_each(|_| drop(world.request(|_| if is_there { OK } else { REFUSED })));
                }
                events.extend(world.pass(seconds(0.1)));
            }
            if is_probed {
                keys.iter().for_each(|key| world.probe(key, is_there));
            }
            events
        };
        (0..3).for_each(|_| drop(second(&mut world, true)));
        (0..6).for_each(|_| drop(second(&mut world, false)));
        let after: Vec<Event> = (0..20).flat_map(|_| second(&mut world, true)).collect();
        let ejected = |event: &&Event| matches!(event, Event::Ejected { .. });
        let ejected: Vec<_> = after.iter().filter(ejected).collect();
        assert!(ejected.is_empty(), "probed: {is_probed}: {ejected:?}");
        assert!(keys.iter().all(|key| world.backend(key).is_usable()));
    }
}

#[test]
fn what_goes_and_comes_again_and_again_is_held_out() {
    let mut world = World::new(probed(PolicyKind::PowerOfTwo), members(4));
    ["a", "b", "c", "d"]
        .iter()
        .for_each(|key| world.probe(key, true));
    let mut used = 0;
    let mut changes = 0;
    let mut was_usable = true;
    // Four seconds there, four seconds gone, for five minutes.
    for second in 0..300 {
        let is_there = second / 4 % 2 == 0;
        if second % 2 == 0 {
            world.probe("a", is_there);
        }
        if !is_there && world.backend("a").is_usable() {
            (0..2).for_each(|_| world.observe("a", REFUSED));
        }
        world.pass(seconds(1.0));
        let is_usable = world.backend("a").is_usable();
        changes += u32::from(is_usable != was_usable);
        was_usable = is_usable;
        used += u32::from(is_usable);
    }
    assert!(changes <= 12, "{changes} in five minutes");
    assert!(used < 60, "{used} s");
    // Once is nothing: a restart.
    for key in ["b", "b"] {
        world.observe(key, REFUSED);
    }
    world.pass(seconds(3.0));
    world.probe("b", true);
    world.pass(seconds(0.1));
    assert!(world.backend("b").is_usable());
}

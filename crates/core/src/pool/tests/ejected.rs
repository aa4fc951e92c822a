//! Passive checks: ejection, its end, and what does not end it.

use std::time::Duration;

use super::support::*;
use crate::availability::Availability;
use crate::pool::*;
use crate::{Ejection, EjectionCause};

fn fail(world: &mut World, key: &str, outcome: Outcome, times: usize) {
    for _ in 0..times {
        world.observe(key, outcome);
    }
}

fn ejections(events: &[Event]) -> Vec<(String, EjectionCause, u64, u32)> {
    events
        .iter()
        .filter_map(|event| match event {
            Event::Ejected {
                backend,
                cause,
                seconds,
                count,
                ..
            } => Some((backend.to_string(), *cause, *seconds, *count)),
            _ => None,
        })
        .collect()
}

#[test]
fn five_failures_in_a_row_eject_with_the_next_pick() {
    for policy in POLICIES {
        for (outcome, cause) in [
            (RESET, EjectionCause::Lost),
            (status(503), EjectionCause::Failures),
            (status(500), EjectionCause::Errors),
            (Outcome::Failure(Failure::Timeout), EjectionCause::Failures),
        ] {
            let mut world = World::new(config(policy), members(4));
            fail(&mut world, "b", outcome, 4);
            world.observe("b", OK);
            fail(&mut world, "b", outcome, 4);
            assert!(world.backend("b").is_usable(), "never five in a row");
            world.observe("b", outcome);
            assert!(!world.backend("b").is_usable());
            for hash in 0..200u64 {
                let claim = world.pick_with(Some(hash), &[]).unwrap();
                assert_ne!(&**claim.backend().key(), "b", "{policy}, before any tick");
            }
            assert_eq!(ejections(&world.tick()), [("b".to_owned(), cause, 30, 1)]);
        }
    }
}

#[test]
fn a_client_that_goes_away_neither_counts_nor_clears() {
    let mut world = World::new(config(PolicyKind::PowerOfTwo), members(4));
    for _ in 0..50 {
        world.observe("a", ABORTED);
    }
    assert!(world.backend("a").is_usable());
    fail(&mut world, "a", RESET, 4);
    world.observe("a", ABORTED);
    world.observe("a", RESET);
    assert!(!world.backend("a").is_usable());
}

#[test]
fn it_comes_back_on_probation_and_a_success_ends_that() {
    let mut world = World::new(config(PolicyKind::PowerOfTwo), members(4));
    fail(&mut world, "a", RESET, 5);
    world.tick();
    // Until the window is empty again there is a look each second.
    world.pass(seconds(15.0));
    assert_eq!(world.pool.deadline(), Some(world.now + seconds(15.0)));
    world.pass(seconds(14.9));
    assert!(!world.backend("a").is_usable());
    let events = world.pass(seconds(0.2));
    assert_eq!(
        events,
        [Event::EjectionEnded {
            backend: "a".into(),
            end: EjectionEnd::Elapsed
        }]
    );
    assert_eq!(
        world.status_of("a").ejection,
        Ejection::Probation { count: 1 }
    );
    world.observe("a", OK);
    assert_eq!(
        world.tick(),
        [Event::ProbationPassed {
            backend: "a".into()
        }]
    );
    fail(&mut world, "a", RESET, 4);
    assert!(world.backend("a").is_usable(), "back to five in a row");
}

#[test]
fn on_probation_one_failure_ejects_for_longer_up_to_the_cap() {
    let mut world = World::new(config(PolicyKind::PowerOfTwo), members(4));
    fail(&mut world, "a", status(500), 5);
    let mut times = Vec::new();
    for _ in 0..12 {
        let events = world.tick();
        let [(_, _, time, _)] = ejections(&events)[..] else {
            panic!("one ejection: {events:?}");
        };
        times.push(time);
        world.pass(Duration::from_secs(time));
        world.observe("a", status(500));
    }
    assert_eq!(
        times,
        [30, 60, 90, 120, 150, 180, 210, 240, 270, 300, 300, 300]
    );
}

#[test]
fn good_behaviour_shortens_the_next_ejection() {
    let mut world = World::new(config(PolicyKind::PowerOfTwo), members(4));
    fail(&mut world, "a", RESET, 5);
    world.pass(seconds(30.0));
    world.observe("a", RESET);
    world.pass(seconds(60.0));
    world.observe("a", OK);
    world.pass(seconds(301.0));
    fail(&mut world, "a", RESET, 5);
    assert_eq!(
        ejections(&world.tick()),
        [("a".to_owned(), EjectionCause::Lost, 60, 2)]
    );
}

#[test]
fn at_most_half_of_the_pool_is_ejected_but_one_may_always_be() {
    for (count, allowed) in [(1, 1), (2, 1), (3, 1), (4, 2), (7, 3)] {
        let mut world = World::new(config(PolicyKind::PowerOfTwo), members(count));
        for n in 0..count {
            fail(&mut world, &name(n, count), RESET, 20);
        }
        assert_eq!(ejections(&world.tick()).len(), allowed, "of {count}");
        // When one is back the next may go.
        world.pass(seconds(30.0));
        let waiting = name(count - 1, count);
        world.observe(&waiting, RESET);
        let events = world.tick();
        assert_eq!(ejections(&events).len(), 1, "of {count}: {events:?}");
    }
}

#[test]
fn a_passing_probe_never_clears_what_traffic_said() {
    let mut world = World::new(probed(PolicyKind::PowerOfTwo), members(4));
    for _ in 0..4 {
        world.observe("a", status(500));
        world.probe("a", true);
    }
    world.observe("a", status(500));
    assert!(
        !world.backend("a").is_usable(),
        "the run went on over the probes"
    );
    for _ in 0..10 {
        world.probe("a", true);
    }
    world.tick();
    assert!(
        !world.backend("a").is_usable(),
        "and they do not end the ejection"
    );
    assert_eq!(world.status_of("a").health, Health::Up);
    assert!(world.status_of("a").reason.contains("5xx answers in a row"));
}

#[test]
fn probes_end_an_ejection_whose_whole_run_was_refused() {
    let mut world = World::new(probed(PolicyKind::PowerOfTwo), members(4));
    world.probe("a", true);
    fail(&mut world, "a", REFUSED, 5);
    let events = world.tick();
    assert_eq!(
        ejections(&events),
        [("a".to_owned(), EjectionCause::Refused, 30, 1)]
    );
    world.probe("a", true);
    assert!(!world.backend("a").is_usable());
    world.probe("a", true);
    assert!(world.backend("a").is_usable(), "proved up by `rise`");
    let events = world.tick();
    assert!(
        events.contains(&Event::EjectionEnded {
            backend: "a".into(),
            end: EjectionEnd::Proved
        }),
        "{events:?}"
    );
    fail(&mut world, "a", RESET, 4);
    assert!(
        world.backend("a").is_usable(),
        "its run was proved wrong as a whole"
    );
}

#[test]
fn one_other_failure_in_the_run_and_probes_do_not_end_it() {
    let mut world = World::new(probed(PolicyKind::PowerOfTwo), members(4));
    world.probe("a", true);
    world.observe("a", Outcome::Failure(Failure::Timeout));
    fail(&mut world, "a", REFUSED, 4);
    world.tick();
    for _ in 0..10 {
        world.probe("a", true);
    }
    world.tick();
    assert!(!world.backend("a").is_usable());
    assert!(!world.status_of("a").refused, "it does listen");
}

/// `kill -9` under load: what was in flight is reset, what comes after is refused.
#[test]
fn a_backend_that_died_under_load_is_back_when_probes_prove_it() {
    let mut world = World::new(probed(PolicyKind::PowerOfTwo), members(4));
    world.probe("a", true);
    fail(&mut world, "a", RESET, 16);
    let events = world.tick();
    assert_eq!(
        ejections(&events),
        [("a".to_owned(), EjectionCause::Lost, 30, 1)]
    );
    fail(&mut world, "a", REFUSED, 2);
    world.tick();
    world.probe("a", true);
    assert!(!world.backend("a").is_usable(), "one probe proves nothing");
    world.probe("a", true);
    world.tick();
    assert!(world.backend("a").is_usable(), "another process answers");
}

#[test]
fn a_backend_that_resets_and_never_refused_stays_out() {
    let mut world = World::new(probed(PolicyKind::PowerOfTwo), members(4));
    world.probe("a", true);
    fail(&mut world, "a", RESET, 5);
    world.tick();
    for _ in 0..10 {
        world.probe("a", true);
    }
    world.tick();
    assert!(
        !world.backend("a").is_usable(),
        "a good probe and a broken service"
    );
}

#[test]
fn switched_off_it_ejects_nobody_and_releases_those_it_had() {
    let mut world = World::new(config(PolicyKind::PowerOfTwo), members(4));
    fail(&mut world, "a", RESET, 5);
    world.tick();
    world.pool.update(
        world.now,
        without_ejection(PolicyKind::PowerOfTwo),
        members(4),
    );
    assert!(world.backend("a").is_usable());
    fail(&mut world, "a", RESET, 50);
    assert!(world.backend("a").is_usable());
    // And on again: places under the cap were given back.
    world
        .pool
        .update(world.now, config(PolicyKind::PowerOfTwo), members(4));
    fail(&mut world, "b", RESET, 5);
    fail(&mut world, "c", RESET, 5);
    assert_eq!(ejections(&world.tick()).len(), 2);
}

/// A zone that is gone for three seconds, under load: what it held is reset, and then it refuses.
#[test]
fn without_probes_one_that_died_under_load_is_tried_again_as_one_that_refuses() {
    for policy in POLICIES {
        let mut world = World::new(config(policy), members(4));
        fail(&mut world, "a", RESET, 5);
        assert_eq!(ejections(&world.tick())[0].2, 30, "{policy}");
        assert_eq!(world.status_of("a").availability, Availability::Ejected);
        // What was under way to it finds nobody.
        fail(&mut world, "a", REFUSED, 2);
        world.tick();
        let status = world.status_of("a");
        assert_eq!(status.availability, Availability::Refused, "{policy}");
        world.pass(seconds(3.0));
        for _ in 0..200 {
            world.request(|_| OK);
        }
        world.tick();
        let status = world.status_of("a");
        assert_eq!(status.availability, Availability::Usable, "{policy}");
        // The second time in a row is no accident any more.
        world.pass(seconds(2.0));
        fail(&mut world, "a", RESET, 5);
        assert_eq!(ejections(&world.tick())[0].2, 60, "{policy}");
        fail(&mut world, "a", REFUSED, 2);
        world.tick();
        let status = world.status_of("a");
        assert!(status.reason.contains("refuses"), "{policy}: {status:?}");
        assert!(
            matches!(status.ejection, Ejection::Ejected { count: 2, .. }),
            "{policy}"
        );
    }
}

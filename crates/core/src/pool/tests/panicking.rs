//! Panic mode.

use std::collections::BTreeSet;

use super::support::*;
use crate::pool::*;

fn used(world: &mut World) -> BTreeSet<String> {
    (0..400u64)
        .map(|hash| {
            let claim = world.pick_with(Some(hash), &[]).unwrap();
            claim.backend().key().to_string()
        })
        .collect()
}

fn keys(text: &str) -> BTreeSet<String> {
    text.chars().map(String::from).collect()
}

fn down(world: &mut World, text: &str) {
    for key in text.chars() {
        for _ in 0..3 {
            world.probe(&key.to_string(), false);
        }
    }
}

fn up(world: &mut World, text: &str) {
    for key in text.chars() {
        for _ in 0..2 {
            world.probe(&key.to_string(), true);
        }
    }
}

#[test]
fn below_the_threshold_the_unhealthy_are_used_until_enough_are_back() {
    for policy in POLICIES {
        let mut world = World::new(probed(policy), members(10));
        up(&mut world, "abcdefghij");
        down(&mut world, "fghij");
        assert_eq!(
            world.tick().len(),
            15,
            "ten came up, five went down: no panic at one half"
        );
        assert_eq!(used(&mut world), keys("abcde"), "{policy}");

        down(&mut world, "e");
        let events = world.tick();
        assert!(entered(&events, 4, 10), "{events:?}");
        assert_eq!(used(&mut world), keys("abcdefghij"), "{policy}");
        assert!(world.pool.status(world.now).panic);

        up(&mut world, "e");
        let events = world.tick();
        assert!(
            events
                .iter()
                .all(|event| matches!(event, Event::HealthChanged { .. })),
            "{events:?}"
        );
        assert_eq!(
            used(&mut world).len(),
            10,
            "left ten points above where it began"
        );

        up(&mut world, "f");
        let events = world.tick();
        assert!(
            events.contains(&Event::PanicLeft {
                usable: 6,
                total: 10
            }),
            "{events:?}"
        );
        assert_eq!(used(&mut world), keys("abcdef"), "{policy}");
    }
}

#[test]
fn panic_never_revives_what_people_withdrew_or_what_refuses() {
    for policy in POLICIES {
        let mut world = World::new(probed(policy), members(6));
        down(&mut world, "abcdef");
        world.pool.set_admin(world.now, "a", Admin::Drain).unwrap();
        world
            .pool
            .set_admin(world.now, "b", Admin::Maintenance)
            .unwrap();
        for _ in 0..2 {
            world.observe("c", REFUSED);
        }
        world.tick();
        assert_eq!(used(&mut world), keys("def"), "{policy}");
        let status = world.pool.status(world.now);
        assert_eq!(
            (status.panic, status.healthy, status.ready, status.total),
            (true, 0, 4, 6)
        );
    }
}

#[test]
fn when_all_refuse_they_are_used_and_the_first_to_answer_counts() {
    let mut world = World::new(config(PolicyKind::PowerOfTwo), members(3));
    for key in ["a", "b", "c"] {
        for _ in 0..2 {
            world.observe(key, REFUSED);
        }
    }
    // No tick in between: a pick that finds nobody does that work itself.
    assert_eq!(used(&mut world), keys("abc"));
    assert_eq!(world.pool.status(world.now).mode, crate::Mode::LastResort);
    let events = world.tick();
    assert!(entered(&events, 0, 3), "{events:?}");
    world.observe("b", OK);
    world.tick();
    assert_eq!(
        used(&mut world),
        keys("b"),
        "while others remain, refused ones stay out"
    );
}

#[test]
fn a_threshold_of_zero_leaves_nobody() {
    let settings = PoolConfig {
        panic_threshold: 0.0,
        ..probed(PolicyKind::PowerOfTwo)
    };
    let mut world = World::new(settings, members(2));
    down(&mut world, "ab");
    assert_eq!(world.pick().unwrap_err(), NoPick::NoneUsable);
    world.tick();
    assert_eq!(world.pick().unwrap_err(), NoPick::NoneUsable);
}

#[test]
fn a_pool_that_people_emptied_says_so() {
    let mut world = World::new(config(PolicyKind::PowerOfTwo), Vec::new());
    assert_eq!(world.pick().unwrap_err(), NoPick::Empty);
    let mut world = World::new(
        config(PolicyKind::PowerOfTwo),
        vec![member("a"), weighted("b", 0)],
    );
    world.pool.set_admin(world.now, "a", Admin::Drain).unwrap();
    assert_eq!(world.pick().unwrap_err(), NoPick::Empty);
    assert!(!world.pool.status(world.now).panic);
    let error = world
        .pool
        .set_admin(world.now, "z", Admin::Drain)
        .unwrap_err();
    assert_eq!(error.to_string(), "the pool has no backend z");
}

#[test]
fn ejected_and_down_both_count() {
    let mut world = World::new(probed(PolicyKind::PowerOfTwo), members(4));
    up(&mut world, "abcd");
    down(&mut world, "ab");
    for _ in 0..5 {
        world.observe("c", RESET);
    }
    let events = world.tick();
    assert!(entered(&events, 1, 4), "{events:?}");
}

fn entered(events: &[Event], looks: usize, of: usize) -> bool {
    let is_that = |event: &Event| matches!(event, Event::PanicEntered { usable, total, .. } if (*usable, *total) == (looks, of));
    events.iter().any(is_that)
}

#[test]
fn whoever_may_be_picked_is_counted_as_usable_in_a_panic_too() {
    let mut world = World::new(probed(PolicyKind::RoundRobin), members(3));
    for key in ["a", "b", "c"] {
        (0..3).for_each(|_| world.probe(key, false));
    }
    world.tick();
    let status = world.pool.status(world.now);
    assert!(status.panic);
    assert_eq!((status.usable, status.healthy, status.ready), (3, 0, 3));
    let explained = world.pool.explain(&Pick {
        now: world.now,
        ..Pick::default()
    });
    assert_eq!(explained.status, status, "explained by the same figures");
}

#[test]
fn a_panic_without_probes_is_told_without_probes_and_tries_are_no_requests() {
    let mut world = World::new(adapting(PolicyKind::RoundRobin), members(3));
    for key in ["a", "b", "c"] {
        (0..2).for_each(|_| world.observe(key, REFUSED));
    }
    world.pass(seconds(1.5));
    let belief = world.pool.status(world.now).belief;
    assert!(!belief.contains("probe"), "{belief}");
    assert!(
        belief.starts_with(
            "0 of 3 are ejected, 3 refuse connections; 100.0 % of 6 tries of requests failed"
        ),
        "{belief}"
    );
}

//! Active checks in a pool.

use super::support::*;
use crate::pool::*;

#[test]
fn the_first_probe_decides_and_takes_effect_with_the_next_pick() {
    for policy in POLICIES {
        let mut world = World::new(probed(policy), members(3));
        world.probe("b", false);
        for _ in 0..100 {
            assert_ne!(world.request(|_| OK), "b", "{policy}, before any tick");
        }
        let events = world.tick();
        assert!(
            matches!(&events[..], [Event::HealthChanged { backend, to: Health::Down, .. }] if &**backend == "b"),
            "{events:?}"
        );
        assert_eq!(
            events[0].to_string(),
            "backend b is down (was unknown): a probe failed: status 500"
        );
    }
}

#[test]
fn later_probes_need_fall_and_rise_in_a_row() {
    let mut world = World::new(probed(PolicyKind::PowerOfTwo), members(3));
    world.probe("a", true);
    for passed in [false, false, true, false, false] {
        world.probe("a", passed);
        assert!(world.backend("a").is_usable());
    }
    world.probe("a", false);
    assert!(!world.backend("a").is_usable());
    world.probe("a", true);
    assert!(!world.backend("a").is_usable());
    world.probe("a", true);
    assert!(world.backend("a").is_usable());
}

#[test]
fn one_that_comes_up_is_used_after_the_tick() {
    for policy in POLICIES {
        for count in [3, 40] {
            let mut world = World::new(probed(policy), members(count));
            let key = name(1, count);
            world.probe(&key, false);
            world.tick();
            world.probe(&key, true);
            world.probe(&key, true);
            assert!(world.pool.is_dirty());
            world.tick();
            assert!(!world.pool.is_dirty());
            let shares: Vec<usize> = {
                let mut shares = vec![0; 2];
                for hash in 0..count as u64 * 200 {
                    let claim = world.pick_with(Some(hash), &[]).unwrap();
                    shares[usize::from(**claim.backend().key() == *key)] += 1;
                }
                shares
            };
            assert!(shares[1] > 0, "{policy} with {count}: {shares:?}");
        }
    }
}

#[test]
fn probes_of_a_pool_without_health_check_or_of_a_stranger_are_ignored() {
    let mut world = World::new(config(PolicyKind::PowerOfTwo), members(2));
    world.probe("a", false);
    assert!(world.backend("a").is_usable());
    let mut world = World::new(probed(PolicyKind::PowerOfTwo), members(2));
    world.probe("z", false);
    assert_eq!(world.tick(), []);
}

#[test]
fn taking_the_health_check_away_forgets_what_it_said() {
    let mut world = World::new(probed(PolicyKind::PowerOfTwo), members(3));
    world.probe("a", false);
    world.tick();
    let events = world
        .pool
        .update(world.now, config(PolicyKind::PowerOfTwo), members(3));
    assert!(world.backend("a").is_usable());
    assert!(
        matches!(
            &events[..],
            [Event::HealthChanged {
                to: Health::Unknown,
                ..
            }]
        ),
        "{events:?}"
    );
}

#[test]
fn nothing_to_do_means_no_work() {
    let unwatched = PoolConfig {
        probed: true,
        ..without_ejection(PolicyKind::PowerOfTwo)
    };
    let mut world = World::new(unwatched, members(3));
    assert!(!world.pool.is_dirty());
    assert_eq!(world.pool.deadline(), None);
    for key in ["a", "b", "c"] {
        world.probe(key, true);
    }
    world.tick();
    for _ in 0..100 {
        world.request(|_| OK);
        for key in ["a", "b", "c"] {
            world.probe(key, true);
        }
        assert!(!world.pool.is_dirty());
        assert_eq!(world.pool.deadline(), None);
    }
}

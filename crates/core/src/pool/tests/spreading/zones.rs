//! Zones.

use super::super::simulated::{good, simulate};
use super::*;

fn at_home(policy: PolicyKind, zone: &str) -> PoolConfig {
    let mut settings = probed(policy);
    settings.spread.zone = Some(Arc::from(zone));
    settings
}

fn three_zones(policy: PolicyKind) -> World {
    let members = fleet(&[(4, 0, "a"), (4, 0, "b"), (4, 0, "c")]);
    let mut world = World::new(at_home(policy, "b"), members);
    up(&mut world, "t");
    world.tick();
    world
}

#[test]
fn traffic_stays_in_its_zone_as_far_as_that_bears_it() {
    for policy in POLICIES {
        let mut world = three_zones(policy);
        assert_eq!(part(&mut world, "t0b"), 1.0, "{policy}");
        assert_eq!(world.status_of("t0a-1").availability, Availability::Standby);
        down(&mut world, "t0b", 3);
        world.tick();
        assert_eq!(
            part(&mut world, "t0b"),
            1.0,
            "{policy}: three of four bear it"
        );
        down(&mut world, "t0b", 2);
        let events = world.tick();
        assert_eq!(moves(&events), 1, "{events:?}");
        let (own, other) = (part(&mut world, "t0b"), part(&mut world, "t0c"));
        assert!(
            close(own, 0.7) && close(other, 0.15),
            "{policy}: {own} {other}"
        );
        let reason = world.pool.status(world.now).spread;
        assert!(
            reason.starts_with("zone b gets 70 %, zone a gets 15 %"),
            "{reason}"
        );
    }
}

#[test]
fn a_zone_that_dies_gets_nothing_at_once_and_one_that_comes_back_starts_slowly() {
    for policy in POLICIES {
        let mut settings = at_home(policy, "b");
        settings.adaptive = AdaptiveConfig::default();
        let members = fleet(&[(2, 0, "a"), (2, 0, "b"), (2, 0, "c")]);
        let mut world = World::new(settings, members);
        up(&mut world, "t");
        simulate(&mut world, &[good(10); 6], 300, 12);
        for key in ["t0b-0", "t0b-1"] {
            (0..2).for_each(|_| world.observe(key, REFUSED));
        }
        assert_eq!(part(&mut world, "t0b"), 0.0, "{policy}: before any tick");
        simulate(&mut world, &[good(10); 6], 300, 70);
        up(&mut world, "t0b");
        let back = simulate(&mut world, &[good(10); 6], 300, 40);
        let own: Vec<usize> = back.iter().map(|at| at[2] + at[3]).collect();
        assert!((1..90).contains(&own[0]), "{policy}: {own:?}");
        assert_eq!(own[39], 300, "{policy}: {own:?}");
    }
}

#[test]
fn the_larger_half_of_a_pool_may_be_a_zone_and_die_without_a_panic() {
    for policy in POLICIES {
        let members = fleet(&[(4, 0, "a"), (2, 0, "b")]);
        let mut world = World::new(at_home(policy, "b"), members);
        up(&mut world, "t");
        down(&mut world, "t0a", 0);
        world.tick();
        assert!(!world.pool.status(world.now).panic);
        assert_eq!(part(&mut world, "t0b"), 1.0, "{policy}");
        down(&mut world, "t0b", 0);
        world.tick();
        assert!(world.pool.status(world.now).panic);
        let other = part(&mut world, "t0a");
        assert!(
            (0.5..0.8).contains(&other),
            "{policy}: zones do not count: {other}"
        );
    }
}

#[test]
fn a_zone_with_less_than_its_part_sends_on_what_others_have_room_for() {
    for policy in POLICIES {
        let members = fleet(&[(1, 0, "a"), (3, 0, "b")]);
        let mut small = World::new(at_home(policy, "a"), members.clone());
        let mut large = World::new(at_home(policy, "b"), members);
        assert!(close(part(&mut small, "t0a"), 0.5), "{policy}");
        assert_eq!(part(&mut large, "t0b"), 1.0, "{policy}");
    }
}

#[test]
fn zones_count_within_each_tier_and_not_where_nobody_is_in_ones_own() {
    for policy in POLICIES {
        let members = fleet(&[(2, 0, "a"), (2, 0, "b"), (2, 1, "a"), (2, 1, "b")]);
        let mut world = World::new(at_home(policy, "a"), members.clone());
        up(&mut world, "t");
        assert_eq!(part(&mut world, "t0a"), 1.0, "{policy}");
        down(&mut world, "t0a", 0);
        world.tick();
        let (b, backup) = (part(&mut world, "t0b"), part(&mut world, "t1a"));
        assert!(
            close(b, 0.7) && close(backup, 0.3),
            "{policy}: {b} {backup}"
        );
        let mut stranger = World::new(at_home(policy, "z"), members);
        let (a, b) = (part(&mut stranger, "t0a"), part(&mut stranger, "t0b"));
        assert!(
            (a - b).abs() < 0.2 && (a + b - 1.0).abs() < 0.06,
            "{policy}: {a} {b}"
        );
    }
}

#[test]
fn a_request_goes_to_another_zone_rather_than_to_one_that_failed_it() {
    for policy in POLICIES {
        let mut world = World::new(at_home(policy, "a"), fleet(&[(1, 0, "a"), (1, 0, "b")]));
        let tried = [world.backend("t0a-0").id()];
        let claim = world.pick_with(None, &tried).expect("another zone");
        assert_eq!(&**claim.backend().key(), "t0b-0", "{policy}");
    }
}

#[test]
fn a_request_that_failed_twice_at_home_goes_elsewhere() {
    for policy in POLICIES {
        let mut world = three_zones(policy);
        let tried = ["t0b-0", "t0b-1"].map(|key| world.backend(key).id());
        for n in 0..20 {
            let own = world
                .pick_with(Some(n), &tried[..1])
                .expect("one's own zone");
            assert!(own.backend().key().starts_with("t0b"), "{policy}");
            let other = world.pick_with(Some(n), &tried).expect("another zone");
            assert!(!other.backend().key().starts_with("t0b"), "{policy}");
        }
    }
}

#[test]
fn a_backup_in_another_zone_is_kept_back_for_its_tier_and_not_for_its_zone() {
    let members = fleet(&[(2, 0, "a"), (2, 0, "b"), (1, 1, "a")]);
    let mut world = World::new(at_home(PolicyKind::RoundRobin, "b"), members);
    up(&mut world, "t");
    world.tick();
    let reason = |world: &World, key: &str| world.status_of(key).reason;
    assert_eq!(
        reason(&world, "t1a-0"),
        "stands by: asked where tier 0 cannot bear the traffic"
    );
    assert_eq!(
        reason(&world, "t0a-0"),
        "stands by: asked where zone b cannot bear the traffic"
    );
}

#[test]
fn who_joins_a_zone_takes_nothing_from_it() {
    let mut settings = at_home(PolicyKind::PowerOfTwo, "b");
    settings.adaptive = AdaptiveConfig::default();
    let mut world = World::new(settings.clone(), fleet(&[(2, 0, "b"), (2, 0, "a")]));
    up(&mut world, "t");
    simulate(&mut world, &[good(10); 4], 200, 12);
    world
        .pool
        .update(world.now, settings, fleet(&[(6, 0, "b"), (6, 0, "a")]));
    up(&mut world, "t");
    for second in 0..20 {
        let counts = simulate(&mut world, &[good(10); 12], 200, 1);
        let away: usize = counts[0][6..].iter().sum();
        assert_eq!(away, 0, "in second {second}: {counts:?}");
    }
}

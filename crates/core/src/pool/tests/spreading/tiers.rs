//! Tiers.

use super::super::simulated::{good, simulate};
use super::*;

fn two_tiers(policy: PolicyKind) -> World {
    let mut world = World::new(probed(policy), fleet(&[(10, 0, ""), (10, 1, "")]));
    up(&mut world, "t");
    world.tick();
    world
}

#[test]
fn a_backup_gets_what_its_tier_cannot_bear_and_gives_it_back() {
    for policy in POLICIES {
        let mut world = two_tiers(policy);
        assert_eq!(part(&mut world, "t1"), 0.0, "{policy}");
        let status = world.status_of("t1-0");
        assert_eq!(status.availability, Availability::Standby);
        assert_eq!(
            status.reason,
            "stands by: asked where tier 0 cannot bear the traffic"
        );

        down(&mut world, "t0", 8);
        assert_eq!(moves(&world.tick()), 0);
        assert_eq!(
            part(&mut world, "t1"),
            0.0,
            "{policy}: eight of ten bear it"
        );

        down(&mut world, "t0", 5);
        let events = world.tick();
        assert_eq!(moves(&events), 1, "{events:?}");
        let spilled = part(&mut world, "t1");
        assert!(close(spilled, 0.3), "{policy}: {spilled}");
        let reason = world.pool.status(world.now).spread;
        assert_eq!(
            reason,
            "tier 0 gets 70 %, tier 1 gets 30 % of the requests; available are 50 % of tier 0"
        );

        down(&mut world, "t0", 0);
        let events = world.tick();
        assert_eq!(part(&mut world, "t1"), 1.0, "{policy}");
        let is_panic = |event: &Event| matches!(event, Event::PanicEntered { .. });
        assert!(!events.iter().any(is_panic), "a tier is well");

        up(&mut world, "t0");
        world.tick();
        assert_eq!(part(&mut world, "t1"), 0.0, "{policy}");
    }
}

#[test]
fn a_large_factor_keeps_all_in_the_first_tier_until_its_last_is_out() {
    for policy in POLICIES {
        let mut settings = probed(policy);
        settings.spread.overprovisioning = 1_000.0;
        let mut world = World::new(settings, fleet(&[(4, 0, ""), (1, 1, "")]));
        down(&mut world, "t0", 1);
        world.tick();
        assert_eq!(part(&mut world, "t1"), 0.0, "{policy}");
        down(&mut world, "t0", 0);
        world.tick();
        assert_eq!(part(&mut world, "t1"), 1.0, "{policy}");
    }
}

#[test]
fn weights_count_within_a_tier_and_not_beside_its_share() {
    let weighted = |weight: u32, member: Member| Member { weight, ..member };
    for policy in POLICIES {
        let mut members = fleet(&[(6, 0, ""), (2, 1, "")]);
        for (n, member) in members.iter_mut().enumerate() {
            *member = weighted([1, 3][n % 2], member.clone());
        }
        // All of weight 3 but one, so 4 of 12; of turns that ignore weights, 2 of 6.
        let mut world = World::new(probed(policy), members);
        up(&mut world, "t");
        for key in ["t0-2", "t0-4", "t0-3", "t0-5"] {
            (0..3).for_each(|_| world.probe(key, false));
        }
        world.tick();
        let (first, backup) = (part(&mut world, "t0"), part(&mut world, "t1"));
        assert!(close(first, 1.4 / 3.0), "{policy}: {first}");
        assert!(close(backup, 1.0 - 1.4 / 3.0), "{policy}: {backup}");
        let heavy = part(&mut world, "t1-1") / backup;
        let expected = match policy {
            PolicyKind::RoundRobin => 0.5,
            // While all are idle, the heaviest is the least.
            PolicyKind::LeastResponseTime => 1.0,
            _ => 0.75,
        };
        assert!((heavy - expected).abs() < 0.06, "{policy}: {heavy}");
    }
}

#[test]
fn marks_alone_bring_the_backup_in_before_any_tick() {
    for policy in POLICIES {
        let mut world = World::new(config(policy), fleet(&[(2, 0, ""), (1, 1, "")]));
        for key in ["t0-0", "t0-1"] {
            (0..2).for_each(|_| world.observe(key, REFUSED));
        }
        assert_eq!(part(&mut world, "t1"), 1.0, "{policy}");
    }
}

#[test]
fn a_request_that_tried_all_of_its_tier_and_one_that_finds_it_full_go_to_the_backup() {
    for policy in POLICIES {
        let mut members = fleet(&[(2, 0, ""), (1, 1, "")]);
        members[0].in_flight_max = Some(1);
        members[1].in_flight_max = Some(1);
        let mut world = World::new(config(policy), members);
        let tried: Vec<u64> = ["t0-0", "t0-1"].map(|key| world.backend(key).id()).into();
        let retry = world
            .pick_with(Some(1), &tried)
            .expect("the backup is there");
        assert_eq!(&**retry.backend().key(), "t1-0", "{policy}");
        drop(retry);
        let one = world
            .pick_with(Some(1), &tried[..1])
            .expect("another is there");
        assert_eq!(&**one.backend().key(), "t0-1", "{policy}: one's own first");
        drop(one);
        let full: Vec<Claim> = (0..2).map(|_| world.pick().expect("room")).collect();
        assert!(
            full.iter()
                .all(|claim| claim.backend().key().starts_with("t0"))
        );
        let beyond = world.pick().expect("the backup has room");
        assert_eq!(&**beyond.backend().key(), "t1-0", "{policy}");
    }
}

#[test]
fn who_is_drained_does_not_count_until_all_are() {
    for policy in POLICIES {
        let mut world = World::new(config(policy), fleet(&[(2, 0, ""), (1, 1, "")]));
        world
            .pool
            .set_admin(world.now, "t0-0", Admin::Drain)
            .expect("a member");
        world.tick();
        assert_eq!(part(&mut world, "t0-1"), 1.0, "{policy}");
        world
            .pool
            .set_admin(world.now, "t0-1", Admin::Drain)
            .expect("a member");
        assert_eq!(part(&mut world, "t1-0"), 1.0, "{policy}");
        world
            .pool
            .set_admin(world.now, "t1-0", Admin::Drain)
            .expect("a member");
        assert_eq!(world.pick().unwrap_err(), NoPick::Empty);
    }
}

#[test]
fn one_that_goes_and_comes_moves_no_traffic_between_tiers() {
    let mut world = two_tiers(PolicyKind::PowerOfTwo);
    for _ in 0..30 {
        (0..3).for_each(|_| world.probe("t0-3", false));
        let events = world.pass(seconds(2.0));
        assert_eq!(moves(&events), 0, "{events:?}");
        assert_eq!(part(&mut world, "t1"), 0.0);
        (0..2).for_each(|_| world.probe("t0-3", true));
        assert_eq!(moves(&world.pass(seconds(2.0))), 0);
    }
}

#[test]
fn there_is_panic_only_where_no_tier_is_sound_and_health_counts_between_tiers_still() {
    for policy in POLICIES {
        let mut world = World::new(probed(policy), fleet(&[(10, 0, ""), (4, 1, "")]));
        up(&mut world, "t");
        down(&mut world, "t0", 0);
        down(&mut world, "t1", 2);
        world.tick();
        assert!(
            !world.pool.status(world.now).panic,
            "half of tier 1 is well"
        );
        assert_eq!(part(&mut world, "t1"), 1.0, "{policy}");
        down(&mut world, "t1", 1);
        world.tick();
        assert!(world.pool.status(world.now).panic);
        assert_eq!(
            part(&mut world, "t1"),
            1.0,
            "{policy}: nobody of tier 0 is well"
        );
        assert!(
            part(&mut world, "t1-3") > 0.1,
            "{policy}: health is ignored"
        );
        down(&mut world, "t1", 0);
        world.tick();
        assert_eq!(
            part(&mut world, "t0"),
            1.0,
            "{policy}: nothing is known to be well"
        );
    }
}

#[test]
fn a_refused_first_tier_is_tried_again_without_probes() {
    for policy in POLICIES {
        let mut world = World::new(config(policy), fleet(&[(1, 0, ""), (2, 1, "")]));
        (0..2).for_each(|_| world.observe("t0-0", REFUSED));
        world.tick();
        let mut served = Vec::new();
        for _ in 0..100 {
            world.pass(seconds(0.1));
            served.extend(world.served(5));
        }
        assert_eq!(&*served[0], &*served[0].replace("t0", "t1"), "{policy}");
        assert_eq!(served[499], "t0-0", "{policy}: back within ten seconds");
    }
}

#[test]
fn a_tier_that_comes_back_takes_over_as_its_slow_start_goes_on() {
    for policy in POLICIES {
        let settings = PoolConfig {
            probed: true,
            ..adapting(policy)
        };
        let mut world = World::new(settings, fleet(&[(2, 0, ""), (2, 1, "")]));
        up(&mut world, "t");
        simulate(&mut world, &[good(10); 4], 200, 12);
        down(&mut world, "t0", 0);
        let away = simulate(&mut world, &[good(10); 4], 200, 70);
        let first =
            |counts: &[Vec<usize>]| -> usize { counts.iter().map(|at| at[0] + at[1]).sum() };
        assert_eq!(first(&away), 0, "{policy}");
        up(&mut world, "t0");
        let back = simulate(&mut world, &[good(10); 4], 200, 30);
        let shares: Vec<usize> = back.iter().map(|at| at[0] + at[1]).collect();
        assert!(
            (1..60).contains(&shares[0]),
            "{policy}: cold at first: {shares:?}"
        );
        assert_eq!(shares[29], 200, "{policy}: {shares:?}");
    }
}

#[test]
fn a_backup_that_is_suddenly_alone_takes_all_even_in_its_slow_start() {
    for policy in POLICIES {
        let settings = PoolConfig {
            probed: true,
            ..adapting(policy)
        };
        let mut members = fleet(&[(3, 0, "")]);
        let mut world = World::new(settings.clone(), members.clone());
        up(&mut world, "t");
        simulate(&mut world, &[good(10); 3], 200, 5);
        members.extend(fleet(&[(1, 1, "")]));
        world.pool.update(world.now, settings, members);
        world.probe("t1-0", true);
        simulate(&mut world, &[good(10); 4], 200, 1);
        down(&mut world, "t0", 0);
        world.tick();
        let claims: Vec<Claim> = (0..200)
            .map(|_| world.pick().expect("it is there"))
            .collect();
        assert!(
            claims
                .iter()
                .all(|claim| &**claim.backend().key() == "t1-0"),
            "{policy}"
        );
    }
}

#[test]
fn keys_move_only_as_far_as_traffic_does() {
    for policy in [PolicyKind::ConsistentHash, PolicyKind::Maglev] {
        let mut world = two_tiers(policy);
        let place = |world: &mut World| -> Vec<String> {
            let hashes = (0..4_000).map(crate::policy::mix);
            let pick = |hash| world.pick_with(Some(hash), &[]).expect("somebody is there");
            hashes
                .map(pick)
                .map(|claim| claim.backend().key().to_string())
                .collect()
        };
        let before = place(&mut world);
        down(&mut world, "t0", 5);
        world.tick();
        let after = place(&mut world);
        let well = &keys(&world, "t0")[..5];
        let owned = before
            .iter()
            .zip(&after)
            .filter(|(from, _)| well.contains(from));
        let moved = owned.clone().filter(|(from, to)| from != to).count();
        assert!(
            close(moved as f64 / owned.count() as f64, 0.3),
            "{policy}: {moved}"
        );
        let within = before
            .iter()
            .zip(&after)
            .filter(|(from, to)| well.contains(from) && from != to);
        assert!(
            within.clone().all(|(_, to)| to.starts_with("t1")),
            "{policy}: to the backups alone"
        );

        // A little more of tier 0: only keys of the backups move, or of one that went.
        let sixth = keys(&world, "t0")[5].clone();
        up(&mut world, &sixth);
        world.tick();
        let better = place(&mut world);
        let strayed = after
            .iter()
            .zip(&better)
            .filter(|(from, to)| from != to && from.starts_with("t0") && !to.starts_with("t0-5"));
        assert_eq!(strayed.count(), 0, "{policy}");
        up(&mut world, "t0");
        world.tick();
        assert_eq!(
            place(&mut world),
            before,
            "{policy}: all are back where they were"
        );
    }
}

#[test]
fn a_reload_without_tiers_leaves_nothing_of_them() {
    for policy in POLICIES {
        let mut world = two_tiers(policy);
        down(&mut world, "t0", 5);
        world.tick();
        let plain: Vec<Member> = keys(&world, "t").iter().map(|key| member(key)).collect();
        world.pool.update(world.now, probed(policy), plain);
        let first = part(&mut world, "t0");
        let tolerance = if policy == PolicyKind::ConsistentHash {
            0.08
        } else {
            0.03
        };
        assert!((first - 1.0 / 3.0).abs() < tolerance, "{policy}: {first}");
        let status = world.status_of("t1-0");
        assert_eq!(
            (status.availability, &*status.reason),
            (Availability::Usable, "")
        );
    }
}

#[test]
fn a_pick_between_tiers_is_explained_as_it_is_made() {
    // Those that go in turn begin anew in an explanation while traffic is split.
    let in_turn = [PolicyKind::RoundRobin, PolicyKind::WeightedRoundRobin];
    for policy in POLICIES.into_iter().filter(|one| !in_turn.contains(one)) {
        let mut world = two_tiers(policy);
        down(&mut world, "t0", 5);
        world.tick();
        for n in 0..50 {
            let pick = Pick {
                now: world.now,
                random: crate::policy::mix(n),
                worker: 0,
                hash: Some(crate::policy::mix(n)),
                tried: &[],
            };
            let told = world.pool.explain(&pick);
            let claim = world.pool.pick(&pick).expect("somebody is there");
            let key = claim.backend().key();
            assert_eq!(told.picked.as_ref(), Ok(key), "{policy}");
            let tier = &key[..2];
            let passed = &told.passed_over;
            assert!(
                passed.iter().all(|one| one.key.starts_with(tier)),
                "{passed:?}"
            );
        }
    }
}

/// Backups first in the list, so that primaries are added behind.
fn with_backup(primaries: usize) -> Vec<Member> {
    fleet(&[(1, 1, ""), (primaries, 0, "")])
}

fn of_backup(world: &mut World, count: usize) -> f64 {
    let counts = simulate(world, &vec![good(10); count], 200, 1);
    counts[0][0] as f64 / 200.0
}

#[test]
fn primaries_that_join_one_by_one_take_nothing_from_those_that_are_there() {
    let settings = PoolConfig {
        probed: true,
        ..adapting(PolicyKind::PowerOfTwo)
    };
    let mut world = World::new(settings.clone(), with_backup(1));
    up(&mut world, "t");
    simulate(&mut world, &[good(10); 2], 200, 12);
    for primaries in 2..=5 {
        world
            .pool
            .update(world.now, settings.clone(), with_backup(primaries));
        up(&mut world, "t");
        let part = of_backup(&mut world, primaries + 1);
        assert_eq!(part, 0.0, "with {primaries}");
    }
}

#[test]
fn in_a_cold_start_the_backup_is_asked_for_those_that_are_not_up_and_not_for_those_that_are() {
    let settings = PoolConfig {
        probed: true,
        ..adapting(PolicyKind::PowerOfTwo)
    };
    let mut world = World::new(settings, with_backup(4));
    world.probe("t1-0", true);
    let mut parts = vec![part(&mut world, "t1")];
    for key in keys(&world, "t0") {
        world.probe(&key, false);
    }
    world.tick();
    parts.push(of_backup(&mut world, 5));
    for key in keys(&world, "t0") {
        (0..2).for_each(|_| world.probe(&key, true));
        world.tick();
        parts.push(of_backup(&mut world, 5));
    }
    assert_eq!(
        parts[0], 0.0,
        "who is not known to be down is asked: {parts:?}"
    );
    assert_eq!(parts[1], 1.0, "{parts:?}");
    assert_eq!(parts[5], 0.0, "all are up: {parts:?}");
    assert!(
        parts[1..].is_sorted_by(|before, after| before >= after),
        "{parts:?}"
    );
}

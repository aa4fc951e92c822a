//! Subsets.

use std::collections::BTreeMap;

use super::*;

fn sliced(policy: PolicyKind, size: u32, index: u32, of: u32) -> PoolConfig {
    let mut settings = probed(policy);
    settings.spread.subset = Some(Subset { size, index, of });
    settings
}

#[test]
fn all_balancers_together_load_all_backends_alike_and_each_knows_few() {
    const OF: u32 = 12;
    for policy in POLICIES {
        let mut loads: BTreeMap<String, usize> = BTreeMap::new();
        for index in 0..OF {
            let mut world = World::new(sliced(policy, 10, index, OF), members(100));
            let mut own: BTreeMap<String, usize> = BTreeMap::new();
            for n in 0..6_000 {
                let hash = Some(crate::policy::mix(n));
                let claim = world.pick_with(hash, &[]).expect("somebody is there");
                *own.entry(claim.backend().key().to_string()).or_default() += 1;
            }
            assert!((10..=18).contains(&own.len()), "{policy}: {}", own.len());
            own.into_iter()
                .for_each(|(key, count)| *loads.entry(key).or_default() += count);
        }
        assert_eq!(loads.len(), 100, "{policy}: each is somebody's");
        if !matches!(policy, PolicyKind::ConsistentHash | PolicyKind::Maglev) {
            let fair = 6_000.0 * f64::from(OF) / 100.0;
            for (key, count) in loads {
                let share = count as f64 / fair;
                // While all are idle this one never asks those at an edge, of which it holds a part: they
                // get less, the others up to a ninth more.
                let is_so = match policy {
                    PolicyKind::LeastResponseTime => share < 1.25,
                    _ => (share - 1.0).abs() < 0.16,
                };
                assert!(is_so, "{policy}: {key} has {share}");
            }
        }
    }
}

#[test]
fn what_lies_outside_says_so_and_comes_in_where_too_many_are_out() {
    for policy in POLICIES {
        let mut world = World::new(sliced(policy, 5, 0, 10), members(50));
        let status = world.pool.status(world.now);
        let inside = |backend: &&BackendStatus| backend.availability == Availability::Usable;
        let own: Vec<String> = status
            .backends
            .iter()
            .filter(inside)
            .map(|own| own.key.to_string())
            .collect();
        assert_eq!(own.len(), 5, "{policy}");
        let other = status
            .backends
            .iter()
            .find(|backend| !inside(backend))
            .expect("45 of them");
        assert_eq!(other.availability, Availability::Outside);
        assert!(other.reason.contains("(index 0 of 10)"), "{}", other.reason);
        for key in &own {
            (0..3).for_each(|_| world.probe(key, false));
        }
        assert!(
            !own.contains(
                &world
                    .pick()
                    .expect("others are well")
                    .backend()
                    .key()
                    .to_string()
            )
        );
        world.tick();
        assert!(!world.pool.status(world.now).panic, "the pool is well");
        let mut used: Vec<String> = (0..500)
            .map(|n| {
                world
                    .pick_with(Some(crate::policy::mix(n)), &[])
                    .expect("others are well")
            })
            .map(|claim| claim.backend().key().to_string())
            .collect();
        used.sort_unstable();
        used.dedup();
        assert_eq!(used.len(), 4, "{policy}: four bear what five would");
        for key in &own {
            (0..2).for_each(|_| world.probe(key, true));
        }
        world.tick();
        assert!(
            own.contains(
                &world
                    .pick()
                    .expect("they are back")
                    .backend()
                    .key()
                    .to_string()
            )
        );
    }
}

#[test]
fn each_tier_is_sliced_by_itself() {
    let members = fleet(&[(40, 0, ""), (8, 1, "")]);
    let mut world = World::new(sliced(PolicyKind::PowerOfTwo, 4, 3, 4), members);
    let inside = |world: &World| -> Vec<String> {
        let all = world.pool.status(world.now).backends.into_iter();
        all.filter(|backend| backend.availability != Availability::Outside)
            .map(|backend| backend.key.to_string())
            .collect()
    };
    let own = inside(&world);
    let of = |tier: &str| own.iter().filter(|key| key.starts_with(tier)).count();
    assert_eq!(
        (of("t0"), of("t1")),
        (10, 4),
        "a quarter of forty; four of eight"
    );
    assert_eq!(part(&mut world, "t1"), 0.0);
    down(&mut world, "t0", 0);
    world.tick();
    assert_eq!(part(&mut world, "t1"), 1.0);
}

#[test]
fn keys_stay_where_a_balancer_that_starts_now_would_have_them() {
    for policy in [PolicyKind::ConsistentHash, PolicyKind::Maglev] {
        let settings = sliced(policy, 8, 2, 10);
        let mut world = World::new(settings.clone(), members(80));
        let place = |world: &mut World| -> Vec<String> {
            let hashes = (0..2_000).map(crate::policy::mix);
            let pick = |hash| world.pick_with(Some(hash), &[]).expect("somebody is there");
            hashes
                .map(pick)
                .map(|claim| claim.backend().key().to_string())
                .collect()
        };
        let before = place(&mut world);
        let mut own = before.clone();
        own.sort_unstable();
        own.dedup();
        let out = &own[..5];
        out.iter()
            .for_each(|key| (0..3).for_each(|_| world.probe(key, false)));
        world.tick();
        let after = place(&mut world);
        let stayed = before
            .iter()
            .zip(&after)
            .filter(|(from, _)| !out.contains(from));
        let moved = stayed.clone().filter(|(from, to)| from != to).count();
        assert!(
            moved * 5 < stayed.count() * 4,
            "{policy}: {moved} keys of those that are well moved"
        );
        let mut fresh = World::new(settings, members(80));
        out.iter()
            .for_each(|key| (0..3).for_each(|_| fresh.probe(key, false)));
        fresh.tick();
        fresh
            .pool
            .update(fresh.now, sliced(policy, 8, 2, 10), members(80));
        assert_eq!(after, place(&mut fresh), "{policy}");
        out.iter()
            .for_each(|key| (0..2).for_each(|_| world.probe(key, true)));
        world.tick();
        assert_eq!(before, place(&mut world), "{policy}");
    }
}

//! Consistent hashing.

use std::collections::BTreeMap;

use super::support::*;
use crate::policy::stable_hash;
use crate::pool::*;

const KEYS: u64 = 20_000;

const HASHES: [PolicyKind; 2] = [PolicyKind::ConsistentHash, PolicyKind::Maglev];

fn owners(world: &mut World) -> Vec<String> {
    (0..KEYS)
        .map(|key| {
            let claim = world
                .pick_with(Some(stable_hash(&key.to_le_bytes())), &[])
                .unwrap();
            claim.backend().key().to_string()
        })
        .collect()
}

fn counts(owners: &[String]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for owner in owners {
        *counts.entry(owner.as_str()).or_default() += 1;
    }
    counts
}

/// Each key of `gone` went elsewhere, no other moved, and none of the rest took more than twice an
/// even share of them.
fn assert_only_its_own_keys_moved(before: &[String], after: &[String], gone: &str, rest: usize) {
    let mut taken = Vec::new();
    for (old, new) in before.iter().zip(after) {
        if old == gone {
            assert_ne!(new, gone);
            taken.push(new.clone());
        } else {
            assert_eq!(old, new, "a key of {old} moved");
        }
    }
    let even = taken.len() as f64 / rest as f64;
    let most = counts(&taken).into_values().max().unwrap_or(0) as f64;
    assert!(
        most <= 2.0 * even,
        "one took {most} of {}, even is {even:.0}",
        taken.len()
    );
}

#[test]
fn removing_a_backend_moves_only_its_keys_and_they_spread() {
    let policy = config(PolicyKind::ConsistentHash);
    let mut world = World::new(policy.clone(), members(10));
    let before = owners(&mut world);
    let rest = members(10)
        .into_iter()
        .filter(|member| &*member.key != "d")
        .collect();
    world.pool.update(world.now, policy.clone(), rest);
    let without = owners(&mut world);
    assert_only_its_own_keys_moved(&before, &without, "d", 9);
    world.pool.update(world.now, policy, members(10));
    assert_eq!(owners(&mut world), before, "and it gets them back");
}

#[test]
fn keys_of_a_backend_that_is_down_spread_and_come_back() {
    for policy in HASHES {
        let mut world = World::new(probed(policy), members(10));
        let before = owners(&mut world);
        world.probe("d", false);
        // With the gate alone, and after the tick: the same.
        let marked = owners(&mut world);
        world.tick();
        let without = owners(&mut world);
        assert_eq!(marked, without);
        assert_only_its_own_keys_moved(&before, &without, "d", 9);
        world.probe("d", true);
        world.probe("d", true);
        world.tick();
        assert_eq!(owners(&mut world), before);
    }
}

#[test]
fn shares_follow_weights() {
    for policy in HASHES {
        let pool = vec![weighted("a", 1), weighted("b", 2), weighted("c", 5)];
        let mut world = World::new(config(policy), pool);
        let owners = owners(&mut world);
        for (key, share) in counts(&owners) {
            let even = KEYS as f64 * f64::from(world.backend(key).weight()) / 8.0;
            assert!(
                (share as f64 - even).abs() < 0.25 * even,
                "{key}: {share}, even {even}"
            );
        }
    }
}

#[test]
fn a_weight_that_changes_leaves_the_others_points_alone() {
    let policy = config(PolicyKind::ConsistentHash);
    let mut world = World::new(policy.clone(), members(6));
    let before = owners(&mut world);
    let mut heavier = members(6);
    heavier[2].weight = 3;
    world.pool.update(world.now, policy, heavier);
    for (old, new) in before.iter().zip(owners(&mut world)) {
        assert!(*old == new || new == "c", "a key went from {old} to {new}");
    }
}

#[test]
fn an_owner_that_is_the_same_wherever_it_is_asked() {
    for policy in HASHES {
        // Places depend on keys alone: another order, another pool, the same owners.
        let mut one = World::new(config(policy), members(7));
        let mut reversed = members(7);
        reversed.reverse();
        let mut other = World::new(config(policy), reversed);
        assert_eq!(owners(&mut one), owners(&mut other));
    }
}

#[test]
fn a_table_moves_few_keys_beside_those_of_one_that_leaves_or_changes_its_weight() {
    let policy = config(PolicyKind::Maglev);
    let mut lighter = members(20);
    lighter.remove(3);
    let mut heavier = members(20);
    heavier[3].weight = 2;
    for changed in [lighter, heavier] {
        let mut world = World::new(policy.clone(), members(20));
        let before = owners(&mut world);
        world.pool.update(world.now, policy.clone(), changed);
        let after = owners(&mut world);
        let moved = |(old, new): &(&String, &String)| old != new && *old != "d" && *new != "d";
        let moved = before.iter().zip(&after).filter(moved).count();
        assert!(moved as u64 <= KEYS / 100, "{moved} moved of {KEYS}");
        world.pool.update(world.now, policy.clone(), members(20));
        assert_eq!(owners(&mut world), before, "and all go back");
    }
}

#[test]
fn a_table_has_even_shares() {
    let mut world = World::new(config(PolicyKind::Maglev), members(10));
    let owners = owners(&mut world);
    for (key, share) in counts(&owners) {
        // Four standard deviations of keys drawn at random; the table itself is exact.
        assert!(share.abs_diff(2_000) < 170, "{key}: {share}");
    }
}

/// With one in two out, a pick visits two places on average, however many there are.
#[test]
fn a_walk_is_as_long_with_ten_thousand_as_with_ten() {
    for policy in HASHES {
        for count in [10, 10_000] {
            let mut world = World::new(probed(policy), members(count));
            let out = |index: usize| index.is_multiple_of(2);
            let picker = world.pool.shared.picker.load();
            let places = picker.policy.places().unwrap();
            let mut visited = 0;
            for _ in 0..1_000 {
                let owner = places.walk(world.random(), 1_000, |index| {
                    visited += 1;
                    (!out(index)).then_some(index)
                });
                assert!(owner.is_some());
            }
            assert!(
                (1_700..2_400).contains(&visited),
                "{policy} with {count}: {visited}"
            );
        }
    }
}

#[test]
fn the_hash_is_the_same_for_ever() {
    assert_eq!(stable_hash(b""), 14_087_677_454_934_409_008);
    assert_eq!(stable_hash(b"10.0.0.1:8080"), 7_025_533_819_731_354_109);
}

#[test]
fn with_nearly_all_out_keys_still_spread_and_stick() {
    for policy in HASHES {
        let settings = PoolConfig {
            panic_threshold: 0.0,
            ..probed(policy)
        };
        let mut world = World::new(settings, members(1_000));
        for n in 0..990 {
            world.probe(&name(n, 1_000), false);
        }
        world.tick();
        let first = owners(&mut world);
        assert_eq!(first, owners(&mut world), "a key keeps its owner");
        let shares = counts(&first);
        assert_eq!(shares.len(), 10, "all that are left are used");
        let most = *shares.values().max().unwrap() as f64;
        assert!(most < 2.0 * KEYS as f64 / 10.0, "one got {most} of {KEYS}");
    }
}

#[test]
fn without_a_hash_any_backend_is_taken() {
    for policy in HASHES {
        let mut world = World::new(config(policy), members(4));
        let shares = world.shares(4_000);
        assert!(shares.iter().all(|&share| share > 500), "{shares:?}");
    }
}

#[test]
fn a_huge_weight_does_not_make_a_huge_ring() {
    let mut pool = members(100);
    for member in &mut pool {
        member.weight = 65_535;
    }
    pool[7].weight = 1;
    let mut world = World::new(config(PolicyKind::ConsistentHash), pool);
    let owners = owners(&mut world);
    assert!(counts(&owners).len() >= 99);
}

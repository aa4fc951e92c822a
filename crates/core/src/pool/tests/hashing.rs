//! Consistent hashing.

use std::collections::BTreeMap;

use super::support::*;
use crate::policy::stable_hash;
use crate::pool::*;

const KEYS: u64 = 20_000;

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
    let mut world = World::new(probed(PolicyKind::ConsistentHash), members(10));
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

#[test]
fn shares_follow_weights() {
    let pool = vec![weighted("a", 1), weighted("b", 2), weighted("c", 5)];
    let mut world = World::new(config(PolicyKind::ConsistentHash), pool);
    let owners = owners(&mut world);
    for (key, share) in counts(&owners) {
        let even = KEYS as f64 * f64::from(world.backend(key).weight()) / 8.0;
        assert!(
            (share as f64 - even).abs() < 0.25 * even,
            "{key}: {share}, even {even}"
        );
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
    // Places depend on keys alone: another order, another pool, the same owners.
    let mut one = World::new(config(PolicyKind::ConsistentHash), members(7));
    let mut reversed = members(7);
    reversed.reverse();
    let mut other = World::new(config(PolicyKind::ConsistentHash), reversed);
    assert_eq!(owners(&mut one), owners(&mut other));
}

#[test]
fn the_hash_is_the_same_for_ever() {
    assert_eq!(stable_hash(b""), 14_116_099_544_479_106_309);
    assert_eq!(stable_hash(b"10.0.0.1:8080"), 7_009_171_513_285_026_016);
}

#[test]
fn with_nearly_all_out_keys_still_spread_and_stick() {
    let settings = PoolConfig {
        panic_threshold: 0.0,
        ..probed(PolicyKind::ConsistentHash)
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

#[test]
fn without_a_hash_any_backend_is_taken() {
    let mut world = World::new(config(PolicyKind::ConsistentHash), members(4));
    let shares = world.shares(4_000);
    assert!(shares.iter().all(|&share| share > 500), "{shares:?}");
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

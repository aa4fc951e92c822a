//! Consistent hashing with a bound on load.

use proptest::prelude::*;

use super::support::*;
use crate::policy::{mix, stable_hash};
use crate::pool::*;

const HASHES: [PolicyKind; 2] = [PolicyKind::ConsistentHash, PolicyKind::Maglev];

fn bounded(policy: PolicyKind, c: f64) -> PoolConfig {
    PoolConfig {
        hash_load_bound: Some(c),
        ..probed(policy)
    }
}

/// What a backend may have in flight at most after it got one of `total`, for c and its share of the weight.
fn most(c: f64, total: usize, share: f64) -> u32 {
    (c * total as f64 * share - 1e-6).ceil() as u32
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Through any sequence of picks and releases, of many keys or of one.
    #[test]
    fn no_backend_gets_a_request_above_its_bound(
        weights in prop::collection::vec(1u32..5, 1..30),
        percent in 100u32..300,
        keys in prop::sample::select(vec![1u64, 3, 1_000]),
        maglev: bool,
        steps in prop::collection::vec(any::<Option<prop::sample::Index>>(), 1..300),
    ) {
        let c = f64::from(percent) / 100.0;
        let pool = (0..).zip(&weights).map(|(n, &weight)| weighted(&name(n, 30), weight)).collect();
        let mut world = World::new(bounded(HASHES[usize::from(maglev)], c), pool);
        let sum: u32 = weights.iter().sum();
        let mut held: Vec<Claim> = Vec::new();
        for step in steps {
            match step {
                Some(index) if !held.is_empty() && world.random().is_multiple_of(3) => {
                    drop(held.swap_remove(index.index(held.len())));
                }
                _ => {
                    let hash = mix(world.random() % keys);
                    let claim = world.pick_with(Some(hash), &[]).unwrap();
                    let backend = claim.backend();
                    let share = f64::from(backend.weight()) / f64::from(sum);
                    let bound = most(c, held.len() + 1, share);
                    prop_assert!(backend.in_flight() <= bound, "{} of {bound}", backend.in_flight());
                    held.push(claim);
                }
            }
        }
        let picker = world.pool.shared.picker.load();
        prop_assert_eq!(picker.policy.fault(&picker.membership), None);
    }
}

#[test]
fn one_hot_key_has_an_order_of_its_own_and_fills_it_front_to_back() {
    for policy in HASHES {
        let mut world = World::new(bounded(policy, 1.25), members(10));
        let mut order: Vec<String> = Vec::new();
        let mut held = Vec::new();
        for n in 1..=400 {
            let claim = world.pick_with(Some(7), &[]).unwrap();
            let backend = claim.backend();
            assert!(backend.in_flight() <= most(1.25, n, 0.1), "{policy}");
            if !order.contains(&backend.key().to_string()) {
                order.push(backend.key().to_string());
            }
            held.push(claim);
        }
        // Eight backends are enough for c = 1.25, but for the rounding up: the key did not scatter.
        let of = |key: &String| world.backend(key).in_flight();
        assert_eq!(of(&order[0]), 50, "{policy}: the first has all that it may");
        let first: u32 = order[..8].iter().map(of).sum();
        assert!(first >= 396, "{policy}: {first} of 400");
        drop(held);
        let again = world.pick_with(Some(7), &[]).unwrap();
        assert_eq!(again.backend().key().to_string(), order[0], "{policy}");
    }
}

#[test]
fn keys_stay_where_they_are_below_the_bound() {
    for policy in HASHES {
        let owner = |world: &mut World, key: u64| {
            let hash = stable_hash(&key.to_le_bytes());
            let claim = world.pick_with(Some(hash), &[]).unwrap();
            (claim.backend().key().to_string(), claim)
        };
        let mut without = World::new(config(policy), members(20));
        let mut with = World::new(bounded(policy, 2.0), members(20));
        let (mut held, mut stayed) = (Vec::new(), 0);
        for key in 0..2_000 {
            let (own, _) = owner(&mut without, key);
            let (got, claim) = owner(&mut with, key);
            held.push(claim);
            stayed += usize::from(own == got);
        }
        assert!(stayed > 1_900, "{policy}: {stayed} of 2000");
    }
}

#[test]
fn the_mean_is_over_those_that_may_be_picked() {
    for policy in HASHES {
        let config = PoolConfig {
            panic_threshold: 0.0,
            fall: 1,
            ..bounded(policy, 1.0)
        };
        let mut world = World::new(config, members(4));
        // What "a" and "b" have in flight counts no more once they are out.
        let mut held: Vec<Claim> = (0..400)
            .map(|n| world.pick_with(Some(mix(n)), &[]).unwrap())
            .collect();
        world.probe("a", false);
        world.probe("b", false);
        world.tick();
        held.retain(|claim| matches!(&**claim.backend().key(), "a" | "b"));
        for n in 1..=50 {
            let claim = world.pick_with(Some(7), &[]).unwrap();
            let bound = most(1.0, n, 0.5);
            assert!(claim.backend().in_flight() <= bound, "{policy}");
            held.push(claim);
        }
    }
}

#[test]
fn the_bound_comes_and_goes_with_the_configuration_and_counts_what_is_in_flight() {
    for policy in HASHES {
        let mut world = World::new(probed(policy), members(10));
        let mut held: Vec<Claim> = (0..100)
            .map(|_| world.pick_with(Some(7), &[]).unwrap())
            .collect();
        let hot = held[0].backend().key().to_string();
        assert_eq!(world.backend(&hot).in_flight(), 100, "all at one");
        world
            .pool
            .update(world.now, bounded(policy, 1.25), members(10));
        for n in 0..100 {
            let claim = world.pick_with(Some(7), &[]).unwrap();
            assert_ne!(claim.backend().key().to_string(), hot);
            assert!(claim.backend().in_flight() <= most(1.25, 101 + n, 0.1));
            held.push(claim);
        }
        world.pool.update(world.now, probed(policy), members(10));
        let claim = world.pick_with(Some(7), &[]).unwrap();
        assert_eq!(claim.backend().key().to_string(), hot);
    }
}

#[test]
fn no_request_fails_for_the_bound() {
    for policy in HASHES {
        let mut world = World::new(bounded(policy, 1.0), members(2));
        let first = world.pick_with(Some(7), &[]).unwrap();
        let other = world.pick_with(Some(7), &[]).unwrap();
        // A third goes to its first place; its retry to the other, although that is full by the bound.
        let third = world.pick_with(Some(7), &[]).unwrap();
        assert_eq!(third.backend().id(), first.backend().id());
        let tried = [third.backend().id()];
        let retry = world.pick_with(Some(7), &tried).unwrap();
        assert_eq!(retry.backend().id(), other.backend().id());
    }
}

/// Overflow goes to nobody for being quick to fail.
#[test]
fn a_backend_that_fails_keeps_its_own_keys_at_most() {
    for policy in HASHES {
        let settings = PoolConfig {
            hash_load_bound: Some(1.1),
            ..without_ejection(policy)
        };
        let mut world = World::new(settings, members(10));
        // Of five keys, so that they are too much for their owners; "d" owns none of them.
        let mut hot: Vec<u64> = (0..100).map(mix).collect();
        hot.retain(|&hash| &**world.pick_with(Some(hash), &[]).unwrap().backend().key() != "d");
        let (mut held, mut to_d, mut own) = (Vec::new(), 0, 0);
        for n in 0..4_000 {
            world.now = world.now + seconds(0.001);
            let is_hot = n % 2 == 0;
            let hash = if is_hot {
                hot[n / 2 % 5]
            } else {
                mix(n as u64)
            };
            let claim = world.pick_with(Some(hash), &[]).unwrap();
            // The others take 100 ms.
            if &**claim.backend().key() == "d" {
                world.pool.observe(world.now, 0, claim.backend(), RESET);
                to_d += usize::from(is_hot);
                own += usize::from(!is_hot);
                held.push(None);
            } else {
                held.push(Some(claim));
            }
            if held.len() > 100 {
                drop(held.remove(0));
            }
        }
        assert!(to_d < 5, "{policy}: {to_d} of the hot keys");
        assert!((120..300).contains(&own), "{policy}: {own} of 200");
    }
}

/// c ÷ (c − 1) places at the worst, whatever the size.
#[test]
fn a_walk_past_full_backends_is_short() {
    for policy in HASHES {
        let mut world = World::new(bounded(policy, 1.25), members(500));
        let mut held = Vec::new();
        // As many as can be at their bound are: all keys of a few.
        for n in 1..4_800u64 {
            held.push(world.pick_with(Some(mix(n % 40)), &[]).unwrap());
        }
        let full =
            |backend: &Backend| backend.in_flight() >= most(1.25, held.len() + 1, 1.0 / 500.0);
        let backends = world.pool.backends();
        let share = backends.iter().filter(|backend| full(backend)).count();
        assert!(share > 380, "{policy}: {share} of 500 are full");
        let picker = world.pool.shared.picker.load();
        let places = picker.policy.places().unwrap();
        let mut visited = 0;
        for n in 0..1_000 {
            let found = places.walk(mix(n), 80, |index| {
                visited += 1;
                (!full(&backends[index])).then_some(())
            });
            assert!(found.is_some(), "{policy}");
        }
        assert!(visited < 6_000, "{policy}: {visited} for 1000 picks");
    }
}

/// The claim itself tests the limit: of many that find the last place free at once, one gets it.
#[test]
fn the_bound_holds_under_contention() {
    for policy in HASHES {
        let world = World::new(bounded(policy, 1.25), members(10));
        let pool = &world.pool;
        let held: Vec<Claim> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..4u64)
                .map(|worker| {
                    scope.spawn(move || {
                        let pick = |n| {
                            pool.pick(&Pick {
                                random: mix(worker << 32 | n),
                                hash: Some(7),
                                ..Pick::default()
                            })
                        };
                        (0..500).filter_map(|n| pick(n).ok()).collect::<Vec<_>>()
                    })
                })
                .collect();
            workers
                .into_iter()
                .flat_map(|worker| worker.join().expect("no panic"))
                .collect()
        });
        assert_eq!(held.len(), 2_000, "{policy}");
        let bound = most(1.25, held.len(), 0.1);
        for backend in pool.backends() {
            let in_flight = backend.in_flight();
            assert!(in_flight <= bound, "{policy}: {in_flight} of {bound}");
        }
        let picker = pool.shared.picker.load();
        assert_eq!(picker.policy.fault(&picker.membership), None, "{policy}");
    }
}

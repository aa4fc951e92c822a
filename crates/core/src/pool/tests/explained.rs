//! A pick that is explained is the pick that comes.

use proptest::prelude::*;

use super::support::*;
use crate::policy::mix;
use crate::pool::*;

const HASHES: [PolicyKind; 2] = [PolicyKind::ConsistentHash, PolicyKind::Maglev];

/// Something that happens to the member of a number.
#[derive(Clone, Debug)]
enum Happens {
    Request,
    End(usize),
    Fails(usize),
    Refuses(usize),
    Probe(usize, bool),
    Drain(usize, bool),
    Tells(usize, u8, u16),
    Passes(u16),
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        6 => Just(Happens::Request),
        3 => any::<usize>().prop_map(Happens::End),
        2 => any::<usize>().prop_map(Happens::Fails),
        1 => any::<usize>().prop_map(Happens::Refuses),
        1 => any::<(usize, bool)>().prop_map(|(at, passed)| Happens::Probe(at, passed)),
        1 => any::<(usize, bool)>().prop_map(|(at, drain)| Happens::Drain(at, drain)),
        3 => any::<(usize, u8, u16)>().prop_map(|(at, rif, ms)| Happens::Tells(at, rif % 8, ms)),
        2 => any::<u16>().prop_map(Happens::Passes),
        2 => any::<u8>().prop_map(|ms| Happens::Passes(u16::from(ms))),
    ]
}

fn happen(world: &mut World, held: &mut Vec<Claim>, what: &Happens, count: usize) {
    match *what {
        Happens::Request => {
            let hash = world.random() % 5;
            held.extend(world.pick_with(Some(hash), &[]).ok());
        }
        Happens::End(at) if !held.is_empty() => {
            let claim = held.swap_remove(at % held.len());
            world.pool.observe(world.now, 0, claim.backend(), OK);
        }
        Happens::End(_) => {}
        Happens::Fails(at) => world.observe(&name(at % count, count), RESET),
        Happens::Refuses(at) => world.observe(&name(at % count, count), REFUSED),
        Happens::Probe(at, passed) => world.probe(&name(at % count, count), passed),
        Happens::Drain(at, drain) => {
            let admin = if drain { Admin::Drain } else { Admin::Ready };
            let known = world
                .pool
                .set_admin(world.now, &name(at % count, count), admin);
            known.expect("a member");
        }
        Happens::Tells(at, in_flight, ms) => {
            let report = LoadReport {
                in_flight: f64::from(in_flight),
                latency: Some(std::time::Duration::from_millis(u64::from(ms))),
            };
            let backend = world.backend(&name(at % count, count));
            let source = LoadSource::Probe(u8::MAX);
            world.pool.note_load(world.now, &backend, report, source);
        }
        Happens::Passes(ms) => {
            world.pass(seconds(f64::from(ms) / 1e3));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Whatever has happened, by every policy, with all mechanisms on.
    #[test]
    fn what_is_explained_is_what_is_picked_and_nobody_notices(
        policy in prop::sample::select(POLICIES.to_vec()),
        weights in prop::collection::vec(1u32..4, 1..24),
        bound in prop::option::of(1.0f64..2.0),
        history in prop::collection::vec(happens(), 0..120),
        (random, hash) in any::<(u64, Option<u64>)>(),
    ) {
        let count = weights.len();
        let pool = (0..).zip(&weights).map(|(n, &weight)| weighted(&name(n, count), weight));
        let config = PoolConfig { hash_load_bound: bound, probed: true, ..adapting(policy) };
        let mut world = World::new(config, pool.collect());
        let mut held = Vec::new();
        for what in &history {
            happen(&mut world, &mut held, what, count);
        }
        world.tick();
        let pick = Pick { now: world.now, random, hash, tried: &[], worker: 0 };
        let before = world.pool.status(world.now);
        let explained = world.pool.explain(&pick);
        prop_assert_eq!(&world.pool.status(world.now), &before, "it left a trace");
        prop_assert_eq!(&explained.status, &before, "the copy is told, and looks otherwise");
        prop_assert_eq!(&world.pool.explain(&pick), &explained, "told twice, told otherwise");
        let picked = world.pool.pick(&pick).map(|claim| claim.backend().key().clone());
        prop_assert_eq!(&explained.picked, &picked);
        if let (Ok(key), false) = (&picked, explained.drawn.is_empty()) {
            prop_assert!(explained.drawn.contains(key), "{key} of {:?}", explained.drawn);
        }
        for passed in &explained.passed_over {
            let status = explained.status.backends.iter().find(|one| one.key == passed.key);
            let usable = status.expect("a member").usable;
            prop_assert_eq!(passed.why == Why::Out, !usable && passed.why != Why::OtherIsDue, "{:?}", passed);
        }
    }
}

#[test]
fn the_owner_of_a_hash_and_why_it_does_not_get_it_are_told() {
    for policy in HASHES {
        let mut world = World::new(probed(policy), members(6));
        let explain = |world: &World, hash| {
            world.pool.explain(&Pick {
                now: world.now,
                hash: Some(hash),
                ..Pick::default()
            })
        };
        let hash = mix(42);
        let owner = explain(&world, hash).picked.expect("all are well");
        assert_eq!(explain(&world, hash).passed_over, []);

        world
            .pool
            .set_admin(world.now, &owner, Admin::Drain)
            .expect("a member");
        world.tick();
        let second = explain(&world, hash);
        let heir = second.picked.expect("the rest are well");
        assert_ne!(heir, owner);
        let out = |key: &Arc<str>| PassedOver {
            key: Arc::clone(key),
            why: Why::Out,
        };
        assert_eq!(second.passed_over, [out(&owner)], "{policy}");

        for _ in 0..3 {
            world.probe(&heir, false);
        }
        world.tick();
        let third = explain(&world, hash);
        assert_eq!(third.passed_over, [out(&owner), out(&heir)], "{policy}");
        let status = third.status.backends.iter().find(|one| one.key == owner);
        assert_eq!(
            status.expect("a member").reason,
            "set to drain by the operator"
        );
    }
}

#[test]
fn an_owner_that_has_more_than_its_share_is_told_with_the_figures() {
    for policy in HASHES {
        let config = PoolConfig {
            hash_load_bound: Some(1.0),
            ..probed(policy)
        };
        let mut world = World::new(config, members(4));
        let held = world.pick_with(Some(9), &[]).expect("all are well");
        let owner = Arc::clone(held.backend().key());
        let explained = world.pool.explain(&Pick {
            now: world.now,
            hash: Some(9),
            ..Pick::default()
        });
        let why = Why::OverBound {
            in_flight: 1,
            limit: 1,
        };
        assert_eq!(
            explained.passed_over,
            [PassedOver { key: owner, why }],
            "{policy}"
        );
    }
}

#[test]
fn two_choices_tell_whom_they_draw_and_the_better_of_them_is_picked() {
    for policy in [PolicyKind::PowerOfTwo, PolicyKind::PeakEwma] {
        let mut world = World::new(config(policy), members(8));
        let busy: Vec<Claim> = (0..40)
            .map(|_| world.pick().expect("all are well"))
            .collect();
        let random = world.random();
        let explained = world.pool.explain(&Pick {
            now: world.now,
            random,
            ..Pick::default()
        });
        let load = |key: &Arc<str>| world.backend(key).in_flight();
        assert_eq!(explained.drawn.len(), 2, "{policy}");
        let least = explained.drawn.iter().map(load).min();
        let picked = explained.picked.expect("all are well");
        assert_eq!(
            Some(load(&picked)),
            least,
            "{policy}: {:?}",
            explained.drawn
        );
        drop(busy);
    }
}

#[test]
fn nobody_is_explained_by_why_nobody_is() {
    let mut world = World::new(config(PolicyKind::Maglev), members(2));
    for key in ["a", "b"] {
        world
            .pool
            .set_admin(world.now, key, Admin::Drain)
            .expect("a member");
    }
    world.tick();
    let explained = world.pool.explain(&Pick {
        now: world.now,
        hash: Some(1),
        ..Pick::default()
    });
    assert_eq!(explained.picked, Err(NoPick::Empty));
    assert_eq!(explained.passed_over.len(), 2);
}

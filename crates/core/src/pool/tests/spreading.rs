//! Tiers, zones and subsets, under every policy.

use std::sync::Arc;

use proptest::prelude::*;

use super::support::*;
use crate::availability::Availability;
use crate::pool::*;

mod subset;
mod tiers;
mod zones;

fn placed(key: &str, tier: u32, zone: &str) -> Member {
    Member {
        place: Place {
            tier,
            zone: Arc::from(zone),
        },
        ..member(key)
    }
}

/// So many members of each tier and zone, named `t0a-0`.
fn fleet(groups: &[(usize, u32, &str)]) -> Vec<Member> {
    let members = groups.iter().flat_map(|&(count, tier, zone)| {
        (0..count).map(move |n| placed(&format!("t{tier}{zone}-{n}"), tier, zone))
    });
    members.collect()
}

fn down(world: &mut World, start: &str, but: usize) {
    let keys = keys(world, start);
    for key in &keys[but..] {
        (0..3).for_each(|_| world.probe(key, false));
    }
}

fn up(world: &mut World, start: &str) {
    for key in keys(world, start) {
        (0..2).for_each(|_| world.probe(&key, true));
    }
}

fn keys(world: &World, start: &str) -> Vec<String> {
    let keys = world.pool.backends().into_iter();
    keys.map(|backend| backend.key().to_string())
        .filter(|key| key.starts_with(start))
        .collect()
}

/// The part of 4,000 requests, each with another hash, that goes to those whose key starts so.
fn part(world: &mut World, start: &str) -> f64 {
    const COUNT: u64 = 4_000;
    let served = (0..COUNT).filter(|&n| {
        let hash = crate::policy::mix(n);
        let claim = world.pick_with(Some(hash), &[]).expect("somebody is there");
        claim.backend().key().starts_with(start)
    });
    served.count() as f64 / COUNT as f64
}

fn close(figure: f64, expected: f64) -> bool {
    (figure - expected).abs() < 0.03
}

fn moves(events: &[Event]) -> usize {
    let moves = events
        .iter()
        .filter(|event| matches!(event, Event::SpreadChanged { .. }));
    moves.count()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Whatever is out of whatever is configured: somebody serves while anybody may be picked, and who
    /// serves is well while anybody of its tier is.
    #[test]
    fn no_request_fails_while_one_could_be_served(
        members in prop::collection::vec((0u32..3, 0u32..3, 0u32..4, 0u32..5), 1..24),
        policy in 0usize..PolicyKind::ALL.len(),
        zone in prop::option::of(0u32..3),
        subset in prop::option::of((1u32..6, 0u32..4)),
        panic_threshold in prop::sample::select(vec![0.0, 0.5]),
    ) {
        let name = |zone: u32| ["a", "b", "c"][zone as usize];
        let list: Vec<Member> = members
            .iter()
            .zip(0..)
            .map(|(&(tier, zone, _, weight), n)| Member { weight, ..placed(&format!("m{n}"), tier, name(zone)) })
            .collect();
        let settings = PoolConfig {
            panic_threshold,
            spread: SpreadConfig {
                zone: zone.map(|zone| Arc::from(name(zone))),
                subset: subset.map(|(size, index)| Subset { size, index, of: 4 }),
                ..SpreadConfig::default()
            },
            ..probed(PolicyKind::ALL[policy])
        };
        let mut world = World::new(settings, list);
        for (n, &(_, _, fate, _)) in members.iter().enumerate() {
            let key = format!("m{n}");
            match fate {
                0 => (0..3).for_each(|_| world.probe(&key, false)),
                1 => (0..2).for_each(|_| world.observe(&key, REFUSED)),
                2 if n % 3 == 0 => world.pool.set_admin(world.now, &key, Admin::Drain).expect("a member"),
                _ => {}
            }
        }
        let status = world.pool.status(world.now);
        let is_well = |backend: &&BackendStatus| backend.usable && backend.weight > 0;
        let healthy = status.healthy;
        for hash in 0..50u64 {
            let claim = world.pick_with(Some(crate::policy::mix(hash)), &[]);
            let anybody = status.backends.iter().any(|backend| is_well(&backend));
            prop_assert_eq!(claim.is_ok(), anybody, "{} healthy: {:?}", healthy, status);
        }
    }
}

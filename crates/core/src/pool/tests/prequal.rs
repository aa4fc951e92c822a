//! The policy `prequal`, pick by pick. Its traffic is simulated in the simulator's own tests.

use std::time::Duration;

use super::fairness::assert_fair;
use super::support::*;
use crate::pool::*;

const ALL_WORKERS: u8 = u8::MAX;
const DEFAULT: PrequalConfig = PrequalConfig {
    probes_per_request: 3.0,
    probes_per_second_max: 1_000,
};

fn world(count: usize) -> World {
    World::new(config(PolicyKind::Prequal), members(count))
}

/// The answer of a probe.
fn tell(world: &World, key: &str, in_flight: f64, ms: u64) {
    let report = LoadReport {
        in_flight,
        latency: Some(Duration::from_millis(ms)),
    };
    let source = LoadSource::Probe(ALL_WORKERS);
    world
        .pool
        .note_load(world.now, &world.backend(key), report, source);
}

/// Who gets the next request, which ends at once without a word.
fn next(world: &mut World) -> String {
    world.pick().expect("somebody").backend().key().to_string()
}

#[test]
fn of_the_cold_ones_the_quickest_is_taken_however_quick_a_hot_one_is() {
    let mut world = world(4);
    for (key, in_flight, ms) in [
        ("a", 2.0, 50),
        ("b", 1.0, 40),
        ("c", 3.0, 10),
        ("d", 40.0, 1),
    ] {
        tell(&world, key, in_flight, ms);
    }
    assert_eq!(next(&mut world), "c");
}

#[test]
fn if_all_are_hot_the_one_with_the_fewest_in_flight_is_taken_however_slow() {
    let mut world = world(4);
    for _ in 0..64 {
        tell(&world, "a", 0.0, 10);
    }
    for (key, in_flight, ms) in [("a", 9.0, 1), ("b", 7.0, 2), ("c", 5.0, 800), ("d", 8.0, 1)] {
        tell(&world, key, in_flight, ms);
    }
    assert_eq!(next(&mut world), "c");
}

#[test]
fn of_latencies_that_are_alike_fewer_requests_in_flight_decide() {
    let mut world = world(4);
    for (key, in_flight, ms) in [
        ("a", 3.0, 10),
        ("b", 1.0, 15),
        ("c", 3.0, 12),
        ("d", 3.0, 9),
    ] {
        tell(&world, key, in_flight, ms);
    }
    assert_eq!(next(&mut world), "b");
}

#[test]
fn what_this_process_sends_counts_at_once_and_what_ends_no_longer() {
    let mut world = world(3);
    for key in ["a", "b", "c"] {
        tell(&world, key, 1.0, 10);
    }
    let held: Vec<Claim> = (0..3).map(|_| world.pick().unwrap()).collect();
    let mut keys: Vec<&str> = held.iter().map(|claim| &**claim.backend().key()).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["a", "b", "c"]);
    let first = held[0].backend().key().to_string();
    drop(held.into_iter().next());
    let mut world = self::world(3);
    for key in ["a", "b", "c"] {
        tell(&world, key, 1.0, 10);
    }
    let mut held: Vec<Claim> = (0..3).map(|_| world.pick().unwrap()).collect();
    let at = held
        .iter()
        .position(|claim| **claim.backend().key() == *first);
    drop(held.remove(at.unwrap()));
    assert_eq!(next(&mut world), first);
}

#[test]
fn a_request_s_own_answer_does_not_count_the_request_as_another_s() {
    let mut world = world(2);
    let claim = world.pick().unwrap();
    let key = claim.backend().key().to_string();
    let other = if key == "a" { "b" } else { "a" };
    let report = LoadReport {
        in_flight: 5.0,
        latency: Some(Duration::from_millis(10)),
    };
    let backend = world.backend(&key);
    world
        .pool
        .note_load(world.now, &backend, report, LoadSource::Answer(0));
    tell(&world, other, 4.5, 10);
    tell(&world, other, 4.5, 10);
    drop(claim);
    for _ in 0..4 {
        assert_eq!(
            next(&mut world),
            other,
            "five others are more than four and a half"
        );
    }
}

#[test]
fn an_answer_is_not_used_when_it_is_a_second_old() {
    for (age, is_used) in [(0.999, true), (1.0, false)] {
        let mut world = world(4);
        for (key, ms) in [("a", 1), ("b", 100), ("c", 100), ("d", 100)] {
            tell(&world, key, 1.0, ms);
        }
        world.now = world.now + seconds(age);
        let to_a = (0..6).filter(|_| next(&mut world) == "a").count();
        assert_eq!(to_a == 6, is_used, "{age}: {to_a}");
    }
}

#[test]
fn an_answer_is_used_until_it_is_too_old() {
    let mut world = world(4);
    for (key, ms) in [("a", 1), ("b", 100), ("c", 100), ("d", 100)] {
        tell(&world, key, 1.0, ms);
    }
    let to_a = (0..1_000).filter(|_| next(&mut world) == "a").count();
    assert_eq!(to_a, 1_000);
}

#[test]
fn one_that_claims_more_than_anybody_has_is_hot_in_whatever_small_a_pool() {
    for count in 2..=8 {
        let mut world = world(count);
        for _ in 0..9 {
            tell(&world, "a", LoadReport::IN_FLIGHT_MAX, 0);
            for n in 1..count {
                tell(&world, &name(n, count), 3.0, 10);
            }
        }
        let to_a = (0..200).filter(|_| next(&mut world) == "a").count();
        assert_eq!(to_a, 0, "of {count} backends");
    }
}

#[test]
fn one_that_claims_to_have_nothing_to_do_is_believed_no_more_than_is_known_of_it() {
    let mut world = world(4);
    let mut to_a = 0;
    for _ in 0..200 {
        tell(&world, "a", 0.0, 0);
        for key in ["b", "c", "d"] {
            tell(&world, key, 1.0, 10);
        }
        let claim = world.pick().expect("somebody");
        let is_a = &**claim.backend().key() == "a";
        to_a += usize::from(is_a);
        let latency = Duration::from_millis(if is_a { 80 } else { 10 });
        world.now = world.now + latency;
        let key = claim.backend().key().to_string();
        world.observe(&key, Outcome::Success { latency });
        drop(claim);
        world.now = world.now + (Duration::from_millis(100) - latency);
    }
    // One when what was measured is old: that is how it is found to be well again.
    assert!((10..40).contains(&to_a), "{to_a} of 200");
}

#[test]
fn a_newer_answer_stands_for_the_backend() {
    let mut world = world(3);
    tell(&world, "b", 1.0, 100);
    tell(&world, "c", 1.0, 100);
    tell(&world, "a", 1.0, 1);
    assert_eq!(next(&mut world), "a");
    world.now = world.now + seconds(0.1);
    tell(&world, "a", 1.0, 1_000);
    assert_ne!(next(&mut world), "a");
}

#[test]
fn where_nobody_says_anything_two_choices_decide() {
    let weights = [1.0, 2.0, 3.0, 10.0];
    let pool = (0..)
        .zip(weights)
        .map(|(n, weight)| weighted(&name(n, 4), weight as u32))
        .collect();
    let mut world = World::new(config(PolicyKind::Prequal), pool);
    assert_fair(&world.shares(20_000), &weights);
    let held: Vec<Claim> = (0..400).map(|_| world.pick().unwrap()).collect();
    let to_a = world.backend("a").in_flight();
    assert!((20..=30).contains(&to_a), "{to_a} of {}", held.len());
}

#[test]
fn those_that_say_nothing_get_their_share_beside_those_that_do() {
    let mut world = world(4);
    let mut silent = 0;
    for _ in 0..2_000 {
        for key in ["a", "b"] {
            tell(&world, key, 1.0, 10);
        }
        world.now = world.now + seconds(0.001);
        let key = next(&mut world);
        silent += usize::from(key == "c" || key == "d");
    }
    assert!((700..1_300).contains(&silent), "{silent} of 2000");
}

#[test]
fn one_that_has_not_spoken_for_three_seconds_is_asked_by_a_request() {
    let mut world = world(3);
    tell(&world, "a", 50.0, 10);
    let mut first = None;
    for step in 0..500 {
        world.now = world.now + seconds(0.01);
        for key in ["b", "c"] {
            tell(&world, key, 1.0, 10);
        }
        if next(&mut world) == "a" {
            first = first.or(Some(f64::from(step) * 0.01));
        }
    }
    let first = first.expect("it is asked");
    assert!((2.9..3.5).contains(&first), "{first}");
}

#[test]
fn one_that_fails_fast_is_hot_whatever_it_says() {
    let mut world = world(4);
    for (key, in_flight, ms) in [
        ("a", 0.0, 1),
        ("b", 9.0, 50),
        ("c", 8.0, 60),
        ("d", 9.0, 70),
    ] {
        tell(&world, key, in_flight, ms);
    }
    world.observe("a", status(500));
    for _ in 0..8 {
        assert_ne!(next(&mut world), "a");
    }
}

#[test]
fn latency_that_is_not_told_is_what_is_known_here() {
    let mut world = world(2);
    let took = |ms| Outcome::Success {
        latency: Duration::from_millis(ms),
    };
    world.observe("a", took(100));
    world.observe("b", took(10));
    for key in ["a", "b"] {
        let report = LoadReport {
            in_flight: 1.0,
            latency: None,
        };
        let source = LoadSource::Probe(ALL_WORKERS);
        world
            .pool
            .note_load(world.now, &world.backend(key), report, source);
    }
    let keys: Vec<String> = (0..8).map(|_| next(&mut world)).collect();
    assert_eq!(keys, ["b"; 8]);
}

#[test]
fn weight_divides_what_is_in_flight() {
    let pool = vec![weighted("a", 1), weighted("b", 4)];
    let mut world = World::new(config(PolicyKind::Prequal), pool);
    tell(&world, "a", 2.0, 10);
    tell(&world, "b", 6.0, 10);
    assert_eq!(
        next(&mut world),
        "b",
        "2 for a weight of 1 is more than 6 for 4"
    );
}

#[test]
fn what_is_known_outlives_a_new_table_of_the_same_members() {
    let mut world = world(4);
    for (key, ms) in [("a", 1), ("b", 100), ("c", 100), ("d", 100)] {
        tell(&world, key, 1.0, ms);
    }
    world
        .pool
        .set_admin(world.now, "d", Admin::Drain)
        .expect("a member");
    world.tick();
    assert_eq!([next(&mut world), next(&mut world)], ["a", "a"]);
    let now = world.now;
    world
        .pool
        .update(now, config(PolicyKind::Prequal), members(5));
    // The new one has said nothing: where it is drawn first two choices decide.
    let to_a = (0..200).filter(|_| next(&mut world) == "a").count();
    assert!((140..200).contains(&to_a), "{to_a} of 200");
}

#[test]
fn of_many_backends_those_that_answered_last_are_compared_with_one_of_all() {
    let mut world = world(100);
    for n in 0..100 {
        let key = name(n, 100);
        tell(&world, &key, 1.0, if n == 5 || n == 95 { 1 } else { 100 });
        world.now = world.now + seconds(0.001);
    }
    let (mut early, mut late) = (0, 0);
    for _ in 0..2_000 {
        let key = next(&mut world);
        early += usize::from(key == name(5, 100));
        late += usize::from(key == name(95, 100));
    }
    // One draw of a hundred and three of sixteen; one of a hundred.
    assert!((300..450).contains(&late), "{late} of 2000");
    assert!((5..40).contains(&early), "{early} of 2000");
}

#[test]
fn groups_are_asked_for_the_picks_of_all_of_them() {
    let member = |key: &str, zone: &str| Member {
        place: Place {
            tier: 0,
            zone: zone.into(),
        },
        ..member(key)
    };
    let members = vec![member("a", "x"), member("b", "y"), member("c", "y")];
    let mut settings = config(PolicyKind::Prequal);
    settings.spread.zone = Some("x".into());
    let mut world = World::new(settings, members);
    let served: std::collections::BTreeSet<String> = (0..64).map(|_| next(&mut world)).collect();
    assert!(served.len() > 1, "{served:?}");
    let one = PrequalConfig {
        probes_per_request: 1.0,
        ..DEFAULT
    };
    world.pool.load_probes(world.now, 1, one);
    for _ in 0..100 {
        next(&mut world);
        world.now = world.now + seconds(0.01);
        let random = world.random();
        assert_eq!(world.pool.load_probes(world.now, random, one).len(), 1);
    }
}

#[test]
fn what_cannot_be_is_ignored() {
    let mut world = world(2);
    for in_flight in [f64::NAN, -1.0, f64::INFINITY, 1e308, 1_000_001.0] {
        tell(&world, "a", in_flight, 1);
    }
    tell(&world, "b", 1.0, 100);
    let keys: Vec<String> = (0..40).map(|_| next(&mut world)).collect();
    assert!(keys.iter().any(|key| key == "b"), "one answer is no choice");
}

#[test]
fn probes_follow_requests_and_never_exceed_their_rate() {
    let mut world = world(10);
    assert!(world.pool.load_probes(world.now, 1, DEFAULT).is_empty());
    let mut asked = 0;
    for _ in 0..100 {
        for _ in 0..2 {
            next(&mut world);
        }
        world.now = world.now + seconds(0.01);
        let random = world.random();
        asked += world.pool.load_probes(world.now, random, DEFAULT).len();
    }
    // Six for each two requests, less those that name a backend twice.
    assert!((350..=600).contains(&asked), "{asked}");
    let few = PrequalConfig {
        probes_per_second_max: 50,
        ..DEFAULT
    };
    let mut asked = 0;
    for _ in 0..100 {
        for _ in 0..20 {
            next(&mut world);
        }
        world.now = world.now + seconds(0.01);
        let random = world.random();
        asked += world.pool.load_probes(world.now, random, few).len();
    }
    assert!((45..=150).contains(&asked), "{asked}");
}

#[test]
fn a_hundredth_of_a_probe_for_a_request_is_one_for_a_hundred() {
    let mut world = world(10);
    let config = PrequalConfig {
        probes_per_request: 0.01,
        ..DEFAULT
    };
    let mut asked = 0;
    for _ in 0..10_000 {
        next(&mut world);
        world.now = world.now + seconds(0.01);
        let random = world.random();
        asked += world.pool.load_probes(world.now, random, config).len();
    }
    assert!((60..=140).contains(&asked), "{asked}");
}

#[test]
fn a_probe_is_made_for_a_thread_and_its_answer_is_known_to_all() {
    let mut world = world(3);
    next(&mut world);
    let random = world.random();
    let asked = world.pool.load_probes(world.now, random, DEFAULT);
    assert!(asked.iter().all(|probe| probe.workers == 1), "{asked:?}");
    let report = |ms| LoadReport {
        in_flight: 1.0,
        latency: Some(Duration::from_millis(ms)),
    };
    for (key, ms) in [("a", 1), ("b", 100), ("c", 100)] {
        let backend = world.backend(key);
        let source = LoadSource::Probe(0b10);
        world
            .pool
            .note_load(world.now, &backend, report(ms), source);
    }
    let mut of = |worker: usize| {
        let picks = (0..8).map(|_| {
            let random = world.random();
            let pick = Pick {
                now: world.now,
                random,
                worker,
                ..Pick::default()
            };
            world.pool.pick(&pick).unwrap().backend().key().to_string()
        });
        picks.collect::<Vec<_>>()
    };
    assert_eq!(of(1), ["a"; 8]);
    assert_eq!(of(0), ["a"; 8]);
}

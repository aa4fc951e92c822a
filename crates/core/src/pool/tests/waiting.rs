//! What answers and clients say by waiting: `Retry-After`, and requests that were given up.

use std::time::Duration;

use super::support::*;
use crate::pool::*;

const LOAD_AWARE: [PolicyKind; 4] = [
    PolicyKind::LeastConnections,
    PolicyKind::LeastResponseTime,
    PolicyKind::PowerOfTwo,
    PolicyKind::PeakEwma,
];

fn busy(retry_after: Option<Duration>) -> Outcome {
    Outcome::ServerError {
        status: 503,
        latency: Duration::from_millis(1),
        retry_after,
    }
}

fn limited(retry_after: Duration) -> Outcome {
    Outcome::Limited {
        latency: Duration::from_millis(1),
        retry_after,
    }
}

fn gave_up(waited: f64) -> Outcome {
    Outcome::Aborted {
        waited: seconds(waited),
    }
}

/// Four backends that have answered in 10 ms.
fn warm(policy: PolicyKind) -> World {
    let mut world = World::new(config(policy), members(4));
    for key in ["a", "b", "c", "d"] {
        world.observe(key, OK);
    }
    world
}

/// How many of 100 requests a second, each of 10 ms, `a` gets in `time`.
fn share_of_a(world: &mut World, time: f64) -> f64 {
    let (mut of_a, count) = (0, (time * 100.0) as usize);
    for _ in 0..count {
        let events = world.pass(seconds(0.01));
        assert!(events.is_empty(), "{events:?}");
        of_a += usize::from(world.request(|_| OK) == "a");
    }
    of_a as f64 / count as f64
}

#[test]
fn a_backend_that_says_when_to_come_back_is_left_alone_until_then_and_not_ejected() {
    for policy in LOAD_AWARE {
        let mut world = warm(policy);
        world.observe("a", busy(Some(seconds(5.0))));
        let meanwhile = share_of_a(&mut world, 4.9);
        assert!(meanwhile < 0.01, "{policy}: {meanwhile}");
        assert!(world.backend("a").is_usable(), "{policy}");
        share_of_a(&mut world, 30.0);
        let afterwards = share_of_a(&mut world, 10.0);
        // What goes by peaks forgets the failure itself slowly.
        assert!(afterwards > 0.04, "{policy}: {afterwards}");
    }
}

#[test]
fn without_a_time_a_single_failure_is_forgotten_sooner() {
    let mut world = warm(PolicyKind::PowerOfTwo);
    world.observe("a", busy(None));
    share_of_a(&mut world, 2.0);
    // Ten half-lives of what one failure counts.
    let penalty = |world: &World| world.backend("a").live().penalty.at(world.now);
    assert!(penalty(&world) < 0.5);
    world.observe("a", busy(Some(seconds(5.0))));
    share_of_a(&mut world, 4.9);
    assert!(penalty(&world) >= 1.0);
}

#[test]
fn no_backend_is_left_alone_for_longer_than_the_cap() {
    for policy in LOAD_AWARE {
        let mut world = warm(policy);
        world.observe("a", busy(Some(Duration::MAX)));
        let meanwhile = share_of_a(&mut world, 9.9);
        assert!(meanwhile < 0.01, "{policy}: {meanwhile}");
        share_of_a(&mut world, 30.0);
        let afterwards = share_of_a(&mut world, 10.0);
        // What goes by peaks forgets the failure itself slowly.
        assert!(afterwards > 0.04, "{policy}: {afterwards}");
    }
}

#[test]
fn where_all_say_so_all_go_on_getting_requests() {
    for policy in LOAD_AWARE {
        let mut world = warm(policy);
        for key in ["a", "b", "c", "d"] {
            world.observe(key, busy(Some(seconds(5.0))));
        }
        let share = share_of_a(&mut world, 4.0);
        assert!((0.1..0.5).contains(&share), "{policy}: {share}");
    }
}

#[test]
fn one_client_that_is_limited_takes_no_backend_from_the_others() {
    for policy in LOAD_AWARE {
        let mut world = warm(policy);
        for _ in 0..10 {
            world.observe("a", limited(seconds(5.0)));
            world.observe("a", limited(seconds(5.0)));
            world.observe("a", OK);
        }
        let share = share_of_a(&mut world, 4.0);
        assert!(share > 0.1, "{policy}: {share}");
    }
}

#[test]
fn a_backend_that_limits_one_request_after_the_other_is_left_alone() {
    for policy in LOAD_AWARE {
        let mut world = warm(policy);
        for _ in 0..3 {
            world.observe("a", limited(seconds(5.0)));
        }
        assert_eq!(share_of_a(&mut world, 4.9), 0.0, "{policy}");
        assert!(world.backend("a").is_usable());
    }
}

#[test]
fn who_gave_up_after_long_shows_that_the_backend_is_slow() {
    for policy in [PolicyKind::LeastResponseTime, PolicyKind::PowerOfTwo] {
        let mut world = warm(policy);
        for _ in 0..10 {
            world.pass(seconds(0.5));
            world.observe("a", gave_up(2.0));
        }
        let known = world.backend("a").latency(world.now).unwrap();
        assert!((0.5..2.0).contains(&known.as_secs_f64()), "{known:?}");
        let share = share_of_a(&mut world, 1.0);
        assert!(share < 0.1, "{policy}: {share}");
    }
    let mut world = warm(PolicyKind::PeakEwma);
    world.observe("a", gave_up(2.0));
    let peak = world.backend("a").live().peak.at(world.now, false);
    assert_eq!(peak, Some(2.0));
}

#[test]
fn who_gave_up_at_once_shows_nothing() {
    for policy in LOAD_AWARE {
        let mut world = warm(policy);
        let before = world.backend("a").latency(world.now);
        for _ in 0..100 {
            world.pass(seconds(0.1));
            world.observe("a", gave_up(0.005));
        }
        let after = world.backend("a").latency(world.now).unwrap();
        let about = before.unwrap().as_secs_f64();
        // Neither faded nor raised.
        assert!((after.as_secs_f64() - about).abs() < 1e-6, "{after:?}");
        let a = world.backend("a");
        let peak = &a.live().peak;
        assert!(
            peak.at(world.now, false)
                .is_none_or(|peak| peak <= 0.010_001)
        );
    }
}

#[test]
fn of_a_backend_that_nothing_is_known_of_what_is_usual_in_its_pool_is_expected() {
    let mut world = World::new(config(PolicyKind::LeastResponseTime), members(2));
    world.observe("a", gave_up(1.0));
    assert_eq!(
        world.backend("a").latency(world.now),
        None,
        "usual is unknown"
    );
    world.observe("b", OK);
    world.observe("a", gave_up(0.005));
    assert_eq!(world.backend("a").latency(world.now), None, "that was soon");
    world.observe("a", gave_up(1.0));
    let known = world.backend("a").latency(world.now).expect("it is slow");
    assert!((known.as_secs_f64() - 1.0).abs() < 1e-6, "{known:?}");
}

#[test]
fn requests_given_up_count_where_it_is_decided_who_is_degraded() {
    let mut world = World::new(adapting(PolicyKind::PowerOfTwo), members(4));
    for _ in 0..3_000 {
        world.pass(seconds(0.01));
        for key in ["b", "c", "d"] {
            world.observe(key, OK);
        }
        world.observe("a", gave_up(1.0));
    }
    assert_eq!(world.status_of("a").state, AdaptiveState::Degraded);
    assert_eq!(world.status_of("b").state, AdaptiveState::Healthy);
}

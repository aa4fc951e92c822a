//! Promises of the simulator as a whole.

use std::time::Duration;

use super::*;
use crate::engine::Engine;

mod behaviour;
mod figures;
mod queueing;
mod writers;

/// A shipped scenario with fewer requests, so that tests in debug mode stay quick.
fn light(name: &str, per_second: f64) -> Scenario {
    let found = shipped().iter().find(|one| one.name.starts_with(name));
    let mut scenario = found.expect("it ships").scenario();
    let factor = per_second / scenario.arrivals[0].per_second;
    let slots = |slots: usize| ((slots as f64 * factor).round() as usize).max(1);
    for rate in &mut scenario.arrivals {
        rate.per_second *= factor;
    }
    for backend in &mut scenario.backends {
        backend.slots = slots(backend.slots);
    }
    scenario
}

fn options(seed: u64, seconds: u64, policies: &[PolicyKind]) -> Options {
    Options {
        seed,
        policies: policies.to_vec(),
        seconds: Some(seconds),
        stopwatch: None,
    }
}

#[test]
fn every_arrival_ends_exactly_once_in_every_scenario() {
    for one in shipped().iter().filter(|one| !one.name.starts_with("s21")) {
        let mut scenario = light(one.name, 200.0);
        scenario.time = Duration::from_secs(30);
        let wanted = PolicyKind::PowerOfTwo;
        let (record, _) = Engine::new(&scenario, 9, wanted).run();
        assert!(record.arrived > 0, "{}", one.name);
        assert_eq!(record.arrived, record.ended, "{}, seed 9", one.name);
    }
}

#[test]
fn the_same_seed_gives_the_same_report_and_another_seed_another() {
    let mut scenario = light("s11", 400.0);
    scenario.pool.retry.statuses = vec![503];
    // More backends than core samples for what is usual, and failures, which make it sample.
    scenario.backends.resize(20, scenario.backends[0]);
    let report = |seed| run(&scenario, &options(seed, 30, &PolicyKind::ALL));
    let (first, second) = (report(5), report(5));
    assert_eq!(first, second);
    assert_eq!(first.to_json().unwrap(), second.to_json().unwrap());
    assert_eq!(first.to_html(), second.to_html());
    let other = report(6);
    assert_ne!(first.policies, other.policies);
}

/// What is usual in a pool is a sample of eight backends, drawn by something that must not differ from
/// one pool of the process to the next.
#[test]
fn the_price_of_a_failure_is_the_same_when_it_is_repeated() {
    let mut scenario = light("s16", 400.0);
    scenario.balancers = 1;
    scenario.pool.ejection = false;
    scenario.service = Law::Exponential {
        mean: Duration::from_millis(400),
    };
    // More than the sample, each with some eight requests in flight.
    scenario.backends.resize(20, scenario.backends[0]);
    scenario.backends.iter_mut().for_each(|one| one.slots = 20);
    let report = || run(&scenario, &options(5, 26, &[PolicyKind::PowerOfTwo]));
    assert_eq!(report(), report());
}

#[test]
fn every_policy_gets_the_same_requests() {
    let report = run(&light("s01", 300.0), &options(3, 10, &PolicyKind::ALL));
    let requests: Vec<u64> = report.policies.iter().map(|one| one.requests).collect();
    assert_eq!(requests.len(), PolicyKind::ALL.len());
    assert!(
        requests.windows(2).all(|pair| pair[0] == pair[1]),
        "{requests:?}"
    );
}

#[test]
fn nothing_that_no_run_can_repeat_is_in_a_report_without_a_stopwatch() {
    let scenario = light("s01", 100.0);
    let report = run(&scenario, &options(1, 5, &[PolicyKind::PowerOfTwo]));
    assert_eq!(report.policies[0].cost, None);
    let with_cost = Options {
        stopwatch: Some(|| Duration::ZERO),
        ..options(1, 5, &[PolicyKind::PowerOfTwo])
    };
    assert!(run(&scenario, &with_cost).policies[0].cost.is_some());
}

#[test]
fn policies_are_listed_once_each() {
    let mut names: Vec<&str> = PolicyKind::ALL.iter().map(|one| one.name()).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    assert!(names.contains(&PolicyKind::default().name()));
}

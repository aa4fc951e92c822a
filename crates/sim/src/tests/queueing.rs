//! The engine against queueing theory.

use super::*;

const MEAN: Duration = Duration::from_millis(10);

/// One balancer without delay before one backend.
fn single(slots: usize, load: f64, service: Law, seconds: u64) -> Scenario {
    let per_second = load * slots as f64 / MEAN.as_secs_f64();
    let plan = BackendPlan {
        priority: 0,
        zone: 0,
        slots,
        queue_max: usize::MAX,
        speed: 1.0,
        weight: 1,
    };
    Scenario {
        zones: 1,
        name: "single".to_owned(),
        about: String::new(),
        time: Duration::from_secs(seconds),
        warmup: Duration::from_secs(10),
        balancers: 1,
        keys: 1,
        backends: vec![plan],
        service,
        network: Duration::ZERO,
        arrivals: vec![Rate {
            from: Duration::ZERO,
            per_second,
        }],
        client_timeout: None,
        pool: PoolPlan::default(),
        faults: Vec::new(),
    }
}

fn latency(scenario: &Scenario, seed: u64) -> Latency {
    let report = run(
        scenario,
        &Options {
            seconds: None,
            ..options(seed, 0, &[PolicyKind::RoundRobin])
        },
    );
    assert_eq!(report.policies[0].failed_share, 0.0);
    report.policies[0].latency.expect("requests succeeded")
}

/// Erlang's formula: the share of requests that have to wait, of `slots` at `load` each.
fn erlang_c(slots: usize, load: f64) -> f64 {
    let offered = load * slots as f64;
    let (mut term, mut sum) = (1.0, 0.0);
    for n in 0..slots {
        sum += term;
        term *= offered / (n + 1) as f64;
    }
    let waiting = term / (1.0 - load);
    waiting / (sum + waiting)
}

#[test]
fn mean_waiting_times_are_those_of_theory() {
    let mean_ms = MEAN.as_secs_f64() * 1e3;
    for (slots, load, seconds, seed) in [(1, 0.6, 1_000, 1), (1, 0.8, 1_500, 2), (4, 0.8, 400, 3)] {
        let law = Law::Exponential { mean: MEAN };
        let found = latency(&single(slots, load, law, seconds), seed).mean_ms - mean_ms;
        let expected = erlang_c(slots, load) * mean_ms / (slots as f64 * (1.0 - load));
        assert!(
            (found / expected - 1.0).abs() < 0.07,
            "M/M/{slots} at {load}, seed {seed}: waited {found} ms, theory says {expected} ms"
        );
    }
}

#[test]
fn service_that_does_not_vary_halves_the_wait() {
    let law = Law::Fixed { mean: MEAN };
    let found = latency(&single(1, 0.7, law, 1_000), 4).mean_ms - 10.0;
    // Pollaczek and Khinchine's formula without variance.
    let expected = 10.0 * 0.7 / (2.0 * 0.3);
    assert!(
        (found / expected - 1.0).abs() < 0.07,
        "seed 4: {found} ms for {expected} ms"
    );
}

#[test]
fn no_request_takes_less_than_its_work_and_the_way_there_and_back() {
    let mut scenario = single(2, 0.5, Law::Fixed { mean: MEAN }, 60);
    scenario.network = Duration::from_millis(3);
    let found = latency(&scenario, 5);
    // A quantile is exact to 0.8 %.
    assert!(found.p50_ms >= 16.0 * 0.992, "{found:?}");
    assert!(found.mean_ms >= 16.0, "{found:?}");
    let alone = single(1, 0.001, Law::Fixed { mean: MEAN }, 300);
    assert!((latency(&alone, 6).max_ms - 10.0).abs() < 0.001 || latency(&alone, 6).max_ms > 10.0);
}

#[test]
fn a_slow_backend_takes_as_many_times_longer() {
    let mut scenario = single(1, 0.001, Law::Fixed { mean: MEAN }, 300);
    scenario.faults = vec![Fault {
        kind: FaultKind::Slow { factor: 7.0 },
        backends: vec![0],
        from: Duration::ZERO,
        to: Duration::from_secs(1_000),
        step: Duration::ZERO,
    }];
    let found = latency(&scenario, 7).p50_ms;
    assert!((found / 70.0 - 1.0).abs() < 0.01, "{found}");
}

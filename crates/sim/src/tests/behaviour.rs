//! Faults do what they say, and the shipping policies keep the promises that they make already.

use super::*;

const LOAD_AWARE: [PolicyKind; 3] = [
    PolicyKind::LeastConnections,
    PolicyKind::LeastResponseTime,
    PolicyKind::PowerOfTwo,
];

#[test]
fn a_black_hole_costs_half_a_percent_at_most_after_five_seconds() {
    for seed in [1, 2, 3] {
        let report = run(&light("s04", 400.0), &options(seed, 35, &LOAD_AWARE));
        for policy in &report.policies {
            let failed = policy.failed_share_settled.expect("there is a fault");
            assert!(failed <= 0.005, "{}, seed {seed}: {failed}", policy.policy);
            assert_eq!(policy.false_ejections, 0, "{}, seed {seed}", policy.policy);
            assert!(policy.causes.iter().all(|cause| cause.0 == "status"));
        }
    }
}

#[test]
fn clients_that_give_up_show_which_backend_is_stuck() {
    for seed in [1, 2] {
        let wanted = [
            PolicyKind::LeastResponseTime,
            PolicyKind::PowerOfTwo,
            PolicyKind::PeakEwma,
        ];
        let report = run(&light("s18", 1_000.0), &options(seed, 45, &wanted));
        for policy in &report.policies {
            let failed = policy.failed_share_settled.expect("there is a fault");
            assert!(failed < 0.0015, "{}, seed {seed}: {failed}", policy.policy);
            assert!(
                policy
                    .causes
                    .iter()
                    .all(|cause| cause.0 == "client_timeout")
            );
        }
    }
}

#[test]
fn nobody_is_ejected_when_all_get_slow_at_once() {
    for seed in [1, 2] {
        let report = run(&light("s08", 240.0), &options(seed, 45, &LOAD_AWARE));
        for policy in &report.policies {
            assert_eq!(policy.ejections, 0, "{}, seed {seed}", policy.policy);
            assert_eq!(policy.failed_share, 0.0, "{}, seed {seed}", policy.policy);
        }
    }
}

#[test]
fn a_slow_backend_loses_requests_where_nobody_looks_at_load() {
    let scenario = light("s01", 400.0);
    let wanted = [PolicyKind::RoundRobin, PolicyKind::LeastResponseTime];
    let report = run(&scenario, &options(1, 40, &wanted));
    let failed = |name| {
        let policy = report.policy(name).expect("it was run");
        policy.failed_share_settled.expect("there is a fault")
    };
    // Those that queue there are served just as their clients give up.
    assert!(failed("round_robin") > 0.05, "seed 1");
    assert!(failed("least_response_time") < 0.002, "seed 1");
    let adaptive = report.policy("least_response_time").expect("it was run");
    assert!(matches!(adaptive.shift, Delay::Seconds(seconds) if seconds < 5.0));
}

#[test]
fn a_process_that_dies_loses_its_requests_and_the_rest_are_tried_elsewhere() {
    let mut scenario = light("s11", 400.0);
    let report = |scenario: &Scenario| {
        let all = run(scenario, &options(2, 40, &[PolicyKind::PowerOfTwo]));
        all.policies[0].clone()
    };
    let with_retries = report(&scenario);
    assert_eq!(with_retries.failed_share, 0.0, "{:?}", with_retries.causes);
    assert!(with_retries.tries_per_request > 1.0);
    scenario.pool.retry.tries_max = 1;
    let without = report(&scenario);
    let causes: Vec<&str> = without.causes.iter().map(|cause| cause.0).collect();
    assert!(
        causes.contains(&"reset") || causes.contains(&"refused"),
        "{causes:?}"
    );
    assert_eq!(without.tries_per_request, 1.0);
}

#[test]
fn a_rolling_deploy_with_notice_fails_nothing() {
    let report = run(&light("s14", 300.0), &options(4, 40, &LOAD_AWARE));
    for policy in &report.policies {
        assert_eq!(
            policy.failed_share, 0.0,
            "{}: {:?}",
            policy.policy, policy.causes
        );
        assert_eq!(policy.ejections, 0, "{}", policy.policy);
    }
}

#[test]
fn clients_that_give_up_and_queues_that_overflow_are_failures_of_their_own() {
    let mut scenario = light("s13", 400.0);
    scenario.client_timeout = Some(Duration::from_millis(100));
    scenario
        .backends
        .iter_mut()
        .for_each(|one| one.queue_max = 10);
    let report = run(&scenario, &options(1, 35, &[PolicyKind::RoundRobin]));
    let policy = &report.policies[0];
    let causes: Vec<&str> = policy.causes.iter().map(|cause| cause.0).collect();
    assert_eq!(causes, ["status", "client_timeout"]);
    assert_eq!(policy.queue_max, 10);
    let latency = policy.latency.expect("some succeeded");
    assert!(latency.max_ms <= 100.0, "{latency:?}");
}

#[test]
fn a_hang_ends_by_the_balancers_time_out_and_its_probes_say_so() {
    let report = run(
        &light("s05", 200.0),
        &options(1, 38, &[PolicyKind::RoundRobin]),
    );
    let policy = &report.policies[0];
    let causes: Vec<&str> = policy.causes.iter().map(|cause| cause.0).collect();
    assert_eq!(causes, ["response_timeout"]);
    assert!(policy.changes_per_minute > 0.0);
    assert!(policy.failed_share_settled.expect("a fault") < 0.05);
}

#[test]
fn even_policies_are_even() {
    let report = run(
        &light("s07-herd-of-one", 400.0),
        &options(1, 20, &[PolicyKind::RoundRobin, PolicyKind::PowerOfTwo]),
    );
    for policy in &report.policies {
        assert!(
            policy.jain.expect("enough picks") > 0.99,
            "{}",
            policy.policy
        );
        assert!(policy.share_max < 1.3, "{}", policy.policy);
    }
}

#[test]
fn with_prequal_backends_that_lose_speed_to_others_get_less_and_many_balancers_do_not_herd() {
    for (name, at_most) in [
        ("s03", 1.0),
        ("s10", 0.9),
        ("s07-herd", 1.05),
        ("s07-herd-of-one", 1.05),
    ] {
        let scenario = with_time(&light(name, 1_600.0), Some(30));
        let options = options(1, 30, &[]);
        let two = run_one(&scenario, Contender::TWO_CHOICES, &options);
        let policy = run_one(&scenario, PolicyKind::Prequal.into(), &options);
        let p99 = |one: &PolicyReport| one.latency.expect("some succeeded").p99_ms;
        let (two, prequal) = (p99(&two), p99(&policy));
        assert!(prequal < two * at_most, "{name}: {prequal} of {two}");
        assert_eq!(policy.failed_share, 0.0, "{name}");
        assert!(policy.swings_per_minute < 2.0, "{name}");
    }
}

#[test]
fn backups_idle_until_they_are_needed_and_nothing_is_lost_when_they_take_over() {
    for seed in [1, 2] {
        let report = run(&light("s22", 400.0), &options(seed, 90, &LOAD_AWARE));
        for policy in &report.policies {
            assert_eq!(policy.failed_share, 0.0, "{}, seed {seed}", policy.policy);
            let jain = policy.jain.expect("it is measured before the first fault");
            assert!(
                (0.6..0.67).contains(&jain),
                "{}, seed {seed}: four of six, alike: {jain}",
                policy.policy
            );
        }
    }
}

#[test]
fn the_loss_of_a_zone_loses_no_request() {
    for seed in [1, 2] {
        let report = run(&light("s23", 600.0), &options(seed, 70, &LOAD_AWARE));
        for policy in &report.policies {
            assert_eq!(policy.failed_share, 0.0, "{}, seed {seed}", policy.policy);
        }
    }
}

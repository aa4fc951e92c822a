use proptest::prelude::*;

use super::*;

fn at_ms(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn close(a: Duration, b: Duration) -> bool {
    (a.as_secs_f64() - b.as_secs_f64()).abs() <= 1e-6 * a.as_secs_f64().max(b.as_secs_f64())
}

#[test]
fn latency_follows_time_and_not_the_number_of_samples() {
    // Two backends change from 10 ms to 100 ms; one is asked ten times as often.
    let (often, seldom) = (Latency::default(), Latency::default());
    // Both are well known at first.
    let change = 1_000;
    for tenth in 0..=change + 100 {
        let took = if tenth <= change { ms(10) } else { ms(100) };
        often.sample(at_ms(tenth * 100), took);
        if tenth % 10 == 0 {
            seldom.sample(at_ms(tenth * 100), took);
        }
    }
    let after = at_ms((change + 100) * 100);
    let (a, b) = (often.at(after).unwrap(), seldom.at(after).unwrap());
    assert!(close(a, b), "{a:?} and {b:?}");
    // After one time constant: 1 - 1/e of the way.
    let expected = 0.010 + 0.090 * (1.0 - (-1.0_f64).exp());
    assert!((a.as_secs_f64() - expected).abs() < 1e-6, "{a:?}");
}

#[test]
fn a_stale_latency_fades_and_reading_it_changes_nothing() {
    let latency = Latency::default();
    latency.sample(at_ms(0), ms(1_000));
    for _ in 0..3 {
        let faded = latency.at(at_ms(10_000)).unwrap();
        assert!(
            close(faded, Duration::from_secs_f64((-1.0_f64).exp())),
            "{faded:?}"
        );
    }
    assert!(close(latency.at(at_ms(0)).unwrap(), ms(1_000)));
}

#[test]
fn a_failure_is_never_fast() {
    let latency = Latency::default();
    latency.sample_failure(at_ms(0), Duration::from_micros(50));
    assert!(latency.at(at_ms(0)).unwrap() >= ms(1_000));
    for step in 1..1_000 {
        let before = latency.at(at_ms(step)).unwrap();
        latency.sample_failure(at_ms(step), Duration::ZERO);
        assert!(latency.at(at_ms(step)).unwrap() >= before);
    }
}

#[test]
fn an_aborted_request_stops_the_fading() {
    let latency = Latency::default();
    latency.hold(at_ms(0));
    assert_eq!(latency.at(at_ms(0)), None, "nothing was learnt");
    latency.sample(at_ms(0), ms(100));
    latency.hold(at_ms(30_000));
    assert!(close(latency.at(at_ms(30_000)).unwrap(), ms(100)));
}

#[test]
fn a_penalty_grows_by_a_request_each_failure_and_halves_in_a_second_and_a_half() {
    let penalty = Penalty::default();
    assert_eq!(penalty.at(at_ms(0)), 0.0);
    for _ in 0..4 {
        penalty.add(at_ms(0), penalty_step(Some(ms(10)), usual(0.3, 10)));
    }
    assert!((penalty.at(at_ms(0)) - 4.0).abs() < 1e-5);
    let half = (2.0 * std::f64::consts::LN_2 * 1_000.0) as u64;
    assert!((penalty.at(at_ms(half)) - 2.0).abs() < 1e-2);
    assert_eq!(penalty.at(at_ms(60_000)), 0.0, "and ends");
    assert!(
        (penalty.projected() - 4.0).abs() < 1e-5,
        "the projection is as old as it is"
    );
    assert_eq!(penalty.project(at_ms(60_000)), 0.0);
    assert_eq!(penalty.projected(), 0.0);
}

fn usual(load: f64, latency_ms: u64) -> Usual {
    Usual {
        load,
        latency: ms(latency_ms),
    }
}

#[test]
fn a_failure_weighs_more_where_requests_take_long_or_are_many() {
    assert_eq!(penalty_step(None, usual(0.0, 0)), 1.0);
    assert_eq!(penalty_step(Some(ms(10_000)), usual(0.0, 0)), 10.0);
    assert_eq!(penalty_step(None, usual(0.0, 10_000)), 10.0);
    assert_eq!(penalty_step(Some(ms(10)), usual(300.0, 10)), 150.0);
}

proptest! {
    #[test]
    fn latency_stays_between_its_samples(samples in prop::collection::vec((0u64..5_000, 1u64..10_000), 1..50)) {
        let latency = Latency::default();
        let mut now = 0;
        let (mut low, mut high) = (u64::MAX, 0);
        for (gap, sample) in samples {
            now += gap;
            latency.sample(at_ms(now), ms(sample));
            low = low.min(sample);
            high = high.max(sample);
            let estimate = latency.at(at_ms(now)).unwrap().as_secs_f64() * 1e3;
            prop_assert!(estimate >= low as f64 * 0.999 && estimate <= high as f64 * 1.001,
                "{estimate} outside {low}..{high}");
        }
    }

    /// A year of uptime loses no precision that a policy would see.
    #[test]
    fn latency_is_as_precise_after_a_year(sample in 1u64..10_000) {
        let latency = Latency::default();
        let now = at_ms(365 * 24 * 3_600 * 1_000);
        latency.sample(now, ms(sample));
        prop_assert!(close(latency.at(now).unwrap(), ms(sample)));
    }
}

#[test]
fn the_very_first_sample_does_not_rule() {
    let latency = Latency::default();
    latency.sample(at_ms(1_000), ms(100));
    for n in 1..=9 {
        latency.sample(at_ms(1_000 + n * 100), ms(10));
    }
    // A tenth of a second of 100 ms, and nine of 10 ms.
    let known = latency.at(at_ms(1_900)).unwrap();
    assert!((ms(15)..ms(22)).contains(&known), "{known:?}");
}

#[test]
fn after_a_very_long_silence_only_the_next_sample_counts() {
    let latency = Latency::default();
    latency.sample(at_ms(1_000), ms(100));
    latency.sample(at_ms(100_000_000), ms(10));
    assert_eq!(latency.at(at_ms(100_000_000)).unwrap().as_millis(), 10);
}

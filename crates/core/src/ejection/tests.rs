use proptest::prelude::*;

use super::*;

fn at(seconds: u64) -> Instant {
    Instant::from_nanos(seconds * 1_000_000_000)
}

const CONFIG: fn() -> EjectionConfig = EjectionConfig::default;

const LIMITS: Limits = Limits {
    failures: 5,
    errors: 5,
    refused_ejects: true,
};

fn runs(failures: u32, errors: u32, refused: u32) -> Runs {
    Runs {
        failures,
        errors,
        refused,
        lost: 0,
    }
}

#[test]
fn five_in_a_row_eject_and_four_do_not() {
    assert_eq!(LIMITS.crossed(runs(4, 4, 0), false), None);
    assert_eq!(
        LIMITS.crossed(runs(5, 5, 0), false),
        Some(EjectionCause::Failures)
    );
    assert_eq!(
        LIMITS.crossed(runs(0, 5, 0), false),
        Some(EjectionCause::Errors)
    );
    assert_eq!(
        LIMITS.crossed(runs(5, 5, 5), false),
        Some(EjectionCause::Refused)
    );
    assert_eq!(
        LIMITS.crossed(runs(5, 5, 4), false),
        Some(EjectionCause::Failures),
        "one failure of another kind: not the refusal's"
    );
}

#[test]
fn on_probation_the_first_failure_ejects() {
    assert_eq!(
        LIMITS.crossed(runs(0, 1, 0), true),
        Some(EjectionCause::Probation)
    );
}

#[test]
fn without_probes_refusals_alone_never_eject() {
    let limits = Limits {
        refused_ejects: false,
        ..LIMITS
    };
    assert_eq!(limits.crossed(runs(9, 9, 9), false), None);
    assert_eq!(
        limits.crossed(runs(5, 5, 4), false),
        Some(EjectionCause::Failures)
    );
}

#[test]
fn each_ejection_lasts_longer_up_to_the_cap() {
    let mut ejector = Ejector::new(at(0));
    let mut now = at(0);
    for n in 1..=12 {
        let (until, count) = ejector.eject(now, EjectionCause::Failures, &CONFIG());
        assert_eq!(count, n);
        assert_eq!(until - now, Duration::from_secs(u64::from(30 * n).min(300)));
        ejector.release(until);
        now = until;
    }
}

#[test]
fn good_behaviour_takes_one_off_for_each_five_minutes() {
    let mut ejector = Ejector::new(at(0));
    for _ in 0..3 {
        ejector.eject(at(0), EjectionCause::Failures, &CONFIG());
        ejector.release(at(0));
    }
    let (_, count) = ejector.eject(at(599), EjectionCause::Failures, &CONFIG());
    assert_eq!(count, 3, "one stretch: 3 - 1 + 1");
    ejector.release(at(599));
    let (_, count) = ejector.eject(at(599 + 3_600), EjectionCause::Failures, &CONFIG());
    assert_eq!(count, 1, "an hour forgives everything");
}

#[test]
fn probes_end_only_an_ejection_by_refusals() {
    for cause in [
        EjectionCause::Failures,
        EjectionCause::Errors,
        EjectionCause::Probation,
    ] {
        let mut ejector = Ejector::new(at(0));
        ejector.eject(at(0), cause, &CONFIG());
        for second in 0..20 {
            assert!(!ejector.probe_passed(at(second), 2));
        }
        assert!(ejector.is_ejected());
    }
    let mut ejector = Ejector::new(at(0));
    ejector.eject(at(0), EjectionCause::Refused, &CONFIG());
    assert!(!ejector.probe_passed(at(1), 2));
    ejector.probe_failed();
    assert!(!ejector.probe_passed(at(2), 2), "two in a row are needed");
    assert!(ejector.probe_passed(at(3), 2));
    assert_eq!(ejector.state(), Ejection::None);
    let (_, count) = ejector.eject(at(4), EjectionCause::Failures, &CONFIG());
    assert_eq!(count, 1, "a restart is not held against it");
}

#[test]
fn resets_and_refusals_alone_are_lost_connections() {
    let lost = |lost| Runs {
        lost,
        ..runs(5, 5, 2)
    };
    assert_eq!(LIMITS.crossed(lost(5), false), Some(EjectionCause::Lost));
    assert_eq!(
        LIMITS.crossed(lost(4), false),
        Some(EjectionCause::Failures)
    );
}

#[test]
fn probes_end_an_ejection_by_lost_connections_once_it_refused() {
    let mut ejector = Ejector::new(at(0));
    ejector.refused();
    ejector.eject(at(0), EjectionCause::Lost, &CONFIG());
    for second in 0..20 {
        assert!(!ejector.probe_passed(at(second), 2), "it was never gone");
    }
    ejector.refused();
    ejector.probe_failed();
    assert!(!ejector.probe_passed(at(21), 2));
    assert!(ejector.probe_passed(at(22), 2));
    assert_eq!(ejector.state(), Ejection::None);
}

#[test]
fn a_process_that_dies_again_and_again_is_not_let_back_by_probes() {
    let mut ejector = Ejector::new(at(0));
    ejector.eject(at(0), EjectionCause::Lost, &CONFIG());
    ejector.refused();
    assert!(ejector.probe_passed(at(1), 1), "the first time");
    let (until, count) = ejector.eject(at(2), EjectionCause::Lost, &CONFIG());
    assert_eq!((until, count), (at(62), 2));
    ejector.refused();
    assert!(!ejector.probe_passed(at(3), 1));
}

#[test]
fn at_most_half_of_the_pool_but_at_least_one() {
    let config = CONFIG();
    let allowed: Vec<u32> = (1..=7).map(|members| config.ejected_max(members)).collect();
    assert_eq!(allowed, [1, 1, 1, 2, 2, 3, 3]);
}

#[test]
fn a_trial_that_fails_doubles_the_back_off_up_to_thirty_seconds() {
    let mut refusal = refusal::Refusal::In;
    refusal.refuse(at(0), false);
    let mut now = at(0);
    let mut waits = Vec::new();
    for _ in 0..7 {
        let next = refusal
            .next()
            .expect("without probes there is always a next trial");
        waits.push((next - now).as_secs());
        now = next;
        refusal.offer(now);
        refusal.fail(now);
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
}

#[test]
fn with_probes_there_is_no_trial() {
    let mut refusal = refusal::Refusal::In;
    refusal.refuse(at(0), true);
    assert_eq!(refusal.next(), None);
    refusal.set_probed(at(10), false);
    assert_eq!(refusal.next(), Some(at(11)), "unless they were removed");
}

proptest! {
    #[test]
    fn an_ejection_never_lasts_longer_than_the_cap(gaps in prop::collection::vec(0u64..2_000, 1..40)) {
        let config = CONFIG();
        let mut ejector = Ejector::new(at(0));
        let mut now = at(0);
        for gap in gaps {
            now = now + Duration::from_secs(gap);
            let (until, count) = ejector.eject(now, EjectionCause::Errors, &config);
            prop_assert!(count >= 1);
            prop_assert!(until - now >= config.time_base && until - now <= config.time_max);
            ejector.release(until);
            now = until;
        }
    }

    #[test]
    fn a_cause_survives_its_code(code in 0u32..4) {
        prop_assert_eq!(EjectionCause::from_code(code).code(), code);
    }
}

use proptest::prelude::*;

use super::*;

const THRESHOLDS: Thresholds = Thresholds { rise: 2, fall: 3 };

fn failed() -> ProbeResult {
    ProbeResult::Failed {
        refused: false,
        reason: "status 500".to_owned(),
    }
}

fn fed(results: &[bool]) -> HealthCheck {
    let mut check = HealthCheck::new(Instant::default());
    for (second, &passed) in results.iter().enumerate() {
        let result = if passed {
            ProbeResult::Passed
        } else {
            failed()
        };
        check.observe(
            Instant::from_nanos(second as u64 * 1_000_000_000),
            result,
            THRESHOLDS,
        );
    }
    check
}

#[test]
fn the_first_probe_decides() {
    assert_eq!(fed(&[]).health(), Health::Unknown);
    assert_eq!(fed(&[true]).health(), Health::Up);
    assert_eq!(fed(&[false]).health(), Health::Down);
}

#[test]
fn falls_only_after_fall_failures_in_a_row() {
    assert_eq!(fed(&[true, false, false]).health(), Health::Up);
    assert_eq!(
        fed(&[true, false, false, true, false, false]).health(),
        Health::Up
    );
    assert_eq!(fed(&[true, false, false, false]).health(), Health::Down);
}

#[test]
fn rises_only_after_rise_passes_in_a_row() {
    assert_eq!(fed(&[false, true]).health(), Health::Down);
    assert_eq!(fed(&[false, true, false, true]).health(), Health::Down);
    assert_eq!(fed(&[false, true, true]).health(), Health::Up);
}

#[test]
fn a_change_says_why_and_since_when() {
    let mut check = fed(&[true, false, false]);
    let change = check.observe(Instant::from_nanos(9), failed(), THRESHOLDS);
    assert_eq!(
        change,
        Some(HealthChange {
            from: Health::Up,
            to: Health::Down,
            reason: "3 probes in a row failed, the last: status 500".to_owned(),
        })
    );
    assert_eq!(check.since(), Instant::from_nanos(9));
    assert_eq!(check.reason(), "status 500");
}

proptest! {
    /// The machine against the sentence that defines it: after the first probe, the last change is
    /// where the last run of `rise` or `fall` equal results ended.
    #[test]
    fn health_is_what_the_last_long_enough_run_said(results in prop::collection::vec(any::<bool>(), 1..60)) {
        let mut expected = results[0];
        let mut run = 1;
        for pair in results.windows(2) {
            run = if pair[0] == pair[1] { run + 1 } else { 1 };
            let needed = if pair[1] { THRESHOLDS.rise } else { THRESHOLDS.fall };
            if run >= needed {
                expected = pair[1];
            }
        }
        let expected = if expected { Health::Up } else { Health::Down };
        prop_assert_eq!(fed(&results).health(), expected);
    }
}

//! Faults as a time line of changes, each of one backend.

use std::time::Duration;

use crate::scenario::{Cold, Failing, Fault, FaultKind, Scenario};

/// What a fault does to a backend while it lasts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Effect {
    /// Speed is multiplied.
    Speed(f64),
    /// Speed sinks evenly from 1 to `floor`.
    Ramp { floor: f64, from: u64, to: u64 },
    /// It stands still.
    Stand { until: u64, probes_pass: bool },
    /// It answers with errors.
    Failing(Failing),
    /// Nothing listens.
    Refuse,
}

/// One step of the time line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Step {
    Begin(Effect),
    End,
    GoCold(Cold),
    /// It is taken out of the pool.
    Leave,
    /// It is put back.
    Join,
}

/// A step at its time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Change {
    pub(crate) at: u64,
    pub(crate) backend: u32,
    /// Index of the fault that it belongs to.
    pub(crate) fault: u32,
    pub(crate) step: Step,
}

/// All changes within the scenario's time, in order.
pub(crate) fn time_line(scenario: &Scenario) -> Vec<Change> {
    let end = nanos(scenario.time);
    let mut line = Vec::new();
    for (fault, number) in scenario.faults.iter().zip(0..) {
        for (backend, from, to) in fault.windows() {
            let mut add = |at: u64, step: Step| {
                if at < end {
                    line.push(Change {
                        at,
                        backend: backend as u32,
                        fault: number,
                        step,
                    });
                }
            };
            changes(fault, (from, to, end), &mut add);
        }
    }
    line.sort_by_key(|change| change.at);
    line
}

fn changes(fault: &Fault, (from, to, end): (u64, u64, u64), add: &mut impl FnMut(u64, Step)) {
    let mut lasting = |effect: Effect| {
        add(from, Step::Begin(effect));
        add(to, Step::End);
    };
    match fault.kind {
        FaultKind::Slow { factor } => lasting(Effect::Speed(1.0 / factor)),
        FaultKind::BrownOut { floor } => lasting(Effect::Ramp { floor, from, to }),
        FaultKind::Failing(failing) => lasting(Effect::Failing(failing)),
        FaultKind::Hang { probes_pass } => lasting(Effect::Stand {
            until: to,
            probes_pass,
        }),
        FaultKind::Antagonist { steal, on, off } => {
            let effect = Effect::Speed(1.0 - steal);
            if off.is_zero() {
                lasting(effect);
            } else {
                in_turn((from, to.min(end)), (on, off), |at, until| {
                    add(at, Step::Begin(effect));
                    add(until, Step::End);
                });
            }
        }
        FaultKind::Pause { period, length } => {
            let gap = period.saturating_sub(length);
            in_turn((from, to.min(end)), (length, gap), |at, until| {
                let probes_pass = false;
                add(at, Step::Begin(Effect::Stand { until, probes_pass }));
                add(until, Step::End);
            });
        }
        FaultKind::Flap { up, down } => {
            in_turn((from, to.min(end)), (down, up), |at, until| {
                add(at, Step::Begin(Effect::Refuse));
                add(until, Step::End);
            });
        }
        FaultKind::ColdStart(cold) => add(from, Step::GoCold(cold)),
        FaultKind::Kill { cold } => {
            lasting(Effect::Refuse);
            if let Some(cold) = cold {
                add(to, Step::GoCold(cold));
            }
        }
        FaultKind::Leave { grace, cold } => {
            add(from, Step::Leave);
            add(
                from.saturating_add(nanos(grace)),
                Step::Begin(Effect::Refuse),
            );
            add(to, Step::End);
            if let Some(cold) = cold {
                add(to, Step::GoCold(cold));
            }
            add(to, Step::Join);
        }
    }
}

/// Calls `each` with begin and end of every turn that begins within the window.
fn in_turn(
    (from, to): (u64, u64),
    (on, off): (Duration, Duration),
    mut each: impl FnMut(u64, u64),
) {
    let (on, off) = (nanos(on), nanos(off));
    let mut at = from;
    while at < to {
        each(at, at.saturating_add(on).min(to));
        at = at.saturating_add(on).saturating_add(off.max(1));
    }
}

fn nanos(time: Duration) -> u64 {
    time.as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::shipped;

    fn line(kind: FaultKind, from: u64, to: u64, step: u64) -> Vec<(u64, u32, bool)> {
        let mut scenario = shipped()[0].scenario();
        scenario.time = Duration::from_secs(60);
        scenario.faults = vec![Fault {
            kind,
            backends: vec![0, 1],
            from: Duration::from_secs(from),
            to: Duration::from_secs(to),
            step: Duration::from_secs(step),
        }];
        let changes = time_line(&scenario);
        changes
            .iter()
            .map(|change| {
                let begins = matches!(change.step, Step::Begin(_));
                (change.at / 1_000_000_000, change.backend, begins)
            })
            .collect()
    }

    #[test]
    fn a_steady_fault_begins_and_ends_once_for_each_backend_in_turn() {
        let slow = FaultKind::Slow { factor: 2.0 };
        assert_eq!(
            line(slow, 10, 20, 5),
            [(10, 0, true), (15, 1, true), (20, 0, false), (25, 1, false)]
        );
        assert_eq!(line(slow, 50, 70, 0).len(), 2, "no change after the end");
    }

    #[test]
    fn a_flap_ends_with_its_window() {
        let flap = FaultKind::Flap {
            up: Duration::from_secs(4),
            down: Duration::from_secs(4),
        };
        let of_first: Vec<_> = line(flap, 10, 20, 0)
            .into_iter()
            .filter(|change| change.1 == 0)
            .map(|change| (change.0, change.2))
            .collect();
        assert_eq!(of_first, [(10, true), (14, false), (18, true), (20, false)]);
    }
}

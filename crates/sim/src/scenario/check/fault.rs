//! Faults: which keys each kind has, and what they may be.

use std::ops::Range;
use std::time::Duration;

use toml::Spanned;

use super::PERIOD_MIN;
use super::{at_least, positive, ranged};
use crate::scenario::diagnostic::Findings;
use crate::scenario::fault::{Cold, Failing, Fault, FaultKind, Warm};
use crate::scenario::file::{self, Kind};
use crate::scenario::text::{Time, Which};

pub(super) fn fault(
    spanned: &Spanned<file::Fault>,
    backends: usize,
    findings: &mut Findings<'_>,
) -> Option<Fault> {
    let given = spanned.get_ref();
    let kind = *given.kind.get_ref();
    refuse_foreign(given, kind, findings);
    let from = given.from.get_ref().0;
    let to = match &given.to {
        Some(to) => {
            findings.require(to.get_ref().0 > from, to.span(), "`to` comes after `from`");
            to.get_ref().0
        }
        None if kind == Kind::ColdStart => from,
        None if kind == Kind::BrownOut => {
            findings.add(
                spanned.span(),
                "a brown-out needs `to`: when it is at its floor",
            );
            return None;
        }
        None => Duration::from_secs(1_000_000),
    };
    let step = given.step.map_or(Duration::ZERO, |step| step.0);
    Some(Fault {
        kind: fault_kind(given, kind, spanned.span(), findings)?,
        backends: chosen(&given.backends, backends, findings),
        from,
        to,
        step,
    })
}

fn chosen(which: &Spanned<Which>, backends: usize, findings: &mut Findings<'_>) -> Vec<usize> {
    let chosen: Vec<usize> = match which.get_ref() {
        Which::All => (0..backends).collect(),
        Which::First(count) => (0..*count).collect(),
        Which::These(numbers) => numbers.clone(),
    };
    if chosen.is_empty() {
        findings.add(which.span(), "a fault needs at least one backend");
    } else if let Some(beyond) = chosen.iter().find(|&&number| number >= backends) {
        findings.add(
            which.span(),
            format!("there is no backend {beyond}: the {backends} are numbered from 0"),
        );
        return Vec::new();
    }
    let mut sorted = chosen.clone();
    sorted.sort_unstable();
    sorted.dedup();
    findings.require(
        sorted.len() == chosen.len(),
        which.span(),
        "a backend is named twice",
    );
    chosen
}

fn antagonist(given: &file::Fault, span: Range<usize>, findings: &mut Findings<'_>) -> FaultKind {
    let (on, off) = (time(&given.on), time(&given.off));
    for (value, key) in [(&given.on, "on"), (&given.off, "off")] {
        // Zero for both is always.
        if let Some(value) = value.as_ref().filter(|it| !it.get_ref().0.is_zero()) {
            at_least(PERIOD_MIN, value, key, findings);
        }
    }
    findings.require(
        on.is_zero() == off.is_zero(),
        span,
        "an antagonist has both `on` and `off`, or neither",
    );
    let steal = ranged(given.steal.as_ref(), 0.5, 0.0..=0.999, "steal", findings);
    FaultKind::Antagonist { steal, on, off }
}

fn fault_kind(
    given: &file::Fault,
    kind: Kind,
    span: Range<usize>,
    findings: &mut Findings<'_>,
) -> Option<FaultKind> {
    let mut wanted = |value: &Option<Spanned<Time>>, key: &str| match value {
        Some(value) if key == "length" => Some(positive(value, key, findings)),
        Some(value) => Some(at_least(PERIOD_MIN, value, key, findings)),
        None => {
            findings.add(span.clone(), format!("this kind of fault needs `{key}`"));
            None
        }
    };
    Some(match kind {
        Kind::Slow => FaultKind::Slow {
            factor: ranged(given.factor.as_ref(), 10.0, 0.01..=1e6, "factor", findings),
        },
        Kind::GcPause => {
            let (period, length) = (
                wanted(&given.period, "period")?,
                wanted(&given.length, "length")?,
            );
            findings.require(length < period, span, "a pause is shorter than its period");
            FaultKind::Pause { period, length }
        }
        Kind::Antagonist => antagonist(given, span, findings),
        Kind::BrownOut => FaultKind::BrownOut {
            floor: ranged(given.floor.as_ref(), 0.1, 0.001..=1.0, "floor", findings),
        },
        Kind::BlackHole => FaultKind::Failing(failing(given, 500, 1, findings)),
        Kind::SlowFail => FaultKind::Failing(failing(given, 504, 1_000, findings)),
        Kind::Hang => FaultKind::Hang {
            probes_pass: flag(&given.probes_pass, false),
        },
        Kind::ColdStart => match cold(given, findings) {
            Some(cold) => FaultKind::ColdStart(cold),
            None => {
                findings.add(span, "a cold start needs `warm_requests` or `warm_time`");
                return None;
            }
        },
        Kind::Flap => FaultKind::Flap {
            up: wanted(&given.up, "up")?,
            down: wanted(&given.down, "down")?,
        },
        Kind::Kill => FaultKind::Kill {
            cold: cold(given, findings),
        },
        Kind::Leave => {
            let grace = given
                .grace
                .as_ref()
                .map_or(Duration::from_secs(5), |grace| grace.get_ref().0);
            let away = given.to.as_ref().map(|to| to.get_ref().0);
            findings.require(
                away.is_none_or(|to| given.from.get_ref().0 + grace < to),
                span,
                "`grace` ends before the backend comes back",
            );
            let cold = cold(given, findings);
            FaultKind::Leave { grace, cold }
        }
    })
}

fn failing(
    given: &file::Fault,
    status: u16,
    after_ms: u64,
    findings: &mut Findings<'_>,
) -> Failing {
    Failing {
        status: ranged(given.status.as_ref(), status, 500..=599, "status", findings),
        after: given
            .after
            .as_ref()
            .map_or(Duration::from_millis(after_ms), |after| after.get_ref().0),
        share: ranged(
            given.share.as_ref(),
            1.0,
            0.000_001..=1.0,
            "share",
            findings,
        ),
        probes_pass: flag(&given.probes_pass, true),
    }
}

fn cold(given: &file::Fault, findings: &mut Findings<'_>) -> Option<Cold> {
    let speed = ranged(
        given.cold_speed.as_ref(),
        0.1,
        0.01..=1.0,
        "cold_speed",
        findings,
    );
    let warm = match (&given.warm_requests, &given.warm_time) {
        (None, None) => {
            if let Some(speed) = &given.cold_speed {
                findings.add(
                    speed.span(),
                    "`cold_speed` needs `warm_requests` or `warm_time`",
                );
            }
            return None;
        }
        (Some(_), Some(time)) => {
            findings.add(
                time.span(),
                "either `warm_requests` or `warm_time`, not both",
            );
            return None;
        }
        (Some(requests), None) => Warm::Requests(*requests.get_ref()),
        (None, Some(time)) => Warm::Time(positive(time, "warm_time", findings)),
    };
    Some(Cold { speed, warm })
}

/// A key, its place if it is there, and the kinds that have it.
type Key = (&'static str, Option<Range<usize>>, &'static [Kind]);

/// Keys that belong to another kind than the one that is named.
fn refuse_foreign(given: &file::Fault, kind: Kind, findings: &mut Findings<'_>) {
    const FAILING: &[Kind] = &[Kind::BlackHole, Kind::SlowFail];
    const PROBED: &[Kind] = &[Kind::BlackHole, Kind::SlowFail, Kind::Hang];
    const COLD: &[Kind] = &[Kind::ColdStart, Kind::Kill, Kind::Leave];
    fn place<T>(value: &Option<Spanned<T>>) -> Option<Range<usize>> {
        value.as_ref().map(Spanned::span)
    }
    let keys: [Key; 17] = [
        ("factor", place(&given.factor), &[Kind::Slow]),
        ("period", place(&given.period), &[Kind::GcPause]),
        ("length", place(&given.length), &[Kind::GcPause]),
        ("steal", place(&given.steal), &[Kind::Antagonist]),
        ("on", place(&given.on), &[Kind::Antagonist]),
        ("off", place(&given.off), &[Kind::Antagonist]),
        ("floor", place(&given.floor), &[Kind::BrownOut]),
        ("status", place(&given.status), FAILING),
        ("after", place(&given.after), FAILING),
        ("share", place(&given.share), FAILING),
        ("probes_pass", place(&given.probes_pass), PROBED),
        ("up", place(&given.up), &[Kind::Flap]),
        ("down", place(&given.down), &[Kind::Flap]),
        ("grace", place(&given.grace), &[Kind::Leave]),
        ("cold_speed", place(&given.cold_speed), COLD),
        ("warm_requests", place(&given.warm_requests), COLD),
        ("warm_time", place(&given.warm_time), COLD),
    ];
    for (key, span, kinds) in keys {
        if let Some(span) = span.filter(|_| !kinds.contains(&kind)) {
            findings.add(span, format!("this kind of fault has no `{key}`"));
        }
    }
}

fn time(value: &Option<Spanned<Time>>) -> Duration {
    value
        .as_ref()
        .map_or(Duration::ZERO, |time| time.get_ref().0)
}

fn flag(value: &Option<Spanned<bool>>, preset: bool) -> bool {
    value.as_ref().map_or(preset, |flag| *flag.get_ref())
}

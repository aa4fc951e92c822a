//! From a file to a scenario: ranges, relations, and all that is wrong at once.

use std::ops::Range;
use std::time::Duration;

use toml::Spanned;

use super::diagnostic::{Diagnostic, Findings};
use super::file::{Arrivals, File, Group, LawName, Probes, Retry, Service, Step};
use super::text::Time;
use super::{BackendPlan, Fault, PoolPlan, ProbePlan, Rate, RetryPlan, Scenario};
use crate::law::Law;

mod fault;

/// Most backends of a scenario.
const BACKENDS_MAX: usize = 10_000;
/// Most balancers; each has a pool of its own.
const BALANCERS_MAX: usize = 1_000;
/// Longest simulated time.
const TIME_MAX: Duration = Duration::from_secs(24 * 3_600);
/// Zones, at most.
const ZONES_MAX: u32 = 100;
/// The shortest time in which something comes again: a probe, a pause, a turn of a fault.
const PERIOD_MIN: Duration = Duration::from_millis(1);
/// Most changes of backends by all faults that come and go: they are all made before the first request.
const CHANGES_MAX: u64 = 1_000_000;
/// Most requests, and most probes: some minutes of work for each policy.
const EVENTS_MAX: f64 = 1e9;
/// Requests a second, at most.
const RATE_MAX: f64 = 1e7;

pub(super) fn compile(name: &str, text: &str) -> Result<Scenario, Vec<Diagnostic>> {
    let mut findings = Findings::new(name, text);
    let file = match toml::from_str::<File>(text) {
        Ok(file) => file,
        Err(error) => {
            findings.add_syntax(&error);
            return Err(findings.into_vec());
        }
    };
    let scenario = scenario(name, &file, &mut findings);
    if findings.is_empty() {
        Ok(scenario)
    } else {
        Err(findings.into_vec())
    }
}

fn scenario(name: &str, file: &File, findings: &mut Findings<'_>) -> Scenario {
    let time = file.time.get_ref().0;
    findings.require(
        !time.is_zero() && time <= TIME_MAX,
        file.time.span(),
        "`time` is above zero and at most 24h",
    );
    let warmup = file.warmup.as_ref().map_or(time / 10, |warmup| {
        let value = warmup.get_ref().0;
        findings.require(
            value < time,
            warmup.span(),
            "`warmup` is part of `time`, so it must be shorter",
        );
        value
    });
    let zones = ranged(file.zones.as_ref(), 1, 1..=ZONES_MAX, "zones", findings);
    let backends = backends(&file.backends, zones, findings);
    let mut scenario = Scenario {
        name: scenario_name(name, file, findings),
        about: file.about.clone(),
        time,
        warmup,
        balancers: ranged(
            file.balancers.as_ref(),
            1,
            1..=BALANCERS_MAX,
            "balancers",
            findings,
        ),
        zones,
        keys: ranged(file.keys.as_ref(), 10_000, 1..=u64::MAX, "keys", findings),
        backends,
        service: law(&file.service, findings),
        network: file
            .network
            .map_or(Duration::from_micros(200), |time| time.0),
        arrivals: Vec::new(),
        client_timeout: file
            .client_timeout
            .as_ref()
            .map(|timeout| positive(timeout, "client_timeout", findings)),
        pool: pool(file, findings),
        faults: Vec::new(),
    };
    scenario.arrivals = arrivals(&file.arrivals, &scenario, findings);
    scenario.faults = faults(file, &scenario, findings);
    events(file, &scenario, findings);
    scenario
}

fn faults(file: &File, scenario: &Scenario, findings: &mut Findings<'_>) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut changes: u64 = 0;
    for spanned in &file.faults {
        let Some(fault) = fault::fault(spanned, scenario.backends.len(), findings) else {
            continue;
        };
        let before = changes;
        changes = changes.saturating_add(fault.changes_within(scenario.time));
        findings.require(
            changes <= CHANGES_MAX || changes == before,
            spanned.span(),
            format!(
                "with this fault backends change {changes} times, of {CHANGES_MAX} that can be played: \
                 give it a longer period, fewer backends or an earlier `to`"
            ),
        );
        faults.push(fault);
    }
    faults
}

/// Bounds what is played, so that a scenario ends.
fn events(file: &File, scenario: &Scenario, findings: &mut Findings<'_>) {
    let ends = scenario.arrivals.iter().skip(1).map(|rate| rate.from);
    let ends = ends.chain([scenario.time]);
    let requests: f64 = scenario
        .arrivals
        .iter()
        .zip(ends)
        .map(|(rate, end)| {
            let length = end.min(scenario.time).saturating_sub(rate.from);
            rate.per_second * length.as_secs_f64()
        })
        .sum();
    findings.require(
        requests <= EVENTS_MAX,
        file.arrivals.span(),
        format!(
            "that makes {requests:.0} requests, of {EVENTS_MAX} that can be played: \
             lower the rate, or make `time` shorter"
        ),
    );
    let (Some(plan), Some(given)) = (scenario.pool.probes, &file.probes) else {
        return;
    };
    let each = scenario.time.as_secs_f64() / plan.interval.max(PERIOD_MIN).as_secs_f64();
    let probes = each * scenario.backends.len() as f64 * scenario.balancers as f64;
    let interval = given.get_ref().interval.as_ref();
    findings.require(
        probes <= EVENTS_MAX,
        interval.map_or(given.span(), Spanned::span),
        format!(
            "that makes {probes:.0} probes, of {EVENTS_MAX} that can be played: \
             make `interval` longer, or `time` shorter"
        ),
    );
}

fn scenario_name(name: &str, file: &File, findings: &mut Findings<'_>) -> String {
    let Some(given) = &file.name else {
        return name.to_owned();
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    findings.require(
        !given.get_ref().is_empty() && given.get_ref().chars().all(is_plain),
        given.span(),
        "a name has letters, digits, `-` and `_`",
    );
    given.get_ref().clone()
}

fn backends(
    groups: &Spanned<Vec<Group>>,
    zones: u32,
    findings: &mut Findings<'_>,
) -> Vec<BackendPlan> {
    let mut backends = Vec::new();
    for group in groups.get_ref() {
        let plan = BackendPlan {
            slots: ranged(group.slots.as_ref(), 1, 1..=100_000, "slots", findings),
            queue_max: group.queue_max.unwrap_or(1_000),
            speed: ranged(
                group.speed.as_ref(),
                1.0,
                0.001..=1_000.0,
                "speed",
                findings,
            ),
            weight: ranged(group.weight.as_ref(), 1, 1..=65_535, "weight", findings),
            priority: ranged(group.priority.as_ref(), 0, 0..=100, "priority", findings),
            zone: ranged(group.zone.as_ref(), 0, 0..=zones - 1, "zone", findings),
        };
        let count = *group.count.get_ref();
        let room = BACKENDS_MAX - backends.len();
        if count == 0 || count > room {
            findings.add(
                group.count.span(),
                format!("`count` is 1 to {room}: there are at most {BACKENDS_MAX} backends in all"),
            );
            continue;
        }
        backends.resize(backends.len() + count, plan);
    }
    findings.require(
        !groups.get_ref().is_empty(),
        groups.span(),
        "a scenario needs at least one backend",
    );
    backends
}

fn law(service: &Spanned<Service>, findings: &mut Findings<'_>) -> Law {
    let span = service.span();
    let service = service.get_ref();
    let mut missing = |key: &str| {
        findings.add(span.clone(), format!("this law needs `{key}`"));
        Duration::from_millis(1)
    };
    let mut duration = |value: &Option<Spanned<Time>>, key| match value {
        Some(value) => value.get_ref().0,
        None => missing(key),
    };
    let law = match service.law {
        LawName::Fixed => Law::Fixed {
            mean: duration(&service.mean, "mean"),
        },
        LawName::Exponential => Law::Exponential {
            mean: duration(&service.mean, "mean"),
        },
        LawName::Lognormal => Law::Lognormal {
            mean: duration(&service.mean, "mean"),
            sigma: ranged(service.sigma.as_ref(), 0.5, 0.0..=4.0, "sigma", findings),
        },
        LawName::Bimodal => Law::Bimodal {
            fast: duration(&service.fast, "fast"),
            slow: duration(&service.slow, "slow"),
            slow_share: ranged(
                service.slow_share.as_ref(),
                0.1,
                0.0..=1.0,
                "slow_share",
                findings,
            ),
        },
    };
    refuse_foreign(service, findings);
    findings.require(
        law.mean_nanos() >= 1_000.0,
        span,
        "the mean work of a request is at least 1us",
    );
    law
}

/// Keys that belong to another law than the one that is named.
fn refuse_foreign(service: &Service, findings: &mut Findings<'_>) {
    let place = |value: &Option<Spanned<Time>>| value.as_ref().map(Spanned::span);
    let share = |value: &Option<Spanned<f64>>| value.as_ref().map(Spanned::span);
    let (one, two) = (place(&service.mean), "mean");
    let mut foreign: Vec<(Option<Range<usize>>, &str)> = Vec::new();
    if matches!(service.law, LawName::Bimodal) {
        foreign.push((one, two));
    } else {
        foreign.push((place(&service.fast), "fast"));
        foreign.push((place(&service.slow), "slow"));
        foreign.push((share(&service.slow_share), "slow_share"));
    }
    if !matches!(service.law, LawName::Lognormal) {
        foreign.push((share(&service.sigma), "sigma"));
    }
    for (span, key) in foreign {
        if let Some(span) = span {
            findings.add(span, format!("this law has no `{key}`"));
        }
    }
}

fn pool(file: &File, findings: &mut Findings<'_>) -> PoolPlan {
    let preset = PoolPlan::default();
    PoolPlan {
        response_timeout: file
            .response_timeout
            .as_ref()
            .map_or(preset.response_timeout, |timeout| {
                Some(positive(timeout, "response_timeout", findings))
            }),
        retry: file
            .retry
            .as_ref()
            .map_or(preset.retry, |retry| retry_plan(retry, findings)),
        probes: file
            .probes
            .as_ref()
            .map(|probes| probe_plan(probes, findings)),
        ejection: file.ejection.unwrap_or(preset.ejection),
        panic_threshold: ranged(
            file.panic_threshold.as_ref(),
            preset.panic_threshold,
            0.0..=1.0,
            "panic_threshold",
            findings,
        ),
        propagation: file.propagation.map_or(preset.propagation, |time| time.0),
    }
}

fn retry_plan(retry: &Retry, findings: &mut Findings<'_>) -> RetryPlan {
    let preset = RetryPlan::default();
    RetryPlan {
        tries_max: ranged(
            retry.tries_max.as_ref(),
            preset.tries_max,
            1..=8,
            "tries_max",
            findings,
        ),
        reset: retry.reset.unwrap_or(preset.reset),
        timeout: retry.timeout.unwrap_or(preset.timeout),
        statuses: retry
            .statuses
            .iter()
            .map(|status| retried(status, findings))
            .collect(),
    }
}

/// A status that is tried again, of those that a pool may name.
fn retried(status: &Spanned<u16>, findings: &mut Findings<'_>) -> u16 {
    let number = *status.get_ref();
    findings.require(
        (400..=599).contains(&number),
        status.span(),
        format!("a status that is tried again is 400 to 599, not {number}"),
    );
    number
}

fn probe_plan(probes: &Spanned<Probes>, findings: &mut Findings<'_>) -> ProbePlan {
    let preset = ProbePlan::default();
    let given = probes.get_ref();
    let plan = ProbePlan {
        interval: given.interval.as_ref().map_or(preset.interval, |time| {
            at_least(PERIOD_MIN, time, "interval", findings)
        }),
        timeout: given.timeout.map_or(preset.timeout, |time| time.0),
        rise: given.rise.unwrap_or(preset.rise),
        fall: given.fall.unwrap_or(preset.fall),
    };
    findings.require(
        !plan.timeout.is_zero() && plan.timeout < plan.interval,
        probes.span(),
        "a probe's `timeout` is above zero and shorter than its `interval`",
    );
    findings.require(
        plan.rise > 0 && plan.fall > 0,
        probes.span(),
        "`rise` and `fall` are at least 1",
    );
    plan
}

/// Begin and end (if it has one) of a step, and its rate.
type Phase = (Duration, Option<Duration>, f64);

fn arrivals(
    arrivals: &Spanned<Arrivals>,
    scenario: &Scenario,
    findings: &mut Findings<'_>,
) -> Vec<Rate> {
    let span = arrivals.span();
    let arrivals = arrivals.get_ref();
    let capacity = scenario.capacity();
    let base = match (&arrivals.load, &arrivals.rate) {
        (Some(load), None) => load.get_ref() * capacity,
        (None, Some(rate)) => *rate.get_ref(),
        _ => {
            findings.add(
                span,
                "arrivals have either `load` (a share of capacity) or `rate` (requests a second)",
            );
            return Vec::new();
        }
    };
    findings.require(
        base > 0.0 && base <= RATE_MAX,
        span,
        format!("arrivals come to {base:.1} requests a second, outside of 0 to {RATE_MAX}"),
    );
    let mut rates = vec![Rate {
        from: Duration::ZERO,
        per_second: base,
    }];
    let mut after = Duration::ZERO;
    for step in &arrivals.steps {
        let Some((from, to, per_second)) = phase(step, base, capacity, findings) else {
            continue;
        };
        findings.require(
            from >= after,
            step.get_ref().at.span(),
            "steps come in order of time and do not overlap",
        );
        let before = rates.last().map_or(base, |rate| rate.per_second);
        rates.push(Rate { from, per_second });
        after = to.unwrap_or(from);
        rates.extend(to.map(|from| Rate {
            from,
            per_second: before,
        }));
    }
    rates
}

fn phase(
    step: &Spanned<Step>,
    base: f64,
    capacity: f64,
    findings: &mut Findings<'_>,
) -> Option<Phase> {
    let span = step.span();
    let step = step.get_ref();
    let value = |number: &Option<Spanned<f64>>| number.as_ref().map(|number| *number.get_ref());
    let per_second = match (value(&step.load), value(&step.rate), value(&step.factor)) {
        (Some(load), None, None) => load * capacity,
        (None, Some(rate), None) => rate,
        (None, None, Some(factor)) => base * factor,
        _ => {
            findings.add(
                span,
                "a step has one of `load` (share of capacity), `rate` (requests a second), `factor` (of the first rate)",
            );
            return None;
        }
    };
    if !(0.0..=RATE_MAX).contains(&per_second) {
        findings.add(
            span,
            format!("this comes to {per_second:.1} requests a second, outside of 0 to {RATE_MAX}"),
        );
        return None;
    }
    let from = step.at.get_ref().0;
    let length = step.length.as_ref();
    Some((
        from,
        length.map(|length| from + length.get_ref().0),
        per_second,
    ))
}

/// The value, or `preset` if there is none; a finding if it is out of `range`.
pub(super) fn ranged<T: PartialOrd + Copy + std::fmt::Display>(
    value: Option<&Spanned<T>>,
    preset: T,
    range: std::ops::RangeInclusive<T>,
    key: &str,
    findings: &mut Findings<'_>,
) -> T {
    let Some(value) = value else {
        return preset;
    };
    let number = *value.get_ref();
    if !range.contains(&number) {
        findings.add(
            value.span(),
            format!(
                "`{key}` is {} to {}, not {number}",
                range.start(),
                range.end()
            ),
        );
        return preset;
    }
    number
}

/// The value; a finding if it is shorter than `least`.
pub(super) fn at_least(
    least: Duration,
    value: &Spanned<Time>,
    key: &str,
    findings: &mut Findings<'_>,
) -> Duration {
    let time = value.get_ref().0;
    let message = format!("`{key}` is {}ms or more", least.as_millis());
    findings.require(time >= least, value.span(), message);
    time
}

pub(super) fn positive(value: &Spanned<Time>, key: &str, findings: &mut Findings<'_>) -> Duration {
    let time = value.get_ref().0;
    findings.require(
        !time.is_zero(),
        value.span(),
        format!("`{key}` is above zero"),
    );
    time
}

//! The relations themselves. T-numbers are stable names; gaps are relations of later parts.

use super::{Found, Relation, Verdict};
use crate::config::schema::{BackendEntry, File, Health, Pool, Route};
use crate::config::text::{BackendAddress, Text, Time, show_time};
use crate::config::tree::Step;
use std::time::Duration;

/// Time for the last answer of a probe to take effect before it.
const SETTLE: Duration = Duration::from_secs(1);
/// T2: longest time until a dead backend is out.
const DETECTION_MAX: Duration = Duration::from_secs(12);
/// T4: longest time until a recovered backend is back.
const READMISSION_MAX: Duration = Duration::from_secs(15);
/// T5: time to stop once everything is drained.
const STOP_SLACK: Duration = Duration::from_secs(5);
/// T7: least difference of the two keep-alive time-outs.
const KEEPALIVE_SLACK: Duration = Duration::from_secs(1);
/// T16: largest share of retries.
const RETRY_SHARE_MAX: f64 = 0.2;
/// T30: what must be left over when one backend is out.
const HEADROOM: f64 = 1.1;

/// All relations of `file`.
pub(super) fn all(file: &File) -> Vec<Found<'_>> {
    let mut found = vec![outer_probe(file)];
    for (name, pool) in &file.pool {
        if let Some(health) = &pool.health {
            found.extend(probes(name, health));
        }
    }
    found.extend([stop_grace(file), longest_request(file)]);
    found.extend(
        file.pool
            .iter()
            .map(|(name, pool)| keepalive(file, name, pool)),
    );
    found.extend(
        file.listener
            .iter()
            .enumerate()
            .map(|(index, _)| outer_idle(file, index)),
    );
    for (name, pool) in &file.pool {
        found.extend([
            outer_timeout(file, name, pool),
            per_try(name, pool),
            retry_share(name, pool),
            headroom(file, name, pool),
        ]);
    }
    found.extend(
        file.route
            .iter()
            .enumerate()
            .filter_map(|(index, route)| route_per_try(file, index, route)),
    );
    found.sort_by_key(|found| found.relation.id[1..].parse::<u32>().unwrap_or(u32::MAX));
    found
}

/// What both sides are made of.
struct Sides<'f> {
    id: &'static str,
    subject: String,
    steps: Vec<Step<'f>>,
    prevents: &'static str,
}

/// A side: its arithmetic and its value, in nanoseconds or in thousandths.
struct Side {
    text: String,
    value: i128,
}

impl Side {
    fn time(text: String, value: Duration) -> Self {
        Self {
            text,
            value: i128::try_from(value.as_nanos()).unwrap_or(i128::MAX),
        }
    }
}

/// How the left side must compare to the right one.
#[derive(Clone, Copy, PartialEq)]
enum Must {
    BeMore,
    BeLess,
    BeAtMost,
    BeAtLeast,
}

impl Must {
    fn word(self) -> &'static str {
        match self {
            Self::BeMore => "more than",
            Self::BeLess => "less than",
            Self::BeAtMost => "at most",
            Self::BeAtLeast => "at least",
        }
    }

    fn holds(self, left: i128, right: i128) -> bool {
        match self {
            Self::BeMore => left > right,
            Self::BeLess => left < right,
            Self::BeAtMost => left <= right,
            Self::BeAtLeast => left >= right,
        }
    }
}

impl<'f> Sides<'f> {
    fn times(self, left: Side, must: Must, right: Side, mend: String) -> Found<'f> {
        let show = |nanos: i128| {
            let sign = if nanos < 0 { "-" } else { "" };
            format!(
                "{sign}{}",
                show_time(Duration::from_nanos(
                    u64::try_from(nanos.abs()).unwrap_or(u64::MAX)
                ))
            )
        };
        self.compare(left, must, right, &show, mend)
    }

    fn compare(
        self,
        left: Side,
        must: Must,
        right: Side,
        show: &dyn Fn(i128) -> String,
        mend: String,
    ) -> Found<'f> {
        let holds = must.holds(left.value, right.value);
        let margin = match must {
            Must::BeMore | Must::BeAtLeast => left.value - right.value,
            Must::BeLess | Must::BeAtMost => right.value - left.value,
        };
        let verdict = if holds { Verdict::Pass } else { Verdict::Fail };
        let relation = Relation {
            margin: Some(show(margin)),
            verdict,
            mend: (!holds).then_some(mend),
            ..self.relation(left.text, must, right.text, String::new())
        };
        Found {
            relation,
            steps: self.steps,
        }
    }

    fn not_checked(self, left: &str, must: Must, right: &str, reason: String) -> Found<'f> {
        let relation = self.relation(left.to_owned(), must, right.to_owned(), reason);
        Found {
            relation,
            steps: self.steps,
        }
    }

    fn relation(&self, left: String, must: Must, right: String, reason: String) -> Relation {
        let (id, subject, prevents) = (self.id, self.subject.clone(), self.prevents);
        let path = crate::config::tree::show_steps(&self.steps);
        let (margin, verdict, mend) = (None, Verdict::NotChecked, None);
        Relation {
            id,
            subject,
            path,
            left,
            comparison: must.word(),
            right,
            margin,
            verdict,
            reason,
            prevents,
            mend,
        }
    }
}

fn process<'f>(id: &'static str, keys: [&'f str; 2], prevents: &'static str) -> Sides<'f> {
    Sides {
        id,
        subject: String::new(),
        steps: keys.into_iter().map(Step::Key).collect(),
        prevents,
    }
}

fn in_pool<'f>(
    id: &'static str,
    name: &'f str,
    keys: [&'f str; 2],
    prevents: &'static str,
) -> Sides<'f> {
    let steps = ["pool", name]
        .into_iter()
        .chain(keys)
        .map(Step::Key)
        .collect();
    Sides {
        id,
        subject: format!("pool {name}"),
        steps,
        prevents,
    }
}

fn shown(time: Duration) -> String {
    show_time(time)
}

fn unset(what: &str) -> String {
    format!("`{what}` is not set")
}

/// A time-out that is switched on.
fn on(time: &Text<Time>) -> Option<Duration> {
    Some(time.value.0).filter(|time| !time.is_zero())
}

/// T1: the outer balancer sees `/readyz` fail before the listener closes.
fn outer_probe(file: &File) -> Found<'_> {
    let sides = process(
        "T1",
        ["drain", "window"],
        "connections into a listener that is closed already (502 while deploying)",
    );
    let window = file.drain.window.value.0;
    let outer = file.expect.outer_probe.as_ref();
    let numbers = outer.and_then(|outer| {
        Some((
            outer.interval.as_ref()?.value.0,
            outer.timeout.as_ref()?.value.0,
            outer.fall?,
        ))
    });
    let left = format!("window {}", shown(window));
    let Some((interval, timeout, fall)) = numbers else {
        return sides.not_checked(
            &left,
            Must::BeMore,
            "outer interval × fall + timeout + 1s",
            unset("expect.outer_probe"),
        );
    };
    let needed = interval * fall + timeout + SETTLE;
    let right = format!(
        "outer interval {} × fall {fall} + timeout {} + {} = {}",
        shown(interval),
        shown(timeout),
        shown(SETTLE),
        shown(needed)
    );
    let mend = format!(
        "set `drain.window = \"{}\"` or more",
        shown(needed + Duration::from_secs(1))
    );
    sides.times(
        Side::time(left, window),
        Must::BeMore,
        Side::time(right, needed),
        mend,
    )
}

/// T2, T3, T4: the numbers of a health check among themselves.
fn probes<'f>(name: &'f str, health: &'f Health) -> [Found<'f>; 3] {
    let (interval, timeout) = (health.interval.value.0, health.timeout.value.0);
    let (fall, rise) = (health.fall, health.rise);
    let detection = interval * fall + timeout;
    let left = format!(
        "interval {} × fall {fall} + timeout {} = {}",
        shown(interval),
        shown(timeout),
        shown(detection)
    );
    let longest =
        |count: u32, limit: Duration| shown_floor(limit.saturating_sub(timeout) / count.max(1));
    let t2 = in_pool(
        "T2",
        name,
        ["health", "interval"],
        "a dead backend that keeps its traffic for long",
    )
    .times(
        Side::time(left, detection),
        Must::BeAtMost,
        Side::time(shown(DETECTION_MAX), DETECTION_MAX),
        format!(
            "set `interval = \"{}\"` or less, or a smaller `fall`",
            longest(fall, DETECTION_MAX)
        ),
    );
    let t3 = in_pool(
        "T3",
        name,
        ["health", "timeout"],
        "probes that overlap, and backends that fall for being slow once",
    )
    .times(
        Side::time(format!("timeout {}", shown(timeout)), timeout),
        Must::BeLess,
        Side::time(format!("interval {}", shown(interval)), interval),
        format!("set `timeout = \"{}\"`", shown(interval / 2)),
    );
    let readmission = interval * rise + timeout;
    let left = format!(
        "interval {} × rise {rise} + timeout {} = {}",
        shown(interval),
        shown(timeout),
        shown(readmission)
    );
    let t4 = in_pool(
        "T4",
        name,
        ["health", "interval"],
        "a recovered backend that stays out, while the rest carry its load",
    )
    .times(
        Side::time(left, readmission),
        Must::BeAtMost,
        Side::time(shown(READMISSION_MAX), READMISSION_MAX),
        format!(
            "set `interval = \"{}\"` or less, or a smaller `rise`",
            longest(rise, READMISSION_MAX)
        ),
    );
    [t2, t3, t4]
}

/// Whole milliseconds, rounded down.
fn shown_floor(time: Duration) -> String {
    shown(Duration::from_millis(
        u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
    ))
}

/// T5: the drain is over before SIGKILL.
fn stop_grace(file: &File) -> Found<'_> {
    let sides = process(
        "T5",
        ["expect", "stop_grace"],
        "SIGKILL in the middle of the drain, which cuts requests",
    );
    let (window, deadline) = (file.drain.window.value.0, file.drain.deadline.value.0);
    let needed = window + deadline + STOP_SLACK;
    let left = format!(
        "window {} + deadline {} + {} = {}",
        shown(window),
        shown(deadline),
        shown(STOP_SLACK),
        shown(needed)
    );
    let Some(grace) = file.expect.stop_grace.as_ref().map(|grace| grace.value.0) else {
        return sides.not_checked(
            &left,
            Must::BeAtMost,
            "stop_grace",
            unset("expect.stop_grace"),
        );
    };
    let mend = format!(
        "raise the other side's grace (and `expect.stop_grace`) to {}, or shorten `drain`",
        shown(needed)
    );
    sides.times(
        Side::time(left, needed),
        Must::BeAtMost,
        Side::time(format!("stop_grace {}", shown(grace)), grace),
        mend,
    )
}

/// T6: no request may take longer than the drain waits.
fn longest_request(file: &File) -> Found<'_> {
    let sides = process(
        "T6",
        ["drain", "deadline"],
        "long requests that are cut by the drain",
    );
    let deadline = file.drain.deadline.value.0;
    let right = format!("drain deadline {}", shown(deadline));
    let pools = file
        .pool
        .iter()
        .map(|(name, pool)| (format!("pool {name}"), on(&pool.timeouts.request)));
    let overrides = file.route.iter().enumerate().filter_map(|(index, route)| {
        Some((
            format!("route[{index}]"),
            on(route.timeouts.request.as_ref()?),
        ))
    });
    let (mut longest, mut unlimited) = (None, None);
    for (who, time) in pools.chain(overrides) {
        match time {
            Some(time) if longest.as_ref().is_none_or(|(known, _)| time > *known) => {
                longest = Some((time, who))
            }
            Some(_) => {}
            None => unlimited = unlimited.or(Some(who)),
        }
    }
    let too_long = longest.as_ref().is_some_and(|(time, _)| *time > deadline);
    match (longest, unlimited) {
        (_, Some(who)) if !too_long => sides.not_checked(
            "request time-out",
            Must::BeAtMost,
            &right,
            format!("the `request` time-out of {who} is off"),
        ),
        (Some((time, who)), _) => {
            let left = Side::time(format!("request time-out {} of {who}", shown(time)), time);
            let mend = format!("set `drain.deadline = \"{}\"`", shown(time));
            sides.times(left, Must::BeAtMost, Side::time(right, deadline), mend)
        }
        (None, _) => sides.not_checked(
            "request time-out",
            Must::BeAtMost,
            &right,
            "there is no pool".to_owned(),
        ),
    }
}

/// T7: Mizan gives an idle connection up before the backend does.
fn keepalive<'f>(file: &'f File, name: &'f str, pool: &'f Pool) -> Found<'f> {
    let sides = in_pool(
        "T7",
        name,
        ["keepalive", "idle_timeout"],
        "requests on connections that the backend is closing (sporadic 502)",
    );
    let idle = pool.keepalive.idle_timeout.value.0;
    let needed = idle + KEEPALIVE_SLACK;
    let left = format!(
        "idle_timeout {} + {} = {}",
        shown(idle),
        shown(KEEPALIVE_SLACK),
        shown(needed)
    );
    let stated = pool
        .expect
        .backend_keepalive
        .as_ref()
        .or(file.expect.backend_keepalive.as_ref());
    let Some(theirs) = stated.map(|time| time.value.0) else {
        return sides.not_checked(
            &left,
            Must::BeLess,
            "backend_keepalive",
            unset("expect.backend_keepalive"),
        );
    };
    let most = theirs.saturating_sub(KEEPALIVE_SLACK + Duration::from_millis(500));
    let mend = if most.is_zero() {
        "set `keepalive.idle_max = 0`: these backends close too early for reuse".to_owned()
    } else {
        format!("set `keepalive.idle_timeout = \"{}\"`", shown_floor(most))
    };
    sides.times(
        Side::time(left, needed),
        Must::BeLess,
        Side::time(format!("backend_keepalive {}", shown(theirs)), theirs),
        mend,
    )
}

/// T8: the same one level up: what stands before Mizan gives up first.
fn outer_idle(file: &File, index: usize) -> Found<'_> {
    let listener = &file.listener[index];
    let name = listener
        .name
        .as_deref()
        .or(listener.bind.as_ref().map(|bind| bind.text.as_str()))
        .unwrap_or_default();
    let steps = vec![
        Step::Key("listener"),
        Step::Index(index),
        Step::Key("timeouts"),
        Step::Key("idle"),
    ];
    let prevents =
        "requests of the outer balancer on connections that Mizan is closing (sporadic 502)";
    let sides = Sides {
        id: "T8",
        subject: format!("listener {name}"),
        steps,
        prevents,
    };
    let Some(outer) = file.expect.outer_idle.as_ref().map(|time| time.value.0) else {
        return sides.not_checked(
            "timeouts.idle",
            Must::BeMore,
            "outer_idle",
            unset("expect.outer_idle"),
        );
    };
    let Some(idle) = on(&listener.timeouts.idle) else {
        return sides.not_checked(
            "timeouts.idle",
            Must::BeMore,
            "outer_idle",
            "`timeouts.idle` is off: Mizan never closes first".to_owned(),
        );
    };
    let mend = format!(
        "set `timeouts.idle = \"{}\"`",
        shown(outer + Duration::from_secs(5))
    );
    let (left, right) = (
        format!("idle {}", shown(idle)),
        format!("outer_idle {}", shown(outer)),
    );
    sides.times(
        Side::time(left, idle),
        Must::BeMore,
        Side::time(right, outer),
        mend,
    )
}

/// T15: all tries end before whoever asked has gone.
fn outer_timeout<'f>(file: &'f File, name: &'f str, pool: &'f Pool) -> Found<'f> {
    let sides = in_pool(
        "T15",
        name,
        ["timeouts", "request"],
        "retries for clients that have left (a storm of 504)",
    );
    let tries = pool.retry.tries_max;
    let words = ("connect × tries_max + request", "outer_timeout");
    let Some(outer) = file.expect.outer_timeout.as_ref().map(|time| time.value.0) else {
        return sides.not_checked(
            words.0,
            Must::BeAtMost,
            words.1,
            unset("expect.outer_timeout"),
        );
    };
    let (Some(connect), Some(request)) = (on(&pool.timeouts.connect), on(&pool.timeouts.request))
    else {
        let which = if on(&pool.timeouts.request).is_none() {
            "request"
        } else {
            "connect"
        };
        return sides.not_checked(
            words.0,
            Must::BeAtMost,
            words.1,
            format!("the `{which}` time-out is off"),
        );
    };
    let needed = connect * tries + request;
    let left = format!(
        "connect {} × tries_max {tries} + request {} = {}",
        shown(connect),
        shown(request),
        shown(needed)
    );
    let most = outer.saturating_sub(connect * tries);
    let mend = if most.is_zero() {
        "shorten `timeouts.connect` or lower `retry.tries_max`".to_owned()
    } else {
        format!("set `timeouts.request = \"{}\"`", shown_floor(most))
    };
    sides.times(
        Side::time(left, needed),
        Must::BeAtMost,
        Side::time(format!("outer_timeout {}", shown(outer)), outer),
        mend,
    )
}

const PER_TRY: &str = "a first try that uses up the whole time, so that there is none to retry";

/// T16: a try ends before the request does.
fn per_try<'f>(name: &'f str, pool: &'f Pool) -> Found<'f> {
    let sides = in_pool("T16", name, ["timeouts", "per_try"], PER_TRY);
    tries(
        sides,
        on(&pool.timeouts.per_try),
        on(&pool.timeouts.request),
    )
}

/// T16 of a route that overrides one of the two.
fn route_per_try<'f>(file: &'f File, index: usize, route: &'f Route) -> Option<Found<'f>> {
    let (per_try, request) = (&route.timeouts.per_try, &route.timeouts.request);
    if per_try.is_none() && request.is_none() {
        return None;
    }
    let key = if per_try.is_some() {
        "per_try"
    } else {
        "request"
    };
    let steps = vec![
        Step::Key("route"),
        Step::Index(index),
        Step::Key("timeouts"),
        Step::Key(key),
    ];
    let subject = route
        .name
        .as_ref()
        .map_or_else(|| format!("route[{index}]"), |name| format!("route {name}"));
    let first = route
        .split
        .iter()
        .flatten()
        .find_map(|part| part.pool.as_ref());
    let timeouts = file
        .pool
        .get(route.pool.as_ref().or(first)?)
        .map(|pool| &pool.timeouts)?;
    let sides = Sides {
        id: "T16",
        subject,
        steps,
        prevents: PER_TRY,
    };
    let or = |own: &'f Option<Text<Time>>, pool: &'f Text<Time>| on(own.as_ref().unwrap_or(pool));
    Some(tries(
        sides,
        or(per_try, &timeouts.per_try),
        or(request, &timeouts.request),
    ))
}

fn tries(sides: Sides<'_>, per_try: Option<Duration>, request: Option<Duration>) -> Found<'_> {
    let (Some(per_try), Some(request)) = (per_try, request) else {
        let which = if per_try.is_none() {
            "per_try"
        } else {
            "request"
        };
        return sides.not_checked(
            "per_try",
            Must::BeLess,
            "request",
            format!("the `{which}` time-out is off"),
        );
    };
    let mend = format!("set `per_try = \"{}\"`", shown_floor(request / 2));
    let (left, right) = (
        format!("per_try {}", shown(per_try)),
        format!("request {}", shown(request)),
    );
    sides.times(
        Side::time(left, per_try),
        Must::BeLess,
        Side::time(right, request),
        mend,
    )
}

/// T16, second half: retries cannot multiply an outage.
fn retry_share<'f>(name: &'f str, pool: &'f Pool) -> Found<'f> {
    let sides = in_pool(
        "T16",
        name,
        ["retry", "budget"],
        "retries that multiply the load on what is broken already",
    );
    let side = |text: String, share: f64| Side {
        text,
        value: thousandths(share),
    };
    let (left, right) = (
        side(format!("budget {}", pool.retry.budget), pool.retry.budget),
        side(RETRY_SHARE_MAX.to_string(), RETRY_SHARE_MAX),
    );
    sides.compare(
        left,
        Must::BeAtMost,
        right,
        &show_thousandths,
        format!("set `budget = {RETRY_SHARE_MAX}`"),
    )
}

/// T30: the pool carries its load with one backend less.
fn headroom<'f>(file: &'f File, name: &'f str, pool: &'f Pool) -> Found<'f> {
    let sides = in_pool(
        "T30",
        name,
        ["expect", "load"],
        "overload of the rest while one backend is replaced",
    );
    let words = ("(backends − 1) × capacity", "1.1 × load");
    let Some(capacity) = pool.expect.capacity.or(file.expect.capacity) else {
        return sides.not_checked(words.0, Must::BeAtLeast, words.1, unset("expect.capacity"));
    };
    let shared = file.expect.load.filter(|_| file.pool.len() == 1);
    let Some(load) = pool.expect.load.or(shared) else {
        let which = if file.expect.load.is_some() {
            format!("pool.{name}.expect.load")
        } else {
            "expect.load".to_owned()
        };
        return sides.not_checked(words.0, Must::BeAtLeast, words.1, unset(&which));
    };
    let Some(count) = backend_count(pool) else {
        let reason =
            "a host name stands for a number of backends that is not known here".to_owned();
        return sides.not_checked(words.0, Must::BeAtLeast, words.1, reason);
    };
    let carried = count.saturating_sub(1) as f64 * capacity;
    let needed = HEADROOM * load;
    let backends_needed = (needed / capacity).ceil() + 1.0;
    let left = format!("({count} backends − 1) × capacity {capacity}/s = {carried}/s");
    let right = format!("{HEADROOM} × load {load}/s = {:.3}/s", needed);
    let (left, right) = (
        Side {
            text: left,
            value: thousandths(carried),
        },
        Side {
            text: right,
            value: thousandths(needed),
        },
    );
    sides.compare(
        left,
        Must::BeAtLeast,
        right,
        &show_thousandths,
        format!("have {backends_needed} backends"),
    )
}

/// Backends that take traffic; `None` if host names hide their number.
fn backend_count(pool: &Pool) -> Option<usize> {
    let mut count = 0;
    for entry in &pool.backends {
        let (address, weight) = match entry {
            BackendEntry::Address(address) => (address, 1),
            BackendEntry::Full(backend) => (backend.address.as_ref()?, backend.weight),
        };
        if matches!(address.value, BackendAddress::Name(_)) {
            return None;
        }
        count += usize::from(weight > 0);
    }
    Some(count)
}

/// Rounded, so that 0.1 + 0.2 is 0.3.
fn thousandths(value: f64) -> i128 {
    (value * 1000.0).round() as i128
}

fn show_thousandths(value: i128) -> String {
    format!("{}", value as f64 / 1000.0)
}

//! All relations, and those of the whole process, of listeners and of routes. T-numbers are stable
//! names; gaps are relations of later parts.

use super::Found;
use super::pools;
use super::sides::{Must, Side, Sides, on, process, shown, shown_floor, unset};
use super::traffic::{Traffic, Traffics, keeps_connections};
use crate::config::schema::{File, Listener, ListenerKind, Route};
use crate::config::text::{Text, Time};
use crate::config::tree::Step;
use std::time::Duration;

/// Time for the last answer of a probe to take effect before it.
const SETTLE: Duration = Duration::from_secs(1);

/// T5: time to stop once everything is drained.
const STOP_SLACK: Duration = Duration::from_secs(5);

/// All relations of `file`.
pub(super) fn all(file: &File) -> Vec<Found<'_>> {
    let traffics = Traffics::of(file);
    let mut found = vec![outer_probe(file)];
    for (name, pool) in &file.pool {
        if let Some(health) = &pool.health {
            found.extend(pools::probes(name, health));
        }
    }
    found.push(stop_grace(file));
    let gets_requests = |name: &String| traffics.to(name) == Traffic::Requests;
    if file.pool.is_empty() || file.pool.keys().any(gets_requests) {
        found.push(longest_request(file, &traffics));
    }
    for (index, listener) in file.listener.iter().enumerate() {
        match listener.kind {
            // Where TCP is handed through, no connection idles between requests.
            ListenerKind::Http => found.push(outer_idle(file, index)),
            ListenerKind::Tcp => found.push(longest_tunnel(file, index)),
            ListenerKind::Udp => {}
        }
    }
    for (name, pool) in &file.pool {
        let traffic = traffics.to(name);
        if traffic == Traffic::Requests {
            found.extend([pools::per_try(name, pool), pools::retry_share(name, pool)]);
            if keeps_connections(pool) {
                found.push(pools::keepalive(file, name, pool));
            }
        }
        if traffic != Traffic::Datagrams {
            found.push(pools::outer_timeout(file, name, pool, traffic));
        }
        found.push(pools::headroom(file, name, pool));
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

/// T1: the outer balancer sees `/readyz` fail before the listener closes.
fn outer_probe(file: &File) -> Found<'_> {
    let mut sides = process(
        "T1",
        ["drain", "window"],
        "connections into a listener that is closed already (502 while deploying)",
    );
    sides.otherwise = vec![Step::Key("expect"), Step::Key("outer_probe")];
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
            Must::More,
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
        Must::More,
        Side::time(right, needed),
        mend,
    )
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
            Must::AtMost,
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
        Must::AtMost,
        Side::time(format!("stop_grace {}", shown(grace)), grace),
        mend,
    )
}

/// T6: no request may take longer than the drain waits.
fn longest_request<'f>(file: &'f File, traffics: &Traffics<'_>) -> Found<'f> {
    let mut sides = process(
        "T6",
        ["drain", "deadline"],
        "long requests that are cut by the drain",
    );
    let deadline = file.drain.deadline.value.0;
    let right = format!("drain deadline {}", shown(deadline));
    let pools = file.pool.iter();
    let pools = pools.filter(|(name, _)| traffics.to(name) == Traffic::Requests);
    let pools = pools.map(|(name, pool)| {
        (
            format!("pool {name}"),
            on(&pool.timeouts.request),
            [Step::Key("pool"), Step::Key(name)],
        )
    });
    let overrides = file.route.iter().enumerate().filter_map(|(index, route)| {
        Some((
            format!("route[{index}]"),
            on(route.timeouts.request.as_ref()?),
            [Step::Key("route"), Step::Index(index)],
        ))
    });
    let (mut longest, mut unlimited) = (None, None);
    for (who, time, steps) in pools.chain(overrides) {
        match time {
            Some(time) if longest.as_ref().is_none_or(|(known, _)| time > *known) => {
                longest = Some((time, who));
                sides.otherwise = steps
                    .into_iter()
                    .chain(["timeouts", "request"].map(Step::Key))
                    .collect();
            }
            Some(_) => {}
            None => unlimited = unlimited.or(Some(who)),
        }
    }
    let too_long = longest.as_ref().is_some_and(|(time, _)| *time > deadline);
    match (longest, unlimited) {
        (_, Some(who)) if !too_long => sides.not_checked(
            "request time-out",
            Must::AtMost,
            &right,
            format!("the `request` time-out of {who} is off"),
        ),
        (Some((time, who)), _) => {
            let left = Side::time(format!("request time-out {} of {who}", shown(time)), time);
            let mend = format!("set `drain.deadline = \"{}\"`", shown(time));
            sides.times(left, Must::AtMost, Side::time(right, deadline), mend)
        }
        (None, _) => sides.not_checked(
            "request time-out",
            Must::AtMost,
            &right,
            "there is no pool".to_owned(),
        ),
    }
}

/// T6 of connections that are handed through. Of HTTP's own tunnels a drain closes WebSockets by itself.
fn longest_tunnel(file: &File, index: usize) -> Found<'_> {
    let listener = &file.listener[index];
    let mut sides = process(
        "T6",
        ["drain", "deadline"],
        "connections that are cut by the drain",
    );
    sides.subject = subject(listener);
    sides.otherwise = of_listener(index, "tunnel");
    let deadline = file.drain.deadline.value.0;
    let right = format!("drain deadline {}", shown(deadline));
    let Some(tunnel) = on(&listener.timeouts.tunnel) else {
        let reason = "`timeouts.tunnel` is off".to_owned();
        return sides.not_checked("tunnel time-out", Must::AtMost, &right, reason);
    };
    let left = Side::time(format!("tunnel time-out {}", shown(tunnel)), tunnel);
    let mend = format!("set `drain.deadline = \"{}\"`", shown(tunnel));
    sides.times(left, Must::AtMost, Side::time(right, deadline), mend)
}

fn subject(listener: &Listener) -> String {
    let name = listener
        .name
        .as_deref()
        .or(listener.bind.as_ref().map(|bind| bind.text.as_str()))
        .unwrap_or_default();
    format!("listener {name}")
}

/// A time-out of a listener.
fn of_listener(index: usize, key: &str) -> Vec<Step<'_>> {
    let list = [Step::Key("listener"), Step::Index(index)];
    list.into_iter()
        .chain(["timeouts", key].map(Step::Key))
        .collect()
}

/// T8: the same one level up: what stands before Mizan gives up first.
fn outer_idle(file: &File, index: usize) -> Found<'_> {
    let listener = &file.listener[index];
    let prevents =
        "requests of the outer balancer on connections that Mizan is closing (sporadic 502)";
    let sides = Sides {
        id: "T8",
        subject: subject(listener),
        steps: of_listener(index, "idle"),
        otherwise: Vec::new(),
        prevents,
    };
    let Some(outer) = file.expect.outer_idle.as_ref().map(|time| time.value.0) else {
        return sides.not_checked(
            "timeouts.idle",
            Must::More,
            "outer_idle",
            unset("expect.outer_idle"),
        );
    };
    let Some(idle) = on(&listener.timeouts.idle) else {
        return sides.not_checked(
            "timeouts.idle",
            Must::More,
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
        Must::More,
        Side::time(right, outer),
        mend,
    )
}

pub(super) const PER_TRY: &str =
    "a first try that uses up the whole time, so that there is none to retry";

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
        otherwise: Vec::new(),
        prevents: PER_TRY,
    };
    let or = |own: &'f Option<Text<Time>>, pool: &'f Text<Time>| on(own.as_ref().unwrap_or(pool));
    Some(tries(
        sides,
        or(per_try, &timeouts.per_try),
        or(request, &timeouts.request),
    ))
}

pub(super) fn tries(
    sides: Sides<'_>,
    per_try: Option<Duration>,
    request: Option<Duration>,
) -> Found<'_> {
    let (Some(per_try), Some(request)) = (per_try, request) else {
        let which = if per_try.is_none() {
            "per_try"
        } else {
            "request"
        };
        return sides.not_checked(
            "per_try",
            Must::Less,
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
        Must::Less,
        Side::time(right, request),
        mend,
    )
}

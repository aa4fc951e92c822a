//! Relations of one pool.

use super::Found;
use super::rules::PER_TRY;
use super::rules::tries;
use super::sides::{
    Must, Side, in_pool, on, show_thousandths, shown, shown_floor, thousandths, unset,
};
use super::traffic::Traffic;
use crate::config::schema::{BackendEntry, File, Health, Pool};
use crate::config::text::BackendAddress;
use std::time::Duration;

/// T2: longest time until a dead backend is out.
const DETECTION_MAX: Duration = Duration::from_secs(12);

/// T4: longest time until a recovered backend is back.
const READMISSION_MAX: Duration = Duration::from_secs(15);

/// T7: least difference of the two keep-alive time-outs.
const KEEPALIVE_SLACK: Duration = Duration::from_secs(1);

/// T16: largest share of retries.
const RETRY_SHARE_MAX: f64 = 0.2;

/// T30: what must be left over when one backend is out.
const HEADROOM: f64 = 1.1;

/// T2, T3, T4: the numbers of a health check among themselves.
pub(super) fn probes<'f>(name: &'f str, health: &'f Health) -> [Found<'f>; 3] {
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
        Must::AtMost,
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
        Must::Less,
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
        Must::AtMost,
        Side::time(shown(READMISSION_MAX), READMISSION_MAX),
        format!(
            "set `interval = \"{}\"` or less, or a smaller `rise`",
            longest(rise, READMISSION_MAX)
        ),
    );
    [t2, t3, t4]
}

/// T7: Mizan gives an idle connection up before the backend does.
pub(super) fn keepalive<'f>(file: &'f File, name: &'f str, pool: &'f Pool) -> Found<'f> {
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
            Must::Less,
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
        Must::Less,
        Side::time(format!("backend_keepalive {}", shown(theirs)), theirs),
        mend,
    )
}

/// T15: all tries end before whoever asked has gone. A connection that is handed through is no request: only to reach a
/// backend is timed.
pub(super) fn outer_timeout<'f>(
    file: &'f File,
    name: &'f str,
    pool: &'f Pool,
    traffic: Traffic,
) -> Found<'f> {
    let has_requests = traffic == Traffic::Requests;
    let (key, prevents) = match has_requests {
        true => (
            "request",
            "retries for clients that have left (a storm of 504)",
        ),
        false => ("connect", "tries for clients that have left"),
    };
    let sides = in_pool("T15", name, ["timeouts", key], prevents);
    let tries = pool.retry.tries_max;
    let words = match has_requests {
        true => ("connect × tries_max + request", "outer_timeout"),
        false => ("connect × tries_max", "outer_timeout"),
    };
    let Some(outer) = file.expect.outer_timeout.as_ref().map(|time| time.value.0) else {
        return sides.not_checked(
            words.0,
            Must::AtMost,
            words.1,
            unset("expect.outer_timeout"),
        );
    };
    let request = match has_requests {
        true => on(&pool.timeouts.request),
        false => Some(Duration::ZERO),
    };
    let (Some(connect), Some(request)) = (on(&pool.timeouts.connect), request) else {
        let which = if request.is_none() {
            "request"
        } else {
            "connect"
        };
        return sides.not_checked(
            words.0,
            Must::AtMost,
            words.1,
            format!("the `{which}` time-out is off"),
        );
    };
    let reach = Reach::of(pool, connect);
    let needed = reach.time * tries + request;
    let plus = match has_requests {
        true => format!(" + request {}", shown(request)),
        false => String::new(),
    };
    let (each, all) = (&reach.text, shown(needed));
    let left = format!("{each} × tries_max {tries}{plus} = {all}");
    let most = outer.saturating_sub(reach.time * tries);
    let mend = if most.is_zero() || !has_requests {
        format!("shorten {} or lower `retry.tries_max`", reach.keys)
    } else {
        format!("set `timeouts.request = \"{}\"`", shown_floor(most))
    };
    sides.times(
        Side::time(left, needed),
        Must::AtMost,
        Side::time(format!("outer_timeout {}", shown(outer)), outer),
        mend,
    )
}

/// What it may take to reach one backend.
struct Reach {
    text: String,
    time: Duration,
    /// Where it is said.
    keys: &'static str,
}

impl Reach {
    fn of(pool: &Pool, connect: Duration) -> Self {
        let Some(tls) = &pool.tls else {
            return Self {
                text: format!("connect {}", shown(connect)),
                time: connect,
                keys: "`timeouts.connect`",
            };
        };
        let handshake = tls.handshake_timeout.value.0;
        Self {
            text: format!(
                "(connect {} + handshake {})",
                shown(connect),
                shown(handshake)
            ),
            time: connect + handshake,
            keys: "`timeouts.connect`, `tls.handshake_timeout`",
        }
    }
}

/// T16: a try ends before the request does.
pub(super) fn per_try<'f>(name: &'f str, pool: &'f Pool) -> Found<'f> {
    let sides = in_pool("T16", name, ["timeouts", "per_try"], PER_TRY);
    tries(
        sides,
        on(&pool.timeouts.per_try),
        on(&pool.timeouts.request),
    )
}

/// T16, second half: retries cannot multiply an outage.
pub(super) fn retry_share<'f>(name: &'f str, pool: &'f Pool) -> Found<'f> {
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
        Must::AtMost,
        right,
        &show_thousandths,
        format!("set `budget = {RETRY_SHARE_MAX}`"),
    )
}

/// T30: the pool carries its load with one backend less.
pub(super) fn headroom<'f>(file: &'f File, name: &'f str, pool: &'f Pool) -> Found<'f> {
    let sides = in_pool(
        "T30",
        name,
        ["expect", "load"],
        "overload of the rest while one backend is replaced",
    );
    let words = ("(backends − 1) × capacity", "1.1 × load");
    let Some(capacity) = pool.expect.capacity.or(file.expect.capacity) else {
        return sides.not_checked(words.0, Must::AtLeast, words.1, unset("expect.capacity"));
    };
    let shared = file.expect.load.filter(|_| file.pool.len() == 1);
    let Some(load) = pool.expect.load.or(shared) else {
        let which = if file.expect.load.is_some() {
            format!("pool.{name}.expect.load")
        } else {
            "expect.load".to_owned()
        };
        return sides.not_checked(words.0, Must::AtLeast, words.1, unset(&which));
    };
    let Some(count) = backend_count(pool) else {
        let reason =
            "a host name, or `discover`, stands for a number of backends that is not known here"
                .to_owned();
        return sides.not_checked(words.0, Must::AtLeast, words.1, reason);
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
        Must::AtLeast,
        right,
        &show_thousandths,
        format!("have {backends_needed} backends"),
    )
}

/// Backends of the tier that is asked first; `None` if host names or lists hide their number.
fn backend_count(pool: &Pool) -> Option<usize> {
    if !pool.discover.is_empty() {
        return None;
    }
    let with_weight = || pool.backends.iter().filter(|entry| entry.weight() > 0);
    let first = with_weight().map(BackendEntry::tier).min();
    let mut count = 0;
    for entry in with_weight().filter(|entry| Some(entry.tier()) == first) {
        let address = match entry {
            BackendEntry::Address(address) => address,
            BackendEntry::Full(backend) => backend.address.as_ref()?,
        };
        if matches!(address.value, BackendAddress::Name(_)) {
            return None;
        }
        count += 1;
    }
    Some(count)
}

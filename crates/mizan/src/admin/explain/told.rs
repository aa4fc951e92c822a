//! From what is known to what is told.

use super::{
    Candidate, ExplainView, FailedCondition, KeyHashed, NearMiss, OwnAnswer, PassedOverView,
    PoolAsked, RequestSeen, RouteTaken, SettingsOffered, SplitShare,
};
use crate::admin::view::{LoadView, action, conditions, state};
use crate::snapshot::route::{Near, Route, host_text, path_text};
use crate::snapshot::{Answer, AskError, Explained, HashKey, Picked, Snapshot};
use mizan_core::PolicyKind;
use mizan_core::pool::{BackendStatus, NoPick, PassedOver, Why};
use std::net::IpAddr;

impl ExplainView {
    /// What `snapshot` has told.
    pub fn new(snapshot: &Snapshot, explained: &Explained<'_>) -> Self {
        let seen = &explained.seen;
        Self {
            generation: snapshot.generation,
            listener: explained.listener.name.to_string(),
            listener_assumed: explained.assumed_listener,
            request: RequestSeen {
                method: seen.method.clone(),
                host: seen.host.clone(),
                path: seen.path.clone(),
                query: seen.query.clone(),
                client: seen.client.as_ref().map(IpAddr::to_string),
                region: explained.region.as_ref().map(ToString::to_string),
            },
            route: explained.route.map(|route| RouteTaken::new(route)),
            nearly: explained.near.0.iter().map(NearMiss::new).collect(),
            nearly_more: explained.near.1,
            offered: explained.offered.as_ref().map(|offered| SettingsOffered {
                language: offered.language.clone(),
                headers: offered.settings.iter().cloned().collect(),
            }),
            answer: explained.answer.as_ref().map(OwnAnswer::new),
            pool: explained.picked.as_ref().map(PoolAsked::new),
        }
    }
}

impl RouteTaken {
    fn new(route: &Route) -> Self {
        Self {
            name: route.name.to_string(),
            hosts: route.hosts.iter().map(host_text).collect(),
            path: path_text(&route.path),
            conditions: conditions(route),
            action: action(&route.action),
        }
    }
}

impl NearMiss {
    fn new(near: &Near<'_>) -> Self {
        let failed = near.failed.iter().map(|failed| FailedCondition {
            what: failed.what.clone(),
            wanted: failed.wanted.clone(),
            saw: failed.saw.clone(),
        });
        Self {
            route: near.entry.route.name.to_string(),
            host: near.entry.host.map(host_text).unwrap_or_default(),
            path: path_text(&near.entry.route.path),
            failed: failed.collect(),
        }
    }
}

impl OwnAnswer {
    fn new(answer: &Answer) -> Self {
        Self {
            status: answer.status,
            code: answer.code.into(),
            wanted: answer.is_wanted,
            location: Some(answer.location.clone()).filter(|location| !location.is_empty()),
            why: answer.why.clone(),
        }
    }
}

impl PoolAsked {
    fn new(picked: &Picked<'_>) -> Self {
        let pick = &picked.pick;
        let status = &pick.status;
        let texts = |keys: &[std::sync::Arc<str>]| keys.iter().map(ToString::to_string).collect();
        Self {
            name: picked.pool.name.to_string(),
            instead: picked.instead,
            stands_in_for: texts(&picked.stands_in_for),
            then: texts(&picked.then),
            policy: status.policy.to_string(),
            panic: status.panic,
            usable: status.usable,
            total: status.total,
            split: picked
                .split
                .iter()
                .map(|(pool, percent)| SplitShare {
                    pool: pool.to_string(),
                    percent: rounded(*percent, 2),
                })
                .collect(),
            split_by: picked
                .split_by
                .as_ref()
                .map(|(key, value)| format!("{} = {value:?}", key_text(key))),
            target: picked.target.clone(),
            key: picked.key.map(|key| KeyHashed {
                what: key_text(key),
                value: picked.value.clone(),
                hash: picked.hash.map(|hash| format!("{hash:016x}")),
            }),
            seed: picked.seed,
            drawn: texts(&pick.drawn),
            passed_over: pick
                .passed_over
                .iter()
                .map(|passed| PassedOverView {
                    backend: passed.key.to_string(),
                    why: why_passed(passed, &status.backends),
                })
                .collect(),
            waiting: picked.waiting,
            backend: pick.picked.as_ref().ok().map(ToString::to_string),
            why: why(picked),
            candidates: status.backends.iter().map(Candidate::new).collect(),
        }
    }
}

impl Candidate {
    fn new(backend: &BackendStatus) -> Self {
        let latency = |latency: std::time::Duration| latency.as_micros() as f64 / 1e3;
        Self {
            key: backend.key.to_string(),
            state: state(backend),
            traffic: backend.state.to_string(),
            usable: backend.usable,
            weight: backend.weight,
            weight_share: backend.weight_share,
            score: rounded(backend.score, 3),
            in_flight: backend.in_flight,
            penalty: rounded(f64::from(backend.penalty), 2),
            latency_ms: backend.latency.map(latency),
            told: backend.told.map(LoadView::from),
            reason: backend.reason.clone(),
        }
    }
}

fn rounded(figure: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (figure * scale).round() / scale
}

/// A key as a file has it.
fn key_text(key: &HashKey) -> String {
    match key {
        HashKey::ClientAddress => "client_address".into(),
        HashKey::Header(name) => format!("header:{name}"),
        HashKey::Cookie(name) => format!("cookie:{name}"),
        HashKey::Query(name) => format!("query:{name}"),
        HashKey::Path => "path".into(),
    }
}

fn why_passed(passed: &PassedOver, backends: &[BackendStatus]) -> String {
    match passed.why {
        Why::Out => {
            let status = backends.iter().find(|backend| backend.key == passed.key);
            match status {
                Some(backend) if !backend.reason.is_empty() => backend.reason.clone(),
                Some(backend) => state(backend),
                None => "it is no member any more".into(),
            }
        }
        Why::Full { in_flight, max } => {
            format!("full: {in_flight} in flight, and it may have {max}")
        }
        Why::OverBound { in_flight, limit } => {
            format!("over its bound: {in_flight} in flight, and hash_load_bound allows {limit} now")
        }
        Why::Failing { penalty } => {
            format!(
                "it fails of late (counted as {penalty:.1} requests in flight) and gets nothing of others' keys"
            )
        }
        Why::Tried => "this request tried it already".into(),
        Why::OtherIsDue => "another backend is due a request that shows how it is".into(),
    }
}

/// Why the picked one, or why none.
fn why(picked: &Picked<'_>) -> String {
    let pick = &picked.pick;
    let key = match &pick.picked {
        Ok(key) => key,
        Err(NoPick::Saturated) => {
            return format!(
                "{}: it waits in the pool's queue ({} wait) for {} ms at most, then 503 queue_timeout",
                NoPick::Saturated,
                picked.waiting,
                picked.pool.queue.timeout.as_millis()
            );
        }
        Err(no_pick) => return no_pick.to_string(),
    };
    if pick.due {
        return "it is due a request that shows how it is, whatever the policy says".into();
    }
    let has_key = picked.hash.is_some();
    match pick.status.policy {
        PolicyKind::ConsistentHash | PolicyKind::Maglev => match (&pick.passed_over[..], has_key) {
            (_, false) => "the request has no such key, so chance stands in for its hash".into(),
            ([], true) => "it owns this hash".into(),
            ([_], true) => "it is next in this hash's order behind the owner".into(),
            (passed, true) => format!("it is next in this hash's order behind {}", passed.len()),
        },
        PolicyKind::PowerOfTwo | PolicyKind::PeakEwma => why_of_two(pick, key),
        PolicyKind::Prequal => {
            "by what backends say of their load, or as the better of two drawn where they do not"
                .into()
        }
        PolicyKind::Random => "drawn by weight".into(),
        PolicyKind::RoundRobin | PolicyKind::WeightedRoundRobin => "it is its turn".into(),
        PolicyKind::LeastConnections => {
            "it has the fewest requests in flight for its weight".into()
        }
        PolicyKind::LeastResponseTime => "least (in flight + 1) × latency for its weight".into(),
    }
}

fn why_of_two(pick: &mizan_core::pool::Explained, key: &str) -> String {
    let figures = |key: &str| {
        let found = pick.status.backends.iter().find(|one| *one.key == *key);
        found.map_or(String::new(), |one| {
            let latency = one.latency.map_or("no latency known".into(), |latency| {
                format!("{:.1} ms", latency.as_secs_f64() * 1e3)
            });
            let penalty = match one.penalty > 0.0 {
                true => format!(" + {:.1} for failures", one.penalty),
                false => String::new(),
            };
            format!("{}{penalty} in flight, {latency}", one.in_flight)
        })
    };
    let Some(other) = pick.drawn.iter().find(|other| ***other != *key) else {
        return "no other could be drawn".into();
    };
    let rule = match pick.status.policy {
        // The slower of the two keeps a share.
        PolicyKind::PeakEwma => "taken of the two drawn, by (in flight + 1) × latency",
        _ if pick.drawn.first().is_some_and(|first| **first == *key) => {
            "of the two drawn it is no worse, and was drawn first"
        }
        _ => "of the two drawn it is the better",
    };
    format!("{rule}: {}; {other} has {}", figures(key), figures(other))
}

/// What is meant by the name that `error` is about; else nothing.
pub fn meant(snapshot: &Snapshot, error: &AskError) -> String {
    let (name, known): (_, Vec<&str>) = match error {
        AskError::UnknownRegion(name) => {
            let own = std::iter::once(&snapshot.settings.region);
            let all = own.chain(snapshot.regions.names()).map(|name| &**name);
            (name, all.collect())
        }
        AskError::UnknownPool(name) => (name, snapshot.pools.keys().map(|name| &**name).collect()),
        AskError::UnknownListener(name) => {
            let listeners = snapshot.listeners.iter();
            (name, listeners.map(|listener| &*listener.name).collect())
        }
        _ => return String::new(),
    };
    crate::admin::meant::meant(name, &known)
}

//! From what the process knows to what the API says.

use super::{
    BackendView, ConfigView, ForwardView, ListenerView, LoadView, OriginView, PoolSummary,
    PoolView, Problem, RouteView, SourceView, StatusView, VersionView,
};
use crate::admin::AdminState;
use crate::clock;
use crate::config::{Diagnostic, Severity, Source};
use crate::snapshot::route::{Action, HostMatch, Route, Split, ValueMatch, host_text, path_text};
use crate::snapshot::{OriginState, Pool, Snapshot};
use crate::telemetry::json::time_string;
use crate::telemetry::metrics::Totals;
use mizan_core::availability::Availability;
use mizan_core::pool::{BackendStatus, LoadSaid, PoolStatus};
use mizan_core::time::Instant;
use std::fmt::Display;
use std::time::Duration;

impl StatusView {
    pub(in crate::admin) fn new(state: &AdminState, snapshot: &Snapshot, now: Instant) -> Self {
        let totals = state.metrics.totals();
        let pools = snapshot
            .pools
            .values()
            .map(|pool| PoolSummary::new(&pool.name, &pool.core.status(now)));
        Self {
            mizan: env!("CARGO_PKG_VERSION").into(),
            phase: state.control.phase(),
            generation: snapshot.generation,
            digest: format!("{:016x}", snapshot.digest),
            config: state.control.config_path().display().to_string(),
            started_at: time_string(state.metrics.started_at()),
            workers: state.control.workers(),
            connections: state.control.connections(),
            listeners: snapshot
                .listeners
                .iter()
                .map(|listener| ListenerView::new(listener, &totals))
                .collect(),
            pools: pools.collect(),
            store: state.control.store(),
            last_reload: state.control.last_reload(),
        }
    }
}

impl ListenerView {
    fn new(listener: &crate::snapshot::Listener, totals: &Totals) -> Self {
        let counted = totals.listener(&listener.name);
        Self {
            name: listener.name.to_string(),
            bind: listener.bind.to_string(),
            connections: counted.connections,
            connections_accepted: counted.connections_accepted,
            requests: counted.requests,
            requests_in_flight: counted.requests_in_flight,
        }
    }
}

impl PoolSummary {
    fn new(name: &str, status: &PoolStatus) -> Self {
        Self {
            name: name.into(),
            policy: status.policy.to_string(),
            panic: status.panic,
            usable: status.usable,
            total: status.total,
            belief: status.belief.clone(),
            spread: status.spread.clone(),
            in_flight: status
                .backends
                .iter()
                .map(|backend| u64::from(backend.in_flight))
                .sum(),
        }
    }
}

impl PoolView {
    pub(in crate::admin) fn new(pool: &Pool, totals: &Totals, now: Instant) -> Self {
        let status = pool.core.status(now);
        let mut versions: Vec<_> = pool
            .versions
            .iter()
            .map(|version| VersionView::new(pool, version, totals))
            .collect();
        if !pool.versions.iter().any(|version| version.is_empty()) {
            let unpicked = VersionView::new(pool, &"".into(), totals);
            versions.extend(Some(unpicked).filter(|unpicked| unpicked.unreached > 0));
        }
        let backends = status
            .backends
            .iter()
            .map(|backend| BackendView::new(pool, backend, totals, now))
            .collect();
        Self {
            summary: PoolSummary::new(&pool.name, &status),
            probed: pool.health.is_some(),
            discovery: pool
                .discovery
                .states()
                .iter()
                .map(OriginView::from)
                .collect(),
            versions,
            backends,
        }
    }
}

impl From<&OriginState> for OriginView {
    fn from(state: &OriginState) -> Self {
        let was_heard = !state.heard.is_zero();
        Self {
            kind: state.origin.kind().to_owned(),
            name: state.origin.name(),
            heard_at: match was_heard {
                true => time_string(state.heard),
                false => String::new(),
            },
            age_seconds: was_heard.then(|| clock::wall().saturating_sub(state.heard).as_secs()),
            error: state.error.clone(),
            failures: state.failures,
            kept: state.kept.clone(),
        }
    }
}

impl VersionView {
    fn new(pool: &Pool, version: &std::sync::Arc<str>, totals: &Totals) -> Self {
        let counted = totals.pool(&pool.name, version);
        Self {
            version: version.to_string(),
            responses: counted.latency.count(),
            latency_p50_ms: counted.latency.quantile(0.5).map(ms),
            latency_p99_ms: counted.latency.quantile(0.99).map(ms),
            retries: counted.retries,
            unreached: counted.unreached,
            rescued: counted.rescued,
        }
    }
}

impl BackendView {
    fn new(pool: &Pool, backend: &BackendStatus, totals: &Totals, now: Instant) -> Self {
        let counted = totals.backend(&pool.name, &backend.key);
        Self {
            key: backend.key.to_string(),
            address: backend.address.to_string(),
            version: backend.version.to_string(),
            weight: backend.weight,
            weight_share: backend.weight_share,
            priority: backend.place.tier,
            zone: backend.place.zone.to_string(),
            traffic: backend.state.to_string(),
            score: (backend.score * 1e3).round() / 1e3,
            usable: backend.usable,
            state: state(backend),
            reason: backend.reason.clone(),
            since_seconds: now.saturating_since(backend.since).as_secs(),
            admin: backend.admin.to_string(),
            health: backend.health.to_string(),
            in_flight: backend.in_flight,
            requests: counted.requests,
            failures: counted.failures,
            latency_ms: backend.latency.map(ms),
            told: backend.told.map(LoadView::from),
        }
    }
}

impl From<LoadSaid> for LoadView {
    fn from(said: LoadSaid) -> Self {
        Self {
            rif: said.in_flight,
            latency_ms: said.latency.map(ms),
            age_seconds: said.age.as_millis() as f64 / 1e3,
        }
    }
}

/// One word for all that is known of a backend.
pub(in crate::admin) fn state(backend: &BackendStatus) -> String {
    state_of(backend.availability)
}

/// The word for an availability.
pub(crate) fn state_of(availability: Availability) -> String {
    match availability {
        Availability::Usable => "usable".into(),
        Availability::UsedInPanic => "panic".into(),
        Availability::Withdrawn(admin) => admin.to_string(),
        Availability::Refused => "refused".into(),
        Availability::Ejected => "ejected".into(),
        Availability::Down => "down".into(),
        Availability::Standby => "standby".into(),
        Availability::Outside => "outside".into(),
    }
}

fn ms(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1e3
}

impl RouteView {
    /// The routes of a snapshot in matching order.
    pub fn in_order(snapshot: &Snapshot) -> Vec<Self> {
        snapshot
            .routes
            .entries()
            .iter()
            .map(|entry| Self::new(entry.host, entry.route))
            .collect()
    }

    fn new(host: Option<&HostMatch>, route: &Route) -> Self {
        Self {
            name: route.name.to_string(),
            host: host.map(host_text).unwrap_or_default(),
            path: path_text(&route.path),
            conditions: conditions(route),
            action: action(&route.action),
            forwards: route.splits().map(ForwardView::new).collect(),
        }
    }
}

impl ForwardView {
    fn new(split: &Split) -> Self {
        let name = |pool: &Pool| pool.name.to_string();
        Self {
            pools: split.pools.iter().map(|(pool, _)| name(pool)).collect(),
            fallback: split.fallback.iter().map(|pool| name(pool)).collect(),
        }
    }
}

/// What a route asks for beside host and path.
pub(in crate::admin) fn conditions(route: &Route) -> Vec<String> {
    let mut conditions = Vec::new();
    let mut any_of = |what: &str, values: Vec<String>| {
        if !values.is_empty() {
            conditions.push(format!("{what} {}", values.join(" or ")));
        }
    };
    any_of("listener", texts(&route.listeners));
    any_of("method", texts(&route.methods));
    any_of("client", texts(&route.client));
    conditions.extend(
        route
            .headers
            .iter()
            .map(|(name, value)| value_condition("header", name, value)),
    );
    conditions.extend(
        route
            .query
            .iter()
            .map(|(name, value)| value_condition("query", name, value)),
    );
    conditions
}

fn texts(values: &[impl Display]) -> Vec<String> {
    values.iter().map(ToString::to_string).collect()
}

fn value_condition(what: &str, name: &str, value: &ValueMatch) -> String {
    match value {
        ValueMatch::Present => format!("{what} {name}"),
        ValueMatch::Exact(value) => format!("{what} {name} = {value}"),
        ValueMatch::Regex(regex) => format!("{what} {name} ~ {regex}"),
    }
}

/// What a route does.
pub(in crate::admin) fn action(action: &Action) -> String {
    match action {
        Action::Redirect { status, location } => format!("redirect {status} {location}"),
        Action::Respond { status, .. } => format!("respond {status}"),
        Action::Forward(split) => {
            let chosen = chosen(split);
            let fallback = split
                .fallback
                .iter()
                .map(|pool| format!(", then {}", pool.name));
            chosen + &fallback.collect::<String>()
        }
    }
}

fn chosen(split: &Split) -> String {
    match &split.pools[..] {
        [(pool, _)] => format!("pool {}", pool.name),
        pools => {
            let mut before = 0;
            let shares = pools.iter().map(|(pool, sum)| {
                let weight = sum - before;
                before = *sum;
                format!("{} {weight}", pool.name)
            });
            format!("split {}", shares.collect::<Vec<_>>().join(", "))
        }
    }
}

impl ConfigView {
    pub(in crate::admin) fn new(snapshot: &Snapshot, sources: Vec<SourceView>) -> Self {
        Self {
            generation: snapshot.generation,
            digest: format!("{:016x}", snapshot.digest),
            sources,
        }
    }
}

impl SourceView {
    pub(in crate::admin) fn new(source: &Source) -> Self {
        Self {
            path: source.path.display().to_string(),
            text: source.text_without_secrets(),
        }
    }
}

impl From<&Diagnostic> for Problem {
    fn from(diagnostic: &Diagnostic) -> Self {
        let severity = match diagnostic.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        Self {
            severity: severity.into(),
            code: diagnostic.code.into(),
            file: diagnostic.file.display().to_string(),
            line: diagnostic.line,
            column: diagnostic.column,
            path: diagnostic.path.clone(),
            message: diagnostic.message.clone(),
            help: diagnostic.help.clone(),
        }
    }
}

impl Problem {
    /// An error that has no place in a file.
    pub fn without_place(code: &str, message: &str) -> Self {
        Self {
            severity: "error".into(),
            code: code.into(),
            file: String::new(),
            line: 0,
            column: 0,
            path: String::new(),
            message: message.into(),
            help: None,
        }
    }
}

//! `mizan status`.

mod store;

use super::client::ClientError;
use super::output::{self, Exit, state_word, table};
use super::{Instance, reload};
use crate::admin::view::{
    BackendView, ListenerView, OriginView, PoolView, StatusView, VersionView,
};
use crate::telemetry::ReloadResult;
use clap::Args;
use serde::Serialize;

/// Backends shown of a large pool: those that are not plainly usable come first.
const BACKENDS_SHOWN: usize = 50;

/// Shows what runs: listeners, pools, and for each backend its state and why.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mizan status
  mizan status --json | jq '.pools[].backends[] | select(.usable | not)'

A backend's state is one word for all that is known of it:
  usable       it may get requests
  degraded     it gets fewer: it is slow, failing or full beside its siblings
  standby      it is kept back: a backup, or in a zone that is asked later
  outside      it is not of the part of the pool that this balancer sends to
  panic        it does not look healthy, but too few do, so that it is used
  drain        the operator took it out (mizan undrain brings it back)
  maintenance  the same, on purpose down
  refused      nothing listens there
  ejected      too many requests failed on it; it comes back by itself
  down         its probes fail

Exit status:
  0  the last reload was taken, and all nodes have the same table in force
  1  the last reload was refused
  5  nodes differ: one lags, refuses an object, or holds the table back
  2  usage, or the instance wants another token
  4  no instance answers")]
pub(super) struct Status {
    /// Prints everything as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    instance: Instance,
}

#[derive(Serialize)]
struct Whole {
    status: StatusView,
    pools: Vec<PoolView>,
}

impl Status {
    pub(super) fn run(&self) -> Result<Exit, ClientError> {
        let client = self.instance.client()?;
        let whole = Whole {
            status: client.get("/v1/status")?,
            pools: client.get("/v1/pools")?,
        };
        let exit = if whole.status.last_reload.result == ReloadResult::Refused {
            Exit::Violated
        } else if whole.status.store.as_ref().is_some_and(store::differs) {
            Exit::NotConverged
        } else {
            Exit::Done
        };
        Ok(if self.json {
            output::json(&whole, exit)
        } else {
            output::out(&describe(&whole.status, &whole.pools), exit)
        })
    }
}

fn describe(status: &StatusView, pools: &[PoolView]) -> String {
    let mut parts = vec![head(status)];
    parts.extend(status.store.as_ref().map(store::describe));
    parts.push(listeners(&status.listeners));
    parts.extend(pools.iter().map(pool));
    parts.join("\n\n")
}

fn head(status: &StatusView) -> String {
    format!(
        "mizan {}: {}, since {}, {}, {} open\n\
         configuration: {}, generation {}, digest {}\n\
         last reload: {}",
        status.mizan,
        status.phase,
        status.started_at,
        output::count(status.workers, "worker"),
        output::count(status.connections, "connection"),
        status.config,
        status.generation,
        status.digest,
        reload::describe(&status.last_reload),
    )
}

fn listeners(listeners: &[ListenerView]) -> String {
    let mut rows = vec![row([
        "LISTENER",
        "BIND",
        "CONNECTIONS",
        "REQUESTS",
        "IN FLIGHT",
    ])];
    rows.extend(listeners.iter().map(|listener| {
        row([
            &listener.name,
            &listener.bind,
            &listener.connections.to_string(),
            &listener.requests.to_string(),
            &listener.requests_in_flight.to_string(),
        ])
    }));
    table("", &rows)
}

fn pool(pool: &PoolView) -> String {
    let summary = &pool.summary;
    let panic = match &*summary.belief {
        "" => String::new(),
        belief => format!(", PANIC: too few look healthy, so health is ignored ({belief})"),
    };
    let probes = if pool.probed { "" } else { ", no health check" };
    let mut text = format!(
        "POOL {} ({}): {} of {} usable, {} in flight{probes}{panic}\n",
        summary.name, summary.policy, summary.usable, summary.total, summary.in_flight
    );
    for version in &pool.versions {
        text += &traffic(version);
    }
    if !summary.spread.is_empty() {
        text += &format!("  {}\n", summary.spread);
    }
    for origin in &pool.discovery {
        text += &discovery(origin);
    }
    let mut shown: Vec<&BackendView> = pool.backends.iter().collect();
    if shown.len() > BACKENDS_SHOWN {
        shown.sort_by_key(|backend| match &*backend.state {
            "outside" => 2,
            "standby" => 1,
            "usable" if backend.reason.is_empty() => 1,
            _ => 0,
        });
    }
    let hidden = shown.len().saturating_sub(BACKENDS_SHOWN);
    shown.truncate(BACKENDS_SHOWN);
    text += &table("  ", &rows(&shown));
    if hidden > 0 {
        text += &format!("\n  and {hidden} more; --json shows all");
    }
    text
}

/// A place that backends are learned from, and when it was last heard.
fn discovery(origin: &OriginView) -> String {
    let heard = match origin.age_seconds {
        Some(seconds) => format!("heard {} ago", age(seconds)),
        None => "never heard".to_owned(),
    };
    let trouble = match &*origin.error {
        "" => String::new(),
        error => format!(", TROUBLE: {error}"),
    };
    let kept = match &origin.kept[..] {
        [] => String::new(),
        [one] => format!(", KEPT though its lease has ended: {one}"),
        [first, rest @ ..] => format!(
            ", KEPT though their leases have ended: {first} and {} more",
            rest.len()
        ),
    };
    format!(
        "  from {} {}: {heard}{kept}{trouble}\n",
        origin.kind, origin.name
    )
}

/// Tier, zone and what backends say of their load have columns where there are any.
fn rows(backends: &[&BackendView]) -> Vec<Vec<String>> {
    let tiers = backends.iter().any(|backend| backend.priority > 0);
    let zones = backends.iter().any(|backend| !backend.zone.is_empty());
    let says = backends.iter().any(|backend| backend.told.is_some());
    let header = row([
        "BACKEND",
        "VERSION",
        "STATE",
        "IN FLIGHT",
        "REQUESTS",
        "FAILURES",
        "LATENCY",
        "WHY",
    ]);
    let whole = |mut cells: Vec<String>, (tier, zone, said): (&str, &str, &str)| {
        if says {
            cells.insert(cells.len() - 1, said.to_owned());
        }
        let columns = [(tiers, tier), (zones, zone)];
        let columns = columns.into_iter().filter(|(is_there, _)| *is_there);
        cells.splice(2..2, columns.map(|(_, cell)| cell.to_owned()));
        cells
    };
    let zone = |backend: &BackendView| match &*backend.zone {
        "" => "-".to_owned(),
        zone => zone.to_owned(),
    };
    let rows = backends.iter().map(|view| {
        let tier = view.priority.to_string();
        let said = view.told.map_or("-".to_owned(), |told| told.to_string());
        whole(backend(view), (&tier, &zone(view), &said))
    });
    std::iter::once(whole(header, ("TIER", "ZONE", "SAYS")))
        .chain(rows)
        .collect()
}

fn traffic(version: &VersionView) -> String {
    let name = if version.version.is_empty() {
        String::new()
    } else {
        format!("version {}: ", version.version)
    };
    let (Some(p50), Some(p99)) = (version.latency_p50_ms, version.latency_p99_ms) else {
        return match version.unreached {
            0 => String::new(),
            unreached => format!("  {name}{unreached} unreached\n"),
        };
    };
    format!(
        "  {name}{}, p50 {p50} ms, p99 {p99} ms, {} {}, {} rescued, {} unreached\n",
        output::count(version.responses, "response"),
        version.retries,
        if version.retries == 1 {
            "retry"
        } else {
            "retries"
        },
        version.rescued,
        version.unreached
    )
}

fn backend(backend: &BackendView) -> Vec<String> {
    let why = match &*backend.reason {
        "" => String::new(),
        reason => format!("{reason} (for {})", age(backend.since_seconds)),
    };
    let latency = backend
        .latency_ms
        .map_or("-".into(), |ms| format!("{ms:.1} ms"));
    row([
        &backend.key,
        if backend.version.is_empty() {
            "-"
        } else {
            &backend.version
        },
        state_word(&backend.state, &backend.traffic),
        &backend.in_flight.to_string(),
        &backend.requests.to_string(),
        &backend.failures.to_string(),
        &latency,
        &why,
    ])
}

/// `12 s`, `3 min`, `5 h`, `2 d`.
fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

#[cfg(test)]
mod tests;

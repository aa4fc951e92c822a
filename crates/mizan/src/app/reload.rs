//! A new configuration comes into force, or leaves the old one as it is.

use super::control::{self, AppControl};
use super::fleet::{Fleet, Opened};
use super::{AppError, Compiled, Options, read};
use crate::admin::{Control, Phase, Problem, ReloadReport};
use crate::clock;
use crate::config::{self, Diagnostic, Running, Source};
use crate::snapshot::{Bind, Current, Settings, Snapshot};
use crate::telemetry::logging::chain;
use crate::telemetry::{AccessLog, Metrics, ReloadResult};
use std::sync::Arc;

/// What the control loop holds.
pub(super) struct Parts {
    pub(super) options: Options,
    /// The settings that the process started with: some hold until it ends.
    pub(super) at_start: Settings,
    pub(super) current: Arc<Current>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) access_log: Arc<AccessLog>,
    pub(super) fleet: Fleet,
    pub(super) control: Arc<AppControl>,
    /// What was refused last: its digest, and what was said of it.
    pub(super) refused: Option<(u64, String)>,
}

/// Why a reload puts nothing into force.
enum Ended {
    /// What was read is in force already.
    Unchanged(ReloadReport),
    /// It cannot come into force; with the digest of what was read.
    Refused(u64, ReloadReport),
}

/// Reads the configuration again. Order of effects: everything that can fail comes before the first change.
pub(super) async fn reload(parts: &mut Parts) -> ReloadReport {
    let previous = parts.current.load();
    match prepare(parts, &previous).await {
        Ok((compiled, opened)) => put_into_force(parts, compiled, opened).await,
        Err(Ended::Refused(digest, report)) => refuse(parts, digest, report),
        Err(Ended::Unchanged(report)) => {
            parts.refused = None;
            parts.metrics.reloaded(ReloadResult::Unchanged);
            parts.control.not_applied(report)
        }
    }
}

/// All that can fail.
async fn prepare(parts: &Parts, previous: &Arc<Snapshot>) -> Result<(Compiled, Opened), Ended> {
    let generation = previous.generation;
    if parts.control.phase() == Phase::Stopping {
        let report = failure(generation, "the process is stopping");
        return Err(Ended::Refused(previous.digest, report));
    }
    let (sources, snapshot, mut warnings) = read_again(parts, previous).await?;
    warnings.extend(needs_restart(parts, &sources, &snapshot));
    if snapshot.digest == previous.digest {
        let report = control::report(ReloadResult::Unchanged, generation, &sources, &warnings);
        return Err(Ended::Unchanged(report));
    }
    let failed = |message: String| Ended::Refused(snapshot.digest, failure(generation, &message));
    let opened = parts.fleet.open_missing(&snapshot).map_err(&failed)?;
    let target = snapshot.settings.access_log.as_ref().map(|log| &log.target);
    parts
        .access_log
        .configure(target)
        .map_err(|error| failed(chain(&AppError::AccessLog(error))))?;
    Ok(((sources, snapshot, warnings), opened))
}

async fn put_into_force(parts: &mut Parts, compiled: Compiled, opened: Opened) -> ReloadReport {
    let (sources, snapshot, warnings) = compiled;
    // Accept queues of listeners that go are emptied while their rules are still in force.
    let stays = |bind: &Bind| {
        snapshot
            .listeners
            .iter()
            .any(|listener| listener.bind == *bind)
    };
    parts.fleet.close(stays).await;
    let snapshot = Arc::new(snapshot);
    activate(&snapshot);
    parts.current.publish(Arc::clone(&snapshot));
    parts.fleet.refresh().await;
    parts.fleet.listen(opened);
    parts.refused = None;
    parts.metrics.loaded(snapshot.generation, clock::wall());
    parts.metrics.reloaded(ReloadResult::Applied);
    tracing::info!(generation = snapshot.generation, "configuration reloaded");
    super::warn_of(&sources, &warnings);
    parts
        .control
        .started(snapshot.generation, &sources, &warnings)
}

/// Reads and compiles, on a thread that may block: host names are resolved on the way.
async fn read_again(parts: &Parts, previous: &Arc<Snapshot>) -> Result<Compiled, Ended> {
    let options = parts.options.clone();
    let in_force = Arc::clone(previous);
    let read = tokio::task::spawn_blocking(move || read(&options, Some(&in_force))).await;
    match read {
        Ok(Ok(compiled)) => Ok(compiled),
        Ok(Err((sources, problems))) => Err(Ended::Refused(
            config::digest(&sources),
            control::report(
                ReloadResult::Refused,
                previous.generation,
                &sources,
                &problems,
            ),
        )),
        Err(_) => Err(Ended::Refused(
            previous.digest,
            failure(previous.generation, "the configuration could not be read"),
        )),
    }
}

/// Keys that the rest of a reload leaves behind.
fn needs_restart(parts: &Parts, sources: &[Source], snapshot: &Snapshot) -> Vec<Diagnostic> {
    let running = Running {
        settings: &parts.at_start,
        listeners: parts.fleet.listeners(),
    };
    let mut found = config::needs_restart(sources, snapshot, &running);
    // With `--admin`, a restart would not heed the key either.
    found.retain(|warning| parts.options.admin.is_none() || warning.path != "admin.socket");
    found
}

/// Tells the live half of each pool what it is now.
fn activate(snapshot: &Snapshot) {
    for pool in snapshot.pools.values() {
        let events = pool
            .core
            .update(clock::now(), pool.config.clone(), pool.members.clone());
        super::drive::log_events(&pool.name, events);
    }
}

/// A file watcher and a command may both read one bad edit: its errors are said once.
fn refuse(parts: &mut Parts, digest: u64, report: ReloadReport) -> ReloadReport {
    let refused = Some((digest, report.text.clone()));
    if parts.refused == refused {
        tracing::info!("reload refused again: nothing has changed since the last refusal");
    } else {
        tracing::error!(
            "reload refused, generation {} stays in force:\n{}",
            report.generation,
            report.text
        );
    }
    parts.refused = refused;
    parts.metrics.reloaded(ReloadResult::Refused);
    parts.control.not_applied(report)
}

/// A refusal for a reason outside the file.
fn failure(generation: u64, message: &str) -> ReloadReport {
    let mut report = control::report(ReloadResult::Refused, generation, &[], &[]);
    report.text = message.to_owned();
    report.problems = vec![Problem::without_place("reload", message)];
    report
}

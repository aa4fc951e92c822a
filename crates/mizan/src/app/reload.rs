//! A new configuration comes into force, or leaves the old one as it is.

use super::control::{self, AppControl};
use super::fleet::Fleet;
use super::{Compiled, Options, read};
use crate::admin::{Control, Phase, Problem, ReloadReport};
use crate::clock;
use crate::snapshot::{Bind, Current, Snapshot};
use crate::telemetry::{AccessLog, Metrics, ReloadResult};
use std::sync::Arc;

/// What the control loop holds.
pub(super) struct Parts {
    pub(super) options: Options,
    pub(super) current: Arc<Current>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) access_log: Arc<AccessLog>,
    pub(super) fleet: Fleet,
    pub(super) control: Arc<AppControl>,
}

/// Reads the configuration again. Order of effects: everything that can fail comes before the first change.
pub(super) async fn reload(parts: &mut Parts) -> ReloadReport {
    let previous = parts.current.load();
    if parts.control.phase() == Phase::Stopping {
        return refuse(
            parts,
            failure(previous.generation, "the process is stopping"),
        );
    }
    let (sources, snapshot, warnings) = match read_again(parts, &previous).await {
        Ok(compiled) => compiled,
        Err(report) => return refuse(parts, report),
    };
    if snapshot.digest == previous.digest {
        let report = control::report(
            ReloadResult::Unchanged,
            previous.generation,
            &sources,
            &warnings,
        );
        parts.metrics.reloaded(ReloadResult::Unchanged);
        return parts.control.not_applied(report);
    }
    let opened = match parts.fleet.open_missing(&snapshot) {
        Ok(opened) => opened,
        Err(error) => return refuse(parts, failure(previous.generation, &error.to_string())),
    };
    let target = snapshot.settings.access_log.as_ref().map(|log| &log.target);
    if let Err(error) = parts.access_log.configure(target) {
        return refuse(
            parts,
            failure(
                previous.generation,
                &format!("cannot open the access log: {error}"),
            ),
        );
    }
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
    parts.metrics.loaded(snapshot.generation, clock::wall());
    parts.metrics.reloaded(ReloadResult::Applied);
    tracing::info!(generation = snapshot.generation, "configuration reloaded");
    parts
        .control
        .started(snapshot.generation, &sources, &warnings)
}

/// Reads and compiles, on a thread that may block: host names are resolved on the way.
async fn read_again(parts: &Parts, previous: &Arc<Snapshot>) -> Result<Compiled, ReloadReport> {
    let options = parts.options.clone();
    let in_force = Arc::clone(previous);
    let read = tokio::task::spawn_blocking(move || read(&options, Some(&in_force))).await;
    match read {
        Ok(Ok(compiled)) => Ok(compiled),
        Ok(Err((sources, problems))) => Err(control::report(
            ReloadResult::Refused,
            previous.generation,
            &sources,
            &problems,
        )),
        Err(_) => Err(failure(
            previous.generation,
            "the configuration could not be read",
        )),
    }
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

fn refuse(parts: &Parts, report: ReloadReport) -> ReloadReport {
    tracing::error!(
        "reload refused, generation {} stays in force:\n{}",
        report.generation,
        report.text
    );
    parts.metrics.reloaded(ReloadResult::Refused);
    parts.control.not_applied(report)
}

/// A refusal for a reason outside the file.
fn failure(generation: u64, message: &str) -> ReloadReport {
    let mut report = control::report(ReloadResult::Refused, generation, &[], &[]);
    report.text = message.to_owned();
    report.problems = vec![Problem {
        severity: "error".into(),
        code: "reload".into(),
        file: String::new(),
        line: 0,
        column: 0,
        path: String::new(),
        message: message.to_owned(),
        help: None,
    }];
    report
}

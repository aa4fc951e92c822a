//! A new configuration comes into force, or leaves the old one as it is.

use super::control::{self, AppControl, ReloadRequest};
use super::fleet::{Fleet, Opened};
use super::{AppError, Compiled, Options, read};
use crate::admin::{Control, Phase, Problem, ReloadReport};
use crate::clock;
use crate::config::{self, Diagnostic, Running, Source};
use crate::snapshot::{Bind, Current, Settings, Snapshot};
use crate::telemetry::logging::chain;
use crate::telemetry::metrics::Series;
use crate::telemetry::{AccessLog, Metrics, ReloadResult};
use mizan_core::time::Instant;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// How far the threads that read configurations and resolve names stand back, as of nice(1).
const NICE: i32 = 10;

/// Reading a configuration takes no longer.
const READ_MAX: Duration = Duration::from_secs(30);

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
    pub(super) retired: Vec<Retired>,
    /// What was refused last: its digest, and what was said of it.
    pub(super) refused: Option<(u64, String)>,
}

/// What was in force before. It is kept until no request needs it any more, so that it is taken down here: on a worker
/// that would be a pause of milliseconds.
pub(super) struct Retired {
    _series: Arc<Series>,
    snapshot: Arc<Snapshot>,
}

impl Retired {
    pub(super) fn is_needed(&self) -> bool {
        Arc::strong_count(&self.snapshot) > 1
    }
}

/// Why a reload puts nothing into force.
pub(super) enum Ended {
    /// What was read is in force already.
    Unchanged(ReloadReport),
    /// It cannot come into force; with the digest of what was read.
    Refused(u64, ReloadReport),
    /// It was not read, or it is too late for it.
    Failed(&'static str),
}

/// What came of reading a configuration.
pub(super) type Read = Result<Compiled, Ended>;

/// Reloads that were asked for. One is read at a time, on a thread that may block: files can be slow, and so can the
/// resolver of host names. Signals, drains and the pools' clocks never wait for that.
#[derive(Default)]
pub(super) struct Reloads {
    reading: Option<Reading>,
    /// Asked for since the reading began: what is read may be older.
    is_asked: bool,
    asked: Vec<ReloadRequest>,
}

struct Reading {
    task: JoinHandle<Read>,
    since: Instant,
    asked: Vec<ReloadRequest>,
}

impl Reloads {
    /// The configuration is to be read again; `done` gets the report.
    pub(super) fn ask(&mut self, parts: &Parts, done: Option<ReloadRequest>) {
        self.is_asked = true;
        self.asked.extend(done);
        self.start(parts);
    }

    fn start(&mut self, parts: &Parts) {
        if self.reading.is_some() || !self.is_asked {
            return;
        }
        self.is_asked = false;
        let options = parts.options.clone();
        let previous = parts.current.load();
        self.reading = Some(Reading {
            task: tokio::task::spawn_blocking(move || {
                stand_back();
                read_again(&options, &previous)
            }),
            since: clock::now(),
            asked: std::mem::take(&mut self.asked),
        });
    }

    /// Waits until a configuration is read; for ever while none is being read.
    pub(super) async fn read(&mut self) -> Read {
        match &mut self.reading {
            None => std::future::pending().await,
            Some(reading) => match (&mut reading.task).await {
                Ok(read) => read,
                Err(_) => Err(Ended::Failed("the configuration could not be read")),
            },
        }
    }

    /// Puts into force what was read, or says why not.
    pub(super) async fn finish(&mut self, parts: &mut Parts, read: Read) {
        let report = match read.and_then(|compiled| prepare(parts, compiled)) {
            Ok((compiled, opened)) => put_into_force(parts, compiled, opened).await,
            Err(Ended::Refused(digest, report)) => refuse(parts, digest, report),
            Err(Ended::Failed(message)) => {
                let in_force = parts.current.load();
                refuse(
                    parts,
                    in_force.digest,
                    failure(in_force.generation, message),
                )
            }
            Err(Ended::Unchanged(report)) => {
                parts.refused = None;
                parts.metrics.reloaded(ReloadResult::Unchanged);
                parts.control.not_applied(report)
            }
        };
        let asked = self.reading.take().map(|reading| reading.asked);
        for done in asked.unwrap_or_default() {
            let _ = done.send(report.clone());
        }
        self.start(parts);
    }

    /// Gives up a reading that takes too long: its thread ends when it can, and nobody waits for it.
    pub(super) async fn give_up(&mut self, now: Instant, parts: &mut Parts) {
        let since = self.reading.as_ref().map(|reading| reading.since);
        if since.is_some_and(|since| now.saturating_since(since) > READ_MAX) {
            let failed = Ended::Failed(
                "it could not be read within 30 s: a slow file, or names that do not resolve",
            );
            self.finish(parts, Err(failed)).await;
        }
    }
}

/// Traffic comes before what this thread does: on few cores the compiler of a large file would be felt.
pub(super) fn stand_back() {
    let _ = rustix::process::setpriority_process(None, NICE);
}

/// All that can fail comes before the first change.
fn prepare(parts: &Parts, compiled: Compiled) -> Result<(Compiled, Opened), Ended> {
    let (sources, snapshot, mut warnings) = compiled;
    if parts.control.phase() == Phase::Stopping {
        return Err(Ended::Failed("the process is stopping"));
    }
    let in_force = parts.current.load();
    let generation = in_force.generation;
    warnings.extend(needs_restart(parts, &sources, &snapshot));
    if snapshot.digest == in_force.digest {
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
    let previous = parts.current.load();
    let series = parts.fleet.shared.series(&previous);
    parts.fleet.shared.series(&snapshot);
    parts.current.publish(Arc::clone(&snapshot));
    parts.retired.push(Retired {
        _series: series,
        snapshot: previous,
    });
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

/// Reads and compiles; host names are resolved on the way.
fn read_again(options: &Options, previous: &Arc<Snapshot>) -> Read {
    read(options, Some(previous)).map_err(|(sources, problems)| {
        let generation = previous.generation;
        let report = control::report(ReloadResult::Refused, generation, &sources, &problems);
        Ended::Refused(config::digest(&sources), report)
    })
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
pub(super) fn failure(generation: u64, message: &str) -> ReloadReport {
    let mut report = control::report(ReloadResult::Refused, generation, &[], &[]);
    report.text = message.to_owned();
    report.problems = vec![Problem::without_place("reload", message)];
    report
}

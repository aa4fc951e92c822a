//! A new configuration comes into force, or leaves the old one as it is.

use super::control::{self, AppControl, Done};
use super::discovery::Discovery;
use super::discovery::members::Discovered;
use super::fleet::{Fleet, Opened};
use super::shared_table::{SharedTable, TableInForce};
use super::{AppError, Compiled, Inputs, Options, read};
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

/// How far the threads that read configurations and look names up stand back, as of nice(1).
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
    /// The files in force.
    pub(super) files: Vec<Source>,
    /// What was warned of last.
    pub(super) warned: Vec<Diagnostic>,
    /// The store, if there is one.
    pub(super) shared: Option<SharedTable>,
    /// Looks up host names.
    pub(super) discovery: Arc<Discovery>,
    /// The pools that learn from it.
    pub(super) discovered: Discovered,
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
    /// What was read is in force already; what is in force of the store's table, if there is one.
    Unchanged(ReloadReport, Option<Box<TableInForce>>),
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
    wish: Option<Wish>,
    asked: Vec<Done>,
}

/// What is to be read again.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wish {
    /// The files, too; else only the store's table has changed.
    pub(super) files: bool,
    /// What seems doubtful of the table is meant.
    pub(super) accept_table: bool,
}

impl Wish {
    pub(super) const FILES: Self = Self {
        files: true,
        accept_table: false,
    };
    pub(super) const TABLE: Self = Self {
        files: false,
        accept_table: false,
    };
}

struct Reading {
    task: JoinHandle<Read>,
    wish: Wish,
    since: Instant,
    asked: Vec<Done>,
}

impl Reloads {
    /// The configuration is to be read again; `done` gets the report.
    pub(super) fn ask(&mut self, parts: &mut Parts, wish: Wish, done: Option<Done>) {
        let asked = self.wish.unwrap_or_default();
        self.wish = Some(Wish {
            files: asked.files || wish.files,
            accept_table: asked.accept_table || wish.accept_table,
        });
        self.asked.extend(done);
        self.start(parts);
    }

    fn start(&mut self, parts: &mut Parts) {
        if self.reading.is_some() {
            return;
        }
        let Some(wish) = self.wish.take() else { return };
        let options = parts.options.clone();
        let discovery = Arc::clone(&parts.discovery);
        let previous = parts.current.load();
        if let (Some(shared), true) = (&mut parts.shared, wish.accept_table) {
            shared.accept();
        }
        let shared = parts.shared.as_ref();
        let inputs = Inputs {
            files: (!wish.files).then(|| parts.files.clone()),
            table: shared.map(|shared| shared.input(wish.accept_table)),
        };
        self.reading = Some(Reading {
            task: tokio::task::spawn_blocking(move || {
                stand_back();
                read_again(&options, &previous, inputs, &discovery)
            }),
            wish,
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
        let wish = self.reading.as_ref().map_or(Wish::FILES, |it| it.wish);
        let report = match read.and_then(|compiled| prepare(parts, compiled)) {
            Ok((compiled, opened)) => put_into_force(parts, compiled, opened, wish).await,
            Err(Ended::Refused(digest, report)) => refuse(parts, digest, report),
            Err(Ended::Failed(message)) => {
                let in_force = parts.current.load();
                refuse(
                    parts,
                    in_force.digest,
                    failure(in_force.generation, message),
                )
            }
            Err(Ended::Unchanged(report, table)) => {
                parts.refused = None;
                table_applied(parts, table);
                // A watch says many things that change nothing here.
                if !wish.files {
                    report
                } else {
                    parts.metrics.reloaded(ReloadResult::Unchanged);
                    parts.control.not_applied(report)
                }
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
    let Compiled {
        files,
        sources,
        snapshot,
        mut warnings,
        table,
    } = compiled;
    if parts.control.phase() == Phase::Stopping {
        return Err(Ended::Failed("the process is stopping"));
    }
    let in_force = parts.current.load();
    let generation = in_force.generation;
    warnings.extend(needs_restart(parts, &sources, &snapshot));
    if snapshot.digest == in_force.digest {
        let report = control::report(ReloadResult::Unchanged, generation, &sources, &warnings);
        return Err(Ended::Unchanged(report, table));
    }
    let failed = |message: String| Ended::Refused(snapshot.digest, failure(generation, &message));
    let opened = parts.fleet.open_missing(&snapshot).map_err(&failed)?;
    let target = snapshot.settings.access_log.as_ref().map(|log| &log.target);
    parts
        .access_log
        .configure(target)
        .map_err(|error| failed(chain(&AppError::AccessLog(error))))?;
    let compiled = Compiled {
        files,
        sources,
        snapshot,
        warnings,
        table,
    };
    Ok((compiled, opened))
}

async fn put_into_force(
    parts: &mut Parts,
    compiled: Compiled,
    opened: Opened,
    wish: Wish,
) -> ReloadReport {
    let Compiled {
        files,
        sources,
        snapshot,
        warnings,
        table,
    } = compiled;
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
    let generation = snapshot.generation;
    match &table {
        Some(table) if !wish.files => {
            let revision = table.table.as_ref().map_or(0, |table| table.revision());
            tracing::info!(generation, revision, "the table is in force");
            // Each edit by anybody would say again what is known of the files.
            let is_new = |it: &&Diagnostic| !parts.warned.contains(it);
            let new: Vec<_> = warnings.iter().filter(is_new).cloned().collect();
            super::warn_of(&sources, &new);
        }
        _ => {
            tracing::info!(generation, "configuration reloaded");
            super::warn_of(&sources, &warnings);
        }
    }
    let report = parts.control.started(generation, sources, &warnings);
    parts.files = files;
    parts.warned = warnings;
    table_applied(parts, table);
    report
}

/// What is in force of the table is told.
fn table_applied(parts: &mut Parts, table: Option<Box<TableInForce>>) {
    if let (Some(shared), Some(table)) = (&mut parts.shared, table) {
        shared.follow_ticket_keys(&parts.current.load());
        shared.applied(*table);
        parts.control.set_store(shared.told());
    }
}

/// Reads and compiles; host names are resolved on the way.
fn read_again(
    options: &Options,
    previous: &Arc<Snapshot>,
    inputs: Inputs,
    lookup: &Discovery,
) -> Read {
    read(options, Some(previous), inputs, lookup).map_err(|(sources, problems)| {
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

//! The process as the admin API sees it.

use super::{Options, render};
use crate::admin::{Control, Phase, Problem, ReloadReport};
use crate::clock;
use crate::config::{Diagnostic, Source};
use crate::proxy::worker::Shared;
use crate::snapshot::{AskError, Asked, Explained, Snapshot};
use crate::telemetry::ReloadResult;
use crate::telemetry::json::time_string;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{mpsc, oneshot};

/// A reload that somebody waits for.
pub(super) type ReloadRequest = oneshot::Sender<ReloadReport>;

/// What the control loop and the API both know.
pub(super) struct AppControl {
    config: PathBuf,
    shared: Arc<Shared>,
    requests: mpsc::Sender<ReloadRequest>,
    state: Mutex<State>,
}

struct State {
    phase: Phase,
    report: ReloadReport,
    sources: Vec<Source>,
}

impl AppControl {
    pub(super) fn new(
        options: &Options,
        shared: Arc<Shared>,
        requests: mpsc::Sender<ReloadRequest>,
    ) -> Self {
        let report = report(ReloadResult::Applied, 0, &[], &[]);
        let state = State {
            phase: Phase::Starting,
            report,
            sources: Vec::new(),
        };
        Self {
            config: options.config.clone(),
            shared,
            requests,
            state: Mutex::new(state),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_phase(&self, phase: Phase) {
        self.state().phase = phase;
    }

    /// The configuration of the start, or of a reload that came into force.
    pub(super) fn started(
        &self,
        generation: u64,
        sources: &[Source],
        warnings: &[Diagnostic],
    ) -> ReloadReport {
        let mut state = self.state();
        state.sources = sources.to_vec();
        state.report = report(ReloadResult::Applied, generation, sources, warnings);
        state.report.clone()
    }

    /// A reload that changed nothing.
    pub(super) fn not_applied(&self, report: ReloadReport) -> ReloadReport {
        self.state().report = report.clone();
        report
    }
}

/// A report on a reload.
pub(super) fn report(
    result: ReloadResult,
    generation: u64,
    sources: &[Source],
    problems: &[Diagnostic],
) -> ReloadReport {
    ReloadReport {
        result,
        generation,
        at: time_string(clock::wall()),
        problems: problems.iter().map(Problem::from).collect(),
        text: render(sources, problems),
    }
}

impl Control for AppControl {
    fn reload(&self) -> Pin<Box<dyn Future<Output = ReloadReport> + Send>> {
        let requests = self.requests.clone();
        let generation = self.last_reload().generation;
        Box::pin(async move {
            let (done, answer) = oneshot::channel();
            let stopping = || super::reload::failure(generation, "the process is stopping");
            if requests.send(done).await.is_err() {
                return stopping();
            }
            answer.await.unwrap_or_else(|_| stopping())
        })
    }

    fn last_reload(&self) -> ReloadReport {
        self.state().report.clone()
    }

    fn phase(&self) -> Phase {
        self.state().phase
    }

    fn config_path(&self) -> PathBuf {
        self.config.clone()
    }

    fn config_text(&self) -> Vec<Source> {
        self.state().sources.clone()
    }

    fn workers(&self) -> usize {
        self.shared.mailboxes.len()
    }

    fn connections(&self) -> u64 {
        self.shared.connections() as u64
    }

    fn explain<'s>(
        &self,
        snapshot: &'s Snapshot,
        asked: &Asked,
    ) -> Result<Explained<'s>, AskError> {
        crate::proxy::explain::explain(snapshot, asked, clock::now())
    }
}

//! The process as the admin API sees it.

use super::shared_table::{SharedTable, Told};
use super::{Options, render};
use crate::admin::view::{Account, StoreView};
use crate::admin::{Control, Phase, Problem, ReloadReport};
use crate::clock;
use crate::config::{Diagnostic, Source};
use crate::control::{Layout, nodes};
use crate::proxy::worker::Shared;
use crate::snapshot::{AskError, Asked, Explained, Snapshot};
use crate::telemetry::json::time_string;
use crate::telemetry::{Metrics, ReloadResult};
use mizan_store::Store;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// What the store may take to say what all nodes have in force.
const NODES_MAX: Duration = Duration::from_secs(1);

/// Gets the report on a reload.
pub(super) type Done = oneshot::Sender<ReloadReport>;

/// A reload that somebody waits for.
pub(super) struct ReloadRequest {
    /// What seems doubtful of the store's table is meant.
    pub(super) accept_table: bool,
    /// Gets the report.
    pub(super) done: Done,
}

/// What the control loop and the API both know.
pub(super) struct AppControl {
    config: PathBuf,
    shared: Arc<Shared>,
    requests: mpsc::Sender<ReloadRequest>,
    store: Option<(Arc<dyn Store>, Layout)>,
    metrics: Arc<Metrics>,
    state: Mutex<State>,
}

struct State {
    phase: Phase,
    report: ReloadReport,
    sources: Vec<Source>,
    store: Option<Told>,
}

impl AppControl {
    pub(super) fn new(
        options: &Options,
        shared: Arc<Shared>,
        requests: mpsc::Sender<ReloadRequest>,
        metrics: &Arc<Metrics>,
        table: Option<&SharedTable>,
    ) -> Self {
        let report = report(ReloadResult::Applied, 0, &[], &[]);
        let state = State {
            phase: Phase::Starting,
            report,
            sources: Vec::new(),
            store: None,
        };
        let control = Self {
            store: table.map(|table| (Arc::clone(&table.store), table.layout.clone())),
            config: options.config.clone(),
            shared,
            metrics: Arc::clone(metrics),
            requests,
            state: Mutex::new(state),
        };
        if let Some(table) = table {
            control.set_store(table.told());
        }
        control
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
        sources: Vec<Source>,
        warnings: &[Diagnostic],
    ) -> ReloadReport {
        let report = report(ReloadResult::Applied, generation, &sources, warnings);
        let mut state = self.state();
        state.report = report.clone();
        // Those of before are taken down after the lock.
        let _before = std::mem::replace(&mut state.sources, sources);
        drop(state);
        report
    }

    /// What is known of the store now.
    pub(super) fn set_store(&self, told: Told) {
        self.metrics.set_store(told.figures());
        self.state().store = Some(told);
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
    fn reload(&self, accept_table: bool) -> Pin<Box<dyn Future<Output = ReloadReport> + Send>> {
        let requests = self.requests.clone();
        let generation = self.last_reload().generation;
        Box::pin(async move {
            let (done, answer) = oneshot::channel();
            let stopping = || super::reload::failure(generation, "the process is stopping");
            if requests
                .send(ReloadRequest { accept_table, done })
                .await
                .is_err()
            {
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

    fn store(&self) -> Option<StoreView> {
        let told = self.state().store.clone();
        told.map(StoreView::from)
    }

    fn nodes(&self) -> Pin<Box<dyn Future<Output = Result<Vec<Account>, String>> + Send>> {
        let Some((store, layout)) = self.store.clone() else {
            return Box::pin(std::future::ready(Ok(Vec::new())));
        };
        Box::pin(async move {
            match tokio::time::timeout(NODES_MAX, nodes::list(&*store, &layout)).await {
                Ok(listed) => listed.map_err(|error| error.to_string()),
                Err(_) => Err("the store does not answer".to_owned()),
            }
        })
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

impl From<Told> for StoreView {
    fn from(told: Told) -> Self {
        let known = told.known;
        let ahead = told.ahead.map(|ahead| ahead.to_string());
        Self {
            address: told.address,
            namespace: told.namespace,
            standing: known.view.standing.name().to_owned(),
            since: time_string(known.since),
            age_seconds: clock::wall().saturating_sub(known.since).as_secs(),
            revision: known.view.revision,
            losses: known.losses(),
            divergences: known.divergences(),
            trouble: known.trouble.unwrap_or_default(),
            warnings: known.warnings.into_iter().chain(ahead).collect(),
            objects: told.objects,
            rejected: told.rejected.into_iter().map(Into::into).collect(),
            waiting: told.waiting.into_iter().map(Into::into).collect(),
            node: told.account,
            nodes: Vec::new(),
            nodes_unknown: String::new(),
        }
    }
}

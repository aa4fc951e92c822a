//! The composition root: builds the parts in order, runs the control loop, and stops them in order.
//!
//! ```text
//! start:  configuration → sockets → workers → prober → admin → control loop
//! stop:   readiness → (window) → listeners → requests in flight → workers → admin
//! ```

mod control;
mod drive;
mod fleet;
mod reload;

use crate::admin::{self, AdminState, BindError, Phase};
use crate::clock;
use crate::config::{self, Diagnostic, Source};
use crate::prober;
use crate::proxy;
use crate::snapshot::{AskError, Asked, Current, Explained, Snapshot};
use crate::telemetry::{AccessLog, Metrics};
use control::AppControl;
use fleet::Fleet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// What `mizan serve` was asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// The main configuration file.
    pub config: PathBuf,
    /// The admin socket, in place of the configuration's.
    pub admin: Option<PathBuf>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Requests that were in flight when it ended.
    pub cut: u64,
}

/// Why a run could not start.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The configuration was refused: the diagnostics, drawn.
    #[error("{0}")]
    Refused(String),
    /// A listener's socket could not be opened.
    #[error("cannot listen on {bind} (listener `{listener}`){hint}")]
    Listen {
        /// The listener's name.
        listener: String,
        /// Its address.
        bind: String,
        /// What it takes, where that is known; else empty.
        hint: &'static str,
        /// Why.
        source: io::Error,
    },
    /// An admin, health or metrics socket could not be opened.
    #[error(transparent)]
    Admin(#[from] BindError),
    /// The access log could not be opened.
    #[error("cannot open the access log that `[log] access` names")]
    AccessLog(#[source] io::Error),
    /// A thread or a runtime could not be started.
    #[error("cannot start {0}")]
    Start(&'static str, #[source] io::Error),
}

/// A configuration that can come into force, with its warnings.
type Compiled = (Vec<Source>, Snapshot, Vec<Diagnostic>);
/// One that cannot, with all that is wrong.
type Refused = (Vec<Source>, Vec<Diagnostic>);

/// Reads and compiles the configuration; `previous` is the one in force.
fn read(options: &Options, previous: Option<&Snapshot>) -> Result<Compiled, Refused> {
    let sources = config::load(&options.config).map_err(|problems| (Vec::new(), problems))?;
    match config::compile(&sources, previous, &resolve, clock::now(), clock::random()) {
        Ok((snapshot, warnings)) => Ok((sources, snapshot, warnings)),
        Err(problems) => Err((sources, problems)),
    }
}

/// The system's resolver. Blocks: called by `mizan check`, at start, and at reload and every 30 s on a
/// blocking thread.
pub(crate) fn resolve(name: &str) -> io::Result<Vec<std::net::SocketAddr>> {
    use std::net::ToSocketAddrs;
    name.to_socket_addrs().map(Iterator::collect)
}

/// What would become of a request under a configuration that was only compiled.
///
/// # Errors
/// If it names a listener or pool that is not there, or fits no listener.
pub(crate) fn explain<'s>(
    snapshot: &'s Snapshot,
    asked: &Asked,
) -> Result<Explained<'s>, AskError> {
    proxy::explain::explain(snapshot, asked, clock::now())
}

/// Draws diagnostics for people.
fn render(sources: &[Source], problems: &[Diagnostic]) -> String {
    problems
        .iter()
        .map(|problem| problem.render(sources))
        .collect::<Vec<_>>()
        .join("\n")
}

fn warn_of(sources: &[Source], warnings: &[Diagnostic]) {
    if !warnings.is_empty() {
        tracing::warn!(
            "the configuration has warnings:\n{}",
            render(sources, warnings)
        );
    }
}

/// Runs until a signal ends it.
///
/// # Errors
/// If it cannot start; then nothing was served.
pub fn run(options: Options) -> Result<Ended, AppError> {
    let (sources, snapshot, warnings) = match read(&options, None) {
        Ok(read) => read,
        Err((sources, problems)) => return Err(AppError::Refused(render(&sources, &problems))),
    };
    warn_of(&sources, &warnings);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| AppError::Start("the control runtime", error))?;
    let snapshot = Arc::new(snapshot);
    // In the runtime, because the admin sockets are tied to it.
    let ended = runtime.block_on(start(options, sources, snapshot, warnings));
    // A thread that still resolves a name or reads a slow file holds nobody up.
    runtime.shutdown_background();
    ended
}

async fn start(
    options: Options,
    sources: Vec<Source>,
    snapshot: Arc<Snapshot>,
    warnings: Vec<Diagnostic>,
) -> Result<Ended, AppError> {
    // Before anything is served: a signal that comes early must drain, too.
    let signals = drive::Signals::new().map_err(|error| AppError::Start("signals", error))?;
    let metrics = Metrics::new(snapshot.settings.workers, clock::wall());
    let log_target = snapshot.settings.access_log.as_ref().map(|log| &log.target);
    let access_log =
        AccessLog::start(log_target, metrics.access_log_dropped()).map_err(AppError::AccessLog)?;
    let current = Arc::new(Current::new(Arc::clone(&snapshot)));
    let sockets = admin::bind(&snapshot.settings, options.admin.as_deref())?;
    let fleet = Fleet::start(&current, &metrics, &access_log)?;
    metrics.loaded(snapshot.generation, clock::wall());

    let (requests, inbox) = mpsc::channel(16);
    let control = Arc::new(AppControl::new(
        &options,
        Arc::clone(&fleet.shared),
        requests,
    ));
    control.started(snapshot.generation, &sources, &warnings);
    let (stop, stopped) = watch::channel(false);
    let probing = start_prober(&current, stopped.clone())?;
    let state = AdminState {
        current: Arc::clone(&current),
        metrics: Arc::clone(&metrics),
        control: Arc::clone(&control) as _,
    };
    let admin = tokio::spawn(admin::serve(state, sockets, stopped));
    control.set_phase(Phase::Serving);
    announce(&snapshot);

    let mut parts = reload::Parts {
        options,
        at_start: snapshot.settings.clone(),
        current,
        metrics,
        access_log,
        fleet,
        control: Arc::clone(&control),
        retired: Vec::new(),
        refused: None,
    };
    let (cut, why) = drive::drive(&mut parts, signals, inbox).await;
    control.set_phase(Phase::Stopping);
    parts.fleet.stop(why);
    parts.access_log.close(Duration::from_secs(2));
    let _ = stop.send(true);
    let _ = tokio::time::timeout(Duration::from_secs(2), admin).await;
    drop(probing);
    match cut {
        0 => tracing::info!(cut, "stopped: 0 requests were cut"),
        1 => tracing::warn!(cut, "stopped: 1 request was cut"),
        _ => tracing::warn!(cut, "stopped: {cut} requests were cut"),
    }
    Ok(Ended { cut })
}

fn announce(snapshot: &Snapshot) {
    for listener in &snapshot.listeners {
        tracing::info!(listener = %listener.name, bind = %listener.bind, "listening");
    }
}

/// Probes run on a thread of their own: a storm of them costs no request and no operator's call.
fn start_prober(
    current: &Arc<Current>,
    stopped: watch::Receiver<bool>,
) -> Result<std::thread::JoinHandle<()>, AppError> {
    let current = Arc::clone(current);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| AppError::Start("the prober's runtime", error))?;
    std::thread::Builder::new()
        .name("mizan-prober".into())
        .spawn(move || runtime.block_on(prober::run(current, stopped)))
        .map_err(|error| AppError::Start("the prober", error))
}

//! The composition root: builds the parts in order, runs the control loop, and stops them in order.
//!
//! ```text
//! start:  configuration → sockets → workers → prober → admin → control loop
//! stop:   readiness → (window) → listeners → requests in flight → workers → admin
//! ```

mod control;
mod discovery;
mod drive;
mod fleet;
mod reload;
mod shared_table;

use crate::admin::{self, AdminState, BindError, Phase};
use crate::clock;
use crate::config::{self, Diagnostic, Source};
use crate::control::OpenError;
use crate::prober;
use crate::proxy;
use crate::snapshot::{AskError, Asked, Current, Explained, Snapshot, StoreAddress};
use crate::telemetry::{AccessLog, Metrics};
use control::AppControl;
pub(crate) use discovery::Discovery;
use discovery::members::Discovered;
use fleet::Fleet;
use shared_table::{SharedTable, TableInForce, TableInput};
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
    /// The store, in place of the configuration's.
    pub store: Option<StoreAddress>,
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
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The store would be asked of this process itself.
    #[error("`instance:{}` is this instance's own socket: name another instance's, or `embedded:/FOLDER`", .0.display())]
    OwnStore(PathBuf),
    /// A thread or a runtime could not be started.
    #[error("cannot start {0}")]
    Start(&'static str, #[source] io::Error),
}

/// A configuration that can come into force.
struct Compiled {
    /// Its files.
    files: Vec<Source>,
    /// The files, and the objects of the store that are in force with them.
    sources: Vec<Source>,
    snapshot: Snapshot,
    warnings: Vec<Diagnostic>,
    /// What is in force of the store's table, if there is one.
    table: Option<Box<TableInForce>>,
}
/// One that cannot, with all that is wrong.
type Refused = (Vec<Source>, Vec<Diagnostic>);

/// What a configuration is made of.
#[derive(Clone, Default)]
struct Inputs {
    /// Files as they were read; `None`: they are read now.
    files: Option<Vec<Source>>,
    table: Option<TableInput>,
}

/// Reads and compiles the configuration; `previous` is the one in force.
fn read(
    options: &Options,
    previous: Option<&Snapshot>,
    inputs: Inputs,
    lookup: &Discovery,
) -> Result<Compiled, Refused> {
    let files = match inputs.files {
        Some(files) => files,
        None => {
            let load = config::load(&options.config);
            let mut files = load.map_err(|problems| (Vec::new(), problems))?;
            if let (Some(main), Some(_)) = (files.first_mut(), &options.store) {
                main.expect_store();
            }
            files
        }
    };
    let Some(input) = inputs.table else {
        let compiled = config::compile(&files, previous, lookup, clock::now(), clock::random());
        return match compiled {
            Ok((snapshot, warnings)) => Ok(Compiled {
                sources: files.clone(),
                files,
                snapshot,
                warnings,
                table: None,
            }),
            Err(problems) => Err((files, problems)),
        };
    };
    let (table, held_back) = input.judge();
    let wall = clock::wall();
    let mut with_keys = files.clone();
    if let Some(main) = with_keys.first_mut() {
        main.put_ticket_keys(input.ticket_keys.clone());
    }
    let merged = config::compile_with(
        &with_keys,
        (&table, wall.as_millis() as u64, input.waits()),
        (previous, input.last()),
        lookup,
        (clock::now(), clock::random()),
    );
    match merged {
        Ok(merged) => Ok(Compiled {
            files,
            sources: merged.sources,
            snapshot: merged.snapshot,
            warnings: merged.warnings,
            table: Some(Box::new(TableInForce {
                next_end: shared_table::next_end(&merged.in_force),
                store: input.store(),
                table: Some(table),
                objects: merged.in_force,
                rejected: merged.rejected,
                waiting: merged.waiting,
                held_back,
                applied: wall,
            })),
        }),
        Err(problems) => Err((files, problems)),
    }
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
    let refused = |(sources, problems): Refused| AppError::Refused(render(&sources, &problems));
    let discovery = Arc::new(Discovery::default());
    let compiled = read(&options, None, Inputs::default(), &discovery).map_err(refused)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| AppError::Start("the control runtime", error))?;
    // In the runtime, because the admin sockets and the store's watch are tied to it.
    let ended = runtime.block_on(async {
        let shared = SharedTable::open(&options, &compiled.snapshot.settings).await?;
        let (compiled, shared) = match shared {
            None => (compiled, None),
            Some(mut shared) => {
                shared.follow_ticket_keys(&compiled.snapshot);
                shared.first().await;
                let inputs = Inputs {
                    files: Some(compiled.files),
                    table: Some(shared.input(false)),
                };
                let compiled = read(&options, None, inputs, &discovery).map_err(refused)?;
                (compiled, Some(shared))
            }
        };
        warn_of(&compiled.sources, &compiled.warnings);
        start(options, compiled, shared, discovery).await
    });
    // A thread that still resolves a name or reads a slow file holds nobody up.
    runtime.shutdown_background();
    ended
}

async fn start(
    options: Options,
    compiled: Compiled,
    mut shared: Option<SharedTable>,
    discovery: Arc<Discovery>,
) -> Result<Ended, AppError> {
    let snapshot = Arc::new(compiled.snapshot);
    if let (Some(shared), Some(table)) = (&mut shared, compiled.table) {
        shared.applied(*table);
    }
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
        &metrics,
        shared.as_ref(),
    ));
    control.started(snapshot.generation, compiled.sources, &compiled.warnings);
    let (stop, stopped) = watch::channel(false);
    let probing = start_prober(&current, stopped.clone())?;
    let state = AdminState {
        current: Arc::clone(&current),
        metrics: Arc::clone(&metrics),
        control: Arc::clone(&control) as _,
        editor: shared.as_ref().map(|it| Arc::new(it.editor())),
        store: shared.as_ref().map(|it| Arc::clone(&it.store)),
    };
    let admin = tokio::spawn(admin::serve(state, sockets, stopped));
    let mut discovered = Discovered::default();
    discovered.first(&snapshot, shared.as_ref()).await;
    discovered.tick(clock::now(), &snapshot, &discovery, shared.as_ref());
    // Who knows no table answers 503 to what only the table has: nobody is to send it traffic.
    if shared.as_ref().is_none_or(SharedTable::is_known) {
        control.set_phase(Phase::Serving);
    }
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
        files: compiled.files,
        warned: compiled.warnings,
        shared,
        discovery,
        discovered,
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

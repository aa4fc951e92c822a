//! What a reload cannot change: keys that are read at start only, or when a listener's socket is opened.
//!
//! The rest of such a file is applied; each of these keys is told, so that "applied" is not said of what was not.

use super::diagnostic::{Diagnostic, Severity};
use super::report::{Cx, Report};
use super::tree::{Step, show_steps};
use super::{Source, read};
use crate::snapshot::{AdminBind, Listener, Settings, Snapshot};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

/// What runs.
#[derive(Debug)]
pub struct Running<'a> {
    /// The settings of the start.
    pub settings: &'a Settings,
    /// The listeners as they were when their sockets were opened.
    pub listeners: &'a [Arc<Listener>],
}

/// One warning for each key of `sources`, from which `snapshot` was made, that takes effect with a restart only.
pub fn needs_restart(
    sources: &[Source],
    snapshot: &Snapshot,
    running: &Running<'_>,
) -> Vec<Diagnostic> {
    let mut waiting = settings(&snapshot.settings, running.settings);
    for listener in &snapshot.listeners {
        let opened = running
            .listeners
            .iter()
            .find(|opened| opened.bind == listener.bind);
        waiting.extend(
            opened
                .into_iter()
                .flat_map(|opened| socket(listener, opened)),
        );
    }
    if waiting.is_empty() {
        return Vec::new();
    }
    let tree = read(sources).tree;
    let mut cx = Cx {
        tree: &tree,
        report: Report::new(sources, Vec::new()),
    };
    for Waiting { steps, message } in waiting {
        cx.tell(&steps, Severity::Warning, "needs_restart", message, None);
    }
    cx.report.finish()
}

const AT_START: &str = "at start only";
const WITH_SOCKET: &str = "when the socket is opened";

/// A key whose value waits for a restart.
struct Waiting {
    steps: Vec<Step<'static>>,
    message: String,
}

impl Waiting {
    /// `None` if the key has the value that runs. `read` says when it is read.
    fn new(steps: &[Step<'static>], read: &str, wanted: String, runs: String) -> Option<Self> {
        let key = show_steps(steps);
        (wanted != runs).then(|| Self {
            steps: steps.to_vec(),
            message: format!(
                "`{key}` is read {read}: {wanted} takes effect with a restart; until then it stays {runs}"
            ),
        })
    }
}

fn settings(wanted: &Settings, runs: &Settings) -> Vec<Waiting> {
    use Step::Key;
    let workers = (wanted.workers != runs.workers).then(|| Waiting {
        steps: vec![Key("workers")],
        message: format!(
            "`workers` is read at start only: {} takes effect with a restart; {} run now",
            wanted.workers, runs.workers
        ),
    });
    let ((socket, bind), (own_socket, own_bind)) = (admin(wanted), admin(runs));
    let others = [
        Waiting::new(&[Key("admin"), Key("socket")], AT_START, socket, own_socket),
        Waiting::new(&[Key("admin"), Key("bind")], AT_START, bind, own_bind),
        Waiting::new(
            &[Key("health"), Key("bind")],
            AT_START,
            or_off(wanted.health_bind),
            or_off(runs.health_bind),
        ),
        Waiting::new(
            &[Key("metrics"), Key("bind")],
            AT_START,
            or_off(wanted.metrics_bind),
            or_off(runs.metrics_bind),
        ),
        Waiting::new(
            &[Key("limits"), Key("upstream_idle_max")],
            AT_START,
            wanted.upstream_idle_max.to_string(),
            runs.upstream_idle_max.to_string(),
        ),
    ];
    workers
        .into_iter()
        .chain(others.into_iter().flatten())
        .collect()
}

/// What only a new socket would have.
fn socket(wanted: &Listener, opened: &Listener) -> Vec<Waiting> {
    let steps = |key| {
        [
            Step::Key("listener"),
            Step::Index(wanted.index),
            Step::Key(key),
        ]
    };
    let mode = |listener: &Listener| {
        listener
            .mode
            .map_or_else(|| "unset".to_owned(), |mode| format!("{mode:04o}"))
    };
    let backlogs = (wanted.backlog.to_string(), opened.backlog.to_string());
    let waiting = [
        Waiting::new(&steps("backlog"), WITH_SOCKET, backlogs.0, backlogs.1),
        Waiting::new(&steps("mode"), WITH_SOCKET, mode(wanted), mode(opened)),
    ];
    waiting.into_iter().flatten().collect()
}

/// Where the admin API is: its socket and its TCP address. The token is read again with each reload.
fn admin(settings: &Settings) -> (String, String) {
    let (mut socket, mut address) = (None, None);
    for bind in &settings.admin {
        match bind {
            AdminBind::Unix(path) => socket = Some(path.as_path()),
            AdminBind::Tcp { address: tcp, .. } => address = Some(*tcp),
        }
    }
    let socket = socket.map(Path::display);
    (
        socket.map_or_else(off, |socket| socket.to_string()),
        or_off(address),
    )
}

fn or_off(address: Option<SocketAddr>) -> String {
    address.map_or_else(off, |address| address.to_string())
}

fn off() -> String {
    "`off`".to_owned()
}

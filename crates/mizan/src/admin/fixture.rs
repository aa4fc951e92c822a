//! A running admin side for tests: real sockets, a fake process.

use super::{Account, AdminState, Control, Phase, ReloadReport, StoreView, bind, serve};
use crate::config::Source;
use crate::control::editor::Editor;
use crate::snapshot::{AdminBind, AskError, Asked, Current, Explained, Seen, Snapshot};
use crate::telemetry::{Metrics, ReloadResult, fixture};
use mizan_store::Store;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The token of the TCP socket.
pub(crate) const TOKEN: &str = "correct horse";

/// A fake process.
pub(crate) struct FakeControl {
    pub(crate) phase: Mutex<Phase>,
    pub(crate) report: Mutex<ReloadReport>,
    /// Where the last explanation was found.
    pub(crate) explained_on: Mutex<Option<std::thread::ThreadId>>,
}

impl Control for FakeControl {
    fn reload(&self, _: bool) -> Pin<Box<dyn Future<Output = ReloadReport> + Send>> {
        let report = self.last_reload();
        Box::pin(async move { report })
    }

    fn store(&self) -> Option<StoreView> {
        None
    }

    fn nodes(&self) -> Pin<Box<dyn Future<Output = Result<Vec<Account>, String>> + Send>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn last_reload(&self) -> ReloadReport {
        self.report.lock().expect("no panic").clone()
    }

    fn phase(&self) -> Phase {
        *self.phase.lock().expect("no panic")
    }

    fn config_path(&self) -> PathBuf {
        "/etc/mizan/mizan.toml".into()
    }

    fn config_text(&self) -> Vec<Source> {
        vec![Source::new(
            self.config_path(),
            "workers = 2\n[admin]\nbind = \"127.0.0.1:9902\"\ntoken = \"hunter2 hunter2 hun\"\n",
        )]
    }

    fn workers(&self) -> usize {
        5
    }

    fn connections(&self) -> u64 {
        3
    }

    /// This process has no data path: no route is taken.
    fn explain<'s>(
        &self,
        snapshot: &'s Snapshot,
        asked: &Asked,
    ) -> Result<Explained<'s>, AskError> {
        *self.explained_on.lock().expect("no panic") = Some(std::thread::current().id());
        match (&asked.pool, &asked.listener) {
            (Some(pool), _) => Err(AskError::UnknownPool(pool.clone())),
            (_, Some(listener)) => Err(AskError::UnknownListener(listener.clone())),
            (None, None) => Ok(Explained {
                region: None,
                offered: None,
                listener: &snapshot.listeners[0],
                assumed_listener: false,
                seen: Seen::default(),
                route: None,
                near: (Vec::new(), 0),
                answer: None,
                picked: None,
            }),
        }
    }
}

/// A running admin side.
pub(crate) struct Running {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) socket: PathBuf,
    /// API, health and metrics, health alone.
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) control: Arc<FakeControl>,
    pub(crate) state: AdminState,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Running {
    /// Starts with two pools: `api` (10.0.0.1:8000 of v1, 10.0.0.1:8001 of v2) and `web`.
    pub(crate) fn start() -> Self {
        Self::start_with(None)
    }

    /// The same with somebody who edits the store's table.
    pub(crate) fn start_with(editor: Option<Arc<Editor>>) -> Self {
        Self::start_whole(editor, None)
    }

    /// The same with a store.
    pub(crate) fn start_with_store(store: Arc<dyn Store>) -> Self {
        Self::start_whole(None, Some(store))
    }

    fn start_whole(editor: Option<Arc<Editor>>, store: Option<Arc<dyn Store>>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("run/admin.sock");
        let mut snapshot = snapshot();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        snapshot.settings.admin = vec![
            AdminBind::Unix(socket.clone()),
            AdminBind::Tcp {
                address: any,
                token: TOKEN.into(),
            },
        ];
        snapshot.settings.health_bind = Some(any);
        snapshot.settings.metrics_bind = Some(any);
        let listeners = bind(&snapshot.settings, None).expect("sockets");
        let addresses = listeners
            .iter()
            .filter_map(|listener| listener.local_address())
            .collect();
        let metrics = Metrics::new(2, Duration::from_secs(1_767_225_600));
        metrics.register(&snapshot);
        let report = ReloadReport {
            result: ReloadResult::Applied,
            generation: 1,
            at: "2026-01-01T00:00:00.000Z".into(),
            problems: Vec::new(),
            text: String::new(),
        };
        let control = Arc::new(FakeControl {
            phase: Mutex::new(Phase::Serving),
            report: Mutex::new(report),
            explained_on: Mutex::new(None),
        });
        let current = Arc::new(Current::new(Arc::new(snapshot)));
        let state = AdminState {
            current,
            metrics,
            control: control.clone(),
            editor,
            store,
        };
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(serve(state.clone(), listeners, stopped));
        Self {
            folder,
            socket,
            addresses,
            control,
            state,
            stop,
            task,
        }
    }

    pub(crate) async fn stop(self) -> tempfile::TempDir {
        self.stop.send(true).expect("it runs");
        self.task.await.expect("it ends by itself");
        self.folder
    }
}

pub(crate) fn snapshot() -> Snapshot {
    fixture::snapshot(
        &["web"],
        &[("api", &["v1", "v2"]), ("web", &[""])],
        &[("api", &["api"]), ("old", &[]), ("both", &["api", "web"])],
    )
}

//! What is on stage: the backends, the proxy in front of them, and the folder they live in.

use super::backend::State;
use super::children::Child;
use super::client::{Client, Fault};
use super::config::{Policy, Setup};
use super::ports::{Ports, Turn};
use crate::clock;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

/// The first backend's port, if it is free.
const BACKEND_PORT: u16 = 9001;
/// The port for `/readyz` and `/metrics`, if it is free.
const METRICS_PORT: u16 = 9901;
/// How long a child may take to listen.
const START_MAX: Duration = Duration::from_secs(10);
/// How long the proxy may take to stop; its own deadline is 10 s.
const STOP_MAX: Duration = Duration::from_secs(12);
const POLL: Duration = Duration::from_millis(5);

/// Why the laboratory could not go on.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// No port, no folder, no file, no child.
    #[error("{what}")]
    Io {
        /// What was to be done.
        what: String,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// A child that ended or did not listen in time.
    #[error("{0}")]
    Child(String),
    /// A backend or the proxy that did not answer as it should.
    #[error("{what}: {fault}")]
    Talk {
        /// What was to be done.
        what: String,
        /// Why it failed.
        fault: Fault,
    },
}

impl LabError {
    pub(super) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    pub(super) fn talk(what: impl Into<String>) -> impl FnOnce(Fault) -> Self {
        let what = what.into();
        move |fault| Self::Talk { what, fault }
    }
}

/// One demonstration backend.
#[derive(Debug)]
pub(super) struct Backend {
    pub(super) name: String,
    pub(super) address: SocketAddr,
    child: Option<Child>,
}

impl Backend {
    fn start(&mut self) -> Result<(), LabError> {
        let port = self.address.port().to_string();
        let command = ["lab-backend", "--port", &port, "--name", &self.name];
        let what = format!("start backend {}", self.name);
        let mut child = Child::spawn(&command, Stdio::inherit()).map_err(LabError::io(&*what))?;
        wait_until_ready(&what, &mut child, || {
            Client::connect(self.address, None).is_ok()
        })?;
        self.child = Some(child);
        Ok(())
    }

    /// What the proxy calls it, in `X-Upstream` and in its API.
    pub(super) fn key(&self) -> String {
        self.address.to_string()
    }

    /// Its process; none if it was killed.
    pub(super) fn id(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// kill -9.
    pub(super) fn kill(&mut self) -> Result<(), LabError> {
        match self.child.take() {
            Some(mut child) => child
                .kill()
                .map_err(LabError::io(format!("kill backend {}", self.name))),
            None => Ok(()),
        }
    }

    /// Starts it again after a kill.
    pub(super) fn revive(&mut self) -> Result<(), LabError> {
        if self.child.is_some() {
            Ok(())
        } else {
            self.start()
        }
    }

    /// Makes it ill, slow or well.
    pub(super) fn control(&self, healthy: bool, delay: Duration) -> Result<State, LabError> {
        let body = format!(
            r#"{{"healthy":{healthy},"delay_ms":{}}}"#,
            delay.as_millis()
        );
        self.ask("POST", &body)
    }

    pub(super) fn state(&self) -> Result<State, LabError> {
        self.ask("GET", "")
    }

    fn ask(&self, method: &str, body: &str) -> Result<State, LabError> {
        let failed = || LabError::talk(format!("{method} /control of backend {}", self.name));
        let answer = Client::connect(self.address, None)
            .and_then(|mut client| client.request(method, "/control", body));
        let answer = answer.map_err(failed())?;
        serde_json::from_slice(&answer.body)
            .map_err(|error| failed()(Fault::Before(error.to_string())))
    }
}

/// All that runs. Dropped, it leaves no process and no file.
#[derive(Debug)]
pub(super) struct Stage {
    /// Before `backends`: the proxy is stopped first.
    proxy: Option<Child>,
    pub(super) backends: Vec<Backend>,
    pub(super) setup: Setup,
    folder: PathBuf,
    /// Standard error of the proxy; inherited if none.
    log: Option<PathBuf>,
    /// Until all ports that were found free are taken.
    turn: Option<Turn>,
}

impl Stage {
    /// Finds ports (the proxy's from `port` on), makes the folder and starts the backends. With `quiet`, the
    /// proxy logs to a file.
    pub(super) fn build(port: u16, backends: usize, quiet: bool) -> Result<Self, LabError> {
        let turn = Some(Turn::wait().map_err(LabError::io("wait for another laboratory's start"))?);
        let mut ports = Ports::default();
        let mut free = |wanted| {
            ports
                .next_free(wanted)
                .map_err(LabError::io("find a free port"))
        };
        let proxy = free(port)?;
        let addresses = (0..backends)
            .map(|_| free(BACKEND_PORT))
            .collect::<Result<Vec<_>, _>>()?;
        let metrics = free(METRICS_PORT)?;
        let folder = std::env::temp_dir().join(format!("mizan-lab-{:08x}", clock::random() as u32));
        // Fails if it is there: nobody else's folder is used, and nobody else reads ours.
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&folder)
            .map_err(LabError::io(format!("create {}", folder.display())))?;
        let admin = folder.join("admin.sock");
        let setup = Setup {
            proxy,
            metrics,
            admin,
            policy: Policy::RoundRobin,
            backends: addresses.clone(),
        };
        let log = quiet.then(|| folder.join("mizan.log"));
        let mut stage = Self {
            proxy: None,
            backends: Vec::new(),
            setup,
            folder,
            log,
            turn,
        };
        for (index, address) in addresses.into_iter().enumerate() {
            let mut backend = Backend {
                name: format!("b{}", index + 1),
                address,
                child: None,
            };
            backend.start()?;
            stage.backends.push(backend);
        }
        Ok(stage)
    }

    pub(super) fn config_path(&self) -> PathBuf {
        self.folder.join("mizan.toml")
    }

    /// What the proxy logged, if it does not log to the terminal.
    pub(super) fn log(&self) -> Option<&Path> {
        self.log.as_deref()
    }

    /// Writes the configuration for `policy` and starts the proxy with it, as a user would: `mizan serve`.
    pub(super) fn serve(&mut self, policy: Policy) -> Result<(), LabError> {
        self.stop_proxy()?;
        self.setup.policy = policy;
        let path = self.config_path();
        fs::write(&path, self.setup.to_toml())
            .map_err(LabError::io(format!("write {}", path.display())))?;
        let errors = match &self.log {
            None => Stdio::inherit(),
            Some(log) => fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(log)
                .map(Stdio::from)
                .map_err(LabError::io(format!("open {}", log.display())))?,
        };
        let config = path.to_string_lossy().into_owned();
        let mut child = Child::spawn(&["serve", "--config", &config], errors)
            .map_err(LabError::io("start `mizan serve`"))?;
        wait_until_ready("`mizan serve`", &mut child, || is_ready(self.setup.metrics))?;
        self.proxy = Some(child);
        self.turn = None;
        Ok(())
    }

    /// SIGTERM to the proxy.
    pub(super) fn terminate_proxy(&mut self) -> Result<(), LabError> {
        match &mut self.proxy {
            Some(child) => child
                .terminate()
                .map_err(LabError::io("terminate `mizan serve`")),
            None => Ok(()),
        }
    }

    /// How the proxy ended, if it has.
    pub(super) fn proxy_ended(&mut self) -> Result<Option<ExitStatus>, LabError> {
        self.wait_for_proxy(Duration::ZERO)
    }

    /// Waits for the proxy's end; none if `limit` passes first.
    pub(super) fn wait_for_proxy(
        &mut self,
        limit: Duration,
    ) -> Result<Option<ExitStatus>, LabError> {
        let Some(child) = &mut self.proxy else {
            return Ok(None);
        };
        let ended = child
            .wait(limit)
            .map_err(LabError::io("wait for `mizan serve`"))?;
        if ended.is_some() {
            self.proxy = None;
        }
        Ok(ended)
    }

    fn stop_proxy(&mut self) -> Result<(), LabError> {
        self.terminate_proxy()?;
        self.wait_for_proxy(STOP_MAX)?;
        // Killed if it has not ended.
        self.proxy = None;
        Ok(())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // Nothing is to be done about a failure here; the children die with this process in any case.
        let _ = self.stop_proxy();
        self.backends.clear();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Waits until a child that was just started is `ready`.
fn wait_until_ready(
    what: &str,
    child: &mut Child,
    ready: impl Fn() -> bool,
) -> Result<(), LabError> {
    let end = clock::now() + START_MAX;
    while !ready() {
        if let Some(status) = child.ended().map_err(LabError::io(what))? {
            let text = format!("{what}: it ended at once ({status})");
            return Err(LabError::Child(text));
        }
        if clock::now() >= end {
            let text = format!("{what}: not ready after {START_MAX:?}");
            return Err(LabError::Child(text));
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}

/// Whether the proxy is ready: it listens before it is.
fn is_ready(metrics: SocketAddr) -> bool {
    let answer = Client::connect(metrics, None).and_then(|mut client| client.get("/readyz"));
    answer.is_ok_and(|answer| answer.status == 200)
}

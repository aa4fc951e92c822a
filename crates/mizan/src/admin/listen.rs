//! The admin side's sockets.
//!
//! All are opened by [`bind`] before anything is served, so that a start fails early and whole.

use super::AdminState;
use super::api;
use super::bounded::{Bounded, Place, Scraper};
use super::guard::{Caller, Guard};
use super::store::{self, Stopping};
use super::table::Author;
use crate::clock;
use crate::snapshot::{AdminBind, Settings};
use crate::telemetry::OncePerSecond;
use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use socket2::{Domain, SockAddr, Socket, Type};
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

/// Callers at once on one socket, who watch the store apart; more wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 256;

/// A caller must send a request's head within this time.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// A caller must take an answer within this time.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Between two tries to accept when that fails: the first time, and at most.
const REST: Duration = Duration::from_millis(100);
const REST_MAX: Duration = Duration::from_secs(1);

/// What callers have to end when the process does.
const GRACE: Duration = Duration::from_secs(1);

/// What chooses another place for the API's Unix socket.
const SOCKET_KEY: &str = "`--admin`, or `[admin] socket` in the configuration";

/// Why a socket could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process answers on the Unix socket.
    #[error("another instance answers on {path} (choose another place with {SOCKET_KEY})", path = .0.display())]
    InUse(PathBuf),
    /// Something that is no socket has the path.
    #[error("{path} is not a socket and is left alone (choose another place with {SOCKET_KEY})", path = .0.display())]
    NotASocket(PathBuf),
    /// The folder or socket could not be made.
    #[error("cannot open {what} (choose another place with {key})")]
    Open {
        /// What was to be opened.
        what: String,
        /// What chooses another place.
        key: &'static str,
        /// Why not.
        source: io::Error,
    },
}

/// An open socket and what it serves.
#[derive(Debug)]
pub struct AdminListener {
    socket: Listening,
    surfaces: Surfaces,
}

#[derive(Debug)]
enum Listening {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener, SocketFile),
}

/// What a socket serves.
#[derive(Clone, Debug, Default)]
struct Surfaces {
    api: Option<Guard>,
    health: bool,
    metrics: bool,
}

impl Surfaces {
    /// What there is to ask for, to tell those who asked for something else.
    fn paths(&self) -> &'static str {
        match (&self.api, self.health, self.metrics) {
            (Some(_), ..) => "/v1/openapi.json lists all paths",
            (None, true, true) => "there are /livez, /readyz and /metrics",
            (None, true, false) => "there are /livez and /readyz",
            (None, false, _) => "there is /metrics",
        }
    }
}

/// Opens all sockets that `settings` names. `admin` takes the place of the API's Unix socket.
///
/// # Errors
/// If one of them cannot be opened.
pub fn bind(settings: &Settings, admin: Option<&Path>) -> Result<Vec<AdminListener>, BindError> {
    let mut listeners = Vec::new();
    if let Some(path) = admin {
        listeners.push(AdminListener::unix(path)?);
    }
    for bind in &settings.admin {
        match bind {
            AdminBind::Unix(path) if admin.is_none() => listeners.push(AdminListener::unix(path)?),
            AdminBind::Unix(_) => {}
            AdminBind::Tcp { address, .. } => {
                let guard = Guard::Tcp(*address);
                let surfaces = Surfaces {
                    api: Some(guard),
                    ..Surfaces::default()
                };
                listeners.push(AdminListener::tcp(*address, surfaces, "`[admin] bind`")?);
            }
        }
    }
    let (health, metrics) = (settings.health_bind, settings.metrics_bind);
    if let Some(address) = health {
        let surfaces = Surfaces {
            health: true,
            metrics: metrics == health,
            api: None,
        };
        let key = if surfaces.metrics {
            "`[health] bind` and `[metrics] bind`"
        } else {
            "`[health] bind`"
        };
        listeners.push(AdminListener::tcp(address, surfaces, key)?);
    }
    if let Some(address) = metrics.filter(|_| metrics != health) {
        let surfaces = Surfaces {
            metrics: true,
            ..Surfaces::default()
        };
        listeners.push(AdminListener::tcp(address, surfaces, "`[metrics] bind`")?);
    }
    Ok(listeners)
}

impl AdminListener {
    fn tcp(address: SocketAddr, surfaces: Surfaces, key: &'static str) -> Result<Self, BindError> {
        let listener = std::net::TcpListener::bind(address)
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .map_err(|source| BindError::Open {
                what: address.to_string(),
                key,
                source,
            })?;
        Ok(Self {
            socket: Listening::Tcp(listener),
            surfaces,
        })
    }

    fn unix(path: &Path) -> Result<Self, BindError> {
        let (listener, file) = unix_socket(path)?;
        let surfaces = Surfaces {
            api: Some(Guard::Unix),
            ..Surfaces::default()
        };
        Ok(Self {
            socket: Listening::Unix(listener, file),
            surfaces,
        })
    }

    /// Where it listens, if on TCP: port 0 has become a real one.
    pub fn local_address(&self) -> Option<SocketAddr> {
        match &self.socket {
            Listening::Tcp(listener) => listener.local_addr().ok(),
            Listening::Unix(..) => None,
        }
    }

    /// Serves until `stop` turns true.
    pub(super) async fn serve(self, state: AdminState, stop: watch::Receiver<bool>) {
        let router = router(state, self.surfaces);
        match Accepting::new(self.socket) {
            Ok(socket) => accept(&socket, router, stop).await,
            Err(error) => tracing::error!(%error, "an admin socket is lost"),
        }
    }
}

/// A socket on the runtime that serves it, the control loop's.
enum Accepting {
    Tcp(tokio::net::TcpListener),
    Unix(
        tokio::net::UnixListener,
        #[expect(dead_code, reason = "removes the file when dropped")] SocketFile,
    ),
}

/// A caller's connection.
pub(super) trait Conversation: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Conversation for S {}

impl Accepting {
    fn new(socket: Listening) -> io::Result<Self> {
        Ok(match socket {
            Listening::Tcp(listener) => Self::Tcp(tokio::net::TcpListener::from_std(listener)?),
            Listening::Unix(listener, file) => {
                Self::Unix(tokio::net::UnixListener::from_std(listener)?, file)
            }
        })
    }

    async fn next(&self) -> io::Result<(Box<dyn Conversation>, Caller)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                let stream = Bounded::new(stream, ANSWER_TIMEOUT);
                Ok((Box::new(stream), Caller::Token(peer)))
            }
            Self::Unix(listener, _) => {
                let (stream, _) = listener.accept().await?;
                let caller = Caller::User(stream.peer_cred()?.uid());
                let stream = Bounded::new(stream, ANSWER_TIMEOUT);
                Ok((Box::new(stream), caller))
            }
        }
    }
}

fn router(state: AdminState, surfaces: Surfaces) -> Router {
    let mut router = Router::new();
    let paths = surfaces.paths();
    if let Some(guard) = surfaces.api {
        router = router.merge(api::routes(guard, &state));
    }
    if surfaces.health {
        router = router.merge(api::health_routes());
    }
    if surfaces.metrics {
        router = router.merge(api::metrics_routes());
    }
    api::with_fallbacks(router, paths).with_state(state)
}

/// Accepts and serves, one task a caller.
async fn accept(socket: &Accepting, router: Router, stop: watch::Receiver<bool>) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let scrapers = Arc::new(Semaphore::new(api::SCRAPERS_MAX));
    let watches = Arc::new(Semaphore::new(store::WATCHES_MAX));
    let mut callers = JoinSet::new();
    let accepting = async {
        let mut rest = REST;
        loop {
            let Ok(permit) = permits.clone().acquire_owned().await else {
                return;
            };
            match socket.next().await {
                Ok((stream, caller)) => {
                    rest = REST;
                    let known = Known {
                        author: caller.author(),
                        caller,
                        scraper: Scraper::new(&scrapers),
                        place: Place::new(permit, &watches),
                        stopping: Stopping(stop.clone()),
                    };
                    callers.spawn(converse(stream, router.clone(), known));
                }
                Err(error) => {
                    say_not_accepted(&error);
                    // Out of descriptors, most likely: waiting is all that helps.
                    tokio::time::sleep(rest).await;
                    rest = (rest * 2).min(REST_MAX);
                }
            }
            while callers.try_join_next().is_some() {}
        }
    };
    tokio::select! {
        () = accepting => {}
        () = stopped(stop.clone()) => {}
    }
    let ending = async { while callers.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(GRACE, ending).await;
}

fn say_not_accepted(error: &io::Error) {
    static SAID: OncePerSecond = OncePerSecond::new();
    if let Some(silent) = SAID.allow(clock::now()) {
        tracing::warn!(%error, silent, "an admin connection was not accepted");
    }
}

/// Returns when the process ends its admin side, or is gone.
pub(super) async fn stopped(mut stop: watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// What the API knows of a caller, with each of its requests. It is put to each as it comes: layers of a router would copy
/// all of its paths for each connection.
#[derive(Clone)]
pub(super) struct Known {
    pub(super) caller: Caller,
    pub(super) author: Author,
    pub(super) scraper: Scraper,
    pub(super) place: Place,
    pub(super) stopping: Stopping,
}

pub(super) async fn converse(stream: Box<dyn Conversation>, router: Router, known: Known) {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT);
    let stop = known.stopping.0.clone();
    let routes = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        let known = known.clone();
        let extensions = request.extensions_mut();
        extensions.insert(known.caller);
        extensions.insert(known.author);
        extensions.insert(known.scraper);
        extensions.insert(known.place);
        extensions.insert(known.stopping);
        routes.call(request)
    });
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = stopped(stop) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "an admin connection ended badly");
    }
}

/// A Unix socket's file, removed on drop while it is still ours.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    inode: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|file| file.ino() == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn unix_socket(path: &Path) -> Result<(std::os::unix::net::UnixListener, SocketFile), BindError> {
    let failed = |source| BindError::Open {
        what: path.display().to_string(),
        key: SOCKET_KEY,
        source,
    };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    if let Ok(file) = fs::symlink_metadata(path) {
        if !file.file_type().is_socket() {
            return Err(BindError::NotASocket(path.to_owned()));
        }
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(BindError::InUse(path.to_owned()));
        }
        fs::remove_file(path).map_err(failed)?;
    }
    listen(path).map_err(failed)
}

/// The mode is set between `bind` and `listen`, when nobody can connect yet.
fn listen(path: &Path) -> io::Result<(std::os::unix::net::UnixListener, SocketFile)> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    let inode = fs::symlink_metadata(path)?.ino();
    let file = SocketFile {
        path: path.to_owned(),
        inode,
    };
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    socket.listen(128)?;
    socket.set_nonblocking(true)?;
    Ok((socket.into(), file))
}

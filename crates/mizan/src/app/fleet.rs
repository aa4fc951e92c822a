//! The workers and their listening sockets.

use super::AppError;
use crate::proxy::cut::Cut;
use crate::proxy::listen::{self, OpenCount};
use crate::proxy::worker::{self, Message, Padded, Shared};
use crate::snapshot::{Bind, Current, Listener, Snapshot};
use crate::telemetry::{AccessLog, Metrics, chain};
use rustix::process::Resource;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use tokio::sync::{mpsc, oneshot};

/// All workers of the process.
#[derive(Debug)]
pub(super) struct Fleet {
    pub(super) shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Listeners that are open, as they were when their sockets were opened.
    open: Vec<Arc<Listener>>,
}

/// Sockets that were opened but are not yet accepted on: one for each worker.
pub(super) type Opened = Vec<(Arc<Listener>, Vec<OwnedFd>)>;

impl Fleet {
    /// Opens every listener, then starts the workers on them.
    pub(super) fn start(
        current: &Arc<Current>,
        metrics: &Arc<Metrics>,
        access_log: &Arc<AccessLog>,
    ) -> Result<Self, AppError> {
        let snapshot = current.load();
        let workers = snapshot.settings.workers;
        let (mailboxes, inboxes): (Vec<_>, Vec<_>) =
            (0..workers).map(|_| mpsc::unbounded_channel()).unzip();
        let shared = Arc::new(Shared {
            current: Arc::clone(current),
            metrics: Arc::clone(metrics),
            closing: AtomicBool::new(false),
            connections: (0..workers).map(|_| Padded::default()).collect(),
            in_flight: (0..workers).map(|_| Padded::default()).collect(),
            mailboxes,
            clients_max: clients_max(rustix::process::getrlimit(Resource::Nofile).current),
            sessions: OpenCount::default(),
            series: Mutex::new(None),
        });
        let mut fleet = Self {
            shared,
            threads: Vec::new(),
            open: Vec::new(),
        };
        let opened = fleet.open(&snapshot)?;
        for (index, inbox) in inboxes.into_iter().enumerate() {
            let shared = Arc::clone(&fleet.shared);
            let logger = access_log.logger();
            let thread = std::thread::Builder::new()
                .name(format!("mizan-worker-{index}"))
                .spawn(move || {
                    if let Err(error) = worker::run(index, shared, inbox, Some(logger)) {
                        tracing::error!(worker = index, %error, "a worker could not start");
                    }
                })
                .map_err(|error| AppError::Start("a worker", error))?;
            fleet.threads.push(thread);
        }
        fleet.listen(opened);
        Ok(fleet)
    }

    /// Opens the sockets of listeners that `snapshot` has and the fleet does not. Nothing is accepted yet.
    ///
    /// # Errors
    /// Which socket could not be opened and why, as a reload reports it.
    pub(super) fn open_missing(&self, snapshot: &Snapshot) -> Result<Opened, String> {
        self.open(snapshot).map_err(|error| chain(&error))
    }

    fn open(&self, snapshot: &Snapshot) -> Result<Opened, AppError> {
        let missing = snapshot
            .listeners
            .iter()
            .filter(|listener| !self.open.iter().any(|open| open.bind == listener.bind));
        missing
            .map(|listener| match self.open_listener(listener) {
                Ok(sockets) => Ok((Arc::clone(listener), sockets)),
                Err(source) => Err(AppError::Listen {
                    listener: listener.name.to_string(),
                    bind: listener.bind.to_string(),
                    hint: hint(&listener.bind, source.kind()),
                    source,
                }),
            })
            .collect()
    }

    fn open_listener(&self, listener: &Listener) -> std::io::Result<Vec<OwnedFd>> {
        // Our own listener on this port, on an address that overlaps, is no stranger.
        if !self
            .open
            .iter()
            .any(|own| own.bind.shares_port(&listener.bind))
        {
            listen::expect_free(listener)?;
        }
        open_for_all(listener, self.shared.mailboxes.len())
    }

    /// Accepts on sockets that were opened.
    pub(super) fn listen(&mut self, opened: Opened) {
        for (listener, sockets) in opened {
            let open = OpenCount::default();
            for (mailbox, socket) in self.shared.mailboxes.iter().zip(sockets) {
                let bind = listener.bind.clone();
                let _ = mailbox.send(Message::Listen(bind, socket, open.clone()));
            }
            self.open.push(listener);
        }
    }

    /// The listeners that are open, as they were when their sockets were opened.
    pub(super) fn listeners(&self) -> &[Arc<Listener>] {
        &self.open
    }

    /// Closes the listeners for which `keep` is false, after their accept queues were emptied.
    pub(super) async fn close(&mut self, keep: impl Fn(&Bind) -> bool) {
        let (kept, closed): (Vec<_>, Vec<_>) = std::mem::take(&mut self.open)
            .into_iter()
            .partition(|listener| keep(&listener.bind));
        self.open = kept;
        // No new connection may come to a queue that is being emptied: a path is taken away first, and a TCP listener
        // keeps new ones out by itself; over UDP what waits is sent on.
        for listener in &closed {
            if let Bind::Unix(path) = &listener.bind {
                let _ = std::fs::remove_file(path);
            }
        }
        // All at once: each waits a little for handshakes that are under way.
        let mut answers = Vec::new();
        for listener in closed {
            answers.extend(self.send_all(|done| Message::Unlisten(listener.bind.clone(), done)));
        }
        all(answers).await;
    }

    /// Returns when every worker uses the snapshot in force for its next requests.
    pub(super) async fn refresh(&self) {
        self.ask_all(Message::Refresh).await;
    }

    async fn ask_all(&self, message: impl Fn(oneshot::Sender<()>) -> Message) {
        all(self.send_all(message)).await;
    }

    /// Tells all workers; what they will answer.
    fn send_all(
        &self,
        message: impl Fn(oneshot::Sender<()>) -> Message,
    ) -> Vec<oneshot::Receiver<()>> {
        let mut answers = Vec::new();
        for mailbox in &self.shared.mailboxes {
            let (done, answer) = oneshot::channel();
            if mailbox.send(message(done)).is_ok() {
                answers.push(answer);
            }
        }
        answers
    }

    /// From now on answers carry `Connection: close`.
    pub(super) fn set_closing(&self) {
        self.shared.closing.store(true, Ordering::Relaxed);
    }

    /// Ends all workers, and cuts what is in flight.
    pub(super) fn stop(&mut self, why: Cut) {
        for mailbox in &self.shared.mailboxes {
            let _ = mailbox.send(Message::Stop(why));
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Waits until all are answered; a worker that is gone counts as one that has.
async fn all(answers: Vec<oneshot::Receiver<()>>) {
    for answer in answers {
        let _ = answer.await;
    }
}

/// How many clients fit below `descriptors`: a tenth, but 32 at least, is kept for backends, admin and files, so that
/// those who are in are served.
fn clients_max(descriptors: Option<u64>) -> usize {
    descriptors.map_or(usize::MAX, |all| {
        let kept = (all / 10).max(32).min(all / 2);
        usize::try_from(all - kept).unwrap_or(usize::MAX)
    })
}

/// What it takes to open `bind`, where the failure's kind tells.
fn hint(bind: &Bind, kind: ErrorKind) -> &'static str {
    match bind {
        Bind::Tcp(address) | Bind::Udp(address)
            if address.port() < 1024 && kind == ErrorKind::PermissionDenied =>
        {
            "; a port below 1024 needs root or the capability CAP_NET_BIND_SERVICE"
        }
        _ => "",
    }
}

/// One socket for each worker: of its own on an address, shared on a Unix path, which only one can be bound to.
fn open_for_all(listener: &Listener, workers: usize) -> std::io::Result<Vec<OwnedFd>> {
    match listener.bind {
        Bind::Tcp(_) | Bind::Udp(_) => (0..workers).map(|_| listen::open(listener)).collect(),
        Bind::Unix(_) => {
            let first = listen::open(listener)?;
            let mut sockets = (1..workers)
                .map(|_| first.try_clone())
                .collect::<std::io::Result<Vec<_>>>()?;
            sockets.push(first);
            Ok(sockets)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_needs_a_right_says_which() {
        let bind = |text: &str| Bind::Tcp(text.parse().expect("an address"));
        let denied = ErrorKind::PermissionDenied;
        assert!(hint(&bind("0.0.0.0:80"), denied).contains("CAP_NET_BIND_SERVICE"));
        assert_eq!(hint(&bind("0.0.0.0:8000"), denied), "");
        assert_eq!(hint(&bind("0.0.0.0:80"), ErrorKind::AddrInUse), "");
        assert_eq!(hint(&Bind::Unix("/run/x.sock".into()), denied), "");
    }
}

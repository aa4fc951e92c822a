//! The thread that writes the access log, and the handle that starts, turns and ends it.

use super::AccessLogger;
use super::syslog::Syslog;
use crate::snapshot::LogTarget;
use crate::telemetry::json::TimeText;
use crate::telemetry::logging::OncePerSecond;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Buffers that wait for the thread: about a megabyte.
pub const BUFFERS_MAX: usize = 64;

/// What goes to the thread.
#[derive(Debug)]
pub(super) enum Message {
    /// Whole lines, and how many.
    Lines {
        /// The lines.
        text: Vec<u8>,
        /// How many.
        lines: u64,
    },
    /// Look at [`Shared`].
    Wake,
}

/// Where lines go.
pub(super) trait Lines {
    /// Writes `text`, which is that many lines: how many were lost, and why the last of them.
    fn write_lines(&mut self, text: &[u8], lines: u64) -> (u64, Option<io::Error>);
}

/// A stream takes all or is broken.
pub(super) struct Stream<W>(pub(super) W);

impl<W: Write> Lines for Stream<W> {
    fn write_lines(&mut self, text: &[u8], lines: u64) -> (u64, Option<io::Error>) {
        match self.0.write_all(text).and_then(|()| self.0.flush()) {
            Ok(()) => (0, None),
            Err(error) => (lines, Some(error)),
        }
    }
}

type Sink = Box<dyn Lines + Send>;

/// What the handle tells the thread beside the queue, which may be full.
struct Shared {
    /// A sink to go on with; `Some(None)` is off.
    next: Mutex<Option<Option<Sink>>>,
    changed: AtomicBool,
    closing: AtomicBool,
    dropped: Arc<AtomicU64>,
}

/// The access log of a process. Its thread lives as long as the process: a reload turns it to another
/// target, or off, without loss.
pub struct AccessLog {
    sender: SyncSender<Message>,
    shared: Arc<Shared>,
    target: Mutex<Option<LogTarget>>,
    ended: Mutex<Receiver<()>>,
}

impl std::fmt::Debug for AccessLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccessLog")
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}

impl AccessLog {
    /// Starts the thread. `dropped` counts lost lines ([`super::super::Metrics::access_log_dropped`]).
    ///
    /// # Errors
    /// If the file cannot be opened or the thread not started.
    pub fn start(target: Option<&LogTarget>, dropped: Arc<AtomicU64>) -> io::Result<Arc<Self>> {
        let sink = target.map(open).transpose()?;
        Self::start_with(sink, target.cloned(), dropped)
    }

    pub(super) fn start_with(
        sink: Option<Sink>,
        target: Option<LogTarget>,
        dropped: Arc<AtomicU64>,
    ) -> io::Result<Arc<Self>> {
        let (sender, receiver) = sync_channel(BUFFERS_MAX);
        let (end, ended) = sync_channel(1);
        let shared = Arc::new(Shared {
            next: Mutex::default(),
            changed: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            dropped,
        });
        let thread = Thread {
            receiver,
            shared: shared.clone(),
            sink,
        };
        std::thread::Builder::new()
            .name("access-log".into())
            .spawn(move || {
                thread.run();
                let _ = end.send(());
            })?;
        Ok(Arc::new(Self {
            sender,
            shared,
            target: Mutex::new(target),
            ended: Mutex::new(ended),
        }))
    }

    /// A worker's end.
    pub fn logger(&self) -> AccessLogger {
        AccessLogger {
            buffer: Vec::new(),
            lines: 0,
            time: TimeText::default(),
            sender: self.sender.clone(),
            dropped: self.shared.dropped.clone(),
        }
    }

    /// Turns the log to `target`, or off. What was handed over before may land in either.
    ///
    /// # Errors
    /// If the file cannot be opened; then the log stays as it was.
    pub fn configure(&self, target: Option<&LogTarget>) -> io::Result<()> {
        let mut current = self.target.lock().unwrap_or_else(PoisonError::into_inner);
        if current.as_ref() == target {
            return Ok(());
        }
        self.turn(target.map(open).transpose()?);
        *current = target.cloned();
        Ok(())
    }

    /// Opens the log file anew, after a rotation moved it away (SIGUSR1).
    ///
    /// # Errors
    /// If the file cannot be opened; then lines go on to the old one.
    pub fn reopen(&self) -> io::Result<()> {
        let current = self.target.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(target) = &*current {
            self.turn(Some(open(target)?));
        }
        Ok(())
    }

    /// Writes what was handed over and ends the thread; waits for that up to `timeout`. `false` if the
    /// thread was not done by then.
    pub fn close(&self, timeout: Duration) -> bool {
        self.shared.closing.store(true, Ordering::Release);
        let _ = self.sender.try_send(Message::Wake);
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.recv_timeout(timeout).is_ok()
    }

    fn turn(&self, sink: Option<Sink>) {
        *self
            .shared
            .next
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(sink);
        self.shared.changed.store(true, Ordering::Release);
        // A full queue wakes the thread just as well.
        let _ = self.sender.try_send(Message::Wake);
    }
}

fn open(target: &LogTarget) -> io::Result<Sink> {
    Ok(match target {
        LogTarget::Stdout => Box::new(Stream(io::stdout())),
        LogTarget::File(path) => Box::new(Stream(append(path)?)),
        LogTarget::Syslog(path) => Box::new(Syslog::open(path)?),
    })
}

/// Opens without waiting, as for a FIFO until somebody reads it: the caller is the control loop. Writes may
/// wait, since only the log's own thread does them. The error names the path: at start, reload and
/// reopening nothing else would.
fn append(path: &Path) -> io::Result<File> {
    let opened = OpenOptions::new()
        .append(true)
        .create(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)
        .and_then(|file| {
            fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
            Ok(file)
        });
    opened.map_err(|error| {
        let is_fifo = std::fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo());
        let is_unread = is_fifo && error.raw_os_error() == Some(Errno::NXIO.raw_os_error());
        let why = if is_unread {
            "nobody reads this FIFO; start its reader first".to_owned()
        } else {
            error.to_string()
        };
        io::Error::new(error.kind(), format!("{}: {why}", path.display()))
    })
}

struct Thread {
    receiver: Receiver<Message>,
    shared: Arc<Shared>,
    sink: Option<Sink>,
}

impl Thread {
    fn run(mut self) {
        while let Ok(message) = self.receiver.recv() {
            self.take(message);
            if self.shared.closing.load(Ordering::Acquire) {
                while let Ok(message) = self.receiver.try_recv() {
                    self.take(message);
                }
                return;
            }
        }
    }

    fn take(&mut self, message: Message) {
        if self.shared.changed.swap(false, Ordering::AcqRel) {
            let mut next = self
                .shared
                .next
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            if let Some(sink) = next.take() {
                self.sink = sink;
            }
        }
        let Message::Lines { text, lines } = message else {
            return;
        };
        let Some(sink) = &mut self.sink else {
            return;
        };
        let (lines, error) = sink.write_lines(&text, lines);
        if let Some(error) = error {
            self.shared.dropped.fetch_add(lines, Ordering::Relaxed);
            static FAILED: OncePerSecond = OncePerSecond::new();
            if let Some(silent) = FAILED.allow(crate::clock::now()) {
                tracing::error!(%error, lines, silent, "access log lines lost: cannot write");
            }
        }
    }
}

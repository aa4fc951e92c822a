//! The thread that writes Mizan's own log, and the queue before it.
//!
//! Standard error may be a pipe that nobody reads, and a write to a full one waits. So this thread alone
//! writes there, and nobody waits for it: when [`QUEUE_BYTES_MAX`] are in the queue, lines are dropped and
//! counted, and the log says how many as soon as there is room again.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Bytes that wait for the thread: some twenty thousand lines.
pub const QUEUE_BYTES_MAX: usize = 4 * 1024 * 1024;

enum Message {
    Line(Vec<u8>),
    Close,
}

/// The log's end for those who log. Writing to it does not wait and does not fail.
#[derive(Debug)]
pub struct LogQueue {
    sender: Sender<Message>,
    /// Bytes in the queue.
    queued: Arc<AtomicUsize>,
    dropped: &'static AtomicU64,
    ended: Mutex<Receiver<()>>,
}

impl LogQueue {
    /// Starts a thread that writes to `sink`; `dropped` counts lost lines.
    pub(super) fn start(
        sink: impl Write + Send + 'static,
        dropped: &'static AtomicU64,
    ) -> io::Result<Arc<Self>> {
        let (queue, writer) = pair(sink, dropped);
        std::thread::Builder::new()
            .name("log".into())
            .spawn(move || writer.run())?;
        Ok(Arc::new(queue))
    }

    /// A line that is no event: why the process ends.
    pub fn print(&self, text: &str) {
        self.put(format!("{text}\n").into_bytes());
    }

    /// Writes what is in the queue and ends the thread; waits for that up to `timeout`. `false` if the
    /// thread was not done by then.
    pub fn close(&self, timeout: Duration) -> bool {
        let _ = self.sender.send(Message::Close);
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.recv_timeout(timeout).is_ok()
    }

    fn put(&self, line: Vec<u8>) {
        let bytes = line.len();
        let queued = self.queued.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if queued > QUEUE_BYTES_MAX || self.sender.send(Message::Line(line)).is_err() {
            self.queued.fetch_sub(bytes, Ordering::Relaxed);
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The formatter hands over whole lines.
impl Write for &LogQueue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.put(line.to_vec());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The thread's side.
struct LogWriter<S> {
    sink: S,
    receiver: Receiver<Message>,
    queued: Arc<AtomicUsize>,
    dropped: &'static AtomicU64,
    /// How many of the dropped the log has told of.
    told: u64,
    end: Sender<()>,
}

fn pair<S: Write>(sink: S, dropped: &'static AtomicU64) -> (LogQueue, LogWriter<S>) {
    let (sender, receiver) = channel();
    let (end, ended) = channel();
    let queued = Arc::<AtomicUsize>::default();
    let queue = LogQueue {
        sender,
        queued: Arc::clone(&queued),
        dropped,
        ended: Mutex::new(ended),
    };
    let writer = LogWriter {
        sink,
        receiver,
        queued,
        dropped,
        told: 0,
        end,
    };
    (queue, writer)
}

impl<S: Write> LogWriter<S> {
    fn run(mut self) {
        while let Ok(Message::Line(line)) = self.receiver.recv() {
            self.write(&line);
        }
        // What was logged since, such as that lines were dropped.
        while let Ok(Message::Line(line)) = self.receiver.try_recv() {
            self.write(&line);
        }
        let _ = self.end.send(());
    }

    fn write(&mut self, line: &[u8]) {
        let written = self.sink.write_all(line);
        let queued = self.queued.fetch_sub(line.len(), Ordering::Relaxed) - line.len();
        if written.is_err() {
            // Not told now: that line would be lost just the same, and be told of, without end.
            self.dropped.fetch_add(1, Ordering::Relaxed);
        } else if queued < QUEUE_BYTES_MAX / 2 {
            self.tell_dropped();
        }
    }

    /// Through the queue like any other: it takes the log's form, and its place is after what was kept.
    fn tell_dropped(&mut self) {
        let dropped = self.dropped.load(Ordering::Relaxed);
        let lines = dropped - self.told;
        if lines > 0 {
            self.told = dropped;
            tracing::warn!(
                lines,
                "lines of this log were dropped: standard error was not read, or could not be written"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_find_no_room_are_dropped_and_the_log_says_how_many() {
        static DROPPED: AtomicU64 = AtomicU64::new(0);
        let mut sink = Vec::new();
        let (queue, writer) = pair(&mut sink, &DROPPED);
        let queue = Arc::new(queue);
        let long = "x".repeat(QUEUE_BYTES_MAX / 2 - 1);
        for text in [&long, &long, "one", "two"] {
            queue.print(text);
        }
        assert_eq!(DROPPED.load(Ordering::Relaxed), 2);
        // The writer runs here, so that its own event meets this test's log. Nobody waits for the end.
        assert!(!queue.close(Duration::ZERO));
        let subscriber = tracing_subscriber::fmt().with_writer(Arc::clone(&queue));
        tracing::subscriber::with_default(subscriber.finish(), || writer.run());
        let text = String::from_utf8(sink).expect("UTF-8");
        let last = text.lines().nth(2).expect("a line after those kept");
        assert!(last.contains("dropped") && last.contains("lines=2"));
        assert_eq!(text.lines().count(), 3);
    }

    #[test]
    fn a_sink_that_is_stuck_holds_neither_those_who_log_nor_the_end() {
        static DROPPED: AtomicU64 = AtomicU64::new(0);
        let (reader, sink) = io::pipe().expect("a pipe");
        let queue = LogQueue::start(sink, &DROPPED).expect("a thread");
        let line = "x".repeat(64 * 1024);
        for _ in 0..100 {
            queue.print(&line);
        }
        assert!(DROPPED.load(Ordering::Relaxed) > 0);
        assert!(!queue.close(Duration::from_millis(10)));
        drop(reader);
    }

    #[test]
    fn closing_writes_what_was_logged_before() {
        static DROPPED: AtomicU64 = AtomicU64::new(0);
        let (reader, sink) = io::pipe().expect("a pipe");
        let queue = LogQueue::start(sink, &DROPPED).expect("a thread");
        queue.print("stopped: 0 requests were cut");
        assert!(queue.close(Duration::from_secs(10)));
        let text = io::read_to_string(reader).expect("UTF-8");
        assert_eq!(text, "stopped: 0 requests were cut\n");
    }
}

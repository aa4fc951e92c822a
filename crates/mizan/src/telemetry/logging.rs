//! Mizan's own log: what changed and what is wrong, to standard error. Requests are in the access log.

mod queue;

pub use queue::{LogQueue, QUEUE_BYTES_MAX};

use clap::ValueEnum;
use mizan_core::time::Instant;
use std::error::Error;
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tracing::subscriber::{SetGlobalDefaultError, set_global_default};
use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Text on a terminal, JSON elsewhere.
    #[default]
    Auto,
    /// For people.
    Text,
    /// One object a line.
    Json,
}

/// The least that is logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// What wakes somebody.
    Error,
    /// And what degrades the service.
    Warn,
    /// And changes of state.
    #[default]
    Info,
    /// And what led to them.
    Debug,
    /// And all else.
    Trace,
}

impl LogLevel {
    fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// Why there is no log.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    /// The variable cannot be read as a filter. (The library's own words say less, and twice.)
    #[error(
        "MIZAN_LOG is `{0}`; write a level (error, warn, info, debug, trace), or some such as \
         info,mizan::prober=debug"
    )]
    Filter(String),
    /// The process has a log already.
    #[error("cannot start the log")]
    Started(#[from] SetGlobalDefaultError),
    /// Its thread could not be started.
    #[error("cannot start the log's thread")]
    Thread(#[source] io::Error),
}

/// Lines that the process's log lost.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Lines that the process's log lost since the start, because standard error was not read or could not be
/// written.
pub(crate) fn dropped_lines() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// Sends the process's log to standard error, through a queue that nobody waits for. What is given back is
/// closed when the process ends, or the last lines are lost. `MIZAN_LOG` chooses what is logged, as in
/// `MIZAN_LOG=info,mizan::prober=debug`; without it, `level` holds.
///
/// # Errors
/// If `MIZAN_LOG` is wrong, the process has a log already, or its thread cannot be started.
pub fn init_logging(format: LogFormat, level: LogLevel) -> Result<Arc<LogQueue>, LoggingError> {
    let chosen = std::env::var_os("MIZAN_LOG").filter(|text| !text.is_empty());
    let filter = match chosen {
        Some(text) => filter(&text.to_string_lossy())?,
        // What the library of HTTP/2 warns of are faults of peers, a line each, however many there are.
        None => EnvFilter::new(format!("{},h2=off", level.as_str())),
    };
    let text = match format {
        LogFormat::Auto => io::stderr().is_terminal(),
        LogFormat::Text => true,
        LogFormat::Json => false,
    };
    let queue = LogQueue::start(io::stderr(), &DROPPED).map_err(LoggingError::Thread)?;
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(Arc::clone(&queue));
    if text {
        set_global_default(subscriber.with_target(false).finish())?;
    } else {
        let subscriber = subscriber
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false);
        set_global_default(subscriber.finish())?;
    }
    log_panics();
    Ok(queue)
}

/// A panic is a line of the log: written to standard error directly, it would wait where nobody reads that. What a peer
/// can bring about once it can bring about a thousand times a second.
fn log_panics() {
    static SAID: OncePerSecond = OncePerSecond::new();
    std::panic::set_hook(Box::new(|panic| {
        if let Some(silent) = SAID.allow(crate::clock::now()) {
            tracing::error!(silent, backtrace = %std::backtrace::Backtrace::capture(), "{panic}");
        }
    }));
}

/// Reads `MIZAN_LOG`. A word alone must be a level: a slip such as `inof` would be taken for the name of a
/// module, and silence all others.
fn filter(text: &str) -> Result<EnvFilter, LoggingError> {
    let wrong = || LoggingError::Filter(text.to_owned());
    let is_no_level = |part: &str| {
        let is_level = LogLevel::from_str(part, true).is_ok() || part.eq_ignore_ascii_case("off");
        !is_level && !part.contains(['=', '['])
    };
    if text.split(',').map(str::trim).any(is_no_level) {
        return Err(wrong());
    }
    EnvFilter::try_new(text).map_err(|_| wrong())
}

/// An error with all that it comes from: the one place that prints a chain.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// Lets one line a second through and counts the rest, for what a fault can say a million times.
///
/// ```
/// # use mizan::telemetry::OncePerSecond;
/// # let now = mizan::clock::now();
/// static FULL: OncePerSecond = OncePerSecond::new();
/// if let Some(silent) = FULL.allow(now) {
///     tracing::warn!(silent, "out of descriptors: not accepting");
/// }
/// ```
#[derive(Debug)]
pub struct OncePerSecond {
    /// Nanoseconds; 0 is never.
    next: AtomicU64,
    silent: AtomicU64,
}

impl Default for OncePerSecond {
    fn default() -> Self {
        Self::new()
    }
}

impl OncePerSecond {
    /// Lets the first line through.
    pub const fn new() -> Self {
        Self {
            next: AtomicU64::new(0),
            silent: AtomicU64::new(0),
        }
    }

    /// `Some` if a line may be logged now, with the number of those that were not since the last.
    pub fn allow(&self, now: Instant) -> Option<u64> {
        let next = self.next.load(Ordering::Relaxed);
        let later = now.as_nanos().saturating_add(1_000_000_000);
        let due = now.as_nanos() >= next;
        if due
            && self
                .next
                .compare_exchange(next, later, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            return Some(self.silent.swap(0, Ordering::Relaxed));
        }
        self.silent.fetch_add(1, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_second_and_the_rest_counted() {
        let limit = OncePerSecond::new();
        let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        assert_eq!(limit.allow(at(0)), Some(0));
        assert_eq!(limit.allow(at(1)), None);
        assert_eq!(limit.allow(at(999)), None);
        assert_eq!(limit.allow(at(1000)), Some(2));
        assert_eq!(limit.allow(at(5000)), Some(0));
    }

    #[test]
    fn a_filter_that_would_silence_the_log_is_refused() {
        for good in [
            "info",
            "INFO",
            "off",
            "info,mizan::prober=debug",
            "mizan=trace, warn",
        ] {
            assert!(filter(good).is_ok(), "{good}");
        }
        for wrong in [
            "loud",
            "bogus=loud",
            "info,mizan::prober",
            "inof,mizan=debug",
        ] {
            let error = filter(wrong).expect_err(wrong).to_string();
            assert!(
                error.contains(&format!("MIZAN_LOG is `{wrong}`")),
                "{error}"
            );
        }
    }
}

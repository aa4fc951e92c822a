//! Mizan's own log: what changed and what is wrong, to standard error. Requests are in the access log.

use mizan_core::time::Instant;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use tracing::subscriber::{SetGlobalDefaultError, set_global_default};
use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, JSON elsewhere.
    #[default]
    Auto,
    /// For people.
    Text,
    /// One object a line.
    Json,
}

/// Sends the process's log to standard error. `MIZAN_LOG` chooses what is logged, as in
/// `MIZAN_LOG=info,mizan::prober=debug`; without it, `level` holds.
///
/// # Errors
/// If the process has a log already.
pub fn init_logging(format: LogFormat, level: &str) -> Result<(), SetGlobalDefaultError> {
    let filter = EnvFilter::try_from_env("MIZAN_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    let terminal = std::io::stderr().is_terminal();
    let text = match format {
        LogFormat::Auto => terminal,
        LogFormat::Text => true,
        LogFormat::Json => false,
    };
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    if text {
        set_global_default(subscriber.with_ansi(terminal).with_target(false).finish())
    } else {
        let subscriber = subscriber
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false);
        set_global_default(subscriber.finish())
    }
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
}

//! What a replay has shown: the recorded traffic beside the played.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

use super::{LineCounts, Recorded};
use crate::histogram::Histogram;
use crate::record::Record;
use crate::report::Report;

/// Latency and shares, of the recorded traffic or of a policy that it was played with.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// `recorded`, or the policy's name.
    pub name: String,
    /// Requests.
    pub requests: u64,
    /// Those that failed, of all. What failed in the record succeeds when it is played: why is not in a log.
    pub failed_share: f64,
    /// Milliseconds.
    pub mean_ms: f64,
    /// Half of the requests took no longer, milliseconds.
    pub p50_ms: f64,
    /// 95 % took no longer, milliseconds.
    pub p95_ms: f64,
    /// 99 % took no longer, milliseconds.
    pub p99_ms: f64,
    /// 99.9 % took no longer, milliseconds.
    pub p999_ms: f64,
    /// The longest, milliseconds.
    pub max_ms: f64,
    /// Requests of the busiest backend, times an even share; `None` if no backends are known.
    pub busiest: Option<f64>,
    /// The most that waited for a slot at one backend; `None` of what was recorded: a log does not say.
    pub queue_max: Option<usize>,
}

impl Figures {
    pub(super) fn recorded(requests: &[Recorded], shares: &Shares) -> Self {
        let mut latency = Histogram::new();
        for request in requests {
            latency.record(request.latency);
        }
        let failed = requests.iter().filter(|request| request.failed).count() as u64;
        Self::new("recorded", &latency, failed, shares)
    }

    pub(super) fn played(policy: &str, record: &Record) -> Self {
        let mut by_backend = vec![0u64; record.backends];
        for (at, count) in record.picks.iter().enumerate() {
            by_backend[at % record.backends] += u64::from(*count);
        }
        let failed: u64 = record.failed.iter().sum();
        let figures = Self::new(policy, &record.latency, failed, &Shares(by_backend));
        Self {
            requests: record.ok + failed,
            failed_share: failed as f64 / (record.ok + failed).max(1) as f64,
            queue_max: Some(record.queue_max),
            ..figures
        }
    }

    fn new(name: &str, latency: &Histogram, failed: u64, shares: &Shares) -> Self {
        let ms = |nanos: u64| nanos as f64 / 1e6;
        let quantile = |q| ms(latency.quantile(q).unwrap_or(0));
        Self {
            name: name.to_owned(),
            requests: latency.count(),
            failed_share: failed as f64 / latency.count().max(1) as f64,
            mean_ms: latency.mean().unwrap_or(0.0) / 1e6,
            p50_ms: quantile(0.5),
            p95_ms: quantile(0.95),
            p99_ms: quantile(0.99),
            p999_ms: quantile(0.999),
            max_ms: ms(latency.max()),
            busiest: shares.busiest(),
            queue_max: None,
        }
    }
}

/// Requests by backend.
#[derive(Debug)]
pub(super) struct Shares(Vec<u64>);

impl Shares {
    /// Of the `count` backends that a log names.
    pub(super) fn of(requests: &[Recorded], count: usize) -> Self {
        let mut by_backend: BTreeMap<u32, u64> = BTreeMap::new();
        for request in requests
            .iter()
            .filter(|request| request.backend != Recorded::NOBODY)
        {
            *by_backend.entry(request.backend).or_default() += 1;
        }
        let mut counts: Vec<u64> = by_backend.into_values().collect();
        counts.resize(count, 0);
        Self(counts)
    }

    fn busiest(&self) -> Option<f64> {
        let sum: u64 = self.0.iter().sum();
        let most = self.0.iter().max()?;
        (sum > 0).then(|| *most as f64 * self.0.len() as f64 / sum as f64)
    }
}

/// What a replay has shown.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReplayReport {
    /// The pool whose requests were played; empty if the log names none.
    pub pool: String,
    /// All pools of the log with their requests.
    pub pools: BTreeMap<String, u64>,
    /// How the log is written.
    pub format: &'static str,
    /// Whether its times are known to the second only.
    pub whole_seconds: bool,
    /// What became of its lines.
    pub counts: LineCounts,
    /// From the first begin to the last, seconds.
    pub seconds: f64,
    /// The backends that it was played on.
    pub backends: Vec<String>,
    /// How many the log names.
    pub recorded_backends: usize,
    /// Requests that each works on at once.
    pub slots: usize,
    /// Whether that was given; else it is the most that the log shows at one.
    pub slots_given: bool,
    /// Requests that ended in the record before a slot was free: with many of them `slots` is too low.
    pub too_early: u64,
    /// Which backends were slower by how much.
    pub slow: Vec<(String, f64)>,
    /// The seed that repeats it.
    pub seed: u64,
    /// As it was.
    pub recorded: Figures,
    /// As it would have been, by policy.
    pub played: Vec<Figures>,
    /// The same as the simulator reports any scenario.
    #[serde(skip)]
    pub page: Report,
}

impl ReplayReport {
    /// A table for a terminal: what was recorded, and below it each policy.
    pub fn to_text(&self) -> String {
        let mut text = self.heading();
        let mut rows = vec![
            [
                "", "mean ms", "p50 ms", "p95 ms", "p99 ms", "p999 ms", "max ms", "failed %",
                "busiest", "queue",
            ]
            .map(str::to_owned),
        ];
        rows.extend(std::iter::once(&self.recorded).chain(&self.played).map(row));
        let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
        for row in &rows {
            let cells = row.iter().zip(&widths).enumerate();
            let cells: Vec<String> = cells
                .map(|(at, (cell, width))| match at {
                    0 => format!("{cell:<width$}"),
                    _ => format!("{cell:>width$}"),
                })
                .collect();
            let _ = writeln!(text, "{}", cells.join("  ").trim_end());
        }
        text.trim_end().to_owned()
    }

    /// A page with the figures and plots of what was played, in one file.
    pub fn to_html(&self) -> String {
        self.page.to_html()
    }

    fn heading(&self) -> String {
        let pool = match &*self.pool {
            "" => String::new(),
            pool => format!(" of pool {pool}"),
        };
        let mut text = format!(
            "{} requests{pool} in {:.1} s, format {}{}\n",
            self.recorded.requests,
            self.seconds,
            self.format,
            not_used(&self.counts)
        );
        let others: Vec<String> = self
            .pools
            .iter()
            .filter(|(name, _)| **name != self.pool)
            .map(|(name, count)| format!("{name} ({count})"))
            .collect();
        if !others.is_empty() {
            let _ = writeln!(
                text,
                "other pools of the log (--pool): {}",
                others.join(", ")
            );
        }
        if self.counts.is_cut {
            let _ = writeln!(
                text,
                "the log has more requests than are kept: only the first were played"
            );
        }
        let recorded = match self.recorded_backends {
            0 => "the log names none".to_owned(),
            count => format!("recorded: {count}"),
        };
        let slots = match (self.slots_given, self.recorded_backends) {
            (true, _) => "as given",
            (false, 0) => "the most that the log shows, shared evenly; --slots says it better",
            (false, _) => "the most that the log shows at one; --slots says it better",
        };
        let counted = |count: usize, what: &str| match count {
            1 => format!("1 {what}"),
            _ => format!("{count} {what}s"),
        };
        let _ = writeln!(
            text,
            "played on {} ({recorded}) that {} on {} at once ({slots}), seed {}",
            counted(self.backends.len(), "backend"),
            if self.backends.len() == 1 {
                "works"
            } else {
                "work"
            },
            counted(self.slots, "request"),
            self.seed
        );
        for (name, factor) in &self.slow {
            let _ = writeln!(text, "backend {name} is {factor} times slower");
        }
        if self.whole_seconds {
            text += "times are known to the second only: each request is put anywhere in its own\n";
        }
        if self.too_early > 0 {
            let _ = writeln!(
                text,
                "{} requests ended before a slot was free: with many of them --slots is too low",
                self.too_early
            );
        }
        text.push('\n');
        text
    }
}

fn row(figures: &Figures) -> [String; 10] {
    let ms = |ms: f64| format!("{ms:.1}");
    [
        figures.name.clone(),
        ms(figures.mean_ms),
        ms(figures.p50_ms),
        ms(figures.p95_ms),
        ms(figures.p99_ms),
        ms(figures.p999_ms),
        ms(figures.max_ms),
        format!("{:.2}", figures.failed_share * 100.0),
        figures
            .busiest
            .map_or("-".to_owned(), |busiest| format!("{busiest:.2}")),
        figures
            .queue_max
            .map_or("-".to_owned(), |queue| queue.to_string()),
    ]
}

/// Lines that are of no use, and why; the first that do not parse by their numbers.
pub(super) fn not_used(counts: &LineCounts) -> String {
    let mut text = String::new();
    for (why, count) in &counts.skipped {
        let _ = write!(text, "\n  {count} not played: {why}");
    }
    if counts.bad > 0 {
        let _ = write!(text, "\n  {} do not parse:", counts.bad);
    }
    for bad in &counts.first_bad {
        let _ = write!(text, "\n    line {}: {}", bad.line, bad.why);
    }
    text
}

//! The text that Prometheus reads (exposition format 0.0.4), and the committed list of metrics.
//!
//! Written by hand: sorted, so that two scrapes can be compared, and with nothing registered at run
//! time, so that [`markdown`] is the whole list. Series that never counted are left out, but for
//! `mizan_unreached_total`: an alert on its increase needs the zero before the one.

mod backend;
mod families;
mod store;

pub use families::FAMILIES;

use super::histogram::Merged;
use super::metrics::{ListenerCells, Metrics, Slots, Totals};
use crate::snapshot::Snapshot;
use mizan_core::pool::PoolStatus;
use mizan_core::time::Instant;
use std::fmt::{Display, Write};
use std::sync::Arc;

/// `Content-Type` of [`render`]'s text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows, until a restart.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Buckets, a sum and a count.
    Histogram,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// One metric with all its series.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// Its labels, in the order of their values.
    pub labels: &'static [&'static str],
    /// One line on what it says.
    pub help: &'static str,
    write: fn(&Scrape<'_>, &mut Samples),
}

/// All that one scrape looks at.
struct Scrape<'a> {
    metrics: &'a Metrics,
    totals: Totals,
    pools: Vec<(Arc<str>, PoolStatus)>,
    snapshot: &'a Snapshot,
}

impl Scrape<'_> {
    /// Listeners by name; "" stands for forgotten ones, and is there if one was needed.
    fn listeners(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<Slots<ListenerCells>>)> {
        let named = |(name, slots): &(&Arc<str>, &Arc<Slots<ListenerCells>>)| {
            !name.is_empty() || slots.made().next().is_some()
        };
        self.totals.listeners.iter().filter(named)
    }
}

/// All metrics of the process as text. `now` is for what the pools know of their backends.
pub fn render(metrics: &Metrics, snapshot: &Snapshot, now: Instant) -> String {
    let pools: Vec<_> = snapshot
        .pools
        .values()
        .map(|pool| (pool.name.clone(), pool.core.status(now)))
        .collect();
    let members = pools.iter().flat_map(|(name, pool)| {
        pool.backends
            .iter()
            .map(|backend| (name.clone(), backend.key.clone()))
    });
    metrics.retain_backends(&members.collect());
    let scrape = Scrape {
        metrics,
        totals: metrics.totals(),
        pools,
        snapshot,
    };
    let mut samples = Samples {
        out: String::with_capacity(64 * 1024),
        name: "",
        labels: &[],
    };
    for family in FAMILIES {
        samples.begin(family);
        (family.write)(&scrape, &mut samples);
    }
    samples.out
}

/// The list of metrics for `docs/metrics.md`.
pub fn markdown() -> String {
    let mut out = String::from(
        "# Metrics\n\n\
         What `/metrics` shows. Made by `mizan generate metrics`; a test compares it.\n\n\
         | metric | kind | labels | says |\n| --- | --- | --- | --- |\n",
    );
    for Family {
        name,
        kind,
        labels,
        help,
        ..
    } in FAMILIES
    {
        let labels = labels
            .iter()
            .map(|label| format!("`{label}`"))
            .collect::<Vec<_>>()
            .join(" ");
        let _ = writeln!(out, "| `{name}` | {} | {labels} | {help} |", kind.as_str());
    }
    out
}

/// Where samples are written.
struct Samples {
    out: String,
    name: &'static str,
    labels: &'static [&'static str],
}

impl Samples {
    fn begin(&mut self, family: &Family) {
        (self.name, self.labels) = (family.name, family.labels);
        let _ = writeln!(self.out, "# HELP {} {}", family.name, family.help);
        let _ = writeln!(self.out, "# TYPE {} {}", family.name, family.kind.as_str());
    }

    fn sample(&mut self, values: &[&str], value: impl Display) {
        self.line("", values, None, value);
    }

    /// A sample that is left out while it is zero.
    fn counted(&mut self, values: &[&str], value: u64) {
        if value > 0 {
            self.sample(values, value);
        }
    }

    fn histogram(&mut self, values: &[&str], histogram: &Merged) {
        for (bound, count) in histogram.exposed() {
            self.line("_bucket", values, Some(&bound), count);
        }
        self.line("_bucket", values, Some(&"+Inf"), histogram.count());
        self.line("_sum", values, None, histogram.sum_seconds());
        self.line("_count", values, None, histogram.count());
    }

    fn line(
        &mut self,
        suffix: &str,
        values: &[&str],
        bound: Option<&dyn Display>,
        value: impl Display,
    ) {
        debug_assert_eq!(values.len(), self.labels.len(), "{}", self.name);
        self.out.push_str(self.name);
        self.out.push_str(suffix);
        let mut next = '{';
        for (label, value) in self.labels.iter().zip(values) {
            let _ = write!(self.out, "{next}{label}=\"");
            push_value(&mut self.out, value);
            self.out.push('"');
            next = ',';
        }
        if let Some(bound) = bound {
            let _ = write!(self.out, "{next}le=\"{bound}\"");
            next = ',';
        }
        if next == ',' {
            self.out.push('}');
        }
        let _ = writeln!(self.out, " {value}");
    }
}

/// A label's value, escaped as the format asks.
fn push_value(out: &mut String, value: &str) {
    for character in value.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            character => out.push(character),
        }
    }
}

#[cfg(test)]
mod tests;

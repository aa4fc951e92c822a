//! A report as a table for a terminal.

use std::fmt::Write;

use super::{Delay, Latency, PolicyReport, Report};

/// Heading, and what a policy has under it.
type Column = (&'static str, fn(&PolicyReport) -> String);

/// The table's columns, for all writers.
pub(super) const COLUMNS: [Column; 18] = [
    ("policy", |one| one.policy.clone()),
    ("p50 ms", |one| of(one.latency, |latency| latency.p50_ms)),
    ("p95 ms", |one| of(one.latency, |latency| latency.p95_ms)),
    ("p99 ms", |one| of(one.latency, |latency| latency.p99_ms)),
    ("p999 ms", |one| of(one.latency, |latency| latency.p999_ms)),
    ("p99 before", |one| {
        of(one.latency_before, |latency| latency.p99_ms)
    }),
    ("failed %", |one| percent(one.failed_share)),
    ("after 5 s %", |one| {
        one.failed_share_settled.map_or_else(dash, percent)
    }),
    ("tries", |one| format!("{:.3}", one.tries_per_request)),
    ("share max", |one| format!("{:.2}", one.share_max)),
    ("peak", |one| format!("{:.2}", one.share_peak)),
    ("shift s", |one| delay(one.shift)),
    ("recover s", |one| delay(one.recovery)),
    ("ejected (false)", |one| {
        format!("{} ({})", one.ejections, one.false_ejections)
    }),
    ("changes/min", |one| {
        format!("{:.1}", one.changes_per_minute)
    }),
    ("swings/min", |one| format!("{:.1}", one.swings_per_minute)),
    ("Jain", |one| {
        one.jain.map_or_else(dash, |jain| format!("{jain:.4}"))
    }),
    ("queue", |one| one.queue_max.to_string()),
];

/// One more where cost was asked for.
pub(super) const COST_COLUMNS: [Column; 2] = [
    ("ns/pick", |one| {
        one.cost
            .map_or_else(dash, |cost| format!("{:.0}", cost.pick_nanos))
    }),
    ("real s", |one| {
        one.cost
            .map_or_else(dash, |cost| format!("{:.2}", cost.seconds))
    }),
];

/// Headings and rows.
pub(super) fn table(report: &Report) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let has_cost = report.policies.iter().any(|policy| policy.cost.is_some());
    let extra: &[Column] = if has_cost { &COST_COLUMNS } else { &[] };
    let columns: Vec<&Column> = COLUMNS.iter().chain(extra).collect();
    let headings = columns.iter().map(|(heading, _)| *heading).collect();
    let row = |policy| columns.iter().map(|(_, cell)| cell(policy)).collect();
    (headings, report.policies.iter().map(row).collect())
}

/// What was simulated, as one line.
pub(super) fn setting(report: &Report) -> String {
    let mut text = format!(
        "{} s (first {} s not measured), {} balancers, {} backends, {:.0} requests/s of {:.0} that they can serve, seed {}",
        report.seconds,
        report.warmup_seconds,
        report.balancers,
        report.backends,
        report.rate_per_second,
        report.capacity_per_second,
        report.seed
    );
    for fault in &report.faults {
        let (label, from, to) = (&fault.label, fault.from_seconds, fault.to_seconds);
        let _ = write!(text, "; {label} from {from} s to {to} s");
    }
    text
}

pub(super) fn write(report: &Report) -> String {
    let (headings, rows) = table(report);
    let width = |at: usize| {
        let cells = rows.iter().map(|row| row[at].chars().count());
        cells.max().unwrap_or(0).max(headings[at].chars().count())
    };
    let widths: Vec<usize> = (0..headings.len()).map(width).collect();
    let mut text = format!(
        "{}: {}\n{}\n\n",
        report.scenario,
        report.about,
        setting(report)
    );
    let mut line = |cells: Vec<&str>| {
        for (at, (cell, width)) in cells.iter().zip(&widths).enumerate() {
            // Writing to a string cannot fail.
            let _ = if at == 0 {
                write!(text, "{cell:<width$}")
            } else {
                write!(text, "  {cell:>width$}")
            };
        }
        text.push('\n');
    };
    line(headings.clone());
    for row in &rows {
        line(row.iter().map(String::as_str).collect());
    }
    text
}

fn of(latency: Option<Latency>, figure: fn(Latency) -> f64) -> String {
    latency.map_or_else(dash, |latency| {
        let value = figure(latency);
        if value < 100.0 {
            format!("{value:.1}")
        } else {
            format!("{value:.0}")
        }
    })
}

fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if share == 0.0 {
        "0".to_owned()
    } else if percent < 0.1 {
        format!("{percent:.4}")
    } else {
        format!("{percent:.2}")
    }
}

fn delay(delay: Delay) -> String {
    match delay {
        Delay::NotAsked => dash(),
        Delay::Never => "never".to_owned(),
        Delay::Seconds(seconds) => format!("{seconds:.1}"),
    }
}

fn dash() -> String {
    "-".to_owned()
}

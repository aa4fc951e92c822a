//! `mizan check`.

mod certificates;

use super::output::{self, Exit, count, table};
use crate::admin::view::{Problem, RouteView};
use crate::app;
use crate::clock;
use crate::config::{self, Diagnostic, Relation, Severity, Source, Verdict};
use crate::snapshot::Snapshot;
use certificates::CertificateRow;
use clap::Args;
use serde::Serialize;
use std::cmp::Reverse;
use std::path::PathBuf;

/// Says what is wrong with a configuration file, before anything runs with it.
///
/// Prints every error and warning at once with its line marked, the routes in the order in which they
/// match, the certificates with the days that they have left, and the timing relations: inequalities between time-outs, Mizan's and those of what stands
/// around it (the [expect] table), each with the outage that it prevents. One whose number is not set is
/// "not checked", never passed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mizan check mizan.toml
  mizan check mizan.toml --json | jq '.problems[].message'

Exit status:
  0  good (warnings may be printed)
  1  a timing relation is violated
  2  the file is refused")]
pub(super) struct Check {
    /// The configuration file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Prints everything as JSON.
    #[arg(long)]
    json: bool,
}

/// All that is known of a configuration.
#[derive(Serialize)]
struct Report {
    /// Whether an instance would run with it.
    accepted: bool,
    problems: Vec<Problem>,
    routes: Vec<RouteView>,
    /// What clients are shown by TLS.
    certificates: Vec<CertificateRow>,
    relations: Vec<Relation>,
    /// What is drawn above the routes: errors and warnings.
    #[serde(skip)]
    drawn: Vec<String>,
    /// How many of them are errors.
    #[serde(skip)]
    errors: usize,
    #[serde(skip)]
    size: String,
}

impl Check {
    pub(super) fn run(&self) -> Exit {
        let report = self.report();
        let exit = if !report.accepted {
            Exit::Usage
        } else if report.failed() > 0 {
            Exit::Violated
        } else {
            Exit::Done
        };
        if self.json {
            output::json(&report, exit)
        } else {
            output::out(&self.describe(&report), exit)
        }
    }

    fn report(&self) -> Report {
        let sources = match config::load(&self.file) {
            Ok(sources) => sources,
            Err(diagnostics) => return Report::new(None, &diagnostics, &[]),
        };
        match config::compile(
            &sources,
            None,
            &app::Discovery::default(),
            clock::now(),
            clock::random(),
        ) {
            Ok((snapshot, warnings)) => Report::new(Some(&snapshot), &warnings, &sources),
            Err(diagnostics) => Report::new(None, &diagnostics, &sources),
        }
    }

    fn describe(&self, report: &Report) -> String {
        let mut parts = report.drawn.clone();
        if !report.routes.is_empty() {
            parts.push(format!(
                "Routes in matching order:\n{}",
                routes(&report.routes)
            ));
        }
        if !report.certificates.is_empty() {
            let certificates = certificates::show(&report.certificates);
            parts.push(format!("Certificates:\n{certificates}"));
        }
        if report.accepted && !report.relations.is_empty() {
            parts.push(format!(
                "Timing relations:\n{}",
                relations(&report.relations)
            ));
        }
        parts.push(format!("{}: {}", self.file.display(), report.verdict()));
        parts.join("\n\n")
    }
}

impl Report {
    fn new(snapshot: Option<&Snapshot>, diagnostics: &[Diagnostic], sources: &[Source]) -> Self {
        let accepted = snapshot.is_some();
        // A relation that does not hold is told once: among the relations where these are printed.
        let mut told: Vec<&Diagnostic> = diagnostics
            .iter()
            .filter(|diagnostic| !accepted || diagnostic.code != "timing")
            .collect();
        // Errors come last, where they are still on the screen.
        told.sort_by_key(|diagnostic| Reverse(diagnostic.severity));
        let errors = told
            .iter()
            .filter(|diagnostic| diagnostic.severity == Severity::Error)
            .count();
        Self {
            accepted,
            problems: diagnostics.iter().map(Problem::from).collect(),
            routes: snapshot.map(RouteView::in_order).unwrap_or_default(),
            certificates: snapshot
                .map(|snapshot| certificates::rows(snapshot, clock::wall()))
                .unwrap_or_default(),
            relations: config::relations(sources),
            drawn: told
                .iter()
                .map(|diagnostic| diagnostic.render(sources))
                .collect(),
            errors,
            size: snapshot.map(size).unwrap_or_default(),
        }
    }

    /// The relations that do not hold.
    fn failed(&self) -> usize {
        let fails = |relation: &&Relation| relation.verdict == Verdict::Fail;
        self.relations.iter().filter(fails).count()
    }

    /// The last line. It counts what is printed above it, each thing once.
    fn verdict(&self) -> String {
        let (errors, warnings) = (self.errors, self.drawn.len() - self.errors);
        let failed = if self.accepted { self.failed() } else { 0 };
        let mut verdict = vec![if self.accepted {
            self.size.clone()
        } else {
            "refused".into()
        }];
        verdict.extend((errors > 0).then(|| count(errors, "error")));
        verdict.extend((warnings > 0).then(|| count(warnings, "warning")));
        verdict
            .extend((failed > 0).then(|| format!("{} violated", count(failed, "timing relation"))));
        verdict.join(", ")
    }
}

fn size(snapshot: &Snapshot) -> String {
    let backends: usize = snapshot.pools.values().map(|pool| pool.members.len()).sum();
    [
        count(snapshot.listeners.len(), "listener"),
        count(snapshot.routes.routes().len(), "route"),
        count(snapshot.pools.len(), "pool"),
        count(backends, "backend"),
    ]
    .join(", ")
}

fn routes(routes: &[RouteView]) -> String {
    let rows: Vec<Vec<String>> = routes
        .iter()
        .enumerate()
        .map(|(at, route)| {
            let host = if route.host.is_empty() {
                "any host".into()
            } else {
                route.host.clone()
            };
            let conditions = route.conditions.join(", ");
            vec![
                format!("{}.", at + 1),
                host,
                route.path.clone(),
                conditions,
                format!("-> {}", route.action),
                route.name.clone(),
            ]
        })
        .collect();
    table("  ", &rows)
}

fn relations(relations: &[Relation]) -> String {
    let lines = relations.iter().map(|relation| {
        let id = format!("  {:<4}", relation.id);
        let subject = if relation.subject.is_empty() {
            String::new()
        } else {
            format!("{}: ", relation.subject)
        };
        let sides = format!(
            "{subject}{} is {} {}",
            relation.left, relation.comparison, relation.right
        );
        let margin = relation
            .margin
            .as_ref()
            .map(|margin| format!(" (margin {margin})"))
            .unwrap_or_default();
        match relation.verdict {
            Verdict::Pass => format!("{id}pass         {sides}{margin}"),
            Verdict::NotChecked => format!("{id}not checked  {subject}{}", relation.reason),
            Verdict::Fail => {
                let wanted = format!(
                    "{subject}{} must be {} {}{margin}",
                    relation.left, relation.comparison, relation.right
                );
                let mend = relation
                    .mend
                    .as_ref()
                    .map(|mend| format!("\n        mend: {mend}"))
                    .unwrap_or_default();
                format!(
                    "{id}FAIL         {wanted}\n        what would fail: {}{mend}",
                    relation.prevents
                )
            }
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

//! `mizan reload`.

use super::Instance;
use super::client::ClientError;
use super::output::{self, Exit};
use crate::admin::ACCEPT_TABLE;
use crate::admin::view::ReloadReport;
use crate::telemetry::ReloadResult;
use clap::Args;

/// Has the running instance read its configuration again, and says what came of it.
///
/// A file that is wrong changes nothing: the instance keeps the configuration it has.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mizan check /etc/mizan/mizan.toml && mizan reload
  mizan reload --json

Exit status:
  0  applied, or nothing had changed
  2  the file was refused; the instance keeps the configuration that it has
  4  no instance answers")]
pub(super) struct Reload {
    /// What is held back of the store's table is meant: most of it gone, a
    /// store that is another or older than it was.
    #[arg(long)]
    accept_table: bool,
    /// Prints the report as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    instance: Instance,
}

impl Reload {
    pub(super) fn run(&self) -> Result<Exit, ClientError> {
        let path = match self.accept_table {
            true => format!("/v1/reload?{ACCEPT_TABLE}"),
            false => "/v1/reload".to_owned(),
        };
        let report: ReloadReport = self.instance.client()?.post(&path)?;
        let exit = if report.result == ReloadResult::Refused {
            Exit::Usage
        } else {
            Exit::Done
        };
        Ok(if self.json {
            output::json(&report, exit)
        } else {
            output::out(&describe(&report), exit)
        })
    }
}

/// The report in words: a line, and what the configuration's compiler drew.
pub(super) fn describe(report: &ReloadReport) -> String {
    let line = match report.result {
        ReloadResult::Applied => format!(
            "applied: generation {} is in force since {}",
            report.generation, report.at
        ),
        ReloadResult::Unchanged => {
            format!("unchanged: generation {} stays in force", report.generation)
        }
        ReloadResult::Refused => format!(
            "REFUSED at {}: generation {} stays in force",
            report.at, report.generation
        ),
    };
    if report.text.is_empty() {
        line
    } else {
        format!("{line}\n\n{}", report.text)
    }
}

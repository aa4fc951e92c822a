//! `mizan generate`.

use super::output::{self, Exit};
use crate::telemetry::exposition;
use crate::{admin, config};
use clap::{Args, ValueEnum};

/// Prints a reference that is made from the code itself.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mizan generate schema > mizan.schema.json  completion and checks in an editor
  mizan generate openapi                     the admin API's description
  mizan generate metrics                     the list of metrics

Exit status:
  0  printed
  2  usage, or the output cannot be written")]
pub(super) struct Generate {
    /// Which.
    #[arg(value_enum)]
    what: What,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum What {
    /// JSON Schema of the configuration file.
    Schema,
    /// OpenAPI description of the admin API.
    Openapi,
    /// Metrics as a Markdown table.
    Metrics,
}

impl Generate {
    pub(super) fn run(&self) -> Exit {
        match self.what {
            What::Schema => output::json(&config::json_schema(), Exit::Done),
            What::Openapi => output::json(&admin::openapi::document(), Exit::Done),
            What::Metrics => output::out(exposition::markdown().trim_end(), Exit::Done),
        }
    }
}

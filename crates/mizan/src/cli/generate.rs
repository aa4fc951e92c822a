//! `mizan generate`.

use super::Cli;
use super::output::{self, Exit};
use crate::telemetry::exposition;
use crate::{admin, config};
use clap::{Args, CommandFactory, ValueEnum};
use clap_complete::Shell;
use std::path::{Path, PathBuf};

/// Prints a reference that is made from the code itself, or writes the manual pages.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mizan generate schema > mizan.schema.json  completion and checks in an editor
  mizan generate openapi                     the admin API's description
  mizan generate metrics                     the list of metrics
  mizan generate bash > /etc/bash_completion.d/mizan
  mizan generate man /usr/local/share/man/man1

Exit status:
  0  printed, or written
  2  usage, or the output cannot be written")]
pub(super) struct Generate {
    /// Which.
    #[arg(value_enum)]
    what: What,
    /// For `man`: the folder that the pages are written to.
    #[arg(required_if_eq("what", "man"))]
    folder: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum What {
    /// JSON Schema of the configuration file.
    Schema,
    /// OpenAPI description of the admin API.
    Openapi,
    /// Metrics as a Markdown table.
    Metrics,
    /// Completion for bash.
    Bash,
    /// Completion for zsh.
    Zsh,
    /// Completion for fish.
    Fish,
    /// Manual pages, one for each command, into a folder.
    Man,
}

impl Generate {
    pub(super) fn run(&self) -> Exit {
        match self.what {
            What::Schema => output::json(&config::json_schema(), Exit::Done),
            What::Openapi => output::json(&admin::openapi::document(), Exit::Done),
            What::Metrics => output::out(exposition::markdown().trim_end(), Exit::Done),
            What::Bash => completion(Shell::Bash),
            What::Zsh => completion(Shell::Zsh),
            What::Fish => completion(Shell::Fish),
            What::Man => manual(self.folder.as_deref().unwrap_or(Path::new("."))),
        }
    }
}

fn completion(shell: Shell) -> Exit {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "mizan", &mut text);
    output::out(String::from_utf8_lossy(&text).trim_end(), Exit::Done)
}

/// Writes `mizan.1`, `mizan-serve.1` and so on; commands that are hidden have none.
fn manual(folder: &Path) -> Exit {
    match clap_mangen::generate_to(Cli::command(), folder) {
        Ok(()) => Exit::Done,
        Err(error) => {
            let folder = folder.display();
            output::err(&format!("mizan: cannot write to {folder}: {error}"));
            Exit::Usage
        }
    }
}

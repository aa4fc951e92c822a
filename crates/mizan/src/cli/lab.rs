//! `mizan lab`, and the hidden commands that its children are started with.

use super::output;
use crate::lab::{self, LabError, Options};
use crate::telemetry::chain;
use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

/// Starts demonstration backends and the proxy in front of them, and prints a drill to type.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mizan lab                             three backends, http://127.0.0.1:8000
  mizan lab --port 8080 --backends 5    Ctrl-C stops all of it
  mizan lab --drill                     plays the drill by itself

Exit status:
  0  stopped by Ctrl-C; --drill: every promise was kept
  1  a promise was broken, or the laboratory could not run
  2  usage")]
pub(super) struct Lab {
    /// Port of the proxy on 127.0.0.1; if it is taken, the next free one.
    #[arg(long, default_value_t = 8000, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// How many backends.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=100), conflicts_with = "drill")]
    backends: u8,
    /// Plays the drill (with three backends) and says what it saw of each promise.
    #[arg(long)]
    drill: bool,
    /// The drill's report as JSON.
    #[arg(long, requires = "drill")]
    json: bool,
}

/// One demonstration backend on 127.0.0.1: what `mizan lab` starts, and what brings one back in its drill.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  mizan lab-backend --port 9002 --name b2")]
pub(super) struct LabBackend {
    /// Where it listens.
    #[arg(long)]
    port: u16,
    /// What it calls itself.
    #[arg(long)]
    name: String,
}

/// Runs another command of `mizan` as a child that dies with its parent.
#[derive(Debug, clap::Args)]
pub(super) struct LabTether {
    /// Process id of the parent.
    #[arg(long)]
    parent: u32,
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

impl Lab {
    /// Exit status 0; 1 if a promise was broken or the laboratory could not run.
    pub(super) fn run(&self) -> ExitCode {
        let options = Options {
            port: self.port,
            backends: usize::from(self.backends),
            drill: self.drill,
            json: self.json,
        };
        match lab::run(&options, &mut io::stdout()) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(error) => failed(&error),
        }
    }
}

impl LabBackend {
    /// Serves until it is told to stop.
    pub(super) fn run(&self) -> ExitCode {
        match lab::run_backend(self.port, self.name.clone()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => failed(&error),
        }
    }
}

impl LabTether {
    /// Ties this process to its parent and gives the command line to go on with, program name first.
    ///
    /// # Errors
    /// The exit status to end with: the parent is gone.
    pub(super) fn tie(self) -> Result<Vec<OsString>, ExitCode> {
        let tie = lab::tether(self.parent).map_err(|source| LabError::Io {
            what: "tie a child to its parent".to_owned(),
            source,
        });
        tie.map_err(|error| failed(&error))?;
        Ok(std::iter::once(OsString::from("mizan"))
            .chain(self.command)
            .collect())
    }
}

fn failed(error: &LabError) -> ExitCode {
    output::err(&format!("mizan lab: {}", chain(error)));
    ExitCode::FAILURE
}

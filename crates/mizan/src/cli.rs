//! The command line: one file a command.
//!
//! Commands that talk to a running instance use the admin API and nothing else, so that whatever they
//! can do, a script can. What each prints for people it prints for programs with `--json`.

mod boost;
mod check;
mod client;
mod config;
mod drain;
mod explain;
mod generate;
mod lab;
mod output;
mod reload;
mod serve;
mod sidecar;
mod simulate;
mod status;
mod table;

use clap::{Args, Parser, Subcommand};
use client::{Client, ClientError};
use output::Exit;
use std::ffi::OsString;
use std::process::ExitCode;

/// Mizan, a load balancer and reverse proxy.
#[derive(Debug, Parser)]
#[command(
    name = "mizan",
    version,
    max_term_width = 100,
    after_help = "\
First steps:
  mizan lab                             backends, the proxy, and what to try
  mizan check mizan.toml                what is wrong with a file; its routes
  mizan serve --config mizan.toml       SIGTERM drains, a changed file is reread
  mizan status                          what runs: backends, their state and why
  mizan drain api/10.0.0.1:8080 --wait  takes a backend out, fails no request
  mizan explain http://host/path        where a request would go, and why
  mizan simulate s01                    what would happen if, by policy

Exit status:
  0  done and verified
  1  a check is violated; (status) the last reload was refused, (explain) the
     request would be
  2  usage, a file is refused, or the output cannot be written
  3  the configuration changed meanwhile
  4  no instance answers
  5  not done in time"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Serve),
    Check(check::Check),
    Status(status::Status),
    Drain(drain::Drain),
    Undrain(drain::Undrain),
    Explain(explain::Explain),
    Reload(reload::Reload),
    Config(config::Config),
    Boost(boost::Boost),
    Sidecar(sidecar::Sidecar),
    Lab(lab::Lab),
    Simulate(simulate::Simulate),
    Generate(generate::Generate),
    #[command(hide = true)]
    LabBackend(lab::LabBackend),
    #[command(hide = true)]
    LabTether(lab::LabTether),
}

/// Which instance a command talks to.
#[derive(Clone, Debug, Args)]
struct Instance {
    /// The instance's admin API: a Unix socket's path, or host:port with the token in MIZAN_TOKEN.
    /// Default: /run/mizan/admin.sock, or $XDG_RUNTIME_DIR/mizan/admin.sock where /run/mizan is not.
    #[arg(long, value_name = "SOCKET")]
    admin: Option<String>,
}

impl Instance {
    fn client(&self) -> Result<Client, ClientError> {
        let token = std::env::var("MIZAN_TOKEN").ok();
        Client::new(
            self.admin.as_deref(),
            token.filter(|token| !token.is_empty()),
        )
    }
}

/// Runs the command that this process was started with.
pub fn main() -> ExitCode {
    run(std::env::args_os().collect())
}

fn run(arguments: Vec<OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // Help goes to standard output and is no error.
            let exit = if error.use_stderr() {
                Exit::Usage
            } else {
                Exit::Done
            };
            return output::written(error.print(), exit).into();
        }
    };
    match cli.command {
        Command::Serve(command) => command.run().into(),
        Command::Check(command) => command.run().into(),
        Command::Status(command) => output::finish(command.run()),
        Command::Drain(command) => output::finish(command.run()),
        Command::Undrain(command) => output::finish(command.run()),
        Command::Explain(command) => output::finish(command.run()),
        Command::Reload(command) => output::finish(command.run()),
        Command::Config(command) => command.run().into(),
        Command::Boost(command) => command.run().into(),
        Command::Sidecar(command) => command.run().into(),
        Command::Simulate(command) => command.run().into(),
        Command::Generate(command) => command.run().into(),
        Command::Lab(command) => command.run(),
        Command::LabBackend(command) => command.run(),
        Command::LabTether(command) => command.tie().map_or_else(|exit| exit, run),
    }
}

#[cfg(test)]
mod tests;

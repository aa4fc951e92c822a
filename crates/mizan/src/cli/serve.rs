//! `mizan serve`.

use super::output::{self, Exit};
use crate::app::{self, AppError};
use crate::telemetry::{LogFormat, init_logging};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Serves until SIGTERM or SIGINT, then drains.
///
/// At the first signal `/readyz` says 503 while new requests are still served, for the drain window; then
/// the listeners close and requests in flight end, up to the drain's deadline. A second signal ends it at
/// once. SIGHUP, `mizan reload` or a change of the file reloads; SIGUSR1 reopens the access log.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mizan serve --config mizan.toml
  mizan serve --config mizan.toml --admin ./admin.sock    without the right to write /run/mizan
  MIZAN_LOG=info,mizan::prober=debug mizan serve          says more of what the prober sees

The smallest file:
  [[listener]]
  bind = \"0.0.0.0:8000\"
  [[route]]
  pool = \"api\"
  [pool.api]
  backends = [\"10.0.0.1:8080\", \"10.0.0.2:8080\"]")]
pub(super) struct Serve {
    /// The configuration file.
    #[arg(long, value_name = "FILE", default_value = "/etc/mizan/mizan.toml")]
    config: PathBuf,
    /// The admin API's Unix socket, instead of the configuration's.
    #[arg(long, value_name = "SOCKET")]
    admin: Option<PathBuf>,
    /// How Mizan's own log on standard error looks.
    #[arg(long, value_enum, default_value_t)]
    log_format: Format,
    /// What is logged unless MIZAN_LOG says otherwise: error, warn, info, debug or trace.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log_level: String,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Format {
    /// Text on a terminal, JSON elsewhere.
    #[default]
    Auto,
    /// For people.
    Text,
    /// One object a line.
    Json,
}

impl Serve {
    pub(super) fn run(self) -> Exit {
        let format = match self.log_format {
            Format::Auto => LogFormat::Auto,
            Format::Text => LogFormat::Text,
            Format::Json => LogFormat::Json,
        };
        if let Err(error) = init_logging(format, &self.log_level) {
            output::err(&format!("mizan: {}", output::chain(&error)));
            return Exit::Usage;
        }
        match app::run(app::Options {
            config: self.config,
            admin: self.admin,
        }) {
            Ok(_) => Exit::Done,
            Err(AppError::Refused(drawn)) => {
                output::err(&format!(
                    "{drawn}\n\nmizan: the configuration is refused; nothing was served"
                ));
                Exit::Usage
            }
            Err(error) => {
                output::err(&format!("mizan: {}", output::chain(&error)));
                Exit::Usage
            }
        }
    }
}

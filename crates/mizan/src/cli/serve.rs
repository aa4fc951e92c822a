//! `mizan serve`.

use super::output::{self, Exit};
use super::table::store_address;
use crate::app::{self, AppError};
use crate::telemetry::{LogFormat, LogLevel, chain, init_logging};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// Serves until SIGTERM or SIGINT, then drains.
///
/// At the first signal `/readyz` says 503 while new requests are still served, for the drain window; then
/// the listeners close, and it waits until no client has a connection open, up to the drain's deadline. A
/// second signal ends it at once. SIGHUP, `mizan reload` or a change of the file reloads; SIGUSR1 reopens
/// the access log.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mizan serve --config mizan.toml
  mizan serve --admin ./admin.sock    without the right to /run/mizan
  mizan serve --store embedded:/var/lib/mizan/store

What the prober sees, and all else as usual:
  MIZAN_LOG=info,mizan::prober=debug mizan serve

The smallest file:
  [[listener]]
  bind = \"0.0.0.0:8000\"
  [[route]]
  pool = \"api\"
  [pool.api]
  backends = [\"10.0.0.1:8080\", \"10.0.0.2:8080\"]

Exit status:
  0  drained, or ended by a second signal; the log says how many were cut
  2  usage, the file is refused, or a socket or log cannot be opened")]
pub(super) struct Serve {
    /// The configuration file.
    #[arg(long, value_name = "FILE", default_value = "/etc/mizan/mizan.toml")]
    config: PathBuf,
    /// The admin API's Unix socket, instead of the configuration's.
    #[arg(long, value_name = "SOCKET")]
    admin: Option<PathBuf>,
    /// The store of the routing table, instead of the configuration's:
    /// `embedded:/FOLDER`, `etcd://HOST:2379,HOST:2379` or `instance:/SOCKET`.
    #[arg(long, value_name = "STORE")]
    store: Option<String>,
    /// How Mizan's own log on standard error looks.
    #[arg(long, value_enum, default_value_t)]
    log_format: LogFormat,
    /// What is logged unless MIZAN_LOG says otherwise.
    #[arg(
        long,
        value_enum,
        value_name = "LEVEL",
        ignore_case = true,
        default_value_t
    )]
    log_level: LogLevel,
}

/// What the last lines may take to be written: a standard error that is stuck must not hold the end.
const LAST_LINES: Duration = Duration::from_secs(1);

impl Serve {
    pub(super) fn run(self) -> Exit {
        let store = match self.store.as_deref().map(store_address).transpose() {
            Ok(store) => store,
            Err(error) => {
                output::err(&format!("mizan: {error}"));
                return Exit::Usage;
            }
        };
        let log = match init_logging(self.log_format, self.log_level) {
            Ok(log) => log,
            Err(error) => {
                output::err(&format!("mizan: {}", chain(&error)));
                return Exit::Usage;
            }
        };
        let ended = app::run(app::Options {
            config: self.config,
            admin: self.admin,
            store,
        });
        let exit = match ended {
            Ok(_) => Exit::Done,
            Err(error) => {
                log.print(&reason(&error));
                Exit::Usage
            }
        };
        log.close(LAST_LINES);
        exit
    }
}

/// Why nothing was served, for people.
fn reason(error: &AppError) -> String {
    match error {
        AppError::Refused(drawn) => {
            format!("{drawn}\n\nmizan: the configuration is refused; nothing was served")
        }
        error => format!("mizan: {}", chain(error)),
    }
}

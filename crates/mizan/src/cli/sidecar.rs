//! `mizan sidecar`.

use super::output::{self, Exit};
use super::table::Place;
use crate::control::sidecar::{self, SidecarError};
use crate::telemetry::{LogFormat, LogLevel, chain, init_logging};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// Writes the routing table to a folder, for programs of this machine that ask no network for it.
///
/// Readers for PHP, Python, Go, Node and Rust are in examples/readers. A reader opens routing.snap, which is
/// whole and never changes: a new table is a new file. status.json says every second how well it is known.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mizan sidecar --store etcd://10.0.0.1:2379 --out /dev/shm/mizan
  mizan sidecar --store etcd://10.0.0.1:2379 --out /dev/shm/mizan \\
      --last-good /var/lib/mizan        starts with it while etcd is away
  mizan sidecar --store instance:/run/mizan/admin.sock

Exit status:
  0  ended by SIGTERM or SIGINT
  2  usage, or the folder cannot be written
  4  the store cannot be used; one that is away is waited for")]
pub(super) struct Sidecar {
    #[command(flatten)]
    place: Place,
    /// The folder; made if it is not there. Nobody else may write to it.
    #[arg(long, value_name = "FOLDER", default_value = "/dev/shm/mizan")]
    out: PathBuf,
    /// The folder of the last good table, on a disk.
    #[arg(long, value_name = "FOLDER")]
    last_good: Option<PathBuf>,
    /// How its own log on standard error looks.
    #[arg(long, value_enum, default_value_t)]
    log_format: LogFormat,
}

/// What the last lines may take to be written.
const LAST_LINES: Duration = Duration::from_secs(1);

impl Sidecar {
    pub(super) fn run(self) -> Exit {
        let Some(store) = self.place.store() else {
            output::err(
                "mizan: --store says which store: `--store etcd://HOST:2379`, or `--store instance:/run/mizan/admin.sock`",
            );
            return Exit::Usage;
        };
        let mut settings = match self.place.settings(store) {
            Ok(settings) => settings,
            Err(error) => {
                output::err(&format!("mizan: {}", chain(&error)));
                return error.exit();
            }
        };
        settings.last_good.clone_from(&self.last_good);
        let log = match init_logging(self.log_format, LogLevel::default()) {
            Ok(log) => log,
            Err(error) => {
                output::err(&format!("mizan: {}", chain(&error)));
                return Exit::Usage;
            }
        };
        let options = sidecar::Options {
            store: settings,
            out: self.out,
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let ended = match runtime {
            Ok(runtime) => runtime.block_on(sidecar::run(options)),
            Err(error) => Err(SidecarError::Signals(error)),
        };
        let exit = match ended {
            Ok(()) => Exit::Done,
            Err(error) => {
                log.print(&format!("mizan: {}", chain(&error)));
                match error {
                    SidecarError::Store(_) => Exit::Unreachable,
                    _ => Exit::Usage,
                }
            }
        };
        log.close(LAST_LINES);
        exit
    }
}

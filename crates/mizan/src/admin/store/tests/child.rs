//! A process that serves a store, to be killed or measured: this test binary itself, which runs one test alone.

use super::open;
use crate::admin::fixture::Running;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Where the child's store is; nothing is done if it is not set.
const FOLDER: &str = "MIZAN_REMOTE_CHILD_FOLDER";
const SAYS: &str = "serves on ";

/// Not a test but what the others start; without its environment it does nothing.
#[tokio::test]
async fn child() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let running = Running::start_with_store(open(&PathBuf::from(folder).join("data")));
    println!("\n{SAYS}{}", running.socket.display());
    std::future::pending::<()>().await;
}

/// The process; it is killed when this is dropped, as by `kill -9`.
pub(super) struct Instance {
    process: Child,
    pub(super) socket: PathBuf,
}

impl Instance {
    /// Serves the store in `folder`, and puts its socket there too.
    pub(super) fn start(folder: &Path) -> Self {
        let me = std::env::current_exe().expect("it is known");
        let mut process = Command::new(me)
            .args([
                "--exact",
                "admin::store::tests::child::child",
                "--nocapture",
            ])
            .env(FOLDER, folder)
            .env("TMPDIR", folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let output = BufReader::new(process.stdout.take().expect("it is piped"));
        let mut lines = output.lines().map_while(Result::ok);
        let socket = lines.find_map(|line| line.strip_prefix(SAYS).map(PathBuf::from));
        Self {
            process,
            socket: socket.expect("it says where"),
        }
    }

    pub(super) fn kill(&mut self) {
        self.process.kill().expect("it is ours");
        self.process.wait().expect("it is ours");
    }

    /// Its bytes in memory.
    pub(super) fn resident(&self) -> usize {
        resident(&self.process.id().to_string())
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Bytes in memory of the process that `/proc` has under `name`.
pub(super) fn resident(name: &str) -> usize {
    let text = std::fs::read_to_string(format!("/proc/{name}/statm")).expect("it is Linux");
    let pages = text.split(' ').nth(1).and_then(|word| word.parse().ok());
    pages.map_or(0, |pages: usize| pages * 4_096)
}

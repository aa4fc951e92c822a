//! Child processes of this very program that never outlive it.
//!
//! A child is started as `mizan lab-tether --parent PID -- COMMAND…`: before anything else it asks the kernel
//! to be killed when its parent dies ([`tether`]), then goes on as `mizan COMMAND…`. So none is left behind even
//! after a `kill -9` of the laboratory. Each has a process group of its own: the terminal's Ctrl-C reaches the
//! laboratory alone, which stops its children in order.

use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use crate::clock;

/// The hidden command that `Child::spawn` starts children with.
pub const TETHER: &str = "lab-tether";

const POLL: Duration = Duration::from_millis(5);

/// Ties the life of this process to its parent's, which must be `parent`.
///
/// The kernel's rule is by thread: the signal comes when the *thread* that started this process ends. The
/// laboratory starts all its children from its main thread.
///
/// # Errors
/// `NotFound` if the parent is gone already; what prctl says if it fails.
pub fn tether(parent: u32) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // Asked after the call: a parent that died before it sends no signal any more.
    let now = getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs());
    if now == Some(parent) {
        Ok(())
    } else {
        Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!("parent process {parent} is gone"),
        ))
    }
}

/// A child; killed when dropped.
#[derive(Debug)]
pub(super) struct Child {
    process: std::process::Child,
}

impl Child {
    /// Starts `mizan COMMAND…`; call it on the main thread. Its standard error goes to `errors`.
    pub(super) fn spawn(command: &[&str], errors: Stdio) -> io::Result<Self> {
        // By /proc, so that it is this program even if its file was replaced by a newer one.
        let process = Command::new("/proc/self/exe")
            .arg0("mizan")
            .args([TETHER, "--parent", &std::process::id().to_string(), "--"])
            .args(command)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors)
            .process_group(0)
            .spawn()?;
        Ok(Self { process })
    }

    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    /// How it ended, if it has.
    pub(super) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.process.try_wait()
    }

    /// SIGTERM.
    pub(super) fn terminate(&mut self) -> io::Result<()> {
        if self.ended()?.is_none() {
            let pid = i32::try_from(self.process.id())
                .ok()
                .and_then(Pid::from_raw);
            let pid = pid.ok_or_else(|| io::Error::other("a process id beyond i32"))?;
            kill_process(pid, Signal::TERM)?;
        }
        Ok(())
    }

    /// SIGKILL; returns when it is gone.
    pub(super) fn kill(&mut self) -> io::Result<()> {
        self.process.kill()?;
        self.process.wait().map(drop)
    }

    /// Waits for its end; `None` if `limit` passes first.
    pub(super) fn wait(&mut self, limit: Duration) -> io::Result<Option<ExitStatus>> {
        let end = clock::now() + limit;
        loop {
            let ended = self.ended()?;
            if ended.is_some() || clock::now() >= end {
                return Ok(ended);
            }
            std::thread::sleep(POLL);
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It may have ended by itself, and nothing is to be done about a kill that fails.
        let _ = self.kill();
    }
}

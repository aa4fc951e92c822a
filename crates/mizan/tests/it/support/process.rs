//! A backend in a process of its own, so that `kill -9` and SIGSTOP of it are real.
//!
//! The process is this test binary again, told by an argument to run [`a_process_is_a_backend`] only and
//! by the environment to stay.

use super::{Backend, Client, Exchange, PATIENCE, eventually};
use rustix::process::{Pid, Signal, kill_process};
use std::io::Read;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

const VARIABLE: &str = "MIZAN_TEST_BACKEND";

/// A sound backend (see [`Exchange::serve`]) in another process.
#[derive(Debug)]
pub(crate) struct ProcessBackend {
    child: Child,
    address: SocketAddr,
    name: String,
}

impl ProcessBackend {
    /// Starts it and waits until it answers.
    pub(crate) fn start(name: &str) -> Self {
        Self::start_at(name, super::mizan::free_address())
    }

    fn start_at(name: &str, address: SocketAddr) -> Self {
        let program = std::env::current_exe().expect("this binary has a path");
        let child = Command::new(program)
            .args([
                "--exact",
                "support::process::a_process_is_a_backend",
                "--nocapture",
            ])
            .env(VARIABLE, format!("{address} {name}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("this binary runs again");
        let backend = Self {
            child,
            address,
            name: name.to_owned(),
        };
        eventually(PATIENCE, "a backend process answers", || {
            Client::try_connect(address).is_ok()
        });
        backend
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its name, which its answers give in `X-Backend`.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("it runs");
    }

    /// Kills it (SIGKILL) and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    /// Starts it again on the same address after [`ProcessBackend::kill`].
    pub(crate) fn restart(&mut self) {
        *self = Self::start_at(&self.name, self.address);
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for ProcessBackend {
    fn drop(&mut self) {
        // Dead already is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Run as the process of a [`ProcessBackend`]: serves until its parent is gone. Run as a test: checks
/// that such a process serves and dies.
#[test]
fn a_process_is_a_backend() {
    if let Ok(order) = std::env::var(VARIABLE) {
        let (address, name) = order.split_once(' ').expect("address and name");
        let _backend =
            Backend::start_at(address, name, Exchange::serve).expect("the given address is free");
        // Ends when the parent does, however that happens.
        let _ = std::io::stdin().read(&mut [0]);
        return;
    }
    let mut backend = ProcessBackend::start("child");
    assert_eq!(
        Client::connect(backend.address()).get("/").text(),
        "child:0"
    );
    backend.kill();
    assert!(
        Client::try_connect(backend.address()).is_err(),
        "something listens in its place"
    );
}

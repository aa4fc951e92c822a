//! The laboratory as a user starts it. (`mizan lab --drill` is a test by itself.)

use super::support::{PATIENCE, eventually};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

/// `mizan lab`, and what it said of itself.
struct Lab {
    child: Child,
    out: BufReader<ChildStdout>,
    said: Vec<String>,
}

impl Lab {
    /// Starts it with the proxy on `port` and waits until it has said all.
    fn start(port: u16) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_mizan"))
            .args(["lab", "--backends", "2", "--port", &port.to_string()])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let out = child.stdout.take().expect("piped");
        let mut lab = Self {
            child,
            out: BufReader::new(out),
            said: Vec::new(),
        };
        while !lab
            .said
            .last()
            .is_some_and(|line| line.starts_with("Ctrl-C "))
        {
            let mut line = String::new();
            let length = lab.out.read_line(&mut line).expect("it speaks");
            assert!(length > 0, "it ended after {:?}", lab.said);
            lab.said.push(line.trim_end().to_owned());
        }
        lab
    }

    /// What it said after `label`.
    fn said(&self, label: &str) -> &str {
        let line = self.said.iter().find_map(|line| line.strip_prefix(label));
        line.unwrap_or_else(|| panic!("no {label} in {:?}", self.said))
            .trim()
    }

    fn address(&self, label: &str) -> SocketAddr {
        let url = self.said(label).trim_start_matches("http://");
        let end = url.find([' ', '/']).unwrap_or(url.len());
        url[..end].parse().expect("an address")
    }

    /// Everything of it that listens.
    fn addresses(&self) -> [SocketAddr; 4] {
        ["proxy ", "b1 ", "b2 ", "metrics "].map(|label| self.address(label))
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // So that it takes its files with it; if it still runs.
        if matches!(self.child.try_wait(), Ok(None)) {
            self.signal(Signal::TERM);
        }
        let _ = self.child.wait();
    }
}

fn listens(address: SocketAddr) -> bool {
    TcpStream::connect(address).is_ok()
}

fn nothing_listens(addresses: &[SocketAddr]) {
    for address in addresses {
        eventually(PATIENCE, &format!("{address} is left"), || {
            !listens(*address)
        });
    }
}

#[test]
fn nothing_is_left_behind_after_a_kill_9_of_the_laboratory() {
    let mut lab = Lab::start(18_000);
    let addresses = lab.addresses();
    assert!(addresses.iter().all(|address| listens(*address)));
    lab.child.kill().expect("it runs");
    lab.child.wait().expect("it ends");
    nothing_listens(&addresses);
    let folder = PathBuf::from(lab.said("config "));
    std::fs::remove_dir_all(folder.parent().expect("a folder")).expect("only files are left");
}

#[test]
fn ctrl_c_stops_everything_in_order() {
    let mut lab = Lab::start(18_100);
    let addresses = lab.addresses();
    let config = PathBuf::from(lab.said("config "));
    assert!(config.exists());
    lab.signal(Signal::INT);
    let status = lab.child.wait().expect("it ends");
    assert!(status.success(), "{status}");
    let mut rest = String::new();
    lab.out.read_to_string(&mut rest).expect("text");
    assert!(rest.contains("drained and stopped"), "{rest}");
    nothing_listens(&addresses);
    assert!(!config.exists(), "its files are gone too");
}

#[test]
fn a_taken_port_is_said_and_the_next_one_used() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = taken.local_addr().expect("bound").port();
    let lab = Lab::start(port);
    let used = lab.address("proxy ").port();
    assert_ne!(used, port);
    assert!(
        lab.said[0].starts_with(&format!("Port {port} is taken: ")),
        "{}",
        lab.said[0]
    );
    assert!(lab.said[0].contains(&used.to_string()), "{}", lab.said[0]);
}

#[test]
fn the_drill_to_type_names_the_binary_that_runs_and_where_to_wait() {
    let lab = Lab::start(18_200);
    let binary = env!("CARGO_BIN_EXE_mizan");
    let typed = |command: &str| {
        let line = format!("{binary} {command}");
        lab.said.iter().any(|said| said.trim().starts_with(&line))
    };
    assert!(typed("status --admin"), "{:#?}", lab.said);
    assert!(typed("lab-backend --port"), "{:#?}", lab.said);
    let waits = lab
        .said
        .iter()
        .filter(|said| said.trim().starts_with("sleep "));
    assert_eq!(waits.count(), 4, "{:#?}", lab.said);
}

//! A running `mizan serve`.

use super::client::{Client, Response};
use super::{PATIENCE, Stop, eventually, locked};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;

/// A `mizan serve` of a test's own; killed when dropped.
///
/// In its configuration, `{listen}` and `{listen2}` stand for free addresses, `{dir}` for a folder of its
/// own. Admin socket, health and metrics addresses are set before it; a `[drain]` too unless it has one.
#[derive(Debug)]
pub(crate) struct Mizan {
    child: Child,
    directory: TempDir,
    listen: SocketAddr,
    listen2: SocketAddr,
    health: SocketAddr,
    log: Arc<Mutex<String>>,
    is_over: bool,
}

impl Mizan {
    /// Starts it with `config` and waits until it is ready.
    pub(crate) fn start(config: &str) -> Self {
        Self::start_limited(config, None)
    }

    /// The same with at most so many descriptors.
    pub(crate) fn start_limited(config: &str, descriptors_max: Option<usize>) -> Self {
        Self::launch(config, descriptors_max, Stdio::piped())
    }

    /// The same with another standard error, which [`Mizan::log`] then does not see.
    pub(crate) fn start_to(config: &str, standard_error: Stdio) -> Self {
        Self::launch(config, None, standard_error)
    }

    fn launch(config: &str, descriptors_max: Option<usize>, standard_error: Stdio) -> Self {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let (listen, listen2, health) = (free_address(), free_address(), free_address());
        let log = Arc::new(Mutex::new(String::new()));
        let mut command = match descriptors_max {
            None => Command::new(env!("CARGO_BIN_EXE_mizan")),
            Some(max) => {
                let mut shell = Command::new("sh");
                shell.args([
                    "-c",
                    &format!("ulimit -n {max} && exec \"$0\" \"$@\""),
                    env!("CARGO_BIN_EXE_mizan"),
                ]);
                shell
            }
        };
        let path = directory.path().join("mizan.toml");
        command
            .arg("serve")
            .arg("--config")
            .arg(&path)
            .stdin(Stdio::null());
        let admin = directory.path().join("admin.sock");
        let prelude = Prelude {
            admin: &admin,
            health,
            listen,
            listen2,
        };
        std::fs::write(&path, prelude.fill(config)).expect("the folder can be written");
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(standard_error)
            .spawn()
            .expect("mizan runs");
        for output in [
            child.stdout.take().map(OwnedFd::from),
            child.stderr.take().map(OwnedFd::from),
        ] {
            output.into_iter().for_each(|output| collect(output, &log));
        }
        let mut mizan = Self {
            child,
            directory,
            listen,
            listen2,
            health,
            log,
            is_over: false,
        };
        mizan.wait_until_ready();
        mizan
    }

    /// Kills it with -9 and starts it again with the same file, in the same folder.
    pub(crate) fn start_again(&mut self) {
        self.signal(Signal::KILL);
        self.wait(PATIENCE);
        let mut command = Command::new(env!("CARGO_BIN_EXE_mizan"));
        let child = command
            .arg("serve")
            .arg("--config")
            .arg(self.config_path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        self.child = child.expect("mizan runs");
        self.is_over = false;
        for output in [
            self.child.stdout.take().map(OwnedFd::from),
            self.child.stderr.take().map(OwnedFd::from),
        ] {
            output
                .into_iter()
                .for_each(|output| collect(output, &self.log));
        }
        self.wait_until_ready();
    }

    fn wait_until_ready(&mut self) {
        eventually(PATIENCE, "mizan is ready", || {
            if let Ok(Some(status)) = self.child.try_wait() {
                panic!("mizan ended with {status} before it was ready");
            }
            self.readiness() == Some(200)
        });
    }

    /// Where the first listener is.
    pub(crate) fn address(&self) -> SocketAddr {
        self.listen
    }

    /// Where `{listen2}` is.
    pub(crate) fn address2(&self) -> SocketAddr {
        self.listen2
    }

    /// Its own folder, `{dir}`.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// A client of the first listener.
    #[track_caller]
    pub(crate) fn client(&self) -> Client {
        Client::connect(self.listen)
    }

    /// A GET on a connection of its own.
    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Response {
        self.client().get(path)
    }

    /// The status of `/readyz`; `None` if nothing answers.
    pub(crate) fn readiness(&self) -> Option<u16> {
        let mut client = Client::try_connect(self.health).ok()?;
        client.send("GET /readyz HTTP/1.1\r\nHost: health\r\nConnection: close\r\n\r\n");
        client.try_read("GET").ok().map(|response| response.status)
    }

    /// The sum of a metric's series that have `label` in their braces; "": of all.
    #[track_caller]
    pub(crate) fn metric(&self, name: &str, label: &str) -> f64 {
        let text = Client::connect(self.health).get("/metrics").text();
        let series = text.lines().filter_map(|line| {
            let rest = line.strip_prefix(name)?;
            match rest.strip_prefix('{') {
                Some(labelled) => labelled.split_once("} "),
                None => Some(("", rest.strip_prefix(' ')?)),
            }
        });
        series
            .filter(|(labels, _)| labels.contains(label))
            .filter_map(|(_, value)| value.parse::<f64>().ok())
            .sum()
    }

    /// Writes another configuration into its file; it does not reload unless it watches the file.
    pub(crate) fn write_config(&self, config: &str) {
        let admin = self.admin_socket();
        let prelude = Prelude {
            admin: &admin,
            health: self.health,
            listen: self.listen,
            listen2: self.listen2,
        };
        // Renamed into place, so that a watching instance never reads half a file.
        let (path, new) = (self.config_path(), self.directory().join("mizan.toml.new"));
        std::fs::write(&new, prelude.fill(config)).expect("the folder can be written");
        std::fs::rename(new, path).expect("the folder can be written");
    }

    /// Its configuration file.
    pub(crate) fn config_path(&self) -> PathBuf {
        self.directory().join("mizan.toml")
    }

    /// Runs `mizan ARGUMENTS --admin SOCKET`.
    pub(crate) fn command(&self, arguments: &[&str]) -> Output {
        self.command_to(arguments, Stdio::piped())
    }

    /// The same with another standard output.
    pub(crate) fn command_to(&self, arguments: &[&str], out: Stdio) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mizan"));
        command
            .args(arguments)
            .arg("--admin")
            .arg(self.admin_socket())
            .stdout(out);
        command.output().expect("mizan runs")
    }

    /// Requests in flight at all backends, as `mizan status` counts them.
    #[track_caller]
    pub(crate) fn in_flight(&self) -> u64 {
        let output = self.command(&["status", "--json"]);
        let status = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
            panic!("status is no JSON: {error}: {output:?}");
        });
        let mut counts = Vec::new();
        collect_numbers(&status, "in_flight", &mut counts);
        assert!(
            !counts.is_empty(),
            "status counts nothing in flight: {status}"
        );
        counts.iter().sum()
    }

    /// Sends a signal to it.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
    }

    /// Stops it (SIGSTOP) and sends requests that the kernel queues for it: they are there, and not yet
    /// accepted, when it goes on at SIGCONT.
    pub(crate) fn queue_requests(&self, address: SocketAddr, count: usize) -> Vec<Client> {
        self.signal(Signal::STOP);
        eventually(PATIENCE, "mizan stops", || {
            std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).is_ok_and(|stat| {
                stat.rsplit(')')
                    .next()
                    .is_some_and(|rest| rest.starts_with(" T"))
            })
        });
        let connect = |_| {
            let mut client = Client::connect(address);
            client.send("GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n");
            client
        };
        (0..count).map(connect).collect()
    }

    /// Whether it has ended, and how.
    pub(crate) fn exited(&mut self) -> Option<ExitStatus> {
        let status = self.child.try_wait().expect("it is a child");
        self.is_over |= status.is_some();
        status
    }

    /// Waits for its end.
    #[track_caller]
    pub(crate) fn wait(&mut self, deadline: Duration) -> ExitStatus {
        let mut status = None;
        eventually(deadline, "mizan ends", || {
            status = self.exited();
            status.is_some()
        });
        status.expect("it has ended")
    }

    /// What it wrote to standard output and error so far.
    pub(crate) fn log(&self) -> String {
        locked(&self.log).clone()
    }

    /// Its resident memory in bytes, but for pages of its own file: how much of its code has run is not what is asked.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"))
            .expect("Linux says RssAnon");
        let kib: u64 = line
            .trim()
            .trim_end_matches(" kB")
            .parse()
            .expect("a number");
        kib * 1024
    }

    /// CPU time that it used so far.
    pub(crate) fn cpu_time(&self) -> Duration {
        let stat =
            std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).expect("it runs");
        let fields: Vec<_> = stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        let ticks: u64 = fields[11..13]
            .iter()
            .map(|ticks| ticks.parse::<u64>().expect("a number"))
            .sum();
        Duration::from_millis(ticks * 10)
    }

    pub(crate) fn admin_socket(&self) -> PathBuf {
        self.directory().join("admin.sock")
    }
}

#[expect(
    clippy::print_stderr,
    reason = "shown by the test harness beside the failure"
)]
impl Drop for Mizan {
    fn drop(&mut self) {
        if !self.is_over {
            // Ended already is as good.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<_> = log.lines().collect();
            let last = &lines[lines.len().saturating_sub(40)..];
            eprintln!("--- the last lines of mizan's log\n{}", last.join("\n"));
        }
    }
}

/// What stands for every test the same.
struct Prelude<'a> {
    admin: &'a Path,
    health: SocketAddr,
    listen: SocketAddr,
    listen2: SocketAddr,
}

impl Prelude<'_> {
    fn fill(&self, config: &str) -> String {
        let directory = self.admin.parent().expect("it is in a folder");
        let mut text = String::new();
        if !config.contains("workers =") {
            text.push_str("workers = 2\n");
        }
        text.push_str(config);
        text.push_str(&format!("\n[admin]\nsocket = {:?}\n", self.admin));
        text.push_str(&format!(
            "[health]\nbind = \"{0}\"\n[metrics]\nbind = \"{0}\"\n",
            self.health
        ));
        if !config.contains("[drain]") {
            text.push_str("[drain]\nwindow = \"0s\"\ndeadline = \"10s\"\n");
        }
        if !config.contains("[reload]") {
            text.push_str("[reload]\nwatch = false\n");
        }
        let text = text.replace("{listen}", &self.listen.to_string());
        let text = text.replace("{listen2}", &self.listen2.to_string());
        text.replace("{dir}", &directory.display().to_string())
    }
}

/// An address on the loopback that nothing listens on. Below the range that the kernel gives outgoing
/// connections, so that none of those takes it before it is used.
pub(crate) fn free_address() -> SocketAddr {
    const FIRST: u16 = 10_240;
    const COUNT: u16 = 20_480;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let offset = (std::process::id().wrapping_mul(1_031) % u32::from(COUNT)) as u16;
    loop {
        let step = NEXT.fetch_add(1, Ordering::SeqCst);
        assert!(step < COUNT, "no free port on the loopback");
        let port = FIRST + (offset + step) % COUNT;
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) {
            return listener.local_addr().expect("it is bound");
        }
    }
}

/// A pipe that takes nothing more until it is read.
pub(crate) fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let flags = fcntl_getfl(&writer).expect("it is open");
    fcntl_setfl(&writer, flags | OFlags::NONBLOCK).expect("it is open");
    while writer.write(&[b'-'; 4096]).is_ok() {}
    fcntl_setfl(&writer, flags).expect("it is open");
    (reader, writer)
}

fn collect(output: OwnedFd, log: &Arc<Mutex<String>>) {
    let log = Arc::clone(log);
    std::thread::spawn(move || {
        for line in BufReader::new(File::from(output))
            .lines()
            .map_while(Result::ok)
        {
            let mut log = locked(&log);
            log.push_str(&line);
            log.push('\n');
        }
    });
}

/// All numbers called `name`, wherever they are in `value`.
fn collect_numbers(value: &serde_json::Value, name: &str, found: &mut Vec<u64>) {
    match value {
        serde_json::Value::Object(fields) => {
            found.extend(fields.get(name).and_then(serde_json::Value::as_u64));
            fields
                .values()
                .for_each(|value| collect_numbers(value, name, found));
        }
        serde_json::Value::Array(values) => values
            .iter()
            .for_each(|value| collect_numbers(value, name, found)),
        _ => {}
    }
}

/// Lets `time` pass, where the passing itself is what a test is about (a timer that must not fire yet).
pub(crate) fn pass(time: Duration) {
    Stop::default().pace(time);
}

/// A configuration of one listener and one pool, `api`, with more lines for each.
pub(crate) fn config(listener: &str, pool: &str, backends: &[SocketAddr]) -> String {
    format!(
        "[[listener]]\nbind = \"{{listen}}\"\n{listener}\n[[route]]\npool = \"api\"\n{}",
        pool_of(pool, backends)
    )
}

/// The table of the pool `api`.
pub(crate) fn pool_of(pool: &str, backends: &[SocketAddr]) -> String {
    let backends: Vec<_> = backends
        .iter()
        .map(|address| format!("\"{address}\""))
        .collect();
    format!("[pool.api]\nbackends = [{}]\n{pool}\n", backends.join(", "))
}

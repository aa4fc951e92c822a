//! A process that writes and is killed, and one that finds the store taken.
//!
//! The process is this test binary itself, which runs one test alone, [`child`]. It gets its work by the environment.

use crate::support::{commit, entries, everything, open, put, revision};
use mizan_store::embedded::Embedded;
use mizan_store::{Compare, Error, Event, Message, Operation, Store, Transaction};
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// What the child does: one of [`WRITE`], [`OPEN`] and [`FAIL`]; nothing at all if it is not set.
const WORK: &str = "MIZAN_STORE_CHILD_WORK";
const FOLDER: &str = "MIZAN_STORE_CHILD_FOLDER";
/// Writes until it is killed, and says what is acknowledged.
const WRITE: &str = "write";
/// Says what comes of opening the store.
const OPEN: &str = "open";
/// Writes while the disk fails, and says what comes then.
const FAIL: &str = "fail";

/// How many write at once.
const WRITERS: u64 = 4;

/// Not a test but what the others start; without its environment it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    let Ok(work) = std::env::var(WORK) else {
        return;
    };
    let folder = std::env::var(FOLDER).expect("it is told where");
    let opened = open(Path::new(&folder));
    match work.as_str() {
        OPEN => println!("opened: {:?}", opened.map(drop)),
        FAIL => {
            let said = fail(opened.expect("it opens"), Path::new(&folder)).await;
            println!("{said}");
        }
        WRITE => write(Arc::new(opened.expect("it opens"))).await,
        other => panic!("no such work: {other}"),
    }
}

fn start(work: &str, folder: &Path, shell: &str) -> Child {
    let me = std::env::current_exe().expect("it is known");
    Command::new("/bin/sh")
        .args([
            "-c",
            &format!("{shell} exec \"$0\" --exact crash::child --nocapture"),
        ])
        .arg(me)
        .env(WORK, work)
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts")
}

/// Each writer counts its own key up, and puts what it comes to a second time under a key that is never overwritten.
async fn write(store: Arc<Embedded>) {
    let writers = (0..WRITERS).map(|writer| tokio::spawn(count_up(store.clone(), writer)));
    for writer in writers.collect::<Vec<_>>() {
        let ended = writer.await.expect("it does not panic");
        ended.expect("it is taken until it is killed");
    }
}

async fn count_up(store: Arc<Embedded>, writer: u64) -> Result<(), Error> {
    let (mut count, mut modified) = counted(&store, writer).await;
    loop {
        count += 1;
        let transaction = Transaction {
            compares: vec![Compare::modified(counter(writer), modified)],
            operations: vec![
                Operation::put(counter(writer), count.to_string()),
                Operation::put(format!("each/{writer}/{count:09}"), ""),
            ],
        };
        modified = store.commit(transaction).await?.revision;
        // In one write, so that a line is there whole or not at all.
        let line = format!("done {writer} {count} {modified}\n");
        let said = std::io::stdout().write_all(line.as_bytes());
        said.expect("somebody listens");
        if count % 50 == 0 {
            let old = modified.saturating_sub(100);
            let compacted = store.compact(old).await;
            assert!(matches!(compacted, Ok(()) | Err(Error::Compacted { .. })));
        }
    }
}

fn counter(writer: u64) -> String {
    format!("count/{writer}")
}

/// How far a writer has come, and when.
async fn counted(store: &Embedded, writer: u64) -> (u64, u64) {
    let key = counter(writer);
    let entry = entries(store)
        .await
        .into_iter()
        .find(|entry| entry.key == key);
    entry.map_or((0, 0), |entry| {
        let text = String::from_utf8_lossy(&entry.value).into_owned();
        let count = text.parse().expect("a number");
        assert_eq!(entry.version, count, "nothing is done twice");
        (count, entry.modified)
    })
}

/// What a child has said was acknowledged: of each writer the count, and the highest revision.
#[derive(Debug, Default)]
struct Acknowledged {
    counts: BTreeMap<u64, u64>,
    revision: u64,
}

impl Acknowledged {
    fn take(&mut self, line: &str) {
        let numbers = line
            .split(' ')
            .skip(1)
            .map(|word| word.parse().expect("a number"));
        let [writer, count, revision]: [u64; 3] = numbers
            .collect::<Vec<_>>()
            .try_into()
            .expect("three numbers");
        self.counts.insert(writer, count);
        self.revision = self.revision.max(revision);
    }

    /// All of it is there, and no more than what each writer had under way besides.
    async fn check(&self, store: &Embedded, round: usize) {
        let revision = revision(store).await;
        assert!(
            revision >= self.revision,
            "round {round}: {revision} of {self:?}"
        );
        let each = entries(store).await;
        for writer in 0..WRITERS {
            let (count, _) = counted(store, writer).await;
            let acknowledged = self.counts.get(&writer).copied().unwrap_or(0);
            assert!(
                count == acknowledged || count == acknowledged + 1,
                "round {round}, writer {writer}: {count} of {self:?}"
            );
            let begin = format!("each/{writer}/");
            let keys = each
                .iter()
                .filter(|entry| entry.key.starts_with(begin.as_bytes()));
            assert_eq!(keys.count() as u64, count, "round {round}: both or neither");
        }
    }
}

/// `MIZAN_STORE_ROUNDS` says how often; 20 by default.
#[tokio::test]
async fn nothing_acknowledged_is_lost_when_it_is_killed() {
    let rounds = std::env::var("MIZAN_STORE_ROUNDS").ok();
    let rounds: usize = rounds.map_or(20, |rounds| rounds.parse().expect("a number"));
    let mut folder = tempfile::tempdir().expect("a folder");
    let mut acknowledged = Acknowledged::default();
    for round in 0..rounds {
        if round % 100 == 99 {
            folder = tempfile::tempdir().expect("a folder");
            acknowledged = Acknowledged::default();
        }
        let mut child = start(WRITE, folder.path(), "");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut lines = output.lines().map_while(Result::ok);
        // Any number will do: when exactly it dies is up to the machine.
        let least = round * 7_919 % 120;
        let mut seen = 0;
        let mut is_killed = false;
        loop {
            if seen >= least && !is_killed {
                child.kill().expect("it is ours");
                is_killed = true;
            }
            let Some(line) = lines.next() else {
                break;
            };
            if line.starts_with("done ") {
                acknowledged.take(&line);
                seen += 1;
            }
        }
        child.wait().expect("it is ours");
        assert!(is_killed, "round {round}: it ended by itself");
        let store = open(folder.path()).expect("what a kill leaves can be opened");
        acknowledged.check(&store, round).await;
        // What was under way and got done counts from now on.
        for writer in 0..WRITERS {
            let (count, _) = counted(&store, writer).await;
            acknowledged.counts.insert(writer, count);
        }
    }
}

#[tokio::test]
async fn a_second_process_is_told_who_has_the_store() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path()).expect("it opens");
    let said = || {
        let output = start(OPEN, folder.path(), "").wait_with_output();
        String::from_utf8(output.expect("it ends").stdout).expect("text")
    };
    let refused = said();
    let holder = format!("in use by process {}:", std::process::id());
    assert!(
        refused.contains("Unavailable") && refused.contains(&holder),
        "{refused}"
    );
    put(&store, "a", "1").await;
    let here = open(folder.path()).map(drop);
    assert!(matches!(here, Err(Error::Unavailable(_))), "{here:?}");
    drop(store);
    let opened = said();
    assert!(opened.contains("opened: Ok(())"), "{opened}");
    assert_eq!(revision(&open(folder.path()).expect("it opens")).await, 1);
}

/// Writes more than SQLite keeps in memory, and then has something changed that has to be read for that, while the disk does not
/// give it back.
async fn fail(store: Embedded, folder: &Path) -> String {
    let mut acknowledged = 0;
    for count in 0..60 {
        let operation = Operation::put("a", format!("{count:02}").repeat(50_000));
        let done = commit(&store, [operation]).await;
        acknowledged = done.expect("it is written").revision;
    }
    let files = ["store.db", "store.db-wal"].map(|name| folder.join(name));
    let hidden = files.map(|path| {
        let bytes = std::fs::read(&path).expect("it can be read");
        let file = OpenOptions::new().write(true).open(&path);
        let file = file.expect("it can be written");
        file.set_len(0).expect("it can be cut");
        (file, bytes)
    });
    let failed = store
        .compact(acknowledged)
        .await
        .expect_err("it is not there");
    for (mut file, bytes) in hidden {
        file.write_all(&bytes).expect("it can be written");
    }
    let put = commit(&store, [Operation::put("small", "1")]).await;
    let grant = store.grant(Duration::from_secs(60)).await;
    let compact = store.compact(1).await;
    let fault = store.fault().is_some();
    let read = entries(&store).await[0].modified;
    format!(
        "acknowledged {acknowledged}\nfailed {failed:?}\nthen {put:?} {grant:?} {compact:?}\nfault {fault}\nread {read}"
    )
}

/// A file that was emptied stands for a disk that fails. What finds no room is no such fault: see `full`.
#[tokio::test]
async fn after_a_fault_of_the_disk_nothing_is_written_any_more() {
    let folder = tempfile::tempdir().expect("a folder");
    let child = start(FAIL, folder.path(), "");
    let output = child.wait_with_output().expect("it ends");
    let output = String::from_utf8(output.stdout).expect("text");
    let line = |name: &str| {
        let line = output.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no `{name}` in {output}"))
            .to_owned()
    };
    let acknowledged: u64 = line("acknowledged ").parse().expect("a number");
    assert!(acknowledged > 0, "{output}");
    assert!(line("failed ").starts_with("Unknown("), "{output}");
    assert_eq!(
        line("then ").matches("Err(Unavailable(").count(),
        3,
        "{output}"
    );
    assert_eq!(line("fault "), "true");
    assert_eq!(
        line("read "),
        acknowledged.to_string(),
        "what was acknowledged is read"
    );
    // What nobody knew is known after a restart: it is there, or it is not, and all that was acknowledged is.
    let store = open(folder.path()).expect("it opens");
    let revision = revision(&store).await;
    assert!(
        (acknowledged..=acknowledged + 1).contains(&revision),
        "{revision}"
    );
    let mut watch = store
        .watch(everything(), acknowledged)
        .await
        .expect("it is held");
    let said = watch.next().await.expect("it is open");
    assert!(
        matches!(&said, Message::Batch(batch) if matches!(&batch.events[0], Event::Put(_))),
        "{said:?}"
    );
    put(&store, "a", "goes on").await;
}

//! A disk without room: what finds none is refused, what was acknowledged stays, and with room all goes on by itself.
//!
//! The log is written over again and again, so it is mostly as the log is written back that the disk is found full: the
//! database grows then. While the log still grows, it is a commit that finds it. A child process fills it, as the limits and
//! mounts are the process's own.

use crate::support::{Hand, commit, entries, keys, open_at};
use mizan_store::embedded::Embedded;
use mizan_store::{Error, Operation, Store};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The folder that the child fills; it does nothing at all if it is not set.
const FOLDER: &str = "MIZAN_STORE_FULL_FOLDER";
/// What takes the room away: [`LIMIT`] or [`BALLAST`].
const BY: &str = "MIZAN_STORE_FULL_BY";
/// No file may have more than 9 MB. What is written beyond it fails as `EFBIG`, like a used-up quota.
const LIMIT: &str = "limit";
/// No file may have more than 1 MB: the log finds no room, and so the commit itself.
const LOG_LIMIT: &str = "log_limit";
/// A file of 4 MB on a file system of 16 MB. What is written beyond it fails as `ENOSPC`.
const BALLAST: &str = "ballast";

/// Keys that the store of the tests could not hold.
const KEYS_MAX: usize = 2_000;

enum Room {
    Limit(Option<u64>),
    Ballast(PathBuf),
}

impl Room {
    fn take(folder: &Path, by: &str) -> Self {
        match by {
            LIMIT | LOG_LIMIT => {
                let before = getrlimit(Resource::Fsize);
                let mut limit = before;
                limit.current = Some(if by == LIMIT { 9 << 20 } else { 1 << 20 });
                setrlimit(Resource::Fsize, limit).expect("it may be lowered");
                Self::Limit(before.current)
            }
            BALLAST => {
                let path = folder.join("ballast");
                std::fs::write(&path, vec![0; 4 << 20]).expect("there is room for it");
                Self::Ballast(path)
            }
            other => panic!("no such way: {other}"),
        }
    }

    fn give(self) {
        match self {
            Self::Limit(current) => {
                let mut limit = getrlimit(Resource::Fsize);
                limit.current = current;
                setrlimit(Resource::Fsize, limit).expect("it may be raised");
            }
            Self::Ballast(path) => std::fs::remove_file(path).expect("it is there"),
        }
    }
}

/// Not a test but what the others start; without its environment it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    let Ok(folder) = std::env::var(FOLDER) else {
        return;
    };
    let by = std::env::var(BY).expect("it is told how");
    match &*by {
        LOG_LIMIT => fill_log(Path::new(&folder)).await,
        by => fill(Path::new(&folder), by).await,
    }
    println!("all of it held");
}

async fn put_next(store: &Embedded, count: usize) -> Result<(), Error> {
    let put = Operation::put(format!("k{count:05}"), vec![b'v'; 60_000]);
    commit(store, [put]).await.map(drop)
}

async fn warnings(store: &Embedded) -> Vec<String> {
    store.identity().await.expect("it answers").warnings
}

/// That there is room again is found out by itself.
async fn until_well(store: &Embedded) {
    let is_well = async {
        while !warnings(store).await.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    let is_well = tokio::time::timeout(Duration::from_secs(60), is_well).await;
    is_well.expect("it is found out");
}

async fn fill(folder: &Path, by: &str) {
    let clock = Hand::at(1_000);
    let store = open_at(folder, &clock);
    let lease = store.grant(Duration::from_secs(60)).await;
    let lease = lease.expect("there is room");
    let room = Room::take(folder, by);
    let mut taken = 0;
    let refused = loop {
        match put_next(&store, taken).await {
            Ok(()) => taken += 1,
            Err(error) => break error,
        }
        assert!(taken < KEYS_MAX, "the disk is not full");
    };
    assert!(
        matches!(&refused, Error::Full(what) if what.contains("make room on the disk")),
        "{refused:?}"
    );
    assert!(taken > 10, "{taken} were taken");

    // While it lasts nothing is written, and all is read.
    clock.pass(1);
    let answers = [
        put_next(&store, taken).await.map(drop),
        store.grant(Duration::from_secs(60)).await.map(drop),
        store.keep_alive(lease.id).await.map(drop),
        store.compact(2).await,
    ];
    for answer in answers {
        assert!(matches!(answer, Err(Error::Full(_))), "{answer:?}");
    }
    assert_eq!(entries(&store).await.len(), taken);
    assert_eq!(store.fault(), None);
    let warned = warnings(&store).await;
    assert!(
        matches!(&warned[..], [one] if one.starts_with("The disk has no room")),
        "{warned:?}"
    );

    // A start finds the disk as full as it was.
    drop(store);
    let store = open_at(folder, &clock);
    assert_eq!(entries(&store).await.len(), taken);
    let refused = loop {
        match put_next(&store, taken).await {
            Ok(()) => taken += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::Full(_)), "{refused:?}");

    room.give();
    clock.pass(1);
    until_well(&store).await;
    put_next(&store, taken).await.expect("there is room again");
    let lived_on = store.keep_alive(lease.id).await;
    lived_on.expect("its life is not over");
    drop(store);
    let all: Vec<_> = (0..=taken).map(|count| format!("k{count:05}")).collect();
    assert_eq!(keys(&open_at(folder, &clock)).await, all);
}

/// Puts keys until one is refused; how many there are then.
async fn put_all(store: &Embedded, mut taken: usize) -> usize {
    loop {
        match put_next(store, taken).await {
            Ok(()) => taken += 1,
            Err(Error::Full(what)) if what.contains("make room on the disk") => return taken,
            Err(error) => panic!("{error:?}"),
        }
        assert!(taken < KEYS_MAX, "the disk is not full");
    }
}

async fn fill_log(folder: &Path) {
    let clock = Hand::at(1_000);
    let store = open_at(folder, &clock);
    let room = Room::take(folder, LOG_LIMIT);
    let taken = put_all(&store, 0).await;
    assert!(taken > 10, "{taken} were taken");
    let warned = warnings(&store).await;
    assert!(
        matches!(&warned[..], [one] if one.starts_with("The disk has no room")),
        "{warned:?}"
    );
    // What was refused is not there: not now, and not for who opens the store next, from what a kill would leave.
    let copy = tempfile::tempdir().expect("a folder");
    let names = ["store.db", "store.db-wal", "head"];
    for name in names {
        let bytes = std::fs::read(folder.join(name)).expect("it can be read");
        std::fs::write(copy.path().join(name), bytes).expect("it can be copied");
    }
    assert_eq!(entries(&store).await.len(), taken);
    assert_eq!(entries(&open_at(copy.path(), &clock)).await.len(), taken);

    // The very same store goes on once there is room.
    room.give();
    until_well(&store).await;
    assert_eq!(store.fault(), None);
    put_next(&store, taken).await.expect("there is room again");
    drop(store);
    let all: Vec<_> = (0..=taken).map(|count| format!("k{count:05}")).collect();
    assert_eq!(keys(&open_at(folder, &clock)).await, all);
}

/// Runs the child by way of a shell that has `before` its command line; what it has said, if it has not passed.
fn run(folder: &Path, by: &str, before: &str) -> Result<(), String> {
    let me = std::env::current_exe().expect("it is known");
    let script = format!("{before} \"$0\" --exact full::child --nocapture");
    let output = Command::new("/bin/sh")
        .args(["-c", &script])
        .arg(me)
        .env(FOLDER, folder)
        .env(BY, by)
        .output()
        .expect("it starts");
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    match output.status.success() && said.contains("all of it held") {
        true => Ok(()),
        false => Err(said),
    }
}

/// One checkpoint that found no room was a fault until a restart.
#[test]
fn a_log_that_finds_no_room_to_be_written_back_to_is_no_fault() {
    let folder = tempfile::tempdir().expect("a folder");
    run(folder.path(), LIMIT, "trap '' XFSZ; exec").unwrap_or_else(|said| panic!("{said}"));
}

/// A commit that met a quota was a fault until a restart.
#[test]
fn a_commit_that_finds_no_room_in_the_log_is_no_fault() {
    let folder = tempfile::tempdir().expect("a folder");
    run(folder.path(), LOG_LIMIT, "trap '' XFSZ; exec").unwrap_or_else(|said| panic!("{said}"));
}

/// Where the machine lets nobody mount a file system, the limit above has to do.
#[test]
fn a_file_system_without_room_is_no_fault() {
    let folder = tempfile::tempdir().expect("a folder");
    let mount = format!("mount -t tmpfs -o size=16m none \"${FOLDER}\"");
    let try_it = Command::new("unshare")
        .args(["-rm", "/bin/sh", "-c", &mount])
        .env(FOLDER, folder.path())
        .output();
    if !try_it.is_ok_and(|output| output.status.success()) {
        eprintln!("this machine lets nobody mount a file system: not tested");
        return;
    }
    let before = format!("exec unshare -rm /bin/sh -c '{mount} && exec \"$0\" \"$@\"'");
    run(folder.path(), BALLAST, &before).unwrap_or_else(|said| panic!("{said}"));
}

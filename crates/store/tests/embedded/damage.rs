//! Files that were cut, flipped or put back: never read wrongly.

use crate::support::{commit, entries, entries_at, open, put, revision};
use mizan_store::embedded::{Embedded, repair};
use mizan_store::{Entry, Error, Operation, Store};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

const PAGE: usize = 4_096;
const LOG_BEGIN: usize = 32;
const FRAME: usize = PAGE + 24;

/// A store's files while it was open, and all that it ever held.
struct Sample {
    files: BTreeMap<&'static str, Vec<u8>>,
    states: BTreeMap<u64, Vec<Entry>>,
    last: u64,
}

async fn work(
    store: &Embedded,
    turns: std::ops::Range<usize>,
    states: &mut BTreeMap<u64, Vec<Entry>>,
) {
    let lease = store
        .grant(Duration::from_secs(900))
        .await
        .expect("it is granted")
        .id;
    for turn in turns {
        let key = format!("key/{}", turn % 9);
        let operation = match turn % 6 {
            5 => Operation::delete(key),
            4 => Operation::Put {
                key: key.into(),
                value: "leased".into(),
                lease: Some(lease),
            },
            _ => Operation::put(key, format!("{turn} ").repeat(turn * 37 % 900)),
        };
        let done = commit(store, [operation]).await.expect("it is taken");
        states.insert(done.revision, entries(store).await);
    }
}

impl Sample {
    /// Some of it is in the database, some in the log.
    async fn take() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut states = BTreeMap::from([(0, Vec::new())]);
        let store = open(folder.path()).expect("it opens");
        work(&store, 0..40, &mut states).await;
        store.compact(15).await.expect("it is compacted");
        drop(store);
        let store = open(folder.path()).expect("it opens");
        work(&store, 40..55, &mut states).await;
        let last = revision(&store).await;
        let read = |name| {
            (
                name,
                std::fs::read(folder.path().join(name)).expect("it is there"),
            )
        };
        let files = ["store.db", "store.db-wal", "head"].map(read).into();
        Self {
            files,
            states,
            last,
        }
    }

    /// A folder with these files, of which `change` changes `name`.
    fn copy(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        let mut change = Some(change);
        for (file, bytes) in &self.files {
            let mut bytes = bytes.clone();
            if *file == name {
                change.take().expect("once")(&mut bytes);
            }
            std::fs::write(folder.path().join(file), bytes).expect("it is written");
        }
        folder
    }

    /// Opens what lies in `folder`: it is refused and left as it is, or is a state that was. `false`: refused.
    async fn judge(&self, folder: &Path, what: &str) -> bool {
        let before = bytes_of(folder);
        let has_head = folder.join("head").exists();
        let store = match open(folder) {
            Err(Error::Damaged(why)) => {
                assert!(
                    why.contains("backup") && why.contains("repair"),
                    "{what}: {why}"
                );
                assert_eq!(bytes_of(folder), before, "{what}: it is left as it is");
                return false;
            }
            Err(other) => panic!("{what}: {other:?}"),
            Ok(store) => store,
        };
        let revision = revision(&store).await;
        assert!(
            !has_head || revision == self.last,
            "{what}: {revision} of {}",
            self.last
        );
        for (at, expected) in self.states.range(..=revision) {
            match entries_at(&store, *at).await {
                Ok(entries) => assert_eq!(&entries, expected, "{what}: at {at} of {revision}"),
                Err(Error::Compacted { oldest }) => assert!(oldest == 15 && *at < 15, "{what}"),
                Err(other) => panic!("{what}: {other:?}"),
            }
        }
        true
    }

    /// What opens goes on: rows are found to be taken away, new ones are added, and all of it opens again.
    async fn go_on(&self, folder: &Path, what: &str) {
        let store = open(folder).expect("it has opened before");
        let before = entries(&store).await;
        put(&store, "after", "1").await;
        let at = revision(&store).await;
        let compacted = store.compact(at).await;
        assert_eq!(compacted, Ok(()), "{what}");
        drop(store);
        let store = open(folder).unwrap_or_else(|error| panic!("{what}: {error}"));
        let mut after = entries(&store).await;
        after.retain(|entry| entry.key != "after");
        assert_eq!(after, before, "{what}");
    }

    /// As it is, and without what says what was acknowledged.
    async fn judge_both(&self, folder: &Path, what: &str, seen: &mut Seen) {
        let opened = self.judge(folder, what).await;
        seen.count(opened);
        if !opened {
            std::fs::remove_file(folder.join("head")).expect("it is there");
            let opened = self.judge(folder, &format!("{what}, no head")).await;
            seen.count(opened);
        }
    }
}

/// How many copies were opened, and how many refused.
#[derive(Debug, Default)]
struct Seen {
    opened: usize,
    refused: usize,
}

impl Seen {
    fn count(&mut self, opened: bool) {
        match opened {
            true => self.opened += 1,
            false => self.refused += 1,
        }
    }
}

/// What the files say; a log that is empty says nothing, and SQLite makes one as it looks for it.
fn bytes_of(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = ["store.db", "store.db-wal", "head"].map(|name| folder.join(name));
    let there = files.into_iter().filter(|file| file.exists());
    let read = |file: PathBuf| {
        let bytes = std::fs::read(&file).expect("it is read");
        (file, bytes)
    };
    there
        .map(read)
        .filter(|(_, bytes)| !bytes.is_empty())
        .collect()
}

/// Places to flip in `length` bytes, in every block of `block` bytes after `begin`: near its ends and somewhere inside.
fn places(length: usize, begin: usize, block: usize) -> impl Iterator<Item = usize> {
    (begin..length)
        .step_by(block)
        .enumerate()
        .flat_map(move |(at, start)| {
            let inside = (at * 2_654_435_761 + 17) % block;
            [0, 5, inside, (inside * 7 + 1_000) % block, block - 1]
                .map(|offset| start + offset)
                .into_iter()
                .filter(move |place| *place < length)
        })
}

#[tokio::test]
async fn a_flipped_bit_anywhere_is_never_read_wrongly() {
    let sample = Sample::take().await;
    for (file, begin, block) in [("store.db", 0, PAGE), ("store.db-wal", LOG_BEGIN, FRAME)] {
        let mut seen = Seen::default();
        let length = sample.files[file].len();
        assert!(length > 10 * PAGE, "{file} has {length} bytes only");
        for place in places(length, begin, block).chain(0..100.min(begin)) {
            let bit = 1 << (place % 8);
            let folder = sample.copy(file, |bytes| bytes[place] ^= bit);
            let what = format!("{file}, bit {bit} of byte {place}");
            sample.judge_both(folder.path(), &what, &mut seen).await;
        }
        assert!(seen.opened > 0 && seen.refused > 0, "{file}: {seen:?}");
    }
}

/// The keys in pages that only point to others are read by nobody who reads all rows in order; but whoever looks for one
/// row goes by them.
#[tokio::test]
async fn a_flipped_pointer_is_not_found_out_only_later() {
    let sample = Sample::take().await;
    // So that all of it is in the database.
    let folder = sample.copy("", |_| {});
    drop(open(folder.path()).expect("it opens"));
    let mut sample = sample;
    for (name, bytes) in &mut sample.files {
        *bytes = std::fs::read(folder.path().join(name)).unwrap_or_default();
    }
    let database = &sample.files["store.db"];
    let points = |page: &usize| database[page * PAGE] == 5;
    let pages: Vec<_> = (1..database.len() / PAGE).filter(points).collect();
    assert!(!pages.is_empty(), "no page points to others");
    let mut seen = Seen::default();
    for page in pages {
        for place in
            (page * PAGE..page * PAGE + 40).chain((page + 1) * PAGE - 100..(page + 1) * PAGE)
        {
            for bit in [1, 16] {
                let folder = sample.copy("store.db", |bytes| bytes[place] ^= bit);
                let what = format!("bit {bit} of byte {place}");
                let opened = sample.judge(folder.path(), &what).await;
                seen.count(opened);
                if opened {
                    sample.go_on(folder.path(), &what).await;
                }
            }
        }
    }
    assert!(seen.opened > 0 && seen.refused > 0, "{seen:?}");
}

#[tokio::test]
async fn a_file_that_was_cut_is_never_read_wrongly() {
    let sample = Sample::take().await;
    for (file, begin, block) in [("store.db", 0, PAGE), ("store.db-wal", LOG_BEGIN, FRAME)] {
        let mut seen = Seen::default();
        let length = sample.files[file].len();
        for start in (begin..length).step_by(block) {
            for end in [start, start + 1, start + block / 2] {
                let folder = sample.copy(file, |bytes| bytes.truncate(end));
                let what = format!("{file}, cut to {end} bytes of {length}");
                sample.judge_both(folder.path(), &what, &mut seen).await;
            }
        }
        assert!(seen.refused > 0, "{file}: {seen:?}");
    }
}

#[tokio::test]
async fn files_that_are_missing_are_noticed() {
    let sample = Sample::take().await;
    for file in ["store.db", "store.db-wal"] {
        let folder = sample.copy("", |_| {});
        std::fs::remove_file(folder.path().join(file)).expect("it is there");
        assert!(
            !sample.judge(folder.path(), file).await,
            "{file} is missing"
        );
    }
    let folder = sample.copy("", |_| {});
    std::fs::remove_file(folder.path().join("head")).expect("it is there");
    assert!(
        sample.judge(folder.path(), "head").await,
        "after a loss of power it may be missing"
    );
}

#[tokio::test]
async fn an_older_copy_is_noticed() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path()).expect("it opens");
    put(&store, "a", "1").await;
    drop(store);
    let old = std::fs::read(folder.path().join("store.db")).expect("it is there");
    let store = open(folder.path()).expect("it opens");
    // Not even a revision is made.
    store
        .grant(Duration::from_secs(60))
        .await
        .expect("it is granted");
    drop(store);
    std::fs::write(folder.path().join("store.db"), old).expect("it is written");
    let refused = open(folder.path()).map(drop);
    let Err(Error::Damaged(why)) = refused else {
        panic!("{refused:?}");
    };
    assert!(why.contains("older than what was acknowledged"), "{why}");
}

#[tokio::test]
async fn another_stores_database_is_noticed() {
    let one = tempfile::tempdir().expect("a folder");
    let two = tempfile::tempdir().expect("a folder");
    for folder in [&one, &two] {
        put(&open(folder.path()).expect("it opens"), "a", "1").await;
    }
    let copied = std::fs::copy(two.path().join("store.db"), one.path().join("store.db"));
    copied.expect("it is copied");
    let refused = open(one.path()).map(drop);
    assert!(
        matches!(&refused, Err(Error::Damaged(why)) if why.contains("another store")),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_sound_store_is_repaired_without_loss() {
    let sample = Sample::take().await;
    let folder = sample.copy("", |_| {});
    let repaired = repair(folder.path()).expect("it is read");
    assert_eq!(repaired.rows_lost, Some(0));
    assert!(repaired.revisions_lost.is_empty() && repaired.keys_ended.is_empty());
    let store = open(folder.path()).expect("it opens");
    assert_eq!(entries(&store).await, sample.states[&sample.last]);
    assert_eq!(revision(&store).await, sample.last + 1);
    assert_eq!(put(&store, "after", "1").await, sample.last + 2);
    assert!(repaired.old.join("store.db").exists());
    let text = repaired.to_string();
    assert!(text.contains("no row was lost"), "{text}");
}

#[tokio::test]
async fn what_can_be_read_of_a_damaged_store_is_saved() {
    let sample = Sample::take().await;
    let mut written: Vec<Entry> = sample.states.values().flatten().cloned().collect();
    written.dedup();
    let (mut saved, mut lost) = (0, 0);
    for (file, begin, block) in [("store.db", 0, PAGE), ("store.db-wal", LOG_BEGIN, FRAME)] {
        for start in (begin..sample.files[file].len()).step_by(block) {
            let place = start + 24 + start / block * 97 % (block - 24);
            let folder = sample.copy(file, |bytes| bytes[place] ^= 4);
            if open(folder.path()).is_ok() {
                continue;
            }
            let before = bytes_of(folder.path());
            match repair(folder.path()) {
                Ok(repaired) => {
                    saved += 1;
                    let store = open(folder.path()).expect("what is repaired opens");
                    for entry in entries(&store).await {
                        assert!(written.contains(&entry), "{file} {place}: {entry:?}");
                    }
                    assert!(revision(&store).await > sample.last);
                    let kept = std::fs::read(repaired.old.join(file)).expect("it is kept");
                    assert_eq!(kept, before[&folder.path().join(file)]);
                }
                Err(Error::Damaged(why)) => {
                    lost += 1;
                    assert!(why.contains("backup"), "{why}");
                    assert_eq!(bytes_of(folder.path()), before);
                }
                Err(other) => panic!("{other:?}"),
            }
        }
    }
    assert!(saved > 10 && saved > 3 * lost, "{saved} saved, {lost} lost");
}

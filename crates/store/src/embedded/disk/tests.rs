use super::*;
use crate::embedded::history::Made;
use crate::{Batch, Entry};
use std::sync::Arc;
use std::time::Duration;

/// The next revision: one key is put.
fn put(disk: &Disk, number: i64, bytes: usize) -> (Changes, Revision) {
    let revision = disk.meta.revision + 1;
    let entry = Entry {
        key: format!("k{number}").into(),
        value: vec![b'v'; bytes].into(),
        created: revision,
        modified: revision,
        version: 1,
        lease: None,
    };
    let made = Made {
        batch: Arc::new(Batch {
            revision,
            events: vec![Event::Put(entry)],
        }),
        number,
        at: Duration::ZERO,
    };
    let changes = Changes {
        made: vec![made],
        ..Changes::default()
    };
    (changes, revision)
}

fn open(path: &Path) -> (Disk, Contents) {
    let directory = Directory::take(path).expect("it is free");
    Disk::open(directory).expect("it opens")
}

#[test]
fn of_a_group_that_finds_the_disk_full_nothing_is_there_and_the_next_is_taken() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut disk, _) = open(folder.path());
    let limit = "PRAGMA max_page_count = 30";
    let limited = disk.connection.query_row(limit, (), |_| Ok(()));
    limited.expect("it is taken");
    let mut taken = 0;
    loop {
        let (changes, revision) = put(&disk, taken, 9_000);
        match disk.commit(&changes, revision) {
            Ok(()) => taken += 1,
            Err(Unwritten::Full(_)) => break,
            Err(Unwritten::Broken(what)) => panic!("{what}"),
        }
    }
    assert!(taken > 3, "{taken} were taken");
    let before = disk.meta.clone();
    assert_eq!(before.revision, taken as u64);
    disk.forget(&[0, 1], 2)
        .expect("it takes what makes it less");
    let (changes, revision) = put(&disk, taken, 9_000);
    disk.commit(&changes, revision)
        .expect("there is room again");
    disk.note_head();
    drop(disk);
    let (disk, contents) = open(folder.path());
    assert_eq!(disk.meta.revision, before.revision + 1);
    let numbers: Vec<_> = contents
        .changes
        .iter()
        .map(|change| change.number)
        .collect();
    assert_eq!(numbers, (2..=taken).collect::<Vec<_>>());
}

#[test]
fn a_fault_that_is_not_a_full_disk_leaves_nothing_known() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut disk, _) = open(folder.path());
    let (changes, revision) = put(&disk, 0, 10);
    disk.commit(&changes, revision).expect("it is written");
    // The same row a second time.
    let (changes, revision) = put(&disk, 0, 10);
    let twice = disk.commit(&changes, revision);
    assert!(matches!(twice, Err(Unwritten::Broken(_))), "{twice:?}");
    let missing = disk.forget(&[77], 1);
    assert!(matches!(missing, Err(Unwritten::Broken(_))), "{missing:?}");
}

#[test]
fn every_commit_is_forced_to_the_disk() {
    let folder = tempfile::tempdir().expect("a folder");
    let (disk, _) = open(folder.path());
    let number = |pragma: &str| -> i64 {
        let number = disk.connection.query_row(pragma, (), |row| row.get(0));
        number.expect("it answers")
    };
    assert_eq!(number("PRAGMA synchronous"), 2, "FULL");
    let mode: String = disk
        .connection
        .query_row("PRAGMA journal_mode", (), |row| row.get(0))
        .expect("it answers");
    assert_eq!(mode, "wal");
    assert_eq!(
        number("PRAGMA wal_autocheckpoint"),
        0,
        "it is done in the open"
    );
}

#[test]
fn a_log_that_has_grown_is_written_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut disk, _) = open(folder.path());
    let mut largest = 0;
    for number in 0..60 {
        let (changes, revision) = put(&disk, number, 500_000);
        disk.commit(&changes, revision).expect("it is written");
        disk.checkpoint_if_due().expect("it is written back");
        let length = std::fs::metadata(disk.directory.log())
            .expect("it is there")
            .len();
        largest = largest.max(length);
    }
    assert!(
        largest < 3 * CHECKPOINT_BYTES as u64,
        "the log has {largest} bytes"
    );
}

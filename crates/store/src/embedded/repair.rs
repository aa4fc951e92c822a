//! What can be saved of a damaged store.

use super::directory::{Directory, cannot};
use super::disk;
use super::rows::{ChangeRow, Contents, LeaseRow, Meta};
use crate::clock;
use crate::{Error, Revision};
use bytes::Bytes;
use rusqlite::Connection;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Most rows that are tried for beyond the last that could be read, where it is not known which is the last.
const TRIED_MAX: i64 = 100_000;

/// What became of a store that was repaired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repaired {
    /// How many keys are there.
    pub keys: usize,
    /// The new store's revision. The past is not held: it begins here.
    pub revision: Revision,
    /// Rows that were written and could not be read; `None`: nobody knows how many were written.
    pub rows_lost: Option<u64>,
    /// Revisions of which nothing could be read, from the first to the last of each gap: what they changed is as it was
    /// before them.
    pub revisions_lost: Vec<(Revision, Revision)>,
    /// Keys that were taken away because what is known of their lease is lost.
    pub keys_ended: Vec<Bytes>,
    /// Where the damaged files are now.
    pub old: PathBuf,
}

impl fmt::Display for Repaired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keys were saved", self.keys)?;
        match self.rows_lost {
            Some(0) => write!(f, "; no row was lost")?,
            Some(lost) => write!(f, "; {lost} rows were lost")?,
            None => write!(f, "; how many rows were lost is not known")?,
        }
        for (from, to) in &self.revisions_lost {
            write!(f, "; nothing is left of revisions {from} to {to}")?;
        }
        for key in &self.keys_ended {
            write!(f, "; `{}` has ended with its lease", key.escape_ascii())?;
        }
        write!(
            f,
            ". The new store begins at revision {}; the damaged files are in {}",
            self.revision,
            self.old.display()
        )
    }
}

/// Makes a new store in the folder `path` of what can be read of the one that is there. It is another store, with a past
/// that begins anew: whoever follows it lists it again. The damaged files are kept beside it.
///
/// # Errors
/// [`Error::Damaged`] if nothing can be read, [`Error::Unavailable`] if another process has it or the file system does not
/// let us: the damaged files are as they were then.
pub fn repair(path: &Path) -> Result<Repaired, Error> {
    let directory = Directory::take(path)?;
    let saved = Saved::read(&directory.database()).map_err(|error| {
        Error::Damaged(format!(
            "nothing of {} can be read: {error}. Put a copy of a backup in its place",
            directory.database().display()
        ))
    })?;
    let head = directory.head().map_or(0, |head| head.revision);
    let meta = saved.meta.as_ref();
    let read = saved.changes.values().map(|change| change.revision);
    let last = read
        .chain([head, meta.map_or(0, |meta| meta.revision)])
        .max()
        .unwrap_or(0);
    let revisions_lost = saved.gaps(last);
    let rows_lost = meta.map(|meta| (meta.rows as u64).saturating_sub(saved.rows()));
    let (changes, keys_ended) = saved.in_force();
    let mut contents = Contents::empty(clock::random());
    contents.meta.revision = last + 1;
    contents.meta.oldest = last + 1;
    contents.changes = changes;
    contents.spans = saved.spans;
    let old = keep_copies(&directory)?;
    // In this order: whatever stands there if it is cut short is refused, as `head` says that more was acknowledged, or
    // that it was another store's.
    remove(&directory.log())?;
    disk::create(&directory.database(), &contents)?;
    remove(&directory.head_path())?;
    Ok(Repaired {
        keys: contents.changes.len(),
        revision: last + 1,
        rows_lost,
        revisions_lost,
        keys_ended,
        old,
    })
}

/// Copies the files to a folder of their own.
fn keep_copies(directory: &Directory) -> Result<PathBuf, Error> {
    let free = (1..).map(|at| directory.path().join(format!("damaged-{at}")));
    let folder = free.into_iter().find(|folder| !folder.exists());
    let folder = folder.unwrap_or_else(|| directory.path().join("damaged"));
    std::fs::create_dir(&folder).map_err(|error| cannot("make", &folder, &error))?;
    let files = [directory.database(), directory.log(), directory.head_path()];
    for file in files.iter().filter(|file| file.exists()) {
        let copy = folder.join(file.file_name().unwrap_or_default());
        std::fs::copy(file, &copy)
            .and_then(|_| File::open(&copy)?.sync_all())
            .map_err(|error| cannot("copy", file, &error))?;
    }
    File::open(&folder)
        .and_then(|folder| folder.sync_all())
        .and_then(|()| directory.sync())
        .map_err(|error| cannot("write", &folder, &error))?;
    Ok(folder)
}

/// Takes `path` away, if it is there.
fn remove(path: &Path) -> Result<(), Error> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(cannot("remove", path, &error))
        }
        _ => Ok(()),
    }
}

/// The rows that could be read and are whole.
struct Saved {
    meta: Option<Meta>,
    /// By their numbers.
    changes: BTreeMap<i64, ChangeRow>,
    spans: Vec<LeaseRow>,
}

impl Saved {
    fn read(path: &Path) -> rusqlite::Result<Self> {
        let connection = disk::connect(path)?;
        let meta = Meta::read(&connection).ok();
        let mut spans = Vec::new();
        if let Ok(mut select) = connection.prepare("SELECT * FROM leases ORDER BY id") {
            let rows = select.query_map((), LeaseRow::from_row)?;
            let whole = rows
                .map_while(Result::ok)
                .filter(|(span, digest)| span.is_whole(*digest));
            spans.extend(whole.map(|(span, _)| span));
        }
        Ok(Self {
            meta: meta.and_then(|(meta, is_whole)| is_whole.then_some(meta)),
            changes: read_changes(&connection)?,
            spans,
        })
    }

    fn rows(&self) -> u64 {
        (self.changes.len() + self.spans.len()) as u64
    }

    /// Runs of revisions up to `last` of which there is nothing, though they should be held.
    fn gaps(&self, last: Revision) -> Vec<(Revision, Revision)> {
        let oldest = self.meta.as_ref().map_or(0, |meta| meta.oldest);
        let read: BTreeSet<_> = self
            .changes
            .values()
            .map(|change| change.revision)
            .collect();
        let mut gaps = Vec::new();
        let mut next = oldest + 1;
        for &revision in read.range(next..).chain([&(last + 1)]) {
            if revision > next {
                gaps.push((next, revision - 1));
            }
            next = revision + 1;
        }
        gaps
    }

    /// Each key's last row, where it is a put whose lease is known, and the keys whose lease is not.
    fn in_force(&self) -> (Vec<ChangeRow>, Vec<Bytes>) {
        let leases: BTreeSet<_> = self.spans.iter().map(|span| span.id).collect();
        let mut present = BTreeMap::new();
        for change in self.changes.values() {
            present.insert(&change.key, change);
        }
        let (mut changes, mut ended) = (Vec::new(), Vec::new());
        for change in present
            .into_values()
            .filter(|change| change.value.is_some())
        {
            match change.lease {
                0 => changes.push(change.clone()),
                id if leases.contains(&id) => changes.push(change.clone()),
                _ => ended.push(change.key.clone()),
            }
        }
        changes.sort_unstable_by_key(|change| change.number);
        (changes, ended)
    }
}

/// Every row that can be read: after one that cannot, it goes on with the next that can.
fn read_changes(connection: &Connection) -> rusqlite::Result<BTreeMap<i64, ChangeRow>> {
    let mut saved = BTreeMap::new();
    let backwards = "SELECT * FROM changes WHERE number >= ?1 ORDER BY number DESC";
    read_from(connection, backwards, i64::MIN, &mut saved)?;
    let known = saved.last_key_value().map(|(number, _)| *number);
    let forwards = "SELECT * FROM changes WHERE number >= ?1 ORDER BY number";
    let mut from = i64::MIN;
    while let Some(last) = read_from(connection, forwards, from, &mut saved)? {
        from = last.unwrap_or(from.max(-1)) + 1;
        let end =
            known.unwrap_or(saved.last_key_value().map_or(0, |(number, _)| *number) + TRIED_MAX);
        if from > end {
            break;
        }
    }
    Ok(saved)
}

/// Reads rows from number `from` until one cannot be read: then the number of the last that could, if any. `None`: it read
/// them to the end.
fn read_from(
    connection: &Connection,
    sql: &str,
    from: i64,
    saved: &mut BTreeMap<i64, ChangeRow>,
) -> rusqlite::Result<Option<Option<i64>>> {
    let mut select = connection.prepare(sql)?;
    let mut rows = select.query([from])?;
    let mut last = None;
    loop {
        let row = match rows.next() {
            Ok(Some(row)) => row,
            Ok(None) => return Ok(None),
            Err(_) => return Ok(Some(last)),
        };
        let number: rusqlite::Result<i64> = row.get(0);
        if let Ok((change, digest)) = ChangeRow::from_row(row)
            && change.is_whole(digest)
        {
            saved.insert(change.number, change);
        }
        last = number.ok().or(last);
    }
}

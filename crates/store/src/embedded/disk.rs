//! The SQLite database: its tables, how they are read, and how a group of changes is written.

use super::digest::{Digest, Row};
use super::directory::{Directory, Head, cannot};
use super::history::{Changes, Term};
use super::rows::{ChangeRow, Contents, LeaseRow, Meta};
use crate::{Error, Event, LeaseId, Revision};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Statement, ffi};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

#[cfg(test)]
mod tests;

/// What every SQLite database begins with.
const MAGIC: &[u8] = b"SQLite format 3\0";

/// The log is written back to the database once it has about so many bytes more.
const CHECKPOINT_BYTES: usize = 4 << 20;

/// What a change costs in the log beside its key and value: pages are written whole.
const CHANGE_BYTES: usize = 3 * 4096;

const TABLES: &str = "
CREATE TABLE meta (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    format INTEGER NOT NULL,
    id INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    oldest INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    row_count INTEGER NOT NULL,
    row_sum BLOB NOT NULL,
    digest BLOB NOT NULL
) STRICT;
CREATE TABLE changes (
    number INTEGER PRIMARY KEY,
    revision INTEGER NOT NULL,
    key BLOB NOT NULL,
    value BLOB,
    created INTEGER NOT NULL,
    version INTEGER NOT NULL,
    lease INTEGER NOT NULL,
    digest BLOB NOT NULL
) STRICT;
CREATE TABLE leases (
    id INTEGER PRIMARY KEY,
    granted_ms INTEGER NOT NULL,
    ends_ms INTEGER NOT NULL,
    digest BLOB NOT NULL
) STRICT;
";

/// The open database, which one thread owns.
#[derive(Debug)]
pub(super) struct Disk {
    connection: Connection,
    directory: Directory,
    meta: Meta,
    /// Bytes in the log, about, since it was last written back.
    logged: usize,
}

/// Why a group was not written.
#[derive(Debug)]
pub(super) enum Unwritten {
    /// The disk is full; nothing of it is there.
    Full(String),
    /// Nobody knows what is there, nor what the next one would make of it.
    Broken(String),
}

impl Disk {
    /// Opens the store of `directory`, or makes it.
    ///
    /// # Errors
    /// [`Error::Damaged`] if what is there is not what was written: nothing is changed then. [`Error::Unavailable`] if it
    /// cannot be read.
    pub(super) fn open(directory: Directory) -> Result<(Self, Contents), Error> {
        let path = directory.database();
        let head = directory.head();
        if !path.exists() {
            if directory.head_path().exists() || directory.log().exists() {
                return Err(damaged(&directory, "store.db is missing"));
            }
            create(&path, &Contents::empty(crate::clock::random()))?;
        }
        check_magic(&directory, &path)?;
        let connection = connect(&path).map_err(|error| unreadable(&directory, &error))?;
        let contents = read(&connection).map_err(|error| match error {
            Unread::Sqlite(error) => unreadable(&directory, &error),
            Unread::Wrong(what) => damaged(&directory, &what),
        })?;
        let mut disk = Self {
            connection,
            meta: contents.meta.clone(),
            directory,
            logged: 0,
        };
        disk.check_head(head)?;
        let ready = disk.connection.execute_batch(
            "PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0; PRAGMA temp_store = MEMORY;",
        );
        ready.map_err(|error| unreadable(&disk.directory, &error))?;
        if disk.meta.id == 0 {
            disk.name()?;
        }
        disk.note_head();
        Ok((disk, contents))
    }

    pub(super) fn id(&self) -> u64 {
        self.meta.id
    }

    /// A database that is behind what was acknowledged was cut, or is an old copy.
    fn check_head(&self, head: Option<Head>) -> Result<(), Error> {
        let Some(head) = head.filter(|_| self.meta.id != 0) else {
            return Ok(());
        };
        let what = if head.id != self.meta.id {
            "`head` belongs to another store than store.db: if it was put there on purpose, delete `head`".to_owned()
        } else if head.sequence > self.meta.sequence {
            format!(
                "it is older than what was acknowledged: it is at revision {} (change {}), and {} (change {}) was \
                 acknowledged",
                self.meta.revision, self.meta.sequence, head.revision, head.sequence
            )
        } else {
            return Ok(());
        };
        Err(damaged(&self.directory, &what))
    }

    /// A copy that was put in a store's place is a store of its own from now on: what is written to it from here on is not
    /// what the other one had at those revisions.
    fn name(&mut self) -> Result<(), Error> {
        let mut meta = self.meta.clone();
        meta.id = crate::clock::random().max(1);
        self.write(meta, |_, _| Ok(()))
            .map_err(|error| Error::Unavailable(format!("cannot write to store.db: {error:?}")))
    }

    /// Writes a group of changes, after which the store is at `revision`; when it returns they are on the disk.
    pub(super) fn commit(
        &mut self,
        changes: &Changes,
        revision: Revision,
    ) -> Result<(), Unwritten> {
        let mut meta = self.meta.clone();
        meta.revision = revision;
        self.write(meta, |transaction, meta| {
            let mut insert = transaction.prepare(ChangeRow::INSERT)?;
            for made in &changes.made {
                for (number, event) in (made.number..).zip(&made.batch.events) {
                    let change = ChangeRow::of(number, made.batch.revision, event);
                    meta.add(change.insert(&mut insert)?);
                }
            }
            write_leases(transaction, changes, meta)
        })?;
        self.logged += changes
            .made
            .iter()
            .map(|made| logged_bytes(&made.batch.events))
            .sum::<usize>();
        self.logged += changes.leases.len() * CHANGE_BYTES;
        Ok(())
    }

    /// Takes the rows `numbers` away, after which `oldest` is the oldest revision that is held.
    pub(super) fn forget(&mut self, numbers: &[i64], oldest: Revision) -> Result<(), Unwritten> {
        let mut meta = self.meta.clone();
        meta.oldest = oldest;
        self.write(meta, |transaction, meta| {
            let mut delete =
                transaction.prepare("DELETE FROM changes WHERE number = ?1 RETURNING digest")?;
            for number in numbers {
                meta.take(
                    taken(&mut delete, *number)?.ok_or(rusqlite::Error::QueryReturnedNoRows)?,
                );
            }
            Ok(())
        })?;
        self.logged += numbers.len() * 512;
        Ok(())
    }

    /// Writes what `fill` does and the row of `meta` that it makes, or nothing.
    fn write<F>(&mut self, mut meta: Meta, fill: F) -> Result<(), Unwritten>
    where
        F: FnOnce(&Connection, &mut Meta) -> rusqlite::Result<()>,
    {
        meta.sequence += 1;
        let written = self
            .connection
            .execute_batch("BEGIN IMMEDIATE")
            .and_then(|()| fill(&self.connection, &mut meta))
            .and_then(|()| meta.update(&self.connection))
            .and_then(|()| self.connection.execute_batch("COMMIT"));
        let Err(error) = written else {
            self.meta = meta;
            return Ok(());
        };
        // The end of a transaction is the last that is written to the log, before it is forced to the disk: where a write
        // found no room the end is not in it, and the next transaction is written over what is. Of any other fault nobody can
        // say what has reached the disk: pages that failed to be forced there may count as written from then on.
        let undone =
            self.connection.is_autocommit() || self.connection.execute_batch("ROLLBACK").is_ok();
        match found_no_room(&error) && undone {
            true => Err(Unwritten::Full(error.to_string())),
            false => Err(Unwritten::Broken(error.to_string())),
        }
    }

    /// Writes the row of `meta` alone, to see whether there is room again.
    pub(super) fn look(&mut self) -> Result<(), Unwritten> {
        self.write(self.meta.clone(), |_, _| Ok(()))
    }

    /// Notes what is to be acknowledged. A note that cannot be written leaves an older one: less would be noticed, and
    /// nothing wrong be said.
    pub(super) fn note_head(&mut self) {
        let head = Head {
            id: self.meta.id,
            sequence: self.meta.sequence,
            revision: self.meta.revision,
        };
        let _ = self.directory.set_head(head);
    }

    /// Writes the log back to the database if it has grown enough. Where that fails it stays due.
    ///
    /// # Errors
    /// [`Unwritten::Full`] if the database found no room to grow. The log has all that it had, each change of it forced to
    /// the disk long ago, and the next time all of it is written back from its beginning: nothing is lost, and nothing in
    /// doubt. A failed `fsync` is [`Unwritten::Broken`]: what it has left is not known.
    pub(super) fn checkpoint_if_due(&mut self) -> Result<(), Unwritten> {
        if self.logged < CHECKPOINT_BYTES {
            return Ok(());
        }
        let written = self.checkpoint("PASSIVE").map_err(|error| {
            let what = error.to_string();
            match found_no_room(&error) {
                true => Unwritten::Full(what),
                false => Unwritten::Broken(what),
            }
        });
        if written.is_ok() {
            self.logged = 0;
        }
        written
    }

    /// Writes the whole log back and empties it: a store that is closed in order is one file.
    pub(super) fn close(self) -> rusqlite::Result<()> {
        self.checkpoint("TRUNCATE")
    }

    fn checkpoint(&self, mode: &str) -> rusqlite::Result<()> {
        let pragma = format!("PRAGMA wal_checkpoint({mode})");
        self.connection.query_row(&pragma, (), |_| Ok(()))
    }
}

/// Whether a write found no room. SQLite says so of a full disk alone; of a quota that is used up (`EDQUOT`), or a file that may
/// not grow (`EFBIG`), it says that a write failed.
fn found_no_room(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error().map(|error| error.extended_code);
    matches!(code, Some(ffi::SQLITE_FULL | ffi::SQLITE_IOERR_WRITE))
}

fn logged_bytes(events: &[Event]) -> usize {
    let value = |event: &Event| match event {
        Event::Put(entry) => entry.value.len(),
        Event::Delete(_) => 0,
    };
    events.iter().map(|event| value(event) + CHANGE_BYTES).sum()
}

fn write_leases(
    transaction: &Connection,
    changes: &Changes,
    meta: &mut Meta,
) -> rusqlite::Result<()> {
    let mut delete = transaction.prepare("DELETE FROM leases WHERE id = ?1 RETURNING digest")?;
    let mut insert = transaction.prepare(LeaseRow::INSERT)?;
    for (LeaseId(id), term) in &changes.leases {
        if let Some(old) = taken(&mut delete, *id)? {
            meta.take(old);
        }
        if let Some(Term {
            granted,
            until_wall,
            ..
        }) = term
        {
            let span = LeaseRow {
                id: *id,
                granted: *granted,
                ends: *until_wall,
            };
            meta.add(span.insert(&mut insert)?);
        }
    }
    Ok(())
}

/// The digest of the row that `delete` took away.
fn taken(delete: &mut Statement<'_>, name: i64) -> rusqlite::Result<Option<Digest>> {
    let digest = delete.query_row([name], |row| row.get(0)).optional()?;
    Ok(digest.map(Digest::from_bytes))
}

/// Writes a new database to `path`: whole, or not at all.
pub(super) fn create(path: &Path, contents: &Contents) -> Result<(), Error> {
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(".new");
    let fresh = Path::new(&fresh);
    if fresh.exists() {
        std::fs::remove_file(fresh).map_err(|error| cannot("remove", fresh, &error))?;
    }
    fill(fresh, contents).map_err(|error| {
        Error::Unavailable(format!("cannot write {}: {error}", fresh.display()))
    })?;
    let done = File::open(fresh)
        .and_then(|file| file.sync_all())
        .and_then(|()| std::fs::rename(fresh, path))
        .and_then(|()| sync_folder(path));
    done.map_err(|error| cannot("put in place", path, &error))
}

/// Makes the name of `path` last.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

fn fill(path: &Path, contents: &Contents) -> rusqlite::Result<()> {
    let connection = Connection::open(path)?;
    connection
        .execute_batch("PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; BEGIN")?;
    connection.execute_batch(TABLES)?;
    let mut meta = contents.meta.clone();
    (meta.rows, meta.sum) = (0, Digest::default());
    let mut insert = connection.prepare(ChangeRow::INSERT)?;
    for change in &contents.changes {
        meta.add(change.insert(&mut insert)?);
    }
    let mut insert_span = connection.prepare(LeaseRow::INSERT)?;
    for span in &contents.spans {
        meta.add(span.insert(&mut insert_span)?);
    }
    meta.insert(&connection)?;
    connection.execute_batch("COMMIT")?;
    drop((insert, insert_span));
    connection.close().map_err(|(_, error)| error)
}

/// SQLite takes an empty file for a new database, and does away with a log beside it.
fn check_magic(directory: &Directory, path: &Path) -> Result<(), Error> {
    let mut begin = [0; MAGIC.len()];
    let mut file = File::open(path).map_err(|error| cannot("open", path, &error))?;
    match file.read_exact(&mut begin) {
        Ok(()) if begin == MAGIC => Ok(()),
        _ => Err(damaged(directory, "store.db is not an SQLite database")),
    }
}

/// Opens without writing anything, now or when it is closed: what is damaged is left as it is.
pub(super) fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.execute_batch("PRAGMA locking_mode = EXCLUSIVE")?;
    Ok(connection)
}

/// Why a database was not read.
enum Unread {
    Sqlite(rusqlite::Error),
    Wrong(String),
}

impl From<rusqlite::Error> for Unread {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

/// All that is there, if it is what was written.
fn read(connection: &Connection) -> Result<Contents, Unread> {
    let mode: String = connection.query_row("PRAGMA journal_mode", (), |row| row.get(0))?;
    if mode != "wal" {
        return Err(Unread::Wrong(format!(
            "its journal mode is {mode}, not wal"
        )));
    }
    connection.execute_batch("BEGIN")?;
    let check: String = connection.query_row("PRAGMA quick_check(1)", (), |row| row.get(0))?;
    if check != "ok" {
        return Err(Unread::Wrong(check));
    }
    let contents = Contents::read(connection)?;
    connection.execute_batch("COMMIT")?;
    contents.check().map_err(Unread::Wrong)?;
    Ok(contents)
}

/// A fault of SQLite as it reads: of the file system, or of what is in the file.
fn unreadable(directory: &Directory, error: &rusqlite::Error) -> Error {
    use rusqlite::ErrorCode::{CannotOpen, DatabaseBusy, OutOfMemory, PermissionDenied, ReadOnly};
    match error.sqlite_error_code() {
        Some(CannotOpen | DatabaseBusy | OutOfMemory | PermissionDenied | ReadOnly) => {
            Error::Unavailable(format!(
                "cannot open {}: {error}",
                directory.database().display()
            ))
        }
        _ => damaged(directory, &error.to_string()),
    }
}

/// With what can be done about it.
fn damaged(directory: &Directory, what: &str) -> Error {
    Error::Damaged(format!(
        "{}: {what}. Nothing was changed: put a copy of a backup in its place as store.db, without store.db-wal and head, \
         or repair it, which says what is lost",
        directory.path().display()
    ))
}

/// Digests the one row of `meta`.
pub(super) fn digest_meta(meta: &Meta) -> Digest {
    Row::of("meta")
        .number(meta.format)
        .number(meta.id as i64)
        .number(meta.revision as i64)
        .number(meta.oldest as i64)
        .number(meta.sequence as i64)
        .number(meta.rows)
        .bytes(Some(&meta.sum.bytes()))
        .digest()
}

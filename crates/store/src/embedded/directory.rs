//! The folder that a store lives in: who has it, and up to where it was acknowledged.

use super::digest::Row;
use crate::{Error, Revision};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const DATABASE: &str = "store.db";
const LOG: &str = "store.db-wal";
const HEAD: &str = "head";
const LOCK: &str = "lock";

/// A folder that no other process has.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    /// Locked for as long as it is open: also a process that is killed lets go of it.
    lock: File,
    head: Option<File>,
}

impl Directory {
    /// Makes the folder if it is not there, and takes it.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if another process has it, or the file system does not let us.
    pub(super) fn take(path: &Path) -> Result<Self, Error> {
        std::fs::create_dir_all(path).map_err(|error| cannot("make", path, &error))?;
        let lock = path.join(LOCK);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&lock)
            .map_err(|error| cannot("open", &lock, &error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(held(path, &mut file)),
            Err(TryLockError::Error(error)) => return Err(cannot("lock", &lock, &error)),
        }
        // It tells others whom to ask, and no more: a full disk, which has no room for it, can still be read.
        let _ = file
            .set_len(0)
            .and_then(|()| file.write_all(std::process::id().to_string().as_bytes()));
        Ok(Self {
            path: path.to_owned(),
            lock: file,
            head: None,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn database(&self) -> PathBuf {
        self.path.join(DATABASE)
    }

    pub(super) fn log(&self) -> PathBuf {
        self.path.join(LOG)
    }

    pub(super) fn head_path(&self) -> PathBuf {
        self.path.join(HEAD)
    }

    /// What was last acknowledged; `None` if that is not known, as after a loss of power.
    pub(super) fn head(&self) -> Option<Head> {
        Head::from_bytes(&std::fs::read(self.head_path()).ok()?)
    }

    /// Notes what will be acknowledged now. It is not forced to the disk: what is to be noticed is a database that was put
    /// back or cut while the machine runs on, or after it was shut down in order.
    ///
    /// # Errors
    /// Those of the file system.
    pub(super) fn set_head(&mut self, head: Head) -> io::Result<()> {
        let path = self.head_path();
        let file = match &self.head {
            Some(file) => file,
            None => {
                let mut options = OpenOptions::new();
                options.write(true).create(true).truncate(false);
                self.head.insert(options.open(path)?)
            }
        };
        file.write_all_at(&head.bytes(), 0)
    }

    /// Makes names that were made or changed in the folder last.
    ///
    /// # Errors
    /// Those of the file system.
    pub(super) fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // By itself it would be held on by a child process that has been forked and has not yet become what it will be.
        let _ = self.lock.unlock();
    }
}

/// That `path` could not be dealt with.
pub(super) fn cannot(what: &str, path: &Path, error: &io::Error) -> Error {
    Error::Unavailable(format!("cannot {what} {}: {error}", path.display()))
}

fn held(path: &Path, lock: &mut File) -> Error {
    let mut holder = String::new();
    let read = lock
        .rewind()
        .and_then(|()| lock.read_to_string(&mut holder));
    let holder = match read {
        Ok(_) if !holder.is_empty() => format!("process {holder}"),
        _ => "another process".to_owned(),
    };
    Error::Unavailable(format!(
        "{} is in use by {holder}: go through it, as `instance:/SOCKET` with the socket of its admin API, or stop it first",
        path.display()
    ))
}

/// Up to where a store was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// Which store.
    pub(super) id: u64,
    /// How many groups of changes it had made.
    pub(super) sequence: u64,
    pub(super) revision: Revision,
}

const HEAD_BYTES: usize = 40;

impl Head {
    fn bytes(self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..8].copy_from_slice(&self.id.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.revision.to_le_bytes());
        let digest = Row::of("head").bytes(Some(&bytes[..24])).digest();
        bytes[24..].copy_from_slice(&digest.bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let number = |at: usize| {
            let slice = bytes.get(at..at + 8)?;
            Some(u64::from_le_bytes(slice.try_into().ok()?))
        };
        let head = Self {
            id: number(0)?,
            sequence: number(8)?,
            revision: number(16)?,
        };
        (head.bytes() == bytes).then_some(head)
    }
}

//! Keeps the table that came into force last for the next start, which may find the store away.
//!
//! What is kept is what was in force: an object that was pinned because its newer form was bad is kept as it was pinned.
//! Beside it stands up to when the store has confirmed it, which is long after it came into force where nobody edits.

use bytes::Bytes;
use mizan_store::Entry;
use mizan_store::follower::Memory;
use mizan_store::image::{self, About, Durability, Image, ImageError, Place};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Between two notes of up to when the store has confirmed the table: what a kill leaves says no more than that much too little.
pub const CONFIRM: Duration = Duration::from_secs(10);

/// Why there is no last good table.
#[derive(Debug, thiserror::Error)]
pub enum LastGoodError {
    /// The folder, or the file in it.
    #[error("the last good table in {}", folder.display())]
    Io {
        /// Which folder.
        folder: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is not what was written.
    #[error("the last good table {}: {error}", path.display())]
    Image {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        error: ImageError,
    },
}

/// A table that was in force once.
#[derive(Clone, Debug)]
pub struct Restored {
    /// Its keys and documents, as the follower begins with.
    pub memory: Memory,
    /// The store that it is of.
    pub store: u64,
    /// Up to when the store had confirmed it, since 1970; not before it was written.
    pub confirmed: Duration,
}

/// The folder of the last good table.
#[derive(Debug)]
pub struct LastGood {
    place: Place,
    name: String,
    /// The turn that was given last.
    given: AtomicU64,
    /// The turn of the table that is written; held while another is.
    written: Mutex<u64>,
}

/// A table's turn to be written: of two, the one that took its turn later stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn(u64);

impl LastGood {
    /// That of `namespace` in `folder`, which is made if it is not there.
    ///
    /// # Errors
    /// [`LastGoodError::Io`], also if the folder belongs to somebody else or others may write to it.
    pub fn open(folder: &Path, namespace: &str) -> Result<Self, LastGoodError> {
        let io = |source| LastGoodError::Io {
            folder: folder.to_owned(),
            source,
        };
        Ok(Self {
            place: Place::open(folder).map_err(io)?,
            name: format!("{namespace}.table"),
            given: AtomicU64::new(0),
            written: Mutex::new(0),
        })
    }

    /// What was written last, with `prefix` before its keys; `None`: nothing.
    ///
    /// # Errors
    /// See [`LastGoodError`].
    pub fn read(&self, prefix: &[u8]) -> Result<Option<Restored>, LastGoodError> {
        let Some(bytes) = self.place.read(&self.name).map_err(|it| self.io(it))? else {
            return Ok(None);
        };
        let image = Image::read(&Bytes::from(bytes)).map_err(|error| self.image(error))?;
        let about = image.about();
        let confirmed = self.confirmed().unwrap_or_default();
        let entries: BTreeMap<Bytes, Entry> = image
            .entries()
            .map(|(key, value)| {
                let key = Bytes::from([prefix, &key[..]].concat());
                let entry = Entry {
                    key: key.clone(),
                    value,
                    // When each was put is not kept; the store says so when it is heard.
                    created: about.revision,
                    modified: about.revision,
                    version: 1,
                    lease: None,
                };
                (key, entry)
            })
            .collect();
        Ok(Some(Restored {
            memory: Memory::new(entries, about.revision),
            store: about.store,
            confirmed: confirmed.max(Duration::from_millis(about.written_ms)),
        }))
    }

    /// The next table's turn, taken when it comes into force: threads write, and not in that order.
    pub fn turn(&self) -> Turn {
        Turn(1 + self.given.fetch_add(1, Ordering::Relaxed))
    }

    /// Writes `entries`, keys without their prefix with their documents, sorted by the keys, in the place of what was there:
    /// all of it or nothing, also when power is lost. Nothing is done if a later turn has been written already.
    ///
    /// # Errors
    /// See [`LastGoodError`].
    pub fn write<'a>(
        &self,
        Turn(turn): Turn,
        about: &About,
        entries: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<(), LastGoodError> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if *written > turn {
            return Ok(());
        }
        let bytes = image::write(about, entries).map_err(|error| self.image(error))?;
        let put = self.place.put(&self.name, &bytes, Durability::Disk);
        put.map_err(|source| self.io(source))?;
        *written = turn;
        Ok(())
    }

    /// Notes that the store confirmed what was written, `at` (since 1970). A note that a loss of power takes makes the table
    /// look older, no worse.
    ///
    /// # Errors
    /// [`LastGoodError::Io`].
    pub fn confirm(&self, at: Duration) -> Result<(), LastGoodError> {
        let text = format!("{}\n", at.as_millis());
        let name = self.confirmed_name();
        let put = self.place.put(&name, text.as_bytes(), Durability::Memory);
        put.map_err(|source| self.io(source))
    }

    /// What was noted; `None`: nothing, or nothing that can be read.
    fn confirmed(&self) -> Option<Duration> {
        let bytes = self.place.read(&self.confirmed_name()).ok()??;
        let millis = std::str::from_utf8(&bytes).ok()?.trim().parse().ok()?;
        Some(Duration::from_millis(millis))
    }

    fn confirmed_name(&self) -> String {
        format!("{}.confirmed", self.name)
    }

    fn io(&self, source: io::Error) -> LastGoodError {
        LastGoodError::Io {
            folder: self.place.path().to_owned(),
            source,
        }
    }

    fn image(&self, error: ImageError) -> LastGoodError {
        LastGoodError::Image {
            path: self.place.path().join(&self.name),
            error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(last_good: &LastGood, turn: Turn, revision: u64) {
        let about = About {
            revision,
            store: 7,
            written_ms: 1_000,
        };
        let entries = [("settings/ko", "{}")];
        last_good
            .write(turn, &about, entries)
            .expect("it is written");
    }

    fn read(last_good: &LastGood) -> Restored {
        let read = last_good.read(b"t/").expect("it can be read");
        read.expect("it is there")
    }

    /// Two threads that write may finish in either order.
    #[test]
    fn the_table_that_came_into_force_last_is_what_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let last_good = LastGood::open(folder.path(), "one").expect("it can be used");
        let (first, second) = (last_good.turn(), last_good.turn());
        write(&last_good, second, 9);
        write(&last_good, first, 8);
        assert_eq!(read(&last_good).memory.revision(), 9);
        // A store that was put back has lower revisions, and its table is the later one all the same.
        write(&last_good, last_good.turn(), 3);
        assert_eq!(read(&last_good).memory.revision(), 3);
    }

    #[test]
    fn a_table_is_as_old_as_what_the_store_last_said_of_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let last_good = LastGood::open(folder.path(), "one").expect("it can be used");
        write(&last_good, last_good.turn(), 1);
        assert_eq!(read(&last_good).confirmed, Duration::from_secs(1));
        last_good
            .confirm(Duration::from_secs(3_600))
            .expect("it is noted");
        assert_eq!(read(&last_good).confirmed, Duration::from_secs(3_600));
        // What was noted of the table before says nothing of one that is newer.
        last_good
            .confirm(Duration::from_millis(10))
            .expect("it is noted");
        assert_eq!(read(&last_good).confirmed, Duration::from_secs(1));
        std::fs::write(folder.path().join("one.table.confirmed"), "soon").expect("a file");
        assert_eq!(read(&last_good).confirmed, Duration::from_secs(1));
    }
}

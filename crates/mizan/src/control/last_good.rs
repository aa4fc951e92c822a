//! Keeps the table that came into force last for the next start, which may find the store away.
//!
//! What is kept is what was in force: an object that was pinned because its newer form was bad is kept as it was pinned.

use bytes::Bytes;
use mizan_store::Entry;
use mizan_store::follower::Memory;
use mizan_store::image::{self, About, Durability, Image, ImageError, Place};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

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
    /// When it was written, since 1970.
    pub written: Duration,
}

/// The folder of the last good table.
#[derive(Debug)]
pub struct LastGood {
    place: Place,
    name: String,
}

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
            written: Duration::from_millis(about.written_ms),
        }))
    }

    /// Writes `entries`, keys without their prefix with their documents, sorted by the keys, in the place of what was there:
    /// all of it or nothing, also when power is lost.
    ///
    /// # Errors
    /// See [`LastGoodError`].
    pub fn write<'a>(
        &self,
        about: &About,
        entries: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<(), LastGoodError> {
        let bytes = image::write(about, entries).map_err(|error| self.image(error))?;
        let put = self.place.put(&self.name, &bytes, Durability::Disk);
        put.map_err(|source| self.io(source))
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

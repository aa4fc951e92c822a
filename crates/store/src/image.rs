//! A table as one immutable file, for readers in any language and for the next start.
//!
//! ```text
//! header, 64 bytes, little-endian
//!    0  magic             8  "MIZANTAB"
//!    8  major             2  1: another one is not for this reader
//!   10  minor             2  0: more of it can be ignored
//!   12  header length     4  64: where the body begins
//!   16  revision          8  of the store
//!   24  store             8  which store that is
//!   32  written           8  ms since 1970
//!   40  body length       4
//!   44  index offset      4  in the body: where the JSON ends
//!   48  body's CRC-32     4
//!   52  flags             4  0
//!   56  reserved          4  0
//!   60  header's CRC-32   4  of the 60 bytes before
//! body
//!   JSON: one object, its keys sorted by their bytes, no blanks
//!   index: for each key, in the same order, 4 × 4 bytes: offset and length of the key's text (without its quotes), offset and
//!   length of its value, all in the body
//! ```
//!
//! The CRC is IEEE's, which PHP, Python, Go and Rust all have. A reader that wants one key searches the index and parses one
//! value. Who writes makes a new file and renames it, so that no reader ever sees half of one (`place`).

mod place;
#[cfg(test)]
mod tests;

pub use place::{Durability, Place};

use crate::Revision;
use bytes::Bytes;
use std::ops::Range;

/// What the file begins with.
pub const MAGIC: &[u8; 8] = b"MIZANTAB";
/// Of the format.
pub const MAJOR: u16 = 1;
/// Length of the header, in bytes.
pub const HEADER: usize = 64;
/// Longest body, in bytes.
pub const BODY_BYTES_MAX: usize = 64 << 20;

/// What a file says of its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About {
    /// The store's revision that the table is of.
    pub revision: Revision,
    /// Which store ([`Store::identity`](crate::Store::identity)).
    pub store: u64,
    /// When it was written, in ms since 1970.
    pub written_ms: u64,
}

/// Why a file is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// It is no file of this kind.
    #[error("it does not begin as a table's file does")]
    Magic,
    /// It is of a later format.
    #[error("it is of format {0}, and this reads format {MAJOR}")]
    Major(u16),
    /// It is shorter than it says.
    #[error("it is cut: {found} bytes of {expected}")]
    Cut {
        /// How long it is.
        found: usize,
        /// How long it should be.
        expected: usize,
    },
    /// A checksum does not hold.
    #[error("its {0} is damaged: the checksum is another")]
    Checksum(&'static str),
    /// Its checksums hold and it makes no sense.
    #[error("its {0} makes no sense")]
    Nonsense(&'static str),
    /// A key or a value that cannot stand in one.
    #[error("`{0}` cannot stand in a table's file: {1}")]
    Unfit(String, &'static str),
}

/// The file's bytes for `entries`, which are keys with their JSON, sorted by the keys.
///
/// # Errors
/// [`ImageError::Unfit`] for a key that JSON would have to escape, keys out of order, or more than [`BODY_BYTES_MAX`].
pub fn write<'a>(
    about: &About,
    entries: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<Vec<u8>, ImageError> {
    let mut out = vec![0; HEADER];
    let mut index = Vec::new();
    let mut last: Option<&str> = None;
    out.push(b'{');
    for (key, value) in entries {
        let is_plain = |byte: u8| (0x20..0x7f).contains(&byte) && byte != b'"' && byte != b'\\';
        if !key.bytes().all(is_plain) {
            let why = "JSON would have to escape the key";
            return Err(ImageError::Unfit(key.to_owned(), why));
        }
        if last.is_some_and(|last| last >= key) {
            let why = "it is out of order";
            return Err(ImageError::Unfit(key.to_owned(), why));
        }
        if last.replace(key).is_some() {
            out.push(b',');
        }
        out.push(b'"');
        let name = out.len() - HEADER;
        out.extend_from_slice(key.as_bytes());
        out.extend_from_slice(b"\":");
        let content = out.len() - HEADER;
        out.extend_from_slice(value.as_bytes());
        if out.len() - HEADER > BODY_BYTES_MAX {
            let why = "the file would be too long";
            return Err(ImageError::Unfit(key.to_owned(), why));
        }
        for number in [name, key.len(), content, value.len()] {
            index.extend_from_slice(&(number as u32).to_le_bytes());
        }
    }
    out.push(b'}');
    let json = out.len() - HEADER;
    out.extend_from_slice(&index);
    let sum = crc32fast::hash(&out[HEADER..]);
    let body = out.len() - HEADER;
    let mut header = Vec::with_capacity(HEADER);
    header.extend_from_slice(MAGIC);
    header.extend_from_slice(&MAJOR.to_le_bytes());
    header.extend_from_slice(&0u16.to_le_bytes());
    header.extend_from_slice(&(HEADER as u32).to_le_bytes());
    header.extend_from_slice(&about.revision.to_le_bytes());
    header.extend_from_slice(&about.store.to_le_bytes());
    header.extend_from_slice(&about.written_ms.to_le_bytes());
    for number in [body as u32, json as u32, sum, 0, 0] {
        header.extend_from_slice(&number.to_le_bytes());
    }
    let sum = crc32fast::hash(&header);
    header.extend_from_slice(&sum.to_le_bytes());
    out[..HEADER].copy_from_slice(&header);
    Ok(out)
}

/// A file that was read and found whole.
#[derive(Clone, Debug)]
pub struct Image {
    about: About,
    body: Bytes,
    json: usize,
}

impl Image {
    /// What `file` holds.
    ///
    /// # Errors
    /// What is wrong with it. Nothing of a file with an error is to be used.
    pub fn read(file: &Bytes) -> Result<Self, ImageError> {
        let expected = |expected| ImageError::Cut {
            found: file.len(),
            expected,
        };
        let header = file.get(..HEADER).ok_or(expected(HEADER))?;
        if &header[..8] != MAGIC {
            return Err(ImageError::Magic);
        }
        let major = u16::from_le_bytes([header[8], header[9]]);
        if major != MAJOR {
            return Err(ImageError::Major(major));
        }
        if crc32fast::hash(&header[..60]) != number(header, 60) {
            return Err(ImageError::Checksum("header"));
        }
        let start = number(header, 12) as usize;
        let length = number(header, 40) as usize;
        let end = start.checked_add(length).filter(|_| start >= HEADER);
        let end = end.ok_or(ImageError::Nonsense("header"))?;
        if file.len() < end {
            return Err(expected(end));
        }
        let body = file.slice(start..end);
        if crc32fast::hash(&body) != number(header, 48) {
            return Err(ImageError::Checksum("body"));
        }
        let json = number(header, 44) as usize;
        let is_sound = json <= length && (length - json).is_multiple_of(16);
        let image = Self {
            about: About {
                revision: long(header, 16),
                store: long(header, 24),
                written_ms: long(header, 32),
            },
            body,
            json,
        };
        match is_sound && (0..image.len()).all(|at| image.spans(at).is_some()) {
            true => Ok(image),
            false => Err(ImageError::Nonsense("index")),
        }
    }

    /// What it says of its body.
    pub fn about(&self) -> About {
        self.about
    }

    /// The whole table, as one JSON object.
    pub fn json(&self) -> &[u8] {
        &self.body[..self.json]
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        (self.body.len() - self.json) / 16
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of `key`, as JSON.
    pub fn value(&self, key: &[u8]) -> Option<Bytes> {
        let mut span = 0..self.len();
        while !span.is_empty() {
            let middle = span.start + span.len() / 2;
            let (name, value) = self.entry(middle);
            match (*name).cmp(key) {
                std::cmp::Ordering::Equal => return Some(value),
                std::cmp::Ordering::Less => span.start = middle + 1,
                std::cmp::Ordering::Greater => span.end = middle,
            }
        }
        None
    }

    /// All keys with their JSON, sorted.
    pub fn entries(&self) -> impl Iterator<Item = (Bytes, Bytes)> + '_ {
        (0..self.len()).map(|at| self.entry(at))
    }

    fn entry(&self, at: usize) -> (Bytes, Bytes) {
        let (name, value) = self.spans(at).unwrap_or_default();
        (self.body.slice(name), self.body.slice(value))
    }

    /// Where the key and the value lie, if they lie in the JSON.
    fn spans(&self, at: usize) -> Option<(Range<usize>, Range<usize>)> {
        let line = &self.body[self.json + 16 * at..][..16];
        let span = |from: usize| {
            let start = number(line, from) as usize;
            let end = start.checked_add(number(line, from + 4) as usize)?;
            (end <= self.json).then_some(start..end)
        };
        Some((span(0)?, span(8)?))
    }
}

fn number(bytes: &[u8], at: usize) -> u32 {
    let mut four = [0; 4];
    four.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(four)
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(number(bytes, at)) | u64::from(number(bytes, at + 4)) << 32
}

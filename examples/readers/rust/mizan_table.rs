//! Reads Mizan's routing table from shared memory: no network, no lock, never half of a table. One file, the standard library
//! alone; who has the crate `mizan-store` reads with its `image`.
//!
//! ```text
//! let mut table = Table::open("/dev/shm/mizan/routing.snap".as_ref(), None)?;
//! table.get("settings/ko")      // the document's JSON, or None
//! ```
//!
//! The writer puts a new file in the old one's place, so a file that was opened is whole and never changes. A file that does
//! not hold what its checksums say is not used: what was read before stays. The format stands in crates/store/src/image.rs.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const HEADER: usize = 64;

/// The table in a file, as it was when it was last looked at.
pub struct Table {
    path: PathBuf,
    owner: Option<u32>,
    seen: (u64, i64, i64),
    body: Vec<u8>,
    json: usize,
    revision: u64,
}

impl Table {
    /// Reads the table. `owner`: the number of the user who may write it; `None`: whoever owns its folder.
    pub fn open(path: &Path, owner: Option<u32>) -> io::Result<Self> {
        let (path, body) = (path.to_owned(), Vec::new());
        let mut table = Self { path, owner, seen: (0, 0, 0), body, json: 0, revision: 0 };
        table.refresh()?;
        Ok(table)
    }

    /// The store's revision that it is of.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Looks whether there is a new file: one `stat` where there is none. True if the table has become another.
    pub fn refresh(&mut self) -> io::Result<bool> {
        let found = std::fs::symlink_metadata(&self.path)?;
        let seen = (found.ino(), found.mtime(), found.mtime_nsec());
        if seen == self.seen {
            return Ok(false);
        }
        self.read()?;
        self.seen = seen;
        Ok(true)
    }

    /// A key's document, as JSON.
    pub fn get(&self, key: &str) -> Option<&[u8]> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = (low + high) / 2;
            match self.span(middle, 0).cmp(key.as_bytes()) {
                std::cmp::Ordering::Equal => return Some(self.span(middle, 1)),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        (self.body.len() - self.json) / 16
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The key at a place, in their order.
    pub fn key(&self, at: usize) -> &[u8] {
        self.span(at, 0)
    }

    fn read(&mut self) -> io::Result<()> {
        let mut file = File::open(&self.path)?;
        let (found, by_path) = (file.metadata()?, std::fs::symlink_metadata(&self.path)?);
        if by_path.is_symlink() {
            return Err(damaged("it is a link"));
        }
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let owner = match self.owner {
            Some(owner) => owner,
            None => std::fs::metadata(folder.unwrap_or(Path::new(".")))?.uid(),
        };
        if found.uid() != owner || found.mode() & 0o022 != 0 {
            return Err(damaged("others could have written it"));
        }
        let mut data = Vec::new();
        file.read_to_end(&mut data)?;
        if data.len() < HEADER {
            return Err(damaged("it is cut"));
        }
        if &data[..8] != b"MIZANTAB" || data[8..10] != [1, 0] {
            return Err(damaged("it is no table of format 1"));
        }
        if crc32(&data[..60]) != number(&data, 60) {
            return Err(damaged("its header is damaged"));
        }
        let (start, length, json) = (number(&data, 12), number(&data, 40), number(&data, 44));
        let body = data.get(start as usize..(start as usize) + length as usize);
        let body = body.ok_or(damaged("its body is cut"))?;
        if crc32(body) != number(&data, 48) || json > length || (length - json) % 16 != 0 {
            return Err(damaged("its body is damaged"));
        }
        self.json = json as usize;
        self.revision = u64::from(number(&data, 16)) | u64::from(number(&data, 20)) << 32;
        data.truncate(start as usize + length as usize);
        data.drain(..start as usize);
        self.body = data;
        Ok(())
    }

    fn span(&self, at: usize, which: usize) -> &[u8] {
        let place = self.json + 16 * at + 8 * which;
        let start = number(&self.body, place) as usize;
        &self.body[start..start + number(&self.body, place + 4) as usize]
    }
}

fn damaged(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// CRC-32 of IEEE 802.3, sixteen bytes at a time: a table for each of them says what it leaves when the others are behind it.
fn crc32(bytes: &[u8]) -> u32 {
    static TABLES: [[u32; 256]; 16] = tables();
    let blocks = bytes.chunks_exact(16);
    let rest = blocks.remainder();
    let mut sum = !0;
    for block in blocks {
        let (first, more) = ((sum ^ number(block, 0)).to_le_bytes(), &block[4..]);
        let left = first.iter().chain(more).zip(TABLES.iter().rev());
        sum = left.fold(0, |sum, (byte, table)| sum ^ table[usize::from(*byte)]);
    }
    let next = |sum: u32, byte: &u8| TABLES[0][((sum ^ u32::from(*byte)) & 0xff) as usize] ^ (sum >> 8);
    !rest.iter().fold(sum, next)
}

const fn tables() -> [[u32; 256]; 16] {
    let mut tables = [[0; 256]; 16];
    let mut at = 0;
    while at < 256 {
        let (mut sum, mut bit) = (at as u32, 0);
        while bit < 8 {
            sum = if sum & 1 == 1 { (sum >> 1) ^ 0xedb8_8320 } else { sum >> 1 };
            bit += 1;
        }
        tables[0][at] = sum;
        at += 1;
    }
    let mut place = 1;
    while place < 16 {
        at = 0;
        while at < 256 {
            let before: u32 = tables[place - 1][at];
            tables[place][at] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            at += 1;
        }
        place += 1;
    }
    tables
}

/// The number behind `"at":` in a document of the torture test.
fn at(document: Option<&[u8]>) -> Option<u64> {
    let text = std::str::from_utf8(document?).ok()?;
    let digits = text.split("\"at\":").nth(1)?;
    let end = digits.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().ok()
}

/// Reads so many times while somebody writes; every document of a table holds the table's revision, or it is torn.
fn torture(table: &mut Table, reads: u64) {
    let (mut torn, mut changes) = (0, 0);
    for _ in 0..reads {
        let before = table.revision;
        let seen = table.refresh();
        changes += u64::from(matches!(seen, Ok(true)));
        let is = |place: usize| at(Some(table.span(place, 1))) == Some(table.revision);
        let is_whole = seen.is_ok() && is(0) && is(table.len() - 1) && table.revision >= before;
        torn += u64::from(!is_whole);
    }
    println!("{{\"reads\":{reads},\"changes\":{changes},\"torn\":{torn}}}");
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut table = match Table::open(Path::new(&arguments[0]), None) {
        Ok(table) => table,
        Err(error) => {
            eprintln!("{}: {error}", arguments[0]);
            std::process::exit(1);
        }
    };
    match &arguments[1..] {
        [mode, reads] if mode == "--torture" => torture(&mut table, reads.parse().expect("a number")),
        [] => {
            let keys: Vec<_> = (0..table.len()).map(|at| String::from_utf8_lossy(table.key(at)).into_owned()).collect();
            println!("{} {}", table.revision(), keys.join(" "));
        }
        keys => {
            for key in keys {
                println!("{}", table.get(key).map_or("null".into(), String::from_utf8_lossy));
            }
        }
    }
}

//! The rows of the database, each with its digest, and the history that they make.

use super::digest::{Digest, Row};
use super::disk::digest_meta;
use super::history::{History, Made, Term, Version};
use crate::clock::Clock;
use crate::{Batch, Entry, Event, LeaseId, Revision};
use bytes::Bytes;
use rusqlite::{Connection, Statement, params};
use std::sync::Arc;
use std::time::Duration;

/// The layout of the tables.
const FORMAT: i64 = 1;

/// The one row of `meta`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Meta {
    pub(super) format: i64,
    /// Which store it is; 0 in a copy.
    pub(super) id: u64,
    pub(super) revision: Revision,
    pub(super) oldest: Revision,
    /// How many groups of changes were written: also those that make no revision.
    pub(super) sequence: u64,
    /// How many rows the other tables have.
    pub(super) rows: i64,
    /// The sum of their digests.
    pub(super) sum: Digest,
}

impl Meta {
    pub(super) fn add(&mut self, digest: Digest) {
        self.rows += 1;
        self.sum = self.sum.plus(digest);
    }

    pub(super) fn take(&mut self, digest: Digest) {
        self.rows -= 1;
        self.sum = self.sum.minus(digest);
    }

    pub(super) fn insert(&self, connection: &Connection) -> rusqlite::Result<()> {
        self.store(
            connection,
            "INSERT INTO meta VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )
    }

    pub(super) fn update(&self, connection: &Connection) -> rusqlite::Result<()> {
        self.store(
            connection,
            "UPDATE meta SET format = ?1, id = ?2, revision = ?3, oldest = ?4, sequence = ?5, row_count = ?6, \
             row_sum = ?7, digest = ?8",
        )
    }

    fn store(&self, connection: &Connection, sql: &str) -> rusqlite::Result<()> {
        let changed = connection.execute(
            sql,
            params![
                self.format,
                self.id as i64,
                self.revision as i64,
                self.oldest as i64,
                self.sequence as i64,
                self.rows,
                self.sum.bytes(),
                digest_meta(self).bytes()
            ],
        )?;
        match changed {
            1 => Ok(()),
            _ => Err(rusqlite::Error::StatementChangedRows(changed)),
        }
    }

    /// The row, and whether its digest is its own.
    pub(super) fn read(connection: &Connection) -> rusqlite::Result<(Self, bool)> {
        let sql =
            "SELECT format, id, revision, oldest, sequence, row_count, row_sum, digest FROM meta";
        connection.query_row(sql, (), |row| {
            let meta = Self {
                format: row.get(0)?,
                id: row.get::<_, i64>(1)? as u64,
                revision: row.get::<_, i64>(2)? as u64,
                oldest: row.get::<_, i64>(3)? as u64,
                sequence: row.get::<_, i64>(4)? as u64,
                rows: row.get(5)?,
                sum: Digest::from_bytes(row.get(6)?),
            };
            let is_whole = Digest::from_bytes(row.get(7)?) == digest_meta(&meta);
            Ok((meta, is_whole))
        })
    }
}

/// A row of `changes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChangeRow {
    pub(super) number: i64,
    pub(super) revision: Revision,
    pub(super) key: Bytes,
    /// `None`: it was deleted.
    pub(super) value: Option<Bytes>,
    created: Revision,
    version: u64,
    /// 0: none.
    pub(super) lease: i64,
}

impl ChangeRow {
    pub(super) const INSERT: &str = "INSERT INTO changes VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";

    pub(super) fn of(number: i64, revision: Revision, event: &Event) -> Self {
        match event {
            Event::Put(entry) => Self::put(number, entry),
            Event::Delete(key) => Self {
                number,
                revision,
                key: key.clone(),
                value: None,
                created: 0,
                version: 0,
                lease: 0,
            },
        }
    }

    pub(super) fn put(number: i64, entry: &Entry) -> Self {
        Self {
            number,
            revision: entry.modified,
            key: entry.key.clone(),
            value: Some(entry.value.clone()),
            created: entry.created,
            version: entry.version,
            lease: entry.lease.map_or(0, |id| id.0),
        }
    }

    pub(super) fn entry(&self) -> Option<Entry> {
        Some(Entry {
            key: self.key.clone(),
            value: self.value.clone()?,
            created: self.created,
            modified: self.revision,
            version: self.version,
            lease: (self.lease != 0).then_some(LeaseId(self.lease)),
        })
    }

    fn event(&self) -> Event {
        match self.entry() {
            Some(entry) => Event::Put(entry),
            None => Event::Delete(self.key.clone()),
        }
    }

    fn digest(&self) -> Digest {
        Row::of("changes")
            .number(self.number)
            .number(self.revision as i64)
            .bytes(Some(&self.key))
            .bytes(self.value.as_deref())
            .number(self.created as i64)
            .number(self.version as i64)
            .number(self.lease)
            .digest()
    }

    pub(super) fn insert(&self, insert: &mut Statement<'_>) -> rusqlite::Result<Digest> {
        let digest = self.digest();
        insert.execute(params![
            self.number,
            self.revision as i64,
            &self.key[..],
            self.value.as_deref(),
            self.created as i64,
            self.version as i64,
            self.lease,
            digest.bytes()
        ])?;
        Ok(digest)
    }

    /// The row, and the digest that stands beside it.
    pub(super) fn from_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<(Self, Digest)> {
        let change = Self {
            number: row.get(0)?,
            revision: row.get::<_, i64>(1)? as u64,
            key: row.get::<_, Vec<u8>>(2)?.into(),
            value: row.get::<_, Option<Vec<u8>>>(3)?.map(Bytes::from),
            created: row.get::<_, i64>(4)? as u64,
            version: row.get::<_, i64>(5)? as u64,
            lease: row.get(6)?,
        };
        Ok((change, Digest::from_bytes(row.get(7)?)))
    }

    pub(super) fn is_whole(&self, digest: Digest) -> bool {
        self.digest() == digest
    }
}

/// A row of `leases`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LeaseRow {
    pub(super) id: i64,
    pub(super) granted: Duration,
    /// By the wall clock.
    pub(super) ends: Duration,
}

impl LeaseRow {
    pub(super) const INSERT: &str = "INSERT INTO leases VALUES (?1, ?2, ?3, ?4)";

    fn digest(&self) -> Digest {
        Row::of("leases")
            .number(self.id)
            .number(milliseconds(self.granted))
            .number(milliseconds(self.ends))
            .digest()
    }

    pub(super) fn insert(&self, insert: &mut Statement<'_>) -> rusqlite::Result<Digest> {
        let digest = self.digest();
        insert.execute(params![
            self.id,
            milliseconds(self.granted),
            milliseconds(self.ends),
            digest.bytes()
        ])?;
        Ok(digest)
    }

    /// The row, and the digest that stands beside it.
    pub(super) fn from_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<(Self, Digest)> {
        let duration = |milliseconds: i64| Duration::from_millis(milliseconds.max(0) as u64);
        let span = Self {
            id: row.get(0)?,
            granted: duration(row.get(1)?),
            ends: duration(row.get(2)?),
        };
        Ok((span, Digest::from_bytes(row.get(3)?)))
    }

    pub(super) fn is_whole(&self, digest: Digest) -> bool {
        self.digest() == digest
    }
}

/// Rounded up: a lease never ends early.
fn milliseconds(duration: Duration) -> i64 {
    duration.as_nanos().div_ceil(1_000_000) as i64
}

/// All rows of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) meta: Meta,
    pub(super) changes: Vec<ChangeRow>,
    pub(super) spans: Vec<LeaseRow>,
}

impl Contents {
    /// Those of a store in which nothing ever was.
    pub(super) fn empty(id: u64) -> Self {
        Self {
            meta: Meta {
                format: FORMAT,
                id: id.max(1),
                revision: 0,
                oldest: 0,
                sequence: 0,
                rows: 0,
                sum: Digest::default(),
            },
            changes: Vec::new(),
            spans: Vec::new(),
        }
    }

    /// Those of a copy of `history`, for another store.
    pub(super) fn copy(history: &History) -> Self {
        let mut contents = Self::empty(0);
        contents.meta.id = 0;
        contents.meta.revision = history.revision;
        contents.meta.oldest = history.oldest;
        let changes = history
            .versions()
            .map(|(key, version)| match &version.entry {
                Some(entry) => ChangeRow::put(version.number, entry),
                None => ChangeRow::of(
                    version.number,
                    version.revision,
                    &Event::Delete(key.clone()),
                ),
            });
        contents.changes = changes.collect();
        contents
            .changes
            .sort_unstable_by_key(|change| change.number);
        let spans = history.leases().map(|(id, term)| LeaseRow {
            id: id.0,
            granted: term.granted,
            ends: term.until_wall,
        });
        contents.spans = spans.collect();
        contents
    }

    /// All rows, whatever their digests; of those that are wrong, `meta` says so by its sum.
    pub(super) fn read(connection: &Connection) -> rusqlite::Result<Self> {
        let (mut meta, is_whole) = Meta::read(connection)?;
        let mut counted = Meta {
            rows: 0,
            sum: Digest::default(),
            ..meta.clone()
        };
        let mut changes = Vec::new();
        let mut select = connection.prepare("SELECT * FROM changes ORDER BY number")?;
        let mut rows = select.query(())?;
        while let Some(row) = rows.next()?.filter(|_| counted.rows <= meta.rows) {
            let (change, digest) = ChangeRow::from_row(row)?;
            if change.is_whole(digest) {
                counted.add(digest);
                changes.push(change);
            }
        }
        let mut spans = Vec::new();
        let mut select = connection.prepare("SELECT * FROM leases ORDER BY id")?;
        let mut rows = select.query(())?;
        while let Some(row) = rows.next()?.filter(|_| counted.rows <= meta.rows) {
            let (span, digest) = LeaseRow::from_row(row)?;
            if span.is_whole(digest) {
                counted.add(digest);
                spans.push(span);
            }
        }
        if !is_whole || counted != meta {
            meta.format = -1;
        }
        Ok(Self {
            meta,
            changes,
            spans,
        })
    }

    /// Whether they are what was written: each row whole, none missing, and the revisions in a row.
    pub(super) fn check(&self) -> Result<(), String> {
        match self.meta.format {
            FORMAT => {}
            -1 => return Err("its rows do not add up to what was written".to_owned()),
            other => {
                return Err(format!(
                    "it is of format {other}, and this version reads {FORMAT}"
                ));
            }
        }
        let mut last = self.meta.oldest;
        for change in &self.changes {
            let (oldest, revision) = (self.meta.oldest, change.revision);
            let follows = revision == last || revision == last + 1;
            let is_old = revision <= oldest && change.value.is_some();
            if !(is_old || revision > oldest && follows) {
                return Err(format!("revision {revision} follows {last}"));
            }
            last = last.max(revision);
        }
        if last != self.meta.revision {
            return Err(format!(
                "it ends at revision {last}, not {}",
                self.meta.revision
            ));
        }
        Ok(())
    }

    /// The history that they make. What is left of a lease is what the wall clock says; never more than was granted.
    pub(super) fn history(&self, clock: &dyn Clock) -> History {
        let (now, wall) = (clock.monotonic(), clock.wall());
        let mut history = History::from(self.meta.oldest);
        for span in &self.spans {
            let left = span.ends.saturating_sub(wall).min(span.granted);
            let term = Term {
                granted: span.granted,
                until: now + left,
                until_wall: wall + left,
            };
            history.set_lease(LeaseId(span.id), term);
        }
        let (old, held) = self.changes.split_at(
            self.changes
                .partition_point(|c| c.revision <= self.meta.oldest),
        );
        for change in old {
            let version = Version {
                number: change.number,
                revision: change.revision,
                entry: change.entry(),
            };
            history.put(&change.key, version);
        }
        for changes in held.chunk_by(|a, b| a.revision == b.revision) {
            history.push(Made {
                batch: Arc::new(Batch {
                    revision: changes[0].revision,
                    events: changes.iter().map(ChangeRow::event).collect(),
                }),
                number: changes[0].number,
                at: now,
            });
        }
        history
    }
}

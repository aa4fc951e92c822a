//! Writes the table as a file, for programs of this machine that ask no network: `mizan sidecar`.
//!
//! Two files stand in the folder. `routing.snap` is the table ([`mizan_store::image`]), a new one in the place of the old
//! whenever it has become another: boosts that have ended are not in it. `status.json` says every second how well it is known.

use super::last_good::{CONFIRM, LastGood};
use super::table::{Following, HeldBack, judge};
use super::{Layout, OpenError, open};
use crate::clock;
use crate::snapshot::StoreSettings;
use crate::telemetry::chain;
use mizan_routing::table::Held;
use mizan_routing::{Document, Object, Table};
use mizan_store::follower::Standing;
use mizan_store::image::{self, About, Durability, ImageError, Place};
use serde::Serialize;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// The table's file.
pub const TABLE_FILE: &str = "routing.snap";
/// What says how well it is known.
pub const STATUS_FILE: &str = "status.json";

/// Between two writings of the status.
const STATUS: Duration = Duration::from_secs(1);

/// Edits that come within this time of one another are written together.
const TOGETHER: Duration = Duration::from_millis(10);

/// What is to be written, and where.
#[derive(Clone, Debug)]
pub struct Options {
    /// The store; its `last_good` is what a start without it begins with.
    pub store: StoreSettings,
    /// The folder; made with mode 0755 if it is not there.
    pub out: PathBuf,
}

/// Why nothing is written.
#[derive(Debug, thiserror::Error)]
pub enum SidecarError {
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The folder cannot be used.
    #[error("{} cannot be used", folder.display())]
    Folder {
        /// Which.
        folder: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A table that cannot stand in a file.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// Signals cannot be waited for.
    #[error("cannot wait for signals")]
    Signals(#[source] io::Error),
}

/// What `status.json` says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Status {
    /// `live`, `stale`, `restored` or `unknown`, as `mizan status` has it.
    state: &'static str,
    /// The revision that the table is of.
    revision: u64,
    /// Up to when it is known to be right, in ms since 1970; 0: it was never heard of.
    confirmed_ms: u64,
    /// Why what the store says is not in the file; empty if it is.
    held_back: String,
    /// How often the store was lost.
    losses: u64,
    /// Who writes.
    pid: u32,
}

/// Writes until SIGTERM or SIGINT.
///
/// # Errors
/// See [`SidecarError`]. A store that is away is none: what was written stays, and is told as stale.
pub async fn run(options: Options) -> Result<(), SidecarError> {
    let stop = |kind| signal(kind).map_err(SidecarError::Signals);
    let (mut terminate, mut interrupt) = (
        stop(SignalKind::terminate())?,
        stop(SignalKind::interrupt())?,
    );
    let mut sidecar = Sidecar::new(&options)?;
    sidecar.write()?;
    let mut tick = tokio::time::interval(STATUS);
    loop {
        let table = sidecar.table.clone();
        tokio::select! {
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            () = sidecar.following.changed() => {
                tokio::time::sleep(TOGETHER).await;
                sidecar.write()?;
            }
            () = boost_end(table) => sidecar.write()?,
            _ = tick.tick() => {}
        }
        sidecar.write_status()?;
    }
}

struct Sidecar {
    following: Following,
    place: Place,
    last_good: Option<LastGood>,
    table: Option<Arc<Table>>,
    held_back: Option<HeldBack>,
    /// What was written last: a revision, and how many objects of it had not ended.
    written: Option<(u64, u64, usize)>,
    /// Up to when the store has confirmed what is written, since 1970; and up to when that is noted for the next start.
    confirmed: Duration,
    noted: Duration,
}

impl Sidecar {
    fn new(options: &Options) -> Result<Self, SidecarError> {
        let layout = Layout::new(&options.store.namespace);
        let place = Place::open(&options.out).map_err(|source| SidecarError::Folder {
            folder: options.out.clone(),
            source,
        })?;
        let last_good = options.store.last_good.as_deref().and_then(|folder| {
            LastGood::open(folder, &options.store.namespace)
                .map_err(|error| tracing::error!("{}", chain(&error)))
                .ok()
        });
        let restored = last_good.as_ref().and_then(|it| {
            let read = it.read(&layout.table());
            read.map_err(|error| tracing::error!("{}", chain(&error)))
                .ok()
                .flatten()
        });
        let store = open(&options.store)?;
        let confirmed = restored.as_ref().map(|restored| restored.confirmed);
        Ok(Self {
            following: Following::start(store, layout.table(), restored),
            place,
            last_good,
            table: None,
            held_back: None,
            written: None,
            confirmed: confirmed.unwrap_or_default(),
            noted: Duration::ZERO,
        })
    }

    /// Puts the table, if it has become another. Nothing is written while nothing is known: what stands there stays.
    fn write(&mut self) -> Result<(), SidecarError> {
        let known = self.following.known();
        if known.view.standing == Standing::Unknown {
            return Ok(());
        }
        let judged = judge(
            &known.view,
            self.following.prefix_length(),
            self.table.as_ref(),
            false,
        );
        if let Some(held_back) = &judged.held_back
            && self.held_back.as_ref() != Some(held_back)
        {
            tracing::error!("{held_back}");
        }
        self.held_back = judged.held_back;
        let table = judged.table;
        for rejected in table.rejected() {
            tracing::warn!("an object of the table is not written as it stands: {rejected}");
        }
        let wall = clock::wall();
        let now_ms = wall.as_millis() as u64;
        let lasting: Vec<(String, String)> = table
            .objects()
            .filter(|(_, held)| !has_ended(held, now_ms))
            .map(|(object, held)| entry(object, held))
            .collect();
        let written = Some((table.revision(), table.digest(), lasting.len()));
        let is_same = self
            .written
            .is_some_and(|(_, digest, count)| (digest, count) == (table.digest(), lasting.len()));
        self.table = Some(Arc::clone(&table));
        if is_same {
            return Ok(());
        }
        let about = About {
            revision: table.revision(),
            store: known.view.store.unwrap_or_default(),
            written_ms: now_ms,
        };
        let bytes = image::write(&about, lasting.iter().map(|(key, json)| (&**key, &**json)))?;
        self.put(TABLE_FILE, &bytes)?;
        self.written = written;
        tracing::info!(
            revision = table.revision(),
            objects = lasting.len(),
            "the table is written"
        );
        if let (Some(last_good), Some(_)) = (&self.last_good, known.view.store) {
            let entries = lasting.iter().map(|(key, json)| (&**key, &**json));
            if let Err(error) = last_good.write(last_good.turn(), &about, entries) {
                tracing::error!("{}", chain(&error));
            }
        }
        Ok(())
    }

    fn write_status(&mut self) -> Result<(), SidecarError> {
        let known = self.following.known();
        if known.view.standing == Standing::Live {
            self.confirmed = clock::wall();
            self.note();
        }
        let status = Status {
            state: known.view.standing.name(),
            revision: self.written.map_or(0, |(revision, ..)| revision),
            confirmed_ms: self.confirmed.as_millis() as u64,
            held_back: self
                .held_back
                .as_ref()
                .map_or_else(String::new, ToString::to_string),
            losses: known.losses(),
            pid: std::process::id(),
        };
        let mut json = serde_json::to_vec(&status).unwrap_or_default();
        json.push(b'\n');
        self.put(STATUS_FILE, &json)
    }

    /// Notes for the next start how old what it begins with is.
    fn note(&mut self) {
        if self.confirmed.saturating_sub(self.noted) < CONFIRM || self.held_back.is_some() {
            return;
        }
        self.noted = self.confirmed;
        if let Some(last_good) = &self.last_good
            && let Err(error) = last_good.confirm(self.confirmed)
        {
            tracing::debug!("{}", chain(&error));
        }
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), SidecarError> {
        let put = self.place.put(name, bytes, Durability::Memory);
        put.map_err(|source| SidecarError::Folder {
            folder: self.place.path().to_owned(),
            source,
        })
    }
}

/// Waits until a boost of `table` ends.
async fn boost_end(table: Option<Arc<Table>>) {
    let now = clock::wall();
    let now_ms = now.as_millis() as u64;
    match table.and_then(|table| table.next_end(now_ms)) {
        None => std::future::pending().await,
        Some(end) => tokio::time::sleep(Duration::from_millis(end).saturating_sub(now)).await,
    }
}

fn has_ended(held: &Held, now_ms: u64) -> bool {
    matches!(&held.document, Document::Boost(boost) if boost.expires_at_ms <= now_ms)
}

fn entry(object: &Object, held: &Held) -> (String, String) {
    (
        object.to_string(),
        String::from_utf8_lossy(&held.json).into_owned(),
    )
}

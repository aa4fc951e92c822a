//! Follows the table for ever, and judges whether what it says may come into force.

use super::last_good::Restored;
use crate::clock;
use bytes::Bytes;
use mizan_routing::table::{Limit, Stored};
use mizan_routing::{Object, Table};
use mizan_store::Store;
use mizan_store::follower::{Doubt, Follower, Notice, Options, Standing, Told, View};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What is known of the table, and of the store that it is in.
#[derive(Clone, Debug)]
pub struct Known {
    /// The table's keys and documents, and how well they are known.
    pub view: View,
    /// Since when the view stands as it does (live, stale …), since 1970; a restored one, since the
    /// store last confirmed it.
    pub since: Duration,
    /// Why the store is not heard, if it is not.
    pub trouble: Option<String>,
    /// What its users should know of it.
    pub warnings: Vec<String>,
    /// What has happened between here and the store, how often, by [`EVENTS`].
    pub events: [u64; EVENTS.len()],
}

impl Known {
    /// How often it was lost.
    pub fn losses(&self) -> u64 {
        self.events[LOST]
    }

    /// How often keys differed from the store's though nothing was missed.
    pub fn divergences(&self) -> u64 {
        self.events[DIVERGED]
    }
}

/// What may happen between here and a store: one for each [`Notice`].
pub const EVENTS: [&str; 8] = [
    "connected",
    "listed",
    "watching",
    "lost",
    "compacted",
    "diverged",
    "agrees",
    "doubtful",
];
const LOST: usize = 3;
const DIVERGED: usize = 5;

/// Where it is counted.
fn event(notice: &Notice) -> usize {
    match notice {
        Notice::Connected(_) => 0,
        Notice::Listed { .. } => 1,
        Notice::Watching { .. } => 2,
        Notice::Lost { .. } => LOST,
        Notice::Compacted { .. } => 4,
        Notice::Diverged { .. } => DIVERGED,
        Notice::Agrees { .. } => 6,
        Notice::Doubtful(_) => 7,
    }
}

/// Follows a table until it is dropped.
#[derive(Debug)]
pub struct Following {
    known: watch::Receiver<Known>,
    task: JoinHandle<()>,
    prefix: usize,
}

impl Drop for Following {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Following {
    /// Follows what stands under `prefix` in `store`, in the runtime that it is called in. It begins with what was `restored`
    /// from the last run, of which store that was.
    pub fn start(store: Arc<dyn Store>, prefix: Bytes, restored: Option<Restored>) -> Self {
        let (tell, known) = watch::channel(Known {
            view: View {
                entries: Arc::default(),
                revision: 0,
                store: None,
                standing: Standing::Unknown,
                doubt: None,
            },
            since: clock::wall(),
            trouble: None,
            warnings: Vec::new(),
            events: [0; EVENTS.len()],
        });
        let length = prefix.len();
        let confirmed = restored.as_ref().map(|restored| restored.confirmed);
        let told = move |told| match told {
            Told::View(view) => {
                tell.send_modify(|known| {
                    if known.view.standing != view.standing {
                        let restored = confirmed.filter(|_| view.standing == Standing::Restored);
                        known.since = restored.unwrap_or_else(clock::wall);
                    }
                    known.view = view;
                });
            }
            Told::Notice(notice) => tell.send_modify(|known| note(known, &notice)),
        };
        let mut follower = Follower::new(store, prefix, Options::new(clock::random), told);
        if let Some(restored) = restored {
            follower.restore(restored.memory, restored.store);
        }
        let task = tokio::spawn(async move { follower.run().await });
        Self {
            known,
            task,
            prefix: length,
        }
    }

    /// What is known now.
    pub fn known(&self) -> Known {
        self.known.borrow().clone()
    }

    /// Waits until something else is known. Drop-safe.
    pub async fn changed(&mut self) {
        // The other end is dropped with the task alone, which ends with this.
        if self.known.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// How long the prefix is that stands before each key.
    pub fn prefix_length(&self) -> usize {
        self.prefix
    }
}

/// Logs what has happened between here and the store, and keeps what `status` tells.
fn note(known: &mut Known, notice: &Notice) {
    known.events[event(notice)] += 1;
    match notice {
        Notice::Connected(identity) => {
            known.trouble = None;
            if known.warnings != identity.warnings {
                for warning in &identity.warnings {
                    tracing::warn!(version = identity.version, "the store: {warning}");
                }
                known.warnings.clone_from(&identity.warnings);
            }
            tracing::info!(
                version = identity.version,
                revision = identity.revision,
                "the store is reached"
            );
        }
        Notice::Listed {
            revision,
            put,
            deleted,
        } => tracing::info!(revision, put, deleted, "the table was listed"),
        Notice::Watching { from } => tracing::info!(from, "the table is watched"),
        Notice::Lost { error, wait } => {
            let said = error.to_string();
            // A store that is away says the same many times a minute.
            if known.trouble.as_ref() != Some(&said) {
                tracing::warn!(
                    "the store is lost, and what is known of the table stays in force: {said}"
                );
            } else {
                tracing::debug!(?wait, "the store is still away: {said}");
            }
            known.trouble = Some(said);
        }
        Notice::Compacted { oldest } => {
            tracing::info!(
                oldest,
                "the store has forgotten what was to be followed: the table is listed again"
            );
        }
        Notice::Diverged { keys, example } => {
            tracing::error!(
                keys,
                example = %String::from_utf8_lossy(example),
                "what is known of the table differs from the store though nothing was missed: it is listed again"
            );
        }
        Notice::Agrees { keys } => tracing::debug!(keys, "the table agrees with the store's"),
        Notice::Doubtful(doubt) => tracing::error!("{}", HeldBack::from(*doubt)),
    }
}

/// Why what the store says is not in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeldBack {
    /// Most of the table is gone.
    Shrunk {
        /// How many objects are gone.
        gone: usize,
        /// Of how many.
        all: usize,
    },
    /// It is another store than it was.
    OtherStore,
    /// The store is older than it was.
    Older {
        /// The revision that was seen.
        was: u64,
    },
    /// A limit is passed.
    Limit(Limit),
}

impl From<Doubt> for HeldBack {
    fn from(doubt: Doubt) -> Self {
        match doubt {
            Doubt::OtherStore => Self::OtherStore,
            Doubt::Older { was } => Self::Older { was },
        }
    }
}

impl fmt::Display for HeldBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shrunk { gone, all } => write!(
                f,
                "{gone} of {all} objects of the table are gone: what was in force stays, until `mizan reload --accept-table` says that this is meant"
            ),
            Self::OtherStore => f.write_str(
                "the store is another one than it was: what was in force stays, until `mizan reload --accept-table` says that it is the right one",
            ),
            Self::Older { was } => write!(
                f,
                "the store is older than it was (revision {was} was seen): what was in force stays, until `mizan reload --accept-table` says that this is meant"
            ),
            Self::Limit(limit) => write!(f, "the table is refused, and what was in force stays: {limit}"),
        }
    }
}

/// The table to be in force.
#[derive(Clone, Debug)]
pub struct Judged {
    /// It.
    pub table: Arc<Table>,
    /// Why it is not what the store says, if it is not.
    pub held_back: Option<HeldBack>,
}

/// Judges what is known: it comes into force, or `before` stays. `is_accepted`: somebody has looked into it, and what seems
/// doubtful is meant.
pub fn judge(
    view: &View,
    prefix_length: usize,
    before: Option<&Arc<Table>>,
    is_accepted: bool,
) -> Judged {
    let stored = view.entries.values().map(|entry| Stored {
        key: entry.key.get(prefix_length..).unwrap_or_default(),
        value: &entry.value,
        modified: entry.modified,
    });
    let built = Table::build(view.revision, stored, before.map(|before| &**before));
    let stays = |held_back| Judged {
        table: before.cloned().unwrap_or_default(),
        held_back: Some(held_back),
    };
    let table = match built {
        Ok(table) => table,
        Err(limit) => return stays(HeldBack::Limit(limit)),
    };
    if let (Some(before), false) = (before, is_accepted) {
        if let Some(doubt) = view.doubt
            && table.digest() != before.digest()
        {
            return stays(doubt.into());
        }
        if table.has_shrunk_from(before) {
            let is_gone = |object: &&Object| table.held(object).is_none();
            let objects = before.objects().map(|(object, _)| object);
            return stays(HeldBack::Shrunk {
                gone: objects.filter(is_gone).count(),
                all: before.len(),
            });
        }
    }
    Judged {
        table: Arc::new(table),
        held_back: None,
    }
}

#[cfg(test)]
mod tests;

//! What was found so far, where those read it who must not wait.

use crate::clock;
use crate::config::{Listing, Lookup, Lost};
use crate::snapshot::{Configured, Origin, OriginState};
use mizan_core::time::Instant;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const NOT_YET: &str = "it was not looked up yet";

/// What was found so far.
#[derive(Debug, Default)]
pub(in crate::app) struct Board(Mutex<Lines>);

#[derive(Debug, Default)]
struct Lines {
    heard: BTreeMap<Origin, Heard>,
    /// Of those something else is known than when they were last taken.
    news: BTreeSet<Origin>,
}

/// What is known of one place.
#[derive(Clone, Debug)]
pub(super) struct Heard {
    /// What it said last; `None`: it never said anything.
    pub(super) found: Option<Found>,
    /// When, since 1970.
    pub(super) at: Duration,
    /// Whether it could not be heard since then.
    pub(super) has_failed: bool,
    /// Why not, or what is wrong all the same; empty if all is well.
    pub(super) error: String,
    /// How often it could not be heard.
    pub(super) failures: u64,
    /// Instances that are kept though their lease has ended.
    pub(super) kept: Vec<String>,
    /// Until when this is gone by.
    pub(super) until: Instant,
}

/// What a place says.
#[derive(Clone, Debug)]
pub(super) enum Found {
    /// What a name stands for, sorted.
    Addresses(Arc<[SocketAddr]>),
    /// Backends; there may be names among them.
    List(Arc<[Configured]>),
}

impl Board {
    /// What is known of `origin`, if that still holds.
    pub(super) fn fresh(&self, origin: &Origin) -> Option<Heard> {
        let now = clock::now();
        self.heard(origin).filter(|heard| heard.until > now)
    }

    /// What is known of `origin`; `None`: it was not looked up.
    pub(super) fn heard(&self, origin: &Origin) -> Option<Heard> {
        self.lines().heard.get(origin).cloned()
    }

    /// Whether `origin` was looked up, with whatever success.
    pub(super) fn has(&self, origin: &Origin) -> bool {
        self.lines().heard.contains_key(origin)
    }

    /// What people are told of `origin`.
    pub(super) fn state(&self, origin: &Origin) -> OriginState {
        let heard = self.heard(origin);
        OriginState {
            origin: origin.clone(),
            heard: heard.as_ref().map_or(Duration::ZERO, |it| it.at),
            failures: heard.as_ref().map_or(0, |it| it.failures),
            kept: heard.as_ref().map_or_else(Vec::new, |it| it.kept.clone()),
            error: heard.map_or_else(String::new, |it| it.error),
        }
    }

    /// This is known of `origin` now.
    pub(super) fn put(&self, origin: &Origin, heard: Heard) {
        let mut lines = self.lines();
        lines.heard.insert(origin.clone(), heard);
        lines.news.insert(origin.clone());
    }

    /// `origin` says what it said, and that holds until then.
    pub(super) fn still_holds(&self, origin: &Origin, until: Instant) {
        if let Some(heard) = self.lines().heard.get_mut(origin) {
            heard.until = until;
            if !heard.has_failed {
                heard.at = clock::wall();
            }
        }
    }

    pub(super) fn forget(&self, origin: &Origin) {
        self.lines().heard.remove(origin);
    }

    /// Those that were heard, or not, since this was last asked.
    pub(in crate::app) fn take_news(&self) -> BTreeSet<Origin> {
        std::mem::take(&mut self.lines().news)
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is known, whether or not it is looked up again just now.
impl Lookup for Board {
    fn addresses(&self, servers: &Arc<[SocketAddr]>, name: &str) -> Result<Vec<SocketAddr>, Lost> {
        let origin = Origin::Name {
            servers: Arc::clone(servers),
            name: Arc::from(name),
        };
        match self.heard(&origin) {
            Some(heard) => heard.addresses(),
            None => Err(Lost {
                problem: NOT_YET.to_owned(),
                last: Vec::new(),
            }),
        }
    }

    fn list(&self, origin: &Origin) -> Listing {
        match self.heard(origin) {
            Some(heard) => heard.list(),
            None => Listing::unknown(NOT_YET.to_owned()),
        }
    }
}

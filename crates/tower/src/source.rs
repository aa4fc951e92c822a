//! Where the service of a picked backend comes from.

use crate::driver::Driver;
use arc_swap::ArcSwap;
use mizan_core::{Backend, Member, PoolConfig};
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Gives the service of a picked backend.
pub trait Source: Clone {
    /// A backend's service.
    type Service;

    /// The service of `backend`; `None` if it is no member any more.
    fn service(&self, backend: &Arc<Backend>) -> Option<Self::Service>;
}

/// A service for each backend, by [`Backend::id`].
type ById<S> = HashMap<u64, S, BuildHasherDefault<IdHasher>>;

/// The services that [`Backends`](crate::Backends) was given: a table that is swapped as a whole.
#[derive(Debug)]
pub struct Table<S> {
    parts: Arc<Parts<S>>,
}

#[derive(Debug)]
struct Parts<S> {
    in_force: ArcSwap<ById<S>>,
    /// Held while pool and table are being changed together.
    members: Mutex<Members<S>>,
}

/// What pool and table are made from.
#[derive(Debug)]
pub(crate) struct Members<S> {
    pub(crate) config: PoolConfig,
    pub(crate) by_key: BTreeMap<Arc<str>, (Member, S)>,
}

impl<S> Table<S> {
    pub(crate) fn new(config: PoolConfig) -> Self {
        let by_key = BTreeMap::new();
        Self {
            parts: Arc::new(Parts {
                in_force: ArcSwap::from_pointee(ById::default()),
                members: Mutex::new(Members { config, by_key }),
            }),
        }
    }

    pub(crate) fn members(&self) -> MutexGuard<'_, Members<S>> {
        let members = &self.parts.members;
        members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Clone> Table<S> {
    /// Changes the members, then the pool by them, then the table. A pick that falls between the last two waits
    /// for the table.
    pub(crate) fn change(&self, driver: &Driver, change: impl FnOnce(&mut Members<S>)) {
        let mut members = self.members();
        change(&mut members);
        let config = members.config.clone();
        let told = members.by_key.values().map(|(member, _)| member.clone());
        let backends = driver.update(config, told.collect());
        let services = backends.iter().filter_map(|backend| {
            let (_, service) = members.by_key.get(backend.key())?;
            Some((backend.id(), service.clone()))
        });
        self.parts.in_force.store(Arc::new(services.collect()));
    }
}

impl<S: Clone> Source for Table<S> {
    type Service = S;

    fn service(&self, backend: &Arc<Backend>) -> Option<S> {
        let find = || self.parts.in_force.load().get(&backend.id()).cloned();
        find().or_else(|| {
            // Joined or left just now: the answer is what comes of the change.
            let _members = self.members();
            find()
        })
    }
}

// By hand: a derived one would ask for `S: Clone`.
impl<S> Clone for Table<S> {
    fn clone(&self) -> Self {
        Self {
            parts: Arc::clone(&self.parts),
        }
    }
}

/// Spreads ids, which are counted up and chosen by nobody else: one multiplication (Fibonacci hashing, Knuth,
/// The Art of Computer Programming, volume 3, 6.4) is enough.
#[derive(Debug, Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(self.0 ^ u64::from(byte));
        }
    }

    fn write_u64(&mut self, id: u64) {
        self.0 = id.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

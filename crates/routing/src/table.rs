//! The objects of one revision that can be used, and those that were left out, with the reason.
//!
//! One bad object takes nothing else with it: it is left out, or stays as it was when it was last good, and is named. A table as
//! a whole is refused only where it passes a limit, or has lost most of what it had without saying that this is meant
//! ([`Table::has_shrunk_from`]): an empty answer of a store in trouble is not "no routes".

mod before;

use crate::document::{Boost, Chain, Document, FACTOR, Settings};
use crate::key::{Name, Object};
use before::Before;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::{self, Write as _};
use std::sync::Arc;

/// Most objects of a table.
pub const OBJECTS_MAX: usize = 20_000;
/// Most bytes of a table's keys and values.
pub const BYTES_MAX: usize = 8 << 20;
/// Most backends of a pool.
pub const BACKENDS_MAX: usize = 10_000;

/// A table of one revision.
#[derive(Clone, Debug, Default)]
pub struct Table {
    revision: u64,
    objects: BTreeMap<Object, Arc<Held>>,
    /// What stands in the store and says nothing that can be used, by its key.
    bad: BTreeMap<Box<[u8]>, Bad>,
    /// By their tags in lower case, the settings that are found under them.
    languages: BTreeMap<String, Object>,
    rejected: Vec<Rejected>,
    digest: u64,
}

/// What stands in the store and says nothing that can be used.
#[derive(Clone, Debug)]
struct Bad {
    why: Rejected,
    /// The revision that it was put at.
    modified: u64,
    /// Of its key and its value.
    bytes: usize,
}

/// An object in force.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    /// What it says.
    pub document: Document,
    /// Its text in the store.
    pub json: Box<[u8]>,
    /// The revision that it was put at. What stands in the store may be of another: see [`Table::stored_at`].
    pub modified: u64,
    /// A later one stands in the store, and is no good.
    pub is_pinned: bool,
}

/// What stands in the store and cannot be used as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// Its key.
    pub key: String,
    /// Why.
    pub reason: String,
    /// What was probably meant.
    pub hint: Option<String>,
    /// What was there before stays in force.
    pub is_kept: bool,
}

impl Rejected {
    /// What is wrong, whatever may have been meant.
    pub(crate) fn fault(&self) -> (&str, &str) {
        (&self.key, &self.reason)
    }
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.reason)?;
        if let Some(hint) = &self.hint {
            write!(f, "; {hint}")?;
        }
        match self.is_kept {
            true => f.write_str(" (what was there before stays in force)"),
            false => Ok(()),
        }
    }
}

/// A limit that a table passes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Limit {
    /// Too many objects.
    #[error("{0} objects are over the limit of {OBJECTS_MAX}")]
    Objects(usize),
    /// Too many bytes.
    #[error("{0} bytes of keys and values are over the limit of {BYTES_MAX}")]
    Bytes(usize),
    /// Too many backends in a pool.
    #[error("pool {pool} of region {region} has {count} backends; the limit is {BACKENDS_MAX}")]
    Backends {
        /// Where the pool is.
        region: Name,
        /// Which.
        pool: Name,
        /// How many it has.
        count: usize,
    },
}

/// An object as it stands in the store.
#[derive(Clone, Copy, Debug)]
pub struct Stored<'a> {
    /// Its key, without the table's prefix.
    pub key: &'a [u8],
    /// Its document.
    pub value: &'a [u8],
    /// The revision that it was put at.
    pub modified: u64,
}

impl Table {
    /// The table of `stored` at `revision`. What is bad there stays as `previous` has it.
    ///
    /// # Errors
    /// A limit that it passes: nothing of it is to be used.
    pub fn build<'a>(
        revision: u64,
        stored: impl IntoIterator<Item = Stored<'a>>,
        previous: Option<&Self>,
    ) -> Result<Self, Limit> {
        Self::of(revision, stored, Before::new(previous, true))
    }

    /// The same without anything that stays: of `known` no document is read again that stands in the store as it is there.
    ///
    /// # Errors
    /// See [`Table::build`].
    pub fn build_knowing<'a>(
        revision: u64,
        stored: impl IntoIterator<Item = Stored<'a>>,
        known: &Self,
    ) -> Result<Self, Limit> {
        Self::of(revision, stored, Before::new(Some(known), false))
    }

    fn of<'a>(
        revision: u64,
        stored: impl IntoIterator<Item = Stored<'a>>,
        mut before: Before<'_>,
    ) -> Result<Self, Limit> {
        let mut table = Self {
            revision,
            ..Self::default()
        };
        for stored in stored {
            table.take(&stored, &mut before);
        }
        table.finish()
    }

    /// The table that `changes` make of this one, at `revision`: what they do not touch is held as it is. Of a key it is the
    /// last that counts.
    ///
    /// # Errors
    /// A limit that it passes.
    pub(crate) fn with<'a>(
        &self,
        revision: u64,
        changes: impl IntoIterator<Item = (&'a Object, Option<&'a [u8]>)>,
    ) -> Result<Self, Limit> {
        let mut table = Self {
            revision,
            objects: self.objects.clone(),
            bad: self.bad.clone(),
            ..Self::default()
        };
        for (object, document) in changes {
            let key = object.to_string();
            table.objects.remove(object);
            table.bad.remove(key.as_bytes());
            if let Some(value) = document {
                let stored = Stored {
                    key: key.as_bytes(),
                    value,
                    modified: revision,
                };
                table.take(&stored, &mut Before::new(None, false));
            }
        }
        table.finish()
    }

    /// Those of its objects that `is_meant` takes, held as they are: for who looks at a part of a table. Nothing is rejected of
    /// it, and it has no digest.
    pub fn part(&self, is_meant: impl Fn(&Object) -> bool) -> Self {
        let objects = self.objects.iter().filter(|(object, _)| is_meant(object));
        let objects = objects.map(|(object, held)| (object.clone(), Arc::clone(held)));
        Self {
            revision: self.revision,
            objects: objects.collect(),
            ..Self::default()
        }
    }

    /// Looks at all that was taken together.
    fn finish(mut self) -> Result<Self, Limit> {
        let bad = self.bad.values();
        let held = self.objects.iter().filter(|(_, held)| !held.is_pinned);
        let sizes: Vec<usize> = held
            .map(|(object, held)| object.key_len() + held.json.len())
            .chain(bad.map(|bad| bad.bytes))
            .collect();
        if sizes.len() > OBJECTS_MAX {
            return Err(Limit::Objects(sizes.len()));
        }
        let bytes = sizes.into_iter().sum();
        if bytes > BYTES_MAX {
            return Err(Limit::Bytes(bytes));
        }
        self.check_backends()?;
        self.rejected = self.bad.values().map(|bad| bad.why.clone()).collect();
        let twice = self.index_languages();
        self.rejected.extend(twice);
        self.rejected.extend(self.dangling());
        self.digest = self.sum();
        Ok(self)
    }

    fn take(&mut self, stored: &Stored<'_>, before: &mut Before<'_>) {
        let is_known = |held: &&Arc<Held>| {
            !held.is_pinned && held.modified == stored.modified && *held.json == *stored.value
        };
        if let Some((object, held)) = before.beside(stored.key)
            && is_known(&held)
        {
            self.objects.insert(object.clone(), Arc::clone(held));
            return;
        }
        let text = String::from_utf8_lossy(stored.key);
        let object: Object = match text.parse() {
            Ok(object) => object,
            Err(error) => return self.reject(stored, &error, false),
        };
        let before = before.staying(&object);
        match Document::parse(&object, stored.value) {
            Ok(document) => {
                let held = Held {
                    document,
                    json: stored.value.into(),
                    modified: stored.modified,
                    is_pinned: false,
                };
                self.objects.insert(object, Arc::new(held));
            }
            Err(error) => {
                self.reject(stored, &error, before.is_some());
                if let Some(held) = before {
                    self.pin(object, held);
                }
            }
        }
    }

    fn pin(&mut self, object: Object, held: &Held) {
        let held = Held {
            is_pinned: true,
            ..held.clone()
        };
        self.objects.insert(object, Arc::new(held));
    }

    fn reject(&mut self, stored: &Stored<'_>, reason: &dyn fmt::Display, is_kept: bool) {
        let bad = Bad {
            why: Rejected {
                key: String::from_utf8_lossy(stored.key).into_owned(),
                reason: reason.to_string(),
                hint: None,
                is_kept,
            },
            modified: stored.modified,
            bytes: stored.key.len() + stored.value.len(),
        };
        self.bad.insert(stored.key.into(), bad);
    }

    /// Finds settings by their tags, whose case says nothing (RFC 5646, section 2.1.1). Those that name a language which
    /// others name already, the first in the order of the keys, are passed over.
    fn index_languages(&mut self) -> Vec<Rejected> {
        let mut twice = Vec::new();
        for object in self.objects.keys() {
            let Object::Settings { language } = object else {
                continue;
            };
            match self.languages.entry(language.as_str().to_ascii_lowercase()) {
                Entry::Vacant(place) => {
                    place.insert(object.clone());
                }
                Entry::Occupied(first) => twice.push(Rejected {
                    key: object.to_string(),
                    reason: format!(
                        "`{}` names the same language: upper and lower case are one",
                        first.get()
                    ),
                    hint: Some("delete one of them".to_owned()),
                    is_kept: false,
                }),
            }
        }
        twice
    }

    fn check_backends(&self) -> Result<(), Limit> {
        let mut counts: BTreeMap<(&Name, &Name), usize> = BTreeMap::new();
        for object in self.objects.keys() {
            if let Object::Backend { region, pool, .. } = object {
                *counts.entry((region, pool)).or_default() += 1;
            }
        }
        match counts.into_iter().find(|(_, count)| *count > BACKENDS_MAX) {
            None => Ok(()),
            Some(((region, pool), count)) => Err(Limit::Backends {
                region: region.clone(),
                pool: pool.clone(),
                count,
            }),
        }
    }

    /// What names something that is not there, with what was probably meant. Such a name is passed over where a request is
    /// resolved; who writes must not leave one behind.
    pub fn dangling(&self) -> Vec<Rejected> {
        let mut found = Vec::new();
        // A pool that goes leaves thousands of backends behind; what was meant is looked for once. And as a pool's backends
        // stand one behind the other, so is the pool.
        let mut meant = BTreeMap::new();
        let mut there = None;
        for (object, held) in &self.objects {
            match (object, &held.document) {
                (Object::Chain { region, .. }, Document::Chain(chain)) => {
                    for link in &chain.links {
                        let pool = link.object(region);
                        self.must_have(object, pool, &mut meant, &mut found);
                    }
                }
                (Object::Backend { region, pool, .. } | Object::Boost { region, pool, .. }, _) => {
                    if there == Some((region, pool)) {
                        continue;
                    }
                    let wanted = Object::Pool {
                        region: region.clone(),
                        pool: pool.clone(),
                    };
                    if self.must_have(object, wanted, &mut meant, &mut found) {
                        there = Some((region, pool));
                    }
                }
                _ => {}
            }
        }
        found
    }

    /// Whether it has it.
    fn must_have<'t>(
        &'t self,
        object: &Object,
        pool: Object,
        meant: &mut BTreeMap<Object, Option<&'t Object>>,
        found: &mut Vec<Rejected>,
    ) -> bool {
        if self.objects.contains_key(&pool) {
            return true;
        }
        let reason = format!("`{pool}` is not there");
        let other = meant
            .entry(pool)
            .or_insert_with_key(|pool| self.elsewhere(pool));
        found.push(Rejected {
            key: object.to_string(),
            reason,
            hint: other.map(|other| format!("there is `{other}`")),
            is_kept: false,
        });
        false
    }

    /// A pool of that name in another region, or of a name like it in the same.
    fn elsewhere(&self, wanted: &Object) -> Option<&Object> {
        let Object::Pool { region, pool } = wanted else {
            return None;
        };
        let pools = || {
            let objects = self.objects.keys();
            objects.filter_map(|object| match object {
                Object::Pool { region, pool } => Some((object, region, pool)),
                _ => None,
            })
        };
        let same = pools().find(|(_, _, name)| *name == pool);
        let like = pools()
            .filter(|(_, place, _)| *place == region)
            .map(|(object, _, name)| {
                (
                    strsim::damerau_levenshtein(name.as_str(), pool.as_str()),
                    object,
                )
            })
            .filter(|(distance, _)| *distance <= 2)
            .min_by_key(|(distance, _)| *distance);
        same.map(|(object, ..)| object)
            .or(like.map(|(_, object)| object))
    }

    /// The revision that it is of.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Tells two tables apart, whichever node holds them and whatever revision they are of: FNV-1a, 64 bits, over keys and
    /// documents in their order. What was pinned counts as what it is, so a node that keeps an old document differs.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    fn sum(&self) -> u64 {
        let mut sum = 0xcbf2_9ce4_8422_2325u64;
        let mut add = |bytes: &[u8]| {
            for byte in (bytes.len() as u64).to_le_bytes().iter().chain(bytes) {
                sum = (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            }
        };
        let mut key = String::new();
        for (object, held) in &self.objects {
            key.clear();
            // Writing to a String does not fail.
            let _ = write!(key, "{object}");
            add(key.as_bytes());
            add(&held.json);
        }
        sum
    }

    /// All objects in force, sorted by their keys.
    pub fn objects(&self) -> impl Iterator<Item = (&Object, &Held)> {
        self.objects.iter().map(|(object, held)| (object, &**held))
    }

    /// [`Table::objects`], to be kept.
    pub fn shared(&self) -> impl Iterator<Item = (&Object, &Arc<Held>)> {
        self.objects.iter()
    }

    /// An object in force.
    pub fn held(&self, object: &Object) -> Option<&Held> {
        self.objects.get(object).map(|held| &**held)
    }

    /// The revision of what stands in the store under an object's key, whether it can be used or not; 0: nothing stands there.
    /// It is what a change of the object has to compare with.
    pub fn stored_at(&self, object: &Object) -> u64 {
        let bad = self.bad.get(object.to_string().as_bytes());
        let held = || self.held(object).map_or(0, |held| held.modified);
        bad.map_or_else(held, |bad| bad.modified)
    }

    /// Whether what stands in the store under an object's key says nothing that can be used.
    pub(crate) fn is_bad(&self, object: &Object) -> bool {
        self.bad.contains_key(object.to_string().as_bytes())
    }

    /// How many objects are in force.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether no object is in force.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// What stands in the store and cannot be used as it is.
    pub fn rejected(&self) -> &[Rejected] {
        &self.rejected
    }

    /// Whether most of what `before` had is gone, and nobody has said since that this is meant. Then it must not come into
    /// force by itself.
    pub fn has_shrunk_from(&self, before: &Self) -> bool {
        let is_there = |object: &&Object| self.objects.contains_key(*object);
        let kept = before.objects.keys().filter(is_there).count();
        let is_said = matches!(
            self.objects.get(&Object::Meta).map(|held| &held.document),
            Some(Document::Meta(meta)) if meta.allow_shrink
        ) && self
            .objects
            .get(&Object::Meta)
            .is_some_and(|held| !held.is_pinned && held.modified > before.revision);
        !is_said && kept * 2 < before.objects.len()
    }

    /// The chain of that name, for requests of `region`.
    pub fn chain(&self, region: &Name, chain: &Name) -> Option<&Chain> {
        let object = Object::Chain {
            region: region.clone(),
            chain: chain.clone(),
        };
        match self.held(&object).map(|held| &held.document) {
            Some(Document::Chain(chain)) => Some(chain),
            _ => None,
        }
    }

    /// Settings by their language's tag, in upper or lower case.
    pub fn settings(&self, language: &Name) -> Option<&Settings> {
        self.settings_of(&language.as_str().to_ascii_lowercase())
            .map(|(_, settings)| settings)
    }

    /// Settings by their language's tag in lower case, with the tag as it is written in their key.
    pub(crate) fn settings_of(&self, tag: &str) -> Option<(&Name, &Settings)> {
        let object = self.languages.get(tag)?;
        match (object, self.held(object).map(|held| &held.document)) {
            (Object::Settings { language }, Some(Document::Settings(settings))) => {
                Some((language, settings))
            }
            _ => None,
        }
    }

    /// Boosts of a pool, whether they have ended or not.
    pub fn boosts(&self, region: &Name, pool: &Name) -> impl Iterator<Item = (&Object, &Boost)> {
        let first = Object::Boost {
            region: region.clone(),
            pool: pool.clone(),
            id: Name::before_all(),
        };
        let (region, pool) = (region.clone(), pool.clone());
        self.objects
            .range(first..)
            .take_while(move |(object, _)| {
                matches!(object, Object::Boost { region: r, pool: p, .. } if *r == region && *p == pool)
            })
            .filter_map(|(object, held)| match &held.document {
                Document::Boost(boost) => Some((object, boost)),
                _ => None,
            })
    }

    /// What a pool's weight is multiplied by now: the product of its boosts that have not ended, from 0.1 to 10.
    pub fn factor(&self, region: &Name, pool: &Name, now_ms: u64) -> f64 {
        let (least, most) = FACTOR.into_inner();
        self.boosts(region, pool)
            .filter(|(_, boost)| boost.expires_at_ms > now_ms)
            .map(|(_, boost)| boost.factor)
            .product::<f64>()
            .clamp(least, most)
    }

    /// When the next boost ends, in ms since 1970; `None`: none is in force.
    pub fn next_end(&self, now_ms: u64) -> Option<u64> {
        self.objects
            .values()
            .filter_map(|held| match &held.document {
                Document::Boost(boost) => Some(boost.expires_at_ms),
                _ => None,
            })
            .filter(|end| *end > now_ms)
            .min()
    }
}

#[cfg(test)]
mod tests;

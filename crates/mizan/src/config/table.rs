//! Files and the store's table together: what is bad of the table is left out, and named.
//!
//! [`compile`] tells all that is wrong, and refuses all of it. That is right for a file, which one person writes and tries. A
//! table has many writers, and a slip in one object must not keep the others from coming into force; so the objects that are
//! to blame stay as they were when they were last good, or are left out, and the rest is compiled again.

use super::load::SystemRoots;
use super::{Diagnostic, Lookup, STORED, Severity, Source, compile};
use crate::snapshot::Snapshot;
use mizan_core::time::Instant;
use mizan_routing::table::{Held, Rejected};
use mizan_routing::{Document, Object, Table};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

mod warm;

/// Objects of a table that came into force.
#[derive(Clone, Debug, Default)]
pub struct InForce {
    objects: BTreeMap<Object, Arc<Held>>,
    /// Pools that nothing is sent to before a backend of theirs has passed a probe.
    cold: BTreeSet<Object>,
}

impl InForce {
    /// The object, as it came into force.
    pub fn held(&self, object: &Object) -> Option<&Arc<Held>> {
        self.objects.get(object)
    }

    /// All of them, sorted by their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&Object, &Arc<Held>)> {
        self.objects.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Whether a new pool that is waited for has become warm in `snapshot`, which has these objects in force.
    pub fn has_warmed(&self, snapshot: &Snapshot, now: Instant) -> bool {
        let mut cold = self.cold.iter();
        cold.any(|pool| warm::is_warm(pool, snapshot, now))
    }
}

/// What came of files and a table.
#[derive(Debug)]
pub struct Merged {
    /// The files, then the objects that are in force.
    pub sources: Vec<Source>,
    /// The configuration.
    pub snapshot: Snapshot,
    /// About what is in force.
    pub warnings: Vec<Diagnostic>,
    /// Objects that are not in force as they stand in the store, by their keys.
    pub rejected: Vec<Rejected>,
    /// Objects that wait for a new pool to be warm, by their keys: they are in force as they were before, or not yet.
    pub waiting: Vec<Rejected>,
    /// What is in force of the table; the next one falls back on it.
    pub in_force: InForce,
}

/// Compiles `files` with `table` as it is at `now_ms` (ms since 1970): boosts that have ended count no more. What is bad of the
/// table stays as `last` has it, if that is good, or is left out. `waits`: what names a new pool stays as it was until that is
/// warm. See [`compile`] for the rest.
///
/// # Errors
/// What is wrong with the files, or with the table as a whole.
pub fn compile_with(
    files: &[Source],
    (table, now_ms, waits): (&Table, u64, bool),
    (previous, last): (Option<&Snapshot>, &InForce),
    lookup: &dyn Lookup,
    (now, random): (Instant, u64),
) -> Result<Merged, Vec<Diagnostic>> {
    let files = with_system_roots(files, table);
    let mut objects: BTreeMap<Object, Arc<Held>> = table
        .shared()
        .filter(|(_, held)| !has_ended(held, now_ms))
        .map(|(object, held)| (object.clone(), Arc::clone(held)))
        .collect();
    let (cold, waiting) = match previous.filter(|_| waits) {
        Some(previous) => warm::hold_back(&mut objects, (previous, last), now),
        None => Default::default(),
    };
    let mut rejected: BTreeMap<Object, Rejected> = BTreeMap::new();
    // Each turn changes an object that was not changed before, or takes one away.
    loop {
        let stored = objects
            .iter()
            .map(|(object, held)| Source::of_object(object, held));
        let sources: Vec<Source> = files.iter().cloned().chain(stored).collect();
        let found = match compile(&sources, previous, lookup, now, random) {
            Ok((snapshot, warnings)) => {
                return Ok(Merged {
                    sources,
                    snapshot,
                    warnings,
                    rejected: all(table, rejected),
                    waiting,
                    in_force: InForce { objects, cold },
                });
            }
            Err(found) => found,
        };
        let blamed = blamed(&found);
        if blamed.is_empty() {
            return Err(found);
        }
        for (object, reason) in blamed {
            let stands = objects.remove(&object);
            let was_kept = rejected.get(&object).is_some_and(|it| it.is_kept);
            let good = last.held(&object).filter(|good| {
                // What has just been found bad is no better for having been in force beside other objects.
                !was_kept && stands.is_some_and(|stands| stands.json != good.json)
            });
            if let Some(good) = good {
                objects.insert(object.clone(), Arc::clone(good));
            }
            let is_kept = good.is_some();
            let entry = rejected.entry(object);
            let entry = entry.or_insert_with_key(|object| Rejected {
                key: object.to_string(),
                reason,
                hint: None,
                is_kept,
            });
            entry.is_kept = is_kept;
        }
    }
}

/// Objects of `table` that could not come into force on balancers of `region`, whatever else their files say.
pub fn judge(table: &Table, region: &str) -> Vec<Rejected> {
    let mut main = Source::new("mizan.toml", beside(table, region));
    main.expect_store();
    let last = (None, &InForce::default());
    let nowhere = |_: &str| Err(std::io::Error::other("names are not looked up here"));
    let now = (Instant::default(), 0);
    match compile_with(&[main], (table, 0, false), last, &nowhere, now) {
        Ok(merged) => merged.rejected,
        // No object is to blame alone: none of them could come into force.
        Err(found) => {
            let errors = found.iter().find(|it| it.severity == Severity::Error);
            let reason = errors.map_or_else(String::new, |it| it.message.clone());
            let reject = |(object, _): (&Object, _)| Rejected {
                key: object.to_string(),
                reason: reason.clone(),
                hint: None,
                is_kept: false,
            };
            table.objects().map(reject).collect()
        }
    }
}

/// Some file that the table's objects can stand beside: what is the files' to say (listeners, and which headers settings may
/// become) it has as the routes want it.
fn beside(table: &Table, region: &str) -> String {
    let is_name = |name: &str| {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        !name.is_empty() && name.len() <= 64 && name.bytes().all(fits)
    };
    let mut listeners = BTreeSet::from(["any"]);
    let mut headers = BTreeSet::new();
    let routes = table
        .objects()
        .filter_map(|(_, held)| match &held.document {
            Document::Route(fields) => Some(fields),
            _ => None,
        });
    for fields in routes {
        match fields.get("listener") {
            Some(Value::String(name)) => {
                listeners.insert(name);
            }
            Some(Value::Array(names)) => listeners.extend(names.iter().filter_map(Value::as_str)),
            _ => {}
        }
        let settings = fields.get("settings").and_then(Value::as_object);
        headers.extend(
            settings
                .into_iter()
                .flat_map(|it| it.keys())
                .map(String::as_str),
        );
    }
    let headers: Vec<&str> = headers.into_iter().filter(|name| is_name(name)).collect();
    let mut text = format!("[region]\nname = {region:?}\n\n[store]\nheaders = {headers:?}\n\n");
    let names = listeners.into_iter().filter(|name| is_name(name));
    for (at, name) in names.enumerate() {
        // On no port that a backend could have.
        text += &format!("[[listener]]\nname = {name:?}\nbind = \"unix:/judged/{at}\"\n\n");
    }
    text
}

/// The files, with the system's roots if a pool of the table goes by them.
fn with_system_roots(files: &[Source], table: &Table) -> Vec<Source> {
    let mut files = files.to_vec();
    let has_tls =
        |held: &Held| matches!(&held.document, Document::Pool(pool) if pool.contains_key("tls"));
    if let Some(main) = files.first_mut()
        && main.system_roots.is_none()
        && table.objects().any(|(_, held)| has_tls(held))
    {
        main.system_roots = Some(Arc::new(SystemRoots::read()));
    }
    files
}

fn has_ended(held: &Held, now_ms: u64) -> bool {
    matches!(&held.document, Document::Boost(boost) if boost.expires_at_ms <= now_ms)
}

/// The objects that errors are about, each with its first.
fn blamed(found: &[Diagnostic]) -> BTreeMap<Object, String> {
    let mut blamed = BTreeMap::new();
    let errors = found.iter().filter(|it| it.severity == Severity::Error);
    for error in errors {
        let key = error.file.to_str().and_then(|it| it.strip_prefix(STORED));
        let Some(object) = key.and_then(|key| key.parse().ok()) else {
            continue;
        };
        blamed.entry(object).or_insert_with(|| match &*error.path {
            "" => error.message.clone(),
            path => format!("{path}: {}", error.message),
        });
    }
    blamed
}

/// With those that the table itself could not read, or whose names lead nowhere.
fn all(table: &Table, rejected: BTreeMap<Object, Rejected>) -> Vec<Rejected> {
    let mut all: Vec<Rejected> = table.rejected().to_vec();
    all.extend(rejected.into_values());
    all.sort_by(|a, b| a.key.cmp(&b.key));
    all
}

#[cfg(test)]
mod tests;

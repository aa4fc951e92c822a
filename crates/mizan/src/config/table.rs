//! Files and the store's table together: what is bad of the table is left out, and named.
//!
//! [`compile`] tells all that is wrong, and refuses all of it. That is right for a file, which one person writes and tries. A
//! table has many writers, and a slip in one object must not keep the others from coming into force; so the objects that are
//! to blame stay as they were when they were last good, or are left out, and the rest is compiled again.

use super::load::SystemRoots;
use super::{Diagnostic, Resolve, STORED, Severity, Source, compile};
use crate::snapshot::Snapshot;
use mizan_core::time::Instant;
use mizan_routing::table::{Held, Rejected};
use mizan_routing::{Document, Object, Table};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Objects of a table that came into force.
#[derive(Clone, Debug, Default)]
pub struct InForce(BTreeMap<Object, Arc<Held>>);

impl InForce {
    /// The object, as it came into force.
    pub fn held(&self, object: &Object) -> Option<&Arc<Held>> {
        self.0.get(object)
    }

    /// All of them, sorted by their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&Object, &Arc<Held>)> {
        self.0.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
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
    /// What is in force of the table; the next one falls back on it.
    pub in_force: InForce,
}

/// Compiles `files` with `table` as it is at `now_ms` (ms since 1970): boosts that have ended count no more. What is bad of the
/// table stays as `last` has it, if that is good, or is left out. See [`compile`] for the rest.
///
/// # Errors
/// What is wrong with the files, or with the table as a whole.
pub fn compile_with(
    files: &[Source],
    (table, now_ms): (&Table, u64),
    (previous, last): (Option<&Snapshot>, &InForce),
    resolve: Resolve<'_>,
    (now, random): (Instant, u64),
) -> Result<Merged, Vec<Diagnostic>> {
    let files = with_system_roots(files, table);
    let mut objects: BTreeMap<Object, Arc<Held>> = table
        .shared()
        .filter(|(_, held)| !has_ended(held, now_ms))
        .map(|(object, held)| (object.clone(), Arc::clone(held)))
        .collect();
    let mut rejected: BTreeMap<Object, Rejected> = BTreeMap::new();
    // Each turn changes an object that was not changed before, or takes one away.
    loop {
        let stored = objects
            .iter()
            .map(|(object, held)| Source::of_object(object, held));
        let sources: Vec<Source> = files.iter().cloned().chain(stored).collect();
        let found = match compile(&sources, previous, resolve, now, random) {
            Ok((snapshot, warnings)) => {
                return Ok(Merged {
                    sources,
                    snapshot,
                    warnings,
                    rejected: all(table, rejected),
                    in_force: InForce(objects),
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
    // Some file that objects can stand beside.
    let file = format!("[region]\nname = {region:?}\n\n[[listener]]\nbind = \"127.0.0.1:80\"\n");
    let mut main = Source::new("mizan.toml", file);
    main.expect_store();
    let last = (None, &InForce::default());
    let nowhere = |_: &str| Err(std::io::Error::other("names are not looked up here"));
    let now = (Instant::default(), 0);
    match compile_with(&[main], (table, 0), last, &nowhere, now) {
        Ok(merged) => merged.rejected,
        // What no object is to blame for cannot be mended in one.
        Err(_) => Vec::new(),
    }
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

//! `mizan config export`, `import`, `diff` and `validate`: a table as one file.

use super::{Config, read_json};
use crate::admin::table::{ChangeRequest, EditRequest};
use crate::cli::client::ClientError;
use crate::cli::output::{self, Exit};
use crate::config;
use crate::control::editor::{CHANGES_MAX, TableView};
use mizan_routing::edit::EditError;
use mizan_routing::table::{Held, Stored};
use mizan_routing::{Document, Object, Table};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A table as one file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// Of the documents.
    schema: u64,
    /// By their keys.
    objects: BTreeMap<String, Value>,
}

impl File {
    fn read(path: &Path) -> Result<Self, ClientError> {
        let file: Self = serde_json::from_value(read_json(Some(path))?).map_err(|error| {
            ClientError::Usage(format!(
                "{}: {error}; a table is {{\"schema\": 1, \"objects\": {{\"pools/kr/kpop\": {{…}}}}}}",
                path.display()
            ))
        })?;
        match file.schema {
            mizan_routing::SCHEMA => Ok(file),
            other => Err(ClientError::Usage(format!(
                "{}: schema {other} was written by a later version",
                path.display()
            ))),
        }
    }
}

impl Config {
    pub(super) fn export(&self, file: Option<&Path>) -> Result<Exit, ClientError> {
        let view = self.table(None)?;
        // A boost is of its moment: it does not come back with a table.
        let is_lasting = |key: &str| !key.starts_with("boosts/");
        let objects = view.objects.into_iter().filter(|it| is_lasting(&it.key));
        let out = File {
            schema: mizan_routing::SCHEMA,
            objects: objects.map(|it| (it.key, it.document)).collect(),
        };
        let Some(path) = file else {
            return Ok(output::json(&out, Exit::Done));
        };
        let text = serde_json::to_string_pretty(&out)
            .map_err(|error| ClientError::Usage(error.to_string()))?;
        std::fs::write(path, text + "\n").map_err(|error| {
            ClientError::Usage(format!("{} cannot be written: {error}", path.display()))
        })?;
        Ok(Exit::Done)
    }

    pub(super) fn diff(&self, path: &Path, prune: bool) -> Result<Exit, ClientError> {
        let file = File::read(path)?;
        let view = self.table(None)?;
        let changes = changes(&file, &view, prune);
        if self.json {
            return Ok(output::json(&changes, Exit::Done));
        }
        let before: BTreeMap<_, _> = view
            .objects
            .iter()
            .map(|it| (&*it.key, &it.document))
            .collect();
        let lines: Vec<_> = changes
            .iter()
            .map(
                |change| match (before.get(&*change.key), &change.document) {
                    (None, _) => format!("+ {}", change.key),
                    (Some(_), None) => format!("- {}", change.key),
                    (Some(before), Some(after)) => {
                        format!("~ {}\n    {before}\n    {after}", change.key)
                    }
                },
            )
            .collect();
        Ok(match lines.is_empty() {
            true => output::out("nothing differs", Exit::Done),
            false => output::out(&lines.join("\n"), Exit::Done),
        })
    }

    pub(super) fn import(
        &self,
        path: &Path,
        (prune, force, in_parts): (bool, bool, bool),
        why: &str,
    ) -> Result<Exit, ClientError> {
        let file = File::read(path)?;
        let view = self.table(None)?;
        let (all, changes) = (view.objects.len(), changes(&file, &view, prune));
        if changes.is_empty() {
            return Ok(output::out("nothing differs", Exit::Done));
        }
        if changes.len() > CHANGES_MAX && !in_parts {
            return Err(ClientError::Usage(format!(
                "{} changes are more than the {CHANGES_MAX} of one edit: `--in-parts` makes several, each whole, pools before what names them",
                changes.len()
            )));
        }
        let parts: Vec<_> = changes.chunks(CHANGES_MAX).collect();
        if parts.len() > 1 {
            // What one of the last parts would be refused for is told before the first is put.
            let faults = faults(path, &after(view, &changes), None)?;
            let touched: BTreeSet<&str> = changes.iter().map(|it| &*it.key).collect();
            let of_it = |fault: &&String| {
                let key = fault.split_once(": ");
                key.is_some_and(|(key, _)| touched.contains(key))
            };
            let faults: Vec<String> = faults.iter().filter(of_it).cloned().collect();
            if !faults.is_empty() {
                return Err(ClientError::Usage(faults.join("\n")));
            }
        }
        if parts.len() > 1 && !force {
            // Each part takes little away; all of them may take most of it.
            let gone = changes.iter().filter(|it| it.document.is_none()).count();
            if 2 * gone > all {
                let shrinks = EditError::Shrinks { gone, all };
                return Err(ClientError::Usage(shrinks.to_string()));
            }
        }
        for (at, part) in parts.iter().enumerate() {
            let number = match parts.len() {
                1 => String::new(),
                all => format!(" ({} of {all})", at + 1),
            };
            let request = EditRequest {
                changes: part.to_vec(),
                why: format!("{why}{number}").trim_start().to_owned(),
                force,
            };
            let made = self.make(&request);
            if made.is_err() && at > 0 {
                output::err(&format!(
                    "mizan: {at} of {} parts were put, each whole; the same command goes on with the others",
                    parts.len()
                ));
            }
            let exit = made?;
            if exit != Exit::Done {
                return Ok(exit);
            }
        }
        Ok(Exit::Done)
    }
}

/// Checks a file as far as it can be checked by itself: a table, or the document of one object.
pub(super) fn validate(path: &Path, key: Option<&str>) -> Result<Exit, ClientError> {
    let objects = match key {
        None => File::read(path)?.objects,
        Some(key) => BTreeMap::from([(key.to_owned(), read_json(Some(path))?)]),
    };
    let faults = faults(path, &objects, key)?;
    let count = objects.len();
    Ok(match (faults.is_empty(), key) {
        (false, _) => output::out(&faults.join("\n"), Exit::Usage),
        (true, Some(key)) => output::out(&format!("{key} is good"), Exit::Done),
        (true, None) => {
            let text = format!("{} is good: {count} objects", path.display());
            output::out(&text, Exit::Done)
        }
    })
}

/// What is wrong with `objects`, as far as they tell: with all of a table, or one of its objects.
fn faults(
    path: &Path,
    objects: &BTreeMap<String, Value>,
    key: Option<&str>,
) -> Result<Vec<String>, ClientError> {
    let texts: BTreeMap<String, String> = objects
        .iter()
        .map(|(key, document)| (key.clone(), document.to_string()))
        .collect();
    let own = table(path, &texts)?;
    // Of one object, what it names counts as there.
    let named = key.map_or_else(Vec::new, |_| named(&own));
    let named = named.into_iter().map(|pool| {
        let document = serde_json::json!({"schema": mizan_routing::SCHEMA});
        (pool.to_string(), document.to_string())
    });
    let table = table(path, &named.chain(texts).collect())?;
    let regions = table.objects().filter_map(|(object, _)| match object {
        Object::Pool { region, .. } | Object::Chain { region, .. } => Some(region.to_string()),
        _ => None,
    });
    let mut regions: BTreeSet<String> = regions.collect();
    if regions.is_empty() {
        // Routes and settings are of all regions.
        regions.insert("default".to_owned());
    }
    let mut faults: BTreeSet<String> = table.rejected().iter().map(ToString::to_string).collect();
    for region in regions {
        let found = config::judge(&table, &region);
        faults.extend(found.iter().map(ToString::to_string));
    }
    Ok(faults.into_iter().collect())
}

fn table(path: &Path, texts: &BTreeMap<String, String>) -> Result<Table, ClientError> {
    let stored = texts.iter().map(|(key, json)| Stored {
        key: key.as_bytes(),
        value: json.as_bytes(),
        modified: 1,
    });
    Table::build(1, stored, None)
        .map_err(|limit| ClientError::Usage(format!("{}: {limit}", path.display())))
}

/// Pools that objects of a table belong to, or go by.
fn named(table: &Table) -> Vec<Object> {
    let of = |(object, held): (&Object, &Held)| match (object, &held.document) {
        (Object::Backend { region, pool, .. } | Object::Boost { region, pool, .. }, _) => {
            let (region, pool) = (region.clone(), pool.clone());
            vec![Object::Pool { region, pool }]
        }
        (Object::Chain { region, .. }, Document::Chain(chain)) => {
            let links = chain.links.iter();
            links.map(|link| link.object(region)).collect()
        }
        _ => Vec::new(),
    };
    table.objects().flat_map(of).collect()
}

/// What `changes` leave of a table.
fn after(view: TableView, changes: &[ChangeRequest]) -> BTreeMap<String, Value> {
    let objects = view.objects.into_iter();
    let mut after: BTreeMap<_, _> = objects.map(|it| (it.key, it.document)).collect();
    for change in changes {
        match &change.document {
            Some(document) => after.insert(change.key.clone(), document.clone()),
            None => after.remove(&change.key),
        };
    }
    after
}

/// What makes the table be what the file says: what others name comes first, and goes last.
fn changes(file: &File, view: &TableView, prune: bool) -> Vec<ChangeRequest> {
    let there: BTreeMap<&str, (&Value, u64)> = view
        .objects
        .iter()
        .map(|it| (&*it.key, (&it.document, it.revision)))
        .collect();
    let seen = |key: &str| Some(there.get(key).map_or(0, |(_, revision)| *revision));
    let mut puts: Vec<_> = file
        .objects
        .iter()
        .filter(|(key, document)| there.get(&***key).is_none_or(|(now, _)| *now != *document))
        .map(|(key, document)| ChangeRequest {
            key: key.clone(),
            document: Some(document.clone()),
            seen: seen(key),
        })
        .collect();
    puts.sort_by_key(|change| rank(&change.key));
    let is_gone = |key: &&&str| {
        prune && !file.objects.contains_key(**key) && !key.starts_with("boosts/") && **key != "meta"
    };
    let mut deletes: Vec<_> = there
        .keys()
        .filter(is_gone)
        .map(|key| ChangeRequest {
            key: (*key).to_owned(),
            document: None,
            seen: seen(key),
        })
        .collect();
    deletes.sort_by_key(|change| std::cmp::Reverse(rank(&change.key)));
    puts.extend(deletes);
    puts
}

/// Pools are named by all others.
fn rank(key: &str) -> u8 {
    match key.split('/').next() {
        Some("pools") => 0,
        Some("backends") => 1,
        Some("chains") => 2,
        _ => 3,
    }
}

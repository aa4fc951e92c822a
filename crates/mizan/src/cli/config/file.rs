//! `mizan config export`, `import`, `diff` and `validate`: a table as one file.

use super::{Config, read_json};
use crate::admin::table::{ChangeRequest, EditRequest};
use crate::cli::client::ClientError;
use crate::cli::output::{self, Exit};
use crate::config;
use crate::control::editor::{CHANGES_MAX, TableView};
use mizan_routing::table::Stored;
use mizan_routing::{Object, Table};
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
        let changes = changes(&file, &self.table(None)?, prune);
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
        for (at, part) in parts.iter().enumerate() {
            let number = match parts.len() {
                1 => String::new(),
                all => format!(" ({} of {all})", at + 1),
            };
            let request = EditRequest {
                changes: part.to_vec(),
                why: format!("{why}{number}"),
                force,
            };
            let exit = self.make(&request)?;
            if exit != Exit::Done {
                return Ok(exit);
            }
        }
        Ok(Exit::Done)
    }

    pub(super) fn validate(&self, path: &Path) -> Result<Exit, ClientError> {
        let file = File::read(path)?;
        let texts: BTreeMap<&str, String> = file
            .objects
            .iter()
            .map(|(key, document)| (&**key, document.to_string()))
            .collect();
        let stored = texts.iter().map(|(key, json)| Stored {
            key: key.as_bytes(),
            value: json.as_bytes(),
            modified: 1,
        });
        let table = Table::build(1, stored, None)
            .map_err(|limit| ClientError::Usage(format!("{}: {limit}", path.display())))?;
        let regions: BTreeSet<String> = table
            .objects()
            .filter_map(|(object, _)| match object {
                Object::Pool { region, .. } | Object::Chain { region, .. } => {
                    Some(region.to_string())
                }
                _ => None,
            })
            .collect();
        let mut faults: BTreeSet<String> =
            table.rejected().iter().map(ToString::to_string).collect();
        for region in regions {
            let found = config::judge(&table, &region);
            faults.extend(found.iter().map(ToString::to_string));
        }
        let faults: Vec<String> = faults.into_iter().collect();
        Ok(match faults.is_empty() {
            true => output::out(
                &format!("{} is good: {} objects", path.display(), table.len()),
                Exit::Done,
            ),
            false => output::out(&faults.join("\n"), Exit::Usage),
        })
    }
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

//! `mizan config edit`.

use super::{Config, pretty};
use crate::admin::table::{ChangeRequest, EditRequest};
use crate::cli::client::ClientError;
use crate::cli::output::{self, Exit};
use crate::cli::table::{explained, failed};
use crate::clock;
use crate::control::editor::{Edited, ObjectView};
use serde_json::Value;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

impl Config {
    /// Opens the object in an editor. Where somebody else was quicker and both versions fit in one, that one is put.
    pub(super) fn edit(&self, key: &str, why: &str) -> Result<Exit, ClientError> {
        let found = self
            .table(None)?
            .objects
            .into_iter()
            .find(|it| it.key == key);
        let (seen, before) = match found {
            Some(ObjectView {
                revision, document, ..
            }) => (revision, document),
            None => (0, serde_json::json!({"schema": mizan_routing::SCHEMA})),
        };
        let text = pretty(&before) + "\n";
        let (file, mut opened) = create(key)?;
        let keep =
            |error: std::io::Error| ClientError::Usage(format!("{}: {error}", file.display()));
        opened.write_all(text.as_bytes()).map_err(keep)?;
        drop(opened);
        let edited = open(&file);
        let left = std::fs::read_to_string(&file).map_err(keep)?;
        if left == text {
            let _ = std::fs::remove_file(&file);
            edited?;
            return Ok(output::out("nothing was changed", Exit::Done));
        }
        let read = || {
            serde_json::from_str(&left).map_err(|error| {
                let (line, column) = (error.line(), error.column());
                let place = format!("{}:{line}:{column}", file.display());
                ClientError::Usage(format!("{place}: this is no JSON: {error}"))
            })
        };
        let result = edited
            .and_then(|()| read())
            .and_then(|document| self.put_or_merge(key, document, seen, why));
        match result {
            Ok(edited) => {
                let _ = std::fs::remove_file(&file);
                Ok(self.told(&edited))
            }
            Err(error) => {
                let exit = failed(&error);
                output::err(&kept(key, &file, seen, &error));
                Ok(exit)
            }
        }
    }

    fn put_or_merge(
        &self,
        key: &str,
        document: Value,
        seen: u64,
        why: &str,
    ) -> Result<Edited, ClientError> {
        let mut request = EditRequest {
            changes: vec![ChangeRequest {
                key: key.to_owned(),
                document: Some(document),
                seen: Some(seen),
            }],
            why: why.to_owned(),
            force: false,
        };
        let client = self.place.client()?;
        loop {
            let error = match client.post_json("/v1/edits", &request) {
                Ok(edited) => return Ok(edited),
                Err(error) => error,
            };
            let ClientError::Refused { error: told, .. } = &error else {
                return Err(error);
            };
            let [conflict] = &told.edit.conflicts[..] else {
                return Err(error);
            };
            let Some(merged) = conflict.merged.clone() else {
                return Err(error);
            };
            if let Some(both) = explained(&error) {
                output::err(&format!("{both}\nboth fit in one document, which is put"));
            }
            request.changes[0].document = Some(merged);
            request.changes[0].seen = Some(conflict.found);
        }
    }
}

/// A new file that nobody else can read, or has put there.
fn create(key: &str) -> Result<(PathBuf, File), ClientError> {
    let name = format!(
        "mizan-{}-{:08x}.json",
        key.replace('/', "-"),
        clock::random() as u32
    );
    let path = std::env::temp_dir().join(name);
    let file = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path);
    let file = file
        .map_err(|error| ClientError::Usage(format!("{} cannot be made: {error}", path.display())));
    Ok((path, file?))
}

/// Where the text is that was not put, and how it can be put after all.
fn kept(key: &str, file: &Path, seen: u64, error: &ClientError) -> String {
    let found = match error {
        ClientError::Refused { error, .. } => error.edit.conflicts.first().map(|it| it.found),
        _ => None,
    };
    format!(
        "your text is in {file}; with what is told here in it:\n  mizan config put {key} {file} --if-rev {}",
        found.unwrap_or(seen),
        file = file.display(),
    )
}

fn open(file: &Path) -> Result<(), ClientError> {
    let named = ["VISUAL", "EDITOR"].into_iter().find_map(|name| {
        let value = std::env::var(name).ok()?;
        (!value.trim().is_empty()).then_some(value)
    });
    let editor = named.unwrap_or_else(|| "vi".to_owned());
    // As a shell would read it: `code --wait`.
    let status = Command::new("sh")
        .arg("-c")
        .arg(format!("{editor} \"$1\""))
        .arg("sh")
        .arg(file)
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(ClientError::Usage(format!(
            "{editor}: {status}; nothing was changed"
        ))),
        Err(error) => Err(ClientError::Usage(format!(
            "{editor} cannot be started: {error}"
        ))),
    }
}

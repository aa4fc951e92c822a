//! `mizan config history`, `rollback` and `watch`.

use super::Config;
use crate::admin::table::Reason;
use crate::cli::client::{ClientError, segment};
use crate::cli::output::{self, Exit};
use crate::cli::table::why;
use crate::control::editor::{EditView, Edited, ObjectView};
use crate::telemetry::json::time_string;
use serde_json::Value;
use std::time::Duration;

impl Config {
    pub(super) fn history(&self, key: Option<&str>, count: usize) -> Result<Exit, ClientError> {
        let of = key.map_or_else(String::new, |key| format!("&key={}", segment(key)));
        let path = format!("/v1/edits?count={count}{of}");
        let edits: Vec<EditView> = self.place.client()?.get(&path)?;
        if self.json {
            return Ok(output::json(&edits, Exit::Done));
        }
        if edits.is_empty() {
            return Ok(output::out("there was no edit yet", Exit::Done));
        }
        let shown: Vec<_> = edits.iter().map(describe).collect();
        Ok(output::out(&shown.join("\n"), Exit::Done))
    }

    pub(super) fn rollback(&self, edit: &str, why: &str, force: bool) -> Result<Exit, ClientError> {
        let reason = Reason {
            why: why.to_owned(),
            force,
        };
        let path = format!("/v1/edits/{}/rollback", segment(edit));
        let edited: Edited = self.place.client()?.post_json(&path, &reason)?;
        Ok(self.told(&edited))
    }

    /// Shows what happens, until the store or the reader goes away.
    pub(super) fn watch(&self) -> Result<Exit, ClientError> {
        let client = self.place.client()?;
        let mut exit = Exit::Done;
        client.events("/v1/events", |kind, data| {
            if kind == "lost" {
                output::err(&format!("mizan: {data}"));
                exit = Exit::Unreachable;
                return false;
            }
            let line = match (self.json, serde_json::from_str::<ObjectView>(data)) {
                (true, _) | (_, Err(_)) => data.to_owned(),
                (false, Ok(view)) => change(&view),
            };
            output::out(&line, Exit::Done) == Exit::Done
        })?;
        Ok(exit)
    }
}

fn change(view: &ObjectView) -> String {
    match &view.document {
        Value::Null => format!("{} {} is gone", view.revision, view.key),
        document => format!("{} {} {document}", view.revision, view.key),
    }
}

fn describe(edit: &EditView) -> String {
    let at = time_string(Duration::from_millis(edit.at_ms));
    let mut text = format!(
        "edit {} (revision {}), {at}, {}: {}",
        edit.edit,
        edit.revision,
        edit.author,
        why(&edit.why)
    );
    for changed in &edit.changes {
        let (before, after) = (changed.before.as_ref(), changed.after.as_ref());
        text += &match (before, after) {
            (None, Some(after)) => format!("\n  + {} {after}", changed.key),
            (Some(before), None) => format!("\n  - {} {before}", changed.key),
            _ => fields(&changed.key, before, after),
        };
    }
    text
}

/// The fields that differ.
fn fields(key: &str, before: Option<&Value>, after: Option<&Value>) -> String {
    let show = |value: &Option<Value>| match value {
        Some(value) => value.to_string(),
        None => "nothing".to_owned(),
    };
    let diffs = mizan_routing::edit::three_way(before, before, after);
    let mut text = format!("\n  ~ {key}");
    for diff in diffs {
        let field = diff.path.join(".");
        text += &format!(
            "\n      {field}: {} → {}",
            show(&diff.base),
            show(&diff.ours)
        );
    }
    text
}

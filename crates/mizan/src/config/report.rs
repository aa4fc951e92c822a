//! Collects diagnostics, so that a reader gets all of them at once.

use super::Source;
use super::diagnostic::{Diagnostic, Severity};
use super::load::{Content, SystemRoots};
use super::suggest;
use super::text::did_you_mean;
use super::tree::{At, Node, Place, Step, Value};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// Diagnostics kept; of more, only the count is told.
const DIAGNOSTICS_MAX: usize = 500;

/// Names looked at, over all suggestions of a run: a table of 20,000 objects must not make errors slow.
const SUGGESTION_WORK_MAX: usize = 1_000_000;

/// What was found so far.
pub(super) struct Report<'a> {
    pub(super) sources: &'a [Source],
    pub(super) found: Vec<Diagnostic>,
    /// How many of `found` are errors: each kind has its own room, so that no warning keeps an error out.
    errors: usize,
    /// Not kept: errors, and warnings.
    left_out: [usize; 2],
    suggestion_work: usize,
}

impl<'a> Report<'a> {
    pub(super) fn new(sources: &'a [Source], found: Vec<Diagnostic>) -> Self {
        let errors = found.iter().filter(|it| it.severity == Severity::Error);
        Self {
            sources,
            errors: errors.count(),
            found,
            left_out: [0; 2],
            suggestion_work: 0,
        }
    }

    /// Adds a diagnostic on `place`.
    pub(super) fn push(
        &mut self,
        place: &Place,
        path: String,
        severity: Severity,
        code: &'static str,
        message: String,
        help: Option<String>,
    ) {
        let is_error = severity == Severity::Error;
        let kept = match is_error {
            true => self.errors,
            false => self.found.len() - self.errors,
        };
        if kept >= DIAGNOSTICS_MAX {
            self.left_out[usize::from(!is_error)] += 1;
            return;
        }
        let Some(source) = self.sources.get(place.file) else {
            return;
        };
        // What stands in an object is told by its path there.
        let path = match source.object {
            None => path,
            Some(_) => within_object(&path).to_owned(),
        };
        self.errors += usize::from(is_error);
        let span = first_line(&source.text, place);
        let diagnostic = Diagnostic::new(source, span, severity, code, message);
        self.found.push(Diagnostic {
            path,
            help,
            ..diagnostic
        });
    }

    /// Whether it stands in an object of the store.
    pub(super) fn is_stored(&self, place: &Place) -> bool {
        let source = self.sources.get(place.file);
        source.is_some_and(|source| source.object.is_some())
    }

    /// Whether something refuses the configuration.
    pub(super) fn has_errors(&self) -> bool {
        self.found
            .iter()
            .any(|diagnostic| diagnostic.severity == Severity::Error)
    }

    /// Everything, in the order of the files.
    pub(super) fn finish(mut self) -> Vec<Diagnostic> {
        if self.found.is_empty() {
            return self.found;
        }
        // A table's objects are files here, thousands of them.
        let paths = self.sources.iter().enumerate().rev();
        let index: HashMap<&Path, usize> = paths.map(|(at, source)| (&*source.path, at)).collect();
        self.found.sort_by_cached_key(|diagnostic| {
            let file = index.get(&*diagnostic.file).copied();
            (file, diagnostic.span.start, diagnostic.span.end)
        });
        let kinds = [(Severity::Error, "errors"), (Severity::Warning, "warnings")];
        for ((severity, what), count) in kinds.into_iter().zip(self.left_out) {
            if let (true, Some(source)) = (count > 0, self.sources.first()) {
                let message = format!("{count} more {what} are not shown");
                let diagnostic = Diagnostic::new(source, 0..0, severity, "too_many", message);
                self.found.push(diagnostic);
            }
        }
        self.found
    }

    /// `message; did you mean NEAREST?` as long as there is time for it.
    pub(super) fn suggest<'n>(
        &mut self,
        message: String,
        text: &str,
        known: impl ExactSizeIterator<Item = &'n str>,
    ) -> String {
        self.suggestion_work += known.len();
        if self.suggestion_work > SUGGESTION_WORK_MAX {
            return message;
        }
        did_you_mean(message, suggest::nearest(text, known))
    }
}

/// `health.interval` of `pool.kpop.health.interval`: the key of the object says the rest.
fn within_object(path: &str) -> &str {
    let (kind, rest) = path.split_once(['.', '[']).unwrap_or((path, ""));
    match kind {
        "route" => rest.split_once('.').map_or("", |(_, field)| field),
        "pool" | "chain" => {
            // A quoted name may have dots.
            let quoted = rest.strip_prefix('"').and_then(|rest| rest.split_once('"'));
            let field = quoted.map_or(rest, |(_, field)| field);
            let field = match quoted {
                Some(_) => field.strip_prefix('.').unwrap_or(field),
                None => field.split_once('.').map_or("", |(_, field)| field),
            };
            match field.strip_prefix("backends[") {
                Some(backend) => backend.split_once("].").map_or("", |(_, field)| field),
                None => field,
            }
        }
        _ => path,
    }
}

/// What is marked ends with the line it begins on.
fn first_line(text: &str, place: &Place) -> std::ops::Range<usize> {
    let span = place.span();
    let end = text
        .get(span.clone())
        .and_then(|marked| marked.find(['\n', '\r']))
        .map_or(span.end, |at| span.start + at);
    span.start..end
}

/// The report together with the tree that knows the places.
pub(super) struct Cx<'a> {
    pub(super) tree: &'a Node,
    pub(super) report: Report<'a>,
}

impl Cx<'_> {
    /// An error on what `at` leads to.
    pub(super) fn error(&mut self, at: &At<'_>, code: &'static str, message: impl Into<String>) {
        self.tell(&at.steps(), Severity::Error, code, message.into(), None);
    }

    /// An error that says what to do.
    pub(super) fn error_with(
        &mut self,
        at: &At<'_>,
        code: &'static str,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.tell(
            &at.steps(),
            Severity::Error,
            code,
            message.into(),
            Some(help.into()),
        );
    }

    /// An error on the key itself, where the value is not to blame.
    pub(super) fn error_on_key(
        &mut self,
        at: &At<'_>,
        code: &'static str,
        message: impl Into<String>,
    ) {
        let steps = at.steps();
        let path = self.tree.locate(&steps).path;
        let place = self
            .tree
            .key_place(&steps)
            .unwrap_or_else(|| self.place(at));
        self.report
            .push(&place, path, Severity::Error, code, message.into(), None);
    }

    /// A warning that says what to do.
    pub(super) fn warn(
        &mut self,
        at: &At<'_>,
        code: &'static str,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.tell(
            &at.steps(),
            Severity::Warning,
            code,
            message.into(),
            Some(help.into()),
        );
    }

    /// An error or a warning on what `steps` lead to.
    pub(super) fn tell(
        &mut self,
        steps: &[Step<'_>],
        severity: Severity,
        code: &'static str,
        message: String,
        help: Option<String>,
    ) {
        let located = self.tree.locate(steps);
        self.report
            .push(&located.place, located.path, severity, code, message, help);
    }

    /// Whether the file has it, right or wrong: what is wrong was reported already.
    pub(super) fn is_set(&self, at: &At<'_>) -> bool {
        self.tree.find(&at.steps()).is_some()
    }

    /// Whether something in that table was refused, so that what is missing may be what was refused.
    pub(super) fn is_partial(&self, at: &At<'_>) -> bool {
        match self.tree.find(&at.steps()).map(|node| &node.value) {
            Some(Value::Table(table)) => table.values().any(|entry| entry.node.refused),
            _ => false,
        }
    }

    /// Whether the file was refused that value.
    pub(super) fn is_refused(&self, at: &At<'_>) -> bool {
        self.tree.find(&at.steps()).is_some_and(|node| node.refused)
    }

    /// Whether a table of that name stands under a key that was refused as unknown: `[pools.NAME]`.
    pub(super) fn is_under_slip(&self, name: &str) -> bool {
        let Value::Table(root) = &self.tree.value else {
            return false;
        };
        root.values().any(|entry| match &entry.node.value {
            Value::Table(table) => entry.node.refused && table.contains_key(name),
            _ => false,
        })
    }

    /// Length of a list as the file has it, refused elements included.
    pub(super) fn list_len(&self, at: &At<'_>) -> Option<usize> {
        match &self.tree.find(&at.steps())?.value {
            Value::Array(list) => Some(list.items.len()),
            _ => None,
        }
    }

    /// Whether the string there holds something from outside the file: `${NAME}` or `file:`.
    pub(super) fn is_put_in(&self, at: &At<'_>) -> bool {
        let Some(node) = self.tree.find(&at.steps()) else {
            return false;
        };
        let source = self.report.sources.get(node.place.file);
        source.is_some_and(|source| source.values.contains_key(&node.place.start))
    }

    /// The content of the file that the string there names, `None` if it is not at hand: which is told, if it was not
    /// told before.
    pub(super) fn content(&mut self, at: &At<'_>) -> Option<Content> {
        let node = self.tree.find(&at.steps())?;
        let Value::String(_) = node.value else {
            return None;
        };
        let source = self.report.sources.get(node.place.file)?;
        match source.contents.get(&node.place.start) {
            Some(content) => content.clone(),
            None => {
                let message = match self.is_stored(at) {
                    true => "what the store says can name no file of the machines that read it",
                    false => "this file was not read",
                };
                self.error(at, "unreadable", message);
                None
            }
        }
    }

    /// The system's root certificates, if they were read.
    pub(super) fn system_roots(&self) -> Option<Arc<SystemRoots>> {
        self.report.sources.first()?.system_roots.clone()
    }

    /// Ticket keys that the store has under `name`.
    pub(super) fn ticket_keys(&self, name: &str) -> Option<bytes::Bytes> {
        let main = self.report.sources.first()?;
        main.ticket_keys.get(name).cloned()
    }

    /// Whether pools may come from a store.
    pub(super) fn has_store(&self, file: &super::schema::File) -> bool {
        let has_one = |main: &Source| main.has_store;
        file.store.address.is_some() || self.report.sources.first().is_some_and(has_one)
    }

    /// Whether what `at` leads to is an object of the store.
    pub(super) fn is_stored(&self, at: &At<'_>) -> bool {
        self.report.is_stored(&self.place(at))
    }

    /// When the files were read, in seconds since 1970.
    pub(super) fn read_at(&self) -> i64 {
        let read_at = self.report.sources.first().map(|main| main.read_at);
        read_at.map_or(0, |at| i64::try_from(at.as_secs()).unwrap_or(i64::MAX))
    }

    /// The place of what `at` leads to.
    pub(super) fn place(&self, at: &At<'_>) -> Place {
        self.tree.place(&at.steps())
    }

    /// `lb.toml:12`.
    pub(super) fn shown(&self, place: &Place) -> String {
        super::tree::shown(self.report.sources, place)
    }
}

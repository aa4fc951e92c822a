//! What is wrong with a configuration, where, and what was meant.

use super::{STORED, Source};
use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use serde::Serialize;
use std::ops::Range;
use std::path::PathBuf;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The configuration is refused.
    Error,
    /// It comes into force, but likely does not do what was meant.
    Warning,
}

/// One error or warning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// Error or warning.
    pub severity: Severity,
    /// A stable word for its kind, such as `unknown_key`.
    pub code: &'static str,
    /// The file it is in.
    pub file: PathBuf,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The marked text: bytes of the file's text.
    pub span: Range<usize>,
    /// The key it is about, such as `pool.api.backends[2].weight`; empty for the whole file.
    pub path: String,
    /// What is wrong, and what was meant.
    pub message: String,
    /// Why it is so, or what to do.
    pub help: Option<String>,
}

impl Diagnostic {
    /// A diagnostic on `span` of `source`.
    pub(super) fn new(
        source: &Source,
        span: Range<usize>,
        severity: Severity,
        code: &'static str,
        message: String,
    ) -> Self {
        let span = within(&source.text, span);
        let (line, column) = position(&source.text, span.start);
        let (file, path, help) = (source.path.clone(), String::new(), None);
        Self {
            severity,
            code,
            file,
            line,
            column,
            span,
            path,
            message,
            help,
        }
    }

    /// A diagnostic on a file whose text is not at hand.
    pub(super) fn unreadable(file: PathBuf, message: String) -> Self {
        let (severity, code, path, help) = (Severity::Error, "unreadable", String::new(), None);
        Self {
            severity,
            code,
            file,
            line: 1,
            column: 1,
            span: 0..0,
            path,
            message,
            help,
        }
    }

    /// Draws it with its source line and the marked text, without colour. An admin token that stands
    /// in the file is not shown.
    pub fn render(&self, sources: &[Source]) -> String {
        let level = match self.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let file = self.file.display().to_string();
        let source = sources.iter().find(|source| source.path == self.file);
        let Some(source) = source.filter(|source| source.object.is_none()) else {
            let help = self
                .help
                .as_ref()
                .map(|help| format!("\n  = help: {help}"))
                .unwrap_or_default();
            let severity = if self.severity == Severity::Error {
                "error"
            } else {
                "warning"
            };
            let within = match (source, &*self.path) {
                (Some(_), path) if !path.is_empty() => format!(" ({path})"),
                _ => String::new(),
            };
            return format!(
                "{severity}[{}]: {}\n  --> {file}{within}{help}",
                self.code, self.message
            );
        };
        let (line, start) = shown_line(&source.text, self.span.start);
        // The text may have changed since: whatever the span, something inside the line is marked.
        let inside = |at: usize| at.clamp(start, start + line.len()) - start;
        let marked = within(&line, inside(self.span.start)..inside(self.span.end));
        let snippet = Snippet::source(line)
            .line_start(self.line)
            .path(file)
            .annotation(AnnotationKind::Primary.span(marked));
        let mut group = level
            .primary_title(&self.message)
            .id(self.code)
            .element(snippet);
        if let Some(help) = &self.help {
            group = group.element(Level::HELP.message(help));
        }
        Renderer::plain().render(&[group])
    }
}

/// One line: `lb.toml:3:5: error: unknown key ...`.
impl std::fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let file = self.file.display();
        let (line, column) = (self.line, self.column);
        match self
            .file
            .to_str()
            .and_then(|file| file.strip_prefix(STORED))
        {
            // An object is small, and its path says more than a line.
            Some(_) if self.path.is_empty() => write!(f, "{file}: {severity}: {}", self.message),
            Some(_) => write!(f, "{file}: {}: {severity}: {}", self.path, self.message),
            None => write!(f, "{file}:{line}:{column}: {severity}: {}", self.message),
        }
    }
}

/// `span`, moved onto character boundaries inside `text`.
fn within(text: &str, span: Range<usize>) -> Range<usize> {
    let start = text.floor_char_boundary(span.start.min(text.len()));
    let end = text.ceil_char_boundary(span.end.clamp(start, text.len()));
    start..end
}

/// Line and column (in characters) of a byte, both from 1.
fn position(text: &str, at: usize) -> (usize, usize) {
    let before = &text[..at];
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    (
        before.matches('\n').count() + 1,
        before[line_start..].chars().count() + 1,
    )
}

/// The line that byte `at` stands on, and its first byte. An admin token in it is replaced by `*`, byte
/// for byte, so that spans still hold.
fn shown_line(text: &str, at: usize) -> (String, usize) {
    let at = text.floor_char_boundary(at.min(text.len()));
    let start = text[..at].rfind('\n').map_or(0, |at| at + 1);
    let end = text[at..].find('\n').map_or(text.len(), |end| at + end);
    let mut line = text[start..end].to_owned();
    if line.contains("token") {
        for span in super::tree::token_spans(text) {
            let (from, to) = (span.start.max(start), span.end.min(end));
            if from < to {
                line.replace_range(from - start..to - start, &"*".repeat(to - from));
            }
        }
    }
    (line, start)
}

//! Reads the main file, its includes, `${NAME}` from the environment, `file:` values, and the files that TLS needs.
//!
//! What goes wrong behind the main file is kept with the source, so that [`super::compile`] tells it
//! together with everything else.

mod contents;
mod system;

pub(super) use contents::Content;
pub(super) use system::SystemRoots;

use super::diagnostic::{Diagnostic, Severity};
use super::{Source, tree};
use crate::clock;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Largest configuration file, and largest file behind a `file:` value, in bytes.
const FILE_BYTES_MAX: u64 = 8 << 20;

/// Most included files.
const INCLUDES_MAX: usize = 1000;

/// Reads `path` and its includes; `${NAME}` comes from the environment.
///
/// # Errors
/// The main file cannot be read. Everything else is told by [`super::compile`].
pub fn load(path: &Path) -> Result<Vec<Source>, Vec<Diagnostic>> {
    load_with(path, &|name| std::env::var(name).ok())
}

/// [`load`] with another environment.
///
/// # Errors
/// See [`load`].
pub fn load_with(
    path: &Path,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<Source>, Vec<Diagnostic>> {
    let text = read_text(path).map_err(|error| {
        vec![Diagnostic::unreadable(
            path.to_owned(),
            format!("the configuration cannot be read: {error}"),
        )]
    })?;
    let mut main = Source::new(path, text);
    main.admin_socket = Some(default_admin_socket_with(env));
    let included = includes(&mut main, env);
    let mut sources = vec![main];
    for (path, place) in included {
        match read_text(&path) {
            Ok(text) => sources.push(Source::new(path, text)),
            Err(error) => {
                let message = format!("`{}` cannot be read: {error}", path.display());
                problem(&mut sources[0], place, "unreadable", message);
            }
        }
    }
    for source in &mut sources {
        put_in(source, env);
        source.read_at = clock::wall();
    }
    let mut texts = sources.iter().map(|source| source.text.as_str());
    if texts.any(system::wants_system_roots) {
        sources[0].system_roots = Some(Arc::new(SystemRoots::read()));
    }
    Ok(sources)
}

/// The admin socket where none is set: `/run/mizan/admin.sock`, or `$XDG_RUNTIME_DIR/mizan/admin.sock`
/// where `/run/mizan` is not there.
pub fn default_admin_socket() -> PathBuf {
    default_admin_socket_with(&|name| std::env::var(name).ok())
}

fn default_admin_socket_with(env: &dyn Fn(&str) -> Option<String>) -> PathBuf {
    let system = Path::new("/run/mizan");
    let own = env("XDG_RUNTIME_DIR").filter(|folder| folder.starts_with('/'));
    let folder = match own {
        Some(folder) if !system.is_dir() => Path::new(&folder).join("mizan"),
        _ => system.to_owned(),
    };
    folder.join("admin.sock")
}

/// The files that a configuration is made of, and how they were when last looked at.
///
/// A look costs a `stat` for each of them. They are read only after a change, to learn which files belong:
/// reading a large configuration ten times a second would cost more than ten thousand probes.
#[derive(Debug)]
pub struct Watch {
    main: PathBuf,
    /// The main file, include folders, included files, those behind `file:` values, certificates and keys.
    paths: Vec<PathBuf>,
    seen: u64,
}

impl Watch {
    /// Watches the configuration whose main file is `path`.
    pub fn new(path: &Path) -> Self {
        let mut watch = Self {
            main: path.to_owned(),
            paths: Vec::new(),
            seen: 0,
        };
        watch.look_anew();
        watch
    }

    /// Whether one of the files has changed since the last call.
    pub fn changed(&mut self) -> bool {
        if signature(&self.paths) == self.seen {
            return false;
        }
        self.look_anew();
        true
    }

    fn look_anew(&mut self) {
        self.paths = paths(&self.main);
        self.seen = signature(&self.paths);
    }
}

/// A number that changes when one of the files does.
fn signature(paths: &[PathBuf]) -> u64 {
    let mut hash = Fnv::default();
    for path in paths {
        hash.file(path);
    }
    hash.0
}

/// A number that changes when the file at `path` does, or another one takes its place. Blocks.
pub fn file_signature(path: &Path) -> u64 {
    let mut hash = Fnv::default();
    hash.file(path);
    hash.0
}

fn paths(main: &Path) -> Vec<PathBuf> {
    let mut paths = vec![main.to_owned()];
    let Ok(text) = read_text(main) else {
        return paths;
    };
    let source = Source::new(main, text);
    let patterns = include_patterns(&source.text);
    let mut sources = vec![source];
    for (_, pattern) in patterns {
        let pattern = with_variables(&pattern, &|name| std::env::var(name).ok()).unwrap_or(pattern);
        let pattern = beside(main, pattern);
        paths.extend(pattern.parent().map(Path::to_owned));
        for included in matches(&pattern).unwrap_or_default() {
            if let Ok(text) = read_text(&included) {
                sources.push(Source::new(&included, text));
            }
            paths.push(included);
        }
    }
    for source in &sources {
        for (_, keys, value) in tree::strings(&source.text) {
            // In the order in which the loader puts them in: a variable may hold `file:`, and a path variables.
            let value = with_variables(&value, &|name| std::env::var(name).ok()).unwrap_or(value);
            if let Some(file) = file_value(&keys, &value) {
                paths.push(beside(&source.path, file));
            }
            if let Some(file) = contents::named_file(&keys, &value) {
                paths.push(beside(&source.path, file));
            }
        }
    }
    paths
}

/// 64-bit FNV-1a: changes are told apart, nobody is kept out by it.
pub(super) struct Fnv(pub(super) u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    /// Which file it is, when it was changed, and how long it is.
    fn file(&mut self, path: &Path) {
        self.bytes(path.as_os_str().as_encoded_bytes());
        let Ok(meta) = fs::metadata(path) else {
            return self.bytes(b"-");
        };
        for number in [meta.dev(), meta.ino(), meta.size()] {
            self.bytes(&number.to_le_bytes());
        }
        for number in [
            meta.mtime(),
            meta.mtime_nsec(),
            meta.ctime(),
            meta.ctime_nsec(),
        ] {
            self.bytes(&number.to_le_bytes());
        }
    }
}

pub(super) fn read_text(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    fs::File::open(path)?
        .take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other("it is larger than 8 MiB"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = valid.iter().filter(|byte| **byte == b'\n').count() + 1;
        io::Error::other(format!("it is not UTF-8 (line {line})"))
    })
}

fn problem(source: &mut Source, span: Range<usize>, code: &'static str, message: String) {
    let diagnostic = Diagnostic::new(source, span, Severity::Error, code, message);
    source.problems.push(diagnostic);
}

/// `file`, relative to the folder of `source`.
pub(super) fn beside(source: &Path, file: impl AsRef<Path>) -> PathBuf {
    source.parent().unwrap_or(Path::new("")).join(file)
}

fn include_patterns(text: &str) -> Vec<(Range<usize>, String)> {
    let strings = tree::strings(text).into_iter();
    strings
        .filter(|(_, keys, _)| keys.len() == 1 && keys[0] == "include")
        .map(|(span, _, pattern)| (span, pattern))
        .collect()
}

/// The included files, each once, with the place that asks for them.
fn includes(
    main: &mut Source,
    env: &dyn Fn(&str) -> Option<String>,
) -> Vec<(PathBuf, Range<usize>)> {
    let mut out: Vec<(PathBuf, Range<usize>)> = Vec::new();
    for (span, pattern) in include_patterns(&main.text) {
        // A variable that is not set is told when all strings are looked at.
        let Ok(pattern) = with_variables(&pattern, env) else {
            continue;
        };
        let found = match matches(&beside(&main.path, &pattern)) {
            Ok(found) => found,
            Err(message) => {
                problem(main, span, "unreadable", message);
                continue;
            }
        };
        if let [only] = found.as_slice()
            && !pattern.contains('*')
            && is_same_file(only, &main.path)
        {
            let message = "this is the file itself; an include names others".to_owned();
            problem(main, span, "bad_value", message);
            continue;
        }
        for path in found {
            if !is_same_file(&path, &main.path) && !out.iter().any(|(known, _)| *known == path) {
                out.push((path, span.clone()));
            }
        }
        if out.len() > INCLUDES_MAX {
            problem(
                main,
                span,
                "out_of_range",
                format!("more than {INCLUDES_MAX} files are included"),
            );
            out.truncate(INCLUDES_MAX);
        }
    }
    out
}

/// Whether two paths lead to one file, by links or by `..`.
fn is_same_file(one: &Path, other: &Path) -> bool {
    one == other
        || fs::canonicalize(one)
            .and_then(|one| Ok(one == fs::canonicalize(other)?))
            .unwrap_or(false)
}

/// The files of a pattern whose last part may hold `*`, by name. A pattern without `*` must exist; one
/// with it may match nothing, and does not match hidden files.
fn matches(pattern: &Path) -> Result<Vec<PathBuf>, String> {
    let name = pattern
        .file_name()
        .and_then(OsStr::to_str)
        .unwrap_or_default();
    let folder = pattern
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    if folder.to_string_lossy().contains('*') {
        return Err(
            "`*` may stand in the last part of an include only, as in `conf.d/*.toml`".to_owned(),
        );
    }
    if !name.contains('*') {
        let missing = || format!("`{}` is not there", pattern.display());
        return if pattern.is_file() {
            Ok(vec![pattern.to_owned()])
        } else {
            Err(missing())
        };
    }
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(format!("`{}` cannot be read: {error}", folder.display())),
    };
    let fits = |path: &PathBuf| {
        let name_of = path.file_name().and_then(OsStr::to_str);
        name_of.is_some_and(|found| {
            glob(name, found) && (name.starts_with('.') || !found.starts_with('.'))
        }) && path.is_file()
    };
    let mut found: Vec<PathBuf> = entries
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .filter(fits)
        .collect();
    if pattern
        .parent()
        .is_some_and(|folder| folder.as_os_str().is_empty())
    {
        found = found
            .iter()
            .filter_map(|path| path.file_name().map(PathBuf::from))
            .collect();
    }
    found.sort();
    Ok(found)
}

/// Whether `name` fits `pattern`, in which `*` stands for any characters, or none.
fn glob(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else {
        return false;
    };
    let Some(last) = parts.next_back() else {
        return rest.is_empty();
    };
    for part in parts {
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// Puts `${NAME}` and `file:` values in.
fn put_in(source: &mut Source, env: &dyn Fn(&str) -> Option<String>) {
    for (span, keys, text) in tree::strings(&source.text) {
        let mut value = None;
        if text.contains("${") {
            match with_variables(&text, env) {
                Ok(text) => value = Some(text),
                Err(Variable {
                    shown,
                    code,
                    message,
                }) => {
                    let raw = source.text[span.clone()]
                        .find(&shown)
                        .map(|at| span.start + at);
                    let place = raw.map_or(span.clone(), |start| start..start + shown.len());
                    problem(source, place, code, message);
                    source.values.insert(span.start, None);
                    continue;
                }
            }
        }
        if let Some(file) = file_value(&keys, value.as_deref().unwrap_or(&text)) {
            let path = beside(&source.path, file);
            match read_text(&path) {
                Ok(text) if keys.last().is_some_and(|key| key == "token") => {
                    value = Some(text.trim_end().to_owned())
                }
                Ok(text) => value = Some(text),
                Err(error) => {
                    problem(
                        source,
                        span.clone(),
                        "unreadable",
                        format!("`{}` cannot be read: {error}", path.display()),
                    );
                    source.values.insert(span.start, None);
                    continue;
                }
            }
        }
        if let Some(file) = contents::named_file(&keys, value.as_deref().unwrap_or(&text)) {
            let content = Content::read(beside(&source.path, file));
            let content = content.map_err(|message| {
                problem(source, span.clone(), "unreadable", message);
            });
            source.contents.insert(span.start, content.ok());
        }
        if let Some(value) = value {
            source.values.insert(span.start, Some(value));
        }
    }
}

/// The file of a `file:` value, if `keys` lead to a string that may be one.
fn file_value<'a>(keys: &[String], value: &'a str) -> Option<&'a str> {
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let takes_file = matches!(
        keys.as_slice(),
        ["admin", "token"]
            | ["route", "respond", "body"]
            | ["route", "error_pages", _]
            | ["route", "error_pages", _, "body"]
    );
    value.strip_prefix("file:").filter(|_| takes_file)
}

/// A `${…}` that cannot be put in.
struct Variable {
    /// As it stands in the string.
    shown: String,
    code: &'static str,
    message: String,
}

/// `text` with `${NAME}` replaced; `$${` becomes `${`. `${1}` is left alone: groups of a regex.
fn with_variables(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<String, Variable> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, open) = rest.split_at(at);
        if let Some(before) = before.strip_suffix('$') {
            out.push_str(before);
            out.push_str("${");
            rest = &open[2..];
            continue;
        }
        out.push_str(before);
        let Some(end) = open.find('}') else {
            let message = "`${` is not closed; write `$${` for one that is meant".to_owned();
            return Err(Variable {
                shown: open.to_owned(),
                code: "bad_value",
                message,
            });
        };
        let (shown, tail) = open.split_at(end + 1);
        let name = &shown[2..end];
        out.push_str(&variable(name, shown, env)?);
        rest = tail;
    }
    out.push_str(rest);
    Ok(out)
}

fn variable(
    name: &str,
    shown: &str,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<String, Variable> {
    if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(shown.to_owned());
    }
    let is_name = name.bytes().enumerate().all(|(at, byte)| {
        byte == b'_' || byte.is_ascii_alphabetic() || (at > 0 && byte.is_ascii_digit())
    });
    if name.is_empty() || !is_name {
        let message = format!(
            "`{name}` is no name of an environment variable; write `$${{` for a `${{` that is meant"
        );
        return Err(Variable {
            shown: shown.to_owned(),
            code: "bad_value",
            message,
        });
    }
    env(name).ok_or_else(|| {
        let message = format!("the environment variable `{name}` is not set");
        Variable {
            shown: shown.to_owned(),
            code: "unset_variable",
            message,
        }
    })
}

#[cfg(test)]
mod tests;

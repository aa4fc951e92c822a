//! The rules, each a function from a file to what offends against it.

use super::source::Source;
use std::ops::Range;

/// Where, and what is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Offence {
    pub(crate) path: String,
    pub(crate) line: usize,
    pub(crate) what: String,
}

impl Offence {
    fn new(source: &Source, line: usize, what: impl Into<String>) -> Self {
        Self {
            path: source.path.clone(),
            line,
            what: what.into(),
        }
    }
}

impl std::fmt::Display for Offence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// Which top-level module of the product may name which; itself and the leaves go without saying.
pub(crate) const MAY_NAME: &[(&str, &[&str])] = &[
    // With `--store` a command stands in for an instance: it opens the store, and answers itself by the admin API's paths.
    (
        "cli",
        &["admin", "app", "config", "control", "lab", "snapshot"],
    ),
    ("lab", &["app", "config", "snapshot"]),
    (
        "app",
        &["admin", "config", "control", "prober", "proxy", "snapshot"],
    ),
    ("admin", &["config", "control", "snapshot"]),
    ("control", &["config", "snapshot", "store"]),
    ("config", &["snapshot", "store"]),
    ("proxy", &["snapshot"]),
    ("prober", &["snapshot"]),
    ("store", &[]),
    ("telemetry", &["snapshot"]),
    ("snapshot", &[]),
    ("certificate", &[]),
    ("client_hello", &[]),
    ("clock", &[]),
    ("h1", &[]),
    ("lack", &[]),
    ("orca", &[]),
    ("proxy_protocol", &[]),
    ("websocket", &[]),
];

/// Modules that any module may name, `snapshot` and the leaves themselves apart.
pub(crate) const LEAVES: &[&str] = &[
    "certificate",
    "client_hello",
    "clock",
    "h1",
    "lack",
    "orca",
    "proxy_protocol",
    "telemetry",
    "websocket",
];

pub(crate) const FILE_LINES_MAX: usize = 600;
pub(crate) const FUNCTION_LINES_MAX: usize = 70;

/// Words that have another name in `docs/lexicon.md`, or none at all because they name nothing.
const BANNED_WORDS: &[&str] = &[
    "attempt",
    "cluster",
    "endpoint",
    "frontend",
    "helper",
    "manager",
    "misc",
    "scheduler",
    "selector",
    "strategy",
    "util",
    "utils",
];

/// Whether `module` may name `other`.
fn may_name(module: &str, other: &str) -> bool {
    let bare = [
        "certificate",
        "client_hello",
        "clock",
        "h1",
        "lack",
        "orca",
        "proxy_protocol",
        "snapshot",
        "websocket",
    ]
    .contains(&module);
    let leaf = LEAVES.contains(&other) && !bare && !(module == "telemetry" && other != "clock");
    let listed = MAY_NAME
        .iter()
        .any(|(from, to)| *from == module && to.contains(&other));
    module == other || leaf || listed
}

/// Paths that go from one top-level module to another against [`MAY_NAME`]. For files in `crates/mizan/src`.
pub(crate) fn directions(source: &Source) -> Vec<Offence> {
    let inside = source
        .path
        .strip_prefix("crates/mizan/src/")
        .unwrap_or(&source.path);
    let parts: Vec<&str> = inside.trim_end_matches(".rs").split('/').collect();
    let module = parts[0];
    let depth = if module == "lib" { 0 } else { parts.len() };
    let mut offences = Vec::new();
    for (line, other) in root_paths(source, depth) {
        let allowed = match module {
            "lib" => true,
            "main" => other == "cli",
            _ => may_name(module, &other),
        };
        if !allowed {
            offences.push(Offence::new(
                source,
                line,
                format!("`{module}` may not name `{other}`"),
            ));
        }
    }
    let simulator = source.tokens.iter().find(|token| token.text == "mizan_sim");
    if let Some(token) = simulator.filter(|_| module != "cli") {
        offences.push(Offence::new(
            source,
            token.line,
            "only `cli` may name the simulator",
        ));
    }
    offences
}

/// Every (line, top-level module) that a path of this file begins at, be it by `crate::`, `mizan::` (in
/// `main.rs`) or enough `super::`. `depth` is the file's own: 1 for `src/x.rs`, 2 for `src/x/y.rs`.
fn root_paths(source: &Source, depth: usize) -> Vec<(usize, String)> {
    let tokens = &source.tokens;
    let mut inline = Vec::new(); // brace depths at which an inline `mod x {` opened
    let mut braces = 0usize;
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        match tokens[at].text.as_str() {
            "{" => {
                braces += 1;
                if at >= 2 && tokens[at - 2].text == "mod" {
                    inline.push(braces);
                }
            }
            "}" => {
                inline.pop_if(|opened| *opened == braces);
                braces = braces.saturating_sub(1);
            }
            "crate" | "mizan" if source.reads(at + 1, &["::"]) => {
                found.extend(first_names(source, at + 2))
            }
            "super" => {
                let from = at;
                while source.reads(at + 1, &["::", "super"]) {
                    at += 2;
                }
                let climbed = (at - from) / 2 + 1;
                if climbed >= depth + inline.len() && source.reads(at + 1, &["::"]) {
                    found.extend(first_names(source, at + 2));
                }
            }
            _ => {}
        }
        at += 1;
    }
    found
}

/// The first name of the path at `at`, or of each path in the group `{a::X, b}` there.
fn first_names(source: &Source, at: usize) -> Vec<(usize, String)> {
    let tokens = &source.tokens;
    let Some(token) = tokens.get(at) else {
        return Vec::new();
    };
    if token.text != "{" {
        return vec![(token.line, token.text.clone())];
    }
    let end = source.close(at);
    let mut names = Vec::new();
    let mut depth = 0usize;
    for at in at..end {
        match tokens[at].text.as_str() {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ if depth == 1 && ["{", ","].contains(&tokens[at - 1].text.as_str()) => {
                names.push((tokens[at].line, tokens[at].text.clone()));
            }
            _ => {}
        }
    }
    names
}

/// Files that are too long to be about one thing, and `mod.rs`.
pub(crate) fn files(source: &Source) -> Vec<Offence> {
    let mut offences = Vec::new();
    let lines = source.text.lines().count();
    if lines > FILE_LINES_MAX {
        offences.push(Offence::new(
            source,
            lines,
            format!("{lines} lines: more than {FILE_LINES_MAX}"),
        ));
    }
    if source.path.ends_with("/mod.rs") {
        offences.push(Offence::new(
            source,
            1,
            "write `x.rs` beside the folder `x/`, not `x/mod.rs`",
        ));
    }
    offences
}

/// Functions whose body has more than [`FUNCTION_LINES_MAX`] lines of code (blank ones and comments apart).
pub(crate) fn functions(source: &Source) -> Vec<Offence> {
    let tokens = &source.tokens;
    let mut offences = Vec::new();
    for at in (0..tokens.len().saturating_sub(1)).filter(|&at| tokens[at].text == "fn") {
        if !tokens[at + 1]
            .text
            .starts_with(|c: char| c.is_alphabetic() || c == '_')
        {
            continue; // a function pointer's type
        }
        let Some(body) = function_body(source, at) else {
            continue;
        };
        let mut lines: Vec<usize> = tokens[body.start + 1..body.end - 1]
            .iter()
            .map(|token| token.line)
            .collect();
        lines.dedup();
        if lines.len() > FUNCTION_LINES_MAX {
            let what = format!(
                "`{}` has {} lines: more than {FUNCTION_LINES_MAX}",
                tokens[at + 1].text,
                lines.len()
            );
            offences.push(Offence::new(source, tokens[at].line, what));
        }
    }
    offences
}

/// The tokens of the body of the `fn` at `at`, braces included; `None` for one without.
fn function_body(source: &Source, at: usize) -> Option<Range<usize>> {
    let mut at = at;
    loop {
        match source.tokens.get(at)?.text.as_str() {
            ";" => return None,
            "{" => return Some(at..source.close(at)),
            "(" | "[" => at = source.close(at),
            _ => at += 1,
        }
    }
}

/// Reads of the clock or of entropy. For every file but `clock.rs`.
pub(crate) fn clock_and_random(source: &Source) -> Vec<Offence> {
    const CALLS: &[&[&str]] = &[
        &["Instant", "::", "now"],
        &["SystemTime", "::", "now"],
        &[".", "elapsed", "(", ")"],
        &["fastrand", "::"],
        &["rand", "::"],
        &["thread_rng"],
        &["getrandom"],
        &["RandomState"],
        &["OsRng"],
    ];
    matches(
        source,
        CALLS,
        0..source.tokens.len(),
        "time and randomness come from `clock` and are passed on",
    )
}

/// What a decision crate has no business with. For `crates/core/src`.
pub(crate) fn effects(source: &Source) -> Vec<Offence> {
    const CALLS: &[&[&str]] = &[
        &["async"],
        &["await"],
        &["std", "::", "fs"],
        &["std", "::", "process"],
        &["std", "::", "env"],
        &["TcpStream"],
        &["UnixStream"],
        &["UdpSocket"],
    ];
    matches(
        source,
        CALLS,
        0..source.tokens.len(),
        "a decision and its simulation do no I/O and never wait",
    )
}

/// Pauses in tests: they are slow or flaky, and mostly both.
pub(crate) fn sleeps(source: &Source) -> Vec<Offence> {
    const CALLS: &[&[&str]] = &[&["sleep", "("], &["sleep_until", "("], &["sleep_ms", "("]];
    matches(
        source,
        CALLS,
        source.test_code(),
        "wait on a condition, or pass `now`, instead of sleeping",
    )
}

/// Code that is not finished, and tests that do not run.
pub(crate) fn unfinished(source: &Source) -> Vec<Offence> {
    const CALLS: &[&[&str]] = &[
        &["todo", "!"],
        &["unimplemented", "!"],
        &["dbg", "!"],
        &["#", "[", "ignore"],
        &["#", "!", "[", "ignore"],
    ];
    matches(
        source,
        CALLS,
        0..source.tokens.len(),
        "finish it, or take it out",
    )
}

/// `unsafe` anywhere: the files that may have it are named by the caller.
pub(crate) fn unsafe_code(source: &Source) -> Vec<Offence> {
    matches(
        source,
        &[&["unsafe"]],
        0..source.tokens.len(),
        "`unsafe` outside the files that are listed for it",
    )
}

/// Where one of `patterns` begins, among the tokens `at`.
fn matches(
    source: &Source,
    patterns: &[&[&str]],
    at: impl IntoIterator<Item = usize>,
    why: &str,
) -> Vec<Offence> {
    let mut offences = Vec::new();
    for at in at {
        for pattern in patterns.iter().filter(|pattern| source.reads(at, pattern)) {
            let what = format!("`{}`: {why}", pattern.concat());
            offences.push(Offence::new(source, source.tokens[at].line, what));
        }
    }
    offences
}

/// Names that we give and that the lexicon has another word for; `get_` says nothing.
pub(crate) fn names(source: &Source) -> Vec<Offence> {
    const DEFINES: &[&str] = &[
        "fn", "struct", "enum", "trait", "type", "mod", "const", "static", "let", "mut",
    ];
    let mut offences = Vec::new();
    for pair in source
        .tokens
        .windows(2)
        .filter(|pair| DEFINES.contains(&pair[0].text.as_str()))
    {
        let name = &pair[1].text;
        let banned = words(name)
            .into_iter()
            .find(|word| BANNED_WORDS.contains(&word.as_str()));
        if let Some(word) = banned {
            offences.push(Offence::new(
                source,
                pair[1].line,
                format!("`{name}`: `{word}` is not in the lexicon"),
            ));
        }
        if pair[0].text == "fn" && name.starts_with("get_") {
            offences.push(Offence::new(
                source,
                pair[1].line,
                format!("`{name}`: leave out `get_`"),
            ));
        }
    }
    offences
}

/// `LeastConnections` and `least_connections` are both `least`, `connections`.
fn words(name: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    for character in name.chars() {
        if character == '_' || character.is_uppercase() {
            found.push(String::new());
        }
        if character != '_' {
            found
                .last_mut()
                .expect("it begins with one")
                .extend(character.to_lowercase());
        }
    }
    found
}

/// Files that no `mod` line reaches: the compiler does not see them, so nothing holds them.
pub(crate) fn unreached(sources: &[Source]) -> Vec<Offence> {
    let mut offences = Vec::new();
    for source in sources {
        let Some((crate_root, inside)) = source.path.split_once("/src/") else {
            continue;
        };
        let (folder, name) = inside
            .trim_end_matches(".rs")
            .rsplit_once('/')
            .unwrap_or(("", inside));
        let name = name.trim_end_matches(".rs");
        if folder.is_empty() && ["lib", "main"].contains(&name) {
            continue;
        }
        let parent = if folder.is_empty() { "lib" } else { folder };
        let parent = format!("{crate_root}/src/{parent}.rs");
        let declares = |parent: &Source| {
            (0..parent.tokens.len()).any(|at| parent.reads(at, &["mod", name, ";"]))
        };
        if !sources
            .iter()
            .any(|source| source.path == parent && declares(source))
        {
            offences.push(Offence::new(
                source,
                1,
                format!("no `mod {name};` in {parent}"),
            ));
        }
    }
    offences
}

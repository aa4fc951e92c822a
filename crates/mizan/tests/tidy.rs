//! The rules of `CONTRIBUTING.md` and `ARCHITECTURE.md` that a machine can hold.
//!
//! `tidy/rules.rs` has the rules, `tidy/checks.rs` shows that each of them can fail, and this file applies
//! them to the repository. An exception is a line in one of the constants below, with its reason.

#[path = "tidy/checks.rs"]
mod checks;
#[path = "tidy/pages.rs"]
mod pages;
#[path = "tidy/rules.rs"]
mod rules;
#[path = "tidy/source.rs"]
mod source;

use rules::Offence;
use source::{Source, read_all};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// Crates that core may depend on; each is a decision of its own.
const CORE_DEPENDENCIES: &[&str] = &["arc-swap"];

/// Crates that the simulator may depend on.
const SIMULATOR_DEPENDENCIES: &[&str] = &["mizan-core", "serde", "serde_json", "strsim", "toml"];

/// Files that may have `unsafe`: no safe wrapper offers the call, and each block proves itself in a comment.
const UNSAFE_FILES: &[&str] = &["crates/mizan/src/proxy/sys.rs"];

/// Files that may read the clock or draw entropy.
const CLOCK_FILES: &[&str] = &["crates/mizan/src/clock.rs", "crates/tower/src/clock.rs"];

/// Folders of code that a program writes, each with the command in its files' heads.
const GENERATED: &[&str] = &["crates/store/src/etcd/generated/"];

#[test]
fn modules_name_each_other_only_in_the_permitted_directions() {
    assert_none(
        below("crates/mizan/src/")
            .flat_map(rules::directions)
            .collect(),
    );
}

#[test]
fn files_and_functions_fit_a_reader() {
    let offences =
        written().flat_map(|source| [rules::files(source), rules::functions(source)].concat());
    assert_none(offences.collect());
}

#[test]
fn every_file_is_reached_by_a_mod_line() {
    assert_none(rules::unreached(&EVERYTHING));
}

#[test]
fn only_clock_reads_time_and_entropy() {
    let held = below("crates/mizan/")
        .chain(below("crates/core/src/"))
        .chain(below("crates/sim/src/"))
        .chain(below("crates/tower/src/"))
        .chain(below("crates/store/src/embedded"))
        .chain(below("crates/store/src/conformance"))
        .chain(below("crates/store/src/etcd"))
        .chain(below("crates/store/src/remote"))
        .filter(|source| !CLOCK_FILES.contains(&source.path.as_str()));
    assert_none(held.flat_map(rules::clock_and_random).collect());
}

#[test]
fn core_and_simulator_have_no_effects() {
    let held = below("crates/core/src/").chain(below("crates/sim/src/"));
    assert_none(held.flat_map(rules::effects).collect());
}

#[test]
fn core_and_simulator_depend_on_nothing_that_is_not_listed() {
    for (path, listed) in [
        ("crates/core/Cargo.toml", CORE_DEPENDENCIES),
        ("crates/sim/Cargo.toml", SIMULATOR_DEPENDENCIES),
    ] {
        let manifest = manifest(path);
        let names: Vec<&str> = manifest["dependencies"]
            .as_table()
            .expect("a table")
            .keys()
            .map(String::as_str)
            .collect();
        assert_eq!(names, listed, "{path}");
    }
}

#[test]
fn nothing_is_unfinished_and_no_test_is_switched_off() {
    assert_none(EVERYTHING.iter().flat_map(rules::unfinished).collect());
}

#[test]
fn no_test_sleeps() {
    assert_none(EVERYTHING.iter().flat_map(rules::sleeps).collect());
}

#[test]
fn unsafe_stands_only_in_listed_files() {
    let held = EVERYTHING
        .iter()
        .filter(|source| !UNSAFE_FILES.contains(&source.path.as_str()));
    assert_none(held.flat_map(rules::unsafe_code).collect());
    for path in UNSAFE_FILES {
        let uses = EVERYTHING
            .iter()
            .any(|source| source.path == *path && !rules::unsafe_code(source).is_empty());
        assert!(
            uses,
            "{path} has no `unsafe` any more: take it off the list"
        );
    }
}

#[test]
fn names_come_from_the_lexicon() {
    assert_none(written().flat_map(rules::names).collect());
}

#[test]
fn every_dependency_says_in_the_architecture_what_it_replaces() {
    let architecture = read("ARCHITECTURE.md");
    let mut unexplained = Vec::new();
    for path in [
        "crates/core/Cargo.toml",
        "crates/mizan/Cargo.toml",
        "crates/sim/Cargo.toml",
        "crates/tower/Cargo.toml",
        "crates/store/Cargo.toml",
        "crates/store/generate/Cargo.toml",
        "fuzz/Cargo.toml",
    ] {
        let manifest = manifest(path);
        for section in ["dependencies", "dev-dependencies"] {
            let names = manifest
                .get(section)
                .and_then(toml::Value::as_table)
                .into_iter()
                .flat_map(toml::Table::keys);
            unexplained.extend(
                names
                    .filter(|name| !explained(&architecture, name))
                    .map(|name| format!("{path}: {name}")),
            );
        }
    }
    assert!(
        unexplained.is_empty(),
        "no row in ARCHITECTURE.md, \"Dependencies\": {unexplained:#?}"
    );
}

#[test]
fn the_page_on_the_access_log_has_every_reason_code_with_its_status() {
    let error = read("crates/mizan/src/proxy/error.rs");
    let h1 = read("crates/mizan/src/h1.rs");
    let in_code = pages::reasons(&error, &h1);
    assert!(
        in_code.len() > 40,
        "the code is not read right: {in_code:?}"
    );
    let on_page = pages::rows(&read("docs/access-log.md"), "Reason codes");
    let missing: Vec<_> = in_code.difference(&on_page).collect();
    let gone: Vec<_> = on_page.difference(&in_code).collect();
    assert!(
        missing.is_empty() && gone.is_empty(),
        "docs/access-log.md: not on the page {missing:?}, not in the code {gone:?}"
    );
}

#[test]
fn every_page_and_folder_for_users_is_linked_from_the_architecture() {
    let architecture = read("ARCHITECTURE.md");
    let pages = std::fs::read_dir(root().join("docs")).expect("docs is there");
    let mut wanted: Vec<String> = pages
        .map(|page| format!("docs/{}", page.expect("readable").file_name().display()))
        .collect();
    wanted.extend([
        "examples/".to_owned(),
        "schema/mizan.schema.json".to_owned(),
    ]);
    wanted.retain(|path| !architecture.contains(&format!("]({path})")));
    assert!(wanted.is_empty(), "no link in ARCHITECTURE.md: {wanted:?}");
}

/// Whether a table row of `architecture` begins with `name`, among others or alone.
fn explained(architecture: &str, name: &str) -> bool {
    let ours = name.starts_with("mizan");
    let quoted = format!("`{name}`");
    let cell = |line: &str| {
        line.strip_prefix("| ")
            .and_then(|row| row.split(" | ").next())
            .map(str::to_owned)
    };
    ours || architecture
        .lines()
        .filter_map(cell)
        .any(|cell| cell.contains(&quoted))
}

/// What people write: generated code is as long as it is, and names things as others do.
fn written() -> impl Iterator<Item = &'static Source> {
    EVERYTHING
        .iter()
        .filter(|source| !GENERATED.iter().any(|it| source.path.starts_with(it)))
}

/// The sources below `folder`: never none, or a rule would hold nothing.
fn below(folder: &str) -> impl Iterator<Item = &'static Source> {
    let found: Vec<_> = EVERYTHING
        .iter()
        .filter(|source| source.path.starts_with(folder))
        .collect();
    assert!(!found.is_empty(), "no Rust file in {folder}");
    found.into_iter()
}

/// Read once for all rules.
static EVERYTHING: LazyLock<Vec<Source>> = LazyLock::new(|| read_all(&root(), &["crates", "fuzz"]));

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("the workspace is there")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn manifest(path: &str) -> toml::Value {
    toml::Value::Table(
        read(path)
            .parse()
            .unwrap_or_else(|error| panic!("{path}: {error}")),
    )
}

fn assert_none(offences: Vec<Offence>) {
    let lines: Vec<String> = offences.iter().map(Offence::to_string).collect();
    assert!(
        lines.is_empty(),
        "{} offences:\n{}",
        lines.len(),
        lines.join("\n")
    );
}

//! Wrong files, and the text that people get for them. Each `refused/NAME.toml` has `NAME.txt` beside it.

use super::assert_committed;
use mizan::config::{self, Diagnostic, Source};
use mizan_core::time::Instant;
use std::io;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/refused")
}

fn cases() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder()).expect("the folder is there");
    let mut cases: Vec<PathBuf> = entries
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|end| end == "toml"))
        .collect();
    cases.sort();
    cases
}

fn source(case: &Path) -> Source {
    Source::new(
        case.file_name().expect("a file"),
        std::fs::read_to_string(case).expect("readable"),
    )
}

fn found(sources: &[Source]) -> Vec<Diagnostic> {
    let no_names = |_: &str| Err(io::Error::other("no such name"));
    match config::compile(sources, None, &no_names, Instant::default(), 1) {
        Ok((_, warnings)) => warnings,
        Err(all) => all,
    }
}

#[test]
fn every_mistake_is_shown_with_its_place_and_what_was_meant() {
    for case in cases() {
        let sources = [source(&case)];
        let drawn: Vec<String> = found(&sources)
            .iter()
            .map(|diagnostic| diagnostic.render(&sources))
            .collect();
        assert_committed(&case.with_extension("txt"), &(drawn.join("\n\n") + "\n"));
    }
}

#[test]
fn a_place_is_always_inside_the_text_and_never_internal() {
    for case in cases() {
        let source = source(&case);
        for diagnostic in found(std::slice::from_ref(&source)) {
            assert!(
                source.text.get(diagnostic.span.clone()).is_some(),
                "{diagnostic}"
            );
            assert_ne!(diagnostic.code, "internal", "{diagnostic}");
        }
    }
}

#[test]
fn the_admin_token_is_never_drawn() {
    let case = folder().join("admin.toml");
    let sources = [source(&case)];
    for diagnostic in found(&sources) {
        assert!(
            !diagnostic.render(&sources).contains("hunter2"),
            "{}",
            diagnostic.render(&sources)
        );
        assert!(
            !format!("{diagnostic:?}").contains("hunter2"),
            "{diagnostic:?}"
        );
    }
}

#[test]
fn at_least_ninety_mistakes_of_thirty_wordings_are_covered() {
    let mut messages: Vec<String> = Vec::new();
    for case in cases() {
        let sources = [source(&case)];
        messages.extend(
            found(&sources)
                .into_iter()
                .map(|diagnostic| wording(&diagnostic.message)),
        );
    }
    let count = messages.len();
    messages.sort();
    messages.dedup();
    assert!(
        count >= 90 && messages.len() >= 30,
        "{count} mistakes of {} wordings",
        messages.len()
    );
}

/// A message without its quoted parts and numbers.
fn wording(message: &str) -> String {
    let outside: String = message.split('`').step_by(2).collect();
    outside.chars().filter(|c| !c.is_ascii_digit()).collect()
}

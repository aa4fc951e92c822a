//! The configuration seen from outside: what is refused and how it is said, the committed schema and
//! reference, and the examples.
//!
//! `UPDATE_SCHEMA=1 cargo test -p mizan --test config` rewrites what is committed.

#[path = "config/reference.rs"]
mod reference;
#[path = "config/refused.rs"]
mod refused;
#[path = "config/schema.rs"]
mod schema;

use std::path::{Path, PathBuf};

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Compares `actual` with a committed file, or rewrites that file if `UPDATE_SCHEMA` is set.
fn assert_committed(path: &Path, actual: &str) {
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(path, actual).expect("the committed file can be written");
        return;
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    let line = committed
        .lines()
        .zip(actual.lines())
        .position(|(old, new)| old != new);
    assert!(
        committed == actual,
        "{} is out of date (first difference in line {}); run `UPDATE_SCHEMA=1 cargo test -p mizan --test config` and look at the change.\n{actual}",
        path.display(),
        line.map_or_else(|| "count".to_owned(), |line| (line + 1).to_string()),
    );
}

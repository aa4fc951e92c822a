//! How long a large table takes: to be compiled, to be compiled again for one edit, and to be edited.
//!
//! `cargo run --release -p mizan --example table`: 5,000 backends in 50 pools, and 500 routes.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "it measures and says so; nobody calls it"
)]

use mizan::clock;
use mizan::config::{self, InForce, Merged, Source};
use mizan::control::Layout;
use mizan::control::editor::{CHANGES_MAX, Editor, Wanted};
use mizan_core::time::Instant;
use mizan_routing::edit::Change;
use mizan_routing::table::Stored;
use mizan_routing::{Object, Table};
use mizan_store::embedded::{Embedded, Options};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

const POOLS: usize = 50;
const BACKENDS: usize = 100;
const ROUTES: usize = 500;
const EDITS: u64 = 10;

const FILE: &str = "[region]\nname = \"kr\"\n\n[store]\naddress = \"embedded:/var/lib/mizan/store\"\n\n[[listener]]\nbind = \"127.0.0.1:8000\"\n";
/// The one that is edited.
const KEY: &str = "backends/kr/p0/b0";

/// Documents by their keys, each with the revision that it was put at.
type Documents = BTreeMap<String, (String, u64)>;

fn backend(pool: usize, at: usize, weight: u64) -> String {
    format!(
        r#"{{"schema": 1, "address": "10.0.{pool}.{}:80", "weight": {weight}}}"#,
        at + 1
    )
}

fn documents() -> Documents {
    let mut all = BTreeMap::new();
    for pool in 0..POOLS {
        let document = r#"{"schema": 1, "health": {"path": "/healthz"}}"#.to_owned();
        all.insert(format!("pools/kr/p{pool}"), (document, 1));
        for at in 0..BACKENDS {
            let key = format!("backends/kr/p{pool}/b{at}");
            all.insert(key, (backend(pool, at, 10), 1));
        }
    }
    for route in 0..ROUTES {
        let pool = route % POOLS;
        let document = format!(r#"{{"schema": 1, "prefix": "/r{route}/", "pool": "p{pool}"}}"#);
        all.insert(format!("routes/r{route}"), (document, 1));
    }
    all
}

fn since(begun: Instant) -> f64 {
    clock::now().saturating_since(begun).as_secs_f64() * 1_000.0
}

/// What a balancer does when a change is known, up to where it swaps its snapshot.
fn apply(
    documents: &Documents,
    revision: u64,
    before: Option<(&Table, &Merged)>,
) -> (Table, Merged) {
    let stored = documents.iter().map(|(key, (value, modified))| Stored {
        key: key.as_bytes(),
        value: value.as_bytes(),
        modified: *modified,
    });
    let table = Table::build(revision, stored, before.map(|(table, _)| table)).unwrap();
    let nothing = InForce::default();
    let last = before.map_or((None, &nothing), |(_, merged)| {
        (Some(&merged.snapshot), &merged.in_force)
    });
    let files = [Source::new("mizan.toml", FILE)];
    let nowhere = |_: &str| Err(io::Error::other("names are not looked up here"));
    let now = (clock::now(), 7);
    let merged = config::compile_with(&files, (&table, 0, true), last, &nowhere, now).unwrap();
    assert_eq!(merged.rejected, []);
    for pool in merged.snapshot.pools.values() {
        let (config, members) = (pool.config.clone(), pool.members.clone());
        pool.core.update(clock::now(), config, members);
    }
    (table, merged)
}

fn wanted(changes: Vec<Change>) -> Wanted {
    Wanted {
        changes,
        author: "nobody".to_owned(),
        why: String::new(),
        force: false,
    }
}

fn change(key: &str, document: &str) -> Change {
    Change {
        object: key.parse().unwrap(),
        document: Some(document.as_bytes().to_vec()),
        seen: None,
    }
}

async fn edit(documents: &Documents) {
    let folder = tempfile::tempdir().unwrap();
    let store = Embedded::open(&folder.path().join("store"), Options::default()).unwrap();
    let editor = Editor::new(Arc::new(store), Layout::new("test"), config::judge);
    let all = documents.iter();
    let mut all: Vec<Change> = all.map(|(key, (text, _))| change(key, text)).collect();
    // What is named comes before what names it.
    all.sort_by_key(|change| !matches!(change.object, Object::Pool { .. }));
    let begun = clock::now();
    for part in all.chunks(CHANGES_MAX) {
        editor.edit(&wanted(part.to_vec())).await.unwrap();
    }
    let parts = all.len().div_ceil(CHANGES_MAX);
    println!("all edited, in {parts} parts: {:.1} ms", since(begun));
    for weight in 1..=EDITS {
        let begun = clock::now();
        let one = change(KEY, &backend(0, 0, weight));
        editor.edit(&wanted(vec![one])).await.unwrap();
        println!("one edited: {:.1} ms", since(begun));
    }
}

fn main() {
    let mut documents = documents();
    let begun = clock::now();
    let mut last = apply(&documents, 1, None);
    println!("all in force: {:.1} ms", since(begun));
    for revision in 2..2 + EDITS {
        let weight = backend(0, 0, 10 + revision);
        documents.insert(KEY.to_owned(), (weight, revision));
        let begun = clock::now();
        let next = apply(&documents, revision, Some((&last.0, &last.1)));
        println!("one edit in force: {:.1} ms", since(begun));
        last = next;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(edit(&documents));
}

//! On a real embedded store; where it must not answer as it would, one that stands before it.

mod boosts;
mod doubt;
mod judged;
mod races;
mod rollback;

use super::*;
use crate::config;
use mizan_store::embedded::{Embedded, Options};
use serde_json::{Value, json};
use std::time::Duration;
use tempfile::TempDir;

/// A store, and one who edits its table.
struct Place {
    // Gone only after the store.
    editor: Editor,
    _folder: TempDir,
}

impl Place {
    fn new() -> Self {
        Self::behind(|store| store)
    }

    /// With what `wrap` makes of the store.
    fn behind(wrap: impl FnOnce(Arc<dyn Store>) -> Arc<dyn Store>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Embedded::open(&folder.path().join("store"), Options::default());
        let store = wrap(Arc::new(store.expect("a new store")));
        Self {
            editor: Editor::new(store, Layout::new("test"), config::judge),
            _folder: folder,
        }
    }

    fn store(&self) -> &Arc<dyn Store> {
        self.editor.store()
    }

    async fn edit(&self, changes: Vec<Change>) -> Result<Edited, EditFailed> {
        self.editor.edit(&wanted(changes)).await
    }

    /// What stands under a key, with its revision; null: nothing.
    async fn stands(&self, key: &str) -> (u64, Value) {
        let view = self.editor.table(None).await.expect("it can be listed");
        let found = view.objects.into_iter().find(|it| it.key == key);
        found.map_or((0, Value::Null), |it| (it.revision, it.document))
    }

    /// Writes to the store as somebody would who knows nothing of editors.
    async fn write(&self, key: &str, document: &Value) -> Revision {
        let operation = Operation::put(self.key(key), document.to_string());
        let transaction = Transaction {
            compares: Vec::new(),
            operations: vec![operation],
        };
        let committed = self.store().commit(transaction).await;
        committed.expect("it is written").revision
    }

    fn key(&self, key: &str) -> Bytes {
        Bytes::from([&self.editor.layout().table()[..], key.as_bytes()].concat())
    }

    async fn whys(&self) -> Vec<String> {
        let edits = self.editor.history(None, usize::MAX).await;
        let edits = edits.expect("it can be listed").into_iter();
        edits.map(|edit| edit.why).collect()
    }
}

fn wanted(changes: Vec<Change>) -> Wanted {
    Wanted {
        changes,
        author: "ana".to_owned(),
        why: String::new(),
        force: false,
    }
}

fn because(why: &str, changes: Vec<Change>) -> Wanted {
    Wanted {
        why: why.to_owned(),
        ..wanted(changes)
    }
}

fn put(key: &str, document: Value) -> Change {
    Change {
        object: key.parse().expect("a key"),
        document: Some(document.to_string().into_bytes()),
        seen: None,
    }
}

fn gone(key: &str) -> Change {
    Change {
        document: None,
        ..put(key, Value::Null)
    }
}

fn seen(change: Change, revision: u64) -> Change {
    Change {
        seen: Some(revision),
        ..change
    }
}

fn settings(text: &str) -> Value {
    json!({"schema": 1, "tokenizer": text})
}

fn pool() -> Value {
    json!({"schema": 1})
}

#[track_caller]
fn conflicts(result: Result<Edited, EditFailed>) -> Vec<Conflicting> {
    match result {
        Err(EditFailed::Conflict(conflicts)) => conflicts,
        other => panic!("no conflict: {other:?}"),
    }
}

#[tokio::test]
async fn an_edit_is_whole_and_written_down_with_what_it_changed() {
    let place = Place::new();
    let two = vec![
        put("pools/kr/kpop", pool()),
        put("settings/ko", settings("mecab")),
    ];
    let made = place.editor.edit(&because("a start", two)).await;
    let made = made.expect("it may be made");
    assert_eq!(place.stands("pools/kr/kpop").await, (made.revision, pool()));
    let other = vec![put("settings/ko", settings("kiwi")), gone("pools/kr/kpop")];
    place.edit(other).await.expect("it may be made");
    let edits = place.editor.history(None, 10).await.expect("a history");
    assert_eq!(edits.len(), 2);
    let (last, first) = (&edits[0], &edits[1]);
    assert_eq!(
        (&*first.edit, first.revision, &*first.author, &*first.why),
        (&*made.edit, made.revision, "ana", "a start")
    );
    let changed = |key: &str| last.changes.iter().find(|it| it.key == key).expect("it is");
    assert_eq!(changed("pools/kr/kpop").before, Some(pool()));
    assert_eq!(changed("pools/kr/kpop").after, None);
    assert_eq!(changed("settings/ko").before, Some(settings("mecab")));
    assert_eq!(changed("settings/ko").after, Some(settings("kiwi")));
    let of = place.editor.history(Some("pools/kr"), 10).await;
    assert_eq!(of.expect("a history").len(), 2);
    let of_none = place.editor.history(Some("pools/k"), 10).await;
    assert_eq!(
        of_none.expect("a history"),
        [],
        "`pools/k` is above nothing"
    );
}

#[tokio::test]
async fn what_is_refused_leaves_nothing_behind() {
    let place = Place::new();
    let bad = place
        .edit(vec![
            put("pools/kr/kpop", pool()),
            put(
                "backends/kr/pop/a",
                json!({"schema": 1, "address": "10.0.0.1:80"}),
            ),
        ])
        .await;
    assert!(matches!(bad, Err(EditFailed::Refused(_))), "{bad:?}");
    let nothing = place.edit(Vec::new()).await;
    assert!(
        matches!(nothing, Err(EditFailed::Invalid(_))),
        "{nothing:?}"
    );
    let many = (0..=CHANGES_MAX).map(|at| put(&format!("settings/l{at}"), settings("a")));
    let many = place.edit(many.collect()).await;
    assert!(matches!(many, Err(EditFailed::Many(101))), "{many:?}");
    assert!(place.whys().await.is_empty());
    assert_eq!(place.editor.table(None).await.expect("a table").objects, []);
}

/// The most that one edit takes goes into one transaction, with all that is written beside it.
#[tokio::test]
async fn an_edit_takes_as_many_changes_as_it_says() {
    let place = Place::new();
    let head = Operation::put(
        place.editor.layout().head(),
        format!("{{\"number\": {}}}", HISTORY_MAX + 7),
    );
    let transaction = Transaction {
        compares: Vec::new(),
        operations: vec![head],
    };
    place.store().commit(transaction).await.expect("a head");
    let many = (0..CHANGES_MAX).map(|at| put(&format!("settings/l{at}"), settings("a")));
    place.edit(many.collect()).await.expect("it may be made");
    let view = place.editor.table(None).await.expect("a table");
    assert_eq!(view.objects.len(), CHANGES_MAX);
}

/// A route would lead nowhere: nobody touched it, but what it names goes.
#[tokio::test]
async fn what_others_name_is_not_taken_from_them() {
    let place = Place::new();
    let start = vec![
        put("pools/kr/kpop", pool()),
        put(
            "chains/kr/trending",
            json!({"schema": 1, "pools": ["kpop"]}),
        ),
        put(
            "routes/a",
            json!({"schema": 1, "prefix": "/", "chain": "trending"}),
        ),
    ];
    place.edit(start).await.expect("it may be made");
    let split = json!([{"pool": "pop", "weight": 1}, {"pool": "rock", "weight": 1}]);
    let by_name = vec![
        put("pools/kr/pop", pool()),
        put("pools/kr/rock", pool()),
        put("pools/kr/jazz", pool()),
        put(
            "routes/b",
            json!({"schema": 1, "prefix": "/b", "split": split}),
        ),
        put(
            "routes/c",
            json!({"schema": 1, "prefix": "/c", "pool": "pop", "fallback": ["jazz"]}),
        ),
    ];
    place.edit(by_name).await.expect("it may be made");
    for key in [
        "chains/kr/trending",
        "pools/kr/kpop",
        "pools/kr/rock",
        "pools/kr/jazz",
    ] {
        let refused = place.edit(vec![gone(key)]).await;
        assert!(
            matches!(refused, Err(EditFailed::Refused(_))),
            "{key}: {refused:?}"
        );
    }
    let route = json!({"schema": 1, "prefix": "/", "pool": "pop"});
    let all = vec![
        put("routes/a", route),
        gone("chains/kr/trending"),
        gone("pools/kr/kpop"),
    ];
    place.edit(all).await.expect("together they may go");
    let meant = Wanted {
        force: true,
        ..wanted(vec![gone("pools/kr/rock")])
    };
    place.editor.edit(&meant).await.expect("it is meant");
    assert_eq!(place.stands("meta").await.1, Value::Null, "not most of it");
}

/// What was at fault before holds up nobody who edits something else.
#[tokio::test]
async fn a_fault_that_was_there_holds_nobody_up() {
    let place = Place::new();
    let lost = json!({"schema": 1, "prefix": "/", "chain": "lost"});
    place.write("routes/a", &lost).await;
    place.write("pools/kr/kpop", &json!({"schema": 2})).await;
    let other = place.edit(vec![put("pools/kr/pop", pool())]).await;
    other.expect("it has nothing to do with it");
}

#[tokio::test]
async fn that_most_of_it_goes_is_said_in_the_table_and_beside_what_it_says_already() {
    let place = Place::new();
    place
        .edit(vec![
            put("meta", json!({"schema": 1, "note": "ours"})),
            put("settings/ko", settings("a")),
            put("settings/ja", settings("a")),
            put("settings/zh", settings("a")),
        ])
        .await
        .expect("it may be made");
    let most = ["settings/ko", "settings/ja", "settings/zh"].map(gone);
    let held = place.edit(most.to_vec()).await;
    assert!(
        matches!(
            held,
            Err(EditFailed::Refused(EditError::Shrinks { gone: 3, all: 4 }))
        ),
        "{held:?}"
    );
    let forced = |changes: Vec<Change>| Wanted {
        force: true,
        ..wanted(changes)
    };
    // It says no more than it has to.
    let one = forced(vec![put("settings/ko", settings("b"))]);
    place.editor.edit(&one).await.expect("it may be made");
    let meta = json!({"schema": 1, "note": "ours"});
    assert_eq!(place.stands("meta").await.1, meta);
    let made = place.editor.edit(&forced(most.to_vec())).await;
    let made = made.expect("it is meant");
    let said = json!({"schema": 1, "note": "ours", "allow_shrink": true});
    assert_eq!(place.stands("meta").await.1, said);
    // It is part of the edit, and goes as it came.
    let by = ("ana".to_owned(), String::new());
    let back = place.editor.rollback(&made.edit, by, false).await;
    back.expect("nothing stands against it");
    assert_eq!(place.stands("meta").await.1, meta);
    assert_eq!(place.stands("settings/ja").await.1, settings("a"));
}

#[tokio::test]
async fn history_forgets_the_oldest_beyond_its_limit() {
    let place = Place::new();
    place
        .edit(vec![put("settings/ko", settings("a"))])
        .await
        .expect("the first");
    let head = Operation::put(
        place.editor.layout().head(),
        format!("{{\"number\": {HISTORY_MAX}}}"),
    );
    let transaction = Transaction {
        compares: Vec::new(),
        operations: vec![head],
    };
    place.store().commit(transaction).await.expect("a head");
    let next = because("the next", vec![put("settings/ko", settings("b"))]);
    place.editor.edit(&next).await.expect("it may be made");
    assert_eq!(place.whys().await, ["the next"]);
}

/// `settings/ja` is no good beside `settings/ko`.
fn jealous(table: &Table, _: &str) -> Vec<Rejected> {
    let held = |key: &str| table.held(&key.parse().expect("a key")).is_some();
    let is_bad = held("settings/ja") && held("settings/ko");
    let rejected = is_bad.then(|| Rejected {
        key: "settings/ja".to_owned(),
        reason: "it cannot stand there".to_owned(),
        hint: None,
        is_kept: false,
    });
    rejected.into_iter().collect()
}

/// Whoever makes bad what they do not touch is told, and nobody else.
#[tokio::test]
async fn what_makes_others_bad_is_refused() {
    let mut place = Place::new();
    place.editor.judge = jealous;
    let own = || put("pools/kr/kpop", pool());
    let start = vec![put("settings/ja", settings("a")), own()];
    place.edit(start).await.expect("it may be made");
    let refused = place
        .edit(vec![put("settings/ko", settings("a")), own()])
        .await;
    let Err(EditFailed::Refused(EditError::Rejected(faults))) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(faults[0].key, "settings/ja");
    place.write("settings/ko", &settings("a")).await;
    place.edit(vec![own()]).await.expect("it was bad before");
}

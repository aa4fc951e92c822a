//! Several who edit at once.

use super::*;
use std::collections::HashSet;

const EDITORS: usize = 6;
const ROUNDS: u64 = 25;

/// Each adds one to a number that all share, with what they saw; whoever is told of a conflict looks and does it again.
async fn count_up(place: Arc<Place>, name: usize) -> Vec<Edited> {
    let mut made = Vec::new();
    while made.len() < ROUNDS as usize {
        let (revision, document) = place.stands("settings/ko").await;
        let count = document["count"].as_u64().unwrap_or(0);
        let next = put("settings/ko", json!({"schema": 1, "count": count + 1}));
        let own = put(
            &format!("settings/l{name}"),
            settings(&made.len().to_string()),
        );
        match place.edit(vec![seen(next, revision), own]).await {
            Ok(edited) => made.push(edited),
            Err(EditFailed::Conflict(conflicts)) => {
                assert_eq!(conflicts.len(), 1);
                assert_eq!(conflicts[0].seen, revision);
                assert!(conflicts[0].by.is_some(), "who was quicker is known");
            }
            Err(other) => panic!("{other}"),
        }
    }
    made
}

#[tokio::test]
async fn of_many_editors_at_once_nobody_loses_what_was_told_done() {
    let place = Arc::new(Place::new());
    let editors = (0..EDITORS).map(|name| tokio::spawn(count_up(place.clone(), name)));
    let mut made = Vec::new();
    for editor in editors.collect::<Vec<_>>() {
        made.extend(editor.await.expect("it ends"));
    }
    let all = EDITORS as u64 * ROUNDS;
    assert_eq!(place.stands("settings/ko").await.1["count"], all);
    // Each is written down once, at the revision that it was told, and each saw the one before.
    let history = place
        .editor
        .history(None, usize::MAX)
        .await
        .expect("a history");
    let told: HashSet<_> = made
        .iter()
        .map(|it| (it.edit.clone(), it.revision))
        .collect();
    let written: HashSet<_> = history
        .iter()
        .map(|it| (it.edit.clone(), it.revision))
        .collect();
    assert_eq!((told.len(), history.len()), (all as usize, all as usize));
    assert_eq!(told, written);
    for (at, edit) in history.iter().rev().enumerate() {
        let counted = edit.changes.iter().find(|it| it.key == "settings/ko");
        let after = counted.and_then(|it| it.after.clone()).expect("it counted");
        assert_eq!(after["count"], at as u64 + 1);
    }
}

/// What does not touch the same keys waits for nobody: the next turn is taken, and no author hears of it.
#[tokio::test]
async fn edits_of_other_keys_do_not_conflict() {
    let place = Arc::new(Place::new());
    let editors = (0..EDITORS).map(|name| {
        let place = place.clone();
        tokio::spawn(async move {
            let key = format!("settings/l{name}");
            let mut revision = 0;
            for round in 0..ROUNDS {
                let change = put(&key, settings(&round.to_string()));
                let made = place.edit(vec![seen(change, revision)]).await;
                revision = made.expect("nobody else touches it").revision;
            }
        })
    });
    for editor in editors.collect::<Vec<_>>() {
        editor.await.expect("it ends");
    }
    assert_eq!(place.whys().await.len(), EDITORS * ROUNDS as usize);
}

/// The pool goes while a chain that names it comes: whoever is second is refused.
#[tokio::test]
async fn no_two_edits_leave_together_what_neither_may_leave() {
    let place = Arc::new(Place::new());
    for round in 0..40 {
        let start = vec![
            put("pools/kr/kpop", pool()),
            put("settings/ko", settings("a")),
        ];
        place.edit(start).await.expect("it may be made");
        let chain = put(
            "chains/kr/trending",
            json!({"schema": 1, "pools": ["kpop"]}),
        );
        let edits = [vec![gone("pools/kr/kpop")], vec![chain]].map(|changes| {
            let place = place.clone();
            tokio::spawn(async move { place.edit(changes).await })
        });
        let mut made = 0;
        for edit in edits {
            match edit.await.expect("it ends") {
                Ok(_) => made += 1,
                Err(EditFailed::Refused(_)) => {}
                Err(other) => panic!("{other}"),
            }
        }
        assert_eq!(made, 1, "round {round}");
        let table = place.editor.routing().await.expect("a table");
        assert_eq!(table.rejected(), [], "round {round}");
        let all = Wanted {
            force: true,
            ..wanted(vec![gone("chains/kr/trending"), gone("pools/kr/kpop")])
        };
        place.editor.edit(&all).await.expect("together they may go");
    }
}

#[tokio::test]
async fn a_conflict_tells_who_what_when_and_why() {
    let place = Place::new();
    let two = |a: u64, b: u64| json!({"schema": 1, "a": a, "b": b});
    let first = place.edit(vec![put("settings/ko", two(1, 1))]).await;
    let first = first.expect("it may be made").revision;
    let quicker = because("I was first", vec![put("settings/ko", two(2, 1))]);
    let quicker = place.editor.edit(&quicker).await.expect("it may be made");
    let late = place
        .edit(vec![seen(put("settings/ko", two(1, 3)), first)])
        .await;
    let [conflict] = &conflicts(late)[..] else {
        panic!("one key");
    };
    let by = conflict.by.as_ref().expect("it is known");
    assert_eq!(
        (&*by.edit, &*by.why, &*by.author),
        (&*quicker.edit, "I was first", "ana")
    );
    assert_eq!((conflict.seen, conflict.found), (first, quicker.revision));
    assert_eq!(conflict.theirs, Some(two(2, 1)));
    assert_eq!(conflict.ours, Some(two(1, 3)));
    assert_eq!(
        conflict.merged,
        Some(two(2, 3)),
        "they have changed other fields"
    );
    let fields: Vec<_> = conflict
        .fields
        .iter()
        .map(|it| (&*it.field, it.is_conflict))
        .collect();
    assert_eq!(fields, [("a", false), ("b", false)]);
    // The same field: nothing is made up.
    let late = place
        .edit(vec![seen(put("settings/ko", two(9, 1)), first)])
        .await;
    assert_eq!(conflicts(late)[0].merged, None);
}

/// Whoever wrote past the editors is not taken for the author of the edit before.
#[tokio::test]
async fn nobody_is_blamed_for_what_somebody_else_wrote() {
    let place = Place::new();
    let start = vec![
        put("settings/ko", settings("a")),
        put("settings/ja", settings("a")),
    ];
    let first = place.edit(start).await.expect("it may be made").revision;
    let past = place.write("settings/ko", &settings("b")).await;
    let late = place
        .edit(vec![seen(put("settings/ko", settings("c")), first)])
        .await;
    let [conflict] = &conflicts(late)[..] else {
        panic!("one key");
    };
    assert_eq!((conflict.found, &conflict.by), (past, &None));
    let deleted = place
        .edit(vec![gone("settings/ko")])
        .await
        .expect("it may be made");
    let late = place
        .edit(vec![seen(put("settings/ko", settings("c")), first)])
        .await;
    let [conflict] = &conflicts(late)[..] else {
        panic!("one key");
    };
    let by = conflict.by.as_ref().map(|it| &it.edit);
    assert_eq!((conflict.found, by), (0, Some(&deleted.edit)));
}

/// The store forgets old revisions sooner than the history does.
#[tokio::test]
async fn what_an_author_saw_is_told_though_the_store_has_forgotten_it() {
    let place = Place::new();
    let first = place.edit(vec![put("settings/ko", settings("a"))]).await;
    let first = first.expect("it may be made").revision;
    let next = place.edit(vec![put("settings/ko", settings("b"))]).await;
    let next = next.expect("it may be made").revision;
    place.store().compact(next).await.expect("it is forgotten");
    let late = place
        .edit(vec![seen(put("settings/ko", settings("c")), first)])
        .await;
    let conflicts = conflicts(late);
    let field = &conflicts[0].fields[0];
    assert_eq!(
        (&*field.field, &field.base),
        ("tokenizer", &Some(json!("a")))
    );
}

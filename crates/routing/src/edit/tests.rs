use super::*;
use crate::table::{OBJECTS_MAX, Stored};
use serde_json::json;

fn table(documents: &[(&str, &str)]) -> Table {
    let stored = documents.iter().map(|(key, value)| Stored {
        key: key.as_bytes(),
        value: value.as_bytes(),
        modified: 4,
    });
    Table::build(4, stored, None).expect("it passes no limit")
}

fn put(key: &str, document: &str) -> Change {
    Change {
        object: key.parse().expect("a key"),
        document: Some(document.as_bytes().to_vec()),
        seen: None,
    }
}

fn delete(key: &str) -> Change {
    Change {
        object: key.parse().expect("a key"),
        document: None,
        seen: None,
    }
}

const POOL: &str = r#"{"schema": 1}"#;

fn korea() -> Table {
    table(&[
        ("chains/kr/t", r#"{"schema": 1, "pools": ["kpop"]}"#),
        ("pools/jp/jpop", POOL),
        ("pools/kr/kpop", POOL),
    ])
}

fn refused(table: &Table, changes: &[Change]) -> String {
    check(table, changes, false)
        .expect_err("it is refused")
        .to_string()
}

/// A chain of Seoul that named a pool of Tokyo alone was written without a word.
#[test]
fn a_chain_that_names_a_pool_of_another_region_is_refused() {
    let said = refused(
        &korea(),
        &[put("chains/kr/t", r#"{"schema": 1, "pools": ["jpop"]}"#)],
    );
    assert_eq!(
        said,
        "chains/kr/t: `pools/kr/jpop` is not there; there is `pools/jp/jpop`"
    );
}

#[test]
fn a_pool_that_a_chain_names_cannot_go_alone() {
    let said = refused(&korea(), &[delete("pools/kr/kpop")]);
    assert!(
        said.starts_with("chains/kr/t: `pools/kr/kpop` is not there"),
        "{said}"
    );
    let both = [delete("chains/kr/t"), delete("pools/kr/kpop")];
    assert!(check(&korea(), &both, true).is_ok());
}

#[test]
fn what_goes_together_may_come_in_any_order() {
    let changes = [
        put("chains/kr/t", r#"{"schema": 1, "pools": ["kpop", "rock"]}"#),
        put("pools/kr/rock", POOL),
    ];
    let after = check(&korea(), &changes, false).expect("it may be made");
    assert_eq!(after.len(), 4);
}

/// A fault that somebody else left behind does not stop others from working; who touches the object has to mend it.
#[test]
fn a_fault_that_was_there_is_none_of_this_edit() {
    let faulty = table(&[
        ("chains/kr/t", r#"{"schema": 1, "pools": ["kpop", "gone"]}"#),
        ("pools/kr/kpop", POOL),
    ]);
    assert!(check(&faulty, &[put("pools/kr/rock", POOL)], false).is_ok());
    let same = put("chains/kr/t", r#"{"schema": 1, "pools": ["gone", "kpop"]}"#);
    assert!(refused(&faulty, &[same]).contains("`pools/kr/gone` is not there"));
}

/// Another region's pool of that name changes what was probably meant, not what is wrong.
#[test]
fn a_fault_whose_hint_has_changed_is_the_same_fault() {
    let faulty = table(&[
        ("chains/kr/t", r#"{"schema": 1, "pools": ["kpop", "rock"]}"#),
        ("pools/kr/kpop", POOL),
    ]);
    assert!(check(&faulty, &[put("pools/jp/rock", POOL)], false).is_ok());
}

#[test]
fn bad_documents_are_all_named_at_once() {
    let said = refused(
        &korea(),
        &[put("pools/kr/a", "{"), put("settings/ko", "[]")],
    );
    assert!(
        said.contains("pools/kr/a: it is no JSON") && said.contains("settings/ko: it is an array"),
        "{said}"
    );
    let twice = [put("pools/kr/a", POOL), delete("pools/kr/a")];
    assert_eq!(refused(&korea(), &twice), "`pools/kr/a` is changed twice");
}

#[test]
fn taking_most_of_the_table_away_wants_to_be_said() {
    let most = [delete("chains/kr/t"), delete("pools/kr/kpop")];
    assert!(refused(&korea(), &most).starts_with("2 of 3 objects would go"));
    assert!(check(&korea(), &most, true).is_ok());
}

#[test]
fn a_record_can_be_taken_back_and_says_what_changed_since() {
    let before = korea();
    let changes = [
        put("pools/kr/kpop", r#"{"schema": 1, "policy": "random"}"#),
        put("pools/kr/rock", POOL),
    ];
    let words = ("e1".to_owned(), "ana".to_owned(), "try".to_owned(), 9);
    let record = record(&before, &changes, words);
    let after = check(&before, &changes, false).expect("it may be made");
    assert_eq!(since(&after, &record), Vec::<String>::new());
    let undone = check(
        &after,
        &undo(&after, &record).expect("its keys are sound"),
        false,
    )
    .expect("it can be taken back");
    assert_eq!(
        undone.digest(),
        table(&[
            ("chains/kr/t", r#"{"schema": 1, "pools": ["kpop"]}"#),
            ("pools/jp/jpop", POOL),
            ("pools/kr/kpop", r#"{"schema":1}"#),
        ])
        .digest()
    );
    let later = check(
        &after,
        &[put("pools/kr/rock", r#"{"schema": 1, "policy": "maglev"}"#)],
        false,
    )
    .expect("it may");
    assert_eq!(since(&later, &record), ["pools/kr/rock"]);
    let text = serde_json::to_string(&record).expect("it is JSON");
    assert_eq!(
        serde_json::from_str::<Record>(&text).expect("it is read"),
        record
    );
}

/// A newer form that was rejected stands in the store all the same: a roll-back that compared with the form in force, or with
/// nothing, was told of a conflict for ever.
#[test]
fn what_is_rolled_back_is_compared_with_what_stands_in_the_store() {
    let before = korea();
    let changes = [
        put("pools/kr/kpop", r#"{"schema": 1, "policy": "random"}"#),
        put("pools/kr/rock", POOL),
    ];
    let words = ("e1".to_owned(), "ana".to_owned(), "try".to_owned(), 9);
    let record = record(&before, &changes, words);
    let after = check(&before, &changes, false).expect("it may be made");
    let stored = [
        ("chains/kr/t", r#"{"schema": 1, "pools": ["kpop"]}"#, 4),
        ("pools/jp/jpop", POOL, 4),
        ("pools/kr/kpop", "{", 8),
        ("pools/kr/rock", "[]", 9),
    ];
    let stored = stored.map(|(key, value, modified)| Stored {
        key: key.as_bytes(),
        value: value.as_bytes(),
        modified,
    });
    let seen = |table: &Table| -> Vec<Option<u64>> {
        let changes = undo(table, &record).expect("its keys are sound");
        changes.iter().map(|change| change.seen).collect()
    };
    assert_eq!(seen(&after), [Some(5), Some(5)]);
    // One that has held the good forms before, and one that has just started.
    for previous in [Some(&after), None] {
        let now = Table::build(9, stored, previous).expect("it passes no limit");
        assert_eq!(seen(&now), [Some(8), Some(9)]);
        assert_eq!(since(&now, &record), ["pools/kr/kpop", "pools/kr/rock"]);
        let undone = undo(&now, &record).expect("its keys are sound");
        let undone = check(&now, &undone, false).expect("it can be taken back");
        assert_eq!(undone.rejected(), []);
        assert_eq!(
            undone.stored_at(&"pools/kr/rock".parse().expect("a key")),
            0
        );
    }
}

/// Each edit of a table of 20,000 objects read all of them again.
#[test]
fn an_edit_reads_what_it_changes_and_nothing_else() {
    let before = korea();
    let after = check(&before, &[put("pools/kr/rock", POOL)], false).expect("it may be made");
    for (object, held) in before.shared() {
        let (_, same) = after
            .shared()
            .find(|(other, _)| *other == object)
            .expect("it is held");
        assert!(std::sync::Arc::ptr_eq(held, same), "{object}");
    }
    assert_eq!((after.len(), after.revision()), (4, 5));
}

/// What says nothing counts for the loader, too, which would refuse the table.
#[test]
fn what_says_nothing_counts_for_the_limits_of_an_edit() {
    let keys: Vec<String> = (0..OBJECTS_MAX).map(|at| format!("routes/r{at}")).collect();
    let stored = keys.iter().enumerate().map(|(at, key)| Stored {
        key: key.as_bytes(),
        value: if at == 0 { b"{" } else { POOL.as_bytes() },
        modified: 4,
    });
    let full = Table::build(4, stored, None).expect("it passes no limit");
    let said = refused(&full, &[put("routes/more", POOL)]);
    assert!(said.starts_with("20001 objects are over"), "{said}");
    let instead = [put("routes/r0", POOL)];
    assert!(check(&full, &instead, false).is_ok());
}

#[test]
fn a_second_object_for_the_same_language_is_refused() {
    let settings = r#"{"schema": 1, "tokenizer": "ckip"}"#;
    let one = table(&[("settings/zh-Hant", settings)]);
    assert_eq!(
        refused(&one, &[put("settings/zh-hant", settings)]),
        "settings/zh-hant: `settings/zh-Hant` names the same language: upper and lower case are one; delete one of them"
    );
    let renamed = [
        delete("settings/zh-Hant"),
        put("settings/zh-hant", settings),
    ];
    assert!(check(&one, &renamed, true).is_ok());
}

#[test]
fn two_who_changed_different_fields_are_merged_and_one_field_is_a_conflict() {
    let base = json!({"schema": 1, "policy": "random", "health": {"path": "/", "rise": 2}});
    let theirs = json!({"schema": 1, "policy": "maglev", "health": {"path": "/", "rise": 2}});
    let ours = json!({"schema": 1, "policy": "random", "health": {"path": "/healthz", "rise": 2, "fall": 3}});
    let merged = merge(&base, &theirs, &ours).expect("they agree");
    assert_eq!(
        merged,
        json!({"schema": 1, "policy": "maglev", "health": {"path": "/healthz", "rise": 2, "fall": 3}})
    );
    let ours = json!({"schema": 1, "policy": "peak_ewma", "health": {"path": "/", "rise": 2}});
    assert_eq!(merge(&base, &theirs, &ours), None);
    let diffs = three_way(Some(&base), Some(&theirs), Some(&ours));
    assert_eq!(
        (diffs.len(), diffs[0].path.join(".")),
        (1, "policy".to_owned())
    );
    assert!(diffs[0].is_conflict());
    // What one side has deleted goes, and is not what the other has changed in it.
    let base = json!({"health": {"path": "/"}, "policy": "random"});
    let without = json!({"policy": "random"});
    assert_eq!(merge(&base, &base, &without), Some(without.clone()));
    let changed = json!({"health": {"path": "/", "fall": 3}, "policy": "random"});
    assert_eq!(merge(&base, &without, &changed), None);
    assert_eq!(merge(&base, &changed, &without), None);
    // A name with a dot in it is one name.
    let (base, ours) = (json!({"a.b": 1}), json!({"a.b": 2}));
    assert_eq!(merge(&base, &base, &ours), Some(ours));
    let base = json!({"schema": 1, "policy": "random"});
    let ours = json!({"schema": 1, "policy": "peak_ewma"});
    let gone = three_way(Some(&base), None, Some(&ours));
    assert!(gone.iter().any(FieldDiff::is_conflict), "{gone:?}");
}

//! Edits that are taken back.

use super::*;

fn ana() -> (String, String) {
    ("ana".to_owned(), String::new())
}

#[tokio::test]
async fn an_edit_is_taken_back_whole_and_so_is_that() {
    let place = Place::new();
    let start = vec![
        put("settings/ko", settings("a")),
        put("settings/ja", settings("a")),
    ];
    place.edit(start).await.expect("it may be made");
    let change = because(
        "a try",
        vec![
            put("settings/ko", settings("b")),
            gone("settings/ja"),
            put("settings/zh", settings("b")),
        ],
    );
    let made = place.editor.edit(&change).await.expect("it may be made");
    let back = place.editor.rollback(&made.edit, ana(), false).await;
    let back = back.expect("nothing stands against it");
    for (key, text) in [
        ("settings/ko", settings("a")),
        ("settings/ja", settings("a")),
    ] {
        assert_eq!(place.stands(key).await.1, text);
    }
    assert_eq!(place.stands("settings/zh").await.1, Value::Null);
    assert_eq!(
        place.whys().await[0],
        format!("takes back {}: a try", made.edit)
    );
    // By its revision, too; and what was taken back comes again.
    let again = place
        .editor
        .rollback(&back.revision.to_string(), ana(), false)
        .await;
    again.expect("nothing stands against it");
    assert_eq!(place.stands("settings/ko").await.1, settings("b"));
    assert_eq!(place.stands("settings/ja").await.1, Value::Null);
    assert_eq!(place.whys().await.len(), 4);
}

#[tokio::test]
async fn what_was_changed_since_is_not_lost_unless_it_is_said() {
    let place = Place::new();
    let made = place.edit(vec![put("settings/ko", settings("a"))]).await;
    let made = made.expect("it may be made");
    let later = because("later", vec![put("settings/ko", settings("b"))]);
    place.editor.edit(&later).await.expect("it may be made");
    let late = place.editor.rollback(&made.edit, ana(), false).await;
    let [conflict] = &conflicts(late)[..] else {
        panic!("one key");
    };
    assert_eq!(conflict.by.as_ref().map(|it| &*it.why), Some("later"));
    assert_eq!(place.stands("settings/ko").await.1, settings("b"));
    // It is all there was, so that goes is said as well.
    let forced = place.editor.rollback(&made.edit, ana(), true).await;
    forced.expect("it is meant");
    assert_eq!(place.stands("settings/ko").await.1, Value::Null);
}

#[tokio::test]
async fn what_is_not_written_down_is_not_taken_back() {
    let place = Place::new();
    let made = place.edit(vec![put("settings/ko", settings("a"))]).await;
    let made = made.expect("it may be made");
    let next = (made.revision + 1).to_string();
    for name in ["ffffffff", &next, "", "../head"] {
        let nothing = place.editor.rollback(name, ana(), false).await;
        assert!(
            matches!(nothing, Err(EditFailed::Nothing(_))),
            "{name}: {nothing:?}"
        );
    }
}

/// A document of a later version is nothing here, and still somebody's.
#[tokio::test]
async fn what_was_no_good_here_comes_back_as_it_was() {
    let place = Place::new();
    let later = json!({"schema": 2, "shape": "unknown"});
    place.write("settings/ko", &later).await;
    let made = place.edit(vec![put("settings/ko", settings("a"))]).await;
    let made = made.expect("it may be made");
    let edits = place.editor.history(None, 1).await.expect("a history");
    assert_eq!(edits[0].changes[0].before, Some(later));
    // To put it back is refused as any edit of that kind: it is not taken for nothing, and deleted.
    let back = place.editor.rollback(&made.edit, ana(), false).await;
    assert!(matches!(back, Err(EditFailed::Refused(_))), "{back:?}");
    assert_eq!(place.stands("settings/ko").await.1, settings("a"));
}

/// It would come back with no lease, or with an end that is over.
#[tokio::test]
async fn a_boost_comes_back_for_what_is_left_of_it() {
    let place = Place::new();
    place
        .edit(vec![put("pools/kr/kpop", pool())])
        .await
        .expect("a pool");
    let names = (
        "kr".parse().expect("a name"),
        "kpop".parse().expect("a name"),
    );
    let long = (2.0, Duration::from_secs(3600));
    let (_, boost) = place
        .editor
        .boost((&names.0, &names.1), long, ana())
        .await
        .expect("it may be boosted");
    let ended = place
        .editor
        .end_boost(&boost.id, ana())
        .await
        .expect("it is there");
    place
        .editor
        .rollback(&ended.edit, ana(), false)
        .await
        .expect("it comes back");
    let boosts = place.editor.boosts().await.expect("boosts");
    assert_eq!(boosts[0].expires_at_ms, boost.expires_at_ms);
    let key = place.key(&format!("boosts/kr/kpop/{}", boost.id));
    let entry = place
        .editor
        .entry(key, None)
        .await
        .expect("a store")
        .expect("it is there");
    let lease = place
        .store()
        .lease(entry.lease.expect("it has a lease"))
        .await;
    let left = lease.expect("it is alive").left;
    assert!(
        left <= Duration::from_secs(3630) && left > Duration::from_secs(3500),
        "{left:?}"
    );
}

#[tokio::test]
async fn a_boost_that_has_ended_stays_away_and_the_rest_comes_back() {
    let place = Place::new();
    place
        .edit(vec![put("pools/kr/kpop", pool())])
        .await
        .expect("a pool");
    let boost = json!({"schema": 1, "factor": 2, "expires_at_ms": 1});
    let record = json!({
        "schema": 1, "edit": "beef", "author": "ana", "why": "", "at_ms": 1,
        "changes": [
            {"key": "boosts/kr/kpop/b", "before": boost, "after": null},
            {"key": "settings/ko", "before": settings("a"), "after": null},
        ],
    });
    let record = Operation::put(place.editor.layout().edit(2), record.to_string());
    let head = Operation::put(place.editor.layout().head(), "{\"number\": 2}");
    let transaction = Transaction {
        compares: Vec::new(),
        operations: vec![record, head],
    };
    place
        .store()
        .commit(transaction)
        .await
        .expect("it is written");
    place
        .editor
        .rollback("beef", ana(), false)
        .await
        .expect("it comes back");
    assert_eq!(place.stands("settings/ko").await.1, settings("a"));
    assert_eq!(place.editor.boosts().await.expect("boosts"), []);
}

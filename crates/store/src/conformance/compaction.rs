//! What is forgotten, and how whoever asks for it is told.

use super::cases;
use super::place::Place;
use crate::{Entry, Error, Event};
use bytes::Bytes;
use std::collections::BTreeMap;

cases! {
    compaction_keeps_what_is_in_force
    compaction_makes_no_revision
    an_older_listing_is_told_the_oldest
    an_older_watch_is_told_the_oldest
    changes_after_a_compaction_are_followed
    a_compaction_is_done_once
    a_compaction_of_what_is_to_come_is_refused
    the_present_can_be_compacted_at
    a_deleted_key_stays_deleted_after_compaction
    versions_count_on_after_compaction
    compares_see_the_same_after_compaction
    a_watch_that_keeps_up_is_left_alone
    a_watch_that_falls_behind_is_whole_or_told
    list_and_compare_repairs_what_was_missed
    compactions_follow_one_another
}

async fn compaction_keeps_what_is_in_force(place: Place) -> Result<(), Error> {
    place.put("a", "1").await?;
    place.put("a", "2").await?;
    place.put("b", "1").await?;
    let at = place.delete("b").await?.revision;
    let expected = place.list(place.all()).await?.entries;
    place.put("a", "3").await?;
    let present = place.list(place.all()).await?;
    place.store.compact(at).await?;
    assert_eq!(place.list(place.all()).await?, present);
    assert_eq!(place.list_at(place.all(), at).await?.entries, expected);
    Ok(())
}

async fn compaction_makes_no_revision(place: Place) -> Result<(), Error> {
    place.put("a", "1").await?;
    let last = place.put("a", "2").await?;
    place.store.compact(last - 1).await?;
    assert_eq!(place.revision().await?, last);
    assert_eq!(place.put("a", "3").await?, last + 1);
    Ok(())
}

async fn an_older_listing_is_told_the_oldest(place: Place) -> Result<(), Error> {
    let first = place.put("a", "1").await?;
    let oldest = place.put("a", "2").await?;
    place.put("a", "3").await?;
    place.store.compact(oldest).await?;
    let refused = place.list_at(place.all(), first).await;
    assert_eq!(refused, Err(Error::Compacted { oldest }));
    let listing = place.list_at(place.all(), oldest).await?;
    assert_eq!(listing.entries[0].value, "2");
    Ok(())
}

async fn an_older_watch_is_told_the_oldest(place: Place) -> Result<(), Error> {
    let first = place.put("a", "1").await?;
    let oldest = place.put("a", "2").await?;
    place.put("a", "3").await?;
    place.store.compact(oldest).await?;
    for from in [first, 1, 0] {
        let told = match place.watch(place.all(), from).await {
            Err(error) => error,
            Ok(mut watch) => {
                let told = watch.batch().await.expect_err("history is missing");
                assert_eq!(
                    watch.batch().await,
                    Err(told.clone()),
                    "it says the same again"
                );
                told
            }
        };
        assert_eq!(told, Error::Compacted { oldest }, "from {from}");
    }
    Ok(())
}

async fn changes_after_a_compaction_are_followed(place: Place) -> Result<(), Error> {
    place.put("a", "1").await?;
    let at = place.put("a", "2").await?;
    place.put("a", "3").await?;
    place.delete("a").await?;
    place.store.compact(at).await?;
    let mut watch = place.watch(place.all(), at + 1).await?;
    assert_eq!(watch.words().await?, "+a=3");
    assert_eq!(watch.words().await?, "-a");
    place.put("a", "4").await?;
    assert_eq!(watch.words().await?, "+a=4");
    Ok(())
}

async fn a_compaction_is_done_once(place: Place) -> Result<(), Error> {
    let first = place.put("a", "1").await?;
    let oldest = place.put("a", "2").await?;
    place.put("a", "3").await?;
    place.store.compact(oldest).await?;
    for at in [oldest, first] {
        let refused = place.store.compact(at).await;
        assert_eq!(refused, Err(Error::Compacted { oldest }));
    }
    Ok(())
}

async fn a_compaction_of_what_is_to_come_is_refused(place: Place) -> Result<(), Error> {
    let current = place.put("a", "1").await?;
    let asked = current + 1;
    let refused = place.store.compact(asked).await;
    assert_eq!(refused, Err(Error::Future { asked, current }));
    assert_eq!(place.list_at(place.all(), current).await?.entries.len(), 1);
    Ok(())
}

async fn the_present_can_be_compacted_at(place: Place) -> Result<(), Error> {
    let first = place.put("a", "1").await?;
    let last = place.put("b", "1").await?;
    place.store.compact(last).await?;
    assert_eq!(place.names().await?, ["a", "b"]);
    let refused = place.list_at(place.all(), first).await;
    assert_eq!(refused, Err(Error::Compacted { oldest: last }));
    let mut watch = place.watch(place.all(), last + 1).await?;
    place.put("a", "2").await?;
    assert_eq!(watch.words().await?, "+a=2");
    Ok(())
}

async fn a_deleted_key_stays_deleted_after_compaction(place: Place) -> Result<(), Error> {
    place.put("a", "1").await?;
    let deleted = place.delete("a").await?.revision;
    place.put("b", "1").await?;
    place.store.compact(deleted).await?;
    assert_eq!(place.names().await?, ["b"]);
    assert_eq!(place.list_at(place.all(), deleted).await?.entries.len(), 0);
    let again = place.put("a", "2").await?;
    let entry = place.entry("a").await?.expect("it was put");
    assert_eq!((entry.created, entry.version), (again, 1));
    Ok(())
}

async fn versions_count_on_after_compaction(place: Place) -> Result<(), Error> {
    let created = place.put("a", "1").await?;
    let at = place.put("a", "2").await?;
    place.store.compact(at).await?;
    place.put("a", "3").await?;
    let entry = place.entry("a").await?.expect("it was put");
    assert_eq!((entry.created, entry.version), (created, 3));
    Ok(())
}

async fn compares_see_the_same_after_compaction(place: Place) -> Result<(), Error> {
    let created = place.put("a", "1").await?;
    let modified = place.put("a", "2").await?;
    let at = place.put("b", "1").await?;
    place.store.compact(at).await?;
    let compare = |target| crate::Compare {
        key: place.key("a"),
        relation: crate::Relation::Equal,
        target,
    };
    let compares = [
        compare(crate::Target::Created(created)),
        compare(crate::Target::Modified(modified)),
        compare(crate::Target::Version(2)),
        compare(crate::Target::Value("2".into())),
        crate::Compare::absent(place.key("c")),
    ];
    place.commit(compares, []).await?;
    Ok(())
}

async fn a_watch_that_keeps_up_is_left_alone(place: Place) -> Result<(), Error> {
    let mut watch = place.watch_all().await?;
    for turn in 0..50 {
        let revision = place.put("a", &turn.to_string()).await?;
        assert_eq!(watch.words().await?, format!("+a={turn}"));
        if turn % 10 == 9 {
            place.store.compact(revision).await?;
        }
    }
    Ok(())
}

/// A store may hold for a watch what it forgets otherwise, or not. What it says is in order and without a gap in any case.
async fn a_watch_that_falls_behind_is_whole_or_told(place: Place) -> Result<(), Error> {
    let first = place.put("a", "0").await?;
    let mut watch = place.watch(place.all(), first).await?;
    for turn in 1..1_000 {
        place.put("a", &turn.to_string()).await?;
    }
    let oldest = first + 900;
    place.store.compact(oldest).await?;
    for turn in 0..1_000 {
        match watch.words().await {
            Ok(words) => assert_eq!(words, format!("+a={turn}")),
            Err(told) => {
                assert_eq!(told, Error::Compacted { oldest }, "after {turn}");
                assert!(turn < 900, "what is held is said");
                assert_eq!(watch.words().await, Err(told), "it says the same again");
                return Ok(());
            }
        }
    }
    Ok(())
}

/// What a reader knows of the keys here.
type Known = BTreeMap<Bytes, Entry>;

async fn list_and_compare_repairs_what_was_missed(place: Place) -> Result<(), Error> {
    for name in ["stays", "changes", "goes", "comes back"] {
        place.put(name, "1").await?;
    }
    let listing = place.list(place.all()).await?;
    let mut known: Known = listing
        .entries
        .into_iter()
        .map(|e| (e.key.clone(), e))
        .collect();
    place.put("changes", "2").await?;
    place.delete("goes").await?;
    place.delete("comes back").await?;
    place.put("comes back", "2").await?;
    let at = place.put("new", "1").await?;
    place.store.compact(at).await?;
    // The watch that would say all this is refused: what differs is found by listing.
    let listing = place.list(place.all()).await?;
    let listed: Known = listing
        .entries
        .into_iter()
        .map(|e| (e.key.clone(), e))
        .collect();
    let gone: Vec<_> = known
        .keys()
        .filter(|key| !listed.contains_key(*key))
        .collect();
    assert_eq!(gone, [&place.key("goes")]);
    let changed = listed
        .iter()
        .filter(|(key, entry)| known.get(*key) != Some(entry));
    let changed: Vec<_> = changed.map(|(key, _)| place.name(key)).collect();
    assert_eq!(changed, ["changes", "comes back", "new"]);
    known = listed;
    let mut watch = place.watch(place.all(), listing.revision + 1).await?;
    place.delete("stays").await?;
    place.put("goes", "again").await?;
    for _ in 0..2 {
        for event in watch.batch().await?.events {
            match event {
                Event::Put(entry) => known.insert(entry.key.clone(), entry),
                Event::Delete(key) => known.remove(&key),
            };
        }
    }
    let listed = place.list(place.all()).await?.entries;
    assert_eq!(known.into_values().collect::<Vec<_>>(), listed);
    Ok(())
}

async fn compactions_follow_one_another(place: Place) -> Result<(), Error> {
    for turn in 0..10 {
        let older = place.put("a", &turn.to_string()).await?;
        let oldest = place.put("b", &turn.to_string()).await?;
        place.store.compact(oldest).await?;
        let refused = place.list_at(place.all(), older).await;
        assert_eq!(refused, Err(Error::Compacted { oldest }));
        assert_eq!(place.list_at(place.all(), oldest).await?.entries.len(), 2);
    }
    Ok(())
}

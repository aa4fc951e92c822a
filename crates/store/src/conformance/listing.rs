//! What is there, now and earlier.

use super::cases;
use super::place::Place;
use crate::{Error, Query, Range};

cases! {
    a_key_is_listed_without_its_extensions
    an_absent_key_lists_nothing_at_the_present_revision
    a_prefix_lists_in_the_order_of_bytes
    a_prefix_is_bytes_not_a_path
    a_prefix_lists_the_key_of_that_name_too
    an_empty_prefix_lists_everything
    a_prefix_of_the_highest_bytes_ends_nowhere
    keys_only_leaves_out_the_values_and_nothing_else
    an_old_revision_shows_the_old_value
    an_old_revision_shows_what_was_deleted_since
    an_old_revision_hides_what_was_created_since
    an_old_revision_is_listed_with_the_present_one
    the_present_revision_can_be_asked_for
    a_revision_to_come_is_refused
    revision_zero_is_never_the_present
    every_revision_of_a_history_can_be_listed
    an_acknowledged_change_is_always_seen
}

async fn a_key_is_listed_without_its_extensions(place: Place) -> Result<(), Error> {
    place.put("a", "1").await?;
    place.put("a/b", "2").await?;
    place.put("aa", "3").await?;
    let listing = place.list(place.only("a")).await?;
    assert_eq!(listing.entries.len(), 1);
    assert_eq!(listing.entries[0].value, "1");
    Ok(())
}

async fn an_absent_key_lists_nothing_at_the_present_revision(place: Place) -> Result<(), Error> {
    let revision = place.put("a", "1").await?;
    let listing = place.list(place.only("b")).await?;
    assert_eq!((listing.revision, listing.entries.len()), (revision, 0));
    Ok(())
}

async fn a_prefix_lists_in_the_order_of_bytes(place: Place) -> Result<(), Error> {
    for name in ["b", "a/2", "B", "a", "a/10", "~", "a-", "0"] {
        place.put(name, "x").await?;
    }
    let expected = ["0", "B", "a", "a-", "a/10", "a/2", "b", "~"];
    assert_eq!(place.names().await?, expected);
    Ok(())
}

async fn a_prefix_is_bytes_not_a_path(place: Place) -> Result<(), Error> {
    for name in ["po", "pool", "pools", "pools/kr", "q"] {
        place.put(name, "x").await?;
    }
    let listing = place.list(place.below("poo")).await?;
    let names: Vec<_> = listing.entries.iter().map(|e| place.name(&e.key)).collect();
    assert_eq!(names, ["pool", "pools", "pools/kr"]);
    Ok(())
}

async fn a_prefix_lists_the_key_of_that_name_too(place: Place) -> Result<(), Error> {
    place.put("a", "1").await?;
    place.put("ab", "2").await?;
    let listing = place.list(place.below("a")).await?;
    assert_eq!(listing.entries.len(), 2);
    assert_eq!(place.list(place.below("ab")).await?.entries.len(), 1);
    assert_eq!(place.list(place.below("abc")).await?.entries.len(), 0);
    Ok(())
}

async fn an_empty_prefix_lists_everything(place: Place) -> Result<(), Error> {
    place.put("a", "1").await?;
    place.put("b", "2").await?;
    let everything = place.list(Range::Prefix("".into())).await?;
    assert!(everything.entries.is_sorted_by(|a, b| a.key < b.key));
    let mut here = everything.entries;
    here.retain(|entry| place.all().contains(&entry.key));
    assert_eq!(here, place.list(place.all()).await?.entries);
    Ok(())
}

async fn a_prefix_of_the_highest_bytes_ends_nowhere(place: Place) -> Result<(), Error> {
    let names: [&[u8]; 4] = [b"\xfe", b"\xff", b"\xff\xff", b"\xff\xff\x00"];
    for name in names {
        let put = crate::Operation::put(place.key(name), "x");
        place.commit([], [put]).await?;
    }
    for (name, count) in [(&b"\xff"[..], 3), (b"\xff\xff", 2), (b"\xff\xff\xff", 0)] {
        let listing = place.list(Range::Prefix(place.key(name))).await?;
        assert_eq!(listing.entries.len(), count, "{}", name.escape_ascii());
    }
    let bare = place.list(Range::Prefix(b"\xff\xff"[..].into())).await?;
    assert!(
        bare.entries
            .iter()
            .all(|entry| entry.key.starts_with(b"\xff\xff"))
    );
    Ok(())
}

async fn keys_only_leaves_out_the_values_and_nothing_else(place: Place) -> Result<(), Error> {
    place.put("a", "1").await?;
    place.put("a", "2").await?;
    place.put("b", "3").await?;
    let mut expected = place.list(place.all()).await?;
    for entry in &mut expected.entries {
        entry.value = "".into();
    }
    let query = Query {
        keys_only: true,
        ..Query::now(place.all())
    };
    assert_eq!(place.store.list(query).await?, expected);
    Ok(())
}

async fn an_old_revision_shows_the_old_value(place: Place) -> Result<(), Error> {
    let first = place.put("a", "old").await?;
    place.put("a", "new").await?;
    let listing = place.list_at(place.all(), first).await?;
    assert_eq!(listing.entries.len(), 1);
    let entry = &listing.entries[0];
    assert_eq!(entry.value, "old");
    assert_eq!((entry.modified, entry.version), (first, 1));
    Ok(())
}

async fn an_old_revision_shows_what_was_deleted_since(place: Place) -> Result<(), Error> {
    let first = place.put("a", "1").await?;
    let deleted = place.delete("a").await?.revision;
    let before = place.list_at(place.only("a"), first).await?;
    assert_eq!(before.entries.len(), 1);
    let after = place.list_at(place.only("a"), deleted).await?;
    assert_eq!(after.entries.len(), 0);
    Ok(())
}

async fn an_old_revision_hides_what_was_created_since(place: Place) -> Result<(), Error> {
    let first = place.put("a", "1").await?;
    place.put("b", "2").await?;
    let listing = place.list_at(place.all(), first).await?;
    assert_eq!(listing.entries.len(), 1);
    assert_eq!(place.name(&listing.entries[0].key), "a");
    Ok(())
}

async fn an_old_revision_is_listed_with_the_present_one(place: Place) -> Result<(), Error> {
    let first = place.put("a", "1").await?;
    let last = place.put("a", "2").await?;
    let listing = place.list_at(place.all(), first).await?;
    assert_eq!(listing.revision, last);
    Ok(())
}

async fn the_present_revision_can_be_asked_for(place: Place) -> Result<(), Error> {
    place.put("a", "1").await?;
    let last = place.put("b", "2").await?;
    let listing = place.list_at(place.all(), last).await?;
    assert_eq!(listing, place.list(place.all()).await?);
    Ok(())
}

async fn a_revision_to_come_is_refused(place: Place) -> Result<(), Error> {
    let current = place.put("a", "1").await?;
    let asked = current + 1;
    let refused = place.list_at(place.all(), asked).await;
    assert_eq!(refused, Err(Error::Future { asked, current }));
    Ok(())
}

async fn revision_zero_is_never_the_present(place: Place) -> Result<(), Error> {
    place.put("a", "1").await?;
    match place.list_at(place.all(), 0).await {
        Ok(listing) => assert_eq!(listing.entries.len(), 0),
        Err(Error::Compacted { oldest }) => assert!(oldest > 0),
        Err(other) => return Err(other),
    }
    Ok(())
}

async fn every_revision_of_a_history_can_be_listed(place: Place) -> Result<(), Error> {
    let mut expected = Vec::new();
    for turn in 0..60 {
        let name = format!("k{}", turn % 7);
        let revision = match turn % 5 {
            4 => place.delete(&name).await?.revision,
            _ => place.put(&name, &turn.to_string()).await?,
        };
        expected.push((revision, place.list(place.all()).await?.entries));
    }
    for (revision, entries) in expected {
        let listing = place.list_at(place.all(), revision).await?;
        assert_eq!(listing.entries, entries, "at revision {revision}");
    }
    Ok(())
}

async fn an_acknowledged_change_is_always_seen(place: Place) -> Result<(), Error> {
    for turn in 0..200 {
        let value = turn.to_string();
        let revision = place.put("a", &value).await?;
        let listing = place.list(place.only("a")).await?;
        assert_eq!(listing.revision, revision);
        assert_eq!(listing.entries[0].value, value);
    }
    Ok(())
}

//! Which revision a change makes, and what an entry says of its own.

use super::cases;
use super::place::Place;
use crate::Error;

cases! {
    a_put_makes_the_next_revision
    a_transaction_of_many_operations_makes_one_revision
    a_new_entry_is_created_and_modified_at_its_revision
    an_overwritten_entry_keeps_when_it_was_created
    an_equal_value_is_a_change_too
    a_deleted_key_comes_back_as_a_new_one
    a_delete_makes_a_revision_and_says_how_many
    a_delete_by_prefix_makes_one_revision
    a_delete_of_nothing_makes_no_revision
    a_delete_of_something_and_of_nothing_makes_one_revision
    a_key_that_two_deletes_name_is_counted_once
    an_empty_transaction_makes_no_revision
    compares_alone_make_no_revision
    an_unfulfilled_transaction_makes_no_revision
    identity_says_the_revision_and_stays_the_same
    versions_count_a_thousand_puts
}

async fn a_put_makes_the_next_revision(place: Place) -> Result<(), Error> {
    let before = place.revision().await?;
    assert_eq!(place.put("a", "1").await?, before + 1);
    assert_eq!(place.put("a", "2").await?, before + 2);
    assert_eq!(place.put("b", "1").await?, before + 3);
    assert_eq!(place.revision().await?, before + 3);
    Ok(())
}

async fn a_transaction_of_many_operations_makes_one_revision(place: Place) -> Result<(), Error> {
    let before = place.put("gone", "1").await?;
    let operations = [
        place.put_of("a", "1"),
        place.put_of("b", "2"),
        place.delete_of("gone"),
    ];
    let done = place.commit([], operations).await?;
    assert_eq!((done.revision, done.deleted), (before + 1, 1));
    for entry in place.list(place.all()).await?.entries {
        assert_eq!(entry.modified, before + 1);
    }
    assert_eq!(place.names().await?, ["a", "b"]);
    Ok(())
}

async fn a_new_entry_is_created_and_modified_at_its_revision(place: Place) -> Result<(), Error> {
    let revision = place.put("a", "1").await?;
    let entry = place.entry("a").await?.expect("it was put");
    assert_eq!(entry.key, place.key("a"));
    assert_eq!(entry.value, "1");
    assert_eq!((entry.created, entry.modified), (revision, revision));
    assert_eq!((entry.version, entry.lease), (1, None));
    Ok(())
}

async fn an_overwritten_entry_keeps_when_it_was_created(place: Place) -> Result<(), Error> {
    let first = place.put("a", "1").await?;
    place.put("other", "1").await?;
    let second = place.put("a", "2").await?;
    let entry = place.entry("a").await?.expect("it was put");
    assert_eq!(entry.value, "2");
    assert_eq!((entry.created, entry.modified), (first, second));
    assert_eq!(entry.version, 2);
    Ok(())
}

async fn an_equal_value_is_a_change_too(place: Place) -> Result<(), Error> {
    let first = place.put("a", "same").await?;
    assert_eq!(place.put("a", "same").await?, first + 1);
    let entry = place.entry("a").await?.expect("it was put");
    assert_eq!((entry.modified, entry.version), (first + 1, 2));
    Ok(())
}

async fn a_deleted_key_comes_back_as_a_new_one(place: Place) -> Result<(), Error> {
    place.put("a", "1").await?;
    place.put("a", "2").await?;
    place.delete("a").await?;
    assert_eq!(place.entry("a").await?, None);
    let again = place.put("a", "3").await?;
    let entry = place.entry("a").await?.expect("it was put");
    assert_eq!((entry.created, entry.modified), (again, again));
    assert_eq!(entry.version, 1);
    Ok(())
}

async fn a_delete_makes_a_revision_and_says_how_many(place: Place) -> Result<(), Error> {
    let before = place.put("a", "1").await?;
    let done = place.delete("a").await?;
    assert_eq!((done.revision, done.deleted), (before + 1, 1));
    assert_eq!(place.revision().await?, before + 1);
    Ok(())
}

async fn a_delete_by_prefix_makes_one_revision(place: Place) -> Result<(), Error> {
    for name in ["a", "d/1", "d/2", "d/3", "e"] {
        place.put(name, "x").await?;
    }
    let before = place.revision().await?;
    let delete = crate::Operation::Delete(place.below("d/"));
    let done = place.commit([], [delete]).await?;
    assert_eq!((done.revision, done.deleted), (before + 1, 3));
    assert_eq!(place.names().await?, ["a", "e"]);
    Ok(())
}

async fn a_delete_of_nothing_makes_no_revision(place: Place) -> Result<(), Error> {
    let before = place.put("a", "1").await?;
    let done = place.delete("absent").await?;
    assert_eq!((done.revision, done.deleted), (before, 0));
    let delete = crate::Operation::Delete(place.below("absent"));
    let done = place.commit([], [delete]).await?;
    assert_eq!((done.revision, done.deleted), (before, 0));
    assert_eq!(place.put("a", "2").await?, before + 1);
    Ok(())
}

async fn a_delete_of_something_and_of_nothing_makes_one_revision(
    place: Place,
) -> Result<(), Error> {
    let before = place.put("a", "1").await?;
    let operations = [place.delete_of("absent"), place.delete_of("a")];
    let done = place.commit([], operations).await?;
    assert_eq!((done.revision, done.deleted), (before + 1, 1));
    Ok(())
}

async fn a_key_that_two_deletes_name_is_counted_once(place: Place) -> Result<(), Error> {
    place.put("a/1", "1").await?;
    let before = place.put("a/2", "1").await?;
    let operations = [
        place.delete_of("a/1"),
        crate::Operation::Delete(place.below("a/")),
        place.delete_of("a/2"),
    ];
    let mut watch = place.watch_all().await?;
    let done = place.commit([], operations).await?;
    assert_eq!((done.revision, done.deleted), (before + 1, 2));
    assert_eq!(watch.words().await?, "-a/1 -a/2");
    Ok(())
}

async fn an_empty_transaction_makes_no_revision(place: Place) -> Result<(), Error> {
    let before = place.put("a", "1").await?;
    let done = place.commit([], []).await?;
    assert_eq!((done.revision, done.deleted), (before, 0));
    assert_eq!(place.put("a", "2").await?, before + 1);
    Ok(())
}

async fn compares_alone_make_no_revision(place: Place) -> Result<(), Error> {
    let before = place.put("a", "1").await?;
    let compare = crate::Compare::modified(place.key("a"), before);
    let done = place.commit([compare], []).await?;
    assert_eq!((done.revision, done.deleted), (before, 0));
    assert_eq!(place.revision().await?, before);
    Ok(())
}

async fn an_unfulfilled_transaction_makes_no_revision(place: Place) -> Result<(), Error> {
    let before = place.put("a", "1").await?;
    let compare = crate::Compare::absent(place.key("a"));
    let refused = place.commit([compare], [place.put_of("a", "2")]).await;
    assert!(matches!(refused, Err(Error::Conflict(_))), "{refused:?}");
    assert_eq!(place.revision().await?, before);
    assert_eq!(place.put("b", "1").await?, before + 1);
    Ok(())
}

async fn identity_says_the_revision_and_stays_the_same(place: Place) -> Result<(), Error> {
    let first = place.store.identity().await?;
    assert_eq!(first.revision, place.revision().await?);
    assert_ne!(first.id, 0);
    assert!(!first.version.is_empty());
    let revision = place.put("a", "1").await?;
    let second = place.store.identity().await?;
    assert_eq!((second.id, second.revision), (first.id, revision));
    Ok(())
}

async fn versions_count_a_thousand_puts(place: Place) -> Result<(), Error> {
    let first = place.put("a", "0").await?;
    for turn in 1..1_000 {
        place.put("a", &turn.to_string()).await?;
    }
    let entry = place.entry("a").await?.expect("it was put");
    assert_eq!(entry.version, 1_000);
    assert_eq!((entry.created, entry.modified), (first, first + 999));
    assert_eq!(entry.value, "999");
    Ok(())
}

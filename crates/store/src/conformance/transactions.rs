//! All or nothing.

use super::cases;
use super::place::Place;
use crate::{Compare, Error, LeaseId, Operation};

cases! {
    an_operation_under_a_dead_lease_undoes_the_others
    a_conflict_is_said_before_a_dead_lease
    a_limit_is_said_before_a_conflict
    a_key_put_twice_is_refused
    a_key_put_and_deleted_is_refused
    a_key_put_below_a_deleted_prefix_is_refused
    an_empty_key_is_refused
    a_key_deleted_twice_is_taken
    a_move_of_a_key_is_one_change
    a_prefix_is_replaced_at_once
}

async fn an_operation_under_a_dead_lease_undoes_the_others(place: Place) -> Result<(), Error> {
    let before = place.put("a", "1").await?;
    let operations = [
        place.put_of("a", "2"),
        place.put_of("b", "1"),
        place.leased("c", LeaseId(12_345)),
    ];
    let refused = place.commit([], operations).await;
    assert_eq!(refused, Err(Error::NoLease(LeaseId(12_345))));
    assert_eq!(place.revision().await?, before);
    assert_eq!(place.names().await?, ["a"]);
    assert_eq!(place.entry("a").await?.expect("it is there").value, "1");
    Ok(())
}

async fn a_conflict_is_said_before_a_dead_lease(place: Place) -> Result<(), Error> {
    place.put("a", "1").await?;
    let compare = Compare::absent(place.key("a"));
    let operation = place.leased("a", LeaseId(12_345));
    let refused = place.commit([compare], [operation]).await;
    assert!(matches!(refused, Err(Error::Conflict(_))), "{refused:?}");
    Ok(())
}

async fn a_limit_is_said_before_a_conflict(place: Place) -> Result<(), Error> {
    place.put("a", "1").await?;
    let compare = Compare::absent(place.key("a"));
    let refused = place.commit([compare], [Operation::put("", "")]).await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    Ok(())
}

/// A transaction of `operations` is refused as one that no store takes, and changes nothing.
async fn refused(place: &Place, operations: Vec<Operation>) -> Result<(), Error> {
    let before = place.revision().await?;
    let outcome = place.commit([], operations).await;
    assert!(matches!(outcome, Err(Error::Invalid(_))), "{outcome:?}");
    assert_eq!(place.revision().await?, before);
    Ok(())
}

async fn a_key_put_twice_is_refused(place: Place) -> Result<(), Error> {
    refused(&place, vec![place.put_of("a", "1"), place.put_of("a", "1")]).await
}

async fn a_key_put_and_deleted_is_refused(place: Place) -> Result<(), Error> {
    refused(&place, vec![place.put_of("a", "1"), place.delete_of("a")]).await?;
    refused(&place, vec![place.delete_of("a"), place.put_of("a", "1")]).await
}

async fn a_key_put_below_a_deleted_prefix_is_refused(place: Place) -> Result<(), Error> {
    let delete = Operation::Delete(place.below("a/"));
    refused(&place, vec![delete.clone(), place.put_of("a/1", "1")]).await?;
    refused(&place, vec![place.put_of("a/1", "1"), delete.clone()]).await?;
    place.commit([], [delete, place.put_of("a", "1")]).await?;
    Ok(())
}

async fn an_empty_key_is_refused(place: Place) -> Result<(), Error> {
    refused(&place, vec![Operation::put("", "1")]).await?;
    refused(&place, vec![Operation::delete("")]).await?;
    let outcome = place.commit([Compare::absent("")], []).await;
    assert!(matches!(outcome, Err(Error::Invalid(_))), "{outcome:?}");
    Ok(())
}

async fn a_key_deleted_twice_is_taken(place: Place) -> Result<(), Error> {
    place.put("a", "1").await?;
    let operations = [place.delete_of("a"), place.delete_of("a")];
    assert_eq!(place.commit([], operations).await?.deleted, 1);
    Ok(())
}

async fn a_move_of_a_key_is_one_change(place: Place) -> Result<(), Error> {
    let revision = place.put("old", "1").await?;
    let compares = [
        Compare::modified(place.key("old"), revision),
        Compare::absent(place.key("new")),
    ];
    let operations = [place.delete_of("old"), place.put_of("new", "1")];
    let mut watch = place.watch_all().await?;
    place.commit(compares, operations).await?;
    assert_eq!(watch.words().await?, "-old +new=1");
    assert_eq!(place.names().await?, ["new"]);
    Ok(())
}

async fn a_prefix_is_replaced_at_once(place: Place) -> Result<(), Error> {
    for name in ["v1/a", "v1/b", "v1/c"] {
        place.put(name, "x").await?;
    }
    let before = place.revision().await?;
    let operations = [
        Operation::Delete(place.below("v1/")),
        place.put_of("v2/a", "y"),
        place.put_of("v2/b", "y"),
    ];
    let done = place.commit([], operations).await?;
    assert_eq!((done.revision, done.deleted), (before + 1, 3));
    assert_eq!(place.names().await?, ["v2/a", "v2/b"]);
    let listing = place.list_at(place.all(), before).await?;
    assert_eq!(listing.entries.len(), 3);
    Ok(())
}

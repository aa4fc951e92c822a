//! The last size that is taken and the first that is not.

use super::cases;
use super::place::Place;
use crate::{
    Compare, Error, KEY_BYTES_MAX, LEASE_LIFE_MAX, LEASE_LIFE_MIN, OPERATIONS_MAX, Operation,
    Range, Relation, TRANSACTION_BYTES_MAX, Target, VALUE_BYTES_MAX, What,
};
use bytes::Bytes;
use std::time::Duration;

cases! {
    as_many_operations_as_may_be
    as_many_compares_as_may_be
    the_longest_key
    the_longest_prefix
    the_longest_value
    the_largest_transaction
    the_longest_compared_value
    the_shortest_and_the_longest_lease
}

/// `outcome` is that `what` is one more than may be.
fn one_too_many<T: std::fmt::Debug>(outcome: Result<T, Error>, what: What, limit: usize) {
    let found = limit + 1;
    match outcome {
        Err(error) => assert_eq!(error, Error::TooLarge { what, found, limit }),
        Ok(done) => panic!("{found} of {what} are taken: {done:?}"),
    }
}

async fn as_many_operations_as_may_be(place: Place) -> Result<(), Error> {
    let mut puts: Vec<_> = (0..OPERATIONS_MAX)
        .map(|at| place.put_of(&format!("k{at}"), "1"))
        .collect();
    place.commit([], puts.clone()).await?;
    assert_eq!(place.names().await?.len(), OPERATIONS_MAX);
    let before = place.revision().await?;
    puts.push(place.put_of("more", "1"));
    let outcome = place.commit([], puts).await;
    one_too_many(outcome, What::Operations, OPERATIONS_MAX);
    assert_eq!(place.revision().await?, before);
    Ok(())
}

async fn as_many_compares_as_may_be(place: Place) -> Result<(), Error> {
    let mut compares: Vec<_> = (0..OPERATIONS_MAX)
        .map(|at| Compare::absent(place.key(format!("k{at}"))))
        .collect();
    place
        .commit(compares.clone(), [place.put_of("a", "1")])
        .await?;
    compares.push(Compare::absent(place.key("more")));
    let outcome = place.commit(compares, [place.put_of("a", "2")]).await;
    one_too_many(outcome, What::Compares, OPERATIONS_MAX);
    Ok(())
}

/// A key of `bytes` bytes here.
fn key_of(place: &Place, bytes: usize) -> Bytes {
    let begin = place.key("");
    place.key("k".repeat(bytes - begin.len()))
}

async fn the_longest_key(place: Place) -> Result<(), Error> {
    let key = key_of(&place, KEY_BYTES_MAX);
    place.commit([], [Operation::put(key.clone(), "1")]).await?;
    let listing = place.list(Range::Key(key.clone())).await?;
    assert_eq!(listing.entries[0].key, key);
    place.commit([], [Operation::delete(key)]).await?;
    let key = key_of(&place, KEY_BYTES_MAX + 1);
    for operation in [
        Operation::put(key.clone(), "1"),
        Operation::delete(key.clone()),
    ] {
        let outcome = place.commit([], [operation]).await;
        one_too_many(outcome, What::Key, KEY_BYTES_MAX);
    }
    let outcome = place.commit([Compare::absent(key)], []).await;
    one_too_many(outcome, What::Key, KEY_BYTES_MAX);
    Ok(())
}

async fn the_longest_prefix(place: Place) -> Result<(), Error> {
    let key = key_of(&place, KEY_BYTES_MAX);
    place.commit([], [Operation::put(key.clone(), "1")]).await?;
    let delete = Operation::Delete(Range::Prefix(key));
    assert_eq!(place.commit([], [delete]).await?.deleted, 1);
    let prefix = key_of(&place, KEY_BYTES_MAX + 1);
    let delete = Operation::Delete(Range::Prefix(prefix));
    let outcome = place.commit([], [delete]).await;
    one_too_many(outcome, What::Key, KEY_BYTES_MAX);
    Ok(())
}

async fn the_longest_value(place: Place) -> Result<(), Error> {
    let value = Bytes::from(vec![b'v'; VALUE_BYTES_MAX]);
    let mut watch = place.watch_all().await?;
    let put = Operation::put(place.key("a"), value.clone());
    place.commit([], [put]).await?;
    assert_eq!(place.entry("a").await?.expect("it was put").value, value);
    let batch = watch.batch().await?;
    assert!(matches!(&batch.events[0], crate::Event::Put(entry) if entry.value == value));
    let value = vec![b'v'; VALUE_BYTES_MAX + 1];
    let put = Operation::put(place.key("a"), value);
    let outcome = place.commit([], [put]).await;
    one_too_many(outcome, What::Value, VALUE_BYTES_MAX);
    Ok(())
}

async fn the_largest_transaction(place: Place) -> Result<(), Error> {
    let key = place.key("a");
    let rest = TRANSACTION_BYTES_MAX - VALUE_BYTES_MAX - 2 * key.len();
    let puts = |rest: usize| {
        [
            Operation::put(key.clone(), vec![b'v'; VALUE_BYTES_MAX]),
            Operation::put(place.key("b"), vec![b'w'; rest]),
        ]
    };
    place.commit([], puts(rest)).await?;
    let entry = place.entry("b").await?.expect("it was put");
    assert_eq!(entry.value.len(), rest);
    let outcome = place.commit([], puts(rest + 1)).await;
    one_too_many(outcome, What::Transaction, TRANSACTION_BYTES_MAX);
    Ok(())
}

async fn the_longest_compared_value(place: Place) -> Result<(), Error> {
    let key = place.key("a");
    place.put("a", "1").await?;
    let compare = |bytes: usize| Compare {
        key: key.clone(),
        relation: Relation::Less,
        target: Target::Value(vec![b'v'; bytes].into()),
    };
    let most = TRANSACTION_BYTES_MAX - key.len();
    place.commit([compare(most)], []).await?;
    let outcome = place.commit([compare(most + 1)], []).await;
    one_too_many(outcome, What::Transaction, TRANSACTION_BYTES_MAX);
    Ok(())
}

async fn the_shortest_and_the_longest_lease(place: Place) -> Result<(), Error> {
    for life in [LEASE_LIFE_MIN, LEASE_LIFE_MAX] {
        let lease = place.store.grant(life).await?;
        assert!(lease.granted >= life, "{lease:?}");
        place.store.revoke(lease.id).await?;
    }
    let nanosecond = Duration::from_nanos(1);
    for life in [
        Duration::ZERO,
        LEASE_LIFE_MIN - nanosecond,
        LEASE_LIFE_MAX + nanosecond,
        Duration::MAX,
    ] {
        let refused = place.store.grant(life).await;
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    }
    Ok(())
}

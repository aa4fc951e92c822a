//! Conditions: each target with each relation, of what is there and of what is not.

use super::cases;
use super::place::Place;
use crate::{Compare, Conflict, Error, Relation, Target};
use std::time::Duration;

cases! {
    a_value_is_compared_byte_by_byte
    a_creation_is_compared
    a_modification_is_compared
    a_version_is_compared
    a_lease_is_compared
    no_condition_on_an_absent_keys_value_holds
    an_absent_key_counts_as_zero
    an_absent_key_has_no_lease
    a_deleted_key_is_absent
    all_conditions_must_hold
    one_key_can_be_compared_many_times
    conditions_see_what_was_before_the_operations
    a_conflict_says_what_was_found
    a_conflict_says_absent_keys_too
    a_conflict_names_each_key_once_in_order
    compare_and_swap_loses_no_update
}

use Relation::{Equal, Greater, Less, NotEqual};

/// The relations that hold of something less than, equal to or more than what it is compared with.
const WHERE_LESS: &[Relation] = &[NotEqual, Less];
const WHERE_EQUAL: &[Relation] = &[Equal];
const WHERE_GREATER: &[Relation] = &[NotEqual, Greater];

/// Of `name`, exactly the relations `expected` to `target` hold.
async fn holds(
    place: &Place,
    name: &str,
    target: Target,
    expected: &[Relation],
) -> Result<(), Error> {
    for relation in [Equal, NotEqual, Greater, Less] {
        let compare = Compare {
            key: place.key(name),
            relation,
            target: target.clone(),
        };
        let outcome = match place.commit([compare], []).await {
            Ok(_) => true,
            Err(Error::Conflict(_)) => false,
            Err(other) => return Err(other),
        };
        assert_eq!(
            outcome,
            expected.contains(&relation),
            "{name} {relation:?} {target:?}"
        );
    }
    Ok(())
}

async fn a_value_is_compared_byte_by_byte(place: Place) -> Result<(), Error> {
    place.put("a", "m").await?;
    for (value, expected) in [
        ("l", WHERE_GREATER),
        ("", WHERE_GREATER),
        ("m", WHERE_EQUAL),
        ("ma", WHERE_LESS),
        ("n", WHERE_LESS),
        ("\u{ff}", WHERE_LESS),
    ] {
        holds(&place, "a", Target::Value(value.into()), expected).await?;
    }
    Ok(())
}

async fn a_creation_is_compared(place: Place) -> Result<(), Error> {
    let revision = place.put("a", "1").await?;
    place.put("a", "2").await?;
    holds(&place, "a", Target::Created(revision - 1), WHERE_GREATER).await?;
    holds(&place, "a", Target::Created(revision), WHERE_EQUAL).await?;
    holds(&place, "a", Target::Created(revision + 1), WHERE_LESS).await
}

async fn a_modification_is_compared(place: Place) -> Result<(), Error> {
    place.put("a", "1").await?;
    let revision = place.put("a", "2").await?;
    holds(&place, "a", Target::Modified(revision - 1), WHERE_GREATER).await?;
    holds(&place, "a", Target::Modified(revision), WHERE_EQUAL).await?;
    holds(&place, "a", Target::Modified(revision + 1), WHERE_LESS).await
}

async fn a_version_is_compared(place: Place) -> Result<(), Error> {
    place.put("a", "1").await?;
    place.put("a", "2").await?;
    holds(&place, "a", Target::Version(0), WHERE_GREATER).await?;
    holds(&place, "a", Target::Version(1), WHERE_GREATER).await?;
    holds(&place, "a", Target::Version(2), WHERE_EQUAL).await?;
    holds(&place, "a", Target::Version(3), WHERE_LESS).await
}

async fn a_lease_is_compared(place: Place) -> Result<(), Error> {
    let life = Duration::from_secs(600);
    let one = place.store.grant(life).await?.id;
    let two = place.store.grant(life).await?.id;
    let (low, high) = (one.min(two), one.max(two));
    place.commit([], [place.leased("low", low)]).await?;
    place.commit([], [place.leased("high", high)]).await?;
    place.put("without", "1").await?;
    for (name, target, expected) in [
        ("low", Some(low), WHERE_EQUAL),
        ("low", Some(high), WHERE_LESS),
        ("low", None, WHERE_GREATER),
        ("high", Some(low), WHERE_GREATER),
        ("without", None, WHERE_EQUAL),
        ("without", Some(low), WHERE_LESS),
    ] {
        holds(&place, name, Target::Lease(target), expected).await?;
    }
    place.store.revoke(one).await?;
    place.store.revoke(two).await
}

async fn no_condition_on_an_absent_keys_value_holds(place: Place) -> Result<(), Error> {
    holds(&place, "absent", Target::Value("".into()), &[]).await?;
    holds(&place, "absent", Target::Value("a".into()), &[]).await
}

async fn an_absent_key_counts_as_zero(place: Place) -> Result<(), Error> {
    holds(&place, "absent", Target::Created(0), WHERE_EQUAL).await?;
    holds(&place, "absent", Target::Created(1), WHERE_LESS).await?;
    holds(&place, "absent", Target::Modified(0), WHERE_EQUAL).await?;
    holds(&place, "absent", Target::Modified(1), WHERE_LESS).await?;
    holds(&place, "absent", Target::Version(0), WHERE_EQUAL).await?;
    holds(&place, "absent", Target::Version(1), WHERE_LESS).await
}

async fn an_absent_key_has_no_lease(place: Place) -> Result<(), Error> {
    let lease = place.store.grant(Duration::from_secs(600)).await?.id;
    holds(&place, "absent", Target::Lease(None), WHERE_EQUAL).await?;
    holds(&place, "absent", Target::Lease(Some(lease)), WHERE_LESS).await?;
    place.store.revoke(lease).await
}

async fn a_deleted_key_is_absent(place: Place) -> Result<(), Error> {
    place.put("a", "1").await?;
    place.delete("a").await?;
    holds(&place, "a", Target::Modified(0), WHERE_EQUAL).await?;
    holds(&place, "a", Target::Version(0), WHERE_EQUAL).await?;
    holds(&place, "a", Target::Value("1".into()), &[]).await?;
    let compare = Compare::absent(place.key("a"));
    place.commit([compare], [place.put_of("a", "2")]).await?;
    Ok(())
}

async fn all_conditions_must_hold(place: Place) -> Result<(), Error> {
    let a = place.put("a", "1").await?;
    let b = place.put("b", "1").await?;
    let compares = |a, b| {
        [
            Compare::modified(place.key("a"), a),
            Compare::modified(place.key("b"), b),
        ]
    };
    for (a, b) in [(a, b + 1), (a + 9, b), (0, 0)] {
        let refused = place.commit(compares(a, b), [place.put_of("a", "2")]).await;
        assert!(matches!(refused, Err(Error::Conflict(_))), "{refused:?}");
    }
    place
        .commit(compares(a, b), [place.put_of("a", "2")])
        .await?;
    Ok(())
}

async fn one_key_can_be_compared_many_times(place: Place) -> Result<(), Error> {
    let revision = place.put("a", "m").await?;
    let compare = |relation, target| Compare {
        key: place.key("a"),
        relation,
        target,
    };
    let compares = [
        compare(Greater, Target::Value("l".into())),
        compare(Less, Target::Value("n".into())),
        compare(Equal, Target::Version(1)),
        compare(NotEqual, Target::Created(revision + 1)),
    ];
    place.commit(compares, [place.put_of("a", "n")]).await?;
    Ok(())
}

async fn conditions_see_what_was_before_the_operations(place: Place) -> Result<(), Error> {
    let compare = Compare::absent(place.key("a"));
    place.commit([compare], [place.put_of("a", "1")]).await?;
    let present = Compare {
        key: place.key("a"),
        relation: Equal,
        target: Target::Value("1".into()),
    };
    place.commit([present], [place.delete_of("a")]).await?;
    assert_eq!(place.entry("a").await?, None);
    Ok(())
}

/// The conflict that a transaction with `compares` is refused by.
async fn conflict(place: &Place, compares: Vec<Compare>) -> Result<Conflict, Error> {
    match place.commit(compares, [place.put_of("a", "lost")]).await {
        Err(Error::Conflict(conflict)) => Ok(*conflict),
        Err(other) => Err(other),
        Ok(done) => panic!("no conflict: {done:?}"),
    }
}

async fn a_conflict_says_what_was_found(place: Place) -> Result<(), Error> {
    let old = place.put("a", "1").await?;
    place.put("a", "theirs").await?;
    let revision = place.put("other", "1").await?;
    let compare = Compare::modified(place.key("a"), old);
    let conflict = conflict(&place, vec![compare]).await?;
    assert_eq!(conflict.revision, revision);
    let entry = place.entry("a").await?;
    assert_eq!(entry.as_ref().expect("it is there").value, "theirs");
    assert_eq!(conflict.found, [(place.key("a"), entry)]);
    Ok(())
}

async fn a_conflict_says_absent_keys_too(place: Place) -> Result<(), Error> {
    let compare = Compare::modified(place.key("a"), 1);
    let conflict = conflict(&place, vec![compare]).await?;
    assert_eq!(conflict.found, [(place.key("a"), None)]);
    Ok(())
}

async fn a_conflict_names_each_key_once_in_order(place: Place) -> Result<(), Error> {
    let c = place.put("c", "1").await?;
    place.put("b", "1").await?;
    let compares = vec![
        Compare::modified(place.key("c"), c),
        Compare::absent(place.key("a")),
        Compare::modified(place.key("c"), c + 9),
        Compare::absent(place.key("b")),
        Compare::absent(place.key("a")),
    ];
    let conflict = conflict(&place, compares).await?;
    let expected = [
        (place.key("c"), place.entry("c").await?),
        (place.key("a"), None),
        (place.key("b"), place.entry("b").await?),
    ];
    assert_eq!(conflict.found, expected);
    Ok(())
}

async fn compare_and_swap_loses_no_update(place: Place) -> Result<(), Error> {
    let seen = place.put("a", "0").await?;
    let swap = |value| {
        let compare = Compare::modified(place.key("a"), seen);
        place.commit([compare], [place.put_of("a", value)])
    };
    swap("first").await?;
    let second = swap("second").await;
    assert!(matches!(second, Err(Error::Conflict(_))), "{second:?}");
    let entry = place.entry("a").await?.expect("it is there");
    assert_eq!(entry.value, "first");
    Ok(())
}

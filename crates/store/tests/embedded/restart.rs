//! What outlives a process, and what a store does by itself.

use crate::support::{
    Hand, commit, entries, entries_at, everything, keys, open, open_at, put, revision,
};
use mizan_store::embedded::{Embedded, Keep, Options};
use mizan_store::{Error, LeaseId, Message, Operation, Store};
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

async fn put_leased(store: &Embedded, key: &str, id: LeaseId) {
    let put = Operation::Put {
        key: key.to_owned().into(),
        value: "leased".into(),
        lease: Some(id),
    };
    commit(store, [put]).await.expect("it is taken");
}

/// Waits until the writer is done with all that was asked before, also with what it does by itself after it has answered.
async fn settle(store: &Embedded) {
    let none = LeaseId(1);
    assert_eq!(store.revoke(none).await, Err(Error::NoLease(none)));
}

#[tokio::test]
async fn present_and_past_are_there_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path()).expect("it opens");
    for turn in 0..50 {
        put(&store, &format!("k{}", turn % 7), &turn.to_string()).await;
    }
    let delete = Operation::delete("k3");
    commit(&store, [delete]).await.expect("it is taken");
    store.compact(20).await.expect("it is compacted");
    let identity = store.identity().await.expect("it answers");
    let mut expected = Vec::new();
    for at in 20..=51 {
        expected.push(entries_at(&store, at).await.expect("it is held"));
    }
    drop(store);

    let store = open(folder.path()).expect("it opens again");
    assert_eq!(store.identity().await, Ok(identity));
    for (at, expected) in (20..).zip(expected) {
        assert_eq!(entries_at(&store, at).await, Ok(expected), "at {at}");
    }
    let oldest = 20;
    assert_eq!(
        entries_at(&store, 19).await,
        Err(Error::Compacted { oldest })
    );
    let mut watch = store.watch(everything(), 21).await.expect("it is held");
    for revision in 21..=51 {
        let Ok(Message::Batch(batch)) = watch.next().await else {
            panic!("no batch");
        };
        assert_eq!(batch.revision, revision);
    }
    assert_eq!(put(&store, "k3", "again").await, 52);
    let again = entries(&store)
        .await
        .into_iter()
        .find(|entry| entry.key == "k3");
    assert_eq!(
        again.map(|entry| (entry.created, entry.version)),
        Some((52, 1))
    );
}

#[tokio::test]
async fn a_lease_ends_at_its_deadline_across_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let clock = Hand::at(1_000_000);
    let store = open_at(folder.path(), &clock);
    let id = store.grant(MINUTE).await.expect("it is granted").id;
    put_leased(&store, "a", id).await;
    clock.pass(20);
    drop(store);

    // Down for 30 s: 10 s are left, and the new process counts them by its own monotonic clock.
    let clock = Hand::at(1_000_050);
    let store = open_at(folder.path(), &clock);
    let lease = store.lease(id).await.expect("it is alive");
    assert_eq!((lease.left.as_secs(), lease.granted), (10, MINUTE));
    clock.set_wall(2_000_000);
    let left = store.lease(id).await.expect("it is alive").left;
    assert_eq!(
        left.as_secs(),
        10,
        "a clock that is set while it runs changes nothing"
    );
    clock.pass(9);
    put(&store, "other", "1").await;
    assert_eq!(keys(&store).await, ["a", "other"]);
    clock.pass(1);
    let before = revision(&store).await;
    assert_eq!(
        put(&store, "other", "2").await,
        before + 2,
        "its end is a revision"
    );
    assert_eq!(keys(&store).await, ["other"]);
    assert_eq!(store.lease(id).await, Err(Error::NoLease(id)));
    drop(store);

    let store = open_at(folder.path(), &Hand::at(1_000_100));
    assert_eq!(
        store.lease(id).await,
        Err(Error::NoLease(id)),
        "it stays ended"
    );
}

#[tokio::test]
async fn a_lease_that_was_over_while_it_was_down_ends_at_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open_at(folder.path(), &Hand::at(1_000_000));
    let id = store.grant(MINUTE).await.expect("it is granted").id;
    put_leased(&store, "a", id).await;
    let before = revision(&store).await;
    drop(store);

    let store = open_at(folder.path(), &Hand::at(1_000_061));
    assert_eq!(store.lease(id).await, Err(Error::NoLease(id)));
    let mut watch = store
        .watch(everything(), before + 1)
        .await
        .expect("it is held");
    // Without anybody who asks for anything.
    let ends = async {
        loop {
            if let Message::Batch(batch) = watch.next().await.expect("it is open") {
                break batch.events;
            }
        }
    };
    let said = tokio::time::timeout(Duration::from_secs(20), ends).await;
    assert_eq!(said, Ok(vec![mizan_store::Event::Delete("a".into())]));
    assert!(keys(&store).await.is_empty());
}

#[tokio::test]
async fn a_clock_that_was_set_back_gives_no_lease_more_than_it_was_granted() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open_at(folder.path(), &Hand::at(1_000_000));
    let id = store.grant(MINUTE).await.expect("it is granted").id;
    drop(store);
    let store = open_at(folder.path(), &Hand::at(500_000));
    let lease = store.lease(id).await.expect("it is alive");
    assert_eq!(lease.left, MINUTE);
}

#[tokio::test]
async fn a_lease_that_was_kept_alive_is_so_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let clock = Hand::at(1_000_000);
    let store = open_at(folder.path(), &clock);
    let id = store.grant(MINUTE).await.expect("it is granted").id;
    clock.pass(50);
    store.keep_alive(id).await.expect("it is alive");
    drop(store);
    let store = open_at(folder.path(), &Hand::at(1_000_100));
    assert_eq!(
        store.lease(id).await.expect("it is alive").left.as_secs(),
        10
    );
}

#[tokio::test]
async fn a_store_that_is_full_takes_what_makes_it_less() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = Options {
        bytes_max: 10_000,
        ..Options::default()
    };
    let store = Embedded::open(folder.path(), options).expect("it opens");
    for at in 0..9 {
        put(&store, &format!("k{at}"), &"v".repeat(1_000)).await;
    }
    let before = revision(&store).await;
    let more = Operation::put("k9", "v".repeat(1_000));
    let refused = commit(&store, [more.clone()]).await;
    assert!(matches!(refused, Err(Error::Full(_))), "{refused:?}");
    assert_eq!(revision(&store).await, before);
    put(&store, "k0", "shorter").await;
    let delete = Operation::delete("k1");
    commit(&store, [delete]).await.expect("a delete is taken");
    commit(&store, [more]).await.expect("there is room again");
}

#[tokio::test]
async fn history_that_is_old_is_forgotten_by_itself() {
    let folder = tempfile::tempdir().expect("a folder");
    let clock = Hand::at(1_000_000);
    let options = Options {
        keep: Keep {
            revisions_min: 100,
            ..Keep::default()
        },
        clock: clock.clone(),
        ..Options::default()
    };
    let store = Embedded::open(folder.path(), options).expect("it opens");
    for turn in 0..300 {
        put(&store, "a", &turn.to_string()).await;
    }
    assert!(entries_at(&store, 1).await.is_ok(), "it is not an hour old");
    clock.pass(3_601);
    let last = put(&store, "a", "last").await;
    settle(&store).await;
    let Err(Error::Compacted { oldest }) = entries_at(&store, 1).await else {
        panic!("it is forgotten");
    };
    assert!(
        (last - 110..=last - 100).contains(&oldest),
        "{oldest} of {last}"
    );
    let held = entries_at(&store, oldest).await.expect("it is held");
    assert_eq!(held[0].modified, oldest);
}

#[tokio::test]
async fn history_that_is_large_is_forgotten_though_it_is_young() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = Options {
        keep: Keep {
            bytes_max: 100_000,
            ..Keep::default()
        },
        ..Options::default()
    };
    let store = Embedded::open(folder.path(), options).expect("it opens");
    let mut behind = store.watch(everything(), 1).await.expect("it is held");
    for _ in 0..300 {
        put(&store, "a", &"v".repeat(1_000)).await;
    }
    settle(&store).await;
    let Err(Error::Compacted { oldest }) = entries_at(&store, 1).await else {
        panic!("it is forgotten");
    };
    assert!((200..=220).contains(&oldest), "{oldest}");
    let told = Err(Error::Compacted { oldest });
    assert_eq!(
        behind.next().await,
        told,
        "a watch that fell behind is told"
    );
    assert_eq!(behind.next().await, told);
}

#[tokio::test]
async fn a_copy_is_a_store_of_its_own_with_the_same_content() {
    let folder = tempfile::tempdir().expect("a folder");
    let clock = Hand::at(1_000_000);
    let store = open_at(&folder.path().join("one"), &clock);
    let id = store.grant(MINUTE).await.expect("it is granted").id;
    for turn in 0..20 {
        put(&store, &format!("k{}", turn % 3), &turn.to_string()).await;
    }
    put_leased(&store, "leased", id).await;
    store.compact(10).await.expect("it is compacted");
    let restored = folder.path().join("two");
    std::fs::create_dir(&restored).expect("a folder");
    store
        .backup(&restored.join("store.db"))
        .expect("it is written");
    let twin = folder.path().join("three");
    std::fs::create_dir(&twin).expect("a folder");
    std::fs::copy(restored.join("store.db"), twin.join("store.db")).expect("it is copied");
    put(&store, "later", "1").await;

    let copy = open_at(&restored, &clock);
    let (one, two) = (store.identity().await, copy.identity().await);
    let (one, two) = (one.expect("it answers"), two.expect("it answers"));
    let three = open_at(&twin, &clock).identity().await.expect("it answers");
    assert!(
        one.id != two.id && two.id != three.id,
        "{one:?} {two:?} {three:?}"
    );
    assert_eq!(two.revision, 21);
    for at in 10..=21 {
        assert_eq!(
            entries_at(&copy, at).await,
            entries_at(&store, at).await,
            "at {at}"
        );
    }
    assert_eq!(copy.lease(id).await, store.lease(id).await);
    put(&copy, "mine", "1").await;
    drop(copy);
    let again = open_at(&restored, &clock)
        .identity()
        .await
        .expect("it answers");
    assert_eq!(again.id, two.id, "once it has a name it keeps it");
}

#[tokio::test]
async fn who_follows_a_store_that_is_closed_is_told_after_the_last_change() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path()).expect("it opens");
    let mut watch = store.watch(everything(), 1).await.expect("it is held");
    put(&store, "a", "1").await;
    drop(store);
    let said = watch.next().await;
    assert!(matches!(said, Ok(Message::Batch(_))), "{said:?}");
    for _ in 0..2 {
        let said = watch.next().await;
        assert!(matches!(said, Err(Error::Unavailable(_))), "{said:?}");
    }
}

//! One node: its end and its return, what it forgets, and what it says of itself.

use super::node::{Node, all, binaries, eventually, newest, next_words, options_of, put, value};
use mizan_store::etcd::Etcd;
use mizan_store::{Clock, Error, LeaseId, Operation, Query, Store, System, Transaction};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_goes_on_after_a_restart_and_misses_nothing() {
    for binary in binaries() {
        let mut node = Node::alone(&binary).await;
        let store = node.store().await;
        let identity = store.identity().await.expect("it is up");
        let first = put(&store, "a", "1").await.expect("it is up");
        let mut watch = store.watch(all(), first).await.expect("it is up");
        assert_eq!(next_words(watch.as_mut()).await.expect("said"), "a=1");
        let last = put(&store, "a", "2").await.expect("it is up");
        node.kill();
        // What it had sent already is said first.
        let ended = loop {
            match next_words(watch.as_mut()).await {
                Ok(words) => assert_eq!(words, "a=2"),
                Err(ended) => break ended,
            }
        };
        assert!(matches!(ended, Error::Unavailable(_)), "{ended:?}");
        let again = next_words(watch.as_mut()).await;
        assert_eq!(again, Err(ended), "it says the same from now on");
        let asked = put(&store, "a", "lost").await;
        assert!(matches!(asked, Err(Error::Unavailable(_))), "{asked:?}");
        node.restart();
        node.up(&store).await;
        put(&store, "b", "3").await.expect("it is up");
        let mut watch = store.watch(all(), last).await.expect("it is up");
        assert_eq!(next_words(watch.as_mut()).await.expect("said"), "a=2");
        assert_eq!(next_words(watch.as_mut()).await.expect("said"), "b=3");
        let back = store.identity().await.expect("it is up");
        assert_eq!((back.id, &back.version), (identity.id, &identity.version));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_there_is_said_at_once_and_to_each_who_asks() {
    // A port that nobody listens on any more.
    let gone = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = gone.local_addr().expect("it is bound").to_string();
    drop(gone);
    let store = Etcd::new(&options_of([address.clone()])).expect("good options");
    let began = System.monotonic();
    let refused = [
        put(&store, "a", "1").await.expect_err("nobody is there"),
        value(&store, "a").await.expect_err("nobody is there"),
        store.watch(all(), 1).await.expect_err("nobody is there"),
        store.revoke(LeaseId(1)).await.expect_err("nobody is there"),
    ];
    for error in refused {
        let Error::Unavailable(why) = &error else {
            panic!("{error:?}");
        };
        assert!(why.contains(&address) && why.contains("refused"), "{why}");
    }
    assert!(System.monotonic() - began < Duration::from_secs(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_compacted_under_a_watch_is_told_and_listed_again() {
    for binary in binaries() {
        let node = Node::alone(&binary).await;
        let store = node.store().await;
        let mut last = 0;
        for at in 0..20 {
            last = put(&store, "a", &at.to_string()).await.expect("it is up");
        }
        // An open watch that has heard all is left alone.
        let mut open = store.watch(all(), last).await.expect("it is up");
        assert_eq!(next_words(open.as_mut()).await.expect("said"), "a=19");
        let deleted = store.commit(Transaction {
            compares: Vec::new(),
            operations: vec![Operation::delete("a")],
        });
        let at = deleted.await.expect("it is up").revision;
        store.compact(at).await.expect("it is up");
        assert_eq!(next_words(open.as_mut()).await.expect("said"), "-a");
        // One that is taken up from before is told, and so is one from the compacted revision itself, whose delete may be
        // gone.
        for from in [last, at] {
            let mut watch = match store.watch(all(), from).await {
                Ok(watch) => watch,
                Err(told) => {
                    assert_eq!(told, Error::Compacted { oldest: at }, "from {from}");
                    continue;
                }
            };
            let told = next_words(watch.as_mut()).await;
            assert_eq!(told, Err(Error::Compacted { oldest: at }), "from {from}");
        }
        let listing = store.list(Query::now(all())).await.expect("it is up");
        assert_eq!((listing.revision, listing.entries.len()), (at, 0));
        let mut watch = store.watch(all(), at + 1).await.expect("it is up");
        put(&store, "b", "1").await.expect("it is up");
        assert_eq!(next_words(watch.as_mut()).await.expect("said"), "b=1");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn old_versions_come_with_warnings() {
    for binary in binaries() {
        let node = Node::alone(&binary).await;
        let identity = node.store().await.identity().await.expect("it is up");
        assert!(identity.version.starts_with(&binary.series), "{identity:?}");
        assert_ne!(identity.id, 0);
        let warnings = identity.warnings.join(" ");
        assert!(warnings.contains("told of no progress"), "{warnings}");
        assert_eq!(warnings.contains("June 2026"), binary.series == "3.4");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_sees_nothing_else_and_others_see_it() {
    let node = Node::alone(&newest()).await;
    let whole = node.store().await;
    let mut inside = options_of([node.address()]);
    inside.namespace = "mizan/".into();
    let inside = Etcd::new(&inside).expect("good options");
    put(&whole, "other", "1").await.expect("it is up");
    put(&inside, "a", "2").await.expect("it is up");
    assert_eq!(value(&whole, "mizan/a").await, Ok(Some("2".to_owned())));
    let listing = inside.list(Query::now(all())).await.expect("it is up");
    let keys: Vec<_> = listing.entries.iter().map(|entry| &entry.key[..]).collect();
    assert_eq!(keys, [b"a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_outlives_a_restart_of_the_node() {
    let mut node = Node::alone(&newest()).await;
    let store = node.store().await;
    let lease = store
        .grant(Duration::from_secs(60))
        .await
        .expect("it is up");
    node.kill();
    node.restart();
    node.up(&store).await;
    let left = eventually(|| async { store.keep_alive(lease.id).await.ok() }).await;
    assert_eq!(left.expect("it is alive").granted, lease.granted);
}

//! Three nodes, of which one fails.

use super::node::{
    Node, Plan, SOON, all, binaries, eventually, gateway, newest, options_of, put, value,
};
use mizan_store::etcd::Etcd;
use mizan_store::{Clock, Error, Event, Message, Revision, Store, System};
use std::time::Duration;
use tokio::time::timeout;

async fn three(binary: &super::node::Binary) -> (Vec<Node>, Etcd) {
    let nodes: Vec<_> = Plan::three()
        .into_iter()
        .map(|plan| Node::start(binary, plan))
        .collect();
    let store = Etcd::new(&options_of(nodes.iter().map(Node::address))).expect("good options");
    for node in &nodes {
        node.store().await;
    }
    (nodes, store)
}

/// Which of `nodes` leads.
fn leader(nodes: &[Node]) -> usize {
    let field = |answer: &str, name: &str| {
        let (_, rest) = answer.split_once(&format!("\"{name}\":\"")).expect(name);
        rest.split('"').next().expect("it ends").to_owned()
    };
    let leads = |node: &Node| {
        let answer = gateway(node, "/v3/maintenance/status", "{}");
        field(&answer, "leader") == field(&answer, "member_id")
    };
    nodes.iter().position(leads).expect("one leads")
}

/// The values of all puts from `from` to `end`, over as many watches as that takes.
async fn follow(store: Etcd, from: Revision) -> (Vec<String>, u32) {
    let (mut next, mut said, mut ended) = (from, Vec::new(), 0);
    loop {
        let opened = eventually(|| async { store.watch(all(), next).await.ok() });
        let mut watch = opened.await.expect("two are left");
        loop {
            match timeout(SOON, watch.next())
                .await
                .expect("something is said")
            {
                Ok(Message::Progress(revision)) => next = revision + 1,
                Ok(Message::Batch(batch)) => {
                    next = batch.revision + 1;
                    for event in batch.events {
                        let Event::Put(entry) = event else {
                            panic!("nobody deletes");
                        };
                        let value = String::from_utf8_lossy(&entry.value).into_owned();
                        if value == "end" {
                            return (said, ended);
                        }
                        said.push(value);
                    }
                }
                Err(Error::Unavailable(_)) => {
                    ended += 1;
                    break;
                }
                Err(other) => panic!("{other:?}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_watch_misses_a_change_when_the_leader_is_killed() {
    for binary in binaries() {
        let (mut nodes, store) = three(&binary).await;
        let from = put(&store, "begin", "0").await.expect("it is up") + 1;
        // Each begins at a member of its own choice; by this many, one is at the leader.
        let watches: Vec<_> = (0..12)
            .map(|_| {
                let members = options_of(nodes.iter().map(Node::address));
                let store = Etcd::new(&members).expect("good options");
                tokio::spawn(follow(store, from))
            })
            .collect();
        let mut acknowledged = Vec::new();
        for turn in 0..150 {
            if turn == 50 {
                let leader = leader(&nodes);
                nodes[leader].kill();
            }
            let value = turn.to_string();
            match put(&store, "a", &value).await {
                Ok(_) => acknowledged.push(value),
                Err(Error::Unknown(_) | Error::Unavailable(_)) => {}
                Err(other) => panic!("{other:?}"),
            }
        }
        let end = eventually(|| async { put(&store, "a", "end").await.ok() }).await;
        assert!(end.is_some(), "two are left");
        assert!(acknowledged.len() > 100, "{}", acknowledged.len());
        let mut ended_in_all = 0;
        let mut first: Option<Vec<String>> = None;
        for watch in watches {
            let (said, ended) = watch.await.expect("no panic");
            ended_in_all += ended;
            let missed: Vec<_> = acknowledged
                .iter()
                .filter(|it| !said.contains(it))
                .collect();
            assert!(missed.is_empty(), "{missed:?}");
            assert_eq!(first.get_or_insert_with(|| said.clone()), &said);
        }
        assert!(ended_in_all > 0, "no watch was at the leader");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_hangs_is_left() {
    let (nodes, store) = three(&newest()).await;
    put(&store, "a", "0").await.expect("it is up");
    // Whichever it is at: each hangs once.
    for node in &nodes {
        node.freeze();
        let began = System.monotonic();
        let read = eventually(|| async { value(&store, "a").await.ok() }).await;
        assert!(read.is_some(), "two are left");
        let first = System.monotonic() - began;
        // A second of patience, and the election of a leader if it was one.
        assert!(first < Duration::from_secs(4), "{first:?}");
        let began = System.monotonic();
        value(&store, "a").await.expect("two are left");
        let next = System.monotonic() - began;
        assert!(next < Duration::from_millis(500), "it is left: {next:?}");
        eprintln!("first read {first:?}, next {next:?}");
        node.thaw();
        node.store().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_at_a_member_that_hangs_ends_and_goes_on_elsewhere() {
    let (nodes, store) = three(&newest()).await;
    let from = put(&store, "a", "0").await.expect("it is up") + 1;
    let follower = tokio::spawn(follow(store.clone(), from));
    // Whichever it is at: each hangs once, and a leader follows a leader.
    for (at, node) in nodes.iter().enumerate() {
        node.freeze();
        let value = at.to_string();
        let done = eventually(|| async { put(&store, "a", &value).await.ok() }).await;
        assert!(done.is_some(), "two are left");
        node.thaw();
        node.store().await;
    }
    let done = eventually(|| async { put(&store, "a", "end").await.ok() }).await;
    assert!(done.is_some());
    let (mut said, _) = timeout(SOON, follower)
        .await
        .expect("in time")
        .expect("no panic");
    // One in doubt may have been done, and was put again.
    said.dedup();
    assert_eq!(said, ["0", "1", "2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_quorum_nothing_is_said_to_be_done() {
    let (mut nodes, store) = three(&newest()).await;
    let revision = put(&store, "a", "0").await.expect("it is up");
    let mut watch = store.watch(all(), revision + 1).await.expect("it is up");
    nodes[0].kill();
    nodes[1].kill();
    let changed = eventually(|| async {
        match put(&store, "a", "1").await {
            Ok(_) => panic!("one of three is no quorum"),
            Err(Error::Unknown(_)) => None,
            Err(Error::Unavailable(why)) => Some(why),
            Err(other) => panic!("{other:?}"),
        }
    });
    let why = changed.await.expect("that there is no leader is known");
    assert!(!why.is_empty());
    let read = value(&store, "a").await;
    assert!(matches!(read, Err(Error::Unavailable(_))), "{read:?}");
    let ended = timeout(SOON, watch.next()).await.expect("it is told");
    assert!(matches!(ended, Err(Error::Unavailable(_))), "{ended:?}");
    nodes[0].restart();
    let back = eventually(|| async { put(&store, "a", "2").await.ok() }).await;
    assert!(back.is_some(), "two are a quorum");
}

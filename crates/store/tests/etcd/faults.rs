//! What lies between us and etcd: cut, stalled, slow.

use super::node::{
    Node, SOON, all, binaries, eventually, newest, next_words, options_of, put, value,
};
use super::relay::{Fault, Relay};
use mizan_store::etcd::{Deadlines, Etcd};
use mizan_store::{Clock, Error, Event, Message, Revision, Store, System, Watch};
use std::time::Duration;

async fn through(node: &Node) -> (Relay, Etcd) {
    let relay = Relay::start(node.address()).await;
    let store = Etcd::new(&options_of([relay.address.to_string()])).expect("good options");
    (relay, store)
}

/// The same, asking an idle watch more often than three times in a second.
async fn through_and_eager(node: &Node) -> (Relay, Etcd) {
    let relay = Relay::start(node.address()).await;
    let mut options = options_of([relay.address.to_string()]);
    options.deadlines.progress = Duration::from_millis(300);
    (relay, Etcd::new(&options).expect("good options"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_ends_a_watch_and_what_was_missed_is_said_by_the_next() {
    for binary in binaries() {
        let node = Node::alone(&binary).await;
        let direct = node.store().await;
        let (relay, store) = through(&node).await;
        let mut last = put(&store, "a", "0").await.expect("it is up");
        for turn in 0..5 {
            let mut watch = store.watch(all(), last + 1).await.expect("it is up");
            last = put(&direct, "a", &format!("{turn} before"))
                .await
                .expect("up");
            let words = next_words(watch.as_mut()).await.expect("said");
            assert_eq!(words, format!("a={turn} before"));
            relay.set(Fault::Cut);
            let ended = next_words(watch.as_mut()).await;
            assert!(matches!(ended, Err(Error::Unavailable(_))), "{ended:?}");
            put(&direct, "a", &format!("{turn} unseen"))
                .await
                .expect("up");
            relay.set(Fault::None);
            let mut watch = store.watch(all(), last + 1).await.expect("it is mended");
            let words = next_words(watch.as_mut()).await.expect("said");
            assert_eq!(words, format!("a={turn} unseen"));
            last += 1;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_was_cut_while_idle_costs_no_question() {
    let node = Node::alone(&newest()).await;
    let (relay, store) = through(&node).await;
    for turn in 1..=5 {
        put(&store, "a", &turn.to_string())
            .await
            .expect("nothing was in flight");
        assert_eq!(relay.taken(), turn, "one connection is enough");
        relay.cut().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_half_open_watch_is_noticed() {
    for binary in binaries() {
        let node = Node::alone(&binary).await;
        let (relay, store) = through_and_eager(&node).await;
        let revision = put(&store, "a", "0").await.expect("it is up");
        // From now, and from a future that etcd says no progress of.
        for from in [revision + 1, revision + 1000] {
            let mut watch = store.watch(all(), from).await.expect("it is up");
            // It is alive as long as it is answered, however idle.
            let idle = tokio::time::timeout(Duration::from_secs(2), watch.next()).await;
            assert!(idle.is_err(), "{idle:?}");
            relay.set(Fault::Stall);
            let began = System.monotonic();
            let ended = next_words(watch.as_mut()).await;
            let Err(Error::Unavailable(why)) = &ended else {
                panic!("{ended:?}");
            };
            assert!(why.contains(&relay.address.to_string()), "{why}");
            assert!(
                System.monotonic() - began < Duration::from_secs(4),
                "{:?}",
                System.monotonic() - began
            );
            relay.set(Fault::None);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_without_an_answer_is_unknown_and_a_read_unavailable() {
    let node = Node::alone(&newest()).await;
    let direct = node.store().await;
    let relay = Relay::start(node.address()).await;
    let mut options = options_of([relay.address.to_string()]);
    options.deadlines = Deadlines {
        request: Duration::from_secs(2),
        ..Deadlines::default()
    };
    let store = Etcd::new(&options).expect("good options");
    put(&store, "a", "0").await.expect("it is up");
    relay.set(Fault::Stall);
    let began = System.monotonic();
    let changed = put(&store, "a", "1").await;
    assert!(matches!(changed, Err(Error::Unknown(_))), "{changed:?}");
    let read = value(&store, "a").await;
    assert!(matches!(read, Err(Error::Unavailable(_))), "{read:?}");
    assert!(
        System.monotonic() - began < Duration::from_secs(6),
        "{:?}",
        System.monotonic() - began
    );
    relay.set(Fault::None);
    // Whichever it was, whoever looks sees it.
    let known = eventually(|| async { value(&store, "a").await.ok() }).await;
    assert_eq!(known, value(&direct, "a").await.ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_is_cut_in_flight_is_unknown() {
    let node = Node::alone(&newest()).await;
    let (relay, store) = through(&node).await;
    put(&store, "a", "0").await.expect("it is up");
    relay.set(Fault::Delay(Duration::from_millis(500)));
    let change = tokio::spawn(async move { put(&store, "a", "1").await });
    let direct = node.store().await;
    let done = eventually(|| async {
        let value = value(&direct, "a").await.ok()?;
        (value.as_deref() == Some("1")).then_some(())
    });
    done.await.expect("it reaches etcd");
    relay.set(Fault::Cut);
    let outcome = change.await.expect("no panic");
    assert!(matches!(outcome, Err(Error::Unknown(_))), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_way_is_no_fault() {
    let node = Node::alone(&newest()).await;
    let (relay, store) = through_and_eager(&node).await;
    relay.set(Fault::Delay(Duration::from_millis(300)));
    let revision = put(&store, "a", "0").await.expect("slow, but there");
    let mut watch = store.watch(all(), revision).await.expect("slow, but there");
    assert_eq!(next_words(watch.as_mut()).await.expect("said"), "a=0");
    let idle = tokio::time::timeout(Duration::from_secs(3), watch.next()).await;
    assert!(idle.is_err(), "{idle:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn under_random_faults_every_change_is_said_once() {
    for binary in binaries() {
        let node = Node::alone(&binary).await;
        let direct = node.store().await;
        let relay = Relay::start(node.address()).await;
        let mut options = options_of([relay.address.to_string()]);
        options.deadlines = Deadlines {
            connect: Duration::from_millis(300),
            patience: Duration::from_millis(300),
            request: Duration::from_secs(1),
            progress: Duration::from_millis(100),
        };
        let store = Etcd::new(&options).expect("good options");
        let first = put(&direct, "a", "begin").await.expect("it is up");
        let follower = tokio::spawn(follow(store, first + 1));
        let mut made = Vec::new();
        let mut pace = tokio::time::interval(Duration::from_millis(10));
        let mut random: u64 = 1;
        for turn in 0..400 {
            pace.tick().await;
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            match (random >> 33) % 40 {
                0 => relay.set(Fault::Cut),
                1 => relay.set(Fault::Stall),
                2 => relay.set(Fault::Delay(Duration::from_millis(20))),
                3..8 => relay.set(Fault::None),
                _ => {}
            }
            let made_one = put(&direct, "a", &turn.to_string()).await;
            made.push(made_one.expect("it is up"));
        }
        relay.set(Fault::None);
        made.push(put(&direct, "a", "end").await.expect("it is up"));
        let (said, ended) = follower.await.expect("no panic");
        assert_eq!(said, made);
        assert!(ended > 2, "the faults ended {ended} watches");
    }
}

/// The revisions of all changes from `next` to the one of `end`, over as many watches as that takes.
async fn follow(store: Etcd, mut next: Revision) -> (Vec<Revision>, u32) {
    let (mut said, mut ended) = (Vec::new(), 0);
    loop {
        let opened = eventually(|| async { store.watch(all(), next).await.ok() });
        let mut watch = opened.await.expect("it is mended at last");
        loop {
            let Ok(words) = next_change(watch.as_mut()).await else {
                ended += 1;
                break;
            };
            said.push(words.0);
            next = words.0 + 1;
            if words.1 {
                return (said, ended);
            }
        }
    }
}

/// The revision of the next batch, and whether it is the last.
async fn next_change(watch: &mut dyn Watch) -> Result<(Revision, bool), Error> {
    loop {
        let said = tokio::time::timeout(SOON, watch.next()).await;
        if let Message::Batch(batch) = said.expect("something is said, or it ends")? {
            let is_last = batch
                .events
                .iter()
                .any(|event| matches!(event, Event::Put(entry) if entry.value == "end"));
            return Ok((batch.revision, is_last));
        }
    }
}

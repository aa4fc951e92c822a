//! A thousand who watch through one socket.

use super::child::{Instance, resident};
use super::{LONG, everything, put};
use crate::admin::store::WATCHES_MAX;
use crate::clock;
use mizan_store::remote::Remote;
use mizan_store::{Error, Message, Store};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::mpsc;

const WATCHES: usize = 1_000;
const CHANGES: usize = 30;

/// The most descriptors that this process may have, for it and its children.
fn allow_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let most = Rlimit {
        current: limit.maximum,
        ..limit
    };
    setrlimit(Resource::Nofile, most).expect("it may go so far");
}

/// Prints what a watch costs in memory on either side, and how long it takes until the last of a thousand has heard.
#[tokio::test]
async fn a_thousand_watches_hear_of_every_change_in_time() {
    allow_descriptors();
    let folder = tempfile::tempdir().expect("a folder");
    let instance = Instance::start(folder.path());
    let store = Remote::new(&instance.socket);
    let from = put(&store, "a/0", "before").await + 1;
    let before = (instance.resident(), resident("self"));
    let (heard, mut all) = mpsc::unbounded_channel();
    for _ in 0..WATCHES {
        let mut watch = store.watch(everything(), from).await.expect("a place");
        let heard = heard.clone();
        tokio::spawn(async move {
            while let Ok(change) = watch.next().await {
                if let Message::Batch(batch) = change
                    && heard.send((batch.revision, clock::now())).is_err()
                {
                    break;
                }
            }
        });
    }
    let mut delays = Vec::new();
    for turn in 0..CHANGES {
        // From before it is asked for: who is told on this thread is told before its own answer is read.
        let asked = clock::now();
        let mut last = asked;
        let revision = put(&store, "a/0", turn.to_string()).await;
        for _ in 0..WATCHES {
            let said = tokio::time::timeout(LONG, all.recv()).await;
            let (said, at) = said.expect("each hears of it").expect("somebody is there");
            assert_eq!(said, revision);
            last = last.max(at);
        }
        delays.push(last - asked);
    }
    delays.sort();
    let each = |now: usize, before: usize| now.saturating_sub(before) / WATCHES;
    let there = each(instance.resident(), before.0);
    let here = each(resident("self"), before.1);
    println!(
        "{WATCHES} watches: {there} bytes each at the instance, {here} here; from the question to the last who hears p50 {:?}, max {:?}",
        delays[CHANGES / 2],
        delays[CHANGES - 1]
    );
    assert!(there < 64 << 10 && here < 64 << 10, "{there}, {here}");
}

/// So many watches take no place of anyone else's, and one more is refused by name until one has gone.
#[tokio::test]
async fn watches_have_places_of_their_own() {
    allow_descriptors();
    let folder = tempfile::tempdir().expect("a folder");
    let instance = Instance::start(folder.path());
    let store = Remote::new(&instance.socket);
    let mut watches = Vec::new();
    for _ in 0..WATCHES_MAX {
        watches.push(store.watch(everything(), 1).await.expect("a place"));
    }
    let refused = store.watch(everything(), 1).await.expect_err("no place");
    assert!(
        matches!(&refused, Error::Unavailable(why) if why.contains("1024 watches")),
        "{refused}"
    );
    // Four times as many watches as callers: these go on.
    put(&store, "a", "1").await;
    watches.pop();
    let begun = tokio::time::timeout(LONG, async {
        while store.watch(everything(), 1).await.is_err() {
            tokio::task::yield_now().await;
        }
    });
    begun.await.expect("a place that was left is taken");
}

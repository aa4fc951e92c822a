//! A thousand who watch.

use crate::support::{everything, open, put, revision};
use mizan_store::{Clock, Message, Range, Store, System};
use std::time::Duration;
use tokio::sync::mpsc;

const WATCHES: usize = 1_000;
const CHANGES: usize = 50;

/// Bytes of this process in memory.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").expect("it is Linux");
    let pages = status
        .split(' ')
        .nth(1)
        .and_then(|word| word.parse::<usize>().ok());
    pages.expect("a number") * 4_096
}

/// Prints what a watch costs in memory, and how long it takes until the last of a thousand has heard of a change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_watches_hear_of_every_change_in_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path()).expect("it opens");
    put(&store, "a/0", "before").await;
    let from = revision(&store).await + 1;
    let before = resident();
    let (heard, mut all) = mpsc::unbounded_channel();
    for at in 0..WATCHES {
        let range = match at % 2 {
            0 => everything(),
            _ => Range::Prefix("a/".into()),
        };
        let mut watch = store.watch(range, from).await.expect("it is held");
        let heard = heard.clone();
        tokio::spawn(async move {
            while let Ok(change) = watch.next().await {
                if let Message::Batch(batch) = change
                    && heard.send((batch.revision, System.monotonic())).is_err()
                {
                    break;
                }
            }
        });
    }
    let each = resident().saturating_sub(before) / WATCHES;
    let mut delays = Vec::new();
    for turn in 0..CHANGES {
        let revision = put(&store, "a/0", &turn.to_string()).await;
        let acknowledged = System.monotonic();
        let mut last = acknowledged;
        for _ in 0..WATCHES {
            let said = tokio::time::timeout(Duration::from_secs(20), all.recv()).await;
            let (said, at) = said.expect("each hears of it").expect("somebody is there");
            assert_eq!(said, revision);
            last = last.max(at);
        }
        delays.push(last - acknowledged);
    }
    delays.sort();
    println!(
        "{WATCHES} watches: {each} bytes each; the last has heard after p50 {:?}, p99 {:?}",
        delays[CHANGES / 2],
        delays[CHANGES * 99 / 100]
    );
    assert!(each < 16 << 10, "{each} bytes each");
}

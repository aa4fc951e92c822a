//! An instance that is killed in the middle of changes.

use super::child::Instance;
use super::{LONG, everything, news, open, put};
use mizan_store::remote::Remote;
use mizan_store::{Compare, Error, Operation, Query, Store, Transaction};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

const WRITERS: u64 = 4;

/// How a writer ended: what was acknowledged, and what it was told of the one after.
struct Ended {
    acknowledged: u64,
    error: Error,
}

/// Counts a key up until it is told of an error.
async fn count_up(
    store: Arc<Remote>,
    writer: u64,
    from: (u64, u64),
    done: Arc<AtomicU64>,
) -> Ended {
    let key = format!("count/{writer}");
    let (mut acknowledged, mut modified) = from;
    loop {
        let transaction = Transaction {
            compares: vec![Compare::modified(key.clone(), modified)],
            operations: vec![Operation::put(key.clone(), (acknowledged + 1).to_string())],
        };
        match store.commit(transaction).await {
            Ok(committed) => {
                (acknowledged, modified) = (acknowledged + 1, committed.revision);
                done.fetch_add(1, SeqCst);
            }
            Err(error) => {
                return Ended {
                    acknowledged,
                    error,
                };
            }
        }
    }
}

/// How far each writer has come, and when.
async fn counted(store: &dyn Store) -> Vec<(u64, u64)> {
    let mut counts = Vec::new();
    for writer in 0..WRITERS {
        let range = mizan_store::Range::Key(format!("count/{writer}").into());
        let listing = store.list(Query::now(range)).await.expect("it is listed");
        let count = listing.entries.first().map_or((0, 0), |entry| {
            let text = String::from_utf8_lossy(&entry.value);
            (text.parse().expect("a number"), entry.modified)
        });
        counts.push(count);
    }
    counts
}

/// What is told as done is there. What is told as not done is not. Only [`Error::Unknown`] may be either.
#[tokio::test]
async fn what_a_killed_instance_leaves_is_never_told_as_what_it_is_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut unknown = 0;
    for round in 0..12 {
        let mut instance = Instance::start(folder.path());
        let store = Arc::new(Remote::new(&instance.socket));
        let from = counted(&*store).await;
        let done = Arc::new(AtomicU64::new(0));
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (store, done) = (Arc::clone(&store), Arc::clone(&done));
                let begin = from[writer as usize];
                tokio::spawn(count_up(store, writer, begin, done))
            })
            .collect();
        // Any number will do: when exactly it dies is up to the machine.
        while done.load(SeqCst) < round * 7_919 % 60 {
            tokio::task::yield_now().await;
        }
        let (mut instance, ()) = tokio::task::spawn_blocking(move || {
            instance.kill();
            (instance, ())
        })
        .await
        .expect("no panic");
        let mut ended = Vec::new();
        for writer in writers {
            let told = tokio::time::timeout(LONG, writer).await;
            ended.push(told.expect("it is told").expect("no panic"));
        }
        let held = open(&folder.path().join("data"));
        for ((count, _), told) in counted(&*held).await.into_iter().zip(&ended) {
            let Ended {
                acknowledged,
                error,
            } = told;
            let is_right = match error {
                Error::Unavailable(_) => count == *acknowledged,
                Error::Unknown(_) => count == *acknowledged || count == acknowledged + 1,
                _ => false,
            };
            assert!(
                is_right,
                "round {round}: {count} is there, {acknowledged} acknowledged, then: {error}"
            );
            unknown += usize::from(matches!(error, Error::Unknown(_)));
        }
        drop(held);
        instance.socket.clear();
    }
    assert!(unknown > 0, "no round killed it in the middle of a commit");
    println!("{unknown} of {} ended in doubt", 12 * WRITERS);
}

#[tokio::test]
async fn a_watch_of_a_killed_instance_ends_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut instance = Instance::start(folder.path());
    let store = Remote::new(&instance.socket);
    let mut watch = store.watch(everything(), 1).await.expect("it begins");
    put(&store, "a", "1").await;
    news(&mut *watch).await.expect("it is open");
    instance.kill();
    let ended = news(&mut *watch).await.expect_err("nobody is there");
    assert!(
        matches!(&ended, Error::Unavailable(why) if why.contains("gone")),
        "{ended}"
    );
    let refused = store.identity().await.expect_err("nobody is there");
    assert!(matches!(refused, Error::Unavailable(_)), "{refused}");
}

//! What the embedded store does on this machine's disk: `cargo run --release -p mizan-store --example figures [FOLDER]`.

#![expect(clippy::print_stdout, reason = "it prints its findings")]

use mizan_store::embedded::{Embedded, Options};
use mizan_store::{Clock, Error, Message, Operation, Range, Store, System, Transaction};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Commits that are measured of each number of writers.
const COMMITS: usize = 2_000;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Error> {
    let path = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "store-figures".to_owned());
    let path = Path::new(&path).join(std::process::id().to_string());
    let store = Arc::new(Embedded::open(&path, Options::default())?);
    for writers in [1, 8, 64] {
        commits(&store, writers).await?;
    }
    delays(&store).await?;
    drop(store);
    let started = System.monotonic();
    drop(Embedded::open(&path, Options::default())?);
    println!(
        "opening again, and closing: {:?}",
        System.monotonic() - started
    );
    std::fs::remove_dir_all(&path).map_err(|error| Error::Unavailable(error.to_string()))
}

async fn put(store: &Embedded, key: String) -> Result<u64, Error> {
    let transaction = Transaction {
        compares: Vec::new(),
        operations: vec![Operation::put(key, vec![b'v'; 200])],
    };
    Ok(store.commit(transaction).await?.revision)
}

/// As many write at once, each one key after the other.
async fn commits(store: &Arc<Embedded>, writers: usize) -> Result<(), Error> {
    let started = System.monotonic();
    let tasks: Vec<_> = (0..writers)
        .map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                let mut times = Vec::new();
                for turn in 0..COMMITS / writers {
                    let asked = System.monotonic();
                    put(&store, format!("key/{writer}/{}", turn % 50)).await?;
                    times.push(System.monotonic() - asked);
                }
                Ok::<_, Error>(times)
            })
        })
        .collect();
    let mut times = Vec::new();
    for task in tasks {
        times.extend(
            task.await
                .map_err(|error| Error::Unknown(error.to_string()))??,
        );
    }
    let whole = System.monotonic() - started;
    let rate = times.len() as f64 / whole.as_secs_f64();
    println!(
        "{writers} writers: {rate:.0} commits/s, {}",
        percentiles(times)
    );
    Ok(())
}

/// From the acknowledgement of a commit to the watch that says it: negative times count as none.
async fn delays(store: &Arc<Embedded>) -> Result<(), Error> {
    let from = store.identity().await?.revision + 1;
    let mut watch = store.watch(Range::Prefix("watched".into()), from).await?;
    let (heard, mut all) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok(change) = watch.next().await {
            if let Message::Batch(batch) = change {
                let _ = heard.send((batch.revision, System.monotonic()));
            }
        }
    });
    let (mut from_asked, mut from_done) = (Vec::new(), Vec::new());
    for _ in 0..COMMITS / 4 {
        let asked = System.monotonic();
        put(store, "watched".to_owned()).await?;
        let done = System.monotonic();
        if let Some((_, at)) = all.recv().await {
            from_asked.push(at.saturating_sub(asked));
            from_done.push(at.saturating_sub(done));
        }
    }
    println!("asked to watched: {}", percentiles(from_asked));
    println!("acknowledged to watched: {}", percentiles(from_done));
    Ok(())
}

fn percentiles(mut times: Vec<Duration>) -> String {
    times.sort();
    let at = |share: usize| {
        times
            .get(times.len() * share / 100)
            .copied()
            .unwrap_or_default()
    };
    format!("p50 {:?}, p99 {:?}", at(50), at(99))
}

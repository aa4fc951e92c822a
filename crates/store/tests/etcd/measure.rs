//! How long it takes, on one node of this machine: printed, and held to a bound that only something broken passes.

use super::node::{Node, SOON, all, binaries, put};
use mizan_store::{Clock, Message, Store, System};
use std::time::Duration;
use tokio::time::timeout;

const ROUNDS: usize = 200;

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_acknowledged_and_seen_soon() {
    for binary in binaries() {
        let node = Node::alone(&binary).await;
        let store = node.store().await;
        let from = put(&store, "a", "begin").await.expect("it is up") + 1;
        let mut watch = store.watch(all(), from).await.expect("it is up");
        let (mut acknowledged, mut seen) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            let began = System.monotonic();
            let commit = async {
                put(&store, "a", &round.to_string())
                    .await
                    .expect("it is up");
                System.monotonic()
            };
            let hear = async {
                let said = timeout(SOON, watch.next())
                    .await
                    .expect("something is said");
                assert!(matches!(said, Ok(Message::Batch(_))), "{said:?}");
                System.monotonic()
            };
            let (commit, hear) = tokio::join!(commit, hear);
            acknowledged.push(commit - began);
            seen.push(hear.saturating_sub(commit));
        }
        let acknowledged = percentiles(acknowledged);
        let seen = percentiles(seen);
        eprintln!(
            "etcd {}: acknowledged after {acknowledged:?}, seen {seen:?} after that (p50, p99)",
            binary.series
        );
        assert!(
            acknowledged.0 < Duration::from_millis(250),
            "{acknowledged:?}"
        );
        assert!(seen.0 < Duration::from_millis(50), "{seen:?}");
    }
}

fn percentiles(mut times: Vec<Duration>) -> (Duration, Duration) {
    times.sort();
    (times[times.len() / 2], times[times.len() * 99 / 100])
}

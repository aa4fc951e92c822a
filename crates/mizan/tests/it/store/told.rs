//! What is told of a store: its metrics, and nodes whose clocks differ.

use super::*;
use ::mizan::clock;
use mizan_store::remote::Remote;
use mizan_store::{Operation, Store, Transaction};

/// Each of two clocks is right for its own node: the one that is behind says it.
#[test]
fn a_node_whose_clock_is_ahead_is_told() {
    let mizan = embedded();
    assert_eq!(mizan.metric("mizan_store_standing", "live"), 1.0);
    let store = Remote::new(mizan.admin_socket());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let told = clock::wall() + Duration::from_secs(30);
    let account = serde_json::json!({
        "node": "ahead", "region": "kr", "revision": 1, "digest": "", "rejected": 0, "held_back": "",
        "version": "0", "applied_ms": 0, "told_ms": told.as_millis() as u64,
    });
    let put = Operation::put("/mizan/default/v1/nodes/ahead", account.to_string());
    let transaction = Transaction {
        compares: Vec::new(),
        operations: vec![put],
    };
    runtime
        .block_on(store.commit(transaction))
        .expect("it is written");
    let warning = || status(&mizan).1["warnings"].to_string();
    eventually(SOON, "it is warned of", || {
        warning().contains("the clock of node `ahead` is")
    });
    let ahead = || mizan.metric("mizan_store_clock_ahead_seconds", "");
    assert!(ahead() > 20.0, "{}", ahead());
}

#[test]
fn a_store_that_is_lost_is_counted() {
    let mut etcd = Etcd::start();
    let mizan = Mizan::start(&config("one", &etcd.address()));
    eventually(SOON, "it is live", || {
        mizan.metric("mizan_store_standing", "live") == 1.0
    });
    assert_eq!(mizan.metric("mizan_store_events_total", "connected"), 1.0);
    etcd.kill();
    eventually(SOON, "the loss is seen", || {
        mizan.metric("mizan_store_standing", "stale") == 1.0
    });
    assert!(mizan.metric("mizan_store_events_total", "lost") >= 1.0);
    etcd.start_again();
    eventually(SOON, "it is reached again", || {
        mizan.metric("mizan_store_events_total", "connected") == 2.0
    });
}

//! The suite that all engines pass.

use super::node::{Node, binaries, options_of};
use mizan_store::Store;
use mizan_store::conformance::{Options, run};
use mizan_store::etcd::Etcd;
use std::sync::Arc;
use std::time::Duration;

/// What etcd is given beyond the suite's own bounds: it looks for ended leases twice a second, one revocation at a time.
fn suite() -> Options {
    Options {
        expiry_late_max: Duration::from_secs(3),
        proves_no_progress: true,
        ..Options::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_version_passes_the_suite() {
    for binary in binaries() {
        let node = Node::alone(&binary).await;
        let store: Arc<dyn Store> = Arc::new(node.store().await);
        let ran = run(&suite(), |_| std::future::ready(Arc::clone(&store))).await;
        eprintln!("etcd {}: {ran} cases", binary.series);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_is_not_seen_by_keys_prefixes_and_watches() {
    let node = Node::alone(&super::node::newest()).await;
    node.store().await;
    let mut options = options_of([node.address()]);
    options.namespace = "mizan/".into();
    let store: Arc<dyn Store> = Arc::new(Etcd::new(&options).expect("good options"));
    for only in ["key", "prefix", "watch", "conflict"] {
        let some = Options {
            only: Some(only.to_owned()),
            ..suite()
        };
        let ran = run(&some, |_| std::future::ready(Arc::clone(&store))).await;
        assert!(ran > 2, "{ran} cases are about {only}");
    }
}

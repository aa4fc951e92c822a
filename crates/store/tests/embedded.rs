//! The embedded store: the suite that every store has to pass, and what only one on a disk can be asked.

#[path = "embedded/crash.rs"]
mod crash;
#[path = "embedded/damage.rs"]
mod damage;
#[path = "embedded/fan_out.rs"]
mod fan_out;
#[path = "embedded/full.rs"]
mod full;
#[path = "embedded/restart.rs"]
mod restart;
#[path = "embedded/support.rs"]
mod support;

use mizan_store::conformance;
use mizan_store::embedded::{Embedded, Options};
use std::sync::Arc;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_passes_the_suite_with_a_fresh_store_for_each_case() {
    let folder = tempfile::tempdir().expect("a folder");
    let open = |name: &'static str| {
        let path = folder.path().join(name);
        async move {
            let store = Embedded::open(&path, Options::default()).expect("it opens");
            Arc::new(store) as Arc<dyn mizan_store::Store>
        }
    };
    let ran = conformance::run(&suite(), open).await;
    assert!(ran >= 80 || suite().only.is_some(), "{ran} cases ran");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_passes_the_suite_with_one_store_for_all_cases() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = Embedded::open(folder.path(), Options::default()).expect("it opens");
    let store: Arc<dyn mizan_store::Store> = Arc::new(store);
    conformance::run(&suite(), |_| std::future::ready(store.clone())).await;
}

/// `MIZAN_STORE_SEED` and `MIZAN_STORE_STEPS` for other histories, `MIZAN_STORE_CASE` for one case alone.
fn suite() -> conformance::Options {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let default = conformance::Options::default();
    conformance::Options {
        seed: number("MIZAN_STORE_SEED").unwrap_or(default.seed),
        history_steps: number("MIZAN_STORE_STEPS")
            .map_or(default.history_steps, |steps| steps as usize),
        only: std::env::var("MIZAN_STORE_CASE").ok(),
        expiry_late_max: std::time::Duration::from_millis(100),
        proves_no_progress: false,
    }
}

//! What every engine has to do, as a suite of named cases that is written once.
//!
//! A case knows only `dyn Store`. It works below a prefix of its own, so that all of them can share one store; but it
//! counts revisions, so that nobody else may write to that store meanwhile. Where life and death take real time, as with a
//! lease that ends, it waits for the watch to say so.
//!
//! Behind the feature `conformance`, so that other crates' tests can run it on what they make of a store.

mod bytes;
mod compaction;
mod compares;
mod concurrency;
mod histories;
mod leases;
mod limits;
mod listing;
mod model;
mod place;
mod random;
mod revisions;
mod transactions;
mod watching;

use crate::{Answer, Operation, Range, Store, Transaction};
use place::Place;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// Longest that one case may take.
const CASE_TIME_MAX: Duration = Duration::from_secs(120);

/// How the suite is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// What random histories are drawn from: the same one gives the same history.
    pub seed: u64,
    /// Runs only cases whose name contains this.
    pub only: Option<String>,
    /// Transactions in each random history.
    pub history_steps: usize,
    /// Latest that the end of a lease may be seen, after its granted life is over.
    pub expiry_late_max: Duration,
    /// Leaves out the cases on progress: for a store that cannot prove any, as old versions of etcd.
    pub proves_no_progress: bool,
}

impl Default for Options {
    /// All cases, a short history.
    fn default() -> Self {
        Self {
            seed: 1,
            only: None,
            history_steps: 300,
            expiry_late_max: Duration::from_millis(500),
            proves_no_progress: false,
        }
    }
}

/// One promise, and how it is put to the test: it fails by a panic or by an error that it did not expect.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    run: fn(Place) -> Answer<'static, ()>,
}

/// Lists the cases of a file under the names of their functions.
macro_rules! cases {
    ($($name:ident)*) => {
        pub(super) const CASES: &[super::Case] = &[
            $(super::Case { name: stringify!($name), run: |place| Box::pin($name(place)) },)*
        ];
    };
}
use cases;

/// All cases, in the order in which they run.
fn all() -> impl Iterator<Item = Case> {
    [
        revisions::CASES,
        listing::CASES,
        watching::CASES,
        compares::CASES,
        transactions::CASES,
        limits::CASES,
        bytes::CASES,
        leases::CASES,
        concurrency::CASES,
        compaction::CASES,
        histories::CASES,
    ]
    .into_iter()
    .flatten()
    .copied()
}

/// The names of all cases, in the order in which they run.
pub fn names() -> Vec<&'static str> {
    all().map(|case| case.name).collect()
}

/// Runs every case, one after the other, on the store that `open` gives for it: a fresh one, or always the same. Returns
/// how many ran.
///
/// Wants tokio's runtime with more than one thread.
///
/// # Panics
/// If a case fails, after all have run: with the name and the seed of each that failed.
pub async fn run<Open, Opened>(options: &Options, mut open: Open) -> usize
where
    Open: FnMut(&'static str) -> Opened,
    Opened: Future<Output = Arc<dyn Store>>,
{
    let mut ran = 0;
    let mut failures = Vec::new();
    for case in all() {
        let wanted = options.only.as_deref().unwrap_or_default();
        let is_left_out = options.proves_no_progress && case.name.contains("progress");
        if is_left_out || !case.name.contains(wanted) {
            continue;
        }
        let place = Place::new(open(case.name).await, case.name, options);
        if let Err(why) = run_one(case, place).await {
            failures.push(format!("{} (seed {}): {why}", case.name, options.seed));
        }
        ran += 1;
    }
    assert!(
        failures.is_empty(),
        "{} of {ran} cases failed:\n{}",
        failures.len(),
        failures.join("\n")
    );
    ran
}

/// Runs one case on a task of its own, and takes away what it left.
async fn run_one(case: Case, place: Place) -> Result<(), String> {
    let store = place.store.clone();
    let rest = Transaction {
        compares: Vec::new(),
        operations: vec![Operation::Delete(Range::Prefix(place.key("")))],
    };
    let mut task = tokio::spawn((case.run)(place));
    let outcome = tokio::time::timeout(CASE_TIME_MAX, &mut task).await;
    task.abort();
    let cleared = store.commit(rest).await;
    match outcome {
        Err(_) => return Err(format!("it is not done after {CASE_TIME_MAX:?}")),
        Ok(Err(error)) => return Err(told(error)),
        Ok(Ok(Err(error))) => return Err(format!("the store answered: {error}")),
        Ok(Ok(Ok(()))) => {}
    }
    cleared.map_err(|error| format!("what it left cannot be deleted: {error}"))?;
    Ok(())
}

/// What a task said as it panicked.
fn told(error: tokio::task::JoinError) -> String {
    let Ok(panic) = error.try_into_panic() else {
        return "it was stopped".to_owned();
    };
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "it panicked".to_owned())
}

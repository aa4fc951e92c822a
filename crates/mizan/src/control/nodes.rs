//! What each balancer has in force, told to all: so that one that lags or differs cannot be missed.

use super::Layout;
use crate::clock;
use mizan_store::{Error, Lease, LeaseId, Operation, Query, Range, Store, Transaction};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How long a node's account stands that is not renewed: a node that is gone is gone from `mizan status` then.
const LIFE: Duration = Duration::from_secs(15);
/// Between two renewals; before a try after one that failed.
const RENEW: Duration = Duration::from_secs(5);
/// After so many renewals it is told anew, with the time: clocks drift, also while nobody edits.
const TELL_AGAIN: u32 = 12;

/// What a node says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Account {
    /// Which node.
    pub node: String,
    /// Its region.
    pub region: String,
    /// The store's revision that the table in force there is of.
    pub revision: u64,
    /// Tells two tables in force apart, in hexadecimal.
    pub digest: String,
    /// Objects that are not in force there as they stand in the store.
    pub rejected: usize,
    /// Objects that wait there for a new pool to be warm.
    #[serde(default)]
    pub waiting: usize,
    /// Why what the store says is not in force there; empty if it is.
    pub held_back: String,
    /// Version of Mizan.
    pub version: String,
    /// When this came into force, in ms since 1970.
    pub applied_ms: u64,
    /// When the node said this, by its clock, in ms since 1970.
    #[serde(default)]
    pub told_ms: u64,
}

/// Keeps this node's account in `store`, and renews it, until it is dropped. `None` is nothing yet.
pub async fn publish(
    store: Arc<dyn Store>,
    layout: Layout,
    mut account: watch::Receiver<Option<Account>>,
) {
    let mut lease: Option<LeaseId> = None;
    loop {
        let now = account.borrow_and_update().clone();
        if let Some(now) = now
            && let Err(error) = put(&*store, &layout, &now, &mut lease).await
        {
            tracing::debug!("what this node has in force could not be told to the store: {error}");
            lease = None;
        }
        for _ in 0..TELL_AGAIN {
            tokio::select! {
                changed = account.changed() => match changed {
                    Ok(()) => break,
                    // Nobody will say anything more.
                    Err(_) => return,
                },
                () = tokio::time::sleep(RENEW) => match lease {
                    // A lease that was lost: the account is put anew.
                    None => break,
                    Some(id) if store.keep_alive(id).await.is_err() => {
                        lease = None;
                        break;
                    }
                    Some(_) => {}
                },
            }
        }
    }
}

async fn put(
    store: &dyn Store,
    layout: &Layout,
    account: &Account,
    lease: &mut Option<LeaseId>,
) -> Result<(), Error> {
    let id = match *lease {
        Some(id) => id,
        None => {
            let Lease { id, .. } = store.grant(LIFE).await?;
            *lease = Some(id);
            id
        }
    };
    let account = Account {
        told_ms: clock::wall().as_millis() as u64,
        ..account.clone()
    };
    let value = serde_json::to_vec(&account).map_err(|error| Error::Invalid(error.to_string()))?;
    let put = Operation::Put {
        key: layout.node(&account.node),
        value: value.into(),
        lease: Some(id),
    };
    let transaction = Transaction {
        compares: Vec::new(),
        operations: vec![put],
    };
    store.commit(transaction).await.map(drop)
}

/// What all nodes say of themselves now. What cannot be read is passed over.
///
/// # Errors
/// The store's.
pub async fn list(store: &dyn Store, layout: &Layout) -> Result<Vec<Account>, Error> {
    let listing = store
        .list(Query::now(Range::Prefix(layout.nodes())))
        .await?;
    let read = |entry: &mizan_store::Entry| serde_json::from_slice(&entry.value).ok();
    Ok(listing.entries.iter().filter_map(read).collect())
}

//! The store in etcd, from version 3.4 on.
//!
//! It speaks the protocol itself rather than through a client library, for what it promises hangs on details that those
//! hide: whether a request had left when its connection failed, which part of an answer is whole, which member a watch
//! hangs on and what that one's version gets wrong.
//!
//! - Nothing is connected before something is asked; one member is asked until it disappoints, then the next.
//! - Reads are asked of the quorum, and again if a member fails; what changes something is sent once.
//! - Each watch has a connection of its own, so that no long answer holds it up, and is known to be alive.
//!
//! The rules and where they come from are in `docs/etcd.md`.

mod call;
mod connection;
mod follow;
mod generated;
mod members;
mod options;
mod refusal;
#[cfg(test)]
mod scripted;
mod tls;
mod translate;
mod version;

pub use options::{
    ClientCertificate, Credentials, Deadlines, InvalidOptions, Options, Password, Tls,
};

use crate::{
    Answer, Committed, Denial, Error, Identity, KEY_BYTES_MAX, Lease, LeaseId, Listing, Operation,
    Query, Range, Revision, Store, Transaction, Watch,
};
use call::Caller;
use generated::etcdserverpb as pb;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use translate::{Namespace, revision, signed, unsigned};

/// Most bytes of a namespace: with it, keys are still of a size that etcd takes.
const NAMESPACE_BYTES_MAX: usize = KEY_BYTES_MAX;

/// A store in etcd. Asked from a runtime of tokio, whose tasks its connections are.
#[derive(Clone)]
pub struct Etcd {
    inner: Arc<Inner>,
}

/// What the store and its watches share.
struct Inner {
    caller: Caller,
    namespace: Namespace,
    members: Vec<String>,
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd")
            .field("members", &self.inner.members)
            .finish_non_exhaustive()
    }
}

impl Etcd {
    /// What `options` say; nothing is connected with yet.
    ///
    /// # Errors
    /// Options that no etcd could be reached by.
    pub fn new(options: &Options) -> Result<Self, InvalidOptions> {
        let found = options.namespace.len();
        if found > NAMESPACE_BYTES_MAX {
            return Err(InvalidOptions::Namespace {
                found,
                limit: NAMESPACE_BYTES_MAX,
            });
        }
        let inner = Inner {
            caller: Caller::new(options)?,
            namespace: Namespace(options.namespace.clone()),
            members: options.members.clone(),
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }
}

impl Store for Etcd {
    fn identity(&self) -> Answer<'_, Identity> {
        Box::pin(self.inner.identity())
    }

    fn list(&self, query: Query) -> Answer<'_, Listing> {
        Box::pin(self.inner.list(query))
    }

    fn commit(&self, transaction: Transaction) -> Answer<'_, Committed> {
        Box::pin(self.inner.commit(transaction))
    }

    fn watch(&self, range: Range, from: Revision) -> Answer<'_, Box<dyn Watch>> {
        Box::pin(async move {
            let watch = follow::open(&self.inner, &range, from).await?;
            Ok(Box::new(watch) as Box<dyn Watch>)
        })
    }

    fn grant(&self, life: Duration) -> Answer<'_, Lease> {
        Box::pin(self.inner.grant(life))
    }

    fn keep_alive(&self, id: LeaseId) -> Answer<'_, Lease> {
        Box::pin(self.inner.keep_alive(id))
    }

    fn revoke(&self, id: LeaseId) -> Answer<'_, ()> {
        Box::pin(self.inner.revoke(id))
    }

    fn lease(&self, id: LeaseId) -> Answer<'_, Lease> {
        Box::pin(self.inner.lease(id))
    }

    fn compact(&self, revision: Revision) -> Answer<'_, ()> {
        Box::pin(self.inner.compact(revision))
    }
}

impl Inner {
    async fn identity(&self) -> Result<Identity, Error> {
        let reply = self.caller.ask(self.namespace.least()).await?;
        let version = match self.caller.ask(pb::StatusRequest {}).await {
            Ok(status) => status.version,
            // Who may read and write need not be told what etcd is like.
            Err(Error::Denied(Denial::Permission(_))) => "unknown".to_owned(),
            Err(error) => return Err(error),
        };
        Ok(Identity {
            id: reply.header.as_ref().map_or(0, |header| header.cluster_id),
            revision: revision(reply.header.as_ref()),
            warnings: version::warnings(&version),
            version,
        })
    }

    async fn list(&self, query: Query) -> Result<Listing, Error> {
        let mut request = self.namespace.query(&query);
        if query.at == Some(0) {
            // To etcd 0 is now. Before the first change is 1, where nothing was there either.
            request.revision = 1;
        }
        let reply = match self.caller.ask(request).await {
            Ok(reply) => reply,
            Err(error) => return Err(self.explain(error, query.at.unwrap_or(0)).await),
        };
        let entries = reply
            .kvs
            .into_iter()
            .map(|found| self.namespace.entry(found));
        Ok(Listing {
            revision: revision(reply.header.as_ref()),
            entries: entries.collect(),
        })
    }

    async fn commit(&self, transaction: Transaction) -> Result<Committed, Error> {
        transaction.check()?;
        match self
            .caller
            .ask(self.namespace.transaction(&transaction))
            .await
        {
            Ok(reply) => self.namespace.outcome(&transaction, reply),
            Err(Error::NoLease(_)) => Err(Error::NoLease(self.ended(&transaction).await)),
            Err(error) => Err(error),
        }
    }

    /// The lease that `transaction` failed for, which etcd does not name.
    async fn ended(&self, transaction: &Transaction) -> LeaseId {
        let leases: BTreeSet<LeaseId> = transaction
            .operations
            .iter()
            .filter_map(|operation| match operation {
                Operation::Put { lease, .. } => *lease,
                Operation::Delete(_) => None,
            })
            .collect();
        for lease in &leases {
            if let Err(Error::NoLease(ended)) = self.lease(*lease).await {
                return ended;
            }
        }
        leases.first().copied().unwrap_or(LeaseId(0))
    }

    async fn grant(&self, life: Duration) -> Result<Lease, Error> {
        Lease::check_life(life)?;
        let whole = life.as_secs() + u64::from(life.subsec_nanos() > 0);
        let request = pb::LeaseGrantRequest {
            ttl: signed(whole),
            id: 0,
        };
        let reply = self.caller.ask(request).await?;
        let granted = Duration::from_secs(unsigned(reply.ttl));
        Ok(Lease {
            id: LeaseId(reply.id),
            left: granted,
            granted,
        })
    }

    async fn keep_alive(&self, id: LeaseId) -> Result<Lease, Error> {
        let outcome = self
            .caller
            .ask(pb::LeaseKeepAliveRequest { id: id.0 })
            .await;
        let reply = named(id, outcome)?;
        if reply.ttl <= 0 {
            return Err(Error::NoLease(id));
        }
        let granted = Duration::from_secs(unsigned(reply.ttl));
        Ok(Lease {
            id,
            left: granted,
            granted,
        })
    }

    async fn revoke(&self, id: LeaseId) -> Result<(), Error> {
        let outcome = self.caller.ask(pb::LeaseRevokeRequest { id: id.0 }).await;
        named(id, outcome).map(|_| ())
    }

    async fn lease(&self, id: LeaseId) -> Result<Lease, Error> {
        let outcome = self
            .caller
            .ask(pb::LeaseTimeToLiveRequest { id: id.0 })
            .await;
        let reply = named(id, outcome)?;
        // In its last second 0 are left; of one that is not, -1.
        if reply.ttl < 0 {
            return Err(Error::NoLease(id));
        }
        Ok(Lease {
            id,
            left: Duration::from_secs(unsigned(reply.ttl)),
            granted: Duration::from_secs(unsigned(reply.granted_ttl)),
        })
    }

    async fn compact(&self, revision: Revision) -> Result<(), Error> {
        let request = pb::CompactionRequest {
            revision: signed(revision),
        };
        match self.caller.ask(request).await {
            Ok(_) => Ok(()),
            Err(error) => Err(self.explain(error, revision).await),
        }
    }

    /// Puts the revisions into an error that etcd tells without them.
    async fn explain(&self, error: Error, asked: Revision) -> Error {
        let outcome = match error {
            Error::Compacted { .. } => follow::oldest(self)
                .await
                .map(|oldest| Error::Compacted { oldest }),
            Error::Future { .. } => {
                self.caller
                    .ask(self.namespace.least())
                    .await
                    .map(|reply| Error::Future {
                        asked,
                        current: revision(reply.header.as_ref()),
                    })
            }
            other => return other,
        };
        outcome.unwrap_or_else(|failed| failed)
    }
}

/// The outcome of a question about the lease `id`, which etcd does not name.
fn named<T>(id: LeaseId, outcome: Result<T, Error>) -> Result<T, Error> {
    outcome.map_err(|error| match error {
        Error::NoLease(_) => Error::NoLease(id),
        other => other,
    })
}

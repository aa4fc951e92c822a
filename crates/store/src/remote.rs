//! The store of a running instance, for other processes of its machine: through the Unix socket of its admin API.
//!
//! An embedded store belongs to one process. This is how others use it with the same meaning: what they ask, the instance
//! asks its own store, whichever that is, and what that answers they are answered. [`wire`] is what the two say.
//!
//! What changes something and has no answer is [`Error::Unknown`], as the instance may have died before or after it was
//! done. A read without an answer is [`Error::Unavailable`], and so is a watch that is lost; nothing is asked again and no
//! watch taken up again behind the caller's back: that is the [follower](crate::follower)'s work.

mod line;
mod watch;
pub mod wire;

use crate::{
    Answer, Committed, Error, Identity, Lease, LeaseId, Listing, Query, Range, Revision, Store,
    Transaction, Watch,
};
use bytes::Bytes;
use hyper::StatusCode;
use line::{Failed, Lines};
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};
use std::time::Duration;
use wire::{Wire, write};

/// The store of the instance on a Unix socket. Nothing is connected before it is asked.
#[derive(Debug)]
pub struct Remote {
    lines: Lines,
}

/// Whether a question that was lost may have changed something.
#[derive(Clone, Copy)]
enum Kind {
    Read,
    Change,
}

impl Kind {
    /// Nobody knows what became of it.
    fn lost(self, why: String) -> Error {
        match self {
            Self::Read => Error::Unavailable(why),
            Self::Change => Error::Unknown(why),
        }
    }
}

impl Remote {
    /// That of the instance whose admin API is on `socket`, as `/run/mizan/admin.sock`.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self {
            lines: Lines::new(socket.into()),
        }
    }

    /// Where it is asked.
    pub fn socket(&self) -> &Path {
        self.lines.socket()
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        kind: Kind,
        path: &'static str,
        question: Bytes,
    ) -> Result<T, Error> {
        let answer = match self.lines.ask(path, question).await {
            Ok(answer) => answer,
            Err(failed) => return Err(self.failed(kind, failed)),
        };
        if answer.status != StatusCode::OK {
            return Err(self.refused(kind, answer.status, &answer.body));
        }
        wire::read(&answer.body).map_err(|why| {
            let socket = self.socket().display();
            kind.lost(format!("what {socket} answers is not understood: {why}"))
        })
    }

    fn failed(&self, kind: Kind, failed: Failed) -> Error {
        match failed {
            Failed::Unsent(error) => error,
            Failed::Lost(why) => {
                let socket = self.socket().display();
                kind.lost(format!("no answer came from {socket}: {why}"))
            }
        }
    }

    /// What an answer means that is none of the store's, or an error of it.
    fn refused(&self, kind: Kind, status: StatusCode, body: &[u8]) -> Error {
        let refusal = wire::read::<wire::Refusal>(body);
        let message = match refusal {
            Ok(wire::Refusal {
                error: Some(Wire(error)),
                ..
            }) => return error,
            Ok(refusal) => refusal.message,
            Err(_) => format!("it answers {status}"),
        };
        let socket = self.socket().display();
        let told = format!("the instance on {socket}: {message}");
        match status {
            StatusCode::BAD_REQUEST
            | StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::UNSUPPORTED_MEDIA_TYPE
            | StatusCode::UNPROCESSABLE_ENTITY => Error::Invalid(told),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                Error::Denied(crate::Denial::Permission(told))
            }
            // It was refused before the store was asked.
            status if status.is_client_error() => Error::Unavailable(told),
            StatusCode::SERVICE_UNAVAILABLE => Error::Unavailable(told),
            _ => kind.lost(told),
        }
    }

    async fn of_lease<T: DeserializeOwned>(
        &self,
        kind: Kind,
        path: &'static str,
        id: LeaseId,
    ) -> Result<T, Error> {
        self.ask(kind, path, write(&wire::OfLease { id })).await
    }
}

impl Store for Remote {
    fn identity(&self) -> Answer<'_, Identity> {
        Box::pin(async move {
            let nothing = write(&wire::Nothing {});
            let Wire(identity) = self.ask(Kind::Read, wire::IDENTITY, nothing).await?;
            Ok(identity)
        })
    }

    fn list(&self, query: Query) -> Answer<'_, Listing> {
        Box::pin(async move {
            let query = write(&Wire(query));
            let Wire(listing) = self.ask(Kind::Read, wire::LIST, query).await?;
            Ok(listing)
        })
    }

    fn commit(&self, transaction: Transaction) -> Answer<'_, Committed> {
        Box::pin(async move {
            // What no store takes is not sent: it may be too large for that, too.
            transaction.check()?;
            let transaction = write(&Wire(transaction));
            let Wire(committed) = self.ask(Kind::Change, wire::COMMIT, transaction).await?;
            Ok(committed)
        })
    }

    fn watch(&self, range: Range, from: Revision) -> Answer<'_, Box<dyn Watch>> {
        Box::pin(async move {
            let question = write(&wire::Follow { range, from });
            let followed = self.lines.follow(wire::WATCH, question).await;
            let (mut line, response) =
                followed.map_err(|failed| self.failed(Kind::Read, failed))?;
            if response.status() == StatusCode::OK {
                let watch = watch::Remote::new(line, response.into_body());
                return Ok(Box::new(watch) as Box<dyn Watch>);
            }
            let answer = line.read(response).await;
            let answer = answer.map_err(|why| self.failed(Kind::Read, Failed::Lost(why)))?;
            Err(self.refused(Kind::Read, answer.status, &answer.body))
        })
    }

    fn grant(&self, life: Duration) -> Answer<'_, Lease> {
        Box::pin(async move {
            Lease::check_life(life)?;
            let life = write(&wire::Grant { life });
            let Wire(lease) = self.ask(Kind::Change, wire::GRANT, life).await?;
            Ok(lease)
        })
    }

    fn keep_alive(&self, id: LeaseId) -> Answer<'_, Lease> {
        Box::pin(async move {
            let Wire(lease) = self.of_lease(Kind::Change, wire::KEEP_ALIVE, id).await?;
            Ok(lease)
        })
    }

    fn revoke(&self, id: LeaseId) -> Answer<'_, ()> {
        Box::pin(async move {
            let wire::Nothing {} = self.of_lease(Kind::Change, wire::REVOKE, id).await?;
            Ok(())
        })
    }

    fn lease(&self, id: LeaseId) -> Answer<'_, Lease> {
        Box::pin(async move {
            let Wire(lease) = self.of_lease(Kind::Read, wire::LEASE, id).await?;
            Ok(lease)
        })
    }

    fn compact(&self, revision: Revision) -> Answer<'_, ()> {
        Box::pin(async move {
            let question = write(&wire::Compact { revision });
            let wire::Nothing {} = self.ask(Kind::Change, wire::COMPACT, question).await?;
            Ok(())
        })
    }
}

//! What the absence of an answer means: was it done, and who may try again.

use super::connection::Lost;
use crate::error::What;
use crate::{Denial, Error, LeaseId, OPERATIONS_MAX, TRANSACTION_BYTES_MAX};
use std::error::Error as _;
use tonic::{Code, Status};

/// Why a question has no answer.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) kind: Kind,
    /// For people.
    pub(super) reason: String,
}

/// What follows from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It never left: nothing was done.
    NotSent,
    /// The connection ended after it had left: nobody knows.
    Lost,
    /// There was no answer in time: nobody knows.
    Late,
    /// The member says that it does not know whether it was done.
    Doubtful,
    /// The member cannot do it now; nothing was done.
    NotNow,
    /// Our token is no longer good, or there was none; nothing was done.
    Token,
    /// It will not be otherwise when it is asked again; nothing was done.
    Final(Error),
}

impl Refusal {
    pub(super) fn new(kind: Kind, reason: impl Into<String>) -> Self {
        Self {
            kind,
            reason: reason.into(),
        }
    }

    /// What `status` means.
    pub(super) fn of(status: &Status) -> Self {
        let kind = match status.source() {
            Some(source) => match source.downcast_ref::<Lost>() {
                Some(Lost { is_sent: false, .. }) => Kind::NotSent,
                _ => Kind::Lost,
            },
            None => Self::said(status.code(), status.message()),
        };
        Self::new(kind, status.message())
    }

    /// What a member means that said `message`.
    pub(super) fn said(code: Code, message: &str) -> Kind {
        let known = KNOWN.iter().find(|(part, _)| message.contains(part));
        if let Some((_, meaning)) = known {
            return meaning(message);
        }
        match code {
            Code::PermissionDenied => {
                Kind::Final(Error::Denied(Denial::Permission(message.to_owned())))
            }
            Code::Unauthenticated => Kind::Token,
            Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => {
                Kind::Final(Error::Invalid(message.to_owned()))
            }
            Code::Unimplemented => Kind::Final(Error::Invalid(format!(
                "this etcd is too old, or none: {message}"
            ))),
            Code::DataLoss => Kind::Final(Error::Damaged(message.to_owned())),
            // Time-outs, a leader that went, a server that stops: what was proposed may still be done.
            _ => Kind::Doubtful,
        }
    }

    /// The error of a question that changes nothing, or that was not sent.
    pub(super) fn undone(self) -> Error {
        match self.kind {
            Kind::Final(error) => error,
            _ => Error::Unavailable(self.reason),
        }
    }

    /// The error of a question that was sent and changes something.
    pub(super) fn unknown(self) -> Error {
        match self.kind {
            Kind::Final(error) => error,
            Kind::NotSent | Kind::NotNow | Kind::Token => Error::Unavailable(self.reason),
            Kind::Lost | Kind::Late | Kind::Doubtful => Error::Unknown(self.reason),
        }
    }
}

type Meaning = fn(&str) -> Kind;

/// A part of what etcd says, and what it means. Texts, because several have one code, and codes have changed.
const KNOWN: &[(&str, Meaning)] = &[
    ("no leader", |_| Kind::NotNow),
    ("not capable", |_| Kind::NotNow),
    ("too many requests", |_| Kind::NotNow),
    ("invalid auth token", |_| Kind::Token),
    ("revision of auth store is old", |_| Kind::Token),
    // The same, from where 3.4 and 3.5 forget to translate it.
    ("revision in header is old", |_| Kind::Token),
    ("user name is empty", |_| Kind::Token),
    ("user name not found", |_| {
        Kind::Final(Error::Denied(Denial::Password))
    }),
    ("invalid user ID or password", |_| {
        Kind::Final(Error::Denied(Denial::Password))
    }),
    ("permission denied", |message| {
        Kind::Final(Error::Denied(Denial::Permission(message.to_owned())))
    }),
    // Which revisions are meant, the message does not say: who asked finds out.
    ("required revision has been compacted", |_| {
        Kind::Final(Error::Compacted { oldest: 0 })
    }),
    ("required revision is a future revision", |_| {
        Kind::Final(Error::Future {
            asked: 0,
            current: 0,
        })
    }),
    ("requested lease not found", |_| {
        Kind::Final(Error::NoLease(LeaseId(0)))
    }),
    ("database space exceeded", |_| {
        Kind::Final(Error::Full(
            "etcd's quota is used up: compact, defragment, and disarm the alarm NOSPACE".to_owned(),
        ))
    }),
    ("too many operations", |_| {
        Kind::Final(Error::TooLarge {
            what: What::Operations,
            found: OPERATIONS_MAX + 1,
            limit: OPERATIONS_MAX,
        })
    }),
    ("request is too large", |_| too_large()),
    ("received message larger than max", |_| too_large()),
    ("message length too large", |message| {
        Kind::Final(Error::Invalid(format!(
            "the answer is longer than is read: ask for less ({message})"
        )))
    }),
];

/// etcd is set to take less than it does by default: how much, it does not say.
fn too_large() -> Kind {
    Kind::Final(Error::TooLarge {
        what: What::Transaction,
        found: TRANSACTION_BYTES_MAX,
        limit: TRANSACTION_BYTES_MAX,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(code: Code, message: &str) -> Kind {
        Refusal::of(&Status::new(code, message)).kind
    }

    #[test]
    fn what_may_have_been_done_is_never_told_as_undone() {
        for (code, message) in [
            (Code::Unavailable, "etcdserver: request timed out"),
            (
                Code::Unavailable,
                "etcdserver: request timed out, possibly due to previous leader failure",
            ),
            (Code::Unavailable, "etcdserver: leader changed"),
            (Code::Unavailable, "etcdserver: server stopped"),
            (Code::Unknown, "raft proposal dropped"),
            (Code::Unknown, "context deadline exceeded"),
            (Code::Cancelled, ""),
            (Code::Internal, "stream terminated by RST_STREAM"),
        ] {
            let refusal = Refusal::of(&Status::new(code, message));
            assert_eq!(refusal.kind, Kind::Doubtful, "{message}");
            assert!(matches!(refusal.clone().unknown(), Error::Unknown(_)));
            assert!(matches!(refusal.undone(), Error::Unavailable(_)));
        }
    }

    #[test]
    fn what_a_member_refuses_before_doing_it_is_undone() {
        for (code, message) in [
            (Code::Unavailable, "etcdserver: no leader"),
            (Code::ResourceExhausted, "etcdserver: too many requests"),
        ] {
            let refusal = Refusal::of(&Status::new(code, message));
            assert!(
                matches!(refusal.unknown(), Error::Unavailable(_)),
                "{message}"
            );
        }
    }

    #[test]
    fn a_lost_connection_is_in_doubt_unless_nothing_left() {
        for (is_sent, expected) in [(true, Kind::Lost), (false, Kind::NotSent)] {
            let lost = Lost::of_test(is_sent);
            let refusal = Refusal::of(&Status::from_error(Box::new(lost)));
            assert_eq!(refusal.kind, expected);
        }
    }

    #[test]
    fn three_denials_are_told_apart() {
        assert_eq!(
            kind(
                Code::InvalidArgument,
                "etcdserver: authentication failed, invalid user ID or password"
            ),
            Kind::Final(Error::Denied(Denial::Password))
        );
        assert_eq!(
            kind(Code::Unauthenticated, "etcdserver: invalid auth token"),
            Kind::Token
        );
        assert_eq!(
            kind(
                Code::InvalidArgument,
                "etcdserver: revision of auth store is old"
            ),
            Kind::Token
        );
        assert!(matches!(
            kind(Code::PermissionDenied, "etcdserver: permission denied"),
            Kind::Final(Error::Denied(Denial::Permission(_)))
        ));
    }
}

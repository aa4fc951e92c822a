//! What the two halves say to each other. Both read and write it here, so that they cannot differ.
//!
//! A question is `POST` with a JSON body to a path below `/v1/store`, its answer JSON. Keys and values are base64, for they
//! are bytes; revisions and leases are numbers; how long something lasts is `{"secs": 1, "nanos": 0}`. What was refused is
//! [`Refusal`]. A watch is answered with server-sent events: `batch` (a [`Batch`](crate::Batch)), `progress` (a revision)
//! and, as the last, `error` (an [`Error`](crate::Error)); a comment is said where nothing else is.
//!
//! Each `mod` and type that is not public describes one of the crate's own words. A word that gets another field or
//! variant does not compile before it is described here.

use bytes::Bytes;
use data_encoding::BASE64;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::time::Duration;

mod events;
#[cfg(test)]
mod tests;

pub use events::{Events, event, silence};

/// Which store it is. Asked with `{}`; answers with [`crate::Identity`].
pub const IDENTITY: &str = "/v1/store/identity";
/// What is there. Asked with [`crate::Query`]; answers with [`crate::Listing`].
pub const LIST: &str = "/v1/store/list";
/// A transaction. Asked with [`crate::Transaction`]; answers with [`crate::Committed`].
pub const COMMIT: &str = "/v1/store/commit";
/// A new lease. Asked with [`Grant`]; answers with [`crate::Lease`].
pub const GRANT: &str = "/v1/store/grant";
/// A lease's whole life again. Asked with [`OfLease`]; answers with [`crate::Lease`].
pub const KEEP_ALIVE: &str = "/v1/store/keep_alive";
/// The end of a lease. Asked with [`OfLease`]; answers with [`Nothing`].
pub const REVOKE: &str = "/v1/store/revoke";
/// What is left of a lease. Asked with [`OfLease`]; answers with [`crate::Lease`].
pub const LEASE: &str = "/v1/store/lease";
/// An end of the past. Asked with [`Compact`]; answers with [`Nothing`].
pub const COMPACT: &str = "/v1/store/compact";
/// A watch. Asked with [`Follow`]; answers with [events](Events).
pub const WATCH: &str = "/v1/store/watch";

/// Largest question: the largest transaction in base64, with room for what stands around its parts.
pub const QUESTION_BYTES_MAX: usize = 2 << 20;
/// Largest answer, and largest event: more than all that an embedded store holds by default.
pub const ANSWER_BYTES_MAX: usize = 512 << 20;
/// About how much of a long listing is written in one piece.
const PIECE_BYTES: usize = 64 << 10;
/// How long a watch is silent before it says that it is still there.
pub const SILENCE: Duration = Duration::from_secs(5);

/// One of the crate's own words, as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wire<T>(pub T);

/// Neither a question nor an answer has anything to say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// A lease is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// For at least how long.
    pub life: Duration,
}

/// It is about a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfLease {
    /// Which.
    #[serde(with = "LeaseId")]
    pub id: crate::LeaseId,
}

/// The past may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compact {
    /// Up to which revision.
    pub revision: crate::Revision,
}

/// A watch is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Follow {
    /// Of what.
    #[serde(with = "Range")]
    pub range: crate::Range,
    /// From which revision on.
    pub from: crate::Revision,
}

/// Why there is no answer, in the shape of all errors of the admin API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// In a word.
    pub code: String,
    /// In a sentence.
    pub message: String,
    /// What of the question it is about; else empty.
    #[serde(default)]
    pub path: String,
    /// What the store itself said; `None`: it was not asked, or not heard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Wire<crate::Error>>,
}

impl From<crate::Error> for Refusal {
    fn from(error: crate::Error) -> Self {
        Self {
            code: code(&error).to_owned(),
            message: error.to_string(),
            path: String::new(),
            error: Some(Wire(error)),
        }
    }
}

fn code(error: &crate::Error) -> &'static str {
    match error {
        crate::Error::Conflict(_) => "conflict",
        crate::Error::Compacted { .. } => "compacted",
        crate::Error::Future { .. } => "future",
        crate::Error::Unavailable(_) => "unavailable",
        crate::Error::Unknown(_) => "unknown",
        crate::Error::Denied(_) => "denied",
        crate::Error::TooLarge { .. } => "too_large",
        crate::Error::Full(_) => "full",
        crate::Error::Invalid(_) => "invalid",
        crate::Error::NoLease(_) => "no_lease",
        crate::Error::Damaged(_) => "damaged",
    }
}

/// What was read is told by name, and where it ends to make sense.
///
/// # Errors
/// What is wrong with it, with line and column.
pub fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    serde_json::from_slice(bytes).map_err(|error| error.to_string())
}

/// As bytes.
pub fn write(said: &impl Serialize) -> Bytes {
    // Nothing here can fail to be written: no maps, no types of others.
    serde_json::to_vec(said).unwrap_or_default().into()
}

/// A listing in pieces, which together are one JSON object: so it is in memory once, however long it is.
pub fn pieces(listing: crate::Listing) -> impl Iterator<Item = Bytes> + Send + 'static {
    let head = format!("{{\"revision\":{},\"entries\":[", listing.revision);
    let mut entries = listing.entries.into_iter().enumerate().peekable();
    let mut piece = head.into_bytes();
    let mut is_over = false;
    std::iter::from_fn(move || {
        if is_over {
            return None;
        }
        while piece.len() < PIECE_BYTES {
            let Some((at, entry)) = entries.next() else {
                is_over = true;
                piece.extend_from_slice(b"]}");
                break;
            };
            if at > 0 {
                piece.push(b',');
            }
            piece.extend_from_slice(&write(&Wire(entry)));
        }
        Some(Bytes::from(std::mem::take(&mut piece)))
    })
}

/// Makes `Wire` of a word readable and writable by its description.
macro_rules! described {
    ($($word:ident)*) => { $(
        impl Serialize for Wire<crate::$word> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                $word::serialize(&self.0, serializer)
            }
        }

        impl<'de> Deserialize<'de> for Wire<crate::$word> {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $word::deserialize(deserializer).map(Self)
            }
        }
    )* };
}

described! {
    Batch Committed Compare Conflict Entry Error Event Identity Lease Listing Operation Query Transaction
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "crate::Identity")]
struct Identity {
    id: u64,
    revision: crate::Revision,
    version: String,
    warnings: Vec<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "crate::LeaseId")]
struct LeaseId(i64);

#[derive(Serialize, Deserialize)]
#[serde(remote = "crate::Lease")]
struct Lease {
    #[serde(with = "LeaseId")]
    id: crate::LeaseId,
    left: Duration,
    granted: Duration,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "crate::Entry")]
struct Entry {
    #[serde(with = "base64")]
    key: Bytes,
    #[serde(with = "base64")]
    value: Bytes,
    created: crate::Revision,
    modified: crate::Revision,
    version: u64,
    #[serde(with = "lease", default)]
    lease: Option<crate::LeaseId>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "crate::Range", rename_all = "snake_case")]
enum Range {
    Key(#[serde(with = "base64")] Bytes),
    Prefix(#[serde(with = "base64")] Bytes),
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "crate::Query", deny_unknown_fields)]
struct Query {
    #[serde(with = "Range")]
    range: crate::Range,
    #[serde(default)]
    at: Option<crate::Revision>,
    #[serde(default)]
    keys_only: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "crate::Listing")]
struct Listing {
    revision: crate::Revision,
    #[serde(with = "list")]
    entries: Vec<crate::Entry>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "crate::Transaction", deny_unknown_fields)]
struct Transaction {
    #[serde(with = "list", default)]
    compares: Vec<crate::Compare>,
    #[serde(with = "list", default)]
    operations: Vec<crate::Operation>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "crate::Compare", deny_unknown_fields)]
struct Compare {
    #[serde(with = "base64")]
    key: Bytes,
    #[serde(with = "Relation")]
    relation: crate::Relation,
    #[serde(with = "Target")]
    target: crate::Target,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "crate::Relation", rename_all = "snake_case")]
enum Relation {
    Equal,
    NotEqual,
    Greater,
    Less,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "crate::Target", rename_all = "snake_case")]
enum Target {
    Value(#[serde(with = "base64")] Bytes),
    Created(crate::Revision),
    Modified(crate::Revision),
    Version(u64),
    Lease(#[serde(with = "lease")] Option<crate::LeaseId>),
}

#[derive(Serialize, Deserialize)]
#[serde(
    remote = "crate::Operation",
    rename_all = "snake_case",
    deny_unknown_fields
)]
enum Operation {
    Put {
        #[serde(with = "base64")]
        key: Bytes,
        #[serde(with = "base64")]
        value: Bytes,
        #[serde(with = "lease", default)]
        lease: Option<crate::LeaseId>,
    },
    Delete(#[serde(with = "Range")] crate::Range),
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "crate::Committed")]
struct Committed {
    revision: crate::Revision,
    deleted: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "crate::Batch")]
struct Batch {
    revision: crate::Revision,
    #[serde(with = "list")]
    events: Vec<crate::Event>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "crate::Event", rename_all = "snake_case")]
enum Event {
    Put(#[serde(with = "Entry")] crate::Entry),
    Delete(#[serde(with = "base64")] Bytes),
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "crate::Error", rename_all = "snake_case")]
enum Error {
    Conflict(#[serde(with = "boxed")] Box<crate::Conflict>),
    Compacted {
        oldest: crate::Revision,
    },
    Future {
        asked: crate::Revision,
        current: crate::Revision,
    },
    Unavailable(String),
    Unknown(String),
    Denied(#[serde(with = "Denial")] crate::Denial),
    TooLarge {
        #[serde(with = "What")]
        what: crate::What,
        found: usize,
        limit: usize,
    },
    Full(String),
    Invalid(String),
    NoLease(#[serde(with = "LeaseId")] crate::LeaseId),
    Damaged(String),
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "crate::Conflict")]
struct Conflict {
    revision: crate::Revision,
    #[serde(with = "found")]
    found: Vec<(Bytes, Option<crate::Entry>)>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "crate::Denial", rename_all = "snake_case")]
enum Denial {
    Password,
    Anonymous,
    Tls(String),
    Permission(String),
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "crate::What", rename_all = "snake_case")]
enum What {
    Compares,
    Operations,
    Key,
    Value,
    Transaction,
}

/// Bytes, by RFC 4648 §4, padded.
mod base64 {
    use super::*;

    struct Text;

    impl serde::de::Visitor<'_> for Text {
        type Value = Bytes;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("bytes in base64")
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Bytes, E> {
            let bytes = BASE64.decode(text.as_bytes());
            let wrong = |error| E::custom(format!("no base64 (RFC 4648, padded): {error}"));
            bytes.map(Bytes::from).map_err(wrong)
        }
    }

    pub(super) fn serialize<S: Serializer>(
        bytes: &Bytes,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&BASE64.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Bytes, D::Error> {
        deserializer.deserialize_str(Text)
    }
}

/// A lease that may not be.
mod lease {
    use super::*;

    pub(super) fn serialize<S: Serializer>(
        lease: &Option<crate::LeaseId>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        lease.map(|id| id.0).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<crate::LeaseId>, D::Error> {
        Ok(Option::deserialize(deserializer)?.map(crate::LeaseId))
    }
}

/// Many of what is described.
mod list {
    use super::*;

    pub(super) fn serialize<T, S>(list: &[T], serializer: S) -> Result<S::Ok, S::Error>
    where
        T: Clone,
        Wire<T>: Serialize,
        S: Serializer,
    {
        // To clone one copies no bytes.
        serializer.collect_seq(list.iter().cloned().map(Wire))
    }

    pub(super) fn deserialize<'de, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
    where
        Wire<T>: Deserialize<'de>,
        D: Deserializer<'de>,
    {
        let list = Vec::<Wire<T>>::deserialize(deserializer)?;
        Ok(list.into_iter().map(|Wire(one)| one).collect())
    }
}

/// What a conflict holds.
mod boxed {
    use super::*;

    pub(super) fn serialize<S: Serializer>(
        conflict: &crate::Conflict,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        Conflict::serialize(conflict, serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Box<crate::Conflict>, D::Error> {
        Conflict::deserialize(deserializer).map(Box::new)
    }
}

/// Keys and what stands there.
mod found {
    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Found {
        #[serde(with = "base64")]
        key: Bytes,
        entry: Option<Wire<crate::Entry>>,
    }

    pub(super) fn serialize<S: Serializer>(
        found: &[(Bytes, Option<crate::Entry>)],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(found.iter().cloned().map(|(key, entry)| Found {
            key,
            entry: entry.map(Wire),
        }))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<(Bytes, Option<crate::Entry>)>, D::Error> {
        let found = Vec::<Found>::deserialize(deserializer)?.into_iter();
        Ok(found
            .map(|it| (it.key, it.entry.map(|Wire(entry)| entry)))
            .collect())
    }
}

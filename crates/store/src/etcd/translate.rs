//! Our words in etcd's, and back.

use super::generated::{etcdserverpb as pb, mvccpb};
use crate::{
    Committed, Compare, Conflict, Entry, Error, Event, LeaseId, Operation, Query, Range, Relation,
    Revision, Target, Transaction,
};
use bytes::Bytes;
use std::collections::HashMap;

/// What stands before each of our keys in etcd.
#[derive(Clone, Debug)]
pub(super) struct Namespace(pub(super) Bytes);

impl Namespace {
    fn outside(&self, key: &[u8]) -> Bytes {
        [&self.0, key].concat().into()
    }

    /// A key as it is known here. etcd answers with what it was asked for, so it does begin with the namespace.
    fn inside(&self, key: &Bytes) -> Bytes {
        key.slice(self.0.len().min(key.len())..)
    }

    /// etcd's `key` and `range_end` of `range`.
    pub(super) fn range(&self, range: &Range) -> (Bytes, Bytes) {
        match range {
            Range::Key(key) => (self.outside(key), Bytes::new()),
            Range::Prefix(prefix) => {
                let prefix = self.outside(prefix);
                let end = end_of_prefix(&prefix);
                // An empty key is none to etcd; this is the least one.
                let begin = if prefix.is_empty() { ZERO } else { prefix };
                (begin, end)
            }
        }
    }

    /// A question that costs nothing and that whoever may see the namespace may ask: what revision it is.
    pub(super) fn least(&self) -> pb::RangeRequest {
        pb::RangeRequest {
            key: if self.0.is_empty() {
                ZERO
            } else {
                self.0.clone()
            },
            limit: 1,
            count_only: true,
            ..Default::default()
        }
    }

    pub(super) fn query(&self, query: &Query) -> pb::RangeRequest {
        let (key, range_end) = self.range(&query.range);
        pb::RangeRequest {
            key,
            range_end,
            revision: query.at.map_or(0, signed),
            keys_only: query.keys_only,
            ..Default::default()
        }
    }

    pub(super) fn entry(&self, found: mvccpb::KeyValue) -> Entry {
        Entry {
            key: self.inside(&found.key),
            value: found.value,
            created: unsigned(found.create_revision),
            modified: unsigned(found.mod_revision),
            version: unsigned(found.version),
            lease: (found.lease != 0).then_some(LeaseId(found.lease)),
        }
    }

    /// `None` for a sort of event that is not known.
    pub(super) fn event(&self, event: mvccpb::Event) -> Option<Event> {
        let found = event.kv?;
        match mvccpb::event::EventType::try_from(event.r#type).ok()? {
            mvccpb::event::EventType::Put => Some(Event::Put(self.entry(found))),
            mvccpb::event::EventType::Delete => Some(Event::Delete(self.inside(&found.key))),
        }
    }

    /// The transaction; where a compare does not hold, etcd reads each compared key in the same breath.
    pub(super) fn transaction(&self, transaction: &Transaction) -> pb::TxnRequest {
        let compare = transaction.compares.iter().map(|it| self.compare(it));
        let mut success: Vec<_> = transaction
            .operations
            .iter()
            .map(|it| self.operation(it))
            .collect();
        if success.is_empty() {
            // One without operations etcd would answer from its memory, without asking the others whether that is so.
            success.push(read(self.least()));
        }
        let failure = compared(transaction).map(|key| {
            read(pb::RangeRequest {
                key: self.outside(key),
                ..Default::default()
            })
        });
        pb::TxnRequest {
            compare: compare.collect(),
            success,
            failure: failure.collect(),
        }
    }

    fn compare(&self, compare: &Compare) -> pb::Compare {
        use pb::compare::{CompareResult, CompareTarget, TargetUnion};
        let (target, union) = match &compare.target {
            Target::Value(value) => (CompareTarget::Value, TargetUnion::Value(value.clone())),
            Target::Created(at) => (
                CompareTarget::Create,
                TargetUnion::CreateRevision(signed(*at)),
            ),
            Target::Modified(at) => (CompareTarget::Mod, TargetUnion::ModRevision(signed(*at))),
            Target::Version(version) => (
                CompareTarget::Version,
                TargetUnion::Version(signed(*version)),
            ),
            Target::Lease(lease) => (
                CompareTarget::Lease,
                TargetUnion::Lease(lease.map_or(0, |lease| lease.0)),
            ),
        };
        let result = match compare.relation {
            Relation::Equal => CompareResult::Equal,
            Relation::NotEqual => CompareResult::NotEqual,
            Relation::Greater => CompareResult::Greater,
            Relation::Less => CompareResult::Less,
        };
        pb::Compare {
            result: result.into(),
            target: target.into(),
            key: self.outside(&compare.key),
            target_union: Some(union),
        }
    }

    fn operation(&self, operation: &Operation) -> pb::RequestOp {
        let request = match operation {
            Operation::Put { key, value, lease } => {
                pb::request_op::Request::RequestPut(pb::PutRequest {
                    key: self.outside(key),
                    value: value.clone(),
                    lease: lease.map_or(0, named),
                })
            }
            Operation::Delete(range) => {
                let (key, range_end) = self.range(range);
                pb::request_op::Request::RequestDeleteRange(pb::DeleteRangeRequest {
                    key,
                    range_end,
                })
            }
        };
        pb::RequestOp {
            request: Some(request),
        }
    }

    /// What became of `transaction`.
    pub(super) fn outcome(
        &self,
        transaction: &Transaction,
        reply: pb::TxnResponse,
    ) -> Result<Committed, Error> {
        let revision = revision(reply.header.as_ref());
        let answers = reply.responses.into_iter().filter_map(|it| it.response);
        if reply.succeeded {
            let deleted = answers.map(|answer| match answer {
                pb::response_op::Response::ResponseDeleteRange(reply) => unsigned(reply.deleted),
                _ => 0,
            });
            return Ok(Committed {
                revision,
                deleted: deleted.sum(),
            });
        }
        let found = answers.map(|answer| match answer {
            pb::response_op::Response::ResponseRange(mut reply) => reply.kvs.pop(),
            _ => None,
        });
        let found = compared(transaction)
            .cloned()
            .zip(found.map(|found| found.map(|found| self.entry(found))));
        Err(Error::Conflict(Box::new(Conflict {
            revision,
            found: found.collect(),
        })))
    }
}

/// The least key that etcd takes; as the end of a range, that there is none.
const ZERO: Bytes = Bytes::from_static(&[0]);

/// The first key that is behind all that begin with `prefix`.
fn end_of_prefix(prefix: &[u8]) -> Bytes {
    let Some(last) = prefix.iter().rposition(|byte| *byte < u8::MAX) else {
        return ZERO;
    };
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    end.into()
}

/// Each key that is compared, once, in the order of the compares.
fn compared(transaction: &Transaction) -> impl Iterator<Item = &Bytes> {
    let mut first = HashMap::new();
    for (at, compare) in transaction.compares.iter().enumerate() {
        first.entry(&compare.key).or_insert(at);
    }
    let compares = transaction.compares.iter().enumerate();
    compares
        .filter(move |(at, compare)| first.get(&compare.key) == Some(at))
        .map(|(_, compare)| &compare.key)
}

fn read(range: pb::RangeRequest) -> pb::RequestOp {
    pb::RequestOp {
        request: Some(pb::request_op::Request::RequestRange(range)),
    }
}

/// A lease as etcd knows it. To it 0 is none; but who names a lease means one, which then is not there, as is -1.
fn named(lease: LeaseId) -> i64 {
    if lease.0 == 0 { -1 } else { lease.0 }
}

/// The revision that an answer was given at.
pub(super) fn revision(header: Option<&pb::ResponseHeader>) -> Revision {
    header.map_or(0, |header| unsigned(header.revision))
}

/// etcd's numbers are signed, but not below 0 where they count.
pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// What is beyond etcd's numbers is as good as their last.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(namespace: &'static str, range: Range) -> (Bytes, Bytes) {
        Namespace(namespace.into()).range(&range)
    }

    #[test]
    fn a_prefix_ends_where_the_next_begins() {
        let prefix = |bytes: &'static [u8]| Range::Prefix(Bytes::from_static(bytes));
        assert_eq!(range("", prefix(b"ab")), ("ab".into(), "ac".into()));
        assert_eq!(
            range("", prefix(b"a\xff\xff")),
            (Bytes::from_static(b"a\xff\xff"), "b".into())
        );
        assert_eq!(
            range("", prefix(b"\xff")),
            (Bytes::from_static(b"\xff"), ZERO)
        );
        assert_eq!(range("", prefix(b"")), (ZERO, ZERO));
        assert_eq!(range("m/", prefix(b"")), ("m/".into(), "m0".into()));
        assert_eq!(
            range("m/", Range::Key("a".into())),
            ("m/a".into(), "".into())
        );
    }

    #[test]
    fn keys_that_are_compared_twice_are_read_once() {
        let transaction = Transaction {
            compares: ["b", "a", "b", "c", "a"].map(Compare::absent).to_vec(),
            operations: Vec::new(),
        };
        let keys: Vec<_> = compared(&transaction).collect();
        assert_eq!(keys, ["b", "a", "c"]);
        let request = Namespace("m/".into()).transaction(&transaction);
        assert_eq!(request.failure.len(), 3);
        assert_eq!(request.compare[1].key, "m/a");
    }

    #[test]
    fn numbers_beyond_etcds_are_cut() {
        assert_eq!((signed(u64::MAX), unsigned(-1)), (i64::MAX, 0));
    }
}

use super::*;
use crate::{Error, Message};
use proptest::prelude::*;

fn bytes() -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..40).prop_map(Bytes::from)
}

fn lease() -> impl Strategy<Value = Option<crate::LeaseId>> {
    any::<Option<i64>>().prop_map(|id| id.map(crate::LeaseId))
}

fn entry() -> impl Strategy<Value = crate::Entry> {
    let numbers = any::<(u64, u64, u64)>();
    (bytes(), bytes(), numbers, lease()).prop_map(|(key, value, numbers, lease)| crate::Entry {
        key,
        value,
        created: numbers.0,
        modified: numbers.1,
        version: numbers.2,
        lease,
    })
}

fn range() -> impl Strategy<Value = crate::Range> {
    prop_oneof![
        bytes().prop_map(crate::Range::Key),
        bytes().prop_map(crate::Range::Prefix)
    ]
}

fn compare() -> impl Strategy<Value = crate::Compare> {
    use crate::{Relation, Target};
    let relation = prop::sample::select(vec![
        Relation::Equal,
        Relation::NotEqual,
        Relation::Greater,
        Relation::Less,
    ]);
    let target = prop_oneof![
        bytes().prop_map(Target::Value),
        any::<u64>().prop_map(Target::Created),
        any::<u64>().prop_map(Target::Modified),
        any::<u64>().prop_map(Target::Version),
        lease().prop_map(Target::Lease),
    ];
    (bytes(), relation, target).prop_map(|(key, relation, target)| crate::Compare {
        key,
        relation,
        target,
    })
}

fn operation() -> impl Strategy<Value = crate::Operation> {
    prop_oneof![
        (bytes(), bytes(), lease()).prop_map(|(key, value, lease)| crate::Operation::Put {
            key,
            value,
            lease
        }),
        range().prop_map(crate::Operation::Delete),
    ]
}

fn transaction() -> impl Strategy<Value = crate::Transaction> {
    let compares = prop::collection::vec(compare(), 0..5);
    let operations = prop::collection::vec(operation(), 0..5);
    (compares, operations).prop_map(|(compares, operations)| crate::Transaction {
        compares,
        operations,
    })
}

fn error() -> impl Strategy<Value = Error> {
    use crate::{Denial, What};
    let what = prop::sample::select(vec![
        What::Compares,
        What::Operations,
        What::Key,
        What::Value,
        What::Transaction,
    ]);
    let denial = prop_oneof![
        Just(Denial::Password),
        Just(Denial::Anonymous),
        any::<String>().prop_map(Denial::Tls),
        any::<String>().prop_map(Denial::Permission),
    ];
    let found = prop::collection::vec((bytes(), prop::option::of(entry())), 0..4);
    prop_oneof![
        (any::<u64>(), found).prop_map(|(revision, found)| Error::Conflict(Box::new(
            crate::Conflict { revision, found }
        ))),
        any::<u64>().prop_map(|oldest| Error::Compacted { oldest }),
        any::<(u64, u64)>().prop_map(|(asked, current)| Error::Future { asked, current }),
        any::<String>().prop_map(Error::Unavailable),
        any::<String>().prop_map(Error::Unknown),
        denial.prop_map(Error::Denied),
        (what, any::<(usize, usize)>()).prop_map(|(what, (found, limit))| Error::TooLarge {
            what,
            found,
            limit
        }),
        any::<String>().prop_map(Error::Full),
        any::<String>().prop_map(Error::Invalid),
        any::<i64>().prop_map(|id| Error::NoLease(crate::LeaseId(id))),
        any::<String>().prop_map(Error::Damaged),
    ]
}

fn change() -> impl Strategy<Value = Message> {
    let event = prop_oneof![
        entry().prop_map(crate::Event::Put),
        bytes().prop_map(crate::Event::Delete)
    ];
    let events = prop::collection::vec(event, 1..5);
    prop_oneof![
        (any::<u64>(), events)
            .prop_map(|(revision, events)| Message::Batch(crate::Batch { revision, events })),
        any::<u64>().prop_map(Message::Progress),
    ]
}

/// What is read of what was written.
fn there_and_back<T>(word: T) -> T
where
    Wire<T>: Serialize + DeserializeOwned,
{
    let Wire(back) = read(&write(&Wire(word))).expect("it is understood");
    back
}

proptest! {
    #[test]
    fn a_transaction_arrives_as_it_was(transaction in transaction()) {
        prop_assert_eq!(there_and_back(transaction.clone()), transaction);
    }

    #[test]
    fn an_error_arrives_as_it_was(error in error()) {
        let refusal: Refusal = error.clone().into();
        let refusal: Refusal = read(&write(&refusal)).expect("it is understood");
        prop_assert_eq!(refusal.error, Some(Wire(error)));
    }

    #[test]
    fn a_query_arrives_as_it_was(range in range(), at in any::<Option<u64>>(), keys_only: bool) {
        let query = crate::Query { range, at, keys_only };
        prop_assert_eq!(there_and_back(query.clone()), query);
    }

    #[test]
    fn a_listing_in_pieces_is_one_listing(
        revision: u64,
        mut entries in prop::collection::vec(entry(), 0..6),
        long in 0usize..200_000,
    ) {
        if let Some(entry) = entries.first_mut() {
            entry.value = vec![7; long].into();
        }
        let listing = crate::Listing { revision, entries };
        let pieces: Vec<Bytes> = pieces(listing.clone()).collect();
        let Wire(read) = read::<Wire<crate::Listing>>(&pieces.concat()).expect("it is understood");
        prop_assert_eq!(read, listing);
    }

    /// Cut into pieces anywhere, with comments and events of later versions in between.
    #[test]
    fn events_are_read_however_they_come(
        said in prop::collection::vec(prop_oneof![change().prop_map(Ok), error().prop_map(Err)], 1..6),
        piece in 1usize..50,
    ) {
        let mut bytes = Vec::new();
        for said in &said {
            bytes.extend_from_slice(&silence());
            bytes.extend_from_slice(b"event: unheard_of\ndata: 7\n\n");
            bytes.extend_from_slice(&event(said));
        }
        let mut events = Events::default();
        let mut read = Vec::new();
        for piece in bytes.chunks(piece) {
            events.push(piece).expect("it is small");
            while let Some(said) = events.next() {
                read.push(said);
            }
        }
        prop_assert_eq!(read, said);
    }

    #[test]
    fn no_bytes_make_a_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read::<Wire<crate::Transaction>>(&bytes);
        let mut events = Events::default();
        events.push(b"event: batch\ndata: ").expect("it is small");
        events.push(&bytes).expect("it is small");
        events.push(b"\n\n").expect("it is small");
        while events.next().is_some() {}
    }
}

#[test]
fn it_looks_like_this() {
    let transaction = crate::Transaction {
        compares: vec![crate::Compare::absent("a")],
        operations: vec![
            crate::Operation::put("a", "1"),
            crate::Operation::delete("b"),
        ],
    };
    let text = r#"{"compares":[{"key":"YQ==","relation":"equal","target":{"modified":0}}],"operations":[{"put":{"key":"YQ==","value":"MQ==","lease":null}},{"delete":{"key":"Yg=="}}]}"#;
    assert_eq!(write(&Wire(transaction)), text.as_bytes());
    let progress = event(&Ok(Message::Progress(7)));
    assert_eq!(progress, "event: progress\nid: 7\ndata: 7\n\n");
    let refusal: Refusal = Error::Compacted { oldest: 9 }.into();
    let text = r#"{"code":"compacted","message":"the store has forgotten what was before revision 9","path":"","error":{"compacted":{"oldest":9}}}"#;
    assert_eq!(write(&refusal), text.as_bytes());
}

#[test]
fn what_makes_no_sense_is_told_with_its_place() {
    for (text, why) in [
        (r#"{"revision": -1}"#, "-1"),
        (r#"{"revision": 1.5}"#, "1.5"),
        (r#"{"revision": 1, "more": 2}"#, "unknown field `more`"),
        ("{", "EOF"),
    ] {
        let error = read::<Compact>(text.as_bytes()).expect_err(text);
        assert!(error.contains(why) && error.contains("line 1"), "{error}");
    }
    let error = read::<Wire<crate::Query>>(br#"{"range": {"key": "a b"}}"#).expect_err("no base64");
    assert!(error.contains("base64"), "{error}");
    let text = br#"{"life": {"secs": 18446744073709551615, "nanos": 4294967295}}"#;
    read::<Grant>(text).expect_err("it does not fit");
}

/// An event that is read in a thousand pieces is not looked through a thousand times.
#[test]
fn a_long_event_is_looked_through_once() {
    let mut events = Events::default();
    events
        .push(b"event: progress\ndata: ")
        .expect("it is small");
    for _ in 0..1_000 {
        events.push(&[b' '; 1_000]).expect("it is small");
        assert!(events.next().is_none());
        assert_eq!(events.looked, events.waiting.len() - 1);
    }
    events.push(b"7\n\n").expect("it is small");
    assert_eq!(events.next(), Some(Ok(Message::Progress(7))));
}

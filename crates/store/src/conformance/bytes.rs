//! Keys and values are bytes: any, and many.

use super::cases;
use super::place::Place;
use crate::{Error, Event, Operation, Query, Range};
use bytes::Bytes;

cases! {
    every_byte_may_stand_in_a_key
    every_byte_may_stand_in_a_value
    an_empty_value_is_not_an_absent_key
    a_zero_byte_ends_no_key
    text_of_every_script_is_kept
    bytes_that_are_no_text_are_kept
    keys_of_different_prefixes_stay_apart
    ten_thousand_keys
}

async fn every_byte_may_stand_in_a_key(place: Place) -> Result<(), Error> {
    let puts: Vec<_> = (0..=255_u8)
        .map(|byte| Operation::put(place.key([byte]), vec![byte]))
        .collect();
    for puts in puts.chunks(crate::OPERATIONS_MAX) {
        place.commit([], puts).await?;
    }
    let listing = place.list(place.all()).await?;
    assert_eq!(listing.entries.len(), 256);
    for (byte, entry) in (0..=255_u8).zip(&listing.entries) {
        assert_eq!(entry.key, place.key([byte]));
        assert_eq!(&entry.value[..], [byte]);
    }
    Ok(())
}

async fn every_byte_may_stand_in_a_value(place: Place) -> Result<(), Error> {
    let value: Bytes = (0..=255).cycle().take(1_000).collect::<Vec<u8>>().into();
    let mut watch = place.watch_all().await?;
    let put = Operation::put(place.key("a"), value.clone());
    place.commit([], [put]).await?;
    assert_eq!(place.entry("a").await?.expect("it was put").value, value);
    let batch = watch.batch().await?;
    assert!(matches!(&batch.events[0], Event::Put(entry) if entry.value == value));
    Ok(())
}

async fn an_empty_value_is_not_an_absent_key(place: Place) -> Result<(), Error> {
    place.put("a", "").await?;
    let entry = place.entry("a").await?.expect("it was put");
    assert!(entry.value.is_empty());
    let compare = crate::Compare {
        key: place.key("a"),
        relation: crate::Relation::Equal,
        target: crate::Target::Value(Bytes::new()),
    };
    assert_eq!(
        place
            .commit([compare], [place.delete_of("a")])
            .await?
            .deleted,
        1
    );
    Ok(())
}

async fn a_zero_byte_ends_no_key(place: Place) -> Result<(), Error> {
    place.put("a", "1").await?;
    place.put("a\0", "2").await?;
    place.put("a\0b", "3").await?;
    assert_eq!(place.entry("a").await?.expect("it was put").value, "1");
    assert_eq!(place.entry("a\0").await?.expect("it was put").value, "2");
    let below = place.list(place.below("a\0")).await?;
    assert_eq!(below.entries.len(), 2);
    place.delete("a\0").await?;
    assert_eq!(place.names().await?, ["a", "a\\x00b"]);
    Ok(())
}

async fn text_of_every_script_is_kept(place: Place) -> Result<(), Error> {
    let texts = [
        "한국어",
        "日本語",
        "ไทย",
        "বাংলা",
        "فارسی",
        "Việt",
        "🜚",
        "e\u{301}",
        "é",
    ];
    for text in texts {
        place.put(text, text).await?;
    }
    for text in texts {
        let entry = place.entry(text).await?.expect("it was put");
        assert_eq!(entry.value, text);
    }
    let count = place.list(place.all()).await?.entries.len();
    assert_eq!(count, texts.len(), "no two are taken for the same");
    Ok(())
}

async fn bytes_that_are_no_text_are_kept(place: Place) -> Result<(), Error> {
    let key = place.key(b"\xc3\x28\xff\x00");
    let put = Operation::put(key.clone(), b"\xf0\x28\x8c\xbc"[..].to_vec());
    place.commit([], [put]).await?;
    let listing = place.list(Range::Key(key)).await?;
    assert_eq!(&listing.entries[0].value[..], b"\xf0\x28\x8c\xbc");
    Ok(())
}

async fn keys_of_different_prefixes_stay_apart(place: Place) -> Result<(), Error> {
    for name in ["a/x", "a0", "a.", "b/x"] {
        place.put(name, name).await?;
    }
    let delete = Operation::Delete(place.below("a/"));
    place.commit([], [delete]).await?;
    assert_eq!(place.names().await?, ["a.", "a0", "b/x"]);
    Ok(())
}

async fn ten_thousand_keys(place: Place) -> Result<(), Error> {
    let puts: Vec<_> = (0..10_000)
        .map(|at| place.put_of(&format!("{at:05}"), &format!("value {at}")))
        .collect();
    let mut watch = place.watch_all().await?;
    for puts in puts.chunks(100) {
        place.commit([], puts).await?;
    }
    let listing = place.list(place.all()).await?;
    assert_eq!(listing.entries.len(), 10_000);
    assert_eq!(listing.entries[7_777].value, "value 7777");
    let query = Query {
        keys_only: true,
        ..Query::now(place.below("07"))
    };
    assert_eq!(place.store.list(query).await?.entries.len(), 1_000);
    for _ in 0..100 {
        assert_eq!(watch.batch().await?.events.len(), 100);
    }
    let done = place.commit([], [Operation::Delete(place.all())]).await?;
    assert_eq!(done.deleted, 10_000);
    assert_eq!(watch.batch().await?.events.len(), 10_000);
    Ok(())
}

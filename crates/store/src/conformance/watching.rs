//! What a watch says, in which order, and that it says all of it once.

use super::cases;
use super::place::Place;
use crate::{Error, Event, LeaseId, Message, Operation, Range};
use std::time::Duration;

cases! {
    a_watch_from_the_next_revision_says_the_next_change
    a_watch_from_the_present_revision_says_it
    a_watch_from_the_past_says_the_history_in_order
    a_watch_from_the_future_says_nothing_earlier
    a_watch_from_zero_is_from_the_beginning
    a_transaction_is_said_in_one_batch
    a_batch_is_in_the_order_of_the_operations
    a_batch_has_only_the_keys_that_are_watched
    a_change_of_other_keys_is_not_said
    a_watched_key_is_not_its_extensions
    a_watch_of_everything_says_everything
    an_event_of_a_put_has_the_whole_entry
    a_delete_says_the_key
    a_delete_by_prefix_is_one_batch_in_order
    a_key_deleted_and_put_again_is_said_as_new
    nothing_is_said_of_what_changed_nothing
    watches_of_one_range_say_the_same
    a_watch_goes_over_from_history_to_the_present
    a_dropped_question_loses_nothing
    a_dropped_watch_leaves_the_others
    the_largest_batch_is_said_whole
    a_slow_watch_misses_nothing
    an_idle_watch_says_progress
    progress_passes_changes_of_other_keys
    progress_never_passes_a_batch
    list_and_watch_leave_no_gap
}

async fn a_watch_from_the_next_revision_says_the_next_change(place: Place) -> Result<(), Error> {
    place.put("a", "before").await?;
    let mut watch = place.watch_all().await?;
    let revision = place.put("a", "after").await?;
    let batch = watch.batch().await?;
    assert_eq!(batch.revision, revision);
    assert_eq!(batch.events.len(), 1);
    assert_eq!(batch.events[0].key(), &place.key("a"));
    Ok(())
}

async fn a_watch_from_the_present_revision_says_it(place: Place) -> Result<(), Error> {
    place.put("a", "1").await?;
    let revision = place.put("a", "2").await?;
    let mut watch = place.watch(place.all(), revision).await?;
    assert_eq!(watch.words().await?, "+a=2");
    Ok(())
}

async fn a_watch_from_the_past_says_the_history_in_order(place: Place) -> Result<(), Error> {
    let first = place.put("a", "1").await?;
    place.put("b", "2").await?;
    place.put("a", "3").await?;
    place.delete("b").await?;
    let mut watch = place.watch(place.all(), first).await?;
    for expected in ["+a=1", "+b=2", "+a=3", "-b"] {
        assert_eq!(watch.words().await?, expected);
    }
    place.put("c", "4").await?;
    assert_eq!(watch.words().await?, "+c=4");
    Ok(())
}

async fn a_watch_from_the_future_says_nothing_earlier(place: Place) -> Result<(), Error> {
    let now = place.put("a", "0").await?;
    let mut watch = place.watch(place.all(), now + 3).await?;
    for value in ["1", "2", "3", "4"] {
        place.put("a", value).await?;
    }
    assert_eq!(watch.words().await?, "+a=3");
    assert_eq!(watch.words().await?, "+a=4");
    Ok(())
}

async fn a_watch_from_zero_is_from_the_beginning(place: Place) -> Result<(), Error> {
    let first = place.put("a", "1").await?;
    let opened = place.watch(place.only("a"), 0).await;
    let said = match opened {
        Ok(mut watch) => watch.batch().await,
        Err(error) => Err(error),
    };
    match said {
        Ok(batch) => assert_eq!(batch.revision, first),
        Err(Error::Compacted { oldest }) => assert!(oldest > 0),
        Err(other) => return Err(other),
    }
    Ok(())
}

async fn a_transaction_is_said_in_one_batch(place: Place) -> Result<(), Error> {
    place.put("gone", "x").await?;
    let mut watch = place.watch_all().await?;
    let operations = [
        place.put_of("a", "1"),
        place.delete_of("gone"),
        place.put_of("b", "2"),
    ];
    let done = place.commit([], operations).await?;
    place.put("c", "3").await?;
    let batch = watch.batch().await?;
    assert_eq!((batch.revision, batch.events.len()), (done.revision, 3));
    assert_eq!(watch.words().await?, "+c=3");
    Ok(())
}

async fn a_batch_is_in_the_order_of_the_operations(place: Place) -> Result<(), Error> {
    place.put("d/2", "x").await?;
    place.put("d/1", "x").await?;
    let from = place.revision().await? + 1;
    let mut live = place.watch(place.all(), from).await?;
    let operations = [
        place.put_of("z", "1"),
        Operation::Delete(place.below("d/")),
        place.put_of("a", "2"),
        place.put_of("m", "3"),
    ];
    place.commit([], operations).await?;
    let expected = "+z=1 -d/1 -d/2 +a=2 +m=3";
    assert_eq!(live.words().await?, expected);
    let mut late = place.watch(place.all(), from).await?;
    assert_eq!(late.words().await?, expected);
    Ok(())
}

async fn a_batch_has_only_the_keys_that_are_watched(place: Place) -> Result<(), Error> {
    let from = place.revision().await? + 1;
    let mut watch = place.watch(place.below("in/"), from).await?;
    let operations = [
        place.put_of("out/1", "x"),
        place.put_of("in/2", "2"),
        place.put_of("in/1", "1"),
        place.put_of("zout", "x"),
    ];
    place.commit([], operations).await?;
    assert_eq!(watch.words().await?, "+in/2=2 +in/1=1");
    Ok(())
}

async fn a_change_of_other_keys_is_not_said(place: Place) -> Result<(), Error> {
    let from = place.revision().await? + 1;
    let mut watch = place.watch(place.below("in/"), from).await?;
    for turn in 0..20 {
        place.put("out/1", &turn.to_string()).await?;
    }
    place.put("in/1", "1").await?;
    assert_eq!(watch.words().await?, "+in/1=1");
    Ok(())
}

async fn a_watched_key_is_not_its_extensions(place: Place) -> Result<(), Error> {
    let from = place.revision().await? + 1;
    let mut watch = place.watch(place.only("a"), from).await?;
    place.put("a/b", "1").await?;
    place.put("ab", "2").await?;
    place.put("a", "3").await?;
    assert_eq!(watch.words().await?, "+a=3");
    Ok(())
}

async fn a_watch_of_everything_says_everything(place: Place) -> Result<(), Error> {
    let from = place.revision().await? + 1;
    let mut watch = place.watch(Range::Prefix("".into()), from).await?;
    place.put("a", "1").await?;
    place.put("\u{7f}", "2").await?;
    assert_eq!(watch.words().await?, "+a=1");
    assert_eq!(watch.words().await?, "+\\x7f=2");
    Ok(())
}

async fn an_event_of_a_put_has_the_whole_entry(place: Place) -> Result<(), Error> {
    let lease = place.store.grant(Duration::from_secs(600)).await?;
    place.put("a", "1").await?;
    let mut watch = place.watch_all().await?;
    place.commit([], [place.leased("a", lease.id)]).await?;
    let entry = place.entry("a").await?.expect("it was put");
    assert_eq!(entry.lease, Some(lease.id));
    assert_eq!(entry.version, 2);
    assert_eq!(watch.batch().await?.events, [Event::Put(entry)]);
    place.store.revoke(lease.id).await
}

async fn a_delete_says_the_key(place: Place) -> Result<(), Error> {
    place.put("a", "1").await?;
    let mut watch = place.watch_all().await?;
    let revision = place.delete("a").await?.revision;
    let batch = watch.batch().await?;
    assert_eq!(batch.revision, revision);
    assert_eq!(batch.events, [Event::Delete(place.key("a"))]);
    Ok(())
}

async fn a_delete_by_prefix_is_one_batch_in_order(place: Place) -> Result<(), Error> {
    for name in ["d/3", "d/1", "d/2", "e"] {
        place.put(name, "x").await?;
    }
    let mut watch = place.watch_all().await?;
    let delete = Operation::Delete(place.below("d/"));
    place.commit([], [delete]).await?;
    assert_eq!(watch.words().await?, "-d/1 -d/2 -d/3");
    Ok(())
}

async fn a_key_deleted_and_put_again_is_said_as_new(place: Place) -> Result<(), Error> {
    let from = place.put("a", "1").await? + 1;
    place.delete("a").await?;
    let again = place.put("a", "2").await?;
    let mut watch = place.watch(place.all(), from).await?;
    assert_eq!(watch.words().await?, "-a");
    let batch = watch.batch().await?;
    let Event::Put(entry) = &batch.events[0] else {
        panic!("{batch:?}");
    };
    assert_eq!((entry.created, entry.version), (again, 1));
    Ok(())
}

async fn nothing_is_said_of_what_changed_nothing(place: Place) -> Result<(), Error> {
    place.put("a", "1").await?;
    let mut watch = place.watch_all().await?;
    place.delete("absent").await?;
    place.commit([], []).await?;
    let compare = crate::Compare::absent(place.key("a"));
    let refused = place.commit([compare], [place.put_of("a", "2")]).await;
    assert!(matches!(refused, Err(Error::Conflict(_))), "{refused:?}");
    let unknown = place.leased("a", LeaseId(77));
    let refused = place.commit([], [place.put_of("b", "1"), unknown]).await;
    assert_eq!(refused, Err(Error::NoLease(LeaseId(77))));
    place.put("c", "3").await?;
    assert_eq!(watch.words().await?, "+c=3");
    Ok(())
}

async fn watches_of_one_range_say_the_same(place: Place) -> Result<(), Error> {
    let mut watches = Vec::new();
    for _ in 0..50 {
        watches.push(place.watch_all().await?);
    }
    for turn in 0..20 {
        place.put("a", &turn.to_string()).await?;
    }
    for watch in &mut watches {
        for turn in 0..20 {
            assert_eq!(watch.words().await?, format!("+a={turn}"));
        }
    }
    Ok(())
}

async fn a_watch_goes_over_from_history_to_the_present(place: Place) -> Result<(), Error> {
    let first = place.put("a", "0").await?;
    let writer = {
        let place = place.clone();
        tokio::spawn(async move {
            for turn in 1..300 {
                place.put("a", &turn.to_string()).await?;
            }
            Ok::<_, Error>(())
        })
    };
    for _ in 0..5 {
        let mut watch = place.watch(place.all(), first).await?;
        for turn in 0..300 {
            assert_eq!(watch.words().await?, format!("+a={turn}"));
        }
    }
    writer.await.expect("the writer does not panic")
}

async fn a_dropped_question_loses_nothing(place: Place) -> Result<(), Error> {
    let mut watch = place.watch_all().await?;
    let mut said = Vec::new();
    for turn in 0..100 {
        // Asked and given up before, during and after the change.
        said.extend(watch.poll().await?);
        place.put("a", &turn.to_string()).await?;
        said.extend(watch.poll().await?);
    }
    let batches = |said: &[Message]| {
        let batch = |change: &Message| matches!(change, Message::Batch(_));
        said.iter().filter(|change| batch(change)).count()
    };
    while batches(&said) < 100 {
        said.push(watch.change().await?);
    }
    let mut expected = 0;
    for change in said {
        if let Message::Batch(batch) = change {
            let Event::Put(entry) = &batch.events[0] else {
                panic!("{batch:?}");
            };
            assert_eq!(entry.value, expected.to_string());
            expected += 1;
        }
    }
    Ok(())
}

async fn a_dropped_watch_leaves_the_others(place: Place) -> Result<(), Error> {
    let mut stays = place.watch_all().await?;
    for turn in 0..20 {
        let mut goes = place.watch_all().await?;
        place.put("a", &turn.to_string()).await?;
        if turn % 2 == 0 {
            goes.batch().await?;
        }
    }
    for turn in 0..20 {
        assert_eq!(stays.words().await?, format!("+a={turn}"));
    }
    Ok(())
}

async fn the_largest_batch_is_said_whole(place: Place) -> Result<(), Error> {
    let mut watch = place.watch_all().await?;
    let value = "v".repeat(9 << 10);
    let puts: Vec<_> = (0..crate::OPERATIONS_MAX)
        .map(|at| place.put_of(&format!("k{at:03}"), &value))
        .collect();
    let done = place.commit([], puts).await?;
    let batch = watch.batch().await?;
    assert_eq!(batch.revision, done.revision);
    let keys: Vec<_> = batch
        .events
        .iter()
        .map(|event| place.name(event.key()))
        .collect();
    let expected: Vec<_> = (0..crate::OPERATIONS_MAX)
        .map(|at| format!("k{at:03}"))
        .collect();
    assert_eq!(keys, expected);
    Ok(())
}

async fn a_slow_watch_misses_nothing(place: Place) -> Result<(), Error> {
    let mut watch = place.watch_all().await?;
    for turn in 0..1_500 {
        place.put("a", &turn.to_string()).await?;
    }
    for turn in 0..1_500 {
        assert_eq!(watch.words().await?, format!("+a={turn}"));
    }
    Ok(())
}

async fn an_idle_watch_says_progress(place: Place) -> Result<(), Error> {
    let revision = place.put("a", "1").await?;
    let mut watch = place.watch_all().await?;
    assert_eq!(watch.progress(revision).await?, revision);
    assert_eq!(watch.progress(revision).await?, revision);
    place.put("a", "2").await?;
    assert_eq!(watch.words().await?, "+a=2");
    Ok(())
}

async fn progress_passes_changes_of_other_keys(place: Place) -> Result<(), Error> {
    let from = place.revision().await? + 1;
    let mut watch = place.watch(place.below("in/"), from).await?;
    for turn in 0..10 {
        place.put("out", &turn.to_string()).await?;
    }
    let last = place.revision().await?;
    assert_eq!(watch.progress(last).await?, last);
    Ok(())
}

/// What is said to have passed must have been said: checked by a reader that counts, against a writer that tells its
/// revisions, over changes of which every third is watched, and of which then a thousand are not.
async fn progress_never_passes_a_batch(place: Place) -> Result<(), Error> {
    let from = place.revision().await? + 1;
    let mut watch = place.watch(place.below("in/"), from).await?;
    let mut watched = Vec::new();
    let mut last = 0;
    for turn in 0..1_301 {
        let is_watched = turn % 3 == 0 && turn < 300 || turn == 1_300;
        let name = if is_watched { "in/a" } else { "out" };
        last = place.put(name, &turn.to_string()).await?;
        if name == "in/a" {
            watched.push(last);
        }
    }
    let mut said = Vec::new();
    loop {
        match watch.change().await? {
            Message::Batch(batch) => said.push(batch.revision),
            Message::Progress(revision) => {
                let passed = watched.iter().filter(|at| **at <= revision).count();
                assert_eq!(said.len(), passed, "at progress of {revision}");
                if revision >= last {
                    break;
                }
            }
        }
    }
    assert_eq!(said, watched);
    Ok(())
}

async fn list_and_watch_leave_no_gap(place: Place) -> Result<(), Error> {
    let writer = {
        let place = place.clone();
        tokio::spawn(async move {
            for turn in 0..400_u32 {
                place
                    .put(&format!("k{}", turn % 3), &turn.to_string())
                    .await?;
            }
            place.put("end", "").await
        })
    };
    loop {
        let listing = place.list(place.all()).await?;
        let mut known: std::collections::BTreeMap<_, _> = listing
            .entries
            .iter()
            .map(|e| (e.key.clone(), e.clone()))
            .collect();
        let mut watch = place.watch(place.all(), listing.revision + 1).await?;
        for _ in 0..10 {
            if known.contains_key(&place.key("end")) {
                break;
            }
            for event in watch.batch().await?.events {
                let Event::Put(entry) = event else {
                    panic!("nothing is deleted: {event:?}");
                };
                let before = known.insert(entry.key.clone(), entry.clone());
                let version = before.map_or(0, |before| before.version);
                assert_eq!(entry.version, version + 1, "a change is missing");
            }
        }
        if known.contains_key(&place.key("end")) {
            break;
        }
    }
    writer.await.expect("the writer does not panic")?;
    Ok(())
}

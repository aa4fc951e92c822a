//! Many at once.

use super::cases;
use super::place::Place;
use crate::{Compare, Error, Event, Message};
use std::collections::BTreeMap;
use std::pin::pin;
use std::task::Poll;
use tokio::task::JoinSet;

cases! {
    a_counter_of_compare_and_swap_loses_nothing
    of_many_who_create_a_key_one_does
    many_writers_make_one_history
    a_transaction_is_never_seen_half_done
    watches_see_what_many_writers_do_in_order
    a_dropped_commit_is_done_once_or_not_at_all
}

/// Runs `work` as many times at once, each with its number.
async fn together<Work, Done>(count: usize, work: Work) -> Result<(), Error>
where
    Work: Fn(usize) -> Done,
    Done: Future<Output = Result<(), Error>> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    for at in 0..count {
        tasks.spawn(work(at));
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("no task panics")?;
    }
    Ok(())
}

/// What a key's value reads as; 0 if there is none.
async fn number(place: &Place, name: &str) -> Result<(u64, u64), Error> {
    let Some(entry) = place.entry(name).await? else {
        return Ok((0, 0));
    };
    let text = std::str::from_utf8(&entry.value).expect("a number");
    Ok((text.parse().expect("a number"), entry.modified))
}

async fn a_counter_of_compare_and_swap_loses_nothing(place: Place) -> Result<(), Error> {
    let counts = |place: Place| async move {
        let mut done = 0;
        while done < 25 {
            let (count, modified) = number(&place, "count").await?;
            let compare = Compare::modified(place.key("count"), modified);
            let put = place.put_of("count", &(count + 1).to_string());
            match place.commit([compare], [put]).await {
                Ok(_) => done += 1,
                Err(Error::Conflict(_)) => {}
                Err(other) => return Err(other),
            }
        }
        Ok(())
    };
    together(8, |_| counts(place.clone())).await?;
    assert_eq!(number(&place, "count").await?.0, 8 * 25);
    let entry = place.entry("count").await?.expect("it was put");
    assert_eq!(entry.version, 8 * 25);
    Ok(())
}

async fn of_many_who_create_a_key_one_does(place: Place) -> Result<(), Error> {
    let creates = |place: Place, at: usize| async move {
        let compare = Compare::absent(place.key("a"));
        let operations = [
            place.put_of("a", &at.to_string()),
            place.put_of(&format!("won/{at}"), ""),
        ];
        match place.commit([compare], operations).await {
            Ok(_) | Err(Error::Conflict(_)) => Ok(()),
            Err(other) => Err(other),
        }
    };
    together(20, |at| creates(place.clone(), at)).await?;
    let won = place.list(place.below("won/")).await?.entries;
    assert_eq!(won.len(), 1);
    let winner = place.entry("a").await?.expect("one won").value;
    assert_eq!(
        place.name(&won[0].key).as_bytes(),
        [b"won/", &winner[..]].concat()
    );
    Ok(())
}

async fn many_writers_make_one_history(place: Place) -> Result<(), Error> {
    let before = place.revision().await?;
    let writes = |place: Place, at: usize| async move {
        for turn in 0..40 {
            place.put(&format!("w{at}"), &turn.to_string()).await?;
        }
        Ok(())
    };
    together(10, |at| writes(place.clone(), at)).await?;
    assert_eq!(place.revision().await?, before + 400);
    let entries = place.list(place.all()).await?.entries;
    assert_eq!(entries.len(), 10);
    assert!(entries.iter().all(|e| e.version == 40 && e.value == "39"));
    Ok(())
}

async fn a_transaction_is_never_seen_half_done(place: Place) -> Result<(), Error> {
    let writer = {
        let place = place.clone();
        tokio::spawn(async move {
            for turn in 0..200 {
                let value = turn.to_string();
                let operations = [place.put_of("a", &value), place.put_of("b", &value)];
                place.commit([], operations).await?;
            }
            Ok::<_, Error>(())
        })
    };
    while !writer.is_finished() {
        let entries = place.list(place.all()).await?.entries;
        assert!(entries.is_empty() || entries.len() == 2, "{entries:?}");
        if let [a, b] = &entries[..] {
            assert_eq!((&a.value, a.modified), (&b.value, b.modified));
        }
        // A store that answers from memory would leave the writer no thread.
        tokio::task::yield_now().await;
    }
    writer.await.expect("the writer does not panic")
}

async fn watches_see_what_many_writers_do_in_order(place: Place) -> Result<(), Error> {
    let from = place.revision().await? + 1;
    let watches = {
        let place = place.clone();
        tokio::spawn(together(5, move |_| follows(place.clone(), from, 200)))
    };
    let writes = |place: Place, at: usize| async move {
        for turn in 0..40 {
            let name = format!("k{}", turn % 3);
            place.put(&name, &format!("{at}.{turn}")).await?;
        }
        Ok(())
    };
    together(5, |at| writes(place.clone(), at)).await?;
    watches.await.expect("no watch panics")
}

/// Follows `count` puts from `from`: each key's versions count up, and at the end it knows what is there.
async fn follows(place: Place, from: u64, count: usize) -> Result<(), Error> {
    let mut watch = place.watch(place.all(), from).await?;
    let mut known = BTreeMap::new();
    for _ in 0..count {
        for event in watch.batch().await?.events {
            let Event::Put(entry) = event else {
                panic!("nothing is deleted: {event:?}");
            };
            let version = entry.version;
            let before = known.insert(entry.key.clone(), entry);
            assert_eq!(version, before.map_or(0, |e: crate::Entry| e.version) + 1);
        }
    }
    let listed = place.list(place.all()).await?.entries;
    assert_eq!(known.into_values().collect::<Vec<_>>(), listed);
    Ok(())
}

/// Each transaction writes a pair; its future is given up after it was polled up to five times. Afterwards each pair is
/// whole, the watch has said each once at most, and those that were acknowledged are there.
async fn a_dropped_commit_is_done_once_or_not_at_all(place: Place) -> Result<(), Error> {
    let mut watch = place.watch_all().await?;
    let mut acknowledged = Vec::new();
    for turn in 0..100 {
        let value = turn.to_string();
        let operations = [place.put_of("a", &value), place.put_of("b", &value)];
        let mut commit = pin!(place.commit([], operations));
        for _ in 0..turn % 5 {
            let polled = std::future::poll_fn(|context| Poll::Ready(commit.as_mut().poll(context)));
            if let Poll::Ready(done) = polled.await {
                done?;
                acknowledged.push(value.clone());
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    place.put("end", "").await?;
    let mut said = Vec::new();
    loop {
        let Message::Batch(batch) = watch.change().await? else {
            continue;
        };
        match &batch.events[..] {
            [Event::Put(a), Event::Put(b)] if a.value == b.value => {
                let text = String::from_utf8_lossy(&a.value).into_owned();
                assert!(!said.contains(&text), "{text} is done twice");
                said.push(text);
            }
            [Event::Put(end)] if end.key == place.key("end") => break,
            other => panic!("half a transaction: {other:?}"),
        }
    }
    assert!(acknowledged.iter().all(|value| said.contains(value)));
    Ok(())
}

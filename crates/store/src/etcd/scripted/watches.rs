//! What a watch makes of what it is told.

use super::server::{Played, Stage, said_at};
use crate::etcd::generated::etcdserverpb as pb;
use crate::{Batch, Denial, Error, Message, Range, Store, Watch};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::timeout;

/// A watch from revision 10 and its other side, after it is told that it was created at `current`.
async fn opened(stage: &mut Stage, current: i64) -> (Box<dyn Watch>, Played) {
    let store = stage.store.clone();
    let open = tokio::spawn(async move { store.watch(Range::Prefix("k".into()), 10).await });
    let played = stage.opened().await;
    played.created(current).await;
    (
        open.await.expect("no panic").expect("it is created"),
        played,
    )
}

/// What is said next, as text.
async fn said(watch: &mut Box<dyn Watch>) -> Result<String, Error> {
    let next = timeout(Duration::from_secs(10), watch.next());
    Ok(match next.await.expect("something is said")? {
        Message::Progress(revision) => format!("progress {revision}"),
        Message::Batch(Batch { revision, events }) => {
            let keys = events
                .iter()
                .map(|event| event.key().escape_ascii().to_string());
            format!("{revision} {}", keys.collect::<Vec<_>>().join(" "))
        }
    })
}

#[tokio::test]
async fn a_watch_is_opened_one_revision_earlier_in_fragments() {
    let mut stage = Stage::open("3.6.14").await;
    let (_watch, played) = opened(&mut stage, 9).await;
    let create = &played.create;
    assert_eq!((create.start_revision, create.fragment), (9, true));
    assert_eq!(
        (&create.key[..], &create.range_end[..]),
        (&b"k"[..], &b"l"[..])
    );
}

#[tokio::test]
async fn what_was_before_is_left_out() {
    let mut stage = Stage::open("3.6.14").await;
    let (mut watch, played) = opened(&mut stage, 12).await;
    played
        .puts(&[(9, "k9"), (10, "k10"), (11, "k11")], false)
        .await;
    assert_eq!(said(&mut watch).await.as_deref(), Ok("10 k10"));
    assert_eq!(said(&mut watch).await.as_deref(), Ok("11 k11"));
}

#[tokio::test]
async fn what_is_said_twice_or_late_is_said_once() {
    let mut stage = Stage::open("3.6.14").await;
    let (mut watch, played) = opened(&mut stage, 12).await;
    played.puts(&[(10, "a"), (12, "b")], false).await;
    played.puts(&[(10, "a"), (12, "b")], false).await;
    played
        .puts(&[(11, "late"), (13, "c"), (12, "b"), (13, "d")], false)
        .await;
    played.puts(&[(14, "e")], false).await;
    assert_eq!(said(&mut watch).await.as_deref(), Ok("10 a"));
    assert_eq!(said(&mut watch).await.as_deref(), Ok("12 b"));
    assert_eq!(said(&mut watch).await.as_deref(), Ok("13 c d"));
    assert_eq!(said(&mut watch).await.as_deref(), Ok("14 e"));
}

#[tokio::test]
async fn a_revision_in_fragments_is_said_whole() {
    let mut stage = Stage::open("3.6.14").await;
    let (mut watch, played) = opened(&mut stage, 9).await;
    played.puts(&[(10, "a"), (11, "b")], true).await;
    played.puts(&[(11, "c")], true).await;
    let early = timeout(Duration::from_millis(250), watch.next()).await;
    assert!(early.is_err(), "nothing is whole yet: {early:?}");
    played.puts(&[(11, "d"), (12, "e")], false).await;
    assert_eq!(said(&mut watch).await.as_deref(), Ok("10 a"));
    assert_eq!(said(&mut watch).await.as_deref(), Ok("11 b c d"));
    assert_eq!(said(&mut watch).await.as_deref(), Ok("12 e"));
}

#[tokio::test]
async fn one_response_of_many_revisions_is_many_batches() {
    let mut stage = Stage::open("3.6.14").await;
    let (mut watch, played) = opened(&mut stage, 12).await;
    played.puts(&[(10, "a"), (10, "b"), (12, "c")], false).await;
    assert_eq!(said(&mut watch).await.as_deref(), Ok("10 a b"));
    assert_eq!(said(&mut watch).await.as_deref(), Ok("12 c"));
}

#[tokio::test]
async fn that_it_was_created_proves_nothing() {
    let mut stage = Stage::open("3.6.14").await;
    let (mut watch, played) = opened(&mut stage, 20).await;
    played.puts(&[(10, "a")], false).await;
    assert_eq!(said(&mut watch).await.as_deref(), Ok("10 a"));
}

#[tokio::test]
async fn a_watch_that_is_created_and_canceled_at_once_is_refused() {
    let mut stage = Stage::open("3.6.14").await;
    for (reason, expected) in [
        (
            "etcdserver: permission denied",
            Error::Denied(Denial::Permission(
                "etcdserver: permission denied".to_owned(),
            )),
        ),
        (
            "rpc error: code = InvalidArgument desc = etcdserver: user name is empty",
            Error::Denied(Denial::Anonymous),
        ),
    ] {
        let store = stage.store.clone();
        let open = tokio::spawn(async move { store.watch(Range::Key("k".into()), 10).await });
        let played = stage.opened().await;
        played
            .says(pb::WatchResponse {
                created: true,
                canceled: true,
                cancel_reason: reason.to_owned(),
                ..said_at(9)
            })
            .await;
        let refused = open.await.expect("no panic").map(|_| ());
        assert_eq!(refused, Err(expected));
    }
}

#[tokio::test]
async fn compaction_is_told_with_the_oldest_and_again() {
    let mut stage = Stage::open("3.6.14").await;
    let (mut watch, played) = opened(&mut stage, 50).await;
    let compacted = pb::WatchResponse {
        canceled: true,
        compact_revision: 30,
        ..said_at(50)
    };
    played.says(compacted).await;
    let told = Err(Error::Compacted { oldest: 30 });
    assert_eq!(said(&mut watch).await, told);
    assert_eq!(said(&mut watch).await, told);
}

#[tokio::test]
async fn an_idle_watch_asks_and_says_progress_where_it_is_proven() {
    for version in ["3.4.31", "3.5.13", "3.6.0"] {
        let mut stage = Stage::open(version).await;
        let (mut watch, mut played) = opened(&mut stage, 9).await;
        for revision in [9, 15, 15, 16] {
            let next = tokio::spawn(async move { (said(&mut watch).await, watch) });
            let asked = timeout(Duration::from_secs(10), played.asked.recv());
            let asked = asked.await.expect("in time").expect("it is open");
            assert!(matches!(
                asked.request_union,
                Some(pb::watch_request::RequestUnion::ProgressRequest(_))
            ));
            played.says(said_at(revision)).await;
            let (progress, same) = next.await.expect("no panic");
            assert_eq!(progress, Ok(format!("progress {revision}")));
            watch = same;
        }
        // What it has said to have passed does not come back.
        played.puts(&[(16, "old"), (17, "k")], false).await;
        assert_eq!(said(&mut watch).await.as_deref(), Ok("17 k"));
    }
}

#[tokio::test]
async fn progress_that_may_overtake_changes_is_not_said() {
    for version in ["3.4.23", "3.5.1"] {
        let mut stage = Stage::open(version).await;
        let (mut watch, mut played) = opened(&mut stage, 20).await;
        let next = tokio::spawn(async move { (said(&mut watch).await, watch) });
        let asked = timeout(Duration::from_secs(10), played.asked.recv()).await;
        assert!(
            asked
                .expect("it asks, to know that the stream is alive")
                .is_some()
        );
        played.says(said_at(20)).await;
        played.puts(&[(12, "a")], false).await;
        let (first, mut watch) = next.await.expect("no panic");
        assert_eq!(first.as_deref(), Ok("12 a"));
        played.puts(&[(20, "b")], false).await;
        assert_eq!(said(&mut watch).await.as_deref(), Ok("20 b"));
    }
}

#[tokio::test]
async fn progress_in_the_midst_of_fragments_is_not_said() {
    let mut stage = Stage::open("3.6.14").await;
    let (mut watch, played) = opened(&mut stage, 9).await;
    played.puts(&[(10, "a")], true).await;
    played.says(said_at(12)).await;
    played.puts(&[(10, "b")], false).await;
    let first = said(&mut watch).await;
    assert_eq!(first.as_deref(), Ok("10 a b"));
}

#[tokio::test]
async fn a_watch_that_is_not_answered_ends() {
    for version in ["3.6.14", "3.4.23"] {
        let mut stage = Stage::open(version).await;
        let (mut watch, mut played) = opened(&mut stage, 9).await;
        let ended = said(&mut watch).await;
        let Err(Error::Unavailable(why)) = &ended else {
            panic!("{ended:?}");
        };
        assert!(why.contains("nothing was heard for 400ms"), "{why}");
        for _ in 0..3 {
            assert!(
                played.asked.recv().await.is_some(),
                "it was asked three times"
            );
        }
        assert_eq!(said(&mut watch).await, ended);
    }
}

#[tokio::test]
async fn a_version_that_answers_no_progress_is_asked_for_its_status() {
    for version in ["3.4.25", "3.5.12", "unheard of"] {
        let mut stage = Stage::open(version).await;
        let (mut watch, mut played) = opened(&mut stage, 9).await;
        let silent = timeout(Duration::from_secs(1), watch.next()).await;
        assert!(silent.is_err(), "it is alive, and says nothing: {silent:?}");
        assert!(stage.script.statuses.load(Ordering::SeqCst) > 3);
        assert!(played.asked.try_recv().is_err(), "no progress is asked for");
        played.puts(&[(10, "a")], false).await;
        assert_eq!(said(&mut watch).await.as_deref(), Ok("10 a"));
    }
}

#[tokio::test]
async fn a_watch_from_the_future_is_alive_without_progress() {
    let mut stage = Stage::open("3.6.14").await;
    let (mut watch, played) = opened(&mut stage, 3).await;
    let silent = timeout(Duration::from_secs(1), watch.next()).await;
    assert!(silent.is_err(), "{silent:?}");
    // Once the future has come, it is answered.
    played.says(said_at(11)).await;
    assert_eq!(said(&mut watch).await.as_deref(), Ok("progress 11"));
}

#[tokio::test]
async fn what_is_said_before_an_end_is_said() {
    let mut stage = Stage::open("3.6.14").await;
    let (mut watch, played) = opened(&mut stage, 9).await;
    played.puts(&[(10, "a"), (11, "b")], false).await;
    drop(played);
    assert_eq!(said(&mut watch).await.as_deref(), Ok("10 a"));
    assert_eq!(said(&mut watch).await.as_deref(), Ok("11 b"));
    let ended = said(&mut watch).await;
    assert!(matches!(ended, Err(Error::Unavailable(_))), "{ended:?}");
}

#[tokio::test]
async fn a_dropped_question_loses_nothing() {
    let mut stage = Stage::open("3.6.14").await;
    let (mut watch, played) = opened(&mut stage, 9).await;
    for revision in 10..60 {
        // Dropped at any point on its way.
        let _ = timeout(Duration::from_micros(revision * 7), watch.next())
            .await
            .map(|it| {
                panic!("nothing is there to be said: {it:?}");
            });
        played.puts(&[(revision as i64, "a")], false).await;
        assert_eq!(said(&mut watch).await, Ok(format!("{revision} a")));
    }
}

//! What comes at once, what comes while something else is waited for, and how long it is waited.

use super::faulty::Faulty;
use super::*;
use crate::Entry;
use crate::follower::memory::Difference;

/// What is told up to the view of `revision`: the revision and the standing of each view.
async fn views(following: &mut Following, revision: Revision) -> Vec<(Revision, Standing)> {
    let mut views = Vec::new();
    while views.last().is_none_or(|(last, _)| *last < revision) {
        let view = following.view(|_| true).await;
        views.push((view.revision, view.standing));
    }
    views
}

async fn live(store: &Arc<Faulty>) -> Following {
    store.put("t/a", "1");
    let mut following = Following::start(store, None);
    following.view(|view| view.standing == Standing::Live).await;
    following
}

#[tokio::test(start_paused = true)]
async fn a_burst_is_one_view_and_a_long_one_a_few() {
    let store = Faulty::new();
    let mut following = live(&store).await;
    store.with(|inside| {
        for _ in 0..2_500 {
            inside.put("t/b", "1");
        }
    });
    let told = views(&mut following, 2_501).await;
    let revisions: Vec<_> = told.iter().map(|(revision, _)| *revision).collect();
    assert_eq!(revisions, [1_001, 2_001, 2_501]);
}

/// While the keys were listed each change was a table of its own.
#[tokio::test(start_paused = true)]
async fn a_burst_while_keys_are_listed_is_one_view() {
    let store = Faulty::new();
    let mut following = live(&store).await;
    store.with(|inside| inside.holds_listings = true);
    while store.with(|inside| inside.comparisons) == 0 {
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    store.with(|inside| {
        inside.put("t/b", "1");
        inside.put("t/c", "1");
        inside.delete("t/a");
    });
    assert_eq!(views(&mut following, 4).await, [(4, Standing::Live)]);
    store.with(|inside| inside.holds_listings = false);
    let agrees = Notice::Agrees { keys: 2 };
    following.notice(|notice| *notice == agrees).await;
}

/// What a watch has said before it ended is known, and told before it is told that the watch has ended.
#[tokio::test(start_paused = true)]
async fn a_burst_that_ends_in_an_error_is_told_first() {
    let store = Faulty::new();
    let mut following = live(&store).await;
    following.notices.clear();
    store.with(|inside| {
        inside.ends_read_watches = true;
        inside.put("t/b", "1");
        inside.put("t/c", "1");
    });
    let view = following.view(|_| true).await;
    assert_eq!((view.revision, view.standing), (3, Standing::Live));
    assert_eq!(keys(&view), ["t/a", "t/b", "t/c"]);
    assert_eq!(following.notices, []);
    let view = following.view(|_| true).await;
    assert_eq!((view.revision, view.standing), (3, Standing::Stale));
    let lost = following.notice(|_| true).await;
    assert!(matches!(lost, Notice::Lost { .. }), "{lost:?}");
}

/// A watch that hears nothing for long is taken up from where it was proven to be: what was before may be forgotten.
#[tokio::test(start_paused = true)]
async fn a_watch_is_taken_up_behind_its_progress() {
    let store = Faulty::new();
    let mut following = live(&store).await;
    store.with(|inside| {
        inside.revision = 10;
        inside.progress = Some(10);
    });
    while store.with(|inside| inside.progress.is_some()) {
        tokio::task::yield_now().await;
    }
    store.with(|inside| {
        inside.compacted = 5;
        inside.is_down = true;
    });
    let view = following
        .view(|view| view.standing == Standing::Stale)
        .await;
    assert_eq!(view.revision, 10);
    store.with(|inside| inside.is_down = false);
    following
        .notice(|notice| *notice == Notice::Watching { from: 11 })
        .await;
    assert_eq!(store.with(|inside| inside.listings), 1);
}

/// A watch that is never silent kept the comparison off.
#[tokio::test(start_paused = true)]
async fn keys_are_compared_however_much_is_heard() {
    let store = Faulty::new();
    let _following = live(&store).await;
    store.with(|inside| inside.is_endless = true);
    for _ in 0..200 {
        if store.with(|inside| inside.comparisons) > 0 {
            return;
        }
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    panic!("they are not compared");
}

/// The first waits for a store that is down.
async fn waits(random: fn() -> u64) -> Vec<Duration> {
    let store = Faulty::new();
    store.with(|inside| inside.is_down = true);
    let mut following = Following::drawing(random, &store, None);
    let mut waits = Vec::new();
    while waits.len() < 8 {
        if let Notice::Lost { wait, .. } = following.notice(|_| true).await {
            waits.push(wait);
        }
    }
    waits
}

/// Those who lost a store together do not come back together.
#[tokio::test(start_paused = true)]
async fn a_wait_is_drawn_from_nothing_up_to_what_is_due() {
    let due = [50, 100, 200, 400, 800, 1_600, 2_000, 2_000].map(Duration::from_millis);
    assert_eq!(waits(|| 1 << 60).await, due.map(|due| due / 16));
    assert_eq!(waits(|| 1 << 63).await, due.map(|due| due / 2));
    for (wait, due) in waits(|| u64::MAX).await.into_iter().zip(due) {
        assert!(
            wait <= due && wait > due.mul_f64(0.999),
            "{wait:?} of {due:?}"
        );
    }
}

/// Those who started together do not compare together.
#[tokio::test(start_paused = true)]
async fn keys_are_compared_a_fifth_earlier_or_later() {
    let cases: [(fn() -> u64, u64); 3] = [(|| 0, 48), (|| 1 << 63, 60), (|| u64::MAX, 72)];
    for (random, seconds) in cases {
        let store = Faulty::new();
        let mut following = Following::drawing(random, &store, None);
        following.view(|view| view.standing == Standing::Live).await;
        let live = Instant::now();
        following
            .notice(|notice| matches!(notice, Notice::Agrees { .. }))
            .await;
        let late = live.elapsed().as_secs_f64() - seconds as f64;
        assert!(late.abs() < 0.01, "{late} s from {seconds} s");
    }
}

/// When a table of 200,000 keys had gone, each of them was looked for among all.
#[test]
fn many_differences_are_compared_in_one_pass() {
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let entry = |at: usize| {
            let key = Bytes::from(format!("t/{at:08}"));
            let entry = Entry {
                key: key.clone(),
                value: Bytes::new(),
                created: 1,
                modified: 1,
                version: 1,
                lease: None,
            };
            (key, entry)
        };
        let memory = Memory::new((0..200_000).map(entry).collect(), 1);
        let (none, options) = (Vec::new(), Options::new(|| 0));
        let listing = Listing {
            revision: 2,
            entries: none,
        };
        let mut follower = Follower::new(Faulty::new(), PREFIX.into(), options, |_| {});
        follower.memory = memory;
        // The same keys, otherwise different: nothing was missed.
        let other = |it: Difference| Difference {
            known: it.known + 1,
            ..it
        };
        let before = follower.memory.differences(&listing).into_iter();
        let before = before.map(other).collect();
        let found = follower.compare(&listing, &before).map(|found| found.len());
        // The test may be over.
        let _ = done.send(found.ok());
    });
    let found = is_done.recv_timeout(Duration::from_secs(30));
    assert_eq!(found, Ok(Some(200_000)));
}

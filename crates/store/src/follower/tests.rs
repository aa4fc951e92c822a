//! The follower on a store that does what a test tells it.

mod burst;
mod faulty;

use super::*;
use faulty::Faulty;
use tokio::sync::mpsc;

const PREFIX: &[u8] = b"t/";

/// A follower that runs, and what it tells.
struct Following {
    store: Arc<Faulty>,
    told: mpsc::UnboundedReceiver<Told>,
    notices: Vec<Notice>,
    _task: tokio::task::JoinHandle<()>,
}

impl Following {
    fn start(store: &Arc<Faulty>, restored: Option<(Memory, u64)>) -> Self {
        Self::drawing(|| 1 << 63, store, restored)
    }

    /// With other random bits than those in the middle.
    fn drawing(random: fn() -> u64, store: &Arc<Faulty>, restored: Option<(Memory, u64)>) -> Self {
        let (tell, told) = mpsc::unbounded_channel();
        let tell = move |said| {
            let _ = tell.send(said);
        };
        let options = Options::new(random);
        let shared: Arc<dyn Store> = Arc::clone(store) as Arc<dyn Store>;
        let mut follower = Follower::new(shared, PREFIX.into(), options, tell);
        if let Some((memory, known)) = restored {
            follower.restore(memory, known);
        }
        Self {
            store: Arc::clone(store),
            told,
            notices: Vec::new(),
            _task: tokio::spawn(async move {
                follower.run().await;
            }),
        }
    }

    /// The first view for which `is_it` holds; what was told before is passed over.
    async fn view(&mut self, is_it: impl Fn(&View) -> bool) -> View {
        loop {
            match self.told.recv().await.expect("it runs") {
                Told::View(view) if is_it(&view) => return view,
                Told::View(_) => {}
                Told::Notice(notice) => self.notices.push(notice),
            }
        }
    }

    async fn notice(&mut self, is_it: impl Fn(&Notice) -> bool) -> Notice {
        loop {
            match self.told.recv().await.expect("it runs") {
                Told::Notice(notice) if is_it(&notice) => return notice,
                Told::Notice(notice) => self.notices.push(notice),
                Told::View(_) => {}
            }
        }
    }
}

fn keys(view: &View) -> Vec<&str> {
    let keys = view.entries.keys();
    keys.map(|key| std::str::from_utf8(key).expect("text"))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn what_is_there_is_listed_and_what_comes_is_heard() {
    let store = Faulty::new();
    store.put("t/a", "1");
    let mut following = Following::start(&store, None);
    let view = following.view(|view| view.standing == Standing::Live).await;
    assert_eq!(
        (keys(&view), view.revision, view.store),
        (vec!["t/a"], 1, Some(7))
    );
    store.put("t/b", "2");
    store.delete("t/a");
    let view = following.view(|view| view.revision == 3).await;
    assert_eq!(keys(&view), ["t/b"]);
}

/// Between the listing and the watch there is no gap: the watch begins right behind the listing.
#[tokio::test(start_paused = true)]
async fn the_watch_begins_right_behind_the_listing() {
    let store = Faulty::new();
    store.put("t/a", "1");
    let mut following = Following::start(&store, None);
    let from = |notice: &Notice| matches!(notice, Notice::Watching { from: 2 });
    following.notice(from).await;
}

#[tokio::test(start_paused = true)]
async fn what_happened_while_it_was_away_is_heard_and_nothing_is_listed_again() {
    let store = Faulty::new();
    store.put("t/a", "1");
    let mut following = Following::start(&store, None);
    following.view(|view| view.standing == Standing::Live).await;
    store.with(|inside| inside.is_down = true);
    let view = following
        .view(|view| view.standing == Standing::Stale)
        .await;
    assert_eq!(keys(&view), ["t/a"], "it stays in force");
    store.put("t/b", "2");
    store.delete("t/a");
    store.with(|inside| inside.is_down = false);
    let view = following.view(|view| view.revision == 3).await;
    assert_eq!((keys(&view), view.standing), (vec!["t/b"], Standing::Live));
    assert_eq!(store.with(|inside| inside.listings), 1);
}

/// However long it was away, it is back within 2 s of the store's return.
#[tokio::test(start_paused = true)]
async fn after_a_long_outage_it_is_back_in_two_seconds() {
    let store = Faulty::new();
    let mut following = Following::start(&store, None);
    following.view(|view| view.standing == Standing::Live).await;
    store.with(|inside| inside.is_down = true);
    for _ in 0..20 {
        following
            .notice(|notice| matches!(notice, Notice::Lost { .. }))
            .await;
    }
    store.with(|inside| inside.is_down = false);
    let back = Instant::now();
    following.view(|view| view.standing == Standing::Live).await;
    assert!(
        back.elapsed() <= Duration::from_secs(2),
        "{:?}",
        back.elapsed()
    );
}

/// Taking a compaction's revision for where to go on would keep what was deleted before it for ever.
#[tokio::test(start_paused = true)]
async fn what_was_deleted_in_lost_history_goes_away() {
    let store = Faulty::new();
    store.put("t/a", "1");
    store.put("t/b", "1");
    let mut following = Following::start(&store, None);
    following.view(|view| view.standing == Standing::Live).await;
    store.with(|inside| inside.is_down = true);
    following
        .view(|view| view.standing == Standing::Stale)
        .await;
    store.delete("t/a");
    store.put("t/c", "1");
    store.with(|inside| {
        inside.history.clear();
        inside.compacted = inside.revision;
        inside.is_down = false;
    });
    let view = following.view(|view| view.revision == 4).await;
    assert_eq!(keys(&view), ["t/b", "t/c"]);
    let listed = |notice: &Notice| {
        matches!(
            notice,
            Notice::Listed {
                revision: 4,
                put: 1,
                deleted: 1
            }
        )
    };
    assert!(
        following.notices.iter().any(listed),
        "{:?}",
        following.notices
    );
}

/// Faults of a store itself: an event that was never told.
#[tokio::test(start_paused = true)]
async fn an_event_that_was_never_told_is_found() {
    let store = Faulty::new();
    store.put("t/a", "1");
    let mut following = Following::start(&store, None);
    following.view(|view| view.standing == Standing::Live).await;
    following
        .notice(|notice| *notice == Notice::Agrees { keys: 1 })
        .await;
    store.with(|inside| {
        inside.is_mute = true;
        inside.delete("t/a");
        inside.put("t/b", "1");
        inside.is_mute = false;
    });
    let found = following
        .notice(|notice| matches!(notice, Notice::Diverged { .. }))
        .await;
    let example = "t/a".into();
    assert_eq!(found, Notice::Diverged { keys: 2, example });
    let view = following.view(|view| view.standing == Standing::Live).await;
    assert_eq!(keys(&view), ["t/b"]);
}

/// What is on its way is not what was missed.
#[tokio::test(start_paused = true)]
async fn what_is_told_late_is_no_divergence() {
    let store = Faulty::new();
    store.put("t/a", "1");
    let mut following = Following::start(&store, None);
    following.view(|view| view.standing == Standing::Live).await;
    store.with(|inside| inside.is_slow = true);
    store.delete("t/a");
    store.put("t/b", "1");
    while store.with(|inside| inside.comparisons) == 0 {
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    store.with(|inside| inside.is_slow = false);
    following
        .notice(|notice| *notice == Notice::Agrees { keys: 1 })
        .await;
    let diverged = |notice: &Notice| matches!(notice, Notice::Diverged { .. });
    assert!(
        !following.notices.iter().any(diverged),
        "{:?}",
        following.notices
    );
}

#[tokio::test(start_paused = true)]
async fn another_store_is_told_as_one() {
    let store = Faulty::new();
    store.put("t/a", "1");
    let mut following = Following::start(&store, None);
    following.view(|view| view.standing == Standing::Live).await;
    store.with(|inside| inside.is_down = true);
    following
        .view(|view| view.standing == Standing::Stale)
        .await;
    store.with(|inside| {
        inside.id = 8;
        inside.is_down = false;
    });
    let view = following.view(|view| view.standing == Standing::Live).await;
    assert_eq!((view.doubt, view.store), (Some(Doubt::OtherStore), Some(8)));
}

/// A watch from a revision that the restored store has not come to would wait for ever.
#[tokio::test(start_paused = true)]
async fn a_store_restored_from_a_backup_is_told_as_older() {
    let store = Faulty::new();
    store.put("t/a", "1");
    store.put("t/b", "1");
    let mut following = Following::start(&store, None);
    following.view(|view| view.standing == Standing::Live).await;
    store.with(|inside| inside.is_down = true);
    following
        .view(|view| view.standing == Standing::Stale)
        .await;
    store.with(|inside| {
        inside.entries.remove(&b"t/b"[..]);
        inside.history.truncate(1);
        inside.revision = 1;
        inside.is_down = false;
    });
    let view = following.view(|view| view.standing == Standing::Live).await;
    assert_eq!(
        (view.doubt, view.revision),
        (Some(Doubt::Older { was: 2 }), 1)
    );
    assert_eq!(keys(&view), ["t/a"]);
}

#[tokio::test(start_paused = true)]
async fn what_was_written_down_is_in_force_before_the_store_is_reached() {
    let store = Faulty::new();
    store.put("t/a", "1");
    let entries = store.with(|inside| {
        inside.is_down = true;
        inside.entries.clone()
    });
    let memory = Memory::new(entries, 1);
    let mut following = Following::start(&store, Some((memory, 7)));
    let view = following.view(|_| true).await;
    assert_eq!(
        (keys(&view), view.standing),
        (vec!["t/a"], Standing::Restored)
    );
    following
        .notice(|notice| matches!(notice, Notice::Lost { .. }))
        .await;
    store.put("t/b", "1");
    store.with(|inside| inside.is_down = false);
    let view = following.view(|view| view.standing == Standing::Live).await;
    assert_eq!((keys(&view), view.doubt), (vec!["t/a", "t/b"], None));
    assert_eq!(following.store.with(|inside| inside.listings), 1);
}

/// A store that takes watches and ends them at once is asked less and less often.
#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_at_once_is_no_success() {
    let store = Faulty::new();
    store.with(|inside| inside.ends_watches = true);
    let mut following = Following::start(&store, None);
    let mut waits = Vec::new();
    while waits.len() < 8 {
        let lost = following
            .notice(|notice| matches!(notice, Notice::Lost { .. }))
            .await;
        if let Notice::Lost { wait, .. } = lost {
            waits.push(wait);
        }
    }
    assert!(waits[7] >= Duration::from_millis(500), "{waits:?}");
}

/// What is known of one store is never told as another's.
#[tokio::test(start_paused = true)]
async fn a_store_that_was_not_listed_yet_is_not_whose_entries_are_told() {
    let store = Faulty::new();
    store.put("t/a", "1");
    let mut following = Following::start(&store, None);
    following.view(|view| view.standing == Standing::Live).await;
    store.with(|inside| {
        inside.id = 8;
        inside.refuses_listings = true;
        inside.compacted = inside.revision + 1;
    });
    following
        .notice(|notice| matches!(notice, Notice::Doubtful(_)))
        .await;
    let view = following
        .view(|view| view.standing == Standing::Stale)
        .await;
    assert_eq!((keys(&view), view.store), (vec!["t/a"], Some(7)));
}

/// Some versions of etcd say events twice after a reconnect.
#[test]
fn an_event_that_is_told_again_changes_nothing() {
    let store = Faulty::new();
    store.put("t/a", "1");
    store.put("t/a", "2");
    let history = store.with(|inside| inside.history.clone());
    let mut memory = Memory::default();
    assert!(memory.apply(history[0].clone()));
    assert!(memory.apply(history[1].clone()));
    let held = memory.entries();
    assert!(!memory.apply(history[0].clone()));
    assert_eq!(memory.entries()[&b"t/a"[..]].value, "2");
    assert_eq!(held, memory.entries());
}

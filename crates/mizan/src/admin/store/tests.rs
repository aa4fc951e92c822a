//! Both halves together: `mizan_store::remote` on a real socket of an admin side with a real embedded store.

mod child;
mod fan_out;
mod hostile;
mod kill;

use crate::admin::fixture::Running;
use mizan_store::conformance::{self, Options};
use mizan_store::embedded::{self, Embedded};
use mizan_store::remote::Remote;
use mizan_store::{Denial, Error, Message, Operation, Query, Range, Store, Transaction, Watch};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Longest that anything here waits for what has to come.
const LONG: Duration = Duration::from_secs(20);

fn open(folder: &Path) -> Arc<dyn Store> {
    let store = Embedded::open(folder, embedded::Options::default());
    Arc::new(store.expect("it opens"))
}

fn everything() -> Range {
    Range::Prefix("".into())
}

fn putting(key: &str, value: impl Into<Vec<u8>>) -> Transaction {
    Transaction {
        compares: Vec::new(),
        operations: vec![Operation::put(key.to_owned(), value.into())],
    }
}

async fn put(store: &dyn Store, key: &str, value: impl Into<Vec<u8>>) -> u64 {
    let done = store.commit(putting(key, value)).await;
    done.expect("it is taken").revision
}

async fn next(watch: &mut dyn Watch) -> Result<Message, Error> {
    let said = tokio::time::timeout(LONG, watch.next()).await;
    said.expect("it says something")
}

/// What it says next that is no progress.
async fn news(watch: &mut dyn Watch) -> Result<Message, Error> {
    loop {
        match next(watch).await {
            Ok(Message::Progress(_)) => {}
            said => return said,
        }
    }
}

/// An admin side on a thread of its own, as in the product, until it is dropped.
struct Served {
    socket: std::path::PathBuf,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Served {
    fn start(store: Arc<dyn Store>) -> Self {
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let (told, heard) = std::sync::mpsc::channel();
        let serve = async move {
            let running = Running::start_with_store(store);
            told.send(running.socket.clone()).expect("it is waited for");
            let _ = stopped.await;
            running.stop().await;
        };
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.expect("a runtime").block_on(serve);
        });
        Self {
            socket: heard.recv().expect("it starts"),
            stop: Some(stop),
            thread: Some(thread),
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("it does not panic");
        }
    }
}

#[tokio::test]
async fn it_passes_the_suite_of_all_stores() {
    let folder = tempfile::tempdir().expect("a folder");
    let served = Served::start(open(folder.path()));
    let store: Arc<dyn Store> = Arc::new(Remote::new(&served.socket));
    let options = Options {
        only: std::env::var("MIZAN_STORE_CASE").ok(),
        ..Options::default()
    };
    let ran = conformance::run(&options, |_| std::future::ready(store.clone())).await;
    let all = conformance::names().len();
    assert!(ran == all || options.only.is_some(), "{ran} of {all}");
    println!("{ran} cases");
}

#[tokio::test]
async fn without_a_store_it_is_told_how_to_get_one() {
    let running = Running::start();
    let store = Remote::new(&running.socket);
    let refused = store.identity().await.expect_err("there is none");
    assert!(
        matches!(&refused, Error::Unavailable(why) if why.contains("`[store] address")),
        "{refused}"
    );
    let refused = store.commit(putting("a", "1")).await.expect_err("none");
    assert!(matches!(refused, Error::Unavailable(_)), "{refused}");
    let refused = store.watch(everything(), 1).await.expect_err("none");
    assert!(matches!(refused, Error::Unavailable(_)), "{refused}");
    running.stop().await;
}

#[tokio::test]
async fn nobody_on_the_socket_is_unavailable_and_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("admin.sock");
    let store = Remote::new(&socket);
    for refused in [
        store.identity().await.map(drop),
        store.commit(putting("a", "1")).await.map(drop),
        store.watch(everything(), 1).await.map(drop),
    ] {
        let text = refused
            .as_ref()
            .map_or_else(ToString::to_string, |()| String::new());
        let is_named = text.contains(&*socket.to_string_lossy());
        assert!(
            matches!(refused, Err(Error::Unavailable(_))) && is_named,
            "{text}"
        );
    }
}

/// A question meets a connection that the instance closed while it was idle: it goes out on another.
#[tokio::test]
async fn an_instance_that_was_restarted_is_asked_again_without_a_doubt() {
    let folder = tempfile::tempdir().expect("a folder");
    let (data, sockets) = (folder.path().join("data"), folder.path().join("sockets"));
    std::fs::create_dir(&sockets).expect("made");
    let socket = sockets.join("admin.sock");
    let store = Remote::new(&socket);
    for round in 1..=3 {
        let served = Served::start(open(&data));
        std::fs::rename(&served.socket, &socket).expect("moved");
        assert_eq!(put(&store, "a", "1").await, round);
        // At the start of the next round the kept connection is closed.
    }
    let refused = store.commit(putting("a", "1")).await.expect_err("gone");
    assert!(matches!(refused, Error::Unavailable(_)), "{refused}");
}

#[tokio::test]
async fn a_watch_is_told_that_the_instance_ends_and_says_the_same_from_then_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let served = Served::start(open(folder.path()));
    let store = Remote::new(&served.socket);
    let mut watch = store.watch(everything(), 1).await.expect("it begins");
    let revision = put(&store, "a", "1").await;
    let said = news(&mut *watch).await.expect("it is open");
    assert!(matches!(said, Message::Batch(batch) if batch.revision == revision));
    drop(served);
    let ended = news(&mut *watch).await.expect_err("it has ended");
    assert_eq!(
        ended,
        Error::Unavailable("the instance has ended".to_owned())
    );
    assert_eq!(next(&mut *watch).await, Err(ended));
}

/// What was forgotten while nobody read is told as such, by the store's own error.
#[tokio::test]
async fn a_watch_that_fell_behind_what_is_held_is_told_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let served = Served::start(open(folder.path()));
    let store = Remote::new(&served.socket);
    let mut watch = store.watch(everything(), 1).await.expect("it begins");
    // More than sockets and buffers hold.
    let large = vec![b'x'; 1 << 20];
    let mut revision = 0;
    for _ in 0..12 {
        revision = put(&store, "a", large.clone()).await;
    }
    store.compact(revision).await.expect("it is forgotten");
    let mut seen = 0;
    let ended = loop {
        match news(&mut *watch).await {
            Ok(Message::Batch(batch)) => {
                assert_eq!(batch.revision, seen + 1, "nothing is left out");
                seen = batch.revision;
            }
            Ok(Message::Progress(_)) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(ended, Error::Compacted { oldest: revision });
    assert!(seen < revision, "it came to {seen} of {revision}");
}

/// A listing of many pieces, at a revision and without values.
#[tokio::test]
async fn a_long_listing_arrives_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let served = Served::start(open(folder.path()));
    let store = Remote::new(&served.socket);
    for at in 0..40 {
        put(&store, &format!("k{at:02}"), vec![at; 200_000]).await;
    }
    let query = Query::now(everything());
    let listing = store.list(query.clone()).await.expect("it is listed");
    let sizes = listing.entries.iter().map(|entry| entry.value.len());
    assert_eq!((listing.revision, sizes.sum::<usize>()), (40, 8_000_000));
    let query = Query {
        at: Some(7),
        keys_only: true,
        ..query
    };
    let listing = store.list(query).await.expect("it is listed");
    assert_eq!((listing.revision, listing.entries.len()), (40, 7));
}

#[tokio::test]
async fn another_users_socket_is_denied_by_name() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    let served = Served::start(open(folder.path()));
    let mode = std::fs::metadata(&served.socket).expect("it is there");
    assert_eq!(mode.permissions().mode() & 0o777, 0o600);
    // Root may open any socket, so who is refused cannot be tried there.
    if rustix::process::geteuid().is_root() {
        return;
    }
    let none = std::fs::Permissions::from_mode(0o0);
    std::fs::set_permissions(&served.socket, none).expect("it is ours");
    let refused = Remote::new(&served.socket).identity().await;
    assert!(
        matches!(refused, Err(Error::Denied(Denial::Permission(_)))),
        "{refused:?}"
    );
}

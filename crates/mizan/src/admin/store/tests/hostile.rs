//! What no client of ours sends.

use super::{LONG, Served, everything, open, put};
use crate::admin::bounded::{Bounded, Place, Scraper};
use crate::admin::fixture::{Running, TOKEN};
use crate::admin::guard::{Caller, Guard};
use crate::admin::listen::{Known, converse};
use crate::admin::store::{Stopping, routes};
use axum::Router;
use mizan_store::remote::Remote;
use mizan_store::remote::wire;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{Semaphore, watch};

fn head(path: &str, length: usize) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    )
}

/// All that is answered to `bytes`, with what came before an error.
async fn answer(socket: &Path, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(socket).await.expect("connected");
    // It may be refused before all is sent.
    let _ = stream.write_all(bytes).await;
    let mut text = Vec::new();
    let mut piece = [0; 4096];
    let read = async {
        while let Ok(1..) = stream.read(&mut piece).await.inspect(|read| {
            text.extend_from_slice(&piece[..*read]);
        }) {}
    };
    tokio::time::timeout(LONG, read).await.expect("it ends");
    String::from_utf8_lossy(&text).into_owned()
}

async fn asked(socket: &Path, path: &str, body: &str) -> String {
    answer(socket, (head(path, body.len()) + body).as_bytes()).await
}

/// Paths with bodies, and the status and the code that each is refused with.
fn nonsense() -> Vec<(&'static str, String, u16, &'static str)> {
    let text = str::to_owned;
    let put_as = |key: &str, lease: &str| {
        format!(r#"{{"operations":[{{"put":{{"key":"{key}","value":"","lease":{lease}}}}}]}}"#)
    };
    let deep = "[".repeat(100_000);
    let many = format!(
        r#"{{"operations":[{}]}}"#,
        vec![r#"{"delete":{"key":"YQ=="}}"#; 200].join(",")
    );
    vec![
        (wire::COMMIT, "{".to_owned(), 400, "bad_body"),
        (wire::COMMIT, "\u{0}\u{7f}".to_owned(), 400, "bad_body"),
        (wire::COMMIT, deep, 400, "bad_body"),
        (wire::COMMIT, put_as("no base64!", "null"), 400, "bad_body"),
        (wire::COMMIT, put_as("YQ==", "1.5"), 400, "bad_body"),
        (wire::COMMIT, put_as("", "null"), 422, "invalid"),
        (wire::COMMIT, put_as("YQ==", "-1"), 404, "no_lease"),
        (wire::COMMIT, put_as("YQ==", "0"), 404, "no_lease"),
        (wire::COMMIT, many, 413, "too_large"),
        (wire::COMPACT, text(r#"{"revision":-1}"#), 400, "bad_body"),
        (
            wire::COMPACT,
            text(r#"{"revision":18446744073709551615}"#),
            404,
            "future",
        ),
        (
            wire::COMPACT,
            text(r#"{"revision":1,"x":1}"#),
            400,
            "bad_body",
        ),
        (
            wire::LIST,
            text(r#"{"range":{"prefix":""},"at":99}"#),
            404,
            "future",
        ),
        (
            wire::LIST,
            text(r#"{"range":{"suffix":""}}"#),
            400,
            "bad_body",
        ),
        (
            wire::GRANT,
            text(r#"{"life":{"secs":0,"nanos":0}}"#),
            422,
            "invalid",
        ),
        (
            wire::GRANT,
            text(r#"{"life":{"secs":18446744073709551615,"nanos":4294967295}}"#),
            400,
            "bad_body",
        ),
        (
            wire::REVOKE,
            text(r#"{"id":-9223372036854775808}"#),
            404,
            "no_lease",
        ),
        (
            wire::WATCH,
            text(r#"{"range":{"prefix":""},"from":-1}"#),
            400,
            "bad_body",
        ),
        ("/v1/store/drop", "{}".to_owned(), 404, "not_found"),
    ]
}

#[tokio::test]
async fn nonsense_is_refused_by_name_and_harms_nobody() {
    let folder = tempfile::tempdir().expect("a folder");
    let served = Served::start(open(folder.path()));
    let socket = &served.socket;
    for (path, body, status, code) in nonsense() {
        let text = asked(socket, path, &body).await;
        let begin = format!("HTTP/1.1 {status} ");
        let code = format!(r#""code":"{code}""#);
        let body = &body[..body.len().min(100)];
        assert!(
            text.starts_with(&begin) && text.contains(&code),
            "{path} {body}: {text}"
        );
    }
    let get = answer(
        socket,
        b"GET /v1/store/list HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
    )
    .await;
    assert!(get.starts_with("HTTP/1.1 405 "), "{get}");
    // It goes on for those who make sense, and nothing was changed.
    let store = Remote::new(socket);
    assert_eq!(put(&store, "a", "1").await, 1);
}

#[tokio::test]
async fn a_question_that_is_too_large_is_refused_and_not_held() {
    let folder = tempfile::tempdir().expect("a folder");
    let served = Served::start(open(folder.path()));
    let body = vec![b' '; wire::QUESTION_BYTES_MAX + 1];
    let mut bytes = head(wire::COMMIT, body.len()).into_bytes();
    bytes.extend_from_slice(&body);
    let text = answer(&served.socket, &bytes).await;
    assert!(
        text.starts_with("HTTP/1.1 413 ") && text.contains("body_too_large"),
        "{text}"
    );
    // Said to be larger than any memory, and never sent.
    let mut stream = UnixStream::connect(&served.socket)
        .await
        .expect("connected");
    let huge = head(wire::COMMIT, usize::MAX / 2);
    stream.write_all(huge.as_bytes()).await.expect("sent");
    assert_eq!(put(&Remote::new(&served.socket), "a", "1").await, 1);
}

/// Waits for the ten seconds that a question may take.
#[tokio::test]
async fn a_question_that_does_not_end_is_given_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let served = Served::start(open(folder.path()));
    let text = answer(&served.socket, (head(wire::COMMIT, 100) + "{").as_bytes()).await;
    assert!(
        text.starts_with("HTTP/1.1 408 ") && text.contains("too_slow"),
        "{text}"
    );
}

/// A watch whose reader closes its half, or all, gives its place back.
#[tokio::test]
async fn a_watch_that_is_left_is_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let served = Served::start(open(folder.path()));
    let body = r#"{"range":{"prefix":""},"from":1}"#;
    let question = head(wire::WATCH, body.len()) + body;
    let mut stream = UnixStream::connect(&served.socket)
        .await
        .expect("connected");
    stream.write_all(question.as_bytes()).await.expect("sent");
    let begun = stream.read_u8().await.expect("it begins");
    assert_eq!(begun, b'H');
    stream.shutdown().await.expect("half is closed");
    let mut rest = Vec::new();
    let read = stream.read_to_end(&mut rest);
    let read = tokio::time::timeout(LONG, read).await.expect("it ends");
    drop(read);
    assert_eq!(put(&Remote::new(&served.socket), "a", "1").await, 1);
}

/// On TCP there is the table, never the store, whatever is shown.
#[tokio::test]
async fn over_tcp_it_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let running = Running::start_with_store(open(folder.path()));
    let list = head(wire::LIST, 2) + "{}";
    let with_token = list.replace("host:", &format!("authorization: Bearer {TOKEN}\r\nhost:"));
    for (request, status, code) in [
        (list, 401, "unauthorized"),
        (with_token, 403, "only_on_unix_socket"),
    ] {
        let stream = TcpStream::connect(running.addresses[0]).await;
        let mut stream = stream.expect("connected");
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).await.expect("an answer");
        assert!(
            text.starts_with(&format!("HTTP/1.1 {status} ")) && text.contains(code),
            "{text}"
        );
    }
    running.stop().await;
}

/// The reader takes nothing: the connection ends in its time, its place is free, and what waits for it is one change, not
/// all.
#[tokio::test]
async fn a_watch_that_is_not_read_is_cut_off() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path());
    let connections = Arc::new(Semaphore::new(1));
    let watches = Arc::new(Semaphore::new(1));
    let permit = Arc::clone(&connections)
        .acquire_owned()
        .await
        .expect("open");
    let (_stop, stopped) = watch::channel(false);
    let router: Router = routes(Guard::Unix, Some(Arc::clone(&store)));
    let caller = Caller::User(0);
    let known = Known {
        author: caller.author(),
        caller,
        scraper: Scraper::new(&watches),
        place: Place::new(permit, &watches),
        stopping: Stopping(stopped),
    };
    let (mut client, server) = duplex(1 << 10);
    let server = Bounded::new(server, Duration::from_millis(200));
    let conversation = tokio::spawn(converse(Box::new(server), router, known));
    let body = r#"{"range":{"prefix":""},"from":1}"#;
    let question = head(wire::WATCH, body.len()) + body;
    client.write_all(question.as_bytes()).await.expect("sent");
    client.read_u8().await.expect("it begins");
    let another = tokio::time::timeout(LONG, connections.acquire()).await;
    let another = another.expect("its place is another's").expect("open");
    assert_eq!(watches.available_permits(), 0);
    for _ in 0..5 {
        put(&*store, "a", vec![b'x'; 1 << 20]).await;
    }
    let ended = tokio::time::timeout(LONG, conversation).await;
    ended.expect("it ends").expect("no panic");
    assert_eq!(watches.available_permits(), 1, "the watch's place is free");
    drop(another);
    let listing = store.list(mizan_store::Query::now(everything())).await;
    assert_eq!(listing.expect("it goes on").revision, 5);
}

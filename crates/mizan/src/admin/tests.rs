use super::fixture::{Running, TOKEN};
use super::view::{BackendView, ConfigView, PoolView, StatusView};
use super::{BindError, Phase, bind, openapi};
use crate::snapshot::AdminBind;
use crate::telemetry::fixture;
use serde_json::Value;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: String,
}

impl Answer {
    pub(super) fn json<T: serde::de::DeserializeOwned>(&self) -> T {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    pub(super) fn code(&self) -> String {
        self.json::<Value>()["code"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }
}

pub(super) async fn ask(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &str) -> Answer {
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).await.expect("an answer");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .expect("a status");
    Answer {
        status,
        head: head.to_lowercase(),
        body: body.into(),
    }
}

pub(super) fn request(line: &str, headers: &[&str]) -> String {
    let mut text = format!("{line} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    headers
        .iter()
        .for_each(|header| text += &format!("{header}\r\n"));
    text + "\r\n"
}

pub(super) async fn unix(running: &Running, line: &str) -> Answer {
    let stream = UnixStream::connect(&running.socket)
        .await
        .expect("connected");
    ask(
        stream,
        &request(
            line,
            &["content-type: application/json", "content-length: 0"],
        ),
    )
    .await
}

/// Asks about a request.
async fn explain(running: &Running, question: &str) -> Answer {
    let stream = UnixStream::connect(&running.socket)
        .await
        .expect("connected");
    let length = format!("content-length: {}", question.len());
    let head = request(
        "POST /v1/explain",
        &["content-type: application/json", &length],
    );
    ask(stream, &(head + question)).await
}

pub(super) async fn tcp(address: SocketAddr, request: &str) -> Answer {
    ask(
        TcpStream::connect(address).await.expect("connected"),
        request,
    )
    .await
}

/// One thread runs all that answers here.
#[tokio::test]
async fn an_explanation_is_not_found_on_a_thread_that_answers_others() {
    let running = Running::start();
    let answer = explain(&running, r#"{"url": "http://a.example/"}"#).await;
    assert_eq!(answer.status, 200);
    let on = *running.control.explained_on.lock().expect("no panic");
    assert_ne!(on.expect("it was asked"), std::thread::current().id());
    running.stop().await;
}

#[tokio::test]
async fn status_says_what_runs() {
    let running = Running::start();
    let answer = unix(&running, "GET /v1/status").await;
    assert_eq!(answer.status, 200);
    assert!(answer.head.contains("etag: \"1\""), "{}", answer.head);
    let status: StatusView = answer.json();
    assert_eq!(
        (status.phase, status.generation, status.connections),
        (Phase::Serving, 1, 3)
    );
    assert_eq!(status.started_at, "2026-01-01T00:00:00.000Z");
    assert_eq!(
        status.workers,
        5,
        "those that run, not the {} of the configuration in force",
        running.state.current.load().settings.workers
    );
    assert_eq!(
        status
            .pools
            .iter()
            .map(|pool| (&*pool.name, pool.usable, pool.total))
            .collect::<Vec<_>>(),
        [("api", 2, 2), ("web", 1, 1)]
    );
    running.stop().await;
}

#[tokio::test]
async fn a_drained_backend_gets_nothing_and_comes_back() {
    let running = Running::start();
    let drained = unix(&running, "POST /v1/pools/api/backends/10.0.0.1:8000/drain").await;
    assert_eq!(drained.status, 200, "{}", drained.body);
    let backend: BackendView = drained.json();
    assert_eq!(
        (backend.usable, &*backend.state, &*backend.reason),
        (false, "drain", "set to drain by the operator")
    );
    let pool: PoolView = unix(&running, "GET /v1/pools/api").await.json();
    assert_eq!((pool.summary.usable, pool.summary.total), (1, 2));
    let core = running.state.current.load().pools["api"].core.clone();
    for random in 0..20 {
        let pick = mizan_core::pool::Pick {
            random,
            ..Default::default()
        };
        assert_eq!(
            &**core.pick(&pick).expect("the other one").backend().key(),
            "10.0.0.1:8001"
        );
    }
    let backend: BackendView = unix(
        &running,
        "POST /v1/pools/api/backends/10.0.0.1:8000/undrain",
    )
    .await
    .json();
    assert!(backend.usable);
    running.stop().await;
}

#[tokio::test]
async fn errors_say_code_message_and_path() {
    let running = Running::start();
    for (line, status, code, path) in [
        ("GET /v1/pools/none", 404, "unknown_pool", "pool.none"),
        (
            "POST /v1/pools/api/backends/10.9.9.9:1/drain",
            404,
            "unknown_backend",
            "pool.api.backends.10.9.9.9:1",
        ),
        (
            "POST /v1/pools/api/backends/10.0.0.1:8000/explode",
            404,
            "not_found",
            "",
        ),
        ("GET /v2", 404, "not_found", "/v2"),
        ("GET /livez", 404, "not_found", "/livez"),
        ("GET /v1/reload", 405, "method_not_allowed", "/v1/reload"),
    ] {
        let answer = unix(&running, line).await;
        let error: Value = answer.json();
        assert_eq!(
            (
                answer.status,
                error["code"].as_str(),
                error["path"].as_str()
            ),
            (status, Some(code), Some(path)),
            "{line}"
        );
        assert!(
            error["message"]
                .as_str()
                .is_some_and(|message| !message.is_empty())
        );
    }
    running.stop().await;
}

#[tokio::test]
async fn a_question_that_nobody_could_mean_says_which_part_of_it() {
    let running = Running::start();
    for (question, code, path, taught) in [
        ("", "bad_request", "", ""),
        (r#"{"uri": "/"}"#, "bad_request", "", "unknown field `uri`"),
        (
            r#"{"url": "a.example"}"#,
            "bad_request",
            "url",
            "http://a.example",
        ),
        (
            r#"{"url": "http://a.example/", "headers": ["x"]}"#,
            "bad_request",
            "headers",
            "write `Name: value`",
        ),
        (
            r#"{"url": "http://a.example/", "pool": "apj"}"#,
            "unknown_pool",
            "pool.apj",
            "did you mean `api`?",
        ),
        (
            r#"{"url": "http://a.example/", "listener": "wob"}"#,
            "unknown_listener",
            "listener.wob",
            "did you mean `web`?",
        ),
    ] {
        let answer = explain(&running, question).await;
        let error: Value = answer.json();
        let told = (error["code"].as_str(), error["path"].as_str());
        assert_eq!(answer.status, 400, "{question}");
        assert_eq!(told, (Some(code), Some(path)), "{question}");
        let message = error["message"].as_str().expect("text");
        assert!(message.contains(taught), "{question}: {message}");
    }
    running.stop().await;
}

#[tokio::test]
async fn an_unknown_path_is_answered_with_those_of_its_own_socket() {
    let running = Running::start();
    let message = |answer: Answer| {
        let error: Value = answer.json();
        error["message"].as_str().unwrap_or_default().to_owned()
    };
    let asked = request("GET /", &[]);
    assert_eq!(
        message(tcp(running.addresses[1], &asked).await),
        "nothing is here; there are /livez, /readyz and /metrics"
    );
    assert_eq!(
        message(unix(&running, "GET /").await),
        "nothing is here; /v1/openapi.json lists all paths"
    );
    running.stop().await;
}

#[tokio::test]
async fn a_write_is_json_and_holds_if_match() {
    let running = Running::start();
    for (headers, status, code) in [
        (&["content-length: 0"][..], 415, "not_json"),
        (
            &["content-type: text/plain", "content-length: 0"],
            415,
            "not_json",
        ),
        (
            &[
                "content-type: application/json",
                "if-match: \"2\"",
                "content-length: 0",
            ],
            412,
            "changed",
        ),
        (
            &[
                "content-type: application/json; charset=utf-8",
                "if-match: \"1\"",
                "content-length: 0",
            ],
            200,
            "",
        ),
    ] {
        let stream = UnixStream::connect(&running.socket)
            .await
            .expect("connected");
        let answer = ask(stream, &request("POST /v1/reload", headers)).await;
        assert_eq!(answer.status, status, "{headers:?} {}", answer.body);
        if status != 200 {
            assert_eq!(answer.code(), code);
        }
    }
    running.stop().await;
}

#[tokio::test]
async fn tcp_wants_the_token_and_a_host_of_this_machine() {
    let running = Running::start();
    let address = running.addresses[0];
    let good = format!("authorization: Bearer {TOKEN}");
    assert_eq!(
        tcp(address, &request("GET /v1/status", &[&good]))
            .await
            .status,
        200
    );
    assert_eq!(
        tcp(address, &request("GET /v1/status", &[])).await.code(),
        "unauthorized"
    );
    let wrong = tcp(
        address,
        &request("GET /v1/status", &["authorization: Bearer correct horsf"]),
    )
    .await;
    assert_eq!((wrong.status, wrong.code()), (401, "unauthorized".into()));
    let rebound = request("GET /v1/status", &[&good]).replace("localhost", "evil.example");
    let answer = tcp(address, &rebound).await;
    assert_eq!((answer.status, answer.code()), (421, "wrong_host".into()));
    let form = request(
        "POST /v1/reload",
        &[
            &good,
            "content-type: application/x-www-form-urlencoded",
            "content-length: 0",
        ],
    );
    assert_eq!(tcp(address, &form).await.status, 415);
    running.stop().await;
}

#[tokio::test]
async fn a_reload_replaces_the_token_and_the_old_one_opens_nothing() {
    let running = Running::start();
    let status = async |token: &str| {
        let shown = format!("authorization: Bearer {token}");
        let request = request("GET /v1/status", &[&shown]);
        tcp(running.addresses[0], &request).await.status
    };
    assert_eq!(
        (status(TOKEN).await, status("another one").await),
        (200, 401)
    );
    let with_admin = |admin: Vec<AdminBind>| {
        let mut snapshot = super::fixture::snapshot();
        snapshot.settings.admin = admin;
        running.state.current.publish(snapshot.into());
    };
    with_admin(vec![AdminBind::Tcp {
        address: running.addresses[0],
        token: "another one".into(),
    }]);
    assert_eq!(
        (status(TOKEN).await, status("another one").await),
        (401, 200)
    );
    with_admin(Vec::new());
    assert_eq!(
        (status(TOKEN).await, status("another one").await),
        (401, 401),
        "without a token in force, the socket of the start lets nobody in"
    );
    running.stop().await;
}

#[tokio::test]
async fn the_configuration_is_shown_without_its_token() {
    let running = Running::start();
    let answer = unix(&running, "GET /v1/config").await;
    let config: ConfigView = answer.json();
    let text = &config.sources[0].text;
    assert_eq!(
        text,
        "workers = 2\n[admin]\nbind = \"127.0.0.1:9902\"\ntoken = *********************\n"
    );
    assert!(!answer.body.contains("hunter2"), "{}", answer.body);
    running.stop().await;
}

#[tokio::test]
async fn readiness_follows_the_phase_and_liveness_does_not() {
    let running = Running::start();
    let address = running.addresses[1];
    for (phase, ready) in [
        (Phase::Starting, 503),
        (Phase::Serving, 200),
        (Phase::Draining, 503),
        (Phase::Stopping, 503),
    ] {
        *running.control.phase.lock().expect("no panic") = phase;
        assert_eq!(tcp(address, &request("GET /livez", &[])).await.status, 200);
        let answer = tcp(address, &request("GET /readyz", &[])).await;
        assert_eq!(
            (answer.status, answer.body.trim()),
            (ready, &*phase.to_string())
        );
    }
    assert_eq!(
        tcp(address, &request("GET /v1/status", &[])).await.status,
        404,
        "no API here"
    );
    running.stop().await;
}

#[tokio::test]
async fn metrics_share_the_health_address() {
    let running = Running::start();
    let answer = tcp(running.addresses[1], &request("GET /metrics", &[])).await;
    assert!(
        answer
            .head
            .contains("content-type: text/plain; version=0.0.4"),
        "{}",
        answer.head
    );
    assert!(
        answer
            .body
            .contains("\nmizan_pool_backends_usable{pool=\"api\"} 2\n")
    );
    running.stop().await;
}

#[tokio::test]
async fn scrapers_take_no_place_from_probes_and_give_theirs_back() {
    let running = Running::start();
    let address = running.addresses[1];
    let scrape = request("GET /metrics", &[]);
    let mut silent = Vec::new();
    for _ in 0..super::api::SCRAPERS_MAX {
        let mut stream = TcpStream::connect(address).await.expect("connected");
        let kept = scrape.replace("connection: close", "connection: keep-alive");
        stream.write_all(kept.as_bytes()).await.expect("sent");
        let mut status = [0; 12];
        stream.read_exact(&mut status).await.expect("an answer");
        assert_eq!(&status, b"HTTP/1.1 200");
        silent.push(stream);
    }
    let refused = tcp(address, &scrape).await;
    assert_eq!(
        (refused.status, &*refused.code()),
        (503, "too_many_scrapers")
    );
    // On a connection that asks for no end, it ends all the same.
    let kept = scrape.replace("connection: close", "connection: keep-alive");
    assert_eq!(tcp(address, &kept).await.status, 503);
    let ready = tcp(address, &request("GET /readyz", &[])).await;
    assert_eq!(ready.status, 200);
    drop(silent);
    while tcp(address, &scrape).await.status != 200 {
        tokio::task::yield_now().await;
    }
    running.stop().await;
}

#[tokio::test]
async fn the_description_is_complete() {
    let running = Running::start();
    let document: Value = unix(&running, "GET /v1/openapi.json").await.json();
    let paths = document["paths"].as_object().expect("paths");
    for (method, path) in openapi::operations() {
        assert!(paths[path][method].is_object(), "{method} {path}");
        let real = path
            .replace("{pool}", "api")
            .replace("{backend}", "10.0.0.1:8000")
            .replace("{want}", "undrain");
        let line = format!("{} {real}", method.to_uppercase());
        let of_table = ["/v1/objects", "/v1/edits", "/v1/boosts", "/v1/events"];
        if of_table.iter().any(|begin| path.starts_with(begin)) {
            // Without a store they are there, and say so; `table::tests` has them with one.
            let line = line.replace("{key}", "settings/ko").replace(['{', '}'], "");
            let answer = unix(&running, &line).await;
            assert_eq!(
                (answer.status, &*answer.code()),
                (409, "no_store"),
                "{line}"
            );
            continue;
        }
        let answer = if path == "/v1/explain" {
            explain(&running, r#"{"url": "http://a.example/"}"#).await
        } else if path.starts_with("/v1/") {
            unix(&running, &line).await
        } else {
            tcp(running.addresses[1], &request(&line, &[])).await
        };
        assert_eq!(answer.status, 200, "{line}");
    }
    running.stop().await;
}

#[tokio::test]
async fn the_socket_is_private_and_gone_in_the_end() {
    let running = Running::start();
    let socket = running.socket.clone();
    let mode = std::fs::metadata(&socket)
        .expect("a socket")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let _folder = running.stop().await;
    assert!(!socket.exists());
}

#[tokio::test]
async fn a_live_socket_is_left_alone_and_a_stale_one_replaced() {
    let running = Running::start();
    let settings = fixture::snapshot(&[], &[], &[]).settings;
    assert!(matches!(
        bind(&settings, Some(&running.socket)),
        Err(BindError::InUse(_))
    ));
    let folder = running.stop().await;
    let stale = folder.path().join("stale.sock");
    drop(std::os::unix::net::UnixListener::bind(&stale).expect("a socket nobody will answer on"));
    let listeners = bind(&settings, Some(&stale)).expect("replaced");
    // What another instance puts in its place is not removed with ours.
    std::fs::remove_file(&stale).expect("gone");
    std::fs::write(&stale, "precious").expect("a file");
    drop(listeners);
    assert!(matches!(
        bind(&settings, Some(&stale)),
        Err(BindError::NotASocket(_))
    ));
    assert_eq!(
        std::fs::read_to_string(&stale).expect("still there"),
        "precious"
    );
}

//! The table over real sockets, on a real embedded store.

use super::*;
use crate::admin::fixture::{Running, TOKEN};
use crate::admin::tests::{Answer, ask, request, tcp, unix};
use crate::config;
use crate::control::{Layout, author};
use mizan_store::embedded::{Embedded, Options};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;

/// What only a change that is not told waits for.
const PATIENCE: Duration = Duration::from_secs(10);

struct Place {
    running: Running,
    editor: Arc<Editor>,
    _folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Embedded::open(&folder.path().join("store"), Options::default());
        let store = Arc::new(store.expect("a new store"));
        let editor = Arc::new(Editor::new(store, Layout::new("test"), config::judge));
        Self {
            running: Running::start_with(Some(editor.clone())),
            editor,
            _folder: folder,
        }
    }

    async fn say(&self, line: &str, headers: &[&str], body: &Value) -> Answer {
        let stream = UnixStream::connect(&self.running.socket).await;
        let body = body.to_string();
        let length = format!("content-length: {}", body.len());
        let all = [&["content-type: application/json", &*length], headers].concat();
        ask(stream.expect("connected"), &(request(line, &all) + &body)).await
    }

    async fn read(&self, line: &str) -> Answer {
        unix(&self.running, line).await
    }

    /// The lines of the events that come.
    async fn follow(&self, headers: &[&str]) -> Lines<BufReader<UnixStream>> {
        let stream = UnixStream::connect(&self.running.socket).await;
        let mut stream = stream.expect("connected");
        let asked = request("GET /v1/events", headers);
        stream.write_all(asked.as_bytes()).await.expect("sent");
        let mut lines = BufReader::new(stream).lines();
        let first = lines.next_line().await.expect("an answer");
        assert_eq!(first.as_deref(), Some("HTTP/1.1 200 OK"));
        lines
    }
}

/// The next event: what it says, and its id.
async fn event(lines: &mut Lines<BufReader<UnixStream>>) -> (Value, Option<u64>) {
    let (mut data, mut id) = (Value::Null, None);
    loop {
        let line = tokio::time::timeout(PATIENCE, lines.next_line()).await;
        let line = line.expect("it was told").expect("it goes on");
        let line = line.expect("a line");
        if let Some(text) = line.strip_prefix("data: ") {
            data = serde_json::from_str(text).expect("JSON");
        }
        if let Some(text) = line.strip_prefix("id: ") {
            id = text.parse().ok();
        }
        if line.is_empty() && data != Value::Null {
            return (data, id);
        }
    }
}

fn pool(policy: &str) -> Value {
    json!({"schema": 1, "policy": policy})
}

#[tokio::test]
async fn the_etag_of_an_object_is_what_a_write_is_compared_with() {
    let place = Place::new();
    let line = "PUT /v1/objects/pools/kr/kpop";
    let new = ["if-none-match: *"];
    let made = place.say(line, &new, &pool("random")).await;
    assert_eq!(made.status, 200, "{}", made.body);
    let revision = made.json::<Edited>().revision;
    assert_eq!(
        place.say(line, &new, &pool("maglev")).await.status,
        412,
        "it is there"
    );

    let got = place.read("GET /v1/objects/pools/kr/kpop").await;
    assert!(
        got.head.contains(&format!("etag: \"{revision}\"")),
        "{}",
        got.head
    );
    assert_eq!(got.json::<ObjectView>().document, pool("random"));
    let all = place.read("GET /v1/objects").await;
    assert!(
        all.head.contains(&format!("etag: \"{revision}\"")),
        "{}",
        all.head
    );

    let seen = format!("if-match: \"{revision}\"");
    let made = place.say(line, &[&seen], &pool("round_robin")).await;
    assert_eq!(made.status, 200, "{}", made.body);
    let late = place.say(line, &[&seen], &pool("maglev")).await;
    assert_eq!((late.status, &*late.code()), (412, "changed"));
    let told: Value = late.json();
    let conflict = &told["conflicts"][0];
    assert_eq!(conflict["key"], "pools/kr/kpop");
    assert_eq!(conflict["theirs"], pool("round_robin"));
    assert_eq!(conflict["ours"], pool("maglev"));
    assert_eq!(conflict["fields"][0]["base"], "random");
    let late = place
        .say("DELETE /v1/objects/pools/kr/kpop", &[&seen], &Value::Null)
        .await;
    assert_eq!(late.status, 412);
    let old = place
        .read(&format!("GET /v1/objects/pools/kr/kpop?at={revision}"))
        .await;
    assert_eq!(old.json::<ObjectView>().document, pool("random"));
    place.running.stop().await;
}

#[tokio::test]
async fn the_author_is_who_the_caller_is_and_never_who_they_say() {
    let place = Place::new();
    let edit =
        json!({"changes": [{"key": "settings/ko", "document": {"schema": 1}}], "why": "a start"});
    let made = place.say("POST /v1/edits", &[], &edit).await;
    assert_eq!(made.status, 200, "{}", made.body);
    let mut named = edit.clone();
    named["author"] = json!("somebody");
    let refused = place.say("POST /v1/edits", &[], &named).await;
    assert!(
        refused.status == 422 && refused.body.contains("author"),
        "{}",
        refused.body
    );
    let body = edit.to_string();
    let good = [
        "content-type: application/json",
        &format!("authorization: Bearer {TOKEN}"),
        &format!("content-length: {}", body.len()),
    ];
    let asked = request("POST /v1/edits", &good) + &body;
    let made = tcp(place.running.addresses[0], &asked).await;
    assert_eq!(made.status, 200, "{}", made.body);
    let bare = request("POST /v1/edits", &[good[0], good[2]]) + &body;
    assert_eq!(tcp(place.running.addresses[0], &bare).await.status, 401);
    let edits: Vec<EditView> = place.read("GET /v1/edits").await.json();
    let authors: Vec<_> = edits.iter().map(|edit| &*edit.author).collect();
    assert_eq!(authors, ["token", &author::this_user()]);
    place.running.stop().await;
}

#[tokio::test]
async fn history_is_asked_for_by_key_and_count_and_an_edit_is_taken_back() {
    let place = Place::new();
    for key in ["settings/ko", "settings/ja", "pools/kr/kpop", "settings/ko"] {
        let line = format!("PUT /v1/objects/{key}");
        let made = place.say(&line, &[], &json!({"schema": 1})).await;
        assert_eq!(made.status, 200, "{}", made.body);
    }
    for (asked, count) in [
        ("", 4),
        ("?count=1", 1),
        ("?key=settings", 3),
        ("?key=settings%2Fko", 2),
        ("?count=2&key=settings", 2),
        ("?key=setting", 0),
        ("?count=0", 0),
    ] {
        let edits: Vec<EditView> = place.read(&format!("GET /v1/edits{asked}")).await.json();
        assert_eq!(edits.len(), count, "{asked}");
    }
    let edits: Vec<EditView> = place.read("GET /v1/edits?key=pools&count=1").await.json();
    let line = format!("POST /v1/edits/{}/rollback", edits[0].edit);
    let back = place.say(&line, &[], &json!({"why": "no"})).await;
    assert_eq!(back.status, 200, "{}", back.body);
    assert_eq!(
        place.read("GET /v1/objects/pools/kr/kpop").await.status,
        404
    );
    let none = place
        .say("POST /v1/edits/none/rollback", &[], &json!({}))
        .await;
    assert_eq!((none.status, &*none.code()), (404, "not_found"));
    place.running.stop().await;
}

#[tokio::test]
async fn a_boost_is_set_shown_and_ended() {
    let place = Place::new();
    let none = json!({"region": "kr", "pool": "kpop", "factor": 3.0, "seconds": 60, "why": "w"});
    assert_eq!(place.say("POST /v1/boosts", &[], &none).await.status, 422);
    place
        .say("PUT /v1/objects/pools/kr/kpop", &[], &pool("random"))
        .await;
    let set: BoostSet = place.say("POST /v1/boosts", &[], &none).await.json();
    assert_eq!(
        (set.boost.pool_factor, &*set.boost.created_by),
        (3.0, &*author::this_user())
    );
    let boosts: Vec<BoostView> = place.read("GET /v1/boosts").await.json();
    assert_eq!(boosts.len(), 1);
    let line = format!("DELETE /v1/boosts/{}", set.boost.id);
    assert_eq!(place.say(&line, &[], &Value::Null).await.status, 200);
    assert_eq!(place.say(&line, &[], &Value::Null).await.status, 404);
    let mut short = none.clone();
    short["seconds"] = json!(9);
    let refused = place.say("POST /v1/boosts", &[], &short).await;
    assert!(
        refused.status == 422 && refused.body.contains("10 s"),
        "{}",
        refused.body
    );
    place.running.stop().await;
}

#[tokio::test]
async fn whoever_follows_misses_nothing_also_from_where_they_left() {
    let place = Place::new();
    let mut lines = place.follow(&[]).await;
    let edit = |documents: [Value; 2]| {
        let [ko, ja] = documents;
        json!({"changes": [{"key": "settings/ja", "document": ja}, {"key": "settings/ko", "document": ko}]})
    };
    let both = edit([json!({"schema": 1, "a": "1"}), json!({"schema": 1})]);
    let first: Edited = place.say("POST /v1/edits", &[], &both).await.json();
    let (ja, no_id) = event(&mut lines).await;
    let (ko, id) = event(&mut lines).await;
    assert_eq!(
        (&ja["key"], &ko["key"]),
        (&json!("settings/ja"), &json!("settings/ko"))
    );
    assert_eq!(ko["document"]["a"], "1");
    assert_eq!(
        (no_id, id),
        (None, Some(first.revision)),
        "half a revision is none"
    );
    drop(lines);
    let away = edit([Value::Null, json!({"schema": 1, "b": "2"})]);
    place.say("POST /v1/edits", &[], &away).await;
    let mut lines = place
        .follow(&[&format!("last-event-id: {}", first.revision)])
        .await;
    let (ja, _) = event(&mut lines).await;
    let (ko, _) = event(&mut lines).await;
    assert_eq!(ja["document"]["b"], "2");
    assert_eq!(
        (&ko["key"], &ko["document"]),
        (&json!("settings/ko"), &Value::Null)
    );
    // It holds up nobody's end.
    place.running.stop().await;
}

#[tokio::test]
async fn followers_leave_room_for_others_and_give_their_places_back() {
    let place = Place::new();
    let mut following = Vec::new();
    for _ in 0..events::WATCHES_MAX {
        following.push(place.follow(&[]).await);
    }
    let late = place.read("GET /v1/events").await;
    assert_eq!((late.status, &*late.code()), (503, "too_many_watches"));
    assert_eq!(place.read("GET /v1/objects").await.status, 200);
    drop(following);
    // A connection's end is seen when something is written to it.
    let mut at = 0;
    loop {
        at += 1;
        let document = json!({"schema": 1, "a": at});
        place
            .say("PUT /v1/objects/settings/ko", &[], &document)
            .await;
        let stream = UnixStream::connect(&place.running.socket).await;
        let mut stream = stream.expect("connected");
        let asked = request("GET /v1/events", &[]);
        stream.write_all(asked.as_bytes()).await.expect("sent");
        let first = BufReader::new(stream).lines().next_line().await;
        if first.expect("an answer").as_deref() == Some("HTTP/1.1 200 OK") {
            break;
        }
        assert!(at < 500, "no place was given back");
    }
    place.running.stop().await;
}

#[tokio::test]
async fn what_nobody_could_mean_is_told_with_its_place() {
    let place = Place::new();
    let edit =
        |key: &str, document: Value| json!({"changes": [{"key": key, "document": document}]});
    for (line, body, status, code) in [
        ("POST /v1/edits", json!({}), 422, "bad_body"),
        ("POST /v1/edits", json!({"changes": []}), 422, "rejected"),
        (
            "POST /v1/edits",
            edit("pools/kpop", pool("random")),
            400,
            "bad_key",
        ),
        (
            "POST /v1/edits",
            edit("pools/kr/kpop", pool("randon")),
            422,
            "rejected",
        ),
        (
            "POST /v1/edits",
            edit("pools/kr/kpop", json!({"schema": 2})),
            422,
            "rejected",
        ),
        (
            "POST /v1/edits",
            edit("pools/kr/kpop", json!([])),
            422,
            "rejected",
        ),
        (
            "POST /v1/boosts",
            json!({"region": "k r", "pool": "a", "factor": 1, "seconds": 60}),
            400,
            "bad_name",
        ),
        ("GET /v1/objects?at=x", Value::Null, 400, "bad_query"),
        ("GET /v1/objects?of=1", Value::Null, 400, "bad_query"),
        (
            "GET /v1/objects?at=99",
            Value::Null,
            404,
            "revision_not_held",
        ),
        ("GET /v1/edits?count=-1", Value::Null, 400, "bad_query"),
        ("GET /v1/objects/settings/ko", Value::Null, 404, "not_found"),
    ] {
        let answer = place.say(line, &[], &body).await;
        assert_eq!(
            (answer.status, &*answer.code()),
            (status, code),
            "{line} {body}: {}",
            answer.body
        );
    }
    place.running.stop().await;
}

#[tokio::test]
async fn what_is_refused_is_told_object_by_object() {
    let place = Place::new();
    // A condition that is not understood is not passed over.
    for condition in ["if-match: x", "if-none-match: \"1\"", "if-match: \"-1\""] {
        let line = "PUT /v1/objects/settings/ko";
        let answer = place.say(line, &[condition], &json!({"schema": 1})).await;
        assert_eq!(answer.code(), "bad_condition", "{condition}");
    }
    let bad = json!({"changes": [{"key": "pools/kr/kpop", "document": pool("randon")}]});
    let told = place.say("POST /v1/edits", &[], &bad).await;
    let told: Value = told.json();
    assert_eq!(told["rejected"][0]["key"], "pools/kr/kpop");
    let view = place.editor.table(None).await.expect("a table");
    assert_eq!(view.objects, []);
    place.running.stop().await;
}

#[tokio::test]
async fn without_a_store_it_is_said_how_to_have_one() {
    let running = Running::start();
    let answer = unix(&running, "GET /v1/objects").await;
    assert_eq!((answer.status, &*answer.code()), (409, "no_store"));
    assert!(answer.body.contains("[store] address"), "{}", answer.body);
    running.stop().await;
}

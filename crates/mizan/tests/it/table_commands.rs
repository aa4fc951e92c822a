//! `mizan config` and `mizan boost` on a store itself: what they do, what they say, how they exit.

use crate::support::etcd::Etcd;
use crate::support::mizan::free_address;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// A folder with a store, files and an editor.
struct Place {
    folder: TempDir,
    store: String,
}

/// What a command says.
#[derive(Debug)]
struct Said {
    exit: i32,
    out: String,
    err: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        Self {
            exit: output.status.code().expect("it exits by itself"),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Said {
    #[track_caller]
    fn done(self) -> String {
        assert_eq!(self.exit, 0, "{}{}", self.out, self.err);
        self.out
    }

    #[track_caller]
    fn failed(self, exit: i32, told: &[&str]) -> String {
        assert_eq!(self.exit, exit, "{}{}", self.out, self.err);
        for part in told {
            assert!(
                self.err.contains(part),
                "`{part}` is not told: {}",
                self.err
            );
        }
        self.err
    }
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("tmp")).expect("a folder");
        let store = format!("embedded:{}/store", folder.path().display());
        Self { folder, store }
    }

    fn at(store: String) -> Self {
        Self {
            store,
            ..Self::new()
        }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mizan"));
        command
            .args(arguments)
            .args(["--store", &self.store])
            .env("TMPDIR", self.folder.path().join("tmp"))
            .env_remove("VISUAL")
            .env_remove("EDITOR");
        command
    }

    fn run(&self, arguments: &[&str]) -> Said {
        self.command(arguments).output().expect("mizan runs").into()
    }

    fn file(&self, name: &str, document: &Value) -> PathBuf {
        self.text(name, &document.to_string())
    }

    fn text(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).expect("it can be written");
        path
    }

    fn put(&self, key: &str, document: &Value, more: &[&str]) -> Said {
        let file = self.file("document.json", document);
        let file = file.display().to_string();
        self.run(&[&["config", "put", key, &file], more].concat())
    }

    /// What stands under a key.
    #[track_caller]
    fn get(&self, key: &str) -> Value {
        let text = self.run(&["config", "get", key]).done();
        serde_json::from_str(&text).expect("a document")
    }

    /// Edits a key with an editor that does what `script` says to the file `$1`.
    fn edit(&self, key: &str, script: &str) -> Said {
        let script = self.text("editor.sh", script);
        let mut command = self.command(&["config", "edit", key, "--why", "by hand"]);
        command.env("MIZAN", env!("CARGO_BIN_EXE_mizan"));
        command.env("STORE", &self.store);
        command.env("EDITOR", format!("sh {}", script.display()));
        command.current_dir(self.folder.path());
        command.output().expect("mizan runs").into()
    }

    /// Texts that were kept.
    fn kept(&self) -> Vec<PathBuf> {
        let files = std::fs::read_dir(self.folder.path().join("tmp")).expect("a folder");
        files.map(|file| file.expect("a file").path()).collect()
    }

    fn history(&self) -> Vec<Value> {
        let text = self
            .run(&["config", "history", "-n", "1000", "--json"])
            .done();
        serde_json::from_str(&text).expect("history is JSON")
    }
}

fn two(a: u64, b: u64) -> Value {
    json!({"schema": 1, "a": a, "b": b})
}

fn export(objects: &BTreeMap<String, Value>) -> Value {
    json!({"schema": 1, "objects": objects})
}

#[test]
fn an_edit_by_hand_is_put_and_leaves_no_file() {
    let place = Place::new();
    let made = place.edit("settings/ko", "echo '{\"schema\": 1, \"a\": 1}' > \"$1\"");
    assert!(made.done().contains("edit "), "it names the edit");
    assert_eq!(place.get("settings/ko"), json!({"schema": 1, "a": 1}));
    assert_eq!(place.history()[0]["why"], "by hand");
    let same = place.edit("settings/ko", "true");
    assert!(same.done().contains("nothing was changed"));
    place
        .edit("settings/ko", "exit 3")
        .failed(2, &["nothing was changed"]);
    assert_eq!(place.kept(), Vec::<PathBuf>::new());
    assert_eq!(place.history().len(), 1);
}

/// Somebody else puts theirs while the editor is open.
const BOTH: &str = "\"$MIZAN\" config --store \"$STORE\" put settings/ko theirs.json --why quicker && cp ours.json \"$1\"";

#[test]
fn two_hands_in_other_fields_are_merged() {
    let place = Place::new();
    place.put("settings/ko", &two(1, 1), &[]).done();
    place.file("theirs.json", &two(2, 1));
    place.file("ours.json", &two(1, 3));
    let said = place.edit("settings/ko", BOTH);
    assert!(
        said.err.contains("quicker"),
        "who was first is told: {}",
        said.err
    );
    said.done();
    assert_eq!(place.get("settings/ko"), two(2, 3));
    assert_eq!(place.kept(), Vec::<PathBuf>::new());
}

#[test]
fn two_hands_in_one_field_are_told_and_nothing_is_lost() {
    let place = Place::new();
    place.put("settings/ko", &two(1, 1), &[]).done();
    place.file("theirs.json", &two(2, 1));
    place.file("ours.json", &two(3, 1));
    let said = place.edit("settings/ko", BOTH);
    let told = said.failed(3, &["quicker", "it was 1, theirs is 2, yours is 3"]);
    assert_eq!(place.get("settings/ko"), two(2, 1));
    let kept = place.kept();
    let [file] = &kept[..] else {
        panic!("one text: {kept:?}");
    };
    let mode = std::fs::metadata(file)
        .expect("it is there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let text = std::fs::read_to_string(file).expect("it is there");
    assert_eq!(
        serde_json::from_str::<Value>(&text).expect("JSON"),
        two(3, 1)
    );
    // The command that it names does it.
    let named = told
        .lines()
        .find_map(|line| line.trim().strip_prefix("mizan config put "));
    let named: Vec<_> = named.expect("a command").split(' ').collect();
    assert_eq!(named[1], file.display().to_string());
    place.run(&[&["config", "put"], &named[..]].concat()).done();
    assert_eq!(place.get("settings/ko"), two(3, 1));
}

#[test]
fn a_text_that_is_refused_is_kept() {
    let place = Place::new();
    for (text, told) in [
        ("{\"schema\": 1,\n  \"a\" 1}", ":2:"),
        ("{\"schema\": 2}", "later version"),
    ] {
        place.text("ours.json", text);
        place
            .edit("settings/ko", "cp ours.json \"$1\"")
            .failed(2, &[told, "your text is in"]);
        let file = place.kept().pop().expect("it is kept");
        assert_eq!(std::fs::read_to_string(&file).expect("it is there"), text);
        std::fs::remove_file(file).expect("it is there");
    }
}

#[test]
fn a_table_goes_out_and_comes_in_as_one_file() {
    let place = Place::new();
    place
        .put("pools/kr/kpop", &json!({"schema": 1}), &[])
        .done();
    let chain = json!({"schema": 1, "pools": ["kpop"]});
    place.put("chains/kr/trending", &chain, &[]).done();
    let boost = [
        "boost", "add", "kpop", "--region", "kr", "--factor", "2", "--for", "1h", "--why", "w",
    ];
    place.run(&boost).done();
    let file = place.folder.path().join("table.json");
    let file = file.to_str().expect("a path");
    place.run(&["config", "export", file]).done();
    let text = std::fs::read_to_string(file).expect("it was written");
    assert!(!text.contains("boosts/"), "{text}");
    assert!(
        place
            .run(&["config", "validate", file])
            .done()
            .contains("2 objects")
    );
    assert!(
        place
            .run(&["config", "diff", file, "--prune"])
            .done()
            .contains("nothing differs")
    );
    let other = Place::new();
    other
        .run(&["config", "import", file, "--why", "a copy"])
        .done();
    assert_eq!(other.get("chains/kr/trending"), chain);
    assert_eq!(other.history().len(), 1, "as one edit");
    let differs = other.run(&["config", "import", file]).done();
    assert!(differs.contains("nothing differs"));
}

#[test]
fn what_one_edit_does_not_take_is_put_in_parts_only_if_that_is_said() {
    let place = Place::new();
    let setting = |at: usize| (format!("settings/l{at}"), json!({"schema": 1, "at": at}));
    let mut objects: BTreeMap<String, Value> = (0..230).map(setting).collect();
    objects.insert("pools/kr/kpop".to_owned(), json!({"schema": 1}));
    objects.insert(
        "chains/kr/a".to_owned(),
        json!({"schema": 1, "pools": ["kpop"]}),
    );
    let file = place.file("table.json", &export(&objects));
    let file = file.to_str().expect("a path");
    place
        .run(&["config", "import", file])
        .failed(2, &["232 changes", "--in-parts"]);
    assert_eq!(place.history().len(), 0);

    // What is wrong in the last part is told before the first is put.
    let mut bad = objects.clone();
    bad.insert("settings/zz".to_owned(), json!({"schema": 2}));
    let bad = place.file("bad.json", &export(&bad));
    let bad = bad.to_str().expect("a path");
    place
        .run(&["config", "import", bad, "--in-parts"])
        .failed(2, &["settings/zz", "later version"]);
    assert_eq!(place.history().len(), 0);

    place
        .run(&["config", "import", file, "--in-parts", "--why", "all"])
        .done();
    let history = place.history();
    let whys: Vec<_> = history.iter().map(|edit| edit["why"].as_str()).collect();
    assert_eq!(
        whys,
        [
            Some("all (3 of 3)"),
            Some("all (2 of 3)"),
            Some("all (1 of 3)")
        ]
    );

    // In parts, too, most of a table goes only if that is meant.
    let empty = place.file("empty.json", &export(&BTreeMap::new()));
    let empty = empty.to_str().expect("a path");
    let prune = ["config", "import", empty, "--prune", "--in-parts"];
    place
        .run(&prune)
        .failed(2, &["232 of 232 objects would go"]);
    assert_eq!(place.history().len(), 3);
    place.run(&[&prune[..], &["--force"]].concat()).done();
    assert!(
        place.run(&["config", "get"]).done().lines().count() <= 2,
        "the revision, and meta"
    );
}

/// Without `--if-rev` it is put whatever is there, and nobody's edit goes without a word.
#[test]
fn what_a_put_goes_over_is_told() {
    let place = Place::new();
    let told = |said: Said| -> Vec<String> {
        let err = said.err.clone();
        said.done();
        let lines = err.lines().filter(|line| line.contains("it has replaced"));
        lines.map(str::to_owned).collect()
    };
    // Else all of a table would go with the one.
    place.put("settings/ja", &two(1, 1), &[]).done();
    let first = place.put("settings/ko", &two(1, 1), &["--why", "a start"]);
    assert_eq!(told(first), [""; 0]);
    let over = told(place.put("settings/ko", &two(2, 2), &[]));
    assert_eq!(over.len(), 1, "{over:?}");
    for part in ["revision 2 of settings/ko by ", "T", "(edit ", ": a start)"] {
        assert!(over[0].contains(part), "`{part}`: {over:?}");
    }
    let edits = place.history();
    let author = edits[0]["author"].as_str().expect("it has one");
    assert!(over[0].contains(author), "{over:?}");
    let seen = edits[0]["revision"].to_string();
    let compared = place.put("settings/ko", &two(3, 3), &["--if-rev", &seen]);
    assert_eq!(told(compared), [""; 0], "it was seen");
    place
        .put("settings/ko", &two(4, 4), &["--if-rev", "0"])
        .failed(3, &["settings/ko", "you saw revision 0"]);
    let gone = told(place.run(&["config", "delete", "settings/ko"]));
    assert!(gone[0].contains("no reason given"), "{gone:?}");
}

#[test]
fn parts_that_were_put_are_told_where_a_later_one_is_refused() {
    let place = Place::new();
    place
        .put("pools/kr/kpop", &json!({"schema": 1}), &[])
        .done();
    let boost = [
        "boost", "add", "kpop", "--region", "kr", "--factor", "2", "--for", "1h", "--why", "w",
    ];
    place.run(&boost).done();
    let setting = |at: usize| (format!("settings/l{at:03}"), json!({"schema": 1}));
    let objects: BTreeMap<String, Value> = (0..100).map(setting).collect();
    let file = place.file("table.json", &export(&objects));
    let file = file.to_str().expect("a path");
    // The pool would go, and a boost stands on it, which no file has.
    let said = place.run(&["config", "import", file, "--prune", "--in-parts", "--force"]);
    said.failed(2, &["1 of 2 parts were put", "boosts/kr/kpop"]);
    assert_eq!(place.get("settings/l099"), json!({"schema": 1}));
    place.get("pools/kr/kpop");
}

#[test]
fn a_file_is_checked_by_itself() {
    let place = Place::new();
    let check = |document: &Value, more: &[&str]| {
        let file = place.file("checked.json", document);
        let file = file.to_str().expect("a path").to_owned();
        place.run(&[&["config", "validate", &file], more].concat())
    };
    let table = |key: &str, document: Value| export(&BTreeMap::from([(key.to_owned(), document)]));
    let said = check(&table("routes/a", json!({"schema": 1, "prefix": 5})), &[]);
    assert!(said.exit == 2 && said.out.contains("prefix"), "{said:?}");
    let said = check(
        &table("chains/kr/a", json!({"schema": 1, "pools": ["kpop"]})),
        &[],
    );
    assert!(
        said.exit == 2 && said.out.contains("`pools/kr/kpop` is not there"),
        "{said:?}"
    );
    check(&json!({"objects": {}}), &[]).failed(2, &["missing field `schema`"]);
    // One object is good if it could be with what it names.
    for (key, document) in [
        ("pools/kr/kpop", json!({"schema": 1, "policy": "random"})),
        (
            "backends/kr/kpop/a",
            json!({"schema": 1, "address": "10.0.0.1:80"}),
        ),
        (
            "chains/kr/a",
            json!({"schema": 1, "pools": ["kpop", "pop"]}),
        ),
        (
            "routes/a",
            json!({"schema": 1, "prefix": "/", "chain": "a"}),
        ),
        ("settings/ko", json!({"schema": 1})),
    ] {
        check(&document, &["--key", key]).done();
    }
    for (key, document, told) in [
        (
            "pools/kr/kpop",
            json!({"schema": 1, "policy": "randon"}),
            "did you mean `random`",
        ),
        ("backends/kr/kpop/a", json!({"schema": 1}), "address"),
        (
            "backends/kr/kpop",
            json!({"schema": 1}),
            "backends/REGION/POOL/ID",
        ),
        ("routes/a", json!({"schema": 1, "prefix": 5}), "prefix"),
    ] {
        let said = check(&document, &["--key", key]);
        assert!(said.exit == 2 && said.out.contains(told), "{key}: {said:?}");
    }
}

#[test]
fn options_stand_where_people_put_them_and_belong_together() {
    let place = Place::new();
    place
        .put("settings/ko", &two(1, 1), &["--namespace", "other"])
        .done();
    assert!(!place.run(&["config", "get"]).done().contains("settings/ko"));
    let other = place.run(&["config", "--namespace", "other", "get"]).done();
    assert!(other.contains("settings/ko"), "{other}");
    place
        .run(&["config", "get", "--user", "a"])
        .failed(2, &["--password-file"]);
    place
        .run(&["config", "get", "--tls-key", "a"])
        .failed(2, &["--tls-cert"]);
    place
        .run(&["config", "get", "--admin", "/a"])
        .failed(2, &["--store", "--admin"]);
    let alone = |arguments: &[&str]| -> Said {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mizan"));
        command.args(arguments).output().expect("mizan runs").into()
    };
    alone(&["config", "get", "--namespace", "a", "--admin", "/a"]).failed(2, &["--store"]);
    let socket = place.folder.path().join("nobody.sock");
    let socket = socket.to_str().expect("a path");
    alone(&["config", "get", "--admin", socket]).failed(4, &["nobody.sock"]);
}

/// Asks etcd's own gateway.
fn gateway(etcd: &str, path: &str, body: &str) {
    let address = etcd.trim_start_matches("etcd://");
    let mut stream = TcpStream::connect(address).expect("it listens");
    let length = body.len();
    write!(
        stream,
        "POST /v3/auth/{path} HTTP/1.1\r\nHost: etcd\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
}

#[test]
fn etcd_knows_who_edits_and_who_may_not() {
    let etcd = Etcd::start();
    let place = Place::at(etcd.address());
    for (path, body) in [
        ("user/add", r#"{"name":"root","password":"r00t"}"#),
        ("role/add", r#"{"name":"root"}"#),
        ("user/grant", r#"{"user":"root","role":"root"}"#),
        ("user/add", r#"{"name":"guest","password":"gu3st"}"#),
        ("enable", "{}"),
    ] {
        gateway(&etcd.address(), path, body);
    }
    let password = |name: &str, text: &str| place.text(name, text).display().to_string();
    let (right, wrong) = (password("right", "r00t\n"), password("wrong", "guess\n"));
    let root = ["--user", "root", "--password-file", &right];
    place
        .put("pools/kr/kpop", &json!({"schema": 1}), &root)
        .done();
    let boost = [
        "boost", "add", "kpop", "--region", "kr", "--factor", "2", "--for", "1h", "--why", "w",
    ];
    place.run(&[&boost[..], &root].concat()).done();
    let history = place
        .run(&[&["config", "history", "--json"], &root[..]].concat())
        .done();
    let history: Value = serde_json::from_str(&history).expect("history is JSON");
    for edit in history.as_array().expect("a list") {
        assert_eq!(
            edit["author"], "root",
            "the user of etcd, not of the system"
        );
    }
    let refused = |more: &[&str]| place.run(&[&["config", "get"], more].concat());
    let told = refused(&["--user", "root", "--password-file", &wrong]);
    let told = told.failed(4, &["name or password is wrong"]);
    assert!(!told.contains("guess"), "{told}");
    refused(&[]).failed(4, &["wants a user's name"]);
    let guest = password("guest", "gu3st\n");
    refused(&["--user", "guest", "--password-file", &guest]).failed(4, &["may not"]);
    let nowhere = place.folder.path().join("nowhere");
    let nowhere = nowhere.to_str().expect("a path");
    let told = refused(&["--user", "root", "--password-file", nowhere]);
    told.failed(4, &["nowhere"]);
    refused(&["--tls-roots", nowhere]).failed(4, &["nowhere", "cannot be read"]);
}

#[test]
fn a_store_that_nobody_answers_for_is_exit_4_whatever_is_asked() {
    let place = Place::at(format!("etcd://{}", free_address()));
    let file = place.file(
        "table.json",
        &export(&BTreeMap::from([("settings/ko".to_owned(), two(1, 1))])),
    );
    let file = file.to_str().expect("a path");
    let boost = [
        "boost", "add", "a", "--factor", "2", "--for", "1h", "--why", "w",
    ];
    for arguments in [
        &["config", "get"][..],
        &["config", "import", file],
        &["config", "history"],
        &["config", "rollback", "a"],
        &["config", "watch"],
        &["boost", "list"],
        &boost,
    ] {
        place.run(arguments).failed(4, &["cannot be reached"]);
    }
    assert!(Path::new(file).exists());
}

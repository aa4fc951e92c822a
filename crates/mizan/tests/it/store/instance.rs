//! Other processes of an instance's machine: the sidecar, and those that use the instance's store
//! (`--store instance:/SOCKET`).

use super::*;
use std::path::Path;

fn store_of(mizan: &Mizan) -> String {
    format!("instance:{}/admin.sock", mizan.directory().display())
}

fn run(arguments: &[&str]) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mizan"));
    command.args(arguments);
    command.output().expect("mizan runs").into()
}

fn sidecar(store: &str, out: &Path) -> Running {
    let sidecar = Command::new(env!("CARGO_BIN_EXE_mizan"))
        .args(["sidecar", "--store", store, "--out"])
        .arg(out)
        .stderr(Stdio::null())
        .spawn();
    Running(sidecar.expect("mizan runs"))
}

/// Killed when dropped.
struct Running(std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the sidecar's file says of a key.
fn written(out: &Path, key: &str) -> Option<Vec<u8>> {
    let bytes = std::fs::read(out.join("routing.snap")).ok()?;
    let image = mizan_store::image::Image::read(&bytes.into()).ok()?;
    image.value(key.as_bytes()).map(|value| value.to_vec())
}

fn state(out: &Path) -> String {
    let status = std::fs::read(out.join("status.json")).unwrap_or_default();
    let status: Value = serde_json::from_slice(&status).unwrap_or_default();
    status["state"].as_str().unwrap_or_default().to_owned()
}

/// An embedded store belongs to one process, and programs of the machine read its table all the same.
#[test]
fn a_sidecar_works_beside_an_embedded_store_and_outlives_its_instance() {
    let mut mizan = embedded();
    let setting = |value: &str| format!("{{\"schema\": 1, \"tokenizer\": \"{value}\"}}");
    done(put(&mizan, "settings/ko", &setting("mecab"), &[]));
    let out = mizan.directory().join("out");
    let _sidecar = sidecar(&store_of(&mizan), &out);
    let says = |key: &str, part: &str| {
        let value = written(&out, key).unwrap_or_default();
        String::from_utf8_lossy(&value).contains(part)
    };
    eventually(SOON, "the table is there", || says("settings/ko", "mecab"));
    eventually(SOON, "it is live", || state(&out) == "live");
    done(put(&mizan, "settings/ko", &setting("kiwi"), &[]));
    eventually(SOON, "an edit is there", || says("settings/ko", "kiwi"));
    mizan.signal(rustix::process::Signal::KILL);
    eventually(SOON, "the loss is told", || state(&out) == "stale");
    assert!(says("settings/ko", "kiwi"), "what was known stays");
    mizan.start_again();
    done(put(&mizan, "settings/ja", &setting("sudachi"), &[]));
    eventually(SOON, "it follows again", || says("settings/ja", "sudachi"));
    eventually(SOON, "it is live again", || state(&out) == "live");
}

#[test]
fn the_table_is_edited_through_an_instance_as_it_is_in_a_store_of_ones_own() {
    let mizan = embedded();
    add_pool(&mizan, "kpop", free_address());
    let store = store_of(&mizan);
    let with = |arguments: &[&str]| run(&[arguments, &["--store", &store]].concat());
    assert!(done(with(&["config", "get"])).contains("pools/kr/kpop"));
    let bad = mizan.directory().join("bad.json");
    std::fs::write(&bad, "{\"schema\": 1, \"policy\": \"round_robins\"}").expect("a file");
    let bad = bad.display().to_string();
    let refused = with(&["config", "put", "pools/kr/kpop", &bad]);
    assert!(
        refused.exit == 2 && refused.err.contains("round_robin"),
        "{}",
        refused.err
    );
    let boost = [
        "boost", "add", "kpop", "--region", "kr", "--factor", "2", "--for", "1h", "--why", "w",
    ];
    done(with(&boost));
    let seen = done(ask(&mizan, &["boost", "list", "--json"]));
    assert!(seen.contains("kpop"), "{seen}");
    let history = done(ask(&mizan, &["config", "history", "-n", "1", "--json"]));
    let history: Value = serde_json::from_str(&history).expect("history is JSON");
    let author = history[0]["author"].as_str().unwrap_or_default();
    assert!(!author.is_empty(), "{history}");
}

#[test]
fn who_finds_a_store_taken_is_told_to_go_through_its_instance() {
    let mizan = embedded();
    let folder = format!("embedded:{}/store", mizan.directory().display());
    let taken = run(&["config", "--store", &folder, "get"]);
    assert!(
        taken.exit == 4 && taken.err.contains("`instance:/SOCKET`"),
        "{}",
        taken.err
    );
    let nobody = format!("instance:{}/nobody.sock", mizan.directory().display());
    let away = run(&["config", "--store", &nobody, "get"]);
    assert!(
        away.exit == 4 && away.err.contains("nobody.sock"),
        "{}",
        away.err
    );
    let wrong = run(&["config", "--store", "instance:admin.sock", "get"]);
    assert!(
        wrong.exit == 2 && wrong.err.contains("is absolute"),
        "{}",
        wrong.err
    );
}

/// It would wait for its own answer.
#[test]
fn an_instance_is_not_its_own_store() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, socket) = (
        folder.path().join("mizan.toml"),
        folder.path().join("a.sock"),
    );
    let text = format!(
        "[admin]\nsocket = \"{0}\"\n\n[store]\naddress = \"instance:{0}\"\n\n[[listener]]\nbind = \"{1}\"\n\n[[route]]\nchain = \"trending\"\n",
        socket.display(),
        free_address()
    );
    std::fs::write(&file, text).expect("a file");
    let said = run(&["serve", "--config", &file.display().to_string()]);
    assert!(
        said.exit == 2 && said.err.contains("this instance's own socket"),
        "{} {}",
        said.exit,
        said.err
    );
}

/// A sidecar beside a program: a file that is whole, has no boost that has ended, and says how well it is known.
#[test]
fn a_sidecar_writes_the_table_and_how_well_it_is_known() {
    let mut etcd = Etcd::start();
    let store = etcd.address();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let out = folder.path().join("out");
    let direct = |arguments: &[&str]| -> Said {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mizan"));
        command.args(arguments).args(["--store", &store]);
        command.output().expect("mizan runs").into()
    };
    let file = folder.path().join("table.json");
    let table = "{\"schema\": 1, \"objects\": {\"pools/kr/kpop\": {\"schema\": 1}, \"settings/ko\": {\"schema\": 1, \"tokenizer\": \"mecab\"}}}";
    std::fs::write(&file, table).expect("it can be written");
    done(direct(&["config", "import", &file.display().to_string()]));
    let boost = [
        "boost", "add", "kpop", "--region", "kr", "--factor", "2", "--for", "10s", "--why",
        "a test",
    ];
    done(direct(&boost));
    let mut sidecar = sidecar(&store, &out);
    let read = || {
        let bytes = std::fs::read(out.join("routing.snap")).ok()?;
        mizan_store::image::Image::read(&bytes.into()).ok()
    };
    let value = |key: &str| read().and_then(|image| image.value(key.as_bytes()));
    eventually(SOON, "the table is there", || {
        value("settings/ko").is_some()
    });
    let boosts = || {
        read()
            .expect("it is whole")
            .entries()
            .filter(|(key, _)| key.starts_with(b"boosts/"))
            .count()
    };
    assert_eq!(boosts(), 1);
    let state = || -> String {
        let status = std::fs::read(out.join("status.json")).unwrap_or_default();
        let status: Value = serde_json::from_slice(&status).unwrap_or_default();
        status["state"].as_str().unwrap_or_default().to_owned()
    };
    eventually(SOON, "it is live", || state() == "live");
    etcd.kill();
    eventually(SOON, "the loss is told", || state() == "stale");
    eventually(
        Duration::from_secs(15),
        "the boost ends without the store",
        || boosts() == 0,
    );
    assert!(value("settings/ko").is_some(), "the rest stays");
    let process = rustix::process::Pid::from_child(&sidecar.0);
    rustix::process::kill_process(process, rustix::process::Signal::TERM).expect("it runs");
    let ended = sidecar.0.wait().expect("it ends");
    assert!(ended.success(), "{ended}");
}

/// Nobody has edited for long, and the store was there all the time: the table of a start without it is as old as the loss.
#[test]
fn a_start_without_the_store_says_since_when_its_table_is_not_confirmed() {
    let mut etcd = Etcd::start();
    let mut mizan = Mizan::start(&config("one", &etcd.address()));
    done(put(&mizan, "settings/ko", "{\"schema\": 1}", &[]));
    let noted = mizan.directory().join("last-good/default.table.confirmed");
    let noted = || std::fs::read_to_string(&noted).unwrap_or_default();
    let kept = mizan.directory().join("last-good/default.table");
    let kept = || std::fs::read(&kept).unwrap_or_default();
    eventually(SOON, "it is kept", || {
        String::from_utf8_lossy(&kept()).contains("settings/ko")
    });
    eventually(SOON, "it is noted", || !noted().is_empty());
    let first = noted();
    etcd.kill();
    eventually(SOON, "the loss is told", || {
        status(&mizan).1["standing"] == "stale"
    });
    eventually(SOON, "and noted", || noted() != first);
    let lost = status(&mizan).1["since"].clone();
    mizan.start_again();
    let (_, store) = status(&mizan);
    assert_eq!(store["standing"], "restored", "{store}");
    assert_eq!(store["since"], lost, "{store}");
}

//! The routing table in a store: edited, boosted, lost and found again, while requests go on.

use crate::support::etcd::Etcd;
use crate::support::mizan::free_address;
use crate::support::*;
use serde_json::Value;
use std::io::Write;
use std::net::SocketAddr;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

mod anew;
mod instance;
mod killed;
mod tickets;
mod told;
mod warm;

const SOON: Duration = Duration::from_secs(10);

/// A balancer of region kr whose routes and pools are the store's but for one.
fn config(node: &str, store: &str) -> String {
    format!(
        "[node]\nname = \"{node}\"\n\n[region]\nname = \"kr\"\n\n[store]\naddress = \"{store}\"\nlast_good = \"{{dir}}/last-good\"\n\n[[listener]]\nbind = \"{{listen}}\"\n\n[[route]]\nchain = \"trending\"\n"
    )
}

fn embedded() -> Mizan {
    Mizan::start(&config("one", "embedded:{dir}/store"))
}

/// What a command on the table says.
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

#[track_caller]
fn done(said: Said) -> String {
    assert_eq!(said.exit, 0, "{}{}", said.out, said.err);
    said.out
}

fn ask(mizan: &Mizan, arguments: &[&str]) -> Said {
    mizan.command(arguments).into()
}

fn put(mizan: &Mizan, key: &str, document: &str, more: &[&str]) -> Said {
    let file = mizan.directory().join("document.json");
    std::fs::write(&file, document).expect("the folder can be written");
    let file = file.display().to_string();
    let mut arguments = vec!["config", "put", key, file.as_str()];
    arguments.extend(more);
    ask(mizan, &arguments)
}

fn backend(address: SocketAddr) -> String {
    format!("{{\"schema\": 1, \"address\": \"{address}\"}}")
}

/// A pool with one backend in region kr.
#[track_caller]
fn add_pool(mizan: &Mizan, pool: &str, at: SocketAddr) {
    done(put(
        mizan,
        &format!("pools/kr/{pool}"),
        "{\"schema\": 1}",
        &[],
    ));
    done(put(
        mizan,
        &format!("backends/kr/{pool}/a"),
        &backend(at),
        &[],
    ));
}

fn serves(mizan: &Mizan, name: &str) -> bool {
    let got = mizan.get("/");
    got.status == 200 && got.text().starts_with(name)
}

fn status(mizan: &Mizan) -> (i32, Value) {
    let said = ask(mizan, &["status", "--json"]);
    let whole: Value = serde_json::from_str(&said.out).expect("status is JSON");
    (said.exit, whole["status"]["store"].clone())
}

#[test]
fn an_edit_is_in_force_at_once_and_its_history_is_kept() {
    let (one, two) = (Backend::healthy("one"), Backend::healthy("two"));
    let mizan = embedded();
    assert_eq!(mizan.get("/").status, 503, "nothing is there yet");
    add_pool(&mizan, "kpop", one.address());
    add_pool(&mizan, "pop", two.address());
    let chain = "{\"schema\": 1, \"pools\": [\"kpop\", \"pop\"]}";
    done(put(
        &mizan,
        "chains/kr/trending",
        chain,
        &["--why", "the first one"],
    ));
    eventually(SOON, "the chain's first pool serves", || {
        serves(&mizan, "one")
    });
    let turned = "{\"schema\": 1, \"pools\": [\"pop\", \"kpop\"]}";
    done(put(
        &mizan,
        "chains/kr/trending",
        turned,
        &["--why", "pop first"],
    ));
    eventually(SOON, "the other one does", || serves(&mizan, "two"));
    let history = done(ask(&mizan, &["config", "history", "chains/kr", "--json"]));
    let history: Value = serde_json::from_str(&history).expect("history is JSON");
    let whys: Vec<_> = history
        .as_array()
        .expect("a list")
        .iter()
        .map(|it| &it["why"])
        .collect();
    assert_eq!(whys, ["pop first", "the first one"]);
    let edit = history[0]["edit"].as_str().expect("it has a name");
    done(ask(&mizan, &["config", "rollback", edit]));
    eventually(SOON, "it is taken back", || serves(&mizan, "one"));
    let now = done(ask(&mizan, &["config", "get", "chains/kr/trending"]));
    let now: Value = serde_json::from_str(&now).expect("a document");
    assert_eq!(now["pools"], serde_json::json!(["kpop", "pop"]));
}

#[test]
fn of_two_editors_one_is_told_and_nothing_is_lost() {
    let mizan = embedded();
    let pool = |policy: &str| format!("{{\"schema\": 1, \"policy\": \"{policy}\"}}");
    done(put(
        &mizan,
        "pools/kr/kpop",
        &pool("random"),
        &["--if-rev", "0"],
    ));
    let view = done(ask(&mizan, &["config", "get", "pools/kr", "--json"]));
    let view: Value = serde_json::from_str(&view).expect("a table");
    let seen = view["objects"][0]["revision"].to_string();
    let quicker = ["--if-rev", seen.as_str(), "--why", "I was first"];
    done(put(&mizan, "pools/kr/kpop", &pool("round_robin"), &quicker));
    let late = put(
        &mizan,
        "pools/kr/kpop",
        &pool("maglev"),
        &["--if-rev", &seen],
    );
    assert_eq!(late.exit, 3);
    for part in ["I was first", "random", "round_robin", "maglev"] {
        assert!(
            late.err.contains(part),
            "`{part}` is not told: {}",
            late.err
        );
    }
    let now = done(ask(&mizan, &["config", "get", "pools/kr/kpop"]));
    assert!(now.contains("round_robin"), "{now}");
    // What is not there must stay so for `--if-rev 0`.
    let again = put(&mizan, "pools/kr/kpop", &pool("random"), &["--if-rev", "0"]);
    assert_eq!(again.exit, 3);
}

#[test]
fn what_could_not_come_into_force_is_not_written() {
    let mizan = embedded();
    let bad = [
        (
            "pools/kr/kpop",
            "{\"schema\": 1, \"policy\": \"round_robins\"}",
            "did you mean `round_robin`",
        ),
        ("pools/kr/kpop", "{\"schema\": 2}", "later version"),
        (
            "pools/kpop",
            "{\"schema\": 1}",
            "should look like `pools/REGION/POOL`",
        ),
        (
            "backends/kr/kpop/a",
            "{\"schema\": 1, \"address\": \"10.0.0.1:80\"}",
            "`pools/kr/kpop` is not there",
        ),
        (
            "chains/kr/t",
            "{\"schema\": 1, \"pools\": [\"kpop\"]}",
            "`pools/kr/kpop` is not there",
        ),
        ("pools/kr/kpop", "{\"schema\": 1", "this is no JSON"),
    ];
    for (key, document, told) in bad {
        let said = put(&mizan, key, document, &[]);
        assert_eq!(said.exit, 2, "{key}: {}", said.err);
        assert!(said.err.contains(told), "{key}: {}", said.err);
    }
    let (_, store) = status(&mizan);
    assert_eq!(store["objects"], 0, "{store}");
}

#[test]
fn the_table_outlives_kill_9() {
    let one = Backend::healthy("one");
    let mut mizan = embedded();
    add_pool(&mizan, "trending", one.address());
    eventually(SOON, "it serves", || serves(&mizan, "one"));
    mizan.start_again();
    assert!(serves(&mizan, "one"), "at once");
}

/// Of a boost nothing is left within a second of its end.
#[test]
fn a_boost_ends_by_itself_and_says_what_it_does() {
    let _alone = alone();
    let (one, two) = (Backend::healthy("one"), Backend::healthy("two"));
    let mizan = embedded();
    add_pool(&mizan, "one", one.address());
    add_pool(&mizan, "two", two.address());
    let route = "{\"schema\": 1, \"prefix\": \"/split\", \"split\": [{\"pool\": \"one\", \"weight\": 1}, {\"pool\": \"two\", \"weight\": 1}]}";
    done(put(&mizan, "routes/split", route, &[]));
    let begun = ::mizan::clock::now();
    let add = [
        "boost", "add", "one", "--region", "kr", "--factor", "3", "--for", "10s", "--why", "a test",
    ];
    let said = done(ask(&mizan, &add));
    assert!(said.contains("50.0 % → 75.0 %"), "{said}");
    let share = || {
        let explained = done(ask(&mizan, &["explain", "http://a.example/split"]));
        explained.contains("75")
    };
    eventually(SOON, "it is in force", share);
    eventually(Duration::from_secs(15), "it ends", || !share());
    let lasted = ::mizan::clock::now().saturating_since(begun);
    let bounds = Duration::from_millis(9_000)..Duration::from_millis(11_500);
    assert!(bounds.contains(&lasted), "{lasted:?}");
    let add = [
        "boost", "add", "one", "--region", "kr", "--factor", "2", "--for", "1h", "--why",
        "too long",
    ];
    done(ask(&mizan, &add));
    let boosts = done(ask(&mizan, &["boost", "list", "--json"]));
    let boosts: Value = serde_json::from_str(&boosts).expect("boosts are JSON");
    let is_new = |boost: &&Value| boost["factor"] == 2.0;
    let boost = boosts
        .as_array()
        .expect("a list")
        .iter()
        .find(is_new)
        .expect("it is there");
    done(ask(
        &mizan,
        &["boost", "end", boost["id"].as_str().expect("a name")],
    ));
    let unknown = ask(&mizan, &["boost", "end", "nothing"]);
    assert!(
        unknown.exit == 2 && unknown.err.contains("there is no boost"),
        "{}",
        unknown.err
    );
}

#[test]
fn a_table_that_loses_most_of_itself_is_held_back() {
    let one = Backend::healthy("one");
    let mizan = embedded();
    add_pool(&mizan, "trending", one.address());
    for at in 0..4 {
        done(put(
            &mizan,
            &format!("settings/l{at}"),
            "{\"schema\": 1, \"a\": \"b\"}",
            &[],
        ));
    }
    eventually(SOON, "it serves", || serves(&mizan, "one"));
    let export = mizan.directory().join("empty.json");
    std::fs::write(&export, "{\"schema\": 1, \"objects\": {}}").expect("it can be written");
    let export = export.display().to_string();
    let refused = ask(&mizan, &["config", "import", &export, "--prune"]);
    assert!(
        refused.exit == 2 && refused.err.contains("6 of 6 objects would go"),
        "{}",
        refused.err
    );
    done(ask(
        &mizan,
        &["config", "import", &export, "--prune", "--force"],
    ));
    eventually(SOON, "it is meant, and nothing is left", || {
        mizan.get("/").status == 503
    });
}

/// Two balancers and a real etcd, which goes and comes back.
#[test]
fn a_fleet_goes_on_without_its_store_and_catches_up() {
    let (one, two) = (Backend::healthy("one"), Backend::healthy("two"));
    let mut etcd = Etcd::start();
    let store = etcd.address();
    let first = Mizan::start(&config("first", &store));
    let mut second = Mizan::start(&config("second", &store));
    add_pool(&first, "one", one.address());
    add_pool(&first, "two", two.address());
    let chain = |pool: &str| format!("{{\"schema\": 1, \"pools\": [\"{pool}\"]}}");
    done(put(&first, "chains/kr/trending", &chain("one"), &[]));
    let both = |name: &str| serves(&first, name) && serves(&second, name);
    eventually(SOON, "both serve it", || both("one"));
    eventually(SOON, "both say the same", || {
        let (exit, store) = status(&first);
        exit == 0
            && store["nodes"]
                .as_array()
                .is_some_and(|nodes| nodes.len() == 2)
    });
    // The store itself, by its address: the same commands.
    let direct: Said = Command::new(env!("CARGO_BIN_EXE_mizan"))
        .args(["config", "--store", &store, "get"])
        .output()
        .expect("mizan runs")
        .into();
    assert!(done(direct).contains("chains/kr/trending"));

    etcd.kill();
    eventually(SOON, "the loss is seen", || {
        status(&second).1["standing"] == "stale"
    });
    assert!(both("one"), "traffic goes on");
    let edit = put(&first, "chains/kr/trending", &chain("two"), &[]);
    assert_eq!(edit.exit, 4, "{}", edit.err);
    second.start_again();
    assert!(
        serves(&second, "one"),
        "what was in force last is, also after a restart"
    );
    assert_eq!(status(&second).1["standing"], "restored");

    etcd.start_again();
    eventually(SOON, "both hear it again", || {
        [&first, &second]
            .iter()
            .all(|mizan| status(mizan).1["standing"] == "live")
    });
    done(put(&first, "chains/kr/trending", &chain("two"), &[]));
    eventually(SOON, "both follow again", || {
        serves(&first, "two") && serves(&second, "two")
    });
}

#[test]
fn a_store_that_cannot_be_used_is_told_apart() {
    let run = |store: &str| -> Said {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mizan"));
        command.args(["config", "--store", store, "get"]);
        command.output().expect("mizan runs").into()
    };
    let nobody = free_address();
    let away = run(&format!("etcd://{nobody}"));
    assert_eq!(away.exit, 4, "{}", away.err);
    for (address, told) in [
        ("http://a:2379", "write `etcd://a:2379`"),
        ("redis://a", "etcd://"),
        ("embedded:store", "begins with `/`"),
        ("etcd://root:secret@a", "do not stand in an address"),
    ] {
        let refused = run(address);
        assert_eq!(refused.exit, 2, "{address}: {}", refused.err);
        assert!(refused.err.contains(told), "{address}: {}", refused.err);
        assert!(!refused.err.contains("secret"), "{}", refused.err);
    }
    let mizan = embedded();
    let taken = run(&format!("embedded:{}/store", mizan.directory().display()));
    assert!(
        taken.exit == 4 && taken.err.contains("process"),
        "{}",
        taken.err
    );
}

#[test]
fn without_a_store_the_table_says_how_to_get_one() {
    let backend = Backend::healthy("one");
    let file = config_without_store(backend.address());
    let mizan = Mizan::start(&file);
    let said = ask(&mizan, &["config", "get"]);
    assert!(
        said.exit == 2 && said.err.contains("[store] address"),
        "{}",
        said.err
    );
}

fn config_without_store(at: SocketAddr) -> String {
    crate::support::config("", "", &[at])
}

#[test]
fn changes_are_shown_as_they_happen() {
    let mizan = embedded();
    let mut watching = Command::new(env!("CARGO_BIN_EXE_mizan"))
        .args(["config", "watch", "--admin"])
        .arg(mizan.directory().join("admin.sock"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("mizan runs");
    let out = watching.stdout.take().expect("it is piped");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(out));
    // The watch is there once an edit is seen; until then more are made.
    let (seen, is_seen) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in lines.by_ref().map_while(Result::ok) {
            if seen.send(line).is_err() {
                return;
            }
        }
    });
    let mut at = 0;
    let line = loop {
        at += 1;
        let document = format!("{{\"schema\": 1, \"a\": \"{at}\"}}");
        done(put(&mizan, "settings/ko", &document, &[]));
        if let Ok(line) = is_seen.recv_timeout(Duration::from_millis(200)) {
            break line;
        }
        assert!(at < 50, "no change was shown");
    };
    assert!(
        line.contains("settings/ko") && line.contains("\"a\""),
        "{line}"
    );
    watching.kill().expect("it runs");
    watching.wait().expect("it ends");
    let _ = std::io::stdout().flush();
}

/// One balancer for two regions: each request goes by its region's chain, and its backend is told the tokenizer of its language.
#[test]
fn a_request_goes_by_its_region_and_its_backend_is_told_the_settings_of_its_language() {
    let (seoul, tokyo) = (Backend::healthy("seoul"), Backend::healthy("tokyo"));
    let file = config("one", "embedded:{dir}/store")
        .replace("name = \"kr\"", "name = \"kr\"\nheader = \"x-region\"")
        .replace("[store]", "[store]\nheaders = [\"x-tokenizer\"]")
        + "settings = { x-tokenizer = \"tokenizer\" }\n";
    let mizan = Mizan::start(&file);
    for (region, at) in [("kr", seoul.address()), ("jp", tokyo.address())] {
        let pool = format!("pools/{region}/trending");
        done(put(&mizan, &pool, "{\"schema\": 1}", &[]));
        let key = format!("backends/{region}/trending/a");
        done(put(&mizan, &key, &backend(at), &[]));
    }
    done(put(&mizan, "pools/sg/other", "{\"schema\": 1}", &[]));
    for (language, tokenizer) in [("ko", "mecab"), ("ja", "sudachi")] {
        let document = format!("{{\"schema\": 1, \"tokenizer\": \"{tokenizer}\"}}");
        done(put(&mizan, &format!("settings/{language}"), &document, &[]));
    }
    let ask = |headers: &str| {
        let request = format!("GET / HTTP/1.1\r\nHost: a.example\r\n{headers}\r\n");
        mizan.client().exchange(request)
    };
    let last = |backend: &Backend| backend.recorded().pop().unwrap_or_default().to_lowercase();
    eventually(SOON, "both regions and languages are in force", || {
        ask("X-Region: jp\r\nAccept-Language: ja\r\n")
            .text()
            .starts_with("tokyo")
            && last(&tokyo).contains("x-tokenizer: sudachi")
            && ask("").text().starts_with("seoul")
    });
    let got = ask("Accept-Language: fr, ko-KR;q=0.9\r\nX-Tokenizer: forged\r\n");
    assert!(got.text().starts_with("seoul"), "{}", got.text());
    assert!(
        last(&seoul).contains("x-tokenizer: mecab"),
        "{}",
        last(&seoul)
    );
    ask("Accept-Language: fr\r\nX-Tokenizer: forged\r\n");
    assert!(!last(&seoul).contains("tokenizer"), "{}", last(&seoul));
    // A region without the pool: nobody there, and never another region's.
    let nobody = ask("X-Region: sg\r\n");
    assert!(
        nobody.status == 503 && nobody.text().contains("no_backend"),
        "{}",
        nobody.text()
    );
    assert!(ask("X-Region: mars\r\n").text().starts_with("seoul"));
    told::what_is_explained_of_regions_and_languages(&mizan);
}

//! What is explained is what happens.

use crate::support::*;
use serde_json::Value;
use std::process::Output;

/// A pool that goes by a header, whose backends answer with their names.
fn by_user(backends: &[Backend]) -> Mizan {
    let addresses: Vec<_> = backends.iter().map(Backend::address).collect();
    let pool = "policy = \"consistent_hash\"\nhash_key = \"header:x-user\"\n\
                ejection = { failures = 3, time = \"300s\" }";
    Mizan::start(&config("name = \"web\"", pool, &addresses))
}

fn explain(mizan: &Mizan, arguments: &[&str]) -> Output {
    mizan.command(&[&["explain"], arguments].concat())
}

/// What is told of a request of `user`.
#[track_caller]
fn told(mizan: &Mizan, user: &str) -> Value {
    let header = format!("X-User: {user}");
    let output = explain(mizan, &["http://a.example/", "-H", &header, "--json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// The address of the backend that a real request of `user` gets.
fn served(mizan: &Mizan, backends: &[Backend], user: &str) -> (String, u16) {
    let before: Vec<_> = backends.iter().map(Backend::requests).collect();
    let head = format!("GET / HTTP/1.1\r\nHost: a.example\r\nX-User: {user}\r\n\r\n");
    let status = mizan.client().exchange(head).status;
    let got = backends
        .iter()
        .zip(before)
        .find(|(backend, before)| backend.requests() > *before);
    let (backend, _) = got.expect("somebody was asked");
    (backend.address().to_string(), status)
}

#[test]
fn the_owner_of_a_key_is_told_and_who_gets_it_while_it_is_ejected_or_drained() {
    let backends = ["a", "b", "c", "d"].map(Backend::healthy);
    let mizan = by_user(&backends);
    let first = told(&mizan, "alice");
    let owner = first["pool"]["backend"]
        .as_str()
        .expect("a backend")
        .to_owned();
    assert_eq!(first["pool"]["key"]["value"], "alice");
    assert_eq!(first["pool"]["why"], "it owns this hash");
    assert_eq!(served(&mizan, &backends, "alice"), (owner.clone(), 200));

    // The owner fails until it is ejected.
    let failing = backends
        .iter()
        .find(|backend| backend.address().to_string() == owner)
        .expect("one of them");
    failing.set_script(|exchange| {
        exchange.send("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")?;
        Ok(Next::Keep)
    });
    for _ in 0..3 {
        assert_eq!(served(&mizan, &backends, "alice"), (owner.clone(), 503));
    }
    let second = told(&mizan, "alice");
    let heir = second["pool"]["backend"]
        .as_str()
        .expect("a backend")
        .to_owned();
    assert_ne!(heir, owner);
    let passed = &second["pool"]["passed_over"];
    assert_eq!(passed[0]["backend"], *owner, "{second:#}");
    let why = passed[0]["why"].as_str().expect("text");
    assert!(why.starts_with("ejected (number 1 in a row)"), "{why}");
    assert_eq!(passed[1], Value::Null);
    assert_eq!(served(&mizan, &backends, "alice"), (heir.clone(), 200));

    // Who got it instead is drained.
    let drained = mizan.command(&["drain", &format!("api/{heir}")]);
    assert_eq!(drained.status.code(), Some(0), "{drained:?}");
    let third = told(&mizan, "alice");
    let last = third["pool"]["backend"]
        .as_str()
        .expect("a backend")
        .to_owned();
    let passed = &third["pool"]["passed_over"];
    assert_eq!(passed[1]["backend"], *heir, "{third:#}");
    assert_eq!(passed[1]["why"], "set to drain by the operator");
    assert_eq!(served(&mizan, &backends, "alice"), (last.clone(), 200));

    let output = explain(&mizan, &["http://a.example/", "-H", "X-User: alice"]);
    let text = String::from_utf8_lossy(&output.stdout);
    for line in [
        "KEY       header:x-user = \"alice\", hash ",
        &format!("PASSED    owner {owner}: ejected (number 1 in a row)"),
        &format!("          next {heir}: set to drain by the operator"),
        &format!("GOES TO   {last}: it is next in this hash's order behind 2"),
    ] {
        assert!(text.contains(line), "no {line:?} in\n{text}");
    }
}

#[test]
fn many_keys_are_served_by_whom_explain_names() {
    let backends = ["a", "b", "c", "d", "e"].map(Backend::healthy);
    let mizan = by_user(&backends);
    let drained = mizan.command(&["drain", &format!("api/{}", backends[2].address())]);
    assert_eq!(drained.status.code(), Some(0), "{drained:?}");
    for user in 0..12 {
        let user = format!("user-{user}");
        let told = told(&mizan, &user)["pool"]["backend"].clone();
        assert_eq!(told, *served(&mizan, &backends, &user).0, "{user}");
    }
}

#[test]
fn a_refusal_is_told_with_the_code_that_a_client_gets() {
    let backend = Backend::healthy("a");
    let route = "[[route]]\nname = \"inner\"\nprefix = \"/inner\"\nallow = [\"10.0.0.0/8\"]\npool = \"api\"\n\
                 [[route]]\nname = \"moved\"\npath = \"/moved\"\nredirect = { status = 301, location = \"/new\" }\n\
                 [[route]]\nname = \"host\"\nhost = \"b.example\"\nprefix = \"/only\"\npool = \"api\"\n";
    let pool = pool_of("", &[backend.address()]);
    let mizan = Mizan::start(&format!(
        "[[listener]]\nbind = \"{{listen}}\"\n{route}{pool}"
    ));
    for (path, exit) in [("/inner/x", 1), ("/moved", 0), ("/only", 1), ("/a%2fb", 1)] {
        let output = explain(&mizan, &[&format!("http://a.example{path}"), "--json"]);
        assert_eq!(output.status.code(), Some(exit), "{path}: {output:?}");
        let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let answer = mizan.get(path);
        assert_eq!(told["answer"]["status"], answer.status, "{path}: {told:#}");
        let code = told["answer"]["code"].as_str().expect("a code");
        match answer.field("location") {
            Some(to) => assert_eq!(told["answer"]["location"], *to),
            None => assert!(answer.text().contains(code), "{code}: {}", answer.text()),
        }
    }
    assert_eq!(backend.requests(), 0, "nothing was sent");
    let drained = mizan.command(&["drain", &format!("api/{}", backend.address())]);
    assert_eq!(drained.status.code(), Some(0), "{drained:?}");
    let output = explain(&mizan, &["http://b.example/only"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("ANSWER    503 no_backend"), "{text}");
}

#[test]
fn a_question_that_nobody_could_mean_is_answered_with_what_to_write() {
    let backend = Backend::healthy("a");
    let mizan = Mizan::start(&config("name = \"web\"", "", &[backend.address()]));
    let config = mizan.config_path();
    let config = config.to_str().expect("text");
    for (arguments, taught) in [
        (&["a.example/"][..], "write http://a.example/"),
        (
            &["http://a.example/", "--pool", "apj"],
            "did you mean `api`?",
        ),
        (
            &["http://a.example/", "--listener", "wob"],
            "did you mean `web`?",
        ),
        (&["https://a.example/"], "speaks no TLS: ask for http://"),
        (&["http://a.example/", "-H", "X-A"], "write `Name: value`"),
    ] {
        let output = explain(&mizan, arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(taught), "{arguments:?}: {said}");
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_mizan"));
        let of_file = command
            .arg("explain")
            .args(arguments)
            .args(["--config", config]);
        let of_file = of_file.output().expect("mizan runs");
        assert_eq!(of_file.status.code(), Some(2));
        let said_of_file = String::from_utf8_lossy(&of_file.stderr).into_owned();
        assert_eq!(said_of_file, said, "a file is asked as an instance is");
    }
}

/// The instance takes a question as large as a head may be, and its answer is that of a file.
#[test]
fn a_head_that_is_too_large_is_explained_and_not_refused() {
    let backends = [Backend::healthy("a")];
    let mizan = by_user(&backends);
    let header = format!("A: {}", "v".repeat(70_000));
    let output = explain(&mizan, &["http://a.example/", "-H", &header, "--json"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(told["answer"]["status"], 431);
}

#[test]
fn what_decides_a_split_is_told() {
    let (one, two) = (Backend::healthy("one"), Backend::healthy("two"));
    let mizan = Mizan::start(&format!(
        "[[listener]]\nbind = \"{{listen}}\"\n[[route]]\nsplit = [{{ pool = \"one\", weight = 1 }}, {{ pool = \"two\", weight = 1 }}]\nsplit_key = \"cookie:s\"\n[pool.one]\nbackends = [\"{}\"]\n[pool.two]\nbackends = [\"{}\"]\n",
        one.address(),
        two.address()
    ));
    let split = |arguments: &[&str]| {
        let output = explain(&mizan, &[&["http://a.example/"], arguments].concat());
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.lines().find(|line| line.starts_with("SPLIT"));
        line.unwrap_or_default().to_owned()
    };
    let by_key = split(&["-H", "Cookie: s=1"]);
    assert!(by_key.ends_with("(by cookie:s = \"1\")"), "{by_key}");
    let by_chance = split(&["--seed", "7"]);
    assert!(by_chance.ends_with("(seed 7)"), "{by_chance}");
}

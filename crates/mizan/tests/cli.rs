//! The binary as people start it: exit statuses, streams, and references that are committed.

use std::path::Path;
use std::process::{Command, Output};

fn mizan(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mizan"))
        .args(arguments)
        .env_remove("MIZAN_LOG")
        .output()
        .expect("it starts")
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs `mizan check` on `text`.
fn check(text: &str, options: &[&str]) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("mizan.toml");
    std::fs::write(&path, text).expect("written");
    let output = mizan(&[&["check", &path.display().to_string()], options].concat());
    (output.status.code(), out(&output) + &err(&output))
}

const GOOD: &str = r#"
[[listener]]
bind = "127.0.0.1:8000"

[[route]]
host = "*.example.org"
pool = "api"

[[route]]
host = "a.example.org"
path = "/x"
method = "GET"
redirect = { status = 308, location = "https://{host}{path}" }

[pool.api]
backends = ["127.0.0.1:9001", "127.0.0.1:9002"]
"#;

#[test]
fn committed_references_are_those_of_the_code() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    for (what, name) in [("openapi", "openapi.json"), ("metrics", "metrics.md")] {
        let committed = std::fs::read_to_string(docs.join(name)).unwrap_or_default();
        let made = out(&mizan(&["generate", what]));
        assert!(
            committed == made,
            "docs/{name} is old: mizan generate {what} > docs/{name}"
        );
    }
}

#[test]
fn manual_pages_and_completions_come_from_the_commands() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_str().expect("text");
    let made = mizan(&["generate", "man", path]);
    assert_eq!(made.status.code(), Some(0), "{}", out(&made));
    let page = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap_or_default();
    assert!(
        page("mizan.1").contains("mizan\\-drain(1)"),
        "{}",
        page("mizan.1")
    );
    assert!(page("mizan-drain.1").contains("\\-\\-timeout"));
    assert!(
        !folder.path().join("mizan-lab-backend.1").exists(),
        "a hidden command"
    );
    for shell in ["bash", "zsh", "fish"] {
        let made = mizan(&["generate", shell]);
        let text = out(&made);
        assert!(
            text.contains("undrain") && text.contains("mizan"),
            "{shell}"
        );
    }
    assert_eq!(mizan(&["generate", "man"]).status.code(), Some(2));
    assert_eq!(
        mizan(&["generate", "man", "/nowhere"]).status.code(),
        Some(2)
    );
}

#[test]
fn the_debian_package_holds_the_program_its_pages_and_its_unit() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/debian/build.sh");
    let built = std::process::Command::new(script)
        .args([Path::new(env!("CARGO_BIN_EXE_mizan")), folder.path()])
        .env("DEB_COMPRESSION", "none")
        .output()
        .expect("the script runs");
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    let package = String::from_utf8_lossy(&built.stdout).trim().to_owned();
    let dpkg = |flag: &str| {
        let said = std::process::Command::new("dpkg-deb")
            .args([flag, &package])
            .output();
        String::from_utf8_lossy(&said.expect("dpkg-deb runs").stdout).into_owned()
    };
    let held = dpkg("--contents");
    for path in [
        "./usr/bin/mizan",
        "./lib/systemd/system/mizan.service",
        "./usr/share/man/man1/mizan-serve.1.gz",
        "./usr/share/bash-completion/completions/mizan",
        "./etc/mizan/",
    ] {
        assert!(held.contains(path), "{path} is not in\n{held}");
    }
    assert!(
        dpkg("--info").contains("Depends: libc6 (>= 2."),
        "{}",
        dpkg("--info")
    );
}

#[test]
fn a_good_file_shows_its_routes_in_matching_order() {
    let (code, text) = check(GOOD, &[]);
    assert_eq!(code, Some(0), "{text}");
    let exact = text.find("a.example.org").expect("the exact host");
    let wildcard = text.find("*.example.org").expect("the wildcard");
    assert!(exact < wildcard, "most specific first: {text}");
    assert!(
        text.trim_end()
            .ends_with("1 listener, 2 routes, 1 pool, 2 backends"),
        "{text}"
    );
}

#[test]
fn a_good_file_shows_its_certificates_with_the_days_that_they_have_left() {
    let folder = tempfile::tempdir().expect("a folder");
    let key = rcgen::KeyPair::generate().expect("a key");
    let names = ["a.example".to_owned(), "*.b.example".to_owned()];
    let certificate = rcgen::CertificateParams::new(names).and_then(|mut params| {
        params.not_after = rcgen::date_time_ymd(2400, 1, 2);
        params.self_signed(&key)
    });
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.display().to_string()
    };
    write("a.pem", &certificate.expect("signed").pem());
    write("a.key", &key.serialize_pem());
    let tls = "[listener.tls]\ncertificates = [{ cert = \"a.pem\", key = \"a.key\" }]\n[[route]]";
    let path = write("mizan.toml", &GOOD.replacen("[[route]]", tls, 1));
    let output = mizan(&["check", &path]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{text}");
    let line = text.lines().find(|line| line.contains("ECDSA"));
    let line = line.unwrap_or_else(|| panic!("{text}"));
    assert!(
        line.contains("a.example, *.b.example") && line.contains("expires on 2400-01-02, in "),
        "{line}"
    );
    let json = mizan(&["check", &path, "--json"]).stdout;
    let report: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
    let row = &report["certificates"][0];
    assert_eq!(row["names"][1], "*.b.example");
    assert!(row["expires_in_days"].as_i64() > Some(100_000), "{row}");
}

#[test]
fn a_wrong_file_is_refused_with_every_error_marked() {
    let wrong = GOOD
        .replace("pool = \"api\"", "pool = \"apx\"")
        .replace("method", "methd");
    let (code, text) = check(&wrong, &[]);
    assert_eq!(code, Some(2), "{text}");
    assert!(
        text.contains("apx") && text.contains("methd") && text.contains("refused, 2 errors"),
        "{text}"
    );
    let (code, json) = check(&wrong, &["--json"]);
    assert_eq!(code, Some(2));
    let report: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(report["accepted"], false);
    let problems = report["problems"].as_array().expect("problems");
    assert_eq!(
        problems
            .iter()
            .filter(|problem| problem["severity"] == "error")
            .count(),
        2,
        "{report}"
    );
}

#[test]
fn a_violated_timing_relation_is_1() {
    let violated = format!("{GOOD}\n[expect]\nstop_grace = \"10s\"\n");
    let (code, text) = check(&violated, &[]);
    assert_eq!(
        code,
        Some(1),
        "drain window and deadline are 45 s together: {text}"
    );
    assert!(
        text.contains("FAIL") && text.contains("1 timing relation violated"),
        "{text}"
    );
    assert!(
        text.contains("not checked"),
        "unset numbers are never passed: {text}"
    );
}

#[test]
fn a_missing_file_and_a_wrong_option_are_2() {
    assert_eq!(
        mizan(&["check", "/nonexistent/mizan.toml"]).status.code(),
        Some(2)
    );
    assert_eq!(
        mizan(&["serve", "--config", "/nonexistent/mizan.toml"])
            .status
            .code(),
        Some(2)
    );
    let unknown = mizan(&["check", "--frobnicate"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(unknown.stdout.is_empty() && err(&unknown).contains("--frobnicate"));
}

#[test]
fn nobody_there_is_4() {
    let output = mizan(&["status", "--admin", "/nonexistent/admin.sock"]);
    assert_eq!(output.status.code(), Some(4));
    assert!(
        err(&output).contains("no instance answers on /nonexistent/admin.sock"),
        "{}",
        err(&output)
    );
}

#[test]
fn help_is_no_error() {
    let output = mizan(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(out(&output).contains("Exit status"));
}

#[test]
fn a_log_level_that_is_none_is_refused_with_the_five() {
    let output = mizan(&["serve", "--log-level", "loud"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        err(&output).contains("error, warn, info, debug, trace"),
        "{}",
        err(&output)
    );
}

#[test]
fn a_wrong_mizan_log_is_refused_and_named() {
    for wrong in ["bogus=loud", "loud"] {
        let output = Command::new(env!("CARGO_BIN_EXE_mizan"))
            .args(["serve", "--config", "/nonexistent/mizan.toml"])
            .env("MIZAN_LOG", wrong)
            .output()
            .expect("it starts");
        assert_eq!(output.status.code(), Some(2));
        let text = err(&output);
        assert!(text.contains(&format!("MIZAN_LOG is `{wrong}`")), "{text}");
    }
}

/// `script` gives it a terminal.
#[test]
fn a_terminal_gets_no_complaint_of_the_logging_library() {
    let command = format!(
        "{} serve --config /nonexistent/mizan.toml",
        env!("CARGO_BIN_EXE_mizan")
    );
    let output = Command::new("script")
        .args(["--quiet", "--return", "--command", &command, "/dev/null"])
        .env_remove("MIZAN_LOG")
        .output()
        .expect("script(1) is part of util-linux");
    let text = out(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("nothing was served"), "{text}");
    assert!(!text.contains("ansi"), "{text}");
}

#[test]
fn output_that_cannot_be_written_is_no_success() {
    for arguments in [&["generate", "metrics"][..], &["--help"]] {
        let full = std::fs::File::create("/dev/full").expect("Linux has it");
        let output = Command::new(env!("CARGO_BIN_EXE_mizan"))
            .args(arguments)
            .stdout(full)
            .output()
            .expect("it starts");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let text = err(&output);
        assert!(text.contains("cannot write to standard output"), "{text}");
    }
}

#[test]
fn a_reader_that_has_gone_away_is_no_failure() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output = Command::new(env!("CARGO_BIN_EXE_mizan"))
        .args(["generate", "schema"])
        .stdout(writer)
        .output()
        .expect("it starts");
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert_eq!(err(&output), "");
}

#[test]
fn a_refused_file_shows_its_errors_last_and_no_relations() {
    let wrong = GOOD.replace("host = \"*.example.org\"", "hots = \"*.example.org\"")
        + "\n[expect]\nstop_grace = \"10s\"\n";
    let (code, text) = check(&wrong, &[]);
    assert_eq!(code, Some(2), "{text}");
    assert!(
        !text.contains("not checked") && !text.contains("pass "),
        "{text}"
    );
    let last_warning = text.rfind("warning[").expect("a timing relation");
    let first_error = text.find("error[").expect("an unknown key");
    assert!(last_warning < first_error, "{text}");
    assert!(
        text.trim_end().ends_with("refused, 1 error, 1 warning"),
        "{text}"
    );
}

#[test]
fn a_violated_relation_is_not_counted_as_a_warning_too() {
    let (_, text) = check(&format!("{GOOD}\n[expect]\nstop_grace = \"10s\"\n"), &[]);
    let verdict = text.trim_end().lines().last().unwrap_or_default();
    assert!(
        verdict.ends_with("2 backends, 1 timing relation violated"),
        "{text}"
    );
}

/// Starts `mizan serve` on `text`, which cannot start.
fn refused_start(text: &str) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("mizan.toml");
    let text = text.replace("{dir}", &folder.path().display().to_string());
    std::fs::write(&path, text).expect("written");
    let output = mizan(&["serve", "--config", &path.display().to_string()]);
    assert_eq!(output.status.code(), Some(2), "{}", err(&output));
    err(&output)
}

#[test]
fn a_taken_address_names_the_key_that_chooses_another() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().expect("bound");
    let off = "[admin]\nsocket = \"{dir}/admin.sock\"\n";
    for (tables, key) in [
        (
            format!("{off}[health]\nbind = \"{taken}\"\n[metrics]\nbind = \"off\"\n"),
            "(choose another place with `[health] bind`): ",
        ),
        (
            format!("{off}[health]\nbind = \"off\"\n[metrics]\nbind = \"{taken}\"\n"),
            "(choose another place with `[metrics] bind`): ",
        ),
        (
            format!("{off}bind = \"{taken}\"\ntoken = \"correct-horse-battery\"\n"),
            "(choose another place with `[admin] bind`): ",
        ),
    ] {
        let text = refused_start(&format!("{tables}\n{GOOD}"));
        assert!(text.contains(key), "{text}");
        assert_eq!(text.matches("in use").count(), 1, "{text}");
    }
}

#[test]
fn a_taken_listener_says_why_once() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().expect("bound").to_string();
    let text = refused_start(&format!(
        "[admin]\nsocket = \"{{dir}}/admin.sock\"\n[health]\nbind = \"off\"\n[metrics]\nbind = \"off\"\n{}",
        GOOD.replace("127.0.0.1:8000", &taken)
    ));
    assert!(
        text.contains(&format!("cannot listen on {taken}")),
        "{text}"
    );
    assert_eq!(text.matches("in use").count(), 1, "{text}");
}

#[test]
fn an_access_log_that_cannot_be_opened_is_named_with_its_key() {
    let text = refused_start(&format!(
        "{GOOD}\n[log]\naccess = \"{{dir}}/none/access.log\"\n"
    ));
    assert!(text.contains("`[log] access`"), "{text}");
    assert!(text.contains("/none/access.log: No such file"), "{text}");
}

#[test]
fn a_default_socket_that_is_not_there_says_how_to_name_another() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = Command::new(env!("CARGO_BIN_EXE_mizan"))
        .arg("status")
        .env("XDG_RUNTIME_DIR", folder.path())
        .output()
        .expect("it starts");
    assert_eq!(output.status.code(), Some(4));
    assert!(err(&output).contains("--admin"), "{}", err(&output));
}

#[test]
fn the_default_is_judged_beside_baselines_and_a_missed_bar_is_exit_1() {
    let kept = mizan(&["simulate", "s12", "--figures"]);
    assert_eq!(kept.status.code(), Some(0), "{}{}", out(&kept), err(&kept));
    let text = out(&kept);
    assert!(text.contains("plain power_of_two") && text.contains("D2 relative"));
    assert!(text.contains("3 kept, 0 missed"), "{text}");

    // By its name nobody may be degraded in it, and one of its backends is slow.
    let folder = tempfile::tempdir().expect("a folder");
    let mine = folder.path().join("s08-mine.toml");
    let scenario = r#"
about = "One is slow."
time = "30s"
service = { law = "lognormal", mean = "10ms", sigma = 0.5 }
backends = [{ count = 5 }]
arrivals = { load = 0.4 }
faults = [{ kind = "slow", backends = [0], from = "10s", factor = 10 }]
"#;
    std::fs::write(&mine, scenario).expect("written");
    let mine = mine.display().to_string();
    let missed = mizan(&["simulate", &mine, "--figures", "--json"]);
    assert_eq!(missed.status.code(), Some(1), "{}", err(&missed));
    let judgements: serde_json::Value = serde_json::from_str(&out(&missed)).expect("JSON");
    let judged = &judgements[0]["judged"][1];
    assert_eq!(judged["what"], "times degraded");
    assert_eq!(judged["bar"]["at_most"], 0.0);
    assert!(judged["value"].as_f64() >= Some(1.0), "{judged}");

    for (arguments, told) in [
        (vec!["simulate", "--figures"], "name some, or `all`"),
        (
            vec!["simulate", "s12", "--figures", "--seconds", "9"],
            "cannot be used with",
        ),
    ] {
        let refused = mizan(&arguments);
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}");
        assert!(err(&refused).contains(told), "{}", err(&refused));
    }
}

#[test]
fn a_scenario_is_played_the_same_each_time_and_what_is_wrong_with_one_is_told() {
    let list = mizan(&["simulate"]);
    assert!(out(&list).contains("s01-one-slow") && list.status.code() == Some(0));
    let folder = tempfile::tempdir().expect("a folder");
    let pages = folder.path().join("pages");
    let arguments = [
        "simulate",
        "s04",
        "--seconds",
        "25",
        "--policy",
        "power_of_two",
        "--json",
    ];
    let first = mizan(&[&arguments[..], &["--html", &pages.display().to_string()]].concat());
    assert_eq!(first.status.code(), Some(0), "{}", err(&first));
    assert_eq!(out(&first), out(&mizan(&arguments)));
    let reports: serde_json::Value = serde_json::from_str(&out(&first)).expect("JSON");
    assert_eq!(reports[0]["policies"][0]["policy"], "power_of_two");
    let page = std::fs::read_to_string(pages.join("s04-black-hole.html")).expect("a page");
    assert!(page.contains("<svg") && !page.contains("<script"));

    let mine = folder.path().join("mine.toml");
    std::fs::write(&mine, "time = \"10s\"\nbalancerz = 2\n").expect("written");
    for (arguments, told) in [
        (vec!["simulate", "s99"], "neither a file nor a scenario"),
        (
            vec!["simulate", "s01", "--policy", "p2c"],
            "there is no policy `p2c`: one of",
        ),
        (
            vec!["simulate", &mine.display().to_string()],
            "mine.toml:2:1: unknown key `balancerz`",
        ),
        (vec!["simulate", "s01", "--seconds", "0"], "0"),
        (
            vec!["simulate", "s"],
            "`s` is the beginning of 26 scenarios: s01-one-slow, ",
        ),
        (
            vec!["simulate", "s07"],
            "2 scenarios: s07-herd, s07-herd-of-one; say which, or `all`",
        ),
        (
            vec!["simulate", "black-hole"],
            "did you mean s04-black-hole?",
        ),
        (
            vec!["simulate", "s09-flaping"],
            "did you mean s09-flapping?",
        ),
    ] {
        let refused = mizan(&arguments);
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}");
        assert!(
            err(&refused).contains(told),
            "{arguments:?}: {}",
            err(&refused)
        );
        assert!(
            err(&refused).matches("mine.toml").count() <= 1,
            "{}",
            err(&refused)
        );
    }
}

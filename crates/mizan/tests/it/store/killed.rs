//! Who edits is killed with -9, or the instance that holds the store is: each edit is there whole, or not at all.

use super::*;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Child;

/// Objects of the table that is imported: five edits of a hundred.
const OBJECTS: usize = 500;

fn table(folder: &Path, at: usize) -> PathBuf {
    let setting = |number: usize| {
        let key = format!("settings/l{number:03}");
        (key, json!({"schema": 1, "round": at.to_string()}))
    };
    let objects: BTreeMap<String, Value> = (0..OBJECTS).map(setting).collect();
    let path = folder.join("table.json");
    let text = json!({"schema": 1, "objects": objects}).to_string();
    std::fs::write(&path, text).expect("it can be written");
    path
}

/// `mizan config ARGUMENTS` with `place`, which says where the table is.
fn table_command(place: &[String], arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mizan"));
    command.arg("config").args(place).args(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn read(place: &[String], arguments: &[&str]) -> Value {
    let output = table_command(place, arguments)
        .output()
        .expect("mizan runs");
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("it is JSON")
}

/// Begins to import `table` in parts, and waits until `parts` of them were put.
/// Whoever drops what it goes on to say takes its standard output away.
fn import(place: &[String], table: &Path, parts: usize) -> (Child, impl BufRead) {
    let table = table.display().to_string();
    let mut importing = table_command(place, &["import", &table, "--in-parts"])
        .spawn()
        .expect("mizan runs");
    let out = importing.stdout.take().expect("it is piped");
    let mut out = BufReader::new(out);
    let put = (&mut out).lines().take(parts).count();
    assert_eq!(put, parts, "it ended before it was killed");
    (importing, out)
}

/// Of each edit that history has, all is there that no later one has changed; and nothing is there that none of them has put.
fn check(place: &[String]) {
    let stands = read(place, &["get", "--json"]);
    let stands = stands["objects"].as_array().expect("a list").iter();
    let mut stands: BTreeMap<&str, (u64, &Value)> = stands
        .map(|it| {
            let revision = it["revision"].as_u64().expect("a number");
            (
                it["key"].as_str().expect("a key"),
                (revision, &it["document"]),
            )
        })
        .collect();
    let history = read(place, &["history", "-n", "1000", "--json"]);
    let mut later = BTreeSet::new();
    for edit in history.as_array().expect("a list") {
        let changes = edit["changes"].as_array().expect("a list");
        for changed in changes {
            let key = changed["key"].as_str().expect("a key");
            if later.insert(key.to_owned()) {
                let found = stands.remove(key);
                let put = (
                    edit["revision"].as_u64().expect("a number"),
                    &changed["after"],
                );
                assert_eq!(found, Some(put), "{key}");
            }
        }
    }
    assert_eq!(stands, BTreeMap::new(), "nobody has put these");
}

/// The same command goes on from where it was killed.
fn finish(place: &[String], table: &Path, round: usize) {
    let path = table.display().to_string();
    let output = table_command(place, &["import", &path, "--in-parts"]).output();
    let output = output.expect("mizan runs");
    assert!(output.status.success(), "{output:?}");
    check(place);
    let all = read(place, &["get", "settings", "--json"]);
    let all = all["objects"].as_array().expect("a list");
    assert_eq!(all.len(), OBJECTS);
    let round = Value::from(round.to_string());
    assert!(all.iter().all(|it| it["document"]["round"] == round));
}

#[test]
fn an_import_that_is_killed_leaves_no_half_edit() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = format!("embedded:{}/store", folder.path().display());
    let place = ["--store".to_owned(), store];
    for round in 1..=4 {
        let table = table(folder.path(), round);
        let (mut importing, _out) = import(&place, &table, round);
        importing.kill().expect("it runs");
        importing.wait().expect("it ends");
        check(&place);
        finish(&place, &table, round);
    }
}

#[test]
fn an_instance_that_is_killed_while_its_table_is_edited_leaves_no_half_edit() {
    let mut mizan = embedded();
    let socket = mizan.directory().join("admin.sock").display().to_string();
    let place = ["--admin".to_owned(), socket];
    for round in 1..=3 {
        let table = table(mizan.directory(), round);
        let (importing, _out) = import(&place, &table, round);
        mizan.signal(rustix::process::Signal::KILL);
        let ended = importing.wait_with_output().expect("it ends");
        let exit = ended.status.code();
        assert!(matches!(exit, Some(4 | 10)), "{ended:?}");
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(said.contains("parts were put, each whole"), "{said}");
        mizan.start_again();
        check(&place);
        finish(&place, &table, round);
    }
}

//! Files and a table, without a store.

use super::*;
use crate::snapshot::route::{Action, Split};
use mizan_routing::table::Stored;
use std::io;
use std::net::SocketAddr;

const FILE: &str = r#"
[region]
name = "kr"

[store]
address = "embedded:/var/lib/mizan/store"

[[listener]]
bind = "127.0.0.1:8000"

[[route]]
chain = "trending"
"#;

fn table(revision: u64, objects: &[(&str, &str)], previous: Option<&Table>) -> Table {
    let mut objects = objects.to_vec();
    objects.sort_unstable();
    let stored = objects.iter().map(|(key, value)| Stored {
        key: key.as_bytes(),
        value: value.as_bytes(),
        modified: revision,
    });
    Table::build(revision, stored, previous).expect("it passes no limit")
}

fn resolve(_: &str) -> io::Result<Vec<SocketAddr>> {
    Ok(vec![SocketAddr::from(([10, 9, 0, 1], 80))])
}

fn merged(
    file: &str,
    table: &Table,
    last: Option<&Merged>,
    now_ms: u64,
) -> Result<Merged, Vec<Diagnostic>> {
    let files = [Source::new("mizan.toml", file)];
    let nothing = InForce::default();
    let last = match last {
        Some(last) => (Some(&last.snapshot), &last.in_force),
        None => (None, &nothing),
    };
    compile_with(
        &files,
        (table, now_ms, true),
        last,
        &resolve,
        (crate::clock::now(), 7),
    )
}

fn good(file: &str, objects: &[(&str, &str)]) -> Merged {
    merged(file, &table(1, objects, None), None, 0).expect("it is good")
}

fn rejected(merged: &Merged) -> Vec<String> {
    merged.rejected.iter().map(ToString::to_string).collect()
}

/// The pools of the only route, in their order.
fn asked(merged: &Merged) -> Vec<&str> {
    let split = split(merged);
    let first = split.pools.iter().map(|(pool, _)| pool);
    first
        .chain(&split.fallback)
        .map(|pool| &*pool.name)
        .collect()
}

fn split(merged: &Merged) -> &Split {
    let mut routes = merged.snapshot.routes.routes().iter();
    match routes.next().map(|route| &route.action) {
        Some(Action::Forward(split)) => split,
        other => panic!("{other:?}"),
    }
}

fn backends(merged: &Merged, pool: &str) -> Vec<String> {
    let pool = &merged.snapshot.pools[pool];
    pool.members.iter().map(|it| it.key.to_string()).collect()
}

const KPOP: (&str, &str) = ("pools/kr/kpop", r#"{"schema": 1, "policy": "round_robin"}"#);
const ONE: (&str, &str) = (
    "backends/kr/kpop/a",
    r#"{"schema": 1, "address": "10.0.0.1:80", "weight": 3}"#,
);
const CHAIN: (&str, &str) = (
    "chains/kr/trending",
    r#"{"schema": 1, "pools": ["kpop", {"pool": "jpop", "region": "jp", "allow_remote": true}]}"#,
);
const JPOP: (&str, &str) = ("pools/jp/jpop", r#"{"schema": 1}"#);

#[test]
fn a_table_says_what_a_file_would() {
    let merged = good(FILE, &[KPOP, ONE, CHAIN, JPOP]);
    assert_eq!(rejected(&merged), [""; 0]);
    assert_eq!(asked(&merged), ["kpop", "jp/jpop"]);
    assert_eq!(backends(&merged, "kpop"), ["10.0.0.1:80"]);
    assert_eq!(merged.snapshot.pools["kpop"].members[0].weight, 3);
    assert_eq!(&*merged.snapshot.settings.region, "kr");
}

/// Only what requests of this region may need is made ready and probed.
#[test]
fn pools_of_other_regions_are_there_if_a_chain_names_them() {
    let other = ("pools/jp/rock", r#"{"schema": 1}"#);
    let merged = good(FILE, &[KPOP, CHAIN, JPOP, other]);
    let pools: Vec<_> = merged.snapshot.pools.keys().map(|it| &**it).collect();
    assert_eq!(pools, ["jp/jpop", "kpop"]);
}

#[test]
fn a_bad_object_takes_nothing_with_it_and_stays_as_it_was() {
    let before = good(FILE, &[KPOP, ONE, CHAIN, JPOP]);
    let two = (
        "backends/kr/kpop/b",
        r#"{"schema": 1, "address": "10.0.0.2:80"}"#,
    );
    let bad = (
        "pools/kr/kpop",
        r#"{"schema": 1, "policy": "round_robins"}"#,
    );
    let bad_one = (
        "backends/kr/kpop/a",
        r#"{"schema": 1, "address": "10.0.0.1"}"#,
    );
    let after = table(2, &[bad, bad_one, two, CHAIN, JPOP], None);
    let after = merged(FILE, &after, Some(&before), 0).expect("the rest is good");
    assert_eq!(
        rejected(&after),
        [
            "backends/kr/kpop/a: address: `10.0.0.1` lacks its port; did you mean `10.0.0.1:80`? (what was there before stays in force)",
            "pools/kr/kpop: policy: `round_robins` is no policy; did you mean `round_robin`? (what was there before stays in force)",
        ]
    );
    assert_eq!(backends(&after, "kpop"), ["10.0.0.1:80", "10.0.0.2:80"]);
    // Without anything before, they are left out, and the chain passes over what is not there.
    let alone = table(2, &[bad, bad_one, two, CHAIN, JPOP], None);
    let alone = merged(FILE, &alone, None, 0).expect("the rest is good");
    assert_eq!(alone.rejected.len(), 2, "{:?}", rejected(&alone));
    assert_eq!(asked(&alone), ["jp/jpop"]);
}

#[test]
fn what_a_file_has_stays_the_files() {
    let file = format!("{FILE}\n[pool.kpop]\nbackends = [\"10.0.0.9:80\"]\n");
    let merged = good(&file, &[KPOP, ONE, CHAIN, JPOP]);
    assert_eq!(
        rejected(&merged),
        ["pools/kr/kpop: pool `kpop` is there already, in mizan.toml:14"]
    );
    assert_eq!(backends(&merged, "kpop"), ["10.0.0.9:80"]);
}

#[test]
fn a_later_versions_field_is_ignored_and_told() {
    let later = ("pools/kr/kpop", r#"{"schema": 1, "colour": "red"}"#);
    let merged = good(FILE, &[later, ONE, CHAIN, JPOP]);
    assert_eq!(rejected(&merged), [""; 0]);
    let said: Vec<_> = merged.warnings.iter().map(ToString::to_string).collect();
    let is_told = |line: &String| {
        line.starts_with("store:pools/kr/kpop: colour: warning: unknown key `colour`")
    };
    assert!(said.iter().any(is_told), "{said:?}");
}

/// A file that names what only the store may have starts with an empty store, and says so.
#[test]
fn without_its_pools_a_route_answers_that_nobody_is_there() {
    let merged = good(FILE, &[]);
    assert_eq!(asked(&merged), ["trending"]);
    assert!(merged.snapshot.pools["trending"].members.is_empty());
    let said: Vec<_> = merged.warnings.iter().map(ToString::to_string).collect();
    assert!(
        said.iter()
            .any(|it| it.contains("there is no pool `trending`")),
        "{said:?}"
    );
}

#[test]
fn routes_of_the_store_come_behind_those_of_the_file() {
    let route = (
        "routes/010-search",
        r#"{"schema": 1, "prefix": "/search", "pool": "kpop"}"#,
    );
    let merged = good(FILE, &[KPOP, ONE, CHAIN, JPOP, route]);
    let names: Vec<_> = merged
        .snapshot
        .routes
        .routes()
        .iter()
        .map(|it| it.name.to_string())
        .collect();
    assert_eq!(names, ["route[0]", "010-search"]);
}

#[test]
fn a_boost_multiplies_a_pools_share_until_it_ends() {
    let file = FILE.replace(
        "chain = \"trending\"",
        "split = [{ pool = \"kpop\", weight = 1 }, { pool = \"rock\", weight = 3 }]",
    );
    let rock = ("pools/kr/rock", r#"{"schema": 1}"#);
    let boost = |id: &str, region: &str, factor: f64, end: u64| {
        (
            format!("boosts/{region}/kpop/{id}"),
            format!(r#"{{"schema": 1, "factor": {factor}, "expires_at_ms": {end}}}"#),
        )
    };
    let boosts = [
        boost("a", "kr", 3.0, 1_000),
        boost("b", "kr", 2.0, 2_000),
        boost("c", "jp", 9.0, 9_000),
    ];
    let mut objects = vec![KPOP, rock, ("pools/jp/kpop", r#"{"schema": 1}"#)];
    objects.extend(boosts.iter().map(|(key, value)| (&**key, &**value)));
    let table = table(1, &objects, None);
    let shares = |now_ms| {
        let merged = merged(&file, &table, None, now_ms).expect("it is good");
        assert_eq!(rejected(&merged), [""; 0]);
        split(&merged)
            .pools
            .iter()
            .map(|(_, sum)| *sum)
            .collect::<Vec<_>>()
    };
    assert_eq!(shares(0), [6_000, 9_000]);
    assert_eq!(shares(1_000), [2_000, 5_000]);
    assert_eq!(shares(2_000), [1, 4]);
}

#[test]
fn backends_of_the_store_stay_in_the_networks_that_the_file_allows() {
    let file = FILE.replace("[store]", "[store]\nbackend_networks = [\"10.0.0.0/16\"]");
    let outside = (
        "backends/kr/kpop/b",
        r#"{"schema": 1, "address": "169.254.169.254:80"}"#,
    );
    let socket = (
        "backends/kr/kpop/c",
        r#"{"schema": 1, "address": "unix:/run/docker.sock"}"#,
    );
    let name = (
        "backends/kr/kpop/d",
        r#"{"schema": 1, "address": "metadata.example:80"}"#,
    );
    let merged = good(&file, &[KPOP, ONE, CHAIN, JPOP, outside, socket, name]);
    assert_eq!(backends(&merged, "kpop"), ["10.0.0.1:80"]);
    assert_eq!(merged.rejected.len(), 2, "{:?}", rejected(&merged));
    let said: Vec<_> = merged.warnings.iter().map(ToString::to_string).collect();
    assert!(
        said.iter()
            .any(|it| it.contains("10.9.0.1 is in none of `backend_networks`")),
        "{said:?}"
    );
}

/// What stands in the store is a text: it reads no file and no variable of the machine that it comes to.
#[test]
fn the_store_reads_nothing_of_the_machine() {
    let tls = (
        "pools/kr/kpop",
        r#"{"schema": 1, "tls": {"client_certificate": {"cert": "/etc/a.pem", "key": "/etc/a.key"}}}"#,
    );
    let merged = good(FILE, &[tls, ONE, CHAIN, JPOP]);
    assert_eq!(
        rejected(&merged)[0],
        "pools/kr/kpop: tls.client_certificate.cert: what the store says can name no file of the machines that read it"
    );
    let page = (
        "routes/a",
        r#"{"schema": 1, "respond": {"status": 200, "body": "file:/etc/passwd ${HOME}"}}"#,
    );
    let merged = good(FILE, &[KPOP, ONE, CHAIN, JPOP, page]);
    let mut routes = merged.snapshot.routes.routes().iter();
    match routes.nth(1).map(|route| &route.action) {
        Some(Action::Respond { body, .. }) => assert_eq!(body[..], *b"file:/etc/passwd ${HOME}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_table_that_a_file_cannot_stand_beside_is_refused_whole() {
    let file = format!("{FILE}\n[[route]]\npool = 7\n");
    let found = merged(&file, &table(1, &[KPOP], None), None, 0).expect_err("the file is bad");
    let mut errors = found.iter().filter(|it| it.severity == Severity::Error);
    assert!(
        errors.all(|it| it.file.ends_with("mizan.toml")),
        "{found:?}"
    );
}

#[test]
fn an_object_that_could_not_come_into_force_is_told_before_it_is_written() {
    let bad = (
        "pools/kr/kpop",
        r#"{"schema": 1, "policy": "round_robins"}"#,
    );
    let judged = judge(&table(1, &[bad, ONE], None), "kr");
    let said: Vec<_> = judged.iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        ["pools/kr/kpop: policy: `round_robins` is no policy; did you mean `round_robin`?"]
    );
    assert_eq!(judge(&table(1, &[KPOP, ONE, JPOP, CHAIN], None), "kr"), []);
}

/// A chain of each region, a pool that one of them lacks, and a pool of the file, which is of none.
#[test]
fn a_route_goes_to_the_pools_of_the_requests_region_and_never_to_anothers() {
    let file = FILE.replace("name = \"kr\"", "name = \"kr\"\nheader = \"x-region\"")
        + "fallback = [\"sorry\"]\n\n[[route]]\nprefix = \"/own\"\npool = \"kpop\"\n\n[pool.sorry]\nbackends = [\"10.0.0.7:80\"]\n";
    let objects = [
        KPOP,
        ONE,
        JPOP,
        CHAIN,
        ("chains/jp/trending", r#"{"schema": 1, "pools": ["jpop"]}"#),
        ("pools/sg/pop", r#"{"schema": 1}"#),
    ];
    let merged = good(&file, &objects);
    assert_eq!(rejected(&merged), [""; 0]);
    let names: Vec<_> = merged
        .snapshot
        .regions
        .names()
        .iter()
        .map(|it| &**it)
        .collect();
    assert_eq!(names, ["jp", "sg"]);
    let asked = |route: usize, region: usize| -> Vec<String> {
        let split = merged.snapshot.routes.routes()[route].split(region);
        let pools = split.iter().flat_map(|split| {
            let first = split.pools.iter().map(|(pool, _)| pool);
            first.chain(&split.fallback)
        });
        pools.map(|pool| pool.name.to_string()).collect()
    };
    assert_eq!(asked(0, 0), ["kpop", "jp/jpop", "sorry"]);
    assert_eq!(asked(0, 1), ["jp/jpop", "sorry"]);
    assert_eq!(asked(0, 2), [""; 0], "no chain and no pool of that name");
    assert_eq!(asked(1, 0), ["kpop"]);
    assert_eq!(asked(1, 1), [""; 0], "Seoul's pool is not Tokyo's");
}

#[test]
fn settings_become_only_headers_that_the_file_allows() {
    let file = FILE.replace("[store]", "[store]\nheaders = [\"X-Tokenizer\", \"host\"]");
    let ko = ("settings/ko", r#"{"schema": 1, "tokenizer": "mecab"}"#);
    let route = |headers: &str| {
        let text =
            format!(r#"{{"schema": 1, "prefix": "/s", "pool": "kpop", "settings": {headers}}}"#);
        let objects = [KPOP, ONE, JPOP, CHAIN, ko, ("routes/a", text.as_str())];
        good(&file, &objects)
    };
    let merged = route(r#"{"x-tokenizer": "tokenizer"}"#);
    assert_eq!(rejected(&merged), [""; 0]);
    let varying = merged.snapshot.routes.routes()[1]
        .varying
        .as_ref()
        .expect("it varies");
    let settings = varying.settings.as_ref().expect("it has settings");
    let of = |language: &str| settings.of(Some(language.as_bytes()));
    assert_eq!(
        of("ko-KR").set,
        [("x-tokenizer".to_owned(), "mecab".to_owned())]
    );
    assert_eq!(
        of("ko-KR").remove,
        ["x-tokenizer"],
        "what a client claims goes"
    );
    assert!(of("fr").set.is_empty() && of("fr").remove == ["x-tokenizer"]);
    for (headers, told) in [
        (
            r#"{"x-other": "tokenizer"}"#,
            "none of `headers` in the file's `[store]`",
        ),
        (r#"{"Host": "tokenizer"}"#, "says where the request goes"),
        (r#"{"x tokenizer": "tokenizer"}"#, "header"),
    ] {
        let said = rejected(&route(headers));
        assert!(
            said.len() == 1 && said[0].contains(told),
            "{headers}: {said:?}"
        );
    }
}

/// Listeners, and which headers settings may become, are each file's to say: a table is not to blame for what it cannot know.
#[test]
fn what_files_say_is_not_held_against_a_table() {
    let route = (
        "routes/a",
        r#"{"schema": 1, "pool": "kpop", "listener": "edge", "settings": {"x-tokenizer": "tokenizer"}}"#,
    );
    let low = (
        "backends/kr/kpop/low",
        r#"{"schema": 1, "address": "127.0.0.1:1"}"#,
    );
    assert_eq!(judge(&table(1, &[KPOP, ONE, route, low], None), "kr"), []);
    let smuggled =
        r#"{"schema": 1, "pool": "kpop", "settings": {"Transfer-Encoding": "tokenizer"}}"#;
    let judged = judge(&table(1, &[KPOP, ONE, ("routes/a", smuggled)], None), "kr");
    assert!(judged[0].reason.contains("cannot be edited"), "{judged:?}");
}

mod warm;

/// What came behind five hundred warnings was not kept, errors and all: then what is wrong was in force.
#[test]
fn very_many_warnings_keep_no_error_out() {
    let pools: Vec<String> = (0..1_200).map(|at| format!("pools/kr/p{at}")).collect();
    let mut objects: Vec<(&str, &str)> = pools.iter().map(|key| (&**key, JPOP.1)).collect();
    // Each of the pools is empty, which is told before routes are looked at.
    let bad = (
        "routes/a",
        r#"{"schema": 1, "pool": "p0", "chain": "trending"}"#,
    );
    objects.push(bad);
    let merged = good(FILE, &objects);
    assert_eq!(merged.snapshot.pools.len(), 1_200 + 1, "and `trending`");
    let said = rejected(&merged);
    assert!(
        said.len() == 1 && said[0].starts_with("routes/a: "),
        "{said:?}"
    );
    let said = merged.warnings.iter().map(ToString::to_string);
    let counted = said.filter(|it| it.contains("more warnings are not shown"));
    assert_eq!(counted.count(), 1);
}

//! What a reload takes over, and what it leaves alone.

use super::*;
use std::sync::Arc;

fn reload(text: &str, previous: &Snapshot, lookup: &dyn Lookup) -> (Snapshot, Vec<Diagnostic>) {
    compile(
        &[Source::new("lb.toml", text)],
        Some(previous),
        lookup,
        Instant::from_nanos(5),
        2,
    )
    .expect("it compiles")
}

#[test]
fn a_pool_keeps_its_live_half_by_name() {
    let first = clean(MINIMAL);
    let text = format!(
        "{}[[route]]\npath = \"/b\"\npool = \"other\"\n[pool.other]\nbackends = [\"10.0.0.9:1\"]\n",
        MINIMAL.replace("10.0.0.2", "10.0.0.3")
    );
    let (second, _) = reload(&text, &first, &no_names);
    assert!(Arc::ptr_eq(
        &first.pools["api"].core,
        &second.pools["api"].core
    ));
    assert!(!Arc::ptr_eq(
        &second.pools["api"].core,
        &second.pools["other"].core
    ));
    assert_eq!((first.generation, second.generation), (1, 2));
    assert_ne!(first.digest, second.digest);
}

#[test]
fn compiling_changes_nothing_that_is_in_force() {
    let first = clean(MINIMAL);
    let keys = |snapshot: &Snapshot| {
        snapshot.pools["api"]
            .core
            .backends()
            .iter()
            .map(|backend| backend.key().to_string())
            .collect::<Vec<_>>()
    };
    let before = keys(&first);
    let (second, _) = reload(&MINIMAL.replace("10.0.0.2", "10.0.0.3"), &first, &no_names);
    assert_eq!(
        keys(&first),
        before,
        "the new members come into force when the snapshot is published, not before"
    );
    assert_eq!(&*second.pools["api"].members[1].key, "10.0.0.3:8080");
}

#[test]
fn the_same_text_has_the_same_digest() {
    assert_eq!(clean(MINIMAL).digest, clean(MINIMAL).digest);
    assert_ne!(clean(MINIMAL).digest, clean(&format!("{MINIMAL}\n")).digest);
}

#[test]
fn a_name_that_no_longer_resolves_keeps_its_last_addresses() {
    let text = MINIMAL.replace("10.0.0.2:8080", "app.local:80");
    let resolve = |_: &str| Ok(vec!["10.1.0.1:80".parse().expect("an address")]);
    let (first, _) = compile(
        &[Source::new("lb.toml", text.as_str())],
        None,
        &resolve,
        Instant::default(),
        1,
    )
    .expect("it compiles");
    let (second, warnings) = reload(&text, &first, &no_names);
    let keys: Vec<&str> = second.pools["api"]
        .members
        .iter()
        .map(|member| &*member.key)
        .collect();
    assert_eq!(keys, ["10.0.0.1:8080", "app.local:80/10.1.0.1"]);
    assert_eq!(
        lines(&warnings),
        ["lb.toml:9:30: warning: `app.local:80` cannot be resolved: there are no names here"]
    );
}

#[test]
fn a_name_that_never_resolved_does_not_stop_the_others() {
    let (snapshot, warnings) =
        compile_text(&MINIMAL.replace("10.0.0.2:8080", "app.local:80")).expect("it compiles");
    assert_eq!(snapshot.pools["api"].members.len(), 1);
    assert!(snapshot.pools["api"].is_discovered(), "it is tried again");
    assert_eq!(warnings.len(), 1);
}

/// What a reload of `text` says that needs a restart, in a process that was started with `start`.
fn waiting(start: &str, text: &str) -> Vec<String> {
    let source = |text: &str| Source::new("lb.toml", text);
    let snapshot = |text: &str| compile_text(text).expect("it compiles").0;
    let (first, second) = (snapshot(start), snapshot(text));
    let running = Running {
        settings: &first.settings,
        listeners: &first.listeners,
    };
    lines(&needs_restart(&[source(text)], &second, &running))
}

#[test]
fn a_key_that_is_read_at_start_only_is_told_at_its_place() {
    let start = format!("workers = 2\n{MINIMAL}");
    assert_eq!(
        waiting(&start, &start.replace("workers = 2", "workers = 1")),
        [
            "lb.toml:1:11: warning: `workers` is read at start only: 1 takes effect with a restart; 2 run now"
        ]
    );
    let text = start.replace(":8000\"", ":8000\"\nbacklog = 16")
        + "[admin]\nsocket = \"off\"\nbind = \"127.0.0.1:9902\"\ntoken = \"0123456789abcdef\"\n\
           [health]\nbind = \"off\"\n[metrics]\nbind = \"127.0.0.1:1\"\n[limits]\nupstream_idle_max = 5\n";
    let stays = |key: &str, wanted: &str, runs: &str| {
        let read = if key.starts_with("listener") {
            "when the socket is opened"
        } else {
            "at start only"
        };
        format!(
            "`{key}` is read {read}: {wanted} takes effect with a restart; until then it stays {runs}"
        )
    };
    let told: Vec<String> = waiting(&start, &text)
        .iter()
        .map(|line| {
            line.split_once(" warning: ")
                .expect("a warning")
                .1
                .to_owned()
        })
        .collect();
    assert_eq!(
        told,
        [
            stays("listener[0].backlog", "16", "4096"),
            stays("admin.socket", "`off`", "/run/mizan/admin.sock"),
            stays("admin.bind", "127.0.0.1:9902", "`off`"),
            stays("health.bind", "`off`", "127.0.0.1:9901"),
            stays("metrics.bind", "127.0.0.1:1", "127.0.0.1:9901"),
            stays("limits.upstream_idle_max", "5", "10000"),
        ]
    );
}

#[test]
fn what_a_reload_applies_needs_no_restart() {
    let start =
        format!("{MINIMAL}[admin]\nbind = \"127.0.0.1:9902\"\ntoken = \"0123456789abcdef\"\n");
    let text = start
        .replace("0123456789abcdef", "fedcba9876543210")
        .replace(":8000\"", ":8001\"\nbacklog = 16")
        + "[log]\naccess = \"stdout\"\n[drain]\nwindow = \"1s\"\n[reload]\nwatch = false\n";
    assert_eq!(waiting(&start, &text), [""; 0]);
    assert_eq!(waiting(&start, &start), [""; 0]);
}

#[test]
fn nothing_is_resolved_for_a_file_that_is_refused() {
    let text = MINIMAL
        .replace("10.0.0.2:8080", "app.local:80")
        .replace("pool = \"api\"", "pool = \"apis\"");
    let never = |_: &str| -> io::Result<Vec<SocketAddr>> { panic!("asked for a name") };
    assert!(
        compile(
            &[Source::new("lb.toml", text)],
            None,
            &never,
            Instant::default(),
            1
        )
        .is_err()
    );
}

//! The readers in `examples/readers`, in five languages, on one file; and beside a writer that is killed again and again.
//!
//! `MIZAN_TORTURE_READS` is how often each reads in the torture; 10,000,000 in the long run.

use mizan_store::image::{self, About, Durability, Place};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const ENTRIES: [(&str, &str); 6] = [
    (
        "boosts/kr/kpop/past",
        r#"{"expires_at_ms":1000,"factor":2,"schema":1}"#,
    ),
    (
        "chains/kr/trending",
        r#"{"pools":["kpop",{"allow_remote":true,"pool":"jpop","region":"jp"}],"schema":1}"#,
    ),
    ("meta", r#"{"schema":1}"#),
    (
        "pools/kr/kpop",
        r#"{"health":{"interval":"2s","path":"/healthz"},"policy":"power_of_two","schema":1}"#,
    ),
    ("settings/ko", r#"{"schema":1,"tokenizer":"형태소/mecab"}"#),
    ("settings/zh-Hant", r#"{"schema":1,"tokenizer":"ckip"}"#),
];

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/readers")
}

/// How each reader is started; what has to be built is built into `scratch`.
fn readers(scratch: &Path) -> Vec<(&'static str, Vec<String>)> {
    let text = |path: PathBuf| path.to_str().expect("a path").to_owned();
    let at = |file: &str| text(examples().join(file));
    let (go, rust) = (text(scratch.join("go")), text(scratch.join("rust")));
    let mut build = Command::new("go");
    build
        .args(["build", "-o", &go, "."])
        .current_dir(examples().join("go"));
    build
        .env("GOCACHE", scratch.join("go-cache"))
        .env("GOFLAGS", "-mod=mod");
    run(build);
    let mut build = Command::new("rustc");
    build.args([
        "--edition",
        "2024",
        "-O",
        "-o",
        &rust,
        &at("rust/mizan_table.rs"),
    ]);
    run(build);
    vec![
        ("php", vec!["php".to_owned(), at("php/mizan_table.php")]),
        (
            "python",
            vec!["python3".to_owned(), at("python/mizan_table.py")],
        ),
        ("node", vec!["node".to_owned(), at("node/mizan-table.mjs")]),
        ("go", vec![go]),
        ("rust", vec![rust]),
    ]
}

fn run(mut command: Command) -> Output {
    let name = format!("{command:?}");
    let done = command.output();
    let done = done.unwrap_or_else(|error| panic!("{name}: {error}; `make setup` installs it"));
    assert!(
        done.status.success(),
        "{name}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
    done
}

fn command(words: &[String], more: &[&str]) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).args(more);
    command
}

fn golden() -> Vec<u8> {
    let about = About {
        revision: 4_294_967_297,
        store: 7,
        written_ms: 1_800_000_000_000,
    };
    image::write(&about, ENTRIES).expect("it can be written")
}

/// The format is a promise: readers of it are in other people's code.
#[test]
fn the_format_is_what_it_was() {
    let path = examples().join("golden/routing.snap");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, golden()).expect("it can be written");
    }
    let before = std::fs::read(&path).expect("it is there");
    assert!(
        before == golden(),
        "the file's format has changed: it needs another major version"
    );
}

#[test]
fn every_reader_reads_the_same() {
    let scratch = tempfile::tempdir().expect("a folder");
    let place = Place::open(&scratch.path().join("table")).expect("it is made");
    place
        .put("routing.snap", &golden(), Durability::Memory)
        .expect("it is put");
    let file = place.path().join("routing.snap");
    let file = file.to_str().expect("a path");
    let keys: Vec<&str> = ENTRIES
        .iter()
        .map(|(key, _)| *key)
        .chain(["pools/kr/none"])
        .collect();
    let documents = ENTRIES.iter().map(|(_, value)| *value).chain(["null"]);
    let documents: Vec<&str> = documents.collect();
    for (name, words) in readers(scratch.path()) {
        let listed = run(command(&words, &[file]));
        let listed = String::from_utf8_lossy(&listed.stdout);
        let mut listed = listed.split_whitespace();
        assert_eq!(listed.next(), Some("4294967297"), "{name}");
        assert_eq!(listed.collect::<Vec<_>>(), keys[..keys.len() - 1], "{name}");
        let found = run(command(&words, &[&[file], &keys[..]].concat()));
        let found = String::from_utf8_lossy(&found.stdout);
        assert_eq!(found.lines().collect::<Vec<_>>(), documents, "{name}");
    }
}

#[test]
fn every_reader_refuses_what_is_damaged_or_could_be_anybodys() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = tempfile::tempdir().expect("a folder");
    let path = scratch.path().join("routing.snap");
    let file = path.to_str().expect("a path");
    let whole = golden();
    let mut bad: Vec<(&str, Vec<u8>)> = vec![
        ("cut", whole[..whole.len() - 1].to_vec()),
        ("empty", Vec::new()),
    ];
    for (what, at) in [
        ("magic", 0),
        ("major", 8),
        ("header", 17),
        ("json", 70),
        ("index", whole.len() - 3),
    ] {
        let mut bytes = whole.clone();
        bytes[at] ^= 4;
        bad.push((what, bytes));
    }
    for (name, words) in readers(scratch.path()) {
        let refuses = |what: &str| {
            let done = command(&words, &[file, "meta"])
                .output()
                .expect("it starts");
            assert!(!done.status.success(), "{name} takes it: {what}");
            assert!(done.stdout.is_empty(), "{name} uses it: {what}");
        };
        for (what, bytes) in &bad {
            std::fs::write(&path, bytes).expect("it is written");
            refuses(what);
        }
        std::fs::write(&path, &whole).expect("it is written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).expect("a mode");
        refuses("writable for all");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("a mode");
        run(command(&words, &[file, "meta"]));
        let real = scratch.path().join("real");
        std::fs::rename(&path, &real).expect("it is moved");
        std::os::unix::fs::symlink(&real, &path).expect("a link");
        refuses("a link");
        std::fs::remove_file(&path).expect("it goes");
        refuses("not there");
    }
}

/// The process that writes; killed when it is dropped.
struct Writer(Child);

impl Writer {
    fn start(folder: &Path) -> Self {
        let test = std::env::current_exe().expect("a path");
        let built = test.ancestors().nth(2).expect("a folder");
        let program = built.join("examples/table_writer");
        let child = Command::new(program)
            .arg(folder)
            .stdin(Stdio::null())
            .spawn();
        Self(child.expect("`cargo build -p mizan-store --examples` builds it, as `cargo test` without `--test` does"))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.0.kill().expect("it runs");
        self.0.wait().expect("it ends");
    }
}

#[test]
fn no_reader_ever_sees_half_of_a_table() {
    let reads = std::env::var("MIZAN_TORTURE_READS").unwrap_or_else(|_| "20000".to_owned());
    let scratch = tempfile::tempdir().expect("a folder");
    let folder = scratch.path().join("table");
    let file = folder.join("routing.snap");
    let mut writer = Writer::start(&folder);
    while !file.exists() {
        std::thread::yield_now();
    }
    let file = file.to_str().expect("a path").to_owned();
    let mut running: Vec<(&str, Child)> = readers(scratch.path())
        .iter()
        .flat_map(|(name, words)| {
            // Eight readers: three languages twice.
            let twice = usize::from(matches!(*name, "php" | "go" | "rust")) + 1;
            (0..twice).map(|_| {
                let mut reader = command(words, &[&file, "--torture", &reads]);
                (
                    *name,
                    reader.stdout(Stdio::piped()).spawn().expect("it starts"),
                )
            })
        })
        .collect();
    let mut kills = 0;
    while running
        .iter_mut()
        .any(|(_, reader)| reader.try_wait().expect("it can be asked").is_none())
    {
        // Whatever it is doing.
        drop(writer);
        kills += 1;
        writer = Writer::start(&folder);
        std::thread::park_timeout(std::time::Duration::from_millis(20 + kills % 17));
    }
    drop(writer);
    let mut changes = 0;
    for (name, reader) in running {
        let done = reader.wait_with_output().expect("it ended");
        let text = String::from_utf8_lossy(&done.stdout);
        let said: serde_json::Value =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}: {text}"));
        assert_eq!(said["torn"], 0, "{name}: {said}");
        changes += said["changes"].as_u64().expect("a number");
    }
    assert!(
        kills > 1 && changes > 50,
        "{kills} kills, {changes} changes seen"
    );
}

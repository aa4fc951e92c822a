use super::*;
use std::collections::HashMap;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new(files: &[(&str, &str)]) -> Self {
        let folder = Self(tempfile::tempdir().expect("a folder"));
        for (name, text) in files {
            folder.write(name, text);
        }
        folder
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("in the folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn load(&self, variables: &[(&str, &str)]) -> Vec<Source> {
        let variables: HashMap<String, String> = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        load_with(&self.path("lb.toml"), &|name| variables.get(name).cloned())
            .expect("the main file is there")
    }

    fn names(&self, sources: &[Source]) -> Vec<String> {
        let relative = |source: &Source| {
            source
                .path
                .strip_prefix(self.0.path())
                .expect("inside")
                .display()
                .to_string()
        };
        sources.iter().map(relative).collect()
    }
}

fn messages(sources: &[Source]) -> Vec<String> {
    let problems = sources.iter().flat_map(|source| &source.problems);
    problems
        .map(|problem| format!("{}:{} {}", problem.line, problem.column, problem.message))
        .collect()
}

#[test]
fn includes_are_read_by_name_and_once() {
    let folder = Folder::new(&[
        (
            "lb.toml",
            "include = [\"conf.d/*.toml\", \"conf.d/b.toml\", \"more.toml\"]",
        ),
        ("conf.d/b.toml", ""),
        ("conf.d/a.toml", ""),
        ("conf.d/.hidden.toml", ""),
        ("conf.d/a.toml.bak", ""),
        ("more.toml", ""),
    ]);
    let sources = folder.load(&[]);
    assert_eq!(
        folder.names(&sources),
        ["lb.toml", "conf.d/a.toml", "conf.d/b.toml", "more.toml"]
    );
    assert_eq!(messages(&sources), Vec::<String>::new());
}

#[test]
fn a_pattern_may_match_nothing_but_a_file_must_be_there() {
    let folder = Folder::new(&[(
        "lb.toml",
        "include = [\"conf.d/*.toml\", \"more.toml\", \"*/x.toml\"]",
    )]);
    let problems = messages(&folder.load(&[]));
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(
        problems[0].contains("more.toml` is not there"),
        "{problems:?}"
    );
    assert!(
        problems[1].contains("`*` may stand in the last part"),
        "{problems:?}"
    );
}

#[test]
fn a_main_file_that_is_not_there_is_told() {
    let folder = Folder::new(&[]);
    let problems = load_with(&folder.path("lb.toml"), &|_| None).expect_err("there is no file");
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].code, "unreadable");
}

#[test]
fn what_is_not_text_is_told_with_its_line() {
    let folder = Folder::new(&[("lb.toml", "")]);
    fs::write(folder.path("lb.toml"), b"a = 1\nb = \"\xff\"\n").expect("a file");
    let problems = load_with(&folder.path("lb.toml"), &|_| None).expect_err("it is not UTF-8");
    assert!(
        problems[0].message.contains("not UTF-8 (line 2)"),
        "{}",
        problems[0].message
    );
}

#[test]
fn variables_are_put_in_and_the_text_keeps_its_places() {
    let folder = Folder::new(&[(
        "lb.toml",
        "a = \"${HOST}:${PORT}\"\nb = 'no $${HOME}, ${1}'\nc = \"plain\"\n",
    )]);
    let sources = folder.load(&[("HOST", "10.0.0.1"), ("PORT", "80")]);
    let values: Vec<_> = sources[0].values.values().cloned().collect();
    assert_eq!(
        values,
        [
            Some("10.0.0.1:80".to_owned()),
            Some("no ${HOME}, ${1}".to_owned())
        ]
    );
    assert!(
        sources[0].text.contains("${HOST}"),
        "the text is as it stands in the file"
    );
}

#[test]
fn a_variable_that_is_not_set_is_marked_itself() {
    let folder = Folder::new(&[(
        "lb.toml",
        "a = \"http://${HOST}/\"\nb = \"${A B}\"\nc = \"${C\"\n",
    )]);
    let sources = folder.load(&[]);
    assert_eq!(
        messages(&sources),
        [
            "1:13 the environment variable `HOST` is not set",
            "2:6 `A B` is no name of an environment variable; write `$${` for a `${` that is meant",
            "3:6 `${` is not closed; write `$${` for one that is meant",
        ]
    );
    let marked = &sources[0].problems[0].span;
    assert_eq!(&sources[0].text[marked.clone()], "${HOST}");
}

#[test]
fn a_token_comes_from_a_file_without_its_line_end() {
    let folder = Folder::new(&[
        (
            "lb.toml",
            "[admin]\ntoken = \"file:secrets/token\"\n[log]\naccess = \"file:secrets/token\"\n",
        ),
        ("secrets/token", "0123456789abcdef\n"),
    ]);
    let sources = folder.load(&[]);
    let values: Vec<_> = sources[0].values.values().cloned().collect();
    assert_eq!(
        values,
        [Some("0123456789abcdef".to_owned())],
        "only where a file is meant"
    );
}

#[test]
fn a_secret_is_neither_in_the_text_nor_shown_when_it_is_wrong() {
    let folder = Folder::new(&[(
        "lb.toml",
        "[admin]\nbind = \"127.0.0.1:1\"\ntoken = \"${TOKEN}\"\n",
    )]);
    let sources = folder.load(&[("TOKEN", "s e c r e t s e c r e t")]);
    let no_names = |_: &str| Err(io::Error::other("none"));
    let all = super::super::compile(
        &sources,
        None,
        &no_names,
        mizan_core::time::Instant::default(),
        1,
    )
    .expect_err("a bad token");
    let drawn: String = all.iter().map(|one| one.render(&sources)).collect();
    assert!(
        drawn.contains("visible ASCII") && !drawn.contains("s e c"),
        "{drawn}"
    );
}

#[test]
fn a_change_of_every_file_that_matters_is_seen_once() {
    let folder = Folder::new(&[
        (
            "lb.toml",
            "include = [\"conf.d/*.toml\"]\n[admin]\ntoken = \"file:token\"\n",
        ),
        (
            "conf.d/a.toml",
            "[[route]]\nrespond = { body = \"file:body\" }\n",
        ),
        ("token", "a"),
        ("conf.d/body", "a"),
        ("other", "a"),
    ]);
    let mut watch = Watch::new(&folder.path("lb.toml"));
    assert!(!watch.changed(), "nothing has changed");
    folder.write("other", "ab");
    assert!(!watch.changed(), "a file that is not read does not matter");
    for name in [
        "conf.d/a.toml",
        "token",
        "conf.d/body",
        "conf.d/new.toml",
        "conf.d/new.toml",
        "lb.toml",
    ] {
        let old = fs::read_to_string(folder.path(name)).unwrap_or_default();
        folder.write(name, &format!("{old}\n"));
        assert!(watch.changed(), "{name}");
        assert!(!watch.changed(), "{name} is seen once");
    }
    fs::remove_file(folder.path("conf.d/new.toml")).expect("it was there");
    assert!(watch.changed(), "a file that is gone");
}

#[test]
fn the_admin_socket_is_in_the_users_own_folder_only_without_a_system_one() {
    let socket = default_admin_socket_with(&|name| {
        (name == "XDG_RUNTIME_DIR").then(|| "/run/user/7".to_owned())
    });
    let system = Path::new("/run/mizan").is_dir();
    assert_eq!(
        socket,
        Path::new(if system {
            "/run/mizan/admin.sock"
        } else {
            "/run/user/7/mizan/admin.sock"
        })
    );
    assert_eq!(
        default_admin_socket_with(&|_| None),
        Path::new("/run/mizan/admin.sock")
    );
}

#[test]
fn a_star_stands_for_any_characters() {
    for (pattern, name, fits) in [
        ("*.toml", "a.toml", true),
        ("*.toml", ".toml", true),
        ("*.toml", "a.toml.bak", false),
        ("a*b*c", "abc", true),
        ("a*b*c", "axxbyyc", true),
        ("a*b*c", "acb", false),
        ("*", "anything", true),
        ("a", "a", true),
        ("a", "ab", false),
        ("ab*ba", "aba", false),
    ] {
        assert_eq!(glob(pattern, name), fits, "{pattern} {name}");
    }
}

#[test]
fn a_file_that_includes_itself_is_told_unless_a_pattern_only_meets_it() {
    let folder = Folder::new(&[
        (
            "lb.toml",
            "include = [\"lb.toml\", \"conf.d/../lb.toml\", \"*.toml\"]",
        ),
        ("conf.d/a.toml", ""),
        ("more.toml", ""),
    ]);
    let sources = folder.load(&[]);
    let itself = "this is the file itself; an include names others";
    assert_eq!(
        messages(&sources),
        [format!("1:12 {itself}"), format!("1:23 {itself}")]
    );
    assert_eq!(folder.names(&sources), ["lb.toml", "more.toml"]);
}

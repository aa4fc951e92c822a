//! Every example loads, and without a warning.

use mizan::config;
use mizan::snapshot::route::{Action, RequestView};
use mizan_core::time::Instant;
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

fn examples() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(with_certificates()).expect("the folder is there");
    let mut found: Vec<PathBuf> = entries
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|end| end == "toml"))
        .collect();
    found.sort();
    assert!(found.len() >= 5, "{found:?}");
    found
}

/// A copy of the examples, with the certificates that they name beside them.
fn with_certificates() -> &'static Path {
    static COPY: OnceLock<tempfile::TempDir> = OnceLock::new();
    let make = || {
        let copy = tempfile::tempdir().expect("a folder");
        copy_folder(&folder(), copy.path());
        let certs = copy.path().join("certs");
        std::fs::create_dir(&certs).expect("a folder");
        for (name, names, kind) in [
            ("example.org", vec!["example.org"], &PKCS_ECDSA_P256_SHA256),
            ("example.org-rsa", vec!["example.org"], &PKCS_RSA_SHA256),
            (
                "wildcard.customers",
                vec!["*.customers.example.org"],
                &PKCS_ECDSA_P256_SHA256,
            ),
            ("partners-ca", vec!["ca"], &PKCS_ECDSA_P256_SHA256),
            ("internal-ca", vec!["ca"], &PKCS_ECDSA_P256_SHA256),
            ("mizan", vec!["mizan.internal"], &PKCS_ECDSA_P256_SHA256),
        ] {
            let key = KeyPair::generate_for(kind).expect("a key");
            let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
            let certificate = CertificateParams::new(names).and_then(|mut params| {
                if name.ends_with("-ca") {
                    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
                }
                params.self_signed(&key)
            });
            let pem = certificate.expect("a certificate").pem();
            std::fs::write(certs.join(format!("{name}.pem")), pem).expect("written");
            std::fs::write(certs.join(format!("{name}.key")), key.serialize_pem())
                .expect("written");
        }
        let tickets = certs.join("tickets.key");
        std::fs::write(&tickets, "a1".repeat(32)).expect("written");
        let closed = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&tickets, closed).expect("it is ours");
        copy
    };
    COPY.get_or_init(make).path()
}

fn copy_folder(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).expect("the folder is there") {
        let path = entry.expect("readable").path();
        let copy = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            std::fs::create_dir(&copy).expect("a folder");
            copy_folder(&path, &copy);
        } else {
            std::fs::copy(&path, &copy).expect("copied");
        }
    }
}

/// What the examples take from the environment.
fn environment(name: &str) -> Option<String> {
    (name == "MIZAN_TOKEN").then(|| "0123456789abcdef0123456789abcdef".to_owned())
}

fn compile(
    path: &Path,
) -> (
    mizan::snapshot::Snapshot,
    Vec<config::Diagnostic>,
    Vec<config::Source>,
) {
    let drawn = |all: &[config::Diagnostic], sources: &[config::Source]| {
        all.iter()
            .map(|one| one.render(sources))
            .collect::<Vec<_>>()
            .join("\n")
    };
    let sources =
        config::load_with(path, &environment).unwrap_or_else(|all| panic!("{}", drawn(&all, &[])));
    let resolve = |_: &str| Ok(vec![SocketAddr::from(([192, 0, 2, 1], 80))]);
    match config::compile(&sources, None, &resolve, Instant::default(), 1) {
        Ok((snapshot, warnings)) => (snapshot, warnings, sources),
        Err(all) => panic!("{}:\n{}", path.display(), drawn(&all, &sources)),
    }
}

#[test]
fn every_example_loads_without_a_warning() {
    for path in examples() {
        let (_, warnings, sources) = compile(&path);
        let drawn: Vec<String> = warnings
            .iter()
            .map(|warning| warning.render(&sources))
            .collect();
        assert!(
            drawn.is_empty(),
            "{}:\n{}",
            path.display(),
            drawn.join("\n")
        );
    }
}

#[test]
fn no_timing_relation_of_an_example_is_violated() {
    for path in examples() {
        let (_, _, sources) = compile(&path);
        let failed: Vec<_> = config::relations(&sources)
            .into_iter()
            .filter(|relation| relation.verdict == config::Verdict::Fail)
            .collect();
        assert!(failed.is_empty(), "{}: {failed:?}", path.display());
    }
}

/// A GET as routes see it.
struct Get<'r> {
    host: &'r str,
    path: &'r str,
}

impl RequestView for Get<'_> {
    fn method(&self) -> &[u8] {
        b"GET"
    }
    fn host(&self) -> &str {
        self.host
    }
    fn path(&self) -> &str {
        self.path
    }
    fn query(&self) -> Option<&[u8]> {
        None
    }
    fn header(&self, _: &str) -> Option<std::borrow::Cow<'_, [u8]>> {
        None
    }
    fn client(&self) -> Option<IpAddr> {
        None
    }
}

#[test]
fn the_example_of_hosts_does_what_its_comments_say() {
    let path = examples()
        .into_iter()
        .find(|path| path.ends_with("hosts.toml"))
        .expect("hosts.toml is there");
    let (snapshot, _, _) = compile(&path);
    let taken = |listener: &str, host: &str, path: &str| {
        let route = snapshot.routes.find(listener, &Get { host, path })?;
        Some(match &route.action {
            Action::Forward(split) => split.choose(0).name.to_string(),
            Action::Redirect { location, .. } => location.clone(),
            Action::Respond { body, .. } => String::from_utf8_lossy(body).into_owned(),
        })
    };
    let robots = "User-agent: *\nDisallow: /api/\n";
    let www = "http://www.example.org{path}{query}";
    for (listener, host, path, expected) in [
        ("public", "example.org", "/a", www),
        ("public", "example.org", "/robots.txt", www),
        ("public", "www.example.org", "/a", "web"),
        ("public", "www.example.org", "/api/users", "api"),
        ("public", "www.example.org", "/robots.txt", robots),
        ("public", "www.example.org", "/reports/x", "web"),
        ("internal", "www.example.org", "/reports/x", "reports"),
        ("internal", "www.example.org", "/robots.txt", robots),
        ("public", "a.customers.example.org", "/a", "web"),
        ("public", "a.customers.example.org", "/robots.txt", robots),
        ("internal", "a.customers.example.org", "/reports/x", "web"),
    ] {
        let found = taken(listener, host, path);
        assert_eq!(found.as_deref(), Some(expected), "{listener} {host} {path}");
    }
    assert_eq!(taken("public", "other.example", "/a"), None);
}

#[test]
fn the_full_example_names_every_key() {
    let text = std::fs::read_to_string(
        examples()
            .into_iter()
            .find(|path| path.ends_with("full.toml"))
            .expect("full.toml is there"),
    )
    .expect("readable");
    let schema = config::json_schema();
    let tables = schema["$defs"]
        .as_object()
        .expect("definitions")
        .values()
        .chain([&schema]);
    for table in tables {
        for key in table["properties"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, _)| key)
        {
            let is_named = text.lines().any(|line| {
                let line = line.trim_start_matches(['#', ' ', '[', '{']);
                line.split(['=', ',', '{', '[', ']', '.', ' '])
                    .any(|word| word == key)
            });
            assert!(is_named, "`{key}` is not in examples/full.toml");
        }
    }
}

#[test]
fn what_the_full_example_shows_as_a_default_is_the_default() {
    let full = std::fs::read_to_string(
        examples()
            .into_iter()
            .find(|path| path.ends_with("full.toml"))
            .expect("full.toml is there"),
    )
    .expect("readable");
    let minimal = "[[listener]]\nbind = \"0.0.0.0:8000\"\n[[route]]\npool = \"defaults\"\n[pool.defaults]\nbackends = [\"10.0.0.1:8080\"]\n";
    let start = full
        .find("[pool.defaults]")
        .expect("the pool that spells its defaults out");
    let spelt = format!(
        "{}{}",
        &minimal[..minimal.find("[pool").expect("there")],
        &full[start..]
    );
    let compile = |text: &str| {
        let no_names = |_: &str| Ok(Vec::new());
        config::compile(
            &[config::Source::new("lb.toml", text)],
            None,
            &no_names,
            Instant::default(),
            1,
        )
        .expect("compiles")
        .0
    };
    let (short, long) = (compile(minimal), compile(&spelt));
    let (short, long) = (&short.pools["defaults"], &long.pools["defaults"]);
    assert_eq!(short.config, long.config);
    assert_eq!(
        (
            &short.timeouts,
            &short.retry,
            &short.keepalive,
            &short.queue
        ),
        (&long.timeouts, &long.retry, &long.keepalive, &long.queue)
    );
}

/// One command loads it, and it could come into force in each of its markets.
#[test]
fn the_eight_markets_are_a_good_table() {
    let folder =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/asia-pacific");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_mizan"))
        .args(["config", "validate"])
        .arg(folder.join("table.json"))
        .output()
        .expect("mizan runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("is good"),
        "{said}"
    );
}

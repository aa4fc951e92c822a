//! A reload that changes how clients authenticate themselves reaches the connections that are open.

use crate::support::tls::h2_client;
use crate::support::*;
use rustls::ClientConfig;
use std::path::Path;

const GET: &str = "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";

struct Scene {
    files: Files,
    backend: Backend,
    mizan: Mizan,
}

struct Files {
    authority: Authority,
    /// Signs certificates of clients, too.
    other: Authority,
    /// The listener's.
    entry: String,
}

impl Files {
    fn new() -> Self {
        let (authority, other) = (Authority::new(), Authority::new());
        let entry = authority.issue(&["a.example"]).entry();
        let read = |path: &Path| std::fs::read_to_string(path).expect("readable");
        let both = read(&authority.roots_file()) + &read(&other.roots_file());
        std::fs::write(authority.folder().join("both.pem"), both).expect("written");
        Self {
            authority,
            other,
            entry,
        }
    }

    /// A configuration with that `client_auth`; `{ours}` and `{both}` stand for files of roots.
    fn config(&self, backend: &Backend, auth: &str) -> String {
        let both = self.authority.folder().join("both.pem");
        let auth = auth
            .replace("{ours}", &self.authority.roots_file().display().to_string())
            .replace("{both}", &both.display().to_string());
        format!(
            "{}[[listener]]\nname = \"tls\"\nbind = \"{{listen2}}\"\n[listener.tls]\ncertificates = [{}]\n{auth}\n",
            config("", "", &[backend.address()]),
            self.entry
        )
    }
}

impl Scene {
    fn started(auth: &str) -> Self {
        let files = Files::new();
        let backend = Backend::healthy("a");
        let mizan = Mizan::start(&files.config(&backend, auth));
        Self {
            files,
            backend,
            mizan,
        }
    }

    #[track_caller]
    fn reload(&self, auth: &str) {
        self.mizan
            .write_config(&self.files.config(&self.backend, auth));
        let output = self.mizan.command(&["reload"]);
        assert!(output.status.success(), "{output:?}");
    }

    /// A client of HTTP/1.1 over TLS that was answered once, with the relay that it goes through.
    fn one(&self, config: ClientConfig) -> (Relay, Client) {
        let relay = Relay::back(config, self.mizan.address2(), "a.example");
        let mut client = Client::connect(relay.address);
        assert_eq!(client.get("/").status, 200);
        (relay, client)
    }

    /// One of HTTP/2.
    fn two(&self, config: ClientConfig) -> H2Client {
        let client = h2_client(self.mizan.address2(), "a.example", config);
        assert_eq!(client.get("/").status, 200);
        client
    }
}

/// Both are told that their connection will not do, and it ends.
#[track_caller]
fn expect_turned_away(scene: &Scene, one: &mut Client, two: &H2Client) {
    let before = scene.backend.requests();
    one.send(GET);
    let answer = one.read();
    assert_eq!(answer.status, 421);
    assert_eq!(answer.field("connection"), Some("close"));
    assert!(answer.text().contains("client_auth_changed"));
    one.expect_closed();
    match run(two.ask(Ask::get("/"))) {
        Ok(answer) => assert_eq!(answer.status, 421),
        Err(error) => assert!(error.is_go_away() || error.is_io(), "{error:?}"),
    }
    assert_eq!(scene.backend.requests(), before, "one was served");
    eventually(PATIENCE, "the connection ends", || two.is_over());
}

#[test]
fn a_client_that_was_never_asked_for_a_certificate_is_turned_away_once_it_must_show_one() {
    let scene = Scene::started("");
    let (_relay, mut one) = scene.one(scene.files.authority.client(&[]));
    let two = scene.two(scene.files.authority.client(&["h2"]));
    scene.reload("client_auth = { roots = \"{ours}\" }");
    expect_turned_away(&scene, &mut one, &two);
}

#[test]
fn a_client_that_showed_none_where_it_could_is_turned_away_where_it_must() {
    let scene = Scene::started("client_auth = { roots = \"{ours}\", mode = \"optional\" }");
    let (_relay, mut one) = scene.one(scene.files.authority.client(&[]));
    let two = scene.two(scene.files.authority.client(&["h2"]));
    scene.reload("client_auth = { roots = \"{ours}\" }");
    expect_turned_away(&scene, &mut one, &two);
}

#[test]
fn a_client_whose_root_is_believed_no_more_is_turned_away_and_others_notice_nothing() {
    for mode in ["required", "optional"] {
        let auth = |roots| format!("client_auth = {{ roots = \"{roots}\", mode = \"{mode}\" }}");
        let scene = Scene::started(&auth("{both}"));
        let (alice, bob) = (
            scene.files.authority.issue(&["alice.example"]),
            scene.files.other.issue(&["bob.example"]),
        );
        let (_relay, mut lasting) = scene.one(scene.files.authority.client_as(&alice, &[]));
        let lasting_two = scene.two(scene.files.authority.client_as(&alice, &["h2"]));
        let (_relay, mut one) = scene.one(scene.files.authority.client_as(&bob, &[]));
        let two = scene.two(scene.files.authority.client_as(&bob, &["h2"]));
        scene.reload(&auth("{ours}"));
        expect_turned_away(&scene, &mut one, &two);
        let answer = lasting.get("/");
        assert_eq!(answer.status, 200);
        assert_eq!(answer.field("connection"), None);
        assert_eq!(lasting_two.get("/").status, 200);
        let last = scene.backend.recorded().pop().expect("a request");
        assert!(last.contains("CN=alice.example"), "{last}");
        assert!(!lasting_two.is_over());
    }
}

#[test]
fn a_client_that_may_show_a_certificate_from_now_on_is_served_as_nobody_and_comes_again() {
    let scene = Scene::started("");
    let alice = scene.files.authority.issue(&["alice.example"]);
    let (_relay, mut one) = scene.one(scene.files.authority.client_as(&alice, &[]));
    let two = scene.two(scene.files.authority.client_as(&alice, &["h2"]));
    scene.reload("client_auth = { roots = \"{ours}\", mode = \"optional\" }");
    let answer = one.get("/");
    assert_eq!(answer.status, 200);
    assert_eq!(answer.field("connection"), Some("close"));
    let last = scene.backend.recorded().pop().expect("a request");
    assert!(last.contains("verified: NONE"), "{last}");
    eventually(PATIENCE, "the connection ends", || two.is_over());
}

#[test]
fn a_session_of_other_roots_does_not_resume() {
    let scene = Scene::started("client_auth = { roots = \"{both}\" }");
    let bob = scene.files.other.issue(&["bob.example"]);
    let (relay, _one) = scene.one(scene.files.authority.client_as(&bob, &[]));
    assert_eq!(Client::connect(relay.address).get("/").status, 200);
    let resumed = || {
        let count = scene
            .mizan
            .metric("mizan_tls_handshakes_total", "\"resumed\"");
        count as usize
    };
    assert_eq!(resumed(), 1);
    scene.reload("client_auth = { roots = \"{ours}\" }");
    let mut again = Client::connect(relay.address);
    again.send(GET);
    assert!(again.try_read("GET").is_err(), "served");
    assert_eq!(resumed(), 1);
}

//! The rest of the edges: address families, routes over real requests, logs that are reopened.

use crate::support::*;
use rustix::process::Signal;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn a_listener_on_all_ipv6_addresses_takes_ipv4_too_and_a_backend_may_be_ipv6() {
    let backend =
        Backend::start_at("[::1]:0", "six", Exchange::serve).expect("the loopback has IPv6");
    let port = mizan::free_address().port();
    let mizan = Mizan::start(&format!(
        "[[listener]]\nbind = \"[::]:{port}\"\n[[route]]\npool = \"api\"\n{}",
        pool_of("", &[backend.address()])
    ));
    for address in ["127.0.0.1", "::1"] {
        let address = SocketAddr::new(address.parse().expect("an address"), port);
        assert_eq!(
            Client::connect(address).get("/").text(),
            "six:0",
            "{address}"
        );
    }
    let forwarded = backend.recorded().concat().to_lowercase();
    assert!(
        forwarded.contains("x-forwarded-for: 127.0.0.1\r\n"),
        "a mapped address was not unmapped: {forwarded}"
    );
    drop(mizan);
}

#[test]
fn the_file_of_a_unix_socket_has_the_mode_that_the_listener_states() {
    let mizan = Mizan::start(
        "[[listener]]\nbind = \"unix:{dir}/front.sock\"\nmode = \"0662\"\n[[route]]\nrespond = { body = \"here\" }\n",
    );
    let file = std::fs::metadata(mizan.directory().join("front.sock")).expect("it listens");
    assert_eq!(file.permissions().mode() & 0o777, 0o662);
}

#[test]
fn a_unix_socket_may_be_a_listener_and_a_backend() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let path = directory.path().join("backend.sock");
    let listener = UnixListener::bind(&path).expect("the folder can be written");
    let backend = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("mizan connects");
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("a request");
            request.extend(byte);
        }
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nunix")
            .expect("mizan reads");
    });
    let mizan = Mizan::start(&format!(
        "[[listener]]\nbind = \"unix:{{dir}}/front.sock\"\n[[route]]\npool = \"api\"\n[pool.api]\nbackends = [\"unix:{}\"]\n",
        path.display()
    ));
    let mut client = UnixStream::connect(mizan.directory().join("front.sock")).expect("it listens");
    client
        .write_all(b"GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n")
        .expect("it reads");
    let mut response = String::new();
    client.read_to_string(&mut response).expect("it answers");
    assert!(
        response.starts_with("HTTP/1.1 200 OK\r\n") && response.ends_with("\r\n\r\nunix"),
        "{response}"
    );
    backend.join().expect("the backend had its request");
}

#[test]
fn routes_redirect_answer_rewrite_and_edit_headers() {
    let backend = Backend::healthy("a");
    let mizan = Mizan::start(&format!(
        r#"
[[listener]]
bind = "{{listen}}"
[[route]]
host = "old.example"
redirect = {{ status = 308, location = "https://new.example{{path}}{{query}}" }}
[[route]]
path = "/teapot"
respond = {{ status = 418, body = "short and stout" }}
[[route]]
prefix = "/api"
pool = "api"
rewrite = {{ prefix = "/v2" }}
request_headers = {{ set = {{ x-env = "test" }}, remove = ["x-secret"] }}
response_headers = {{ add = {{ x-served = "mizan" }}, remove = ["x-backend"] }}
{}
"#,
        pool_of("", &[backend.address()])
    ));
    let mut client = mizan.client();
    let moved = client.exchange("GET /a/b?c=d HTTP/1.1\r\nHost: OLD.example:80\r\n\r\n");
    assert_eq!(
        (moved.status, moved.field("location")),
        (308, Some("https://new.example/a/b?c=d"))
    );
    let teapot = client.get("/teapot");
    assert_eq!(
        (teapot.status, teapot.text().as_str()),
        (418, "short and stout")
    );
    assert_eq!(client.get("/nothing").status, 404);
    let api =
        client.exchange("GET /api/users?x=1 HTTP/1.1\r\nHost: a.example\r\nX-Secret: 1\r\n\r\n");
    assert_eq!(
        (api.field("x-served"), api.field("x-backend")),
        (Some("mizan"), None)
    );
    let sent = backend.recorded().remove(0).to_lowercase();
    assert!(sent.starts_with("get /v2/users?x=1 http/1.1\r\n"), "{sent}");
    assert!(
        sent.contains("x-env: test\r\n") && !sent.contains("x-secret"),
        "{sent}"
    );
}

#[test]
fn a_log_file_that_was_moved_away_is_opened_anew_at_sigusr1() {
    let backend = Backend::healthy("a");
    let log = format!(
        "[log]\naccess = \"{{dir}}/access.log\"\n{}",
        config("", "", &[backend.address()])
    );
    let mizan = Mizan::start(&log);
    let (path, moved) = (
        mizan.directory().join("access.log"),
        mizan.directory().join("access.log.1"),
    );
    let has = |path: &std::path::Path, text: &str| {
        std::fs::read_to_string(path).is_ok_and(|log| log.contains(text))
    };
    mizan.get("/before?secret=1");
    eventually(PATIENCE, "the request is logged", || has(&path, "/before"));
    assert!(!has(&path, "secret"), "a query string was logged");
    std::fs::rename(&path, &moved).expect("the folder can be written");
    mizan.signal(Signal::USR1);
    eventually(PATIENCE, "the log is there again", || path.exists());
    mizan.get("/after");
    eventually(PATIENCE, "the request is in the new file", || {
        has(&path, "/after")
    });
    assert!(!has(&moved, "/after"));
}

#[test]
fn max_forwards_is_counted_down_and_ends_at_mizan() {
    let backend = Backend::healthy("a");
    let mizan = Mizan::start(&config("", "", &[backend.address()]));
    let options = |method: &str, left: &str| {
        let request =
            format!("{method} /x HTTP/1.1\r\nHost: a.example\r\nMax-Forwards: {left}\r\n\r\n");
        mizan.client().exchange(request).status
    };
    assert_eq!((options("OPTIONS", "0"), options("TRACE", "0")), (200, 405));
    assert_eq!(backend.requests(), 0);
    assert_eq!((options("OPTIONS", "5"), options("GET", "0")), (200, 200));
    let seen = backend.recorded();
    assert!(seen[0].contains("Max-Forwards: 4\r\n"), "{}", seen[0]);
    assert!(seen[1].contains("Max-Forwards: 0\r\n"), "{}", seen[1]);
}

#[test]
fn an_empty_line_before_a_request_is_passed_over_however_it_is_cut() {
    let backend = Backend::healthy("a");
    let mizan = Mizan::start(&config("", "", &[backend.address()]));
    let mut client = mizan.client();
    assert_eq!(client.get("/").status, 200);
    for pieces in [vec!["\r\n"], vec!["\r", "\n"], vec!["\r\n\r", "\n"]] {
        for piece in pieces {
            client.send(piece);
            pass(std::time::Duration::from_millis(20));
        }
        assert_eq!(client.get("/").status, 200);
    }
}

#[test]
fn a_second_instance_on_the_same_port_does_not_start() {
    let backend = Backend::healthy("a");
    let first = Mizan::start(&config("", "", &[backend.address()]));
    let path = first.directory().join("second.toml");
    let text =
        config("", "", &[backend.address()]).replace("{listen}", &first.address().to_string());
    let others = format!(
        "[admin]\nsocket = {:?}\n[health]\nbind = \"127.0.0.1:0\"\n[metrics]\nbind = \"127.0.0.1:0\"\n",
        first.directory().join("second.sock")
    );
    std::fs::write(&path, format!("{text}{others}")).expect("the folder can be written");
    let second = std::process::Command::new(env!("CARGO_BIN_EXE_mizan"))
        .args(["serve", "--config"])
        .arg(&path)
        .output()
        .expect("mizan runs");
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(
        !second.status.success() && said.contains("in use"),
        "{said}"
    );
    assert_eq!(first.get("/").status, 200);
}

#[test]
fn an_address_has_no_more_connections_than_it_may_and_others_have_theirs() {
    let backend = Backend::healthy("a");
    let keys = "connections_per_address_max = 3";
    let mizan = Mizan::start(&config(keys, "", &[backend.address()]));
    let mut held: Vec<Client> = (0..3).map(|_| mizan.client()).collect();
    for client in &mut held {
        assert_eq!(client.get("/").status, 200);
    }
    // Closed at once, and said so.
    let refused = || mizan.metric("mizan_connections_refused_total", "cause=\"address\"");
    // The reset may come before the connect has returned.
    let is_served = || {
        Client::try_connect(mizan.address()).is_ok_and(|mut client| {
            client.send(GET);
            client.try_read("GET").is_ok()
        })
    };
    assert!(!is_served());
    assert_eq!(refused(), 1.0);
    eventually(PATIENCE, "it is said", || {
        mizan.log().contains("connections_per_address_max")
    });
    // Another address of the loopback is another client.
    let other = std::net::SocketAddr::from(([127, 0, 0, 2], 0));
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
    let socket = socket.expect("a socket");
    socket
        .bind(&other.into())
        .expect("the loopback is a network");
    socket.connect(&mizan.address().into()).expect("it listens");
    let mut stream = TcpStream::from(socket);
    stream.write_all(GET.as_bytes()).expect("it is open");
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 200");
    // Who goes makes room.
    held.pop();
    eventually(PATIENCE, "its place is free", is_served);
}

use super::*;
use crate::h1::line::Lines;
use crate::h1::request::{self, Limits};
use crate::h1::response;

fn forwarded(text: &str, trusted: bool, edits: &HeaderEdits) -> Vec<String> {
    let mut lines = Lines::new();
    let limits = Limits {
        headers_max: 100,
        target_bytes_max: 8192,
    };
    let head = request::parse(text.as_bytes(), &mut lines, limits)
        .expect("a good head")
        .expect("a whole head");
    let mut out = Vec::new();
    let forwarding = Forwarding {
        peer: b"192.0.2.7",
        trusted,
        secure: false,
        http2: false,
        upgrade: None,
        reserved: &[],
        identity: None,
        random: (1, 2),
    };
    let id = write_request(&mut out, &head, head.target, edits, &forwarding);
    let text = String::from_utf8(out).expect("text");
    assert!(text.ends_with("\r\n\r\n"));
    let mut lines: Vec<String> = text.trim_end().split("\r\n").map(str::to_owned).collect();
    lines.push(format!("id={}", &text[id]));
    lines
}

fn has(lines: &[String], line: &str) -> bool {
    lines.iter().any(|have| have == line)
}

#[test]
fn names_order_case_and_values_pass_unchanged() {
    let lines = forwarded(
        "GET /x HTTP/1.1\r\nhOSt: a\r\nX-b: 1\r\nx-B: 2\r\nAccept:  */* \r\n\r\n",
        false,
        &HeaderEdits::default(),
    );
    assert_eq!(
        lines[..5],
        [
            "GET /x HTTP/1.1",
            "hOSt: a",
            "X-b: 1",
            "x-B: 2",
            "Accept: */*"
        ]
    );
}

#[test]
fn hop_by_hop_fields_and_those_named_by_connection_are_removed() {
    let head = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close, X-Hop, content-length\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nTE: trailers\r\nUpgrade: h2c\r\nProxy-Connection: x\r\nContent-Length: 5\r\n\r\n";
    let lines = forwarded(head, false, &HeaderEdits::default())
        .join("\n")
        .to_ascii_lowercase();
    for gone in [
        "x-hop",
        "keep-alive",
        "te:",
        "upgrade",
        "proxy-connection",
        "connection",
    ] {
        assert!(!lines.contains(gone), "{gone} in {lines}");
    }
    assert!(
        lines.contains("content-length: 5"),
        "the framing stays: {lines}"
    );
}

#[test]
fn an_untrusted_peer_cannot_say_who_it_is() {
    let head = "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 10.0.0.1\r\nX_Forwarded_For: 10.0.0.2\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: evil\r\nForwarded: for=10.0.0.3\r\n\r\n";
    let lines = forwarded(head, false, &HeaderEdits::default());
    assert!(has(&lines, "X-Forwarded-For: 192.0.2.7"));
    assert!(has(&lines, "X-Forwarded-Proto: http"));
    assert!(has(&lines, "X-Forwarded-Host: a"));
    assert!(has(
        &lines,
        "Forwarded: for=192.0.2.7;host=\"a\";proto=http"
    ));
    let text = lines.join("\n");
    assert!(!text.contains("10.0.0") && !text.contains("evil"), "{text}");
}

#[test]
fn a_trusted_peer_is_believed_and_appended_to() {
    let head = "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 10.0.0.1\r\nX-Forwarded-Proto: https\r\nForwarded: for=10.0.0.1\r\n\r\n";
    let lines = forwarded(head, true, &HeaderEdits::default());
    assert!(has(&lines, "X-Forwarded-For: 10.0.0.1, 192.0.2.7"));
    assert!(has(&lines, "X-Forwarded-Proto: https"));
    assert!(has(
        &lines,
        "Forwarded: for=10.0.0.1, for=192.0.2.7;host=\"a\";proto=http"
    ));
}

#[test]
fn request_id_and_trace_are_kept_if_sound_and_made_otherwise() {
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let lines = forwarded(
        &format!(
            "GET / HTTP/1.1\r\nHost: a\r\nX-Request-Id: abc-1\r\ntraceparent: {trace}\r\n\r\n"
        ),
        false,
        &HeaderEdits::default(),
    );
    assert!(has(&lines, "id=abc-1") && has(&lines, &format!("traceparent: {trace}")));
    let lines = forwarded(
        "GET / HTTP/1.1\r\nHost: a\r\nX-Request-Id: a b\"\r\ntraceparent: 00-0-0-0\r\n\r\n",
        false,
        &HeaderEdits::default(),
    );
    assert!(
        has(&lines, "id=00000000000000010000000000000002"),
        "{lines:?}"
    );
    let made = lines
        .iter()
        .find_map(|line| line.strip_prefix("traceparent: "))
        .expect("made");
    assert!(is_traceparent(made.as_bytes()), "{made}");
    let long = "x".repeat(129);
    let lines = forwarded(
        &format!("GET / HTTP/1.1\r\nHost: a\r\nX-Request-Id: {long}\r\n\r\n"),
        false,
        &HeaderEdits::default(),
    );
    assert!(!lines.join("").contains(&long));
}

#[test]
fn edits_remove_set_and_add() {
    let edits = HeaderEdits {
        remove: vec!["x-secret".into()],
        set: vec![("x-env".into(), "prod".into())],
        add: vec![("x-tag".into(), "b".into())],
    };
    let lines = forwarded(
        "GET / HTTP/1.1\r\nHost: a\r\nX-Secret: 1\r\nX-Env: dev\r\nX-Tag: a\r\n\r\n",
        false,
        &edits,
    );
    assert!(has(&lines, "x-env: prod") && has(&lines, "X-Tag: a") && has(&lines, "x-tag: b"));
    assert!(!lines.join("").contains("Secret") && !lines.join("").contains("dev"));
}

/// A client that sends many lines must not push out the one that the trusted proxy added.
#[test]
fn the_last_forwarding_lines_are_kept_not_the_first() {
    let forged = "X-Forwarded-For: 1.2.3.4\r\n".repeat(9);
    let head =
        format!("GET / HTTP/1.1\r\nHost: a\r\n{forged}X-Forwarded-For: 198.51.100.9\r\n\r\n");
    let lines = forwarded(&head, true, &HeaderEdits::default());
    let line = lines
        .iter()
        .find(|line| line.starts_with("X-Forwarded-For"))
        .expect("the line");
    assert!(line.ends_with("1.2.3.4, 198.51.100.9, 192.0.2.7"), "{line}");
}

#[test]
fn what_a_route_sets_or_removes_comes_once_or_not_at_all_in_any_spelling() {
    let edits = HeaderEdits {
        remove: vec!["forwarded".into(), "via".into(), "x-user".into()],
        set: vec![
            ("x-forwarded-proto".into(), "https".into()),
            ("x-request-id".into(), "mine".into()),
        ],
        add: Vec::new(),
    };
    let head = "GET / HTTP/1.1\r\nHost: a\r\nX_User: admin\r\nX-Request-Id: theirs\r\n\r\n";
    let lines = forwarded(head, false, &edits);
    let text = lines.join("\n").to_ascii_lowercase();
    assert_eq!(text.matches("x-forwarded-proto").count(), 1, "{text}");
    assert_eq!(text.matches("x-request-id").count(), 1, "{text}");
    assert!(
        !text.contains("admin") && !text.contains("theirs"),
        "{text}"
    );
    assert!(
        !text.contains("\nforwarded:") && !text.contains("\nvia:"),
        "{text}"
    );
}

#[test]
fn an_ipv6_client_is_quoted_in_forwarded() {
    let mut lines = Lines::new();
    let limits = Limits {
        headers_max: 100,
        target_bytes_max: 8192,
    };
    let head = request::parse(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", &mut lines, limits)
        .expect("a good head")
        .expect("a whole head");
    let mut out = Vec::new();
    let forwarding = Forwarding {
        peer: b"2001:db8::1",
        trusted: false,
        secure: false,
        http2: false,
        upgrade: None,
        reserved: &[],
        identity: None,
        random: (1, 2),
    };
    write_request(&mut out, &head, b"/", &HeaderEdits::default(), &forwarding);
    let text = String::from_utf8(out).expect("text");
    assert!(
        text.contains("Forwarded: for=\"[2001:db8::1]\";host=\"a\";proto=http\r\n"),
        "{text}"
    );
}

#[test]
fn the_client_behind_trusted_proxies_is_the_rightmost_stranger() {
    let behind = |chain: &str| {
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {chain}\r\n\r\n");
        let mut lines = Lines::new();
        let limits = Limits {
            headers_max: 100,
            target_bytes_max: 8192,
        };
        let head = request::parse(text.as_bytes(), &mut lines, limits)
            .expect("a good head")
            .expect("a whole head");
        let trusted = ["10.0.0.0/8".parse().expect("a network")];
        client_behind(
            head.lines,
            &trusted,
            "10.0.0.1".parse().expect("an address"),
        )
        .to_string()
    };
    assert_eq!(behind("1.1.1.1, 2.2.2.2"), "2.2.2.2");
    assert_eq!(behind("1.1.1.1, 10.0.0.9"), "1.1.1.1");
    assert_eq!(behind("nonsense, 10.0.0.9"), "10.0.0.9");
}

#[test]
fn a_response_loses_hop_by_hop_fields_and_its_old_framing() {
    let text = b"HTTP/1.1 200 Fine\r\nConnection: X-Hop\r\nX-Hop: 1\r\nTransfer-Encoding: chunked\r\nX-Upstream: forged\r\nSet-Cookie: a=b\r\n\r\n";
    let mut lines = Lines::new();
    let head = response::parse(text, &mut lines, false)
        .expect("a good head")
        .expect("a whole head");
    let mut out = Vec::new();
    let change = ResponseChange {
        version: Version::Http10,
        close: true,
        framing: Framing::UntilClose,
        hsts: None,
        upstream: Some(b"127.0.0.1:1"),
        edits: &HeaderEdits::default(),
    };
    write_response(&mut out, &head, &change);
    let text = String::from_utf8(out).expect("text");
    assert_eq!(
        text,
        "HTTP/1.1 200 Fine\r\nSet-Cookie: a=b\r\nX-Upstream: 127.0.0.1:1\r\nConnection: close\r\n\r\n"
    );
}

#[test]
fn the_client_behind_a_depth_is_that_many_entries_from_the_right() {
    let limits = Limits {
        headers_max: 100,
        target_bytes_max: 8192,
    };
    let peer = IpAddr::from([192, 0, 2, 1]);
    let client = |lines: &str, depth| {
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
        let mut room = Lines::new();
        let head = request::parse(text.as_bytes(), &mut room, limits);
        let head = head.expect("a good head").expect("a whole head");
        client_at(head.lines, depth, peer).to_string()
    };
    let lines = "X-Forwarded-For: 9.9.9.9, 10.0.0.1\r\nX-Forwarded-For: 10.0.0.2\r\n";
    assert_eq!(client(lines, 1), "10.0.0.2");
    assert_eq!(client(lines, 2), "10.0.0.1");
    assert_eq!(client(lines, 3), "9.9.9.9");
    // Nobody has said who it is.
    assert_eq!(client(lines, 4), "192.0.2.1");
    assert_eq!(client("", 1), "192.0.2.1");
    assert_eq!(client("X-Forwarded-For: unknown\r\n", 1), "192.0.2.1");
}

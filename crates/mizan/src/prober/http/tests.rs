use super::*;

impl Judge<'_> {
    fn observe(&mut self, bytes: &[u8]) -> Option<Verdict> {
        self.bytes.extend_from_slice(bytes);
        self.judge()
    }
}

fn range(low: u16, high: u16) -> StatusSet {
    StatusSet(vec![(low, high)])
}

/// The verdict on `answer`, in one piece and byte by byte; they must agree. `close` ends the connection behind it.
fn verdict(answer: &str, expect: &StatusSet, body: Option<&str>, close: bool) -> Option<Verdict> {
    let question = Question {
        path: "/healthz",
        host: None,
        expect,
        body,
        http2: false,
        grpc_service: None,
    };
    let run = |pieces: Vec<&[u8]>| {
        let mut judge = Judge::new(question);
        let early = pieces.into_iter().find_map(|piece| judge.observe(piece));
        early.or_else(|| close.then(|| judge.closed()))
    };
    let whole = run(vec![answer.as_bytes()]);
    // Byte by byte, unless that would take long.
    let piece = answer.len() / 500 + 1;
    assert_eq!(
        whole,
        run(answer.as_bytes().chunks(piece).collect()),
        "{answer:?} in pieces"
    );
    whole
}

fn failed(reason: &str) -> Option<Verdict> {
    Some(Err(reason.to_owned()))
}

const PASSED: Option<Verdict> = Some(Ok(()));

#[test]
fn an_expected_status_passes_with_the_head_alone() {
    assert_eq!(
        verdict(
            "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n",
            &range(200, 399),
            None,
            false
        ),
        PASSED
    );
    assert_eq!(
        verdict("HTTP/1.0 302 Found\r\n\r\n", &range(200, 399), None, false),
        PASSED
    );
    assert_eq!(
        verdict(
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n",
            &range(200, 399),
            None,
            false
        ),
        None
    );
}

#[test]
fn an_unexpected_status_fails_and_says_what_was_expected() {
    let answer = "HTTP/1.1 500 Oops\r\n\r\n";
    assert_eq!(
        verdict(answer, &range(200, 399), None, false),
        failed("status 500, expected 200-399")
    );
    let several = StatusSet(vec![(200, 200), (204, 299)]);
    assert_eq!(
        verdict(answer, &several, None, false),
        failed("status 500, expected 200, 204-299")
    );
    assert_eq!(
        verdict("HTTP/1.1 503 Busy\r\n\r\n", &range(503, 503), None, false),
        PASSED
    );
}

#[test]
fn interim_answers_are_skipped() {
    let answer = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n";
    assert_eq!(verdict(answer, &range(204, 204), None, false), PASSED);
    assert_eq!(
        verdict("HTTP/1.1 103 Hints\r\n\r\n", &range(200, 399), None, true),
        failed("closed after half an answer")
    );
}

#[test]
fn what_is_not_http_1_fails() {
    for answer in [
        "SSH-2.0-OpenSSH_9.2\r\n",
        "HTTP/2 200\r\n\r\n",
        "HTTP/1.1 2x0 OK\r\n\r\n",
        "ICY 200 OK\r\n\r\n",
        "\0\0\0\r\n\r\n",
        // What the data path answers 502 for.
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\r\n folded\r\n\r\n",
    ] {
        let verdict = verdict(answer, &range(200, 399), None, true);
        assert!(
            matches!(&verdict, Some(Err(reason)) if reason.starts_with("answer is not sound HTTP/1: ")),
            "{answer:?}: {verdict:?}"
        );
    }
    let bare = verdict(
        "HTTP/1.1 200 OK\nServer: x\n\n",
        &range(200, 399),
        None,
        true,
    );
    assert_eq!(
        bare,
        failed("answer is not sound HTTP/1: a line ends with LF without CR")
    );
}

#[test]
fn a_connection_closed_too_early_fails() {
    assert_eq!(
        verdict("", &range(200, 399), None, true),
        failed("closed after no answer")
    );
    assert_eq!(
        verdict("HTTP/1.1 200 OK\r\nSer", &range(200, 399), None, true),
        failed("closed after half an answer")
    );
}

#[test]
fn an_endless_head_fails() {
    let long = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(HEAD_BYTES_MAX));
    assert_eq!(
        verdict(&long, &range(200, 399), None, false),
        failed("answer's head longer than 16384 bytes")
    );
    let mut interim = String::new();
    while interim.len() <= HEAD_BYTES_MAX {
        interim.push_str("HTTP/1.1 103 Hints\r\nLink: </a>\r\n\r\n");
    }
    interim.push_str("HTTP/1.1 1");
    assert_eq!(
        verdict(&interim, &range(200, 399), None, false),
        failed("answer's head longer than 16384 bytes")
    );
}

#[test]
fn a_text_is_looked_for_within_the_declared_body_only() {
    let answer = |length: usize, body: &str| {
        format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}")
    };
    let missing = failed("answer's body does not hold \"ready\"");
    assert_eq!(
        verdict(
            &answer(10, "all ready!"),
            &range(200, 399),
            Some("ready"),
            false
        ),
        PASSED
    );
    assert_eq!(
        verdict(
            &answer(10, "all broken"),
            &range(200, 399),
            Some("ready"),
            false
        ),
        missing
    );
    assert_eq!(
        verdict(
            &answer(3, "all ready"),
            &range(200, 399),
            Some("ready"),
            false
        ),
        missing
    );
    assert_eq!(
        verdict(
            &answer(20, "all re"),
            &range(200, 399),
            Some("ready"),
            false
        ),
        None
    );
    assert_eq!(
        verdict(&answer(20, "all re"), &range(200, 399), Some("ready"), true),
        missing
    );
    assert_eq!(
        verdict(&answer(5, "ready"), &range(500, 500), Some("ready"), false),
        failed("status 200, expected 500")
    );
    assert_eq!(
        verdict(
            "HTTP/1.1 204 X\r\n\r\n",
            &range(200, 399),
            Some("ready"),
            false
        ),
        missing
    );
}

#[test]
fn a_text_that_straddles_chunks_is_found() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let found = format!("{head}3;x=y\r\nrea\r\n2\r\ndy\r\n0\r\n\r\n");
    assert_eq!(
        verdict(&found, &range(200, 399), Some("ready"), false),
        PASSED
    );
    let missing = format!("{head}3\r\nrea\r\n3\r\n dy\r\n0\r\n\r\n");
    assert_eq!(
        verdict(&missing, &range(200, 399), Some("ready"), false),
        failed("answer's body does not hold \"ready\"")
    );
    let broken = format!("{head}3\r\nreaXX2\r\ndy\r\n0\r\n\r\n");
    assert_eq!(
        verdict(&broken, &range(200, 399), Some("ready"), false),
        failed("answer's body is broken: malformed line end in a chunked body")
    );
}

#[test]
fn a_text_beyond_64_kib_is_not_found() {
    let question = Question {
        path: "/",
        host: None,
        expect: &range(200, 399),
        body: Some("ready"),
        http2: false,
        grpc_service: None,
    };
    let mut judge = Judge::new(question);
    assert_eq!(judge.observe(b"HTTP/1.1 200 OK\r\n\r\n"), None);
    assert_eq!(judge.observe(&vec![b'x'; BODY_BYTES_MAX - 3]), None);
    assert_eq!(
        judge.observe(b"ready"),
        failed("answer's body does not hold \"ready\"")
    );
}

#[test]
fn the_request_names_the_prober_and_the_host() {
    let question = Question {
        path: "/up?x=1",
        host: None,
        expect: &range(200, 399),
        body: None,
        http2: false,
        grpc_service: None,
    };
    let text = request(question, "10.0.0.1:80");
    assert_eq!(
        text,
        "GET /up?x=1 HTTP/1.1\r\nHost: 10.0.0.1:80\r\nUser-Agent: mizan-probe\r\nAccept: */*\r\nConnection: close\r\n\r\n"
    );
    let text = request(
        Question {
            host: Some("a.example"),
            ..question
        },
        "10.0.0.1:80",
    );
    assert!(text.contains("\r\nHost: a.example\r\n"));
}

//! HTTP/2 and HTTP/1.1 on either side, in the clear and over TLS: whatever meets, the message is the same.

use crate::support::*;
use http::Method;
use std::collections::BTreeMap;

#[test]
fn a_get_is_the_same_in_all_pairings() {
    let pairs = Pairs::start();
    let ask = Ask::get("/bytes/1000?x=1%20&y").field("accept", "text/html;q=0.5, */*");
    pairs.each(&ask, |way, kind, answer, seen| {
        assert_eq!(answer.status, 200, "{way:?} {kind}");
        assert_eq!(answer.field("x-answer"), Some("a, \"b\""));
        assert_eq!(seen.method, "GET");
        assert_eq!(seen.target, "/bytes/1000?x=1%20&y");
        assert_eq!(seen.authority, kind);
        assert_eq!(seen.all("accept"), ["text/html;q=0.5, */*"]);
        assert_eq!(seen.all("x-forwarded-proto"), [way.scheme()]);
        assert_eq!(seen.all("x-forwarded-host"), [kind]);
        assert_eq!(seen.all("via"), [way.via()], "{way:?} {kind}");
    });
}

#[test]
fn a_body_with_or_without_a_length_passes_unchanged_both_ways_in_all_pairings() {
    let pairs = Pairs::start();
    let body: Vec<u8> = (0..200_000u32).map(|at| (at / 3) as u8).collect();
    for path in ["/echo", "/streamed"] {
        for ask in [
            Ask::post(path, body.clone()),
            Ask::streamed(path, body.clone()),
        ] {
            let length = ask.fields.get("content-length").cloned();
            pairs.each(&ask, |way, kind, answer, seen| {
                assert_eq!(answer.status, 200, "{way:?} {kind}");
                assert!(seen.body == body, "{way:?} {kind}: the request's body");
                assert!(answer.body == body, "{way:?} {kind}: the answer's body");
                let length = length
                    .as_ref()
                    .map(|length| length.to_str().expect("digits"));
                assert_eq!(seen.all("content-length").first().copied(), length);
            });
        }
    }
}

#[test]
fn a_body_of_no_bytes_is_a_body_of_no_bytes_in_all_pairings() {
    let pairs = Pairs::start();
    for ask in [
        Ask::post("/echo", ""),
        Ask::streamed("/streamed", ""),
        Ask::new(Method::POST, "/echo").field("content-length", "0"),
        Ask::streamed("/echo", ""),
    ] {
        pairs.each(&ask, |way, kind, answer, seen| {
            assert_eq!(answer.status, 200, "{way:?} {kind}");
            assert_eq!((&seen.body[..], &answer.body[..]), (&b""[..], &b""[..]));
        });
    }
}

#[test]
fn head_204_and_304_have_no_body_in_any_pairing() {
    let pairs = Pairs::start();
    let head = Ask::new(Method::HEAD, "/bytes/5000");
    pairs.each(&head, |way, kind, answer, seen| {
        assert_eq!(
            (answer.status, answer.body.len()),
            (200, 0),
            "{way:?} {kind}"
        );
        assert_eq!(
            answer.field("content-length"),
            Some("5000"),
            "{way:?} {kind}"
        );
        assert_eq!(seen.method, "HEAD");
    });
    for (path, status) in [("/204", 204), ("/304", 304)] {
        pairs.each(&Ask::get(path), |way, kind, answer, _| {
            assert_eq!(
                (answer.status, answer.body.len()),
                (status, 0),
                "{way:?} {kind}"
            );
            assert_eq!(answer.field("content-length"), None, "{way:?} {kind}");
        });
    }
    // All connections are still in step.
    pairs.each(&Ask::get("/bytes/3"), |way, kind, answer, _| {
        assert_eq!(answer.body.len(), 3, "{way:?} {kind}");
    });
}

#[test]
fn trailers_pass_both_ways_in_all_pairings() {
    let pairs = Pairs::start();
    let ask = Ask::streamed("/trailers", "hello")
        .field("te", "trailers")
        .trailer("x-sum", "1234");
    pairs.each(&ask, |way, kind, answer, seen| {
        assert_eq!(
            seen.trailers,
            [("x-sum".to_owned(), "1234".to_owned())],
            "{way:?} {kind}"
        );
        assert_eq!(answer.text(), "hello", "{way:?} {kind}");
        let trailer = |name: &str| {
            answer
                .trailers
                .get(name)
                .and_then(|value| value.to_str().ok())
        };
        assert_eq!(trailer("x-checksum"), Some("abc"), "{way:?} {kind}");
        assert_eq!(trailer("x-more"), Some("1"), "{way:?} {kind}");
    });
}

#[test]
fn interim_answers_pass_in_all_pairings() {
    let pairs = Pairs::start();
    pairs.each(&Ask::get("/hints"), |way, kind, answer, _| {
        assert_eq!(
            (answer.status, &answer.interim[..]),
            (200, &[103][..]),
            "{way:?} {kind}"
        );
    });
    let ask = Ask::post("/echo", "hello").field("expect", "100-continue");
    pairs.each(&ask, |way, kind, answer, _| {
        assert_eq!(answer.text(), "hello", "{way:?} {kind}");
        assert_eq!(answer.interim, [100], "{way:?} {kind}");
    });
}

#[test]
fn large_bodies_pass_intact_in_all_pairings() {
    let pairs = Pairs::start();
    let body: Vec<u8> = (0..2u32 << 20).map(|at| (at / 5) as u8).collect();
    pairs.each(
        &Ask::post("/echo", body.clone()),
        |way, kind, answer, seen| {
            assert!(
                seen.body == body,
                "{way:?} {kind}: {} bytes up",
                seen.body.len()
            );
            assert!(
                answer.body == body,
                "{way:?} {kind}: {} bytes down",
                answer.body.len()
            );
        },
    );
}

#[test]
fn names_and_values_arrive_as_they_were_sent() {
    let pairs = Pairs::start();
    let long = "v".repeat(8_000);
    let ask = Ask::get("/echo")
        .field("x-empty", "")
        .field("x-twice", "one")
        .field("x-twice", "two, three")
        .field("x-odd_name!#$%&'*+-.^`|~", "\"quoted\"; a=b\tc")
        .field("x-long", &long);
    pairs.each(&ask, |way, kind, answer, seen| {
        assert_eq!(answer.status, 200, "{way:?} {kind}");
        assert_eq!(seen.all("x-empty"), [""]);
        assert_eq!(seen.all("x-twice"), ["one", "two, three"]);
        assert_eq!(seen.all("x-odd_name!#$%&'*+-.^`|~"), ["\"quoted\"; a=b\tc"]);
        assert_eq!(seen.all("x-long"), [long.as_str()]);
    });
}

#[test]
fn crumbs_of_a_cookie_become_one_field() {
    let pairs = Pairs::start();
    let ask = Ask::get("/echo")
        .field("cookie", "a=1")
        .field("cookie", "b=2; c=3")
        .field("cookie", "d=4");
    for kind in KINDS {
        for way in pairs.ways.iter().skip(2) {
            let seen = pairs.one(way, ask.clone().to(kind)).1;
            assert_eq!(seen.all("cookie"), ["a=1; b=2; c=3; d=4"], "{way:?} {kind}");
        }
    }
}

#[test]
fn what_belongs_to_a_connection_stays_on_it() {
    let pairs = Pairs::start();
    // Only HTTP/1.1 can say it; in HTTP/2 it is a fault (see `http2_smuggling`).
    let ask = Ask::get("/echo")
        .field("connection", "x-mine, keep-alive")
        .field("x-mine", "1")
        .field("keep-alive", "timeout=5")
        .field("te", "trailers");
    for kind in KINDS {
        for way in pairs.ways.iter().take(2) {
            let (answer, seen) = pairs.one(way, ask.clone().to(kind));
            assert_eq!(answer.status, 200, "{way:?} {kind}");
            for name in [
                "x-mine",
                "keep-alive",
                "proxy-connection",
                "transfer-encoding",
            ] {
                assert_eq!(seen.all(name), [""; 0], "{way:?} {kind}");
            }
        }
    }
}

#[test]
fn requests_of_one_connection_are_spread_over_the_backends() {
    let names = ["a", "b", "c"];
    let backends = names.map(Backend::healthy);
    let addresses = backends.each_ref().map(Backend::address);
    let mizan = Mizan::start(&config("", "policy = \"round_robin\"", &addresses));
    let client = H2Client::connect(mizan.address());
    let answers = run(async {
        let asked = (0..300).map(|_| client.ask(Ask::get("/")));
        let mut answers = Vec::new();
        for asked in asked.map(Box::pin) {
            answers.push(asked.await.expect("an answer"));
        }
        answers
    });
    let mut shares = BTreeMap::<String, usize>::new();
    for answer in answers {
        let backend = answer.field("x-backend").expect("it says so").to_owned();
        *shares.entry(backend).or_default() += 1;
    }
    assert_eq!(
        shares.values().copied().collect::<Vec<_>>(),
        [100; 3],
        "{shares:?}"
    );
}

#[test]
fn streams_of_one_connection_do_not_wait_for_each_other() {
    let backend = H2Backend::start(|call| async {
        match call.head.uri.path() {
            "/slow" => call.hang().await,
            _ => call.serve().await,
        }
    });
    let pool = "protocol = \"http2\"";
    let mizan = Mizan::start(&config("", pool, &[backend.address()]));
    let client = H2Client::connect(mizan.address());
    run(async {
        let mut slow: Vec<_> = Vec::new();
        for _ in 0..50 {
            slow.push(client.begin(&Ask::get("/slow")).await.expect("it is sent"));
        }
        for _ in 0..50 {
            let answer = client.ask(Ask::get("/")).await.expect("an answer");
            assert_eq!(answer.status, 200);
        }
    });
    assert!(
        backend.connections() <= 2,
        "{} connections",
        backend.connections()
    );
}

#[test]
fn an_answer_that_only_its_connection_ends_is_whole_and_one_that_is_cut_is_not() {
    let backend = Backend::start(|exchange| {
        exchange.body()?;
        match exchange.target() {
            "/ends" => exchange.send("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nwhole")?,
            "/chunk" => exchange
                .send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")?,
            _ => exchange.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello")?,
        }
        Ok(Next::Close)
    });
    let mizan = Mizan::start(&config("", "", &[backend.address()]));
    let client = H2Client::connect(mizan.address());
    let whole = client.get("/ends");
    assert_eq!(
        (whole.text(), whole.field("connection")),
        ("whole".to_owned(), None)
    );
    for path in ["/chunk", "/length"] {
        let error = run(client.ask(Ask::get(path))).expect_err("it was cut");
        assert!(error.is_reset(), "{path}: {error:?}");
    }
    assert_eq!(client.get("/ends").status, 200);
}

#[test]
fn what_belongs_to_the_backends_connection_reaches_no_client() {
    let backend = Backend::start(|exchange| {
        exchange.send("HTTP/1.1 200 OK\r\nConnection: x-mine, keep-alive\r\nX-Mine: 1\r\nKeep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\nUpgrade: h2c\r\nX-Kept: 1\r\nContent-Length: 2\r\n\r\nok")?;
        Ok(Next::Keep)
    });
    let mizan = Mizan::start(&config("", "", &[backend.address()]));
    let answer = H2Client::connect(mizan.address()).get("/");
    assert_eq!((answer.status, answer.text()), (200, "ok".to_owned()));
    for name in [
        "connection",
        "x-mine",
        "keep-alive",
        "proxy-connection",
        "upgrade",
    ] {
        assert_eq!(answer.field(name), None, "{name}");
    }
    assert_eq!(answer.field("x-kept"), Some("1"));
}

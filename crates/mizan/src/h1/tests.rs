//! Tests of the codec: rules by their RFC section, and properties over split and hostile bytes.

use super::chunked::{ChunkError, Chunked};
use super::line::Lines;
use super::request::{self, Limits};
use super::scan::Scanner;
use super::{Framing, HeadError, field, response};
use proptest::prelude::*;

const LIMITS: Limits = Limits {
    headers_max: 100,
    target_bytes_max: 8192,
};

/// What a request head comes to: target, authority, framing, keep-alive.
fn request(text: &str) -> Result<(String, String, Framing, bool), HeadError> {
    let bytes = text.as_bytes();
    assert!(Scanner::default().scan(bytes)?, "a whole head");
    let mut lines = Lines::new();
    let head = request::parse(bytes, &mut lines, LIMITS)?.expect("a whole head");
    assert_eq!(head.bytes, bytes);
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    Ok((
        text(head.target),
        text(head.authority),
        head.framing,
        head.keep_alive,
    ))
}

fn response(text: &str, to_head: bool) -> Result<(u16, Framing, bool), HeadError> {
    let bytes = text.as_bytes();
    assert!(Scanner::default().scan(bytes)?, "a whole head");
    let mut lines = Lines::new();
    let head = response::parse(bytes, &mut lines, to_head)?.expect("a whole head");
    Ok((head.status, head.framing, head.keep_alive))
}

fn refused(fields: &str) -> HeadError {
    request(&format!("POST /t HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n")).expect_err(fields)
}

#[test]
fn a_plain_request_passes_whole() {
    let head = request("GET /a?b=c HTTP/1.1\r\nHost: example.org:8080\r\nAccept: */*\r\n\r\n");
    assert_eq!(
        head,
        Ok((
            "/a?b=c".into(),
            "example.org:8080".into(),
            Framing::None,
            true
        ))
    );
}

#[test]
fn the_authority_of_an_absolute_form_replaces_host() {
    let head = request("GET http://a.example/x HTTP/1.1\r\nHost: b.example\r\n\r\n");
    assert_eq!(
        head,
        Ok(("/x".into(), "a.example".into(), Framing::None, true))
    );
    let head = request("OPTIONS http://a.example HTTP/1.1\r\nHost: b\r\n\r\n");
    assert_eq!(head.map(|head| head.0), Ok("*".into()));
}

#[test]
fn framing_that_two_parsers_could_read_differently_is_refused() {
    for (fields, error) in [
        (
            "Content-Length: 4\r\nTransfer-Encoding: chunked",
            HeadError::LengthAndEncoding,
        ),
        (
            "Content-Length: 4\r\nContent-Length: 4",
            HeadError::LengthRepeated,
        ),
        ("Content-Length: 4, 4", HeadError::LengthMalformed),
        ("Content-Length: +4", HeadError::LengthMalformed),
        ("Content-Length:", HeadError::LengthMalformed),
        (
            "Content-Length: 18446744073709551616",
            HeadError::LengthMalformed,
        ),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            HeadError::Encoding,
        ),
        ("Transfer-Encoding: chunked, chunked", HeadError::Encoding),
        ("Transfer-Encoding: xchunked", HeadError::Encoding),
        ("Transfer-Encoding: gzip", HeadError::Encoding),
        (
            "Transfer-Encoding: gzip, chunked",
            HeadError::EncodingUnsupported,
        ),
        ("Transfer_Encoding: chunked", HeadError::FramingLookalike),
        ("Content_Length: 4", HeadError::FramingLookalike),
        ("Transfer-Encoding : chunked", HeadError::Field),
        ("X: a\r\n folded", HeadError::Field),
        ("Expect: 200-ok", HeadError::Expectation),
        // Each field of a head is looked for among them.
        (
            "Connection: x,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,",
            HeadError::ConnectionOptions,
        ),
        ("Host: b", HeadError::HostRepeated),
    ] {
        assert_eq!(refused(fields), error, "{fields:?}");
    }
    let old = request("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert_eq!(old, Err(HeadError::Encoding));
}

#[test]
fn statuses_fit_the_fault() {
    let long = "a".repeat(9000);
    let target = request(&format!("GET /{long} HTTP/1.1\r\nHost: a\r\n\r\n")).expect_err("long");
    assert_eq!(target.status(), 414);
    let many = "X: y\r\n".repeat(101);
    assert_eq!(refused(many.trim_end()).status(), 431);
    assert_eq!(
        request("GET / HTTP/2.0\r\nHost: a\r\n\r\n")
            .expect_err("2.0")
            .status(),
        505
    );
    assert_eq!(
        request("GET / http/1.1\r\nHost: a\r\n\r\n")
            .expect_err("case")
            .status(),
        400
    );
    assert_eq!(
        request("CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n")
            .expect_err("CONNECT")
            .status(),
        501
    );
    assert_eq!(
        request("GET / HTTP/1.1\r\n\r\n")
            .expect_err("no Host")
            .status(),
        400
    );
}

#[test]
fn a_bare_lf_or_cr_is_refused_wherever_it_stands() {
    for text in [
        "GET / HTTP/1.1\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\n",
        "GET / HTTP/1.1\r\nHost: a\rb\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\r\n\r\n",
    ] {
        assert!(request(text).is_err(), "{text:?}");
    }
}

#[test]
fn keep_alive_follows_version_and_connection() {
    let keeps = |line: &str, fields: &str| {
        request(&format!("GET / {line}\r\nHost: a\r\n{fields}\r\n")).map(|head| head.3)
    };
    assert_eq!(keeps("HTTP/1.1", ""), Ok(true));
    assert_eq!(keeps("HTTP/1.1", "Connection: x, CLOSE\r\n"), Ok(false));
    assert_eq!(keeps("HTTP/1.0", ""), Ok(false));
    assert_eq!(keeps("HTTP/1.0", "Connection: Keep-Alive\r\n"), Ok(true));
}

#[test]
fn a_response_without_a_body_has_none_whatever_it_says() {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
    assert_eq!(response(head, true), Ok((200, Framing::None, true)));
    assert_eq!(response(head, false), Ok((200, Framing::Length(5), true)));
    assert_eq!(
        response(
            "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
            false
        ),
        Ok((304, Framing::None, true))
    );
    assert_eq!(
        response("HTTP/1.1 200 OK\r\n\r\n", false),
        Ok((200, Framing::UntilClose, false))
    );
}

#[test]
fn ambiguous_responses_are_refused() {
    for text in [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n",
        "HTTP/1.1 99 X\r\n\r\n",
        "HTTP/3.7 200 OK\r\n\r\n",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\nContent-Length: 5\r\n\r\n",
    ] {
        assert!(response(text, false).is_err(), "{text:?}");
    }
}

/// Feeds `bytes` in pieces of `step`; the content, and what is left behind the body.
fn decode(bytes: &[u8], step: usize) -> Result<(Vec<u8>, usize, bool), ChunkError> {
    let mut chunked = Chunked::default();
    let (mut content, mut at) = (Vec::new(), 0);
    while at < bytes.len() && !chunked.is_ended() {
        let end = (at + step).min(bytes.len());
        match chunked.next(&bytes[at..end])? {
            super::chunked::Piece::End => break,
            super::chunked::Piece::Framing(length) => at += length,
            super::chunked::Piece::Data(length) => {
                content.extend_from_slice(&bytes[at..at + length]);
                at += length;
            }
        }
    }
    Ok((content, bytes.len() - at, chunked.is_ended()))
}

#[test]
fn chunks_with_extensions_and_trailers_pass() {
    let bytes = b"5;a=\"x;y\"\r\nhello\r\n000a\r\n0123456789\r\n0\r\nX-T: 1\r\n\r\nGET";
    for step in 1..bytes.len() {
        assert_eq!(
            decode(bytes, step),
            Ok((b"hello0123456789".to_vec(), 3, true)),
            "step {step}"
        );
    }
}

#[test]
fn broken_chunks_are_refused() {
    for bytes in [
        &b"+5\r\nhello\r\n0\r\n\r\n"[..],
        b"0x5\r\nhello\r\n0\r\n\r\n",
        b"\r\nhello",
        b"5\nhello\r\n0\r\n\r\n",
        b"5\r\nhelloX\n0\r\n\r\n",
        b"5 \r\nhello\r\n0\r\n\r\n",
        b"5;a\nb\r\nhello\r\n0\r\n\r\n",
        b"5;a\x00\r\nhello\r\n0\r\n\r\n",
        b"1000000000000000\r\nhello",
        b"0\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"0\r\nContent-Length: 5\r\n\r\n",
        b"0\r\nno colon\r\n\r\n",
        b"0\r\nA: b\n\r\n",
    ] {
        assert!(
            decode(bytes, bytes.len()).is_err(),
            "{:?}",
            String::from_utf8_lossy(bytes)
        );
    }
    let extension = [b"5;".as_slice(), &[b'a'; 300], b"\r\nhello\r\n0\r\n\r\n"].concat();
    assert_eq!(decode(&extension, 4096), Err(ChunkError::Extension));
    let trailers = [
        b"0\r\n".as_slice(),
        &b"A: bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\r\n".repeat(400),
        b"\r\n",
    ]
    .concat();
    assert_eq!(decode(&trailers, 1 << 20), Err(ChunkError::Trailer));
}

#[test]
fn identity_fields_are_known_in_every_spelling_that_a_backend_might_fold() {
    assert_eq!(
        field::classify(b"X_Forwarded_For"),
        field::Field::IdentityLookalike
    );
    assert_eq!(
        field::classify(b"x-forwarded_proto"),
        field::Field::IdentityLookalike
    );
    assert_eq!(
        field::classify(b"X_Request_Id"),
        field::Field::IdentityLookalike
    );
    assert_eq!(
        field::classify(b"x-FORWARDED-for"),
        field::Field::XForwardedFor
    );
    assert_eq!(field::classify(b"x-forwarded-fox"), field::Field::Other);
}

proptest! {
    #[test]
    fn the_scanner_finds_one_end_however_the_bytes_arrive(
        lines in prop::collection::vec("[a-zA-Z:/ ]{1,20}", 1..8),
        cuts in prop::collection::vec(0usize..200, 0..6),
    ) {
        let mut bytes = lines.join("\r\n").into_bytes();
        bytes.extend_from_slice(b"\r\n\r\nrest");
        let end = bytes.len() - 4;
        for cut in 0..bytes.len() {
            prop_assert_eq!(Scanner::default().scan(&bytes[..cut]), Ok(cut >= end));
        }
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut % bytes.len()).collect();
        cuts.sort_unstable();
        let mut scanner = Scanner::default();
        for cut in cuts {
            let is_whole = scanner.scan(&bytes[..cut]);
            prop_assert_eq!(is_whole, Ok(cut >= end));
            if cut >= end {
                break;
            }
        }
    }

    #[test]
    fn a_head_is_not_whole_before_its_last_byte_and_then_read_the_same_whatever_follows(
        names in prop::collection::vec("[a-zA-Z]{1,12}", 0..6),
        values in prop::collection::vec("[ -~]{0,20}", 6..=6),
        rest in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let fields: String = names.iter().zip(&values).map(|(name, value)| format!("x{name}: {value}\r\n")).collect();
        for (start, is_request) in [("GET /a HTTP/1.1\r\nHost: a\r\n", true), ("HTTP/1.1 200 OK\r\n", false)] {
            let mut bytes = format!("{start}{fields}\r\n").into_bytes();
            let length = bytes.len();
            let whole = |bytes: &[u8]| {
                let mut lines = Lines::new();
                if is_request {
                    request::parse(bytes, &mut lines, LIMITS).map(|head| head.map(|head| head.bytes.len()))
                } else {
                    response::parse(bytes, &mut lines, false).map(|head| head.map(|head| head.bytes.len()))
                }
            };
            for cut in 0..length {
                prop_assert_eq!(whole(&bytes[..cut]), Ok(None), "{} bytes", cut);
            }
            bytes.extend_from_slice(&rest);
            prop_assert_eq!(whole(&bytes), Ok(Some(length)));
        }
    }

    #[test]
    fn any_body_survives_any_chunking_and_any_split(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..50), 0..8),
        step in 1usize..40,
    ) {
        let mut bytes = Vec::new();
        for chunk in &chunks {
            bytes.extend_from_slice(format!("{:X}\r\n", chunk.len()).as_bytes());
            bytes.extend_from_slice(chunk);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"0\r\n\r\n");
        prop_assert_eq!(decode(&bytes, step), Ok((chunks.concat(), 0, true)));
    }

    #[test]
    fn no_bytes_make_the_parsers_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let text = [b"GET / HTTP/1.1\r\n".as_slice(), &bytes, b"\r\n\r\n"].concat();
        let _ = Scanner::default().scan(&text);
        let _ = request::parse(&text, &mut Lines::new(), LIMITS);
        let _ = response::parse(&text, &mut Lines::new(), false);
        let _ = decode(&bytes, 7);
    }

    /// What passes has one reading only: a second, simpler reading of the same head agrees on its framing.
    #[test]
    fn what_passes_is_read_the_same_by_a_line_reader(
        fields in prop::collection::vec(
            prop::sample::select(vec![
                "Content-Length: 5", "content-length: 7", "Transfer-Encoding: chunked", "Transfer-Encoding: gzip, chunked",
                "Host: a", "X: y", "Connection: close", "X-Y:z", "Content-Length: 5 ", "Content-Length : 5",
            ]),
            0..5,
        ),
    ) {
        let text = format!("POST / HTTP/1.1\r\n{}\r\n\r\n", fields.join("\r\n"));
        let lengths: Vec<&str> = fields.iter().filter(|line| line.to_ascii_lowercase().starts_with("content-length")).copied().collect();
        let chunked = fields.iter().filter(|line| line.starts_with("Transfer")).count();
        if let Ok((_, _, framing, _)) = request(&text) {
            prop_assert!(lengths.len() + chunked <= 1, "ambiguous head passed: {}", text);
            prop_assert_eq!(fields.iter().filter(|line| line.starts_with("Host")).count(), 1);
            prop_assert_eq!(matches!(framing, Framing::Chunked), chunked == 1);
            prop_assert_eq!(matches!(framing, Framing::Length(_)), lengths.len() == 1);
        }
    }
}

#[test]
fn http_1_0_needs_no_host_and_closes() {
    let head = request("GET / HTTP/1.0\r\n\r\n");
    assert_eq!(head, Ok(("/".into(), String::new(), Framing::None, false)));
}

//! Request heads: cut anywhere, read once, sent on, read again by another.

use super::strict::{self, Body};
use super::{Verdict, cuts, show};
use mizan::h1::line::Lines;
use mizan::h1::request::{self, RequestHead};
use mizan::h1::scan::Scanner;
use mizan::h1::{Framing, HeadError, Version};
use mizan::proxy::headers::{Forwarding, write_request};
use mizan::snapshot::route::HeaderEdits;

const LIMITS: request::Limits = request::Limits {
    headers_max: 100,
    target_bytes_max: 8 << 10,
};

/// Fields by which a backend knows who asks.
const IDENTITY: &[&str] = &[
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
    "x-request-id",
    "x-upstream",
];

/// Panics if one of the promises does not hold for `data`.
pub fn check(data: &[u8]) -> Verdict {
    let mut lines = Lines::new();
    let parsed = request::parse(data, &mut lines, LIMITS);
    let by_pieces = length_by_pieces(data);
    as_httparse_reads(data, &parsed);
    let head = match parsed {
        Ok(Some(head)) => head,
        Ok(None) => {
            assert!(
                !matches!(by_pieces, Ok(Some(_))),
                "whole by pieces only: {}",
                show(data)
            );
            return Verdict::Incomplete;
        }
        Err(_) => {
            assert!(
                !matches!(by_pieces, Ok(Some(_))),
                "taken by pieces only: {}",
                show(data)
            );
            return Verdict::Refused;
        }
    };
    let bytes = head.bytes;
    assert_eq!(
        by_pieces,
        Ok(Some(bytes.len())),
        "whole, and by pieces: {}",
        show(data)
    );
    same_reading(bytes, &head);
    for trusted in [false, true] {
        sent_on(bytes, &head, trusted);
    }
    Verdict::Accepted
}

/// The length of the head, read as its bytes arrive: parsed once the scanner has seen the end.
fn length_by_pieces(data: &[u8]) -> Result<Option<usize>, HeadError> {
    let mut scanner = Scanner::default();
    for cut in cuts(data) {
        let so_far = &data[..cut];
        let length = request::parse(so_far, &mut Lines::new(), LIMITS)
            .map(|head| head.map(|head| head.bytes.len()));
        if scanner.scan(so_far)? {
            assert_ne!(
                length,
                Ok(None),
                "an end that the parser does not see: {}",
                show(so_far)
            );
            return length;
        }
        assert!(
            !matches!(length, Ok(Some(_))),
            "an end that the scanner does not see: {}",
            show(so_far)
        );
    }
    Ok(None)
}

/// The second reader takes what Mizan takes, and reads the same in it.
fn same_reading(bytes: &[u8], head: &RequestHead<'_, '_>) {
    let other = strict::head(bytes)
        .unwrap_or_else(|what| panic!("taken in spite of: {what}: {}", show(bytes)));
    assert_eq!(head.method, other.first, "method of {}", show(bytes));
    let version = if head.version == Version::Http10 {
        &b"HTTP/1.0"[..]
    } else {
        b"HTTP/1.1"
    };
    assert_eq!(version, other.third, "version of {}", show(bytes));
    assert!(
        other.second.ends_with(head.target) || head.target == b"/" || head.target == b"*",
        "target of {}",
        show(bytes)
    );
    let ours: Vec<(&[u8], &[u8])> = head
        .lines
        .iter()
        .map(|line| (line.name, line.value))
        .collect();
    assert_eq!(ours, other.fields, "fields of {}", show(bytes));
    assert_eq!(
        as_body(head.framing),
        other.body,
        "framing of {}",
        show(bytes)
    );
    assert!(
        other.all("host").len() == 1
            || (head.version == Version::Http10 && other.all("host").is_empty()),
        "Host of {}",
        show(bytes)
    );
}

/// What is taken, `httparse` takes too and reads the same; what is refused though it takes it, is refused for a rule
/// that it does not know.
fn as_httparse_reads(data: &[u8], ours: &Result<Option<RequestHead<'_, '_>>, HeadError>) {
    let mut fields = [httparse::EMPTY_HEADER; 128];
    let mut theirs = httparse::Request::new(&mut fields);
    let read = theirs.parse(data);
    match ours {
        Ok(None) => {}
        Ok(Some(head)) => {
            let length = head.bytes.len();
            assert_eq!(
                read,
                Ok(httparse::Status::Complete(length)),
                "{}",
                show(data)
            );
            assert_eq!(
                theirs.method.map(str::as_bytes),
                Some(head.method),
                "{}",
                show(data)
            );
            let target = theirs.path.unwrap_or_default().as_bytes();
            let is_of_scheme = !target.starts_with(b"/") && target != b"*";
            let is_same = match is_of_scheme {
                false => target == head.target,
                true => target.ends_with(head.target) || matches!(head.target, b"/" | b"*"),
            };
            assert!(is_same, "target of {}", show(data));
            let version = u8::from(head.version != Version::Http10);
            assert_eq!(theirs.version, Some(version), "{}", show(data));
            let pairs = theirs
                .headers
                .iter()
                .map(|field| (field.name.as_bytes(), field.value));
            let same = pairs.eq(head.lines.iter().map(|line| (line.name, line.value)));
            assert!(same, "fields of {}", show(data));
        }
        // Empty lines before a head are passed over elsewhere, and only whole ones.
        Err(_) if matches!(data.first(), Some(b'\r' | b'\n')) => {}
        Err(reason) => {
            let is_known = matches!(
                reason,
                HeadError::BareLf
                    | HeadError::Target
                    | HeadError::TooManyFields
                    | HeadError::HostMissing
                    | HeadError::HostRepeated
                    | HeadError::HostMalformed
                    | HeadError::LengthAndEncoding
                    | HeadError::LengthRepeated
                    | HeadError::LengthMalformed
                    | HeadError::Encoding
                    | HeadError::EncodingUnsupported
                    | HeadError::FramingLookalike
                    | HeadError::Expectation
                    | HeadError::Connect
                    | HeadError::ConnectionOptions
            );
            assert!(
                is_known || !matches!(read, Ok(httparse::Status::Complete(_))),
                "{reason:?}: {}",
                show(data)
            );
        }
    }
}

/// What a backend gets is one request, the same one, with nothing that only holds for the client's connection.
fn sent_on(bytes: &[u8], head: &RequestHead<'_, '_>, trusted: bool) {
    let forwarding = Forwarding {
        peer: b"192.0.2.1",
        trusted,
        secure: false,
        http2: false,
        upgrade: None,
        reserved: &[],
        identity: None,
        random: (7, 11),
    };
    let mut out = Vec::new();
    let request_id = write_request(
        &mut out,
        head,
        head.target,
        &HeaderEdits::default(),
        &forwarding,
    );
    let sent = strict::head(&out)
        .unwrap_or_else(|what| panic!("{what}: {} became {}", show(bytes), show(&out)));
    let why = || format!("{} became {}", show(bytes), show(&out));
    assert_eq!(sent.first, head.method, "{}", why());
    assert_eq!(sent.second, head.target, "{}", why());
    assert_eq!(sent.third, b"HTTP/1.1", "{}", why());
    assert_eq!(sent.body, as_body(head.framing), "{}", why());
    assert_eq!(sent.all("host"), [head.authority], "{}", why());
    for hop in [
        "connection",
        "keep-alive",
        "proxy-connection",
        "te",
        "upgrade",
        "http2-settings",
        "proxy-authorization",
    ] {
        assert!(sent.all(hop).is_empty(), "{hop}: {}", why());
    }
    for single in [
        "x-request-id",
        "x-forwarded-for",
        "x-forwarded-proto",
        "x-forwarded-host",
        "forwarded",
        "traceparent",
    ] {
        assert_eq!(sent.all(single).len(), 1, "{single}: {}", why());
    }
    assert_eq!(sent.all("x-request-id"), [&out[request_id]], "{}", why());
    if !trusted {
        assert_eq!(sent.all("x-forwarded-for"), [b"192.0.2.1"], "{}", why());
    }
    // Some backends fold `_` into `-`: such a spelling must not come through beside the name that we set.
    for (name, _) in sent.fields.iter().filter(|field| field.0.contains(&b'_')) {
        let folded = String::from_utf8_lossy(name)
            .to_ascii_lowercase()
            .replace('_', "-");
        assert!(!IDENTITY.contains(&folded.as_str()), "{folded}: {}", why());
    }
}

fn as_body(framing: Framing) -> Body {
    match framing {
        Framing::None => Body::Undeclared,
        Framing::Length(length) => Body::Length(length),
        Framing::Chunked => Body::Chunked,
        Framing::UntilClose => {
            panic!("a request's body cannot end with the connection (RFC 9112 §6.3)")
        }
    }
}

//! Request heads: cut anywhere, read once, sent on, read again by another.

use super::strict::{self, Body};
use super::{Verdict, cuts, show};
use mizan::proxy::h1::request::{self, RequestHead};
use mizan::proxy::h1::scan::Scanner;
use mizan::proxy::h1::{FIELDS_MAX, Framing, HeadError, Version};
use mizan::proxy::headers::{Forwarding, write_request};
use mizan::snapshot::route::HeaderEdits;
use std::mem::MaybeUninit;

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
    let found = Scanner::default().scan(data);
    let by_pieces = scan_by_pieces(data);
    assert_eq!(found, by_pieces, "whole, and by pieces: {}", show(data));
    let length = match found {
        Ok(Some(length)) => length,
        Ok(None) => return Verdict::Incomplete,
        Err(_) => return Verdict::Refused,
    };
    let bytes = &data[..length];
    let mut storage = [const { MaybeUninit::uninit() }; FIELDS_MAX];
    let Ok(head) = request::parse(bytes, &mut storage, LIMITS) else {
        return Verdict::Refused;
    };
    same_reading(bytes, &head);
    for trusted in [false, true] {
        sent_on(bytes, &head, trusted);
    }
    Verdict::Accepted
}

fn scan_by_pieces(data: &[u8]) -> Result<Option<usize>, HeadError> {
    let mut scanner = Scanner::default();
    for cut in cuts(data) {
        if let Some(length) = scanner.scan(&data[..cut])? {
            return Ok(Some(length));
        }
    }
    Ok(None)
}

/// The second reader takes what Mizan takes, and reads the same in it.
fn same_reading(bytes: &[u8], head: &RequestHead<'_, '_>) {
    let other = strict::head(bytes)
        .unwrap_or_else(|what| panic!("taken in spite of: {what}: {}", show(bytes)));
    assert_eq!(
        head.method.as_bytes(),
        other.first,
        "method of {}",
        show(bytes)
    );
    let version = if head.version == Version::Http10 {
        &b"HTTP/1.0"[..]
    } else {
        b"HTTP/1.1"
    };
    assert_eq!(version, other.third, "version of {}", show(bytes));
    assert!(
        other.second.ends_with(head.target.as_bytes()) || head.target == "/" || head.target == "*",
        "target of {}",
        show(bytes)
    );
    let ours: Vec<(&[u8], &[u8])> = head
        .headers
        .iter()
        .map(|header| (header.name.as_bytes(), header.value))
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

/// What a backend gets is one request, the same one, with nothing that only holds for the client's connection.
fn sent_on(bytes: &[u8], head: &RequestHead<'_, '_>, trusted: bool) {
    let forwarding = Forwarding {
        peer: b"192.0.2.1",
        trusted,
        random: (7, 11),
    };
    let mut out = Vec::new();
    let request_id = write_request(
        &mut out,
        head,
        head.target.as_bytes(),
        &HeaderEdits::default(),
        &forwarding,
    );
    let sent = strict::head(&out)
        .unwrap_or_else(|what| panic!("{what}: {} became {}", show(bytes), show(&out)));
    let why = || format!("{} became {}", show(bytes), show(&out));
    assert_eq!(sent.first, head.method.as_bytes(), "{}", why());
    assert_eq!(sent.second, head.target.as_bytes(), "{}", why());
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

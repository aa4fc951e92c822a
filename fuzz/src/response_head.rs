//! Response heads: read once, sent on, read again by another.

use super::strict::{self, Body};
use super::{Verdict, show};
use mizan::h1::line::Lines;
use mizan::h1::response::{self, ResponseHead};
use mizan::h1::scan::Scanner;
use mizan::h1::{Framing, Version};
use mizan::proxy::headers::{ResponseChange, write_response};
use mizan::snapshot::route::HeaderEdits;

/// Panics if one of the promises does not hold for `data`.
pub fn check(data: &[u8]) -> Verdict {
    let mut verdicts = Vec::new();
    for to_head in [false, true] {
        match response::parse(data, &mut Lines::new(), to_head) {
            Ok(Some(head)) => {
                same_reading(head.bytes, &head, to_head);
                sent_on(head.bytes, &head);
                for cut in 0..head.bytes.len() {
                    let mut lines = Lines::new();
                    let early = response::parse(&data[..cut], &mut lines, to_head);
                    assert!(matches!(early, Ok(None)), "{cut} bytes of {}", show(data));
                }
                verdicts.push(Verdict::Accepted);
            }
            Ok(None) => {
                let seen = Scanner::default().scan(data);
                assert_ne!(
                    seen,
                    Ok(true),
                    "an end that the parser does not see: {}",
                    show(data)
                );
                verdicts.push(Verdict::Incomplete);
            }
            Err(_) => verdicts.push(Verdict::Refused),
        }
    }
    assert_eq!(
        verdicts[0],
        verdicts[1],
        "a head is good or not, whatever was asked: {}",
        show(data)
    );
    verdicts[0]
}

fn same_reading(bytes: &[u8], head: &ResponseHead<'_, '_>, to_head: bool) {
    let other = strict::head(bytes)
        .unwrap_or_else(|what| panic!("taken in spite of: {what}: {}", show(bytes)));
    let version = if head.version == Version::Http10 {
        &b"HTTP/1.0"[..]
    } else {
        b"HTTP/1.1"
    };
    assert_eq!(version, other.first, "version of {}", show(bytes));
    assert_eq!(
        head.status.to_string().as_bytes(),
        other.second,
        "status of {}",
        show(bytes)
    );
    assert!(
        (100..600).contains(&head.status),
        "status of {}",
        show(bytes)
    );
    let ours: Vec<(&[u8], &[u8])> = head
        .lines
        .iter()
        .map(|line| (line.name, line.value))
        .collect();
    assert_eq!(ours, other.fields, "fields of {}", show(bytes));
    let bodiless = to_head || head.status < 200 || head.status == 204 || head.status == 304;
    let expected = match other.body {
        _ if bodiless => Framing::None,
        Body::Length(length) => Framing::Length(length),
        Body::Chunked => Framing::Chunked,
        Body::Undeclared => Framing::UntilClose,
    };
    assert_eq!(head.framing, expected, "framing of {}", show(bytes));
    assert!(
        head.framing != Framing::UntilClose || !head.keep_alive,
        "kept, though its body ends with it: {}",
        show(bytes)
    );
}

/// What a client gets is one response, framed as Mizan meant it.
fn sent_on(bytes: &[u8], head: &ResponseHead<'_, '_>) {
    let edits = HeaderEdits::default();
    let change = ResponseChange {
        version: Version::Http11,
        close: false,
        framing: head.framing,
        hsts: None,
        upstream: Some(b"b1"),
        edits: &edits,
    };
    let mut out = Vec::new();
    write_response(&mut out, head, &change);
    let sent = strict::head(&out)
        .unwrap_or_else(|what| panic!("{what}: {} became {}", show(bytes), show(&out)));
    let why = || format!("{} became {}", show(bytes), show(&out));
    assert_eq!(sent.first, b"HTTP/1.1", "{}", why());
    assert_eq!(sent.second, head.status.to_string().as_bytes(), "{}", why());
    match head.framing {
        Framing::Length(length) => assert_eq!(sent.body, Body::Length(length), "{}", why()),
        Framing::Chunked => assert_eq!(sent.body, Body::Chunked, "{}", why()),
        // An answer to HEAD, or a 304, may say how long the body would have been; never that it is chunked.
        Framing::None | Framing::UntilClose => assert_ne!(sent.body, Body::Chunked, "{}", why()),
    }
    assert_eq!(sent.all("x-upstream"), [b"b1"], "{}", why());
    for hop in [
        "connection",
        "keep-alive",
        "proxy-connection",
        "te",
        "upgrade",
        "proxy-authenticate",
    ] {
        assert!(sent.all(hop).is_empty(), "{hop}: {}", why());
    }
}

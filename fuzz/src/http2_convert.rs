//! Heads and trailers from HTTP/2 to HTTP/1.1 and back: another reader reads what was meant, or nobody reads it.
//!
//! An input is a head as lines: `METHOD AUTHORITY PATH [ends]` for a request, `:STATUS [ends]` for a response, `:` for
//! trailers; then fields as in HTTP/1.1, up to an empty line. What the types of an HTTP/2 library hold nothing of is
//! refused here already.

use super::strict::{self, Body};
use super::{Verdict, show};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use mizan::h1::chunked::Chunked;
use mizan::h1::line::Lines;
use mizan::h1::{Framing, request, response};
use mizan::proxy::http2::convert;

const LIMITS: request::Limits = request::Limits {
    headers_max: 100,
    target_bytes_max: 8 << 10,
};

/// Panics if one of the promises does not hold for `data`.
pub fn check(data: &[u8]) -> Verdict {
    let Some(end) = data.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Verdict::Incomplete;
    };
    let text = &data[..end + 2];
    let line = text
        .windows(2)
        .position(|two| two == b"\r\n")
        .unwrap_or(end);
    let (first, rest) = (&text[..line], &text[line + 2..]);
    let taken = fields(rest).and_then(|fields| {
        let words: Vec<&[u8]> = first.split(|byte| *byte == b' ').collect();
        match words[..] {
            [b":"] => trailers(&fields),
            [status] if status.starts_with(b":") => answered(&status[1..], &fields, false),
            [status, b"ends"] if status.starts_with(b":") => answered(&status[1..], &fields, true),
            [method, authority, path] => asked((method, authority, path), fields, false),
            [method, authority, path, b"ends"] => asked((method, authority, path), fields, true),
            _ => None,
        }
    });
    match taken {
        Some(()) => Verdict::Accepted,
        None => Verdict::Refused,
    }
}

fn fields(mut text: &[u8]) -> Option<HeaderMap> {
    let mut fields = HeaderMap::new();
    while !text.is_empty() {
        let end = text.windows(2).position(|two| two == b"\r\n")?;
        let (line, rest) = (&text[..end], &text[end + 2..]);
        let colon = line.iter().position(|byte| *byte == b':')?;
        let name = HeaderName::from_lowercase(&line[..colon]).ok()?;
        let value = line[colon + 1..].strip_prefix(b" ")?;
        fields
            .try_append(name, HeaderValue::from_bytes(value).ok()?)
            .ok()?;
        text = rest;
    }
    Some(fields)
}

/// Those that are written: crumbs as one field, and the host apart.
fn written(fields: &HeaderMap) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut lines: Vec<_> = fields
        .iter()
        .filter(|(name, _)| *name != "host" && *name != "cookie")
        .map(|(name, value)| (name.as_str().as_bytes().to_vec(), value.as_bytes().to_vec()))
        .collect();
    let crumbs: Vec<&[u8]> = fields
        .get_all("cookie")
        .iter()
        .map(HeaderValue::as_bytes)
        .collect();
    if !crumbs.is_empty() {
        // An empty crumb at the end leaves a blank there, which is no part of the value.
        let joined = crumbs.join(&b"; "[..]);
        lines.push((b"cookie".to_vec(), joined.trim_ascii_end().to_vec()));
    }
    lines
}

/// The second reader's fields, but for those that the conversion adds.
fn read<'f>(fields: &'f [(&'f [u8], &'f [u8])], added: &[&str]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let is_added = |name: &[u8]| added.iter().any(|added| added.as_bytes() == name);
    let kept = fields.iter().filter(|(name, _)| !is_added(name));
    kept.map(|(name, value)| (name.to_vec(), value.to_vec()))
        .collect()
}

fn body(framing: Framing) -> Body {
    match framing {
        Framing::None | Framing::UntilClose => Body::Undeclared,
        Framing::Length(length) => Body::Length(length),
        Framing::Chunked => Body::Chunked,
    }
}

fn length(fields: &HeaderMap) -> Option<u64> {
    fields.get("content-length")?.to_str().ok()?.parse().ok()
}

fn asked(
    (method, authority, path): (&[u8], &[u8], &[u8]),
    fields: HeaderMap,
    ends: bool,
) -> Option<()> {
    let uri = Uri::builder()
        .scheme("http")
        .authority(authority)
        .path_and_query(path);
    let mut made = Request::new(());
    *made.method_mut() = Method::from_bytes(method).ok()?;
    *made.uri_mut() = uri.build().ok()?;
    *made.headers_mut() = fields;
    let (parts, ()) = made.into_parts();
    let mut out = Vec::new();
    convert::write_request(&mut out, &parts, ends).ok()?;
    let why = || format!("{parts:?} became {}", show(&out));
    let mut lines = Lines::new();
    let head = request::parse(&out, &mut lines, LIMITS).ok()?;
    let head = head.unwrap_or_else(|| panic!("not whole: {}", why()));
    assert_eq!(head.bytes.len(), out.len(), "{}", why());
    assert_eq!(head.method, method, "{}", why());
    assert_eq!(
        head.target,
        parts.uri.path_and_query()?.as_str().as_bytes(),
        "{}",
        why()
    );
    let meant = parts.uri.authority()?.as_str().as_bytes();
    assert_eq!(head.authority, meant, "{}", why());
    let framing = match length(&parts.headers) {
        Some(length) => Framing::Length(length),
        None if !ends => Framing::Chunked,
        None if matches!(method, b"POST" | b"PUT" | b"PATCH") => Framing::Length(0),
        None => Framing::None,
    };
    assert_eq!(head.framing, framing, "{}", why());
    let other = strict::head(&out).unwrap_or_else(|what| panic!("{what}: {}", why()));
    assert_eq!(
        (other.first, other.second),
        (head.method, head.target),
        "{}",
        why()
    );
    assert_eq!(other.all("host"), [meant], "{}", why());
    assert_eq!(other.body, body(framing), "{}", why());
    let mut added = vec!["Host", "Transfer-Encoding", "Content-Length"];
    added.retain(|name| !parts.headers.contains_key(*name) || *name == "Host");
    assert_eq!(
        read(&other.fields, &added),
        written(&parts.headers),
        "{}",
        why()
    );
    // And to HTTP/2 again.
    let again = convert::request(&head, false).unwrap_or_else(|error| panic!("{error}: {}", why()));
    assert_eq!(again.method(), parts.method, "{}", why());
    assert_eq!(again.uri(), &parts.uri, "{}", why());
    Some(())
}

fn answered(status: &[u8], fields: &HeaderMap, ends: bool) -> Option<()> {
    let mut made = Response::new(());
    *made.status_mut() = StatusCode::from_bytes(status).ok()?;
    *made.headers_mut() = fields.clone();
    let (parts, ()) = made.into_parts();
    for to_head in [false, true] {
        let mut out = Vec::new();
        convert::write_response(&mut out, &parts, ends, to_head).ok()?;
        let why = || format!("{parts:?} became {}", show(&out));
        let mut lines = Lines::new();
        let head = response::parse(&out, &mut lines, to_head).ok()?;
        let head = head.unwrap_or_else(|| panic!("not whole: {}", why()));
        assert_eq!(head.bytes.len(), out.len(), "{}", why());
        assert_eq!(head.status, parts.status.as_u16(), "{}", why());
        let is_bodiless = to_head || head.status < 200 || matches!(head.status, 204 | 304);
        let framing = match length(fields) {
            _ if is_bodiless => Framing::None,
            Some(length) => Framing::Length(length),
            None if ends => Framing::Length(0),
            None => Framing::Chunked,
        };
        assert_eq!(head.framing, framing, "{}", why());
        let other = strict::head(&out).unwrap_or_else(|what| panic!("{what}: {}", why()));
        assert_eq!(other.second, status, "{}", why());
        let mut added = vec!["Transfer-Encoding", "Content-Length"];
        added.retain(|name| !fields.contains_key(*name));
        let mut meant = written(fields);
        meant.retain(|(name, _)| name != b"host");
        assert_eq!(read(&other.fields, &added), meant, "{}", why());
    }
    Some(())
}

fn trailers(fields: &HeaderMap) -> Option<()> {
    let mut out = Vec::new();
    convert::write_trailers(&mut out, fields);
    let lines: Vec<_> = out
        .split_inclusive(|byte| *byte == b'\n')
        .map(|line| {
            line.strip_suffix(b"\r\n")
                .unwrap_or_else(|| panic!("{}", show(&out)))
        })
        .map(|line| strict::field(line).unwrap_or_else(|what| panic!("{what}: {}", show(&out))))
        .collect();
    // A field that has no place there is left out; none is made up or changed.
    let meant = |(name, value): &(Vec<u8>, Vec<u8>)| {
        let values = fields.get_all(std::str::from_utf8(name).unwrap_or_default());
        values.iter().any(|meant| meant.as_bytes() == value)
    };
    assert!(read(&lines, &[]).iter().all(meant), "{}", show(&out));
    out.extend_from_slice(b"\r\n");
    // What is left is a trailer section to the one who reads it next.
    let body = [b"0\r\n", &out[..]].concat();
    let mut chunked = Chunked::default();
    assert!(
        chunked.advance(&body).is_ok() && chunked.is_ended(),
        "{}",
        show(&out)
    );
    let again = convert::trailers(&out).ok()?;
    for (name, value) in &again {
        let meant = written(fields);
        let same = |line: &(Vec<u8>, Vec<u8>)| {
            line.0 == name.as_str().as_bytes() && line.1 == value.as_bytes()
        };
        assert!(meant.iter().any(same), "{name}: {}", show(&out));
    }
    Some(())
}

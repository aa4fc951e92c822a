//! Heads and trailers from HTTP/2 to HTTP/1.1 and back (RFC 9113 §8). No I/O.
//!
//! What HTTP/2 forbids is refused here; what HTTP/1.1 forbids is refused by its parser, which reads all that is written
//! here. A value cannot smuggle a line: the types hold no CR, LF or NUL.

use crate::h1::chunked::{self, ChunkError};
use crate::h1::field::Field;
use crate::h1::line::{self, Line, Lines};
use crate::h1::request::RequestHead;
use crate::h1::response::ResponseHead;
use crate::h1::{FIELDS_MAX, Framing, HeadError};
use crate::orca;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode, Uri, request, response};

/// Writes a request's head to `out`. `ends`: the stream ends with it.
///
/// # Errors
/// The rule of RFC 9113 §8 that it breaks.
pub fn write_request(
    out: &mut Vec<u8>,
    parts: &request::Parts,
    ends: bool,
) -> Result<(), HeadError> {
    let host = parts.headers.get(header::HOST).map(HeaderValue::as_bytes);
    let authority = parts
        .uri
        .authority()
        .map(|authority| authority.as_str().as_bytes());
    let target = parts.uri.path_and_query();
    let target = target.map(|target| target.as_str().as_bytes());
    // Before anything is refused: the log tells what it was for.
    out.extend_from_slice(parts.method.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(target.or(authority).or(host).unwrap_or_default());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    let authority = match (authority, host) {
        // RFC 9113 §8.3.1: a Host that says something else makes two readers see two requests.
        (Some(authority), Some(host)) if !authority.eq_ignore_ascii_case(host) => {
            return Err(HeadError::HostRepeated);
        }
        (authority, host) => authority.or(host).ok_or(HeadError::HostMissing)?,
    };
    if parts.headers.get_all(header::HOST).iter().nth(1).is_some() {
        return Err(HeadError::HostRepeated);
    }
    out.extend_from_slice(b"Host: ");
    out.extend_from_slice(authority);
    out.extend_from_slice(b"\r\n");
    write_fields(out, &parts.headers)?;
    let has_length = parts.headers.contains_key(header::CONTENT_LENGTH);
    if ends && !has_length && expects_body(&parts.method) {
        out.extend_from_slice(b"Content-Length: 0\r\n");
    } else if !ends && !has_length {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    out.extend_from_slice(b"\r\n");
    Ok(())
}

/// Methods whose request without a length makes some servers answer 411 (RFC 9110 §8.6).
fn expects_body(method: &Method) -> bool {
    *method == Method::POST || *method == Method::PUT || *method == Method::PATCH
}

/// Writes a response's head to `out`. `ends`: the stream ends with it; `to_head`: the request was HEAD.
///
/// # Errors
/// The rule of RFC 9113 §8 that it breaks.
pub fn write_response(
    out: &mut Vec<u8>,
    parts: &response::Parts,
    ends: bool,
    to_head: bool,
) -> Result<(), HeadError> {
    let status = parts.status;
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    out.extend_from_slice(b"\r\n");
    write_fields(out, &parts.headers)?;
    let has_body = !to_head
        && !status.is_informational()
        && status != StatusCode::NO_CONTENT
        && status != StatusCode::NOT_MODIFIED;
    match parts.headers.contains_key(header::CONTENT_LENGTH) {
        true => {}
        false if has_body && ends => out.extend_from_slice(b"Content-Length: 0\r\n"),
        false if has_body => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
        false => {}
    }
    out.extend_from_slice(b"\r\n");
    Ok(())
}

/// Writes trailers to `out`: the lines between the last chunk and the end. A field that HTTP/1.1 has no place for there
/// is left out (RFC 9110 §6.5.1), and so is what makes them too long: the body before them is whole.
pub fn write_trailers(out: &mut Vec<u8>, trailers: &HeaderMap) {
    let start = out.len();
    for (name, value) in trailers {
        let before = out.len();
        out.extend_from_slice(name.as_str().as_bytes());
        out.extend_from_slice(b": ");
        let name = name.as_str().as_bytes();
        // No parser reads them before they are passed on, and the library takes `"` in a name.
        let is_sound = line::token_length(name) == name.len()
            && !chunked::is_forbidden_trailer(name)
            && write_value(out, value).is_ok();
        out.extend_from_slice(b"\r\n");
        if !is_sound || out.len() - start > chunked::TRAILERS_MAX {
            out.truncate(before);
        }
    }
}

fn write_fields(out: &mut Vec<u8>, fields: &HeaderMap) -> Result<(), HeadError> {
    for (name, value) in fields {
        if *name == header::HOST || *name == header::COOKIE {
            continue;
        }
        if is_of_a_connection(name) || (*name == header::TE && value != "trailers") {
            return Err(HeadError::Field);
        }
        out.extend_from_slice(name.as_str().as_bytes());
        out.extend_from_slice(b": ");
        write_value(out, value)?;
        out.extend_from_slice(b"\r\n");
    }
    // RFC 9113 §8.2.3: crumbs become one field before anybody else sees them.
    let mut crumbs = fields.get_all(header::COOKIE).iter();
    if let Some(first) = crumbs.next() {
        out.extend_from_slice(b"cookie: ");
        write_value(out, first)?;
        for crumb in crumbs {
            out.extend_from_slice(b"; ");
            write_value(out, crumb)?;
        }
        out.extend_from_slice(b"\r\n");
    }
    Ok(())
}

/// RFC 9113 §8.2.1: no white space around a value.
fn write_value(out: &mut Vec<u8>, value: &HeaderValue) -> Result<(), HeadError> {
    let bytes = value.as_bytes();
    let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    if is_blank(bytes.first()) || is_blank(bytes.last()) {
        return Err(HeadError::Field);
    }
    out.extend_from_slice(bytes);
    Ok(())
}

/// RFC 9113 §8.2.2: fields that say how HTTP/1.1 uses its connection.
fn is_of_a_connection(name: &HeaderName) -> bool {
    *name == header::CONNECTION
        || *name == header::TRANSFER_ENCODING
        || *name == header::UPGRADE
        || name == "keep-alive"
        || name == "proxy-connection"
}

/// The request for a backend that speaks HTTP/2, from the head that is written for one of HTTP/1.1.
///
/// # Errors
/// If the head names a method or a target that HTTP/2 cannot carry.
pub fn request(head: &RequestHead<'_, '_>, secure: bool) -> Result<Request<()>, http::Error> {
    let uri = Uri::builder()
        .scheme(if secure { "https" } else { "http" })
        .authority(head.authority)
        .path_and_query(head.target)
        .build()?;
    let mut request = Request::new(());
    *request.method_mut() = Method::from_bytes(head.method)?;
    *request.uri_mut() = uri;
    *request.version_mut() = http::Version::HTTP_2;
    let fields = request.headers_mut();
    read_fields(fields, head.lines)?;
    // RFC 9110 §10.1.4: this hop takes trailers; gRPC asks for its being said.
    let content_type = fields.get(header::CONTENT_TYPE);
    if content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc")) {
        fields.insert(header::TE, HeaderValue::from_static("trailers"));
    }
    Ok(request)
}

/// The response for a client that speaks HTTP/2, from the head that is written for one of HTTP/1.1.
///
/// # Errors
/// None for what our own writers write.
pub fn response(head: &ResponseHead<'_, '_>) -> Result<Response<()>, http::Error> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(head.status)?;
    *response.version_mut() = http::Version::HTTP_2;
    let fields = response.headers_mut();
    read_fields(fields, head.lines)?;
    // A response of gRPC without a body is its trailers alone, and has no length.
    let content_type = fields.get(header::CONTENT_TYPE);
    if head.framing == Framing::Length(0)
        && content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
    {
        fields.remove(header::CONTENT_LENGTH);
    }
    Ok(response)
}

/// Trailers, from the lines between the last chunk and the end, empty line included.
///
/// # Errors
/// [`ChunkError::TooManyTrailers`], or [`ChunkError::Trailer`].
pub fn trailers(bytes: &[u8]) -> Result<HeaderMap, ChunkError> {
    let mut lines = Lines::new();
    match line::read(bytes, 0, &mut lines, FIELDS_MAX) {
        Ok(Some(_)) => {}
        Err(HeadError::TooManyFields) => return Err(ChunkError::TooManyTrailers),
        Ok(None) | Err(_) => return Err(ChunkError::Trailer),
    }
    let mut fields = HeaderMap::with_capacity(lines.len());
    read_fields(&mut fields, &lines).map_err(|_| ChunkError::Trailer)?;
    Ok(fields)
}

fn read_fields(fields: &mut HeaderMap, lines: &[Line<'_>]) -> Result<(), http::Error> {
    fields.reserve(lines.len());
    for line in lines {
        match line.field {
            Field::Host
            | Field::Connection
            | Field::HopByHop
            | Field::Upgrade
            | Field::TransferEncoding => {}
            _ => {
                let name = HeaderName::from_bytes(line.name)?;
                let mut value = HeaderValue::from_bytes(line.value)?;
                // Another one with each request: HPACK's table would hold nothing but those, and the library looks
                // through all that it holds of a name (RFC 7541 §6.2.3: a literal that is never indexed).
                value.set_sensitive(matches!(line.field, Field::XRequestId | Field::Traceparent));
                fields.append(name, value);
            }
        }
    }
    Ok(())
}

/// `grpc-status` in `fields`, which of a response are its trailers, or its head if it has no body.
pub fn grpc_status(fields: &HeaderMap) -> Option<u32> {
    let value = fields.get("grpc-status")?;
    value.to_str().ok()?.parse().ok()
}

/// A backend's account of its load, which is taken out of `trailers`; `None` if there is none.
pub fn take_load_report(trailers: &mut HeaderMap) -> Option<Result<orca::Report, orca::Malformed>> {
    let text = trailers.remove("endpoint-load-metrics");
    let binary = trailers.remove("endpoint-load-metrics-bin");
    let text = text.map(|value| orca::read(value.as_bytes()));
    text.or_else(|| binary.map(|value| orca::read_binary(value.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::h1::request;

    /// The library looks through every value that HPACK's table holds of a name, and it kept fifty identifiers there.
    #[test]
    fn what_differs_with_each_request_stays_out_of_hpack_s_table() {
        let bytes = b"GET / HTTP/1.1\r\nHost: a.example\r\nX-Request-Id: r7\r\nTraceparent: 00-1\r\nX-Forwarded-For: 10.0.0.1\r\nAccept: */*\r\n\r\n";
        let limits = request::Limits {
            headers_max: FIELDS_MAX,
            target_bytes_max: 100,
        };
        let mut lines = Lines::new();
        let head = request::parse(bytes, &mut lines, limits)
            .expect("it is sound")
            .expect("it is whole");
        let request = super::request(&head, false).expect("HTTP/2 can carry it");
        let never_indexed = |name: &str| request.headers()[name].is_sensitive();
        assert!(never_indexed("x-request-id") && never_indexed("traceparent"));
        assert!(!never_indexed("x-forwarded-for") && !never_indexed("accept"));
    }
}

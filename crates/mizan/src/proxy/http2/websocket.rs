//! WebSockets over HTTP/2 (RFC 8441), in the terms of HTTP/1.1 (RFC 6455 §4): an extended CONNECT is an upgrade, its 200
//! is a 101.

use super::convert;
use crate::clock;
use crate::h1::HeadError;
use crate::h1::request::RequestHead;
use crate::h1::response::ResponseHead;
use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use data_encoding::BASE64;
use h2::ext::Protocol;
use http::{HeaderName, Method, Request, StatusCode, request, response};

/// RFC 6455 §1.3.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const KEY: HeaderName = HeaderName::from_static("sec-websocket-key");
const ACCEPT: HeaderName = HeaderName::from_static("sec-websocket-accept");
const NAME: &str = "websocket";

/// Whether a client's stream asks for a WebSocket.
pub(super) fn is_asked_for(parts: &request::Parts) -> bool {
    let protocol = parts.extensions.get::<Protocol>();
    parts.method == Method::CONNECT && protocol.is_some_and(|protocol| protocol.as_str() == NAME)
}

/// What was sent in place of a key that HTTP/2 does not need, to be answered as one.
#[derive(Debug)]
pub(in super::super) struct Key(String);

impl Key {
    /// Whether a backend has changed to a WebSocket, and answers this key.
    pub(super) fn is_accepted(&self, head: &ResponseHead<'_, '_>) -> bool {
        let accept = head.lines.iter().find(|line| line.is(ACCEPT.as_str()));
        let answer = accept_of(self.0.as_bytes());
        head.status == 101 && accept.is_some_and(|line| line.value == answer.as_bytes())
    }
}

/// What a server answers to a key (RFC 6455 §4.2.2).
fn accept_of(key: &[u8]) -> String {
    let text = [key, GUID].concat();
    BASE64.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, &text).as_ref())
}

/// Writes the upgrade that a stream asks for.
///
/// # Errors
/// As [`convert::write_request`]; and a length, which an upgrade does not have.
pub(super) fn write_request(
    out: &mut Vec<u8>,
    parts: &mut request::Parts,
) -> Result<Key, HeadError> {
    parts.method = Method::GET;
    parts.headers.remove(KEY);
    convert::write_request(out, parts, true)?;
    if parts.headers.contains_key(http::header::CONTENT_LENGTH) {
        return Err(HeadError::LengthMalformed);
    }
    // Before the empty line.
    out.truncate(out.len() - 2);
    let mut key = [0; 16];
    key[..8].copy_from_slice(&clock::random().to_be_bytes());
    key[8..].copy_from_slice(&clock::random().to_be_bytes());
    let key = BASE64.encode(&key);
    out.extend_from_slice(b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: ");
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(b"\r\n\r\n");
    Ok(Key(key))
}

/// Makes the answer to an upgrade the one to an extended CONNECT.
pub(super) fn accept(response: &mut http::Response<()>) {
    *response.status_mut() = StatusCode::OK;
    response.headers_mut().remove(ACCEPT);
}

/// What a backend's client of HTTP/1.1 is to be answered, if it asks for a WebSocket.
#[derive(Debug)]
pub(super) struct Asked {
    accept: String,
}

impl Asked {
    /// Makes the upgrade in `head` an extended CONNECT; `None` if it asks for something else.
    pub(super) fn of(head: &RequestHead<'_, '_>, request: &mut Request<()>) -> Option<Self> {
        let protocol = head.upgrade()?;
        if !protocol.eq_ignore_ascii_case(NAME.as_bytes()) {
            return None;
        }
        let key = request.headers_mut().remove(KEY)?;
        *request.method_mut() = Method::CONNECT;
        request.extensions_mut().insert(Protocol::from_static(NAME));
        let accept = accept_of(key.as_bytes());
        Some(Self { accept })
    }

    /// Writes the 101 for the backend's 200.
    ///
    /// # Errors
    /// As [`convert::write_response`].
    pub(super) fn write_accepted(
        &self,
        out: &mut Vec<u8>,
        parts: &mut response::Parts,
    ) -> Result<(), HeadError> {
        parts.status = StatusCode::SWITCHING_PROTOCOLS;
        convert::write_response(out, parts, false, true)?;
        out.truncate(out.len() - 2);
        out.extend_from_slice(
            b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: ",
        );
        out.extend_from_slice(self.accept.as_bytes());
        out.extend_from_slice(b"\r\n\r\n");
        Ok(())
    }
}

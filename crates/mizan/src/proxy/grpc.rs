//! What gRPC asks of a proxy: deadlines, errors in its own terms, and its own account of how a call ended (gRPC over
//! HTTP/2; gRPC status codes).

use super::error::Reason;
use super::http2::grpc_web::Spelling;
use crate::h1::request::RequestHead;
use std::time::Duration;

/// Status codes of gRPC that Mizan itself gives.
pub(super) mod code {
    pub(in super::super) const CANCELLED: u32 = 1;
    pub(in super::super) const UNKNOWN: u32 = 2;
    pub(in super::super) const INVALID_ARGUMENT: u32 = 3;
    pub(in super::super) const DEADLINE_EXCEEDED: u32 = 4;
    pub(in super::super) const PERMISSION_DENIED: u32 = 7;
    pub(in super::super) const RESOURCE_EXHAUSTED: u32 = 8;
    pub(in super::super) const UNIMPLEMENTED: u32 = 12;
    pub(in super::super) const INTERNAL: u32 = 13;
    pub(in super::super) const UNAVAILABLE: u32 = 14;
    pub(in super::super) const UNAUTHENTICATED: u32 = 16;
}

/// Whether a request is a call: `application/grpc`, alone or with the message's coding.
pub(super) fn is_call(head: &RequestHead<'_, '_>) -> bool {
    if head.method != b"POST" {
        return false;
    }
    let content_type = head.lines.iter().find(|line| line.is("content-type"));
    content_type.is_some_and(|line| {
        let rest = line.value.strip_prefix(b"application/grpc");
        rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
    })
}

/// How a call of gRPC-Web is spelt; `None`: it is none.
pub(super) fn web(head: &RequestHead<'_, '_>) -> Option<Spelling> {
    let content_type = head.lines.iter().find(|line| line.is("content-type"))?;
    Spelling::of(content_type.value).filter(|_| head.method == b"POST")
}

/// The type of an answer that has no message.
pub(super) fn content_type(web: Option<Spelling>) -> &'static str {
    match web {
        None => "application/grpc",
        Some(web) => web.content_type(),
    }
}

/// How long the client waits, by `grpc-timeout`; one that is not well formed is none.
pub(super) fn timeout(head: &RequestHead<'_, '_>) -> Option<Duration> {
    let line = head.lines.iter().find(|line| line.is("grpc-timeout"))?;
    parse_timeout(line.value)
}

/// At most 8 digits, then a unit.
fn parse_timeout(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if digits.is_empty() || digits.len() > 8 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let count: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    match unit {
        b'H' => Some(Duration::from_secs(count * 3600)),
        b'M' => Some(Duration::from_secs(count * 60)),
        b'S' => Some(Duration::from_secs(count)),
        b'm' => Some(Duration::from_millis(count)),
        b'u' => Some(Duration::from_micros(count)),
        b'n' => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

/// What a call is told instead of `reason`, whose status is `status`.
pub(super) fn code_of(reason: Reason, status: u16) -> u32 {
    match (reason, status) {
        (Reason::RequestTimeout | Reason::ClientTimeout, _) | (_, 504) => code::DEADLINE_EXCEEDED,
        (Reason::Chunk(_), _) => code::INVALID_ARGUMENT,
        (_, 401) => code::UNAUTHENTICATED,
        (_, 403) => code::PERMISSION_DENIED,
        (_, 404 | 405 | 501) => code::UNIMPLEMENTED,
        (_, 413 | 431) => code::RESOURCE_EXHAUSTED,
        (_, 421 | 429 | 502 | 503) => code::UNAVAILABLE,
        (_, 499) => code::CANCELLED,
        _ => code::INTERNAL,
    }
}

/// How a call has ended, by what its backend has sent to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Account {
    Said(u32),
    /// An answer of gRPC without a readable status.
    Missing,
    /// No answer of gRPC.
    Foreign,
}

impl Account {
    /// The status code that the client goes by, and the status of HTTP that the backend is judged by; `status` is its
    /// answer's. Who answers calls and leaves out how they ended has failed. Who answers something else has not: a
    /// client brings that about with a call to what serves none.
    pub(super) fn judged(self, status: u16) -> (u32, u16) {
        match self {
            Self::Said(code) => (code, http_status(code)),
            Self::Missing if status == 200 => (code::UNKNOWN, http_status(code::UNKNOWN)),
            Self::Missing | Self::Foreign => (code_of_status(status), status),
        }
    }
}

/// What a client makes of an answer without a status code (gRPC's mapping of statuses of HTTP).
fn code_of_status(status: u16) -> u32 {
    match status {
        400 => code::INTERNAL,
        401 => code::UNAUTHENTICATED,
        403 => code::PERMISSION_DENIED,
        404 => code::UNIMPLEMENTED,
        429 | 502 | 503 | 504 => code::UNAVAILABLE,
        _ => code::UNKNOWN,
    }
}

/// The status of HTTP that says what a call's end says of its backend. Errors of the application's own making
/// (`NOT_FOUND`, `ALREADY_EXISTS`, …) are answers like any other, and so is what a client can bring about by itself: a
/// method that nobody has, a deadline that nobody could meet.
pub(super) fn http_status(code: u32) -> u16 {
    match code {
        // UNKNOWN, INTERNAL, DATA_LOSS
        2 | 13 | 15 => 500,
        14 => 503,
        _ => 200,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_digits_and_a_unit() {
        assert_eq!(parse_timeout(b"5S"), Some(Duration::from_secs(5)));
        assert_eq!(parse_timeout(b"100m"), Some(Duration::from_millis(100)));
        assert_eq!(
            parse_timeout(b"99999999H"),
            Some(Duration::from_secs(99_999_999 * 3600))
        );
        for wrong in [&b""[..], b"S", b"5", b"5s", b"123456789S", b"-1S", b"5 S"] {
            assert_eq!(parse_timeout(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn only_what_the_backend_is_to_blame_for_counts_against_it() {
        let blamed: Vec<u32> = (0..=16).filter(|code| http_status(*code) >= 500).collect();
        assert_eq!(blamed, [2, 13, 14, 15]);
    }
}
